"""Every tuned number is recorded with its reason, and no prediction hangs on one of them alone."""

import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.domains import Cardinality, SubmodularNorm
from dpcvx.planning.candidates import GaussianLimit
from dpcvx.planning.planner import default_clip, residual_clip
from dpcvx.planning.rehearsal import rehearse, risk_at_zero
from dpcvx.solvers import SOLVERS, NoisyGradientDescent, Standardised, configured
from dpcvx.solvers.defaults import DEFAULTS
from dpcvx.solvers.memo import forget

ROOT = Path(__file__).parents[2]
N, BUDGET = 20_000, dp.Budget(1.0, 1e-6)
SPARSE = SubmodularNorm(Cardinality(), 0.1)
SHAPES = [
    dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0, 1.0), d=10),
    dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=40),
    dp.Problem(dp.Logistic(), dp.L1Ball(10.0), bounds=dp.Bounds(1.0), d=200, l2=0.01),
    dp.Problem(dp.Squared(), dp.L1Ball(3.0), bounds=dp.Bounds(1.0), d=50),
    dp.Problem(
        dp.Logistic(), bounds=dp.Bounds(1.0), d=20, l2=0.1, regularizer=SubmodularNorm(Cardinality(), 0.1)
    ),
]
FEW = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=6)
# Halved or doubled, a default changes no predicted risk by more than this factor.
MOST_CHANGE = 4.5


def fits(kind, problem):
    """Whether a solver makes a plan."""
    try:
        configured(kind, clip=residual_clip(problem)).plan(
            problem, N, BUDGET, GaussianLimit() if kind.samples else Tight()
        )
    except dp.Incompatible:
        return False
    return True


FITTING = [[kind for kind in SOLVERS if fits(kind, problem)] for problem in SHAPES]


def predictions():
    """Predicted risks of every solver on shapes that it fits, of standardised descent, of a rehearsal."""
    forget()
    risks = []
    for problem, kinds in zip(SHAPES, FITTING, strict=True):
        clip = default_clip(problem, N, BUDGET) if problem.domain is not None else None
        solvers = [configured(kind, clip=clip) for kind in kinds]
        if problem.is_round:
            solvers.append(Standardised(NoisyGradientDescent()))
        risks += [sum(solver.predict(problem, N, BUDGET)) for solver in solvers]
    made = NoisyGradientDescent(n_iter=20, clip=1.0).plan(FEW, N, BUDGET, Tight())
    return np.array([*risks, sum(rehearse(made)), risk_at_zero(FEW, 1.0)])


@pytest.fixture(scope="module")
def usual():
    yield predictions()
    forget()


def scaled(value, factor):
    """The value times the factor; a share of something stays below 1, a number of something an integer."""
    if isinstance(value, tuple):
        return tuple(scaled(each, factor) for each in value)
    if isinstance(value, float) and value < 1:
        return min(factor * value, (1 + value) / 2)
    return max(1, round(factor * value)) if isinstance(value, int) else factor * value


@pytest.mark.parametrize(
    "each", [each for each in DEFAULTS.values() if each.predicts], ids=lambda each: each.name
)
def test_half_and_double_of_a_default_change_predictions_by_a_bounded_factor(each, usual, monkeypatch):
    module, name = each.name.rsplit(".", 1)
    changes = []
    for factor in (0.5, 2.0):
        value = scaled(each.value, factor)
        if name == "CLIP_ROOM":  # of slopes at theta = 0, half of the largest
            value = min(max(value, 1.0), 1.99)
        monkeypatch.setattr(f"dpcvx.{module}.{name}", value)
        ratio = predictions() / usual
        changes.append(float(np.exp(np.abs(np.log(ratio)).max())))
    print(each.name, changes)
    assert 1 < max(changes) <= MOST_CHANGE


@pytest.mark.parametrize("each", DEFAULTS.values(), ids=lambda each: each.name)
def test_a_default_is_used_where_it_says_and_names_evidence(each):
    module, name = each.name.rsplit(".", 1)
    assert getattr(importlib.import_module(f"dpcvx.{module}"), name) == each.value
    assert each.measured_by.startswith("not measured: ") or (ROOT / each.measured_by).exists()


def test_the_page_shows_the_numbers_of_today():
    spec = importlib.util.spec_from_file_location("defaults_table", ROOT / "docs" / "defaults_table.py")
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert writer.page() == writer.PAGE.read_text()
