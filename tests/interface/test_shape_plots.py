"""Pictures of shapes can be read: their scale, and the names of many levels."""

import itertools

import numpy as np
import pytest

from dpcvx.estimators.shape_plots import draw_shapes
from dpcvx.estimators.shapes import Shape, Shapes


def drawn(**std_of_levels):
    """Panels of a line from -1 to 1 and of levels with these standard errors."""
    levels, std = tuple(std_of_levels), np.array(list(std_of_levels.values()))
    values = np.linspace(-0.5, 0.5, len(levels))
    line = Shape("age", (18, 90), np.array([-1.0, 1.0]), np.array([-1.0, 1.0]), np.array([0.1, 0.1]), True)
    bars = Shape("place", levels, values, values, std, False)
    return draw_shapes(Shapes("model", {"age": line, "place": bars}, {}, 0.0))


def test_a_level_that_noise_hides_does_not_flatten_the_other_panels():
    figure = drawn(north=0.1, south=40.0)
    for axes in figure.axes:
        assert axes.get_ylim()[1] == pytest.approx(2 * 1.08)
    assert "beyond" in figure.get_supxlabel()
    figure = drawn(north=0.1, south=0.2)
    assert figure.axes[0].get_ylim()[1] == pytest.approx(1.08 * (1 + 1.96 * 0.1))
    assert figure.get_supxlabel() == ""


@pytest.mark.parametrize("count", [3, 51, 200])
def test_names_of_many_levels_do_not_overlap(count):
    figure = drawn(**{f"a state {k}": 0.1 for k in range(count)})
    figure.draw_without_rendering()
    boxes = [tick.get_window_extent() for tick in figure.axes[1].get_xticklabels()]
    assert len(boxes) >= min(count, 40)
    if count > 3:
        assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))
