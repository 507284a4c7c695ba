"""What a sampler draws arrives in the answer: a whole draw for each number, of the declared size and price.

A fault that halves, drops or shares noise behind a mechanism's arithmetic is seen here for every mechanism,
without statistics: the sampler is replaced by one that returns known multiples of the scale it was asked for.
"""

import math

import numpy as np
import pytest

import dpcvx as dp
import dpcvx.noise.exponential
import dpcvx.noise.gaussian
import dpcvx.tuning.score
from dpcvx.accounting import WEIGHT, Neighbours
from dpcvx.events import Gaussian, PureDP, count_leaves
from dpcvx.mechanisms import NoisyGradient
from dpcvx.noise import SeededGenerator, gaussian_failure
from dpcvx.noise.laplace import laplace_failure
from dpcvx.queries import Attribute, Binned, Counts, Marginal, NoisyMarginals, Schema, Universe
from dpcvx.queries.bin_means import bin_sums_of
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram, NoisyMeans, PublicAnswer
from dpcvx.tuning.metrics import Accuracy
from dpcvx.tuning.score import NoisyScore
from zoo import ALL_MECHANISMS

N = 100
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (N, 3)), RNG.choice([-1.0, 1.0], N)
DATA = {x_2: dp.source(X, Y, bounds=dp.Bounds(1.0, x_2)) for x_2 in (None, 1.0)}
THETA, ANCHOR = np.array([0.4, -0.2, 0.1]), np.array([0.1, 0.3, 0.2])
SCHEMA = Schema((Attribute("a", ("x", "y"), "y"), Binned("v", (0, 2, 6, 10), 1.0)))
COUNTS = Counts.of(Universe(SCHEMA), {"a": ["x", "y"] * (N // 2), "v": [1.0, 3.0, 7.0, 9.0] * (N // 4)})
SHARES = Marginal(("a",)).compile(SCHEMA, N)
PERSONS = Neighbours("replace", "person", 1, WEIGHT)


def source_of(mechanism):
    return DATA[mechanism.problem.bounds.x_2] if hasattr(mechanism, "problem") else DATA[None]


def asked(*public):
    """Call a mechanism on the records, with public arguments."""
    return lambda mechanism, rng: np.ravel(mechanism(*public, data=source_of(mechanism), rng=rng))


def counted(mechanism, rng):
    return mechanism.add_noise(np.arange(mechanism.size) + 10, rng)


def both_matrices(mechanism, rng):
    found = mechanism(THETA, data=source_of(mechanism), rng=rng)
    upper = np.triu_indices(3, 1)
    return np.concatenate([np.r_[m[upper], np.diag(m)] for m in (found.hessian, found.meat)])


def matrix_noise(mechanism):
    moments, _ = mechanism.gaussians
    meat = mechanism.meat_noise(THETA)
    root = math.sqrt(2)
    return np.r_[[moments.noise / root] * 3, [moments.noise] * 3, [meat / root] * 3, [meat] * 3]


def differences(mechanism):
    return mechanism._gaussian(mechanism.bound(THETA, ANCHOR)).noise


# Name, the released numbers of a call, and the standard deviation that the mechanism declares of each.
CASES = {
    "gradient": (asked(THETA), lambda m: m.noise_at(THETA)),
    "clipped gradient": (asked(THETA), lambda m: m.noise_at(THETA)),
    "difference": (asked(THETA, ANCHOR), differences),
    "means": (asked(None), lambda m: m.deviations),
    "mean squares": (asked(np.zeros(3)), lambda m: m.deviations),
    "length": (asked(), lambda m: m.noise),
    "target": (asked(0.0, 1.0), lambda m: [m.share_noise, m.noise, m.noise]),
    "second moments": (both_matrices, matrix_noise),
    "squared errors": (asked(THETA), lambda m: m.noise),
    "log-losses": (asked(THETA), lambda m: m.noise),
    "deviances": (asked(THETA), lambda m: m.noise),
    "totals": (asked(THETA), lambda m: m.noise),
    "minimiser": (asked(), lambda m: m.noise),
    "counts": (counted, lambda m: m.noise),
    "histogram": (counted, lambda m: m.noise),
    "row count": (counted, lambda m: m.noise),
    "pooled histogram": (counted, lambda m: m.noise),
}
ENGINE = {
    "means of queries": (NoisyMeans(SHARES, N, 2.0), lambda m, rng: m(COUNTS, rng), lambda m: m.noise),
    "cells": (NoisyHistogram(Universe(SCHEMA), N, 2.0), lambda m, rng: m(COUNTS, rng), lambda m: m.noise),
    "errors": (
        NoisyErrors((PublicAnswer(SHARES, np.array([0.3, 0.7])),), 1, 2.0),
        lambda m, rng: np.array([m(COUNTS, rng)]),
        lambda m: m.noise,
    ),
    "bin means": (
        bin_sums_of(SCHEMA, N, 2.0),
        lambda m, rng: m.add_noise(COUNTS.bins, rng),
        lambda m: m.noise,
    ),
    "marginals": (
        NoisyMarginals((2, 3), N, 2.0),
        lambda m, rng: np.concatenate([part.values.ravel() for part in m(COUNTS, rng)]),
        lambda m: np.repeat(m.deviations, [3, 2]),
    ),
}
ALL = {name: (ALL_MECHANISMS[name](Neighbours()), *rest) for name, rest in CASES.items()} | ENGINE


class Watched:
    """A sampler that notes what it is asked for, and returns 1000 scales, 1001 scales, ..., or none."""

    def __init__(self, monkeypatch):
        self.asked, self.silent = [], True
        monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", self)

    def __call__(self, scale, size, rng):
        self.asked.append((scale, size))
        place = sum(size for _, size in self.asked[:-1])
        return scale * (1000 + place + np.arange(size)) * (not self.silent)


@pytest.mark.parametrize("name", ALL)
def test_every_number_gets_a_whole_draw_of_its_own_and_of_the_declared_size(name, monkeypatch):
    mechanism, call, deviations = ALL[name]
    sampler, found = Watched(monkeypatch), []
    for silent in (True, False):
        sampler.asked, sampler.silent = [], silent
        found.append(call(mechanism, SeededGenerator(3)))
    size = sum(size for _, size in sampler.asked)
    moved = (found[1] - found[0]) / np.broadcast_to(deviations(mechanism), found[0].shape)
    np.testing.assert_allclose(np.sort(moved), 1000 + np.arange(size), rtol=2e-4)
    assert len(moved) == size


@pytest.mark.parametrize("name", ALL)
def test_the_noise_that_is_drawn_is_what_event_and_failure_are_for(name, monkeypatch):
    mechanism, call, _ = ALL[name]
    sampler = Watched(monkeypatch)
    call(mechanism, SeededGenerator(3))
    leaves = [leaf for leaf, count in count_leaves(mechanism.event).items() for _ in range(count)]
    multipliers = [leaf.noise_multiplier for leaf in leaves]
    assert mechanism.failure >= sum(size for _, size in sampler.asked) * gaussian_failure() > 0
    if name in ("gradient", "clipped gradient", "difference", "second moments"):
        return  # their noise follows the public point, or differs off a diagonal; tests of their own
    scales = [scale for scale, _ in sampler.asked]
    wanted = [m * each.sensitivity for m, each in zip(multipliers, mechanism.gaussians, strict=True)]
    assert all(scale >= least for scale, least in zip(scales, wanted, strict=True))


def test_every_gaussian_mechanism_of_the_list_is_here():
    sizes = {name for name, make in ALL_MECHANISMS.items() if hasattr(make(Neighbours()), "gaussians")}
    assert sizes - set(CASES) == {"perturbed minimiser"}  # its noise is inside the objective


def test_the_draws_of_a_perturbed_minimiser_are_a_linear_term_and_noise_on_the_outcome(monkeypatch):
    """The minimiser without C of <b, theta> + (ridge/2) ||theta||^2 is -b/ridge: b is seen in the answer."""
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(5.0), bounds=dp.Bounds(1.0, 1.0), d=2)
    from dpcvx.mechanisms import PerturbedMinimiser

    mechanism = PerturbedMinimiser(problem, N, 1.0, 50.0, 100.0)
    nothing = dp.source(np.zeros((N, 2)), np.ones(N), bounds=problem.bounds)
    asked = []

    def draw(scale, size, rng):
        asked.append(scale)
        return (scale * np.arange(1, size + 1)) * (len(asked) == part)

    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", draw)
    record_gradient = 1.0  # the logistic loss has slopes up to 1, and rows have norm 1
    for part, expected in (  # noqa: B007 - `draw` reads it
        (1, -record_gradient / 50.0 * np.array([1.0, 2.0])),
        (2, mechanism.output_noise * np.array([1.0, 2.0])),
    ):
        asked.clear()
        found = mechanism(data=nothing, rng=SeededGenerator(0))
        np.testing.assert_allclose(found, expected, rtol=0.02)  # the minimiser is not exact


@pytest.mark.parametrize("law", [PureDP(0.5), Gaussian(2.0)], ids=["Laplace", "Gaussian"])
def test_a_private_score_gets_whole_draws(law, monkeypatch):
    asked = []

    def draw(scale, size, rng):
        asked.append((scale, size))
        return scale * (1000 + np.arange(size)) * silent

    for name in ("lattice_laplace", "lattice_gaussian"):
        monkeypatch.setattr(dpcvx.tuning.score, name, draw)
    score, found = NoisyScore(Accuracy(), N, law), []
    for silent in (0, 1):  # noqa: B007 - `draw` reads it
        found.append(score(Constant(), X, np.repeat(["a", "b"], N // 2), SeededGenerator(0)))
    moved = (found[1] - found[0]) / score.noise
    np.testing.assert_allclose(moved, 1000 + np.arange(len(moved)), rtol=1e-4)
    least = laplace_failure(asked[0][0]) if isinstance(law, PureDP) else gaussian_failure()
    assert score.failure >= len(moved) * least
    sensitivity = score.metric.l1 if isinstance(law, PureDP) else score.metric.l2
    assert asked[0][0] >= sensitivity * (2.0 if isinstance(law, Gaussian) else 1 / 0.5)


class Constant:
    """A model that always says the same."""

    classes_ = np.array(["a", "b"])

    def decision_function(self, X):
        return np.full(len(X), -1.0)


@pytest.mark.parametrize("law", [PureDP(0.5), Gaussian(2.0)], ids=["Laplace", "Gaussian"])
def test_a_private_score_of_persons_has_the_noise_of_a_whole_person(law):
    """In lattice steps it is 2^14 times that of a row, as the weights of a person's rows add up to 2^14."""
    rows, people = (NoisyScore(Accuracy(), N, law, each) for each in (Neighbours(), PERSONS))
    assert people.noise == pytest.approx(rows.noise, rel=1e-4)
    assert people._scale >= 2**14 * (rows._scale - 1)


COLUMNS = np.exp(2 * RNG.normal(size=(600, 3)))
MANY = RNG.uniform(-1, 1, (500, 60))
LINEAR = {"epsilon": 40.0, "bounds": (0, 1000), "y_bounds": (-5, 5), "random_state": 0}
FITS = {
    "NoisyBinCounts": (dp.PrivateLinearRegression(**LINEAR), COLUMNS),
    "NoisyPooledCounts": (dp.PrivateLasso(**LINEAR | {"bounds": (-50, 50)}, n_iter=3), MANY),
}


@pytest.fixture
def drawn(monkeypatch):
    """Sizes of the draws of Gaussian noise."""
    sizes, sampler = [], dpcvx.noise.gaussian.lattice_gaussian
    monkeypatch.setattr(
        dpcvx.noise.gaussian,
        "lattice_gaussian",
        lambda scale, size, rng: sizes.append(size) or sampler(scale, size, rng),
    )
    return sizes


@pytest.mark.parametrize("name", FITS)
def test_counts_before_a_fit_draw_noise(name, drawn):
    """Exact counts look like noisy ones: only the draws show that there is noise."""
    model, X = FITS[name]
    model = model.fit(X, np.tanh(X[:, 0] - 1))
    before = [stage.mechanism for stage in model.plan_.before]
    assert [type(mechanism).__name__ for mechanism in before] == ["NoisyCounts", name]
    assert drawn[:2] == [mechanism.n_draws for mechanism in before]


def test_a_preprocessor_draws_noise_for_every_count(drawn):
    dp.PrivatePreprocessor(epsilon=4.0, bounds=(0, 1000), maps="auto", random_state=0).fit(COLUMNS)
    (size,) = drawn
    assert size % 3 == 0 < size  # as many for each column


def test_an_engine_draws_noise_for_everything_that_it_releases_at_its_start(drawn):
    table = {"a": ["x", "y"] * 300, "v": [1.0, 3.0, 7.0, 9.0] * 150}
    engine = dp.QueryEngine(SCHEMA, table, dp.Budget(8.0, 1e-6), check=0.05, rng=SeededGenerator(0))
    plan = engine.plan
    first = [plan.start.n_draws, plan.bin_sums.n_draws, len(plan.split.checks), plan.counts.n_draws]
    assert sum(drawn) >= sum(first) > max(first)
    assert {plan.bin_sums.n_draws, plan.counts.n_draws} <= {*drawn}


def test_two_calls_with_one_generator_have_different_noise():
    mechanism = ALL["gradient"][0]
    rng = SeededGenerator(0)
    first, second = (mechanism(THETA, data=source_of(mechanism), rng=rng) for _ in range(2))
    assert (first != second).all()


def test_a_gradient_on_a_support_has_the_noise_of_its_features(monkeypatch):
    """PRIVACY_MATH §15: 2 R sqrt(min(K2, k K_inf^2)) for k features, whatever k was planned at most."""
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(2.0), bounds=dp.Bounds(1.0), d=3)
    mechanism, sampler = NoisyGradient(problem, N, 1.0, support=3), Watched(monkeypatch)
    for k in (1, 2, 3):
        sampler.asked = []
        mechanism(THETA, np.arange(k), data=DATA[None], rng=SeededGenerator(0))
        ((scale, size),) = sampler.asked
        slope = 2**20 * problem.slope(2, problem.margin_bound(THETA))
        assert size == k
        assert scale == pytest.approx(2 * slope * 2**14 * math.sqrt(k), rel=1e-5)
