"""Queries over tiny sets, sharp corners and everybody: sensitivities hold, and work has its limit."""

import numpy as np
import pytest

from dpcvx.domains import Box, L1Ball, Simplex
from dpcvx.losses import SmoothHinge
from dpcvx.queries import Attribute, Binned, Count, Mean, Regression, Schema
from dpcvx.queries.compiled import TOLERANCE, WORK, CompiledRegression
from dpcvx.queries.error_bars import PropagatedNoise, reach
from dpcvx.queries.histogram import Counts, Histogram
from dpcvx.queries.mechanisms import NoisyMeans, PublicAnswer
from dpcvx.queries.query import query_from_json
from dpcvx.queries.universe import Universe

SCHEMA = Schema(
    (
        Attribute("a", ("0", "1"), "1"),
        Attribute("b", ("0", "1"), "1"),
        Attribute("c", ("0", "1"), "1"),
        Binned("z", (0, 1, 2, 3, 4), 1.5),
        Binned("year", (1e13, 1e13 + 1, 1e13 + 2), 1e13 + 0.5),
    )
)
UNIVERSE = Universe(SCHEMA)
N = 50_000
CELLS = np.random.default_rng(0).integers(0, UNIVERSE.n_cells, N)
REGRESSION = {"kind": "regression", "target": "a", "features": ["b", "c", "z"]}


@pytest.mark.parametrize(
    "query",
    [
        Regression("a", ("b", "c", "z"), radius=1e-12),
        Regression("z", ("b", "c"), loss="squared", radius=3e-14),
        Regression("a", ("b", "c"), loss="huber", domain=L1Ball(1e-13)),
        Mean("year"),
    ],
    ids=["tiny ball", "squared", "huber", "numbers of one size"],
)
def test_rounding_over_a_tiny_set_moves_no_score_by_more_than_its_sensitivity(query):
    """Over a tiny set all losses are equal to the last bits: what one record does to those is not its range.

    The score of such a question was moved by 29 sensitivities, so comparisons told records apart.
    """
    question = query.compile(SCHEMA, N)
    theta = question.answer(Histogram(UNIVERSE).marginal(question.attributes).ravel())
    near = question.near(theta, 0.1) if isinstance(question, CompiledRegression) else question
    checked = PublicAnswer(near, theta)
    score = checked.score(Counts(UNIVERSE, CELLS))
    for record in range(40):
        neighbour = CELLS.copy()
        neighbour[record] = (neighbour[record] + 1 + 7 * record) % UNIVERSE.n_cells
        assert abs(checked.score(Counts(UNIVERSE, neighbour)) - score) <= 1 + 2 * TOLERANCE


def test_a_set_too_small_for_float64_has_an_answer():
    for radius in (5e-324, 1e-300, 1e-20):
        question = Regression("a", ("b",), radius=radius).compile(SCHEMA, N)
        theta = question.answer(Histogram(UNIVERSE).marginal(question.attributes).ravel())
        assert PublicAnswer(question, theta).score(Counts(UNIVERSE, CELLS)) == 0.0


def test_a_count_of_everybody_is_answered_and_measured():
    """Every level of an attribute ticked: the count is n, which is public, and its range is zero."""
    from dpcvx.noise import SeededGenerator

    question = Count({"a": ("0", "1")}).compile(SCHEMA, N)
    counts = Counts(UNIVERSE, CELLS)
    assert PublicAnswer(question, np.array([float(N)])).score(counts) == 0.0
    assert NoisyMeans(question, N, 10.0)(counts, SeededGenerator(0)) == pytest.approx([N])


@pytest.mark.parametrize(
    "content",
    [
        {**REGRESSION, "radius": 10**400},
        {**REGRESSION, "l2": 10**400},
        {**REGRESSION, "radius": float("nan")},
        {**REGRESSION, "set": {"name": "L1Ball", "radius": [1, 2]}},
        {**REGRESSION, "set": {"name": "Box", "low": [0, 1], "high": [2, 3]}},
        {**REGRESSION, "loss": {"name": "smooth_hinge", "width": 1e-4}},
        {**REGRESSION, "loss": {"name": "huber", "threshold": 5e-324}},
    ],
    ids=["radius", "l2", "nan", "list", "dimension", "sharp corner", "no slope"],
)
def test_a_question_that_cannot_be_answered_is_refused_from_its_description(content):
    with pytest.raises(ValueError):
        query_from_json(content).compile(SCHEMA, N)


def test_a_corner_that_takes_for_ever_to_minimise_is_refused():
    """One such question held the engine, and with it every analyst, for hours."""
    with pytest.raises(ValueError, match="sharper"):
        Regression("a", ("b",), loss=SmoothHinge(1e-4))


@pytest.mark.parametrize(
    "loss", ["quantile", "huber", SmoothHinge(0.016)], ids=["quantile", "huber", "hinge"]
)
def test_no_question_takes_more_than_its_share_of_work(loss):
    """A corner over a large ball and 2^16 cells would have taken days, and nobody else would be answered."""
    schema = Schema(tuple(Attribute(f"b{k}", ("0", "1"), "1") for k in range(16)))
    question = Regression("b0", schema.names[1:], loss=loss, radius=1000.0).compile(schema, 10**6)
    theta = np.zeros(question.problem.d)
    small = Regression("b0", ("b1",), loss=loss, domain=Box(998.0, 1000.0), l2=1000.0)
    for each in (question, question.near(theta, 0.1), small.compile(schema, 10**6)):
        tolerance = TOLERANCE / 2 * each.range(np.full(each.problem.d, 999.0)) / 10**6
        assert each.steps(tolerance) * (each._rows.size + 2**16) <= 1.001 * WORK


def test_a_point_is_a_set_too():
    """The simplex of one coefficient has no size to take a part of."""
    question = Regression("a", (), domain=Simplex(1.0)).compile(SCHEMA, N)
    assert reach(question.problem, PropagatedNoise(0.1, np.eye(1))) == 1.0
