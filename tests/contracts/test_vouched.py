"""Trust is declared class by class: subclasses and the user's own objects have none."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from adversary import stored
from dpcvx.domains import L1Ball, L2Ball, Transformed
from dpcvx.errors import Incompatible
from dpcvx.losses import LOSSES, Squared
from dpcvx.mechanisms import NoisyVertex
from dpcvx.mechanisms.minimise import RidgeFacts
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.vouched import VOUCHED, is_vouched, prox_error
from zoo import ALL_LOSSES


@pytest.mark.parametrize("kind", VOUCHED, ids=lambda kind: kind.__name__)
def test_a_subclass_inherits_no_trust(kind):
    heir = type("Heir", (kind,), {})
    assert VOUCHED[kind].uses
    assert not any(is_vouched(heir, use) for use in ("minimisers", "queries"))


def test_a_set_is_trusted_only_with_all_of_its_parts():
    class Own(L2Ball):
        pass

    assert prox_error(L2Ball(1.0)) == 0
    assert 0 < prox_error(Transformed(L2Ball(1.0), 2.0)) < 1e-6
    assert prox_error(Transformed(Own(1.0), 2.0)) == math.inf


@dataclass(frozen=True)
class Heir(Squared):
    """Squared loss that might say anything of itself."""


def test_a_subclass_of_a_loss_gets_neither_a_minimiser_nor_unclipped_residuals():
    problems = [Problem(loss, L1Ball(1.0), bounds=Bounds(1.0), d=3) for loss in (Squared(), Heir())]
    RidgeFacts(problems[0], 10, 10, 1.0)
    with pytest.raises(Incompatible, match="nothing enforces"):
        RidgeFacts(problems[1], 10, 10, 1.0)
    followed = []
    for problem in problems:
        data = stored(np.ones((10, 3)), np.ones(10), problem.bounds, "dense")
        question = NoisyVertex(problem, 10, 0.5, 20)
        point, margins = question.start(data)
        question(point, margins, data, SeededGenerator(0))
        followed.append(type(margins).__name__)
    assert followed[0] == "GramScores" != followed[1]


def test_every_loss_is_listed_under_its_name():
    assert {type(loss) for loss in ALL_LOSSES} == set(LOSSES)
    assert len({kind.name for kind in LOSSES}) == len(LOSSES)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_the_kind_of_target_is_what_the_loss_is_made_for(loss):
    assert loss.joint == (loss.target == "codes")
    assert (loss.link == "identity") == (loss.target == "numbers")
    assert not (loss.affine and not loss.unit_free)
    if (clipped := loss.clipped(0.55)) is not None:
        assert clipped.convex
        assert clipped.lipschitz(50.0) == min(0.55, loss.lipschitz(50.0))
        assert (clipped.target, clipped.y_range) == (loss.target, loss.y_range)
