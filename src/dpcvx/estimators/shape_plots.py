"""Pictures of the shapes of an additive model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpcvx.errors import NotInstalled
from dpcvx.estimators.shapes import Shape, Shapes

__all__ = ["draw_shapes"]

LINE, BAND = "#0b6e75", "#7fb7bb"
PER_ROW, NORMAL = 3, 1.96
MOST_BAND = 2.0  # ends of a panel, over the largest contribution: one rare level would flatten all others
UPRIGHT = 10  # levels from which on labels are vertical
MOST_LABELS = 55  # of levels that fit into a panel
LABELS_WIDTH = 220  # in points, of labels side by side


def draw_shapes(shapes: Shapes) -> Any:
    """Return a figure with a panel for each shape, and its band where the fit has standard errors."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise NotInstalled('Plots need matplotlib: run  pip install "dpcvx[plot]"') from missing
    columns = min(PER_ROW, max(1, len(shapes)))
    lines = math.ceil(len(shapes) / columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    values = max((float(np.abs(shape.values).max()) for shape in shapes.values()), default=0.0) or 1.0
    ends = max((float(np.abs(_ends(shape)).max()) for shape in shapes.values()), default=1.0)
    reach = min(ends, MOST_BAND * values) or 1.0
    for axes, shape in zip(panels, shapes.values(), strict=False):
        _draw(axes, shape)
        axes.set_ylim(-1.08 * reach, 1.08 * reach)  # one scale, so that columns compare
        axes.axhline(0, color="#b0b5bc", linewidth=0.8, zorder=0)
        axes.set_title(shape.column, fontsize=11, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(shapes) :]:
        axes.set_visible(False)
    figure.supylabel("contribution to the score", fontsize=10)
    if ends > reach:
        figure.supxlabel("Intervals that reach the edge of a panel end beyond it.", fontsize=9)
    return figure


def _ends(shape: Shape) -> Any:
    """Everything that a panel shows."""
    if shape.std is None:
        return shape.values
    half = NORMAL * shape.std
    return np.concatenate([shape.values, shape.debiased - half, shape.debiased + half])


def _draw(axes: Any, shape: Shape) -> None:
    known = shape.std is not None
    if shape.is_number:
        axes.plot(shape.at, shape.values, color=LINE, linewidth=2.2, marker="o", markersize=3.5)
        for at, value, side in zip(shape.at, shape.values, shape.sides, strict=False):
            if side:
                axes.annotate(
                    f"{side} {at:g}",
                    (at, np.mean(value)),
                    (6, -3),
                    textcoords="offset points",
                    fontsize=7,
                    color="#33414e",
                )
        if known:
            half = NORMAL * np.asarray(shape.std)
            axes.fill_between(
                shape.at, shape.debiased - half, shape.debiased + half, color=BAND, alpha=0.35, linewidth=0
            )
        return
    places = np.arange(len(shape.at))
    values = np.asarray(shape.values).reshape(len(places), -1)
    for k, part in enumerate(values.T):
        axes.bar(places + 0.8 * k / values.shape[1], part, width=0.8 / values.shape[1], color=LINE)
    if known:
        axes.errorbar(places, shape.debiased, NORMAL * np.asarray(shape.std), fmt="none", ecolor="#33414e")
    _name_levels(axes, [str(level) for level in shape.at])


def _name_levels(axes: Any, names: list[str]) -> None:
    """Write the names of levels below their bars, vertically from `UPRIGHT` on, and at most `MOST_LABELS`."""
    if len(names) < UPRIGHT:
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        return
    step = math.ceil(len(names) / MOST_LABELS)
    size = min(8.0, LABELS_WIDTH * step / len(names))
    axes.set_xticks(range(0, len(names), step), names[::step], rotation=90, fontsize=size)
