"""The example of a source of one's own: a map over batches and an addition serve every sum."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dpcvx
from dpcvx.data import (
    Arrays,
    CurvatureBound,
    CurvatureSum,
    DifferenceSum,
    GoodnessSum,
    GradientSum,
    LengthSum,
    LogLosses,
    MomentSum,
    ResidualBound,
    TargetSum,
)
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent

pa = pytest.importorskip("pyarrow")


EXAMPLE = Path(__file__).parents[2] / "examples" / "own_source.py"
ArrowStream = runpy.run_path(str(EXAMPLE))["ArrowStream"]

BOUNDS = dpcvx.Bounds(1.0, 1.5)
RNG = np.random.default_rng(4)
X, Y = RNG.uniform(-1, 1, (90, 4)), RNG.choice([-1.0, 1.0], 90)
THETA = RNG.normal(size=4)
BOUND = ResidualBound(2**20, 2**20)
CENTERS = np.array([5, -7, 100, 0, 3])
QUESTIONS = [
    GradientSum(dpcvx.Logistic(), THETA, BOUND),
    DifferenceSum(dpcvx.Logistic(), (THETA, -THETA), np.arange(3, 90, 7), BOUND, BOUND),
    CurvatureSum(dpcvx.Logistic(), THETA, BOUND, CurvatureBound(2**8, 10), CurvatureBound(2**10, 10)),
    MomentSum(2, CENTERS, np.full(5, 2**14)),
    LengthSum(),
    TargetSum(0.2, 0.5),
    GoodnessSum(THETA, LogLosses(2.0)),
]


def batches():
    for start, stop in ((0, 17), (17, 18), (18, 90)):
        names = [*"abcd", "y"]
        columns = [*X[start:stop].T, Y[start:stop]]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_a_stream_of_batches_has_the_sums_of_one_array(question):
    stream, memory = ArrowStream(batches, BOUNDS), dpcvx.source(X, Y, bounds=BOUNDS)
    answer, expected = stream.sum(question), memory.sum(question)
    if isinstance(question, CurvatureSum):
        assert_array_equal(answer.meat, expected.meat)
        assert expected.meat.any()
        answer, expected = answer.moments, expected.moments
    assert_array_equal(answer, expected)
    assert expected.any()


def test_a_new_statistic_touches_no_source():
    class Count:
        """Number of records, which a source has never heard of."""

        def check(self, d):
            pass

        def among(self, start, stop):
            return self

        def of(self, records):
            return records.n

        def add(self, parts, n):
            return sum(parts)

    for source in (ArrowStream(batches, BOUNDS), dpcvx.source(X, Y, bounds=BOUNDS)):
        assert source.sum(Count()) == 90
    assert isinstance(dpcvx.source(X, Y, bounds=BOUNDS), Arrays)


def test_a_fit_on_the_stream_is_that_on_an_array():
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(2.0), bounds=BOUNDS, d=4)
    plan = dpcvx.plan(problem, 90, dpcvx.Budget(2.0, 1e-5), (NoisyGradientDescent(n_iter=4),))
    fits = [
        dpcvx.execute(plan, source, rng=SeededGenerator(1)).theta
        for source in (ArrowStream(batches, BOUNDS), dpcvx.source(X, Y, bounds=BOUNDS))
    ]
    assert_array_equal(*fits)
