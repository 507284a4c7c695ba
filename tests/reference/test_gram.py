"""Scores from products of columns are those of the records, and a product is made once."""

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

import dpcvx as dp
from dpcvx.accounting import Neighbours
from dpcvx.data.gram_scores import GramScores
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import source
from dpcvx.data.rows import Dense
from dpcvx.mechanisms import NoisyVertex, Vertex
from dpcvx.noise import SeededGenerator

N, D = 60, 7


def records(y_scale=1.0, storage=np.asarray):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (N, D)), y_scale * rng.uniform(-1, 1, N)
    return source(storage(X), y, bounds=dp.Bounds(1.0))


def problem_of(**changes):
    return dp.Problem(dp.Squared(), dp.L1Ball(3.0), **{"bounds": dp.Bounds(1.0), "d": D, **changes})


def moved(mechanism, data, moves):
    """(point, scores) after moves of a decaying schedule to vertices in turn."""
    point, scores = mechanism.start(data)
    for t in range(moves):
        point.move(2 / (t + 2), Vertex(t * t % mechanism.problem.d, 1 - 2 * (t % 3 == 0)), scores)
    return point, scores


def test_scores_are_those_of_the_residuals_and_rounding_stays_below_its_allowance():
    mechanism, data = NoisyVertex(problem_of(), N, 0.5, 20), records()
    fresh, limit = data.follow(dp.Squared(), 1), 2**23
    point, scores = moved(mechanism, data, 400)
    mechanism.origin(fresh)
    for index, weight in scores._weights.items():
        fresh.add(index, weight)
    bound, terms = mechanism._unclipped(point.dense(), point.moves)
    total = scores.unclipped(point.margin_unit, bound)
    rounded = fresh.scores(point.margin_unit, ResidualBound(limit, limit))
    assert abs(total - rounded).max() <= N * 2**14  # each residual of the other is rounded by half a unit
    exact = np.array(scores.scores(point.margin_unit))
    largest = N * bound.linf * 2**14
    assert 0 < max(abs(float(a) - b) for a, b in zip(exact, total, strict=True)) <= 2.0**-50 * terms * largest


def test_residuals_stay_within_the_bound_at_the_public_point():
    """One record at a corner, with a target far outside the declared range."""
    for signs in ([1, 1, 1], [1, -1, 1]):
        problem = problem_of(d=3)
        mechanism = NoisyVertex(problem, 1, 0.5, 20)
        data = source(np.array([signs], float), np.array([-50.0]), bounds=dp.Bounds(1.0))
        point, scores = moved(mechanism, data, 9)
        bound, _ = mechanism._unclipped(point.dense(), point.moves)
        residuals = [abs(total) / 2**14 for total in scores.scores(point.margin_unit)]
        assert max(residuals) <= bound.linf
    assert max(residuals) > 2**20


def test_a_product_is_made_once_and_room_is_limited():
    made = []

    def product(vector):
        made.append(vector.copy())
        return np.arange(D, dtype=np.int64)

    columns = Dense(np.ones((D, 8), dtype=np.int16))
    scores = GramScores(columns, np.zeros((1, 8)), product)
    for index in (0, 1, 0, 1, 2, 2):
        scores.add(index, 5)
    assert len(made) == 1 + 2 + 2  # targets; two that are kept, one without room that is made twice
    scores.reset()
    assert scores.unclipped(1.0, ResidualBound(1, 1)).tolist() == [-j for j in range(D)]
    with pytest.raises(IndexError, match=r"0\.\.6"):
        scores.add(D, 1)


def test_the_choice_depends_on_public_facts_alone():
    def kind(data, clip=None, **changes):
        return type(NoisyVertex(problem_of(**changes), N, 0.5, 20, clip=clip).start(data)[1]).__name__

    assert kind(records()) == "GramScores"
    assert kind(records(), clip=0.5) == "MarginsInMemory"
    assert kind(records(storage=csr_array)) == "MarginsInMemory"
    assert NoisyVertex(problem_of(), 2**25, 0.5, 20)._linear
    assert not NoisyVertex(problem_of(), 2**27, 0.5, 20)._linear  # products might not fit 62 bits
    assert NoisyVertex(problem_of(), N, 0.5, 20, Neighbours("add_remove"))._linear
    with pytest.raises(ValueError, match="dense"):
        records(storage=csr_array).follow_products(dp.Squared())


@pytest.mark.long
@pytest.mark.parametrize("moves", [0, 12])
def test_selections_have_the_declared_law(moves):
    problem = problem_of(l2=0.2)
    mechanism, data, rng, draws = NoisyVertex(problem, N, 3.0, 20), records(), SeededGenerator(1), 20_000
    point, scores = moved(mechanism, data, moves)
    counts = dict.fromkeys([Vertex(j, sign) for sign in (1, -1) for j in range(D)], 0)
    for _ in range(draws):
        counts[mechanism(point, scores, data, rng)] += 1
    theta = point.dense()
    gradient = np.array(scores.scores(point.margin_unit), float) * 2.0**-34 / N + 0.2 * theta
    delta = 2 * 3.0 * (min(3.0, abs(theta).sum()) + 1) / N

    def p_value(factor):
        weights = np.exp(-factor * 3.0 * 3.0 * np.r_[gradient, -gradient] / (2 * delta))
        return stats.chisquare(list(counts.values()), draws * weights / weights.sum()).pvalue

    assert p_value(1.0) > 1e-4
    assert p_value(0.85) < 1e-4
    assert p_value(1.15) < 1e-4
