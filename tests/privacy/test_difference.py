"""Differences of gradients over Poisson samples: what one record weighs, how they are drawn, the price."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as library
from scipy import stats

import dpcvx.noise.gaussian
import dpcvx.noise.poisson
from adversary import neighbour, records, stored
from dpcvx.accounting import PLD, REPLACE_ONE, Budget, Neighbours
from dpcvx.audit import discrepancies, record, replay, share
from dpcvx.data import DifferenceSum, GradientSum
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound, integer_bounds
from dpcvx.domains import L2Ball
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian, Poisson, count_leaves
from dpcvx.losses import BoundedLogistic, Huber, Logistic, Softmax, Squared
from dpcvx.mechanisms import NoisyDifference
from dpcvx.noise import SecureGenerator, SeededGenerator
from dpcvx.noise.poisson import poisson_sample, probability_above
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisySVRG
from exact import LimitAccountant
from zoo import ALL_LOSSES

N, D = 9, 3
over_losses = pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
over_storage = pytest.mark.parametrize("storage", ["dense", "csr"])


def residual_limit(slope):
    return ResidualBound(int(slope * 2**RESIDUAL_BITS), int(0.8 * slope * 2**RESIDUAL_BITS))


# -- the sample


@pytest.mark.parametrize("generator", [SeededGenerator(1), SecureGenerator()], ids=["seeded", "secure"])
def test_each_record_is_drawn_with_the_probability_and_no_record_sees_another(generator):
    n, draws, q = 12, 40_000, probability_above(0.15)
    drawn = np.zeros((draws, n), dtype=np.int64)
    for row in drawn:
        row[poisson_sample(q, n, generator)] = 1
    counts = drawn.sum(axis=0)

    def p_value(probability):
        variance = draws * probability * (1 - probability)
        return stats.chi2.sf(((counts - draws * probability) ** 2 / variance).sum(), n)

    assert p_value(q) > 1e-6
    assert p_value(1.05 * q) < 1e-9
    assert p_value(0.95 * q) < 1e-9
    # The size of a sample is binomial, and every pair of records is drawn together as often as by chance.
    sizes = np.bincount(drawn.sum(axis=1), minlength=n + 1)[:7]
    expected = draws * stats.binom.pmf(np.arange(7), n, q)
    assert stats.chisquare(sizes, expected * sizes.sum() / expected.sum()).pvalue > 1e-6
    together = (drawn.T @ drawn)[np.triu_indices(n, 1)]
    z = (together - draws * q * q) / math.sqrt(draws * q * q * (1 - q * q))
    assert abs(z).max() < 6
    # Nor does a sample depend on the one before.
    again = (drawn[1:] * drawn[:-1]).sum() / drawn[1:].size
    assert abs(again - q * q) < 6 * math.sqrt(q * q / drawn[1:].size)


class Words:
    """A generator whose words are given."""

    def __init__(self, digits):
        self._words = np.array(digits, dtype="<u2").view("<u8")

    def words(self, n):
        taken, self._words = self._words[:n], self._words[n:]
        return taken


def test_the_law_of_a_sample_is_exact():
    """Over all values of the sixteen bits a record is drawn in exactly 2^16 q cases."""
    everything = np.arange(2**16, dtype=np.uint16)
    for q in (2.0**-16, 3 * 2.0**-16, 0.25, 1 - 2.0**-16, 1.0):
        assert len(poisson_sample(q, 2**16, Words(everything))) == q * 2**16


def test_samples_of_many_records_are_drawn_in_parts_that_fit_together(monkeypatch):
    whole = poisson_sample(0.25, 1003, SeededGenerator(4))
    monkeypatch.setattr(dpcvx.noise.poisson, "_WORDS_AT_ONCE", 8)
    assert np.array_equal(poisson_sample(0.25, 1003, SeededGenerator(4)), whole)
    assert whole.max() < 1003
    assert (np.diff(whole) > 0).all()


def test_probabilities_are_rounded_up_to_the_grid_and_others_are_refused():
    assert probability_above(0.1) == 6554 / 2**16
    assert probability_above(1e-9) == 2.0**-16
    assert probability_above(7.0) == 1.0
    for wrong in (0.1, 0.0, -0.5, 1.5, math.nan):
        with pytest.raises(ValueError, match="multiple of 2\\^-16"):
            poisson_sample(wrong, 10, SeededGenerator(0))
    with pytest.raises(ValueError, match="more than 0"):
        probability_above(0.0)
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    with pytest.raises(ValueError, match="probability_above"):
        NoisyDifference(problem, 100, 0.1, 1.0)


# -- the sum


@over_losses
@over_storage
def test_a_difference_sum_is_the_sum_of_what_each_record_of_the_sample_gives_alone(loss, storage):
    rng = np.random.default_rng(0)
    residual, bound = residual_limit(0.7), residual_limit(0.3)
    answered = False
    for bounds, outputs in itertools.product(
        [Bounds(1.0, 1.0), Bounds(1.5), Bounds(0.25, 0.3)], [3] if loss.joint else [1, 2]
    ):
        X, y = records(loss, (23, D), outputs, rng)
        shape = (D, outputs) if outputs > 1 else D
        points = tuple(rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3) for _ in range(2))
        sample = np.flatnonzero(rng.random(23) < 0.5)
        together = stored(X, y, bounds, storage).sum(DifferenceSum(loss, points, sample, residual, bound))
        alone = [
            stored(X[i : i + 1], y[i : i + 1], bounds, storage).sum(
                DifferenceSum(loss, points, np.zeros(1, dtype=np.int64), residual, bound)
            )
            for i in sample
        ]
        assert np.array_equal(together, sum(alone))
        answered |= together.any()
        _, k2 = integer_bounds(bounds, D)
        assert all(int((part.astype(object) ** 2).sum()) <= bound.l2**2 * k2 for part in alone)
    assert answered


@over_losses
@over_storage
def test_over_all_records_it_is_the_difference_of_two_gradient_sums(loss, storage):
    rng = np.random.default_rng(1)
    outputs = 3 if loss.joint else 1
    X, y = records(loss, (17, D), outputs, rng)
    data = stored(X, y, Bounds(1.0, 1.0), storage)
    points = tuple(rng.normal(size=(D, outputs) if outputs > 1 else D) for _ in range(2))
    limit, wide = residual_limit(0.7), ResidualBound(2**30, 2**30)
    one, other = (data.sum(GradientSum(loss, point, limit)) for point in points)
    assert np.array_equal(data.sum(DifferenceSum(loss, points, np.arange(17), limit, wide)), one - other)
    assert not data.sum(DifferenceSum(loss, points, np.arange(0), limit, wide)).any()
    # A narrow bound is enforced on the integers, toward zero.
    narrow = ResidualBound(5, 3)
    _, k2 = integer_bounds(Bounds(1.0, 1.0), D)
    for i in range(17):
        alone = data.sum(DifferenceSum(loss, points, np.array([i]), limit, narrow))
        assert int((alone.astype(object) ** 2).sum()) <= 25 * k2


# -- the mechanism


def points_of(problem, rng):
    """Pairs of public points: far apart, near, equal, and beyond the set."""
    inside = [problem.C.project(rng.normal(size=problem.shape)) for _ in range(3)]
    near = inside[0] + 1e-3 * rng.normal(size=problem.shape)
    return [(inside[0], inside[1]), (near, inside[0]), (inside[2], inside[2]), (3 * inside[1], -inside[1])]


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@over_losses
def test_for_the_same_sample_neighbours_differ_by_at_most_the_sensitivity(loss, relation, monkeypatch):
    """All pairs of single records.

    The gradient of a convex loss is monotone, so two differences never point apart and stay within C of each
    other; 2 C is for losses of any kind.
    """
    scales = []
    monkeypatch.setattr(
        dpcvx.noise.gaussian,
        "lattice_gaussian",
        lambda scale, size, rng: scales.append(scale) or np.zeros(size, dtype=np.int64),
    )
    outputs = 3 if loss.joint else 1
    problem = Problem(loss, L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D, outputs=outputs, l2=0.1)
    rng = np.random.default_rng(3)
    X, y = records(loss, (16, D), outputs, rng)
    axes = np.vstack([np.eye(D), -np.eye(D)])
    labels = np.resize(np.arange(outputs) if loss.joint else [-1.0, 1.0], len(axes))
    X, y = np.vstack([X, axes, axes]), np.concatenate([y, labels, -labels])
    X[0] = 0.0  # without effect: absent, for add/remove
    mechanism = NoisyDifference(problem, 1, 1.0, 1.0, Neighbours(relation))
    assert mechanism.event == Poisson(1.0, 1.0, relation)
    widest = 0.0
    for theta, anchor in points_of(problem, rng):
        sources = [stored(X[i : i + 1], y[i : i + 1], problem.bounds, "dense") for i in range(len(X))]
        answers = np.array([mechanism(theta, anchor, data, SeededGenerator(0)).ravel() for data in sources])
        assert len(set(scales)) == 1
        weight = scales[0] * 2.0**-34
        if relation == "add_remove":
            distances, allowed = np.linalg.norm(answers - answers[0], axis=1), weight
        else:
            distances, allowed = np.linalg.norm(answers[:, None] - answers[None], axis=2), 2 * weight
        assert distances.max() <= allowed * (1 + 1e-12)
        assert allowed <= mechanism.sensitivity * (1 + 1e-12)
        widest = max(widest, distances.max() / allowed)
        scales.clear()
    # Slopes of a bounded loss are clipped at one of two points more often, and differ by less.
    reached = 0.7 if isinstance(loss, BoundedLogistic) else 1.0
    assert widest > reached * (0.3 if relation == "replace" else 0.5)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(0.5), Softmax()], ids=repr)
@pytest.mark.parametrize("clip", [None, 0.3])
def test_nothing_is_cut_off_and_the_answer_is_the_difference_of_gradients(loss, clip, monkeypatch):
    """With everything in the sample and no noise; clipping the residuals makes them those of another loss."""
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )
    outputs, n = (3 if loss.joint else 1), 200
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    X = np.trunc(X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True)) * 2**14) / 2**14
    y = rng.integers(0, 3, n).astype(float) if loss.joint else np.where(rng.random(n) < 0.5, 1.0, -1.0)
    problem = Problem(loss, L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D, outputs=outputs, l2=0.2)
    mechanism = NoisyDifference(problem, n, 1.0, 1.0, REPLACE_ONE, clip)

    def gradient(theta):
        slopes = loss.grad(X @ theta, y)
        if clip is not None:
            norms = np.abs(slopes) if outputs == 1 else np.linalg.norm(slopes, axis=1, keepdims=True)
            if outputs > 1:
                slopes = np.clip(slopes, -clip, clip)
                norms = np.linalg.norm(slopes, axis=1, keepdims=True)
            slopes = slopes * np.minimum(1, clip / np.maximum(norms, 1e-300))
        return X.T @ slopes / n + 0.2 * theta

    data = stored(X, y, problem.bounds, "dense")
    for theta, anchor in points_of(problem, rng)[:3]:
        answer = mechanism(theta, anchor, data, SeededGenerator(0))
        np.testing.assert_allclose(answer, gradient(theta) - gradient(anchor), atol=2e-6)


def test_the_weight_follows_the_distance_to_the_anchor():
    """C = min(2 L2, smoothness * distance), and one unit of rounding; never 0."""
    problem = Problem(Logistic(), L2Ball(9.0), bounds=Bounds(1.0, 1.0), d=D)
    mechanism = NoisyDifference(problem, 100, 0.25, 2.0)
    anchor, direction = np.zeros(D), np.array([0.6, 0.8, 0.0])
    for distance, bound in [(0.0, 0.0), (1e-3, 0.25e-3), (1.0, 0.25), (4.0, 1.0), (50.0, 2.0)]:
        limit = mechanism.bound(distance * direction, anchor)
        assert 2**20 * bound * 0.999 <= limit.l2 <= 2**20 * bound + 1
        assert limit.l2 >= 1
    assert mechanism.noise == pytest.approx(2.0 * 2 * problem.lipschitz(2) / (0.25 * 100), rel=1e-3)
    assert mechanism.sensitivity == pytest.approx(mechanism.noise, rel=1e-6)  # 2 C against z C with z = 2
    assert mechanism.evaluations == 2 * 0.25 * 100


def test_noise_has_the_declared_law_and_the_answer_is_unbiased():
    """Sampling variance (1-q)/(q n) of the mean square and noise add up; the divisor is q n."""
    n, d, q, z = 400, 40, 0.25, 0.5
    rng = np.random.default_rng(1)
    problem = Problem(Squared(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=d)
    X = np.trunc(rng.choice([-1.0, 1.0], (n, d)) / math.sqrt(d) * 2**14) / 2**14
    data = stored(X, np.zeros(n), problem.bounds, "dense")
    mechanism = NoisyDifference(problem, n, q, z)
    theta, anchor = np.full(d, 0.1), np.zeros(d)
    truth = X.T @ (X @ theta) / n
    generator = SeededGenerator(3)
    answers = np.array([mechanism(theta, anchor, data, generator) for _ in range(2000)])
    terms = (X @ theta)[:, None] * X
    sampling = (1 - q) / (q * n) * (terms**2).mean(axis=0).sum()
    noise = d * (z * np.linalg.norm(theta) / (q * n)) ** 2
    spread = ((answers - truth) ** 2).sum(axis=1)
    assert spread.mean() == pytest.approx(sampling + noise, rel=0.03)
    assert noise > 0.2 * (sampling + noise) > 0.2 * sampling  # both matter here
    error = np.linalg.norm(answers.mean(axis=0) - truth)
    assert error < 2 * math.sqrt((sampling + noise) / len(answers))


def test_noise_that_does_not_fit_and_unbounded_slopes_are_refused():
    problem = Problem(Squared(), L2Ball(1000.0), bounds=Bounds(1.0, 1.0), d=2)
    with pytest.raises(Incompatible, match="62-bit"):
        NoisyDifference(problem, 100, 0.5, 2.0**18)
    assert NoisyDifference(problem, 10**9, 0.5, 1.0).capacity >= 10**9
    with pytest.raises(Incompatible, match="unbounded slopes"):
        NoisyDifference(Problem(Squared(), bounds=Bounds(1.0), d=2, l2=1.0), 10, 0.5, 1.0)


# -- the run


def svrg_plan(loss, outputs, relation, pair):
    bounds = [Bounds(1.0, 1.0), Bounds(1.0), Bounds(1.9, 2.5), Bounds(0.3, 0.4)][pair % 4]
    problem = Problem(loss, L2Ball([0.5, 3.0][pair % 2]), bounds=bounds, d=D, outputs=outputs, l2=0.3)
    solver = NoisySVRG(2, 3, 5, share=0.5, clip=[None, 0.2][pair // 4 % 2])
    return solver.plan(problem, N, Budget(4.0, 1e-6, relation), LimitAccountant())


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(0.5), Softmax()], ids=repr)
@pytest.mark.long
def test_a_run_on_a_neighbour_asks_the_same_and_differs_by_the_sensitivity(loss, relation, monkeypatch):
    scales, sampler = [], dpcvx.noise.gaussian.lattice_gaussian
    monkeypatch.setattr(
        dpcvx.noise.gaussian,
        "lattice_gaussian",
        lambda scale, *rest: scales.append(scale) or sampler(scale, *rest),
    )
    rng = np.random.default_rng(7)
    heaviest = 0.0
    for pair in range(8):
        outputs = 3 if loss.joint else 1 + pair % 2
        plan = svrg_plan(loss, outputs, relation, pair)
        for seed in range(32 if loss.joint else 4):  # random neighbours seldom reach much of a joint bound
            X, y = records(loss, (N, D), outputs, rng)
            other = (
                (X[:-1], y[:-1])
                if relation == "add_remove"
                else neighbour(X, y, loss, outputs, relation, rng)
            )
            storage = ["dense", "csr"][seed % 2]
            scales.clear()
            first = record(plan, stored(X, y, plan.problem.bounds, storage), SeededGenerator(seed))
            second = replay(
                plan, stored(*other, plan.problem.bounds, storage), SeededGenerator(seed + 9), first
            )
            assert discrepancies(plan, first, second) == []
            assert [q.kind for q in first.questions] == ["GradientSum", *["DifferenceSum"] * 2] * 2
            count = len(first.questions)
            assert scales[:count] == scales[count:]
            for a, b, scale in zip(first.questions, second.questions, scales, strict=False):
                if a.kind == "DifferenceSum":
                    z = plan.stages[1].mechanism.noise_multiplier
                    moved = sum(
                        (int(u) - int(v)) ** 2 for u, v in zip(a.total.flat, b.total.flat, strict=True)
                    )
                    changed = 2 if relation == "replace" else 1
                    assert moved * z**2 <= (changed * scale) ** 2
                    heaviest = max(heaviest, share(plan, a, b))
    assert heaviest > 0.25


def test_samples_do_not_depend_on_the_records():
    """The same coins give the same sample whatever the records; the audit sees them, nobody else does."""
    plan = svrg_plan(Logistic(), 1, "replace", 0)
    rng = np.random.default_rng(0)
    runs = [
        record(
            plan,
            stored(*records(Logistic(), (N, D), 1, rng), plan.problem.bounds, "dense"),
            SeededGenerator(5),
        )
        for _ in range(3)
    ]
    samples = [[q.sum.batch for q in run.questions if q.kind == "DifferenceSum"] for run in runs]
    assert len(samples[0]) == 4
    for others in samples[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(samples[0], others, strict=True))
    assert len({sample.tobytes() for sample in samples[0]}) > 1  # a fresh one each time


def test_two_changed_records_are_found():
    plan = svrg_plan(Logistic(), 1, "replace", 0)
    X = np.tile(np.eye(D)[0], (N, 1))
    sources = [stored(X * sign, np.ones(N), plan.problem.bounds, "dense") for sign in (1, -1)]
    first = record(plan, sources[0], SeededGenerator(0))
    assert discrepancies(plan, first, replay(plan, sources[1], SeededGenerator(0), first)) != []


@pytest.mark.parametrize(
    ("relation", "theirs"),
    [("replace", NeighboringRelation.REPLACE_ONE), ("add_remove", NeighboringRelation.ADD_OR_REMOVE_ONE)],
)
@pytest.mark.long
def test_the_price_of_a_run_is_that_of_the_library(relation, theirs):
    """S Gaussians and S (m - 1) Poisson samples, composed by dp-accounting directly."""
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D, l2=0.1)
    accountant = PLD(interval=1e-3)
    plan = NoisySVRG(3, 11, 20, share=0.5).plan(problem, 1000, Budget(1.0, 1e-6, relation), accountant)
    full, sampled = plan.stages[0].mechanism, plan.stages[1].mechanism
    assert count_leaves(plan.event) == {
        Gaussian(full.noise_multiplier): 3,
        Poisson(sampled.probability, sampled.noise_multiplier, relation): 30,
    }
    whole = library.from_gaussian_mechanism(
        full.noise_multiplier, value_discretization_interval=1e-3
    ).self_compose(3)
    part = library.from_gaussian_mechanism(
        sampled.noise_multiplier,
        value_discretization_interval=1e-3,
        sampling_prob=sampled.probability,
        neighboring_relation=theirs,
    ).self_compose(30)
    epsilon = whole.compose(part).get_epsilon_for_delta(1e-6)
    assert epsilon <= 1.0
    assert epsilon == pytest.approx(plan.price.epsilon, rel=2e-3)
    assert plan.price.epsilon > 0.99


def test_what_is_reported_does_not_depend_on_the_samples():
    """Evaluations are 2 q n a step, and the same for every run and every data set."""
    plan = svrg_plan(Logistic(), 1, "replace", 0)
    rng = np.random.default_rng(0)
    counts = set()
    for seed in range(6):
        data = stored(*records(Logistic(), (N, D), 1, rng), plan.problem.bounds, "dense")
        counts.add(execute(plan, data, rng=SeededGenerator(seed)).gradient_evaluations)
    q = plan.stages[1].mechanism.probability
    assert counts == {2 * N + 4 * 2 * q * N}
