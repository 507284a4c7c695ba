"""Every mechanism: its question changes by at most the sensitivity, its noise has the declared law."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import dpcvx.noise.exponential
import dpcvx.noise.gaussian
from adversary import records, stored
from dpcvx.accounting import Budget, Neighbours, Tight
from dpcvx.domains import L1Ball, L2Ball, Simplex, VertexHull
from dpcvx.errors import Incompatible
from dpcvx.events import Exponential, Gaussian
from dpcvx.losses import Huber, Quantile, Squared
from dpcvx.mechanisms import LatticeGaussian, NoisyGradient, NoisyVertex, Vertex, weight_bits
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism
from dpcvx.mechanisms.mechanism import room
from dpcvx.mechanisms.vertex import Combination
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent
from zoo import ALL_LOSSES, ALL_MECHANISMS

D = 3
CASES = list(itertools.product(ALL_LOSSES, ["dense", "csr"], [1, 3], ["replace", "add_remove"], [None, 0.2]))
CASES = [case for case in CASES if case[2] == 3 or not case[0].joint]


def named(case):
    return "-".join(map(repr, case))


def one_record_sources(loss, outputs, bounds, storage):
    """A source for each of many single records, good and absurd; the first has no effect."""
    rng = np.random.default_rng(3)
    X, y = records(loss, (14, D), outputs, rng)
    top = [1.0, 3.0, -0.495] if not loss.joint else [0.0]
    for x, label in itertools.product([np.eye(D)[0], -np.eye(D)[0]], top):
        X = np.vstack([X, x])
        y = np.concatenate([y, np.full((1, *y.shape[1:]), label)])
    X[0] = 0.0
    return [stored(X[i : i + 1], y[i : i + 1], bounds, storage) for i in range(len(X))]


def points(problem, rng):
    """Public points: the start, inside, on the boundary, and beyond it as momentum may go."""
    shape = problem.shape
    inside = [problem.domain.project(rng.normal(size=shape)) for _ in range(2)]
    return [np.zeros(shape), *inside, 2.8 * inside[0]]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_gradient_changes_by_at_most_the_sensitivity_and_by_half_of_it_somewhere(case, monkeypatch):
    loss, storage, outputs, relation, clip = case
    scales = []

    def silent(scale, size, rng):
        scales.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", silent)
    problem = Problem(loss, L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D, outputs=outputs, l2=0.1)
    mechanism = NoisyGradient(problem, 1, 1.0, Neighbours(relation), clip)
    sources = one_record_sources(loss, outputs, problem.bounds, storage)
    assert mechanism.event == Gaussian(1.0)
    widest = 0.0
    for theta in points(problem, np.random.default_rng(4)):
        answers = np.array([mechanism(theta, data=data, rng=SeededGenerator(0)).ravel() for data in sources])
        if relation == "add_remove":  # against the record without effect; else any record against any other
            distances = np.linalg.norm(answers - answers[0], axis=1)
        else:
            distances = np.linalg.norm(answers[:, None] - answers[None], axis=2)
        assert len(set(scales)) == 1  # public: the same for every record
        drawn = scales[0] * 2.0**-34  # the noise of this call, with a multiplier of 1 its sensitivity
        assert distances.max() <= drawn * (1 + 1e-12)
        if problem.domain.contains(theta):
            assert drawn <= mechanism.sensitivity * (1 + 1e-12)
        widest = max(widest, distances.max() / drawn)
        scales.clear()
    assert widest > 0.5


@pytest.mark.parametrize("case", CASES, ids=named)
def test_scores_change_by_at_most_the_range_and_by_half_of_it_somewhere(case, monkeypatch):
    domain = ["l1", "simplex", "hull"][CASES.index(case) % 3]
    loss, storage, outputs, relation, clip = case
    seen = []
    monkeypatch.setattr(dpcvx.noise.exponential, "select", lambda weights, rng: seen.append(weights) or 0)
    signed = lambda weights, rng: seen.append(np.r_[weights, -weights]) or (0, 1)  # noqa: E731
    monkeypatch.setattr(dpcvx.noise.exponential, "select_signed", signed)
    size = D * outputs
    hull = VertexHull(3 * np.vstack([np.eye(size), -np.eye(size), np.full((1, size), 1 / size)]))
    C = {"l1": L1Ball(3.0), "simplex": Simplex(3.0), "hull": hull}[domain]
    problem = Problem(loss, C, bounds=Bounds(1.0), d=D, outputs=outputs, l2=0.1)
    mechanism = NoisyVertex(problem, 1, 0.7, 20, Neighbours(relation), clip)
    sources = one_record_sources(loss, outputs, problem.bounds, storage)
    assert mechanism.event == Exponential(0.7)
    moves = [(1.0, Vertex(1)), (0.4, Vertex(2)), (0.3, Vertex(0))]
    widest = 0.0
    for length in range(len(moves) + 1):
        for data in sources:
            point, margins = mechanism.start(data)
            for step, vertex in moves[:length]:
                point.move(step, vertex, margins)
            mechanism(point, margins, data, SeededGenerator(0))
        weights = np.array(seen)
        difference = weights - weights[0] if relation == "add_remove" else weights[:, None] - weights[None]
        ranges = np.ptp(difference, axis=-1)
        assert ranges.max() <= 0.7
        assert abs(difference).max() <= 0.35
        widest = max(widest, ranges.max() / 0.7)
        seen.clear()
    # On the simplex no vertex has an opposite, so scores may all move together, which the range does not see.
    assert widest > (0.24 if domain == "simplex" else 0.5)


def test_gradient_noise_has_the_declared_variance_and_is_normal():
    d, calls = 2000, 20
    problem = Problem(Quantile(0.5), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=d)
    mechanism = NoisyGradient(problem, 10, 1.7)
    rng, data = SeededGenerator(5), stored(np.zeros((10, d)), np.ones(10), problem.bounds, "dense")
    noise = np.concatenate([mechanism(np.zeros(d), data=data, rng=rng) for _ in range(calls)])
    statistic = (noise**2).sum() / mechanism.noise**2

    def accepted(factor):
        return 1e-4 < stats.chi2.cdf(statistic / factor**2, noise.size) < 1 - 1e-4

    assert accepted(1.0)
    assert not accepted(0.95)
    assert not accepted(1.05)
    assert stats.kstest(noise / mechanism.noise, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / math.sqrt(noise.size)


def test_gradient_noise_follows_the_slope_at_the_public_point():
    d = 4000
    problem = Problem(Squared(), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=d)
    mechanism = NoisyGradient(problem, 10, 1.0)
    data = stored(np.zeros((10, d)), np.zeros(10), problem.bounds, "dense")
    theta = np.zeros(d)
    assert np.std(mechanism(theta, data=data, rng=SeededGenerator(1))) == pytest.approx(
        2 / 10, rel=0.05
    )  # |phi'| <= 1
    theta[0] = 3.0
    assert np.std(mechanism(theta, data=data, rng=SeededGenerator(2))) == pytest.approx(
        8 / 10, rel=0.05
    )  # <= 1 + 3
    assert mechanism.noise == pytest.approx(8 / 10, rel=1e-6)


def test_the_answer_is_the_gradient_of_the_whole_objective():
    rng = np.random.default_rng(0)
    X, y, theta = rng.uniform(-1, 1, (200, D)), rng.uniform(-1, 1, 200), np.array([0.5, -0.2, 0.1])
    problem = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0), d=D, l2=0.3)
    mechanism = NoisyGradient(problem, 200, 1e-6)
    truth = X.T @ (X @ theta - y) / 200 + 0.3 * theta
    answer = mechanism(theta, data=stored(X, y, problem.bounds, "dense"), rng=SeededGenerator(0))
    np.testing.assert_allclose(answer, truth, atol=3 * 2.0**-14)


@pytest.mark.long
def test_selection_has_the_declared_law():
    """40,000 draws fit exp(-eta u / (2 Delta)), and fit it with neither 5 % more nor 5 % less eta."""
    problem = Problem(Huber(0.5), L1Ball(2.0), bounds=Bounds(1.0), d=2)
    n, eta, draws = 12, 0.8, 40_000
    mechanism = NoisyVertex(problem, n, eta, 20)
    X = np.column_stack([np.ones(n), np.r_[np.ones(9), -np.ones(3)]])
    data = stored(X, -np.ones(n), problem.bounds, "dense")
    point, margins = mechanism.start(data)
    rng = SeededGenerator(8)
    counts = dict.fromkeys([Vertex(j, sign) for sign in (1, -1) for j in (0, 1)], 0)
    for _ in range(draws):
        counts[mechanism(point, margins, data, rng)] += 1
    gradient = np.clip(1.0, -0.5, 0.5) * X.sum(axis=0) / n
    scores = np.r_[2 * gradient, -2 * gradient]
    delta = 2 * 2 * 0.5 / n

    def p_value(factor):
        weights = np.exp(-factor * eta * scores / (2 * delta))
        return stats.chisquare(list(counts.values()), draws * weights / weights.sum()).pvalue

    assert p_value(1.0) > 1e-4
    assert p_value(0.95) < 1e-6
    assert p_value(1.05) < 1e-6


@pytest.mark.parametrize(("epsilon", "sigma"), [(1.0, 0.084493578), (0.1, 0.726093809), (8.0, 0.013058708)])
def test_gradient_descent_noise_of_the_reference_table(epsilon, sigma):
    """PRIVACY_MATH §13.3: n = 1000, L2 = 1, T = 100, delta = 1e-6.

    A thousandth of delta is kept for the samplers and the sensitivity is rounded up on the lattice: the noise
    is a little above the table's, never below.
    """
    problem = Problem(Huber(1.0), L2Ball(10.0), bounds=Bounds(1.0, 1.0), d=5)
    plan = NoisyGradientDescent(n_iter=100).plan(problem, 1000, Budget(epsilon, 1e-6), Tight())
    assert 0 <= plan.stages[0].mechanism.noise / sigma - 1 < 1e-3
    assert plan.price.epsilon <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "T", "eta"),
    [(1.0, 10, 0.149801), (1.0, 100, 0.044422), (1.0, 1000, 0.013968), (8.0, 100, 0.292944)],
)
def test_frank_wolfe_range_of_the_reference_table(epsilon, T, eta):
    """PRIVACY_MATH §13.4, exact Rényi calibration; below the table's by the samplers' share of delta."""
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=5)
    plan = NoisyFrankWolfe(n_iter=T).plan(problem, 1000, Budget(epsilon, 1e-6), Tight())
    assert -1e-3 < plan.stages[0].mechanism.eta / eta - 1 < 1e-5
    assert plan.price.epsilon <= epsilon


def test_add_remove_needs_half_the_noise():
    problem = Problem(Huber(1.0), L1Ball(1.0), bounds=Bounds(1.0, 1.0), d=2)
    for make in (
        lambda r: NoisyGradient(problem, 50, 2.0, Neighbours(r)),
        lambda r: NoisyVertex(problem, 50, 0.5, 20, Neighbours(r)),
    ):
        assert make("replace").noise == pytest.approx(2 * make("add_remove").noise, rel=1e-6)


def test_noise_that_does_not_fit_is_refused_from_public_numbers_and_any_number_of_records_is_not():
    problem = Problem(Squared(), L2Ball(1000.0), bounds=Bounds(1.0, 1.0), d=2)
    with pytest.raises(Incompatible, match="62-bit"):
        NoisyGradient(problem, 100, 2.0**17)
    for n in (10**9, 10**12):
        assert NoisyGradient(problem, n, 1.0).capacity >= n
        assert NoisyVertex(Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=2), n, 0.5, 20).capacity >= n
    # Draws go up to 18.75 standard deviations: where these do not fit, there is no room for a single record.
    assert room(problem, None, 2**59, 100) == 0
    assert room(problem, None, 2**57, 100) >= 200
    with pytest.raises(Incompatible, match="rounding"):
        NoisyVertex(Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=2), 2**50, 0.5, 20)


def test_the_public_point_and_the_margins_of_records_are_moved_by_the_same_integers():
    problem = Problem(Squared(), L1Ball(2.0), bounds=Bounds(1.0), d=3)
    point, columns = Combination(problem, 20), np.zeros(3)

    class Margins:
        def reset(self):
            columns[:] = 0

        def add(self, index, amount):
            columns[index] += amount

    rng = np.random.default_rng(0)
    for step in (0.5, 0.3, 1.0, 0.7, 0.1, 0.25, 1 / 3):
        point.move(step, Vertex(int(rng.integers(3)), int(rng.choice([-1, 1]))), Margins())
        # A record with one feature of 1, stored as 2^14, has the score theta_j.
        np.testing.assert_allclose(point.dense(), point.margin_unit * 2**14 * columns, rtol=1e-15)


def test_weights_of_long_schedules_keep_margins_inside_62_bits():
    for T in (1, 10, 1000, 10_000):
        steps = [2 / (t + 2) for t in range(T)]
        scale = math.prod(1 - step for step in steps[1:])
        assert 2 ** weight_bits(steps) / scale <= 2**46
    with pytest.raises(Incompatible, match="too many"):
        weight_bits([0.5] * 60)


@pytest.mark.parametrize("multiplier", [1e-7, 0.1, 1 / 3, 1.0, 7.3])
@pytest.mark.parametrize("sensitivity", [1, 7, 2**40 + 1, Fraction(10, 3)], ids=str)
def test_noise_is_at_least_its_multiple_of_the_sensitivity(multiplier, sensitivity):
    """One step less, and the price of the multiplier is below that of the noise."""
    wanted = Fraction(multiplier) * sensitivity
    noise = LatticeGaussian(sensitivity, multiplier, size=3, unit=0.5)
    assert wanted <= noise.scale < wanted + 1
    assert noise.noise == noise.scale / 2
    assert noise.change == float(sensitivity) / 2
    assert noise.event == Gaussian(multiplier)


@pytest.mark.parametrize("name", ALL_MECHANISMS)
def test_every_mechanism_has_a_price_and_protects_a_replaced_record_like_two_that_are_added(name):
    replaced, added = (ALL_MECHANISMS[name](Neighbours(relation)) for relation in ("replace", "add_remove"))
    assert 0 < added.sensitivity <= replaced.sensitivity <= 2 * added.sensitivity * (1 + 1e-6)
    for mechanism in (replaced, added):
        assert hash(mechanism) == hash(dataclasses.replace(mechanism))  # its fields are public values
        assert Tight().supports(mechanism.event)
        assert 0 < Tight().epsilon(mechanism.event, 1e-6) < math.inf
        # What is drawn, and what is said about it; a perturbed minimiser says it of one record.
        if isinstance(mechanism, GaussianMechanism):
            assert all(isinstance(each.sensitivity, int | Fraction) for each in mechanism.gaussians)
        if isinstance(mechanism, GaussianMechanism) and name != "perturbed minimiser":
            drawn = mechanism.gaussians[0]
            assert drawn.scale * drawn.unit == pytest.approx(mechanism.noise, rel=1e-6)
