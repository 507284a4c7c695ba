"""Sums for an R²: their sensitivity over neighbours, their values, their noise, and the interval."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import WEIGHT, Neighbours, Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import Arrays, Deviances, GoodnessSum, LogLosses, MeanTotals, Quantiser, SquaredErrors
from dpcvx.events import Gaussian
from dpcvx.losses import FractionalLogit, LogGamma, LogPoisson
from dpcvx.mechanisms import NoisyGoodness
from dpcvx.noise import SeededGenerator
from dpcvx.plans.uncertainty import Goodness
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.calibrated import Calibrated
from dpcvx.solvers.one_step import _clip_of_errors, with_uncertainty
from dpcvx.solvers.standardised import INTERCEPT

BOUNDS = dp.Bounds(1.0)
MEASURES = {
    "squares": SquaredErrors(0.8, 0.5),
    "other units": SquaredErrors(2.0, 1.0),
    "log-loss": LogLosses(3.0),
    "counts": Deviances(LogPoisson(), 1.0, 0.8),
    "amounts": Deviances(LogGamma(), 3.0, 0.8),
    "shares": Deviances(FractionalLogit(), 4.0, 0.9),
    "totals": MeanTotals(LogPoisson(), 0.8, 2.0),
}
named = pytest.mark.parametrize("name", MEASURES)


def problem(d=1):
    return dp.Problem(dp.Squared(), dp.L2Ball(2.0), bounds=BOUNDS, d=d)


def asked(name, n=10, multiplier=1.0, neighbours=None):
    return NoisyGoodness(problem(), n, MEASURES[name], multiplier, neighbours or Neighbours())


@named
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_two_records_are_further_apart_than_the_sensitivity_and_some_are_as_far(name, relation):
    """All features and targets of a grid, missing and absurd ones too, against each other or none."""
    mechanism = asked(name, neighbours=Neighbours(relation))
    (sensitivity,) = (each.sensitivity for each in mechanism.gaussians)
    labels = (-1.0, 1.0, 0.0, 3.0, -1e300)
    numbers = (*np.linspace(-1, 1, 41 if name == "squares" else 9), 1e300, -1e300)
    targets = [*(labels if name == "log-loss" else numbers), math.nan]
    furthest = 0.0
    for theta in ([0.0], [4.0], [-1e6]):
        base = np.array([-3.0]) if theta == [4.0] else None
        question = GoodnessSum(np.array(theta), mechanism.measure, base)
        answers = [
            dp.source([[x]], [y], bounds=BOUNDS).sum(question).astype(object)
            for x, y in itertools.product((-1.0, 0.3, 1.0), targets)
        ]
        others = answers if relation == "replace" else [np.zeros(mechanism.measure.size, dtype=object)]
        for one, other in itertools.product(answers, others):
            moved = sum((one - other) ** 2)
            assert moved <= sensitivity**2
            furthest = max(furthest, math.sqrt(moved) / sensitivity)
    assert furthest > 0.75
    assert furthest > 0.99 or name in ("counts", "amounts", "shares")


@named
def test_no_target_causes_a_warning(name):
    """Warnings are errors here: the smallest numbers have quotients of 0, and the largest overflow."""
    targets = (5e-324, 1e-320, 1e-310, -5e-324, 1.7e308, -1.7e308, math.nan, math.inf)
    for theta, y in itertools.product((0.0, 4.0, -40.0, 1e6), targets):
        question = GoodnessSum(np.array([theta]), MEASURES[name], np.array([2.0]))
        dp.source([[1.0]], [y], bounds=BOUNDS).sum(question)


def test_a_count_next_to_zero_has_the_deviance_of_zero():
    """2 (y log(y/m) - y + m) tends to 2 m, also where y/m is 0 in float64."""
    tiny, zero = (LogPoisson().deviance(np.array(y), np.array(3.0)) for y in (5e-324, 0.0))
    assert tiny == zero == 6.0


def test_vectors_of_the_formula():
    """docs/privacy_math.md §15: sqrt(2.286152) for squared errors, sqrt(1.5) for log-losses, over n."""
    assert asked("squares", 1000).sensitivity == pytest.approx(1.5120025e-3, rel=1e-5)
    assert asked("log-loss", 1000).sensitivity == pytest.approx(1.2247449e-3, rel=1e-5)
    assert asked("totals", 1000).sensitivity == pytest.approx(1.4142136e-3, rel=1e-5)
    assert asked("counts", 1000).sensitivity == pytest.approx(1.5811388e-3, rel=1e-5)
    half = Neighbours("add_remove")
    assert asked("totals", 1000, neighbours=half).sensitivity == pytest.approx(1.4142136e-3, rel=1e-5)
    assert asked("shares", 1000, neighbours=half).sensitivity == pytest.approx(1.5811388e-3, rel=1e-5)
    assert asked("squares", 1000, neighbours=half).sensitivity == pytest.approx(1.5e-3, rel=1e-5)
    assert asked("log-loss", 1000, neighbours=half).sensitivity == pytest.approx(1.1180340e-3, rel=1e-5)
    three = Neighbours("replace", "person", 3)
    assert asked("squares", 1000, neighbours=three).sensitivity == pytest.approx(4.5360076e-3, rel=1e-5)
    assert asked("totals", 1000, neighbours=three).sensitivity == pytest.approx(4.2426407e-3, rel=1e-5)
    person = Neighbours("replace", "person", 1, WEIGHT)
    assert asked("log-loss", 1000, neighbours=person).sensitivity == pytest.approx(1.2247449e-3, rel=1e-5)
    assert asked("squares", 1000, 3.0).event == Gaussian(3.0)


def test_the_constant_of_the_formula_is_the_largest_over_all_pairs():
    u = np.linspace(-1, 1, 2001)
    square = (u[:, None] - u) ** 2 / 4 + (u[:, None] ** 2 - u**2) ** 2
    assert 1 + square.max() == pytest.approx(SquaredErrors.apart, abs=1e-6)
    assert 1 + square.max() <= SquaredErrors.apart


def test_answers_are_means_with_noise_of_the_stated_deviation():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 1)), rng.uniform(-1, 1, 60)
    y[:20] = math.nan
    mechanism, data, generator = asked("squares", 60, 2.0), dp.source(X, y, bounds=BOUNDS), SeededGenerator(1)
    theta = np.array([0.7])
    answers = np.array([mechanism(theta, data=data, rng=generator) for _ in range(3000)])
    r = np.clip((0.7 * X[20:, 0] - y[20:]) / 0.8, -1, 1)
    u = np.clip(y[20:] / 0.5, -1, 1)
    exact = np.array([(r**2).sum(), u.sum() / 2, (u**2).sum()]) / 60
    np.testing.assert_allclose(answers.mean(axis=0), exact, atol=5 * mechanism.noise / math.sqrt(3000))
    np.testing.assert_allclose(answers.var(axis=0) / mechanism.noise**2, 1.0, atol=0.13)


def test_a_record_that_is_divided_by_its_length_counts_like_any_other():
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (50, 2)), rng.uniform(-1, 1, 50)
    X[::5] *= 0.1
    rows = Quantiser(dp.Bounds(1.0)).quantise(X)
    source = Arrays(rows, y.reshape(1, -1).T, bounds=dp.Bounds(1.0))
    shrunk = source.mapped(Quantiser(dp.Bounds(1.0, 1.0), 0.0, 0.5, 0.5, shrink="gradient"), 0.0, 1.0)
    theta = np.array([0.4, -0.2, 0.3])
    found = shrunk.sum(GoodnessSum(theta, SquaredErrors(1.0, 1.0, packed=True))) / 2**18
    z = X @ (2 * theta[:2]) + 0.5 * theta[2]
    exact = [np.minimum((z - y) ** 2, 1).sum(), y.sum() / 2, (y**2).sum()]
    np.testing.assert_allclose(found, exact, atol=0.02)
    lengths = np.sqrt(4 * (X**2).sum(axis=1) + 0.25)
    assert lengths.max() > 2
    assert lengths.min() < 0.8


@pytest.mark.parametrize("name", ["squares", "other units", "log-loss"])
def test_explained_is_the_r2_of_exact_sums_and_none_where_noise_hides_the_targets(name):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (4000, 1))
    theta = np.array([0.6])
    if name == "log-loss":
        y = np.where(rng.uniform(size=4000) < 1 / (1 + np.exp(-2 * X[:, 0] - 0.5)), 1.0, -1.0)
        share = np.mean(y > 0)
        loss = np.logaddexp(0, -0.6 * y * X[:, 0]).mean()
        exact = 1 - loss / -(share * math.log(share) + (1 - share) * math.log(1 - share))
    else:
        y = 0.1 + 0.4 * X[:, 0] + rng.uniform(-0.1, 0.1, 4000)
        y = np.clip(y, -0.5, 0.5)  # within both reaches
        exact = 1 - np.mean((0.6 * X[:, 0] - y) ** 2) / np.var(y)
    measure, data = MEASURES[name], dp.source(X, y, bounds=BOUNDS)
    sums = data.sum(GoodnessSum(theta, measure)) / 2**18 / 4000
    value, deviation = measure.explained(sums, 1e-9, 1.0)
    assert value == pytest.approx(exact, abs=1e-3)
    assert 0 < deviation < 1e-6
    assert measure.explained(sums, 1.0, 1.0) is None
    # Noise on the sums moves the answer as the stated deviation says.
    noise = 2e-3
    drawn = [measure.explained(sums + noise * rng.normal(size=3), noise, 1.0)[0] for _ in range(2000)]
    assert np.std(drawn) == pytest.approx(measure.explained(sums, noise, 1.0)[1], rel=0.1)


@pytest.mark.parametrize("name", ["counts", "amounts", "shares"])
@pytest.mark.parametrize("exposed", [False, True])
def test_explained_is_the_d2_of_exact_sums(name, exposed):
    """Beside the best constant, or the best constant rate, although another constant was asked about."""
    rng = np.random.default_rng(2)
    X, offsets = rng.uniform(-1, 1, (4000, 1)), np.log(rng.uniform(0.3, 1, 4000)) * exposed
    rows = Quantiser(dp.Bounds(1.0)).quantise(np.column_stack([X, np.ones(4000)]))
    theta, base = np.array([0.8, -1.5]), np.array([0.0, -1.0])
    z = 0.8 * X[:, 0] - 1.5 + offsets
    loss = {"counts": LogPoisson(y_range=(0, 9)), "amounts": LogGamma(y_range=(0, 9))}.get(
        name, FractionalLogit()
    )
    mean = loss.mean(z)
    y = {"counts": rng.poisson(4 * mean) / 4, "amounts": mean * rng.gamma(3, 1 / 3, 4000)}.get(
        name, rng.beta(4 * mean, 4 * (1 - mean))
    )
    best = np.exp(offsets) * y.sum() / np.exp(offsets).sum()
    if exposed and name != "counts":
        return  # exposures are of counts
    exact = 1 - loss.deviance(y, mean).sum() / loss.deviance(y, best).sum()
    measure = Deviances(loss, 20.0, 5.0)
    stored = 2 * y - 1 if name == "shares" else y
    data = Arrays(rows, stored[:, None], bounds=dp.Bounds(1.0), offsets=offsets if exposed else None)
    sums = data.sum(GoodnessSum(theta, measure, base)) / 2**18 / 4000
    value, deviation = measure.explained(sums, 1e-9, 1.0)
    assert value == pytest.approx(exact, abs=1e-3)
    assert 0 < deviation < 1e-6
    assert measure.explained(sums, 1.0, 1.0) is None


def test_goodness_is_charged_with_the_fit_and_printed():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 2))
    y = X @ [1.0, -0.5] + rng.normal(size=4000)
    kwargs = {"epsilon": 4.0, "delta": 1e-6, "bounds": (-5, 5), "random_state": 0}
    model = dp.PrivateLinearRegression(y_bounds=(-9, 9), uncertainty=0.2, **kwargs).fit(X, y)
    assert [part["question"] for part in model.privacy_statement_.mechanisms][-2:] == [
        "NoisyGoodness",
        "NoisySecondMoments",
    ]
    assert model.privacy_statement_.epsilon <= 4.0
    low, high = model.r2_interval()
    assert low < model.r2_ < high <= 1
    assert model.r2_ == pytest.approx(1 - np.mean((y - model.predict(X)) ** 2) / y.var(), abs=0.25)
    assert f"{model.r2_:.3f} [{low:.3f}, {high:.3f}]" in str(model.summary())
    plain = dp.PrivateLinearRegression(y_bounds=(-9, 9), **kwargs).fit(X, y)
    with pytest.raises(dp.errors.NotReleased, match="uncertainty"):
        plain.r2_  # noqa: B018


def test_goodness_survives_a_file_and_a_bad_one_is_refused(tmp_path):
    from dpcvx.estimators.model_file import _goodness

    assert _goodness({"name": "R²", "value": 0.5, "deviation": 0.1}) == Goodness("R²", 0.5, 0.1)
    assert _goodness({"name": "R²", "value": None, "deviation": 0.0}) == Goodness("R²", None)
    assert _goodness(None) is None
    for bad in ({"name": "R²"}, {"name": "x", "value": 1.0, "deviation": 0.0}, 3):
        with pytest.raises((ValueError, TypeError)):
            _goodness(bad)


LONG = [pytest.param(loss, marks=pytest.mark.long) for loss in (LogPoisson(), LogGamma(), FractionalLogit())]


@pytest.mark.parametrize("loss", [dp.Squared(), dp.Logistic(), *LONG], ids=lambda loss: loss.name)
def test_a_fit_with_an_r2_is_replayed_on_neighbours_without_a_violation(loss):
    """Far records, which are shrunk as a whole, and missing targets among them."""
    p = dp.Problem(loss, dp.L2Ball(30.0), bounds=BOUNDS, d=2)
    inner = NoisyGradientDescent(n_iter=3)
    fit = Calibrated(inner, INTERCEPT) if loss.link == "log" else inner
    solver = with_uncertainty(Standardised(fit), 0.3, loss)
    plan = solver.plan(p, 40, dp.Budget(4.0, 1e-6), Tight())
    assert "NoisyGoodness" in [type(stage.mechanism).__name__ for stage in plan.stages]
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.1, 0.1, (40, 2)), rng.choice([-1.0, 1.0], 40)
    y = np.abs(y) * rng.uniform(0, 1, 40) if loss.target == "amounts" else y
    for row, target in (([1.0, -1.0], 1.0), ([-1.0, -1.0], -1.0), ([0.0, 0.0], 0.0), ([1.0, 1.0], math.nan)):
        one, other = (dp.source(rows, labels, bounds=BOUNDS) for rows, labels in _pair(X, y, row, target))
        first = record(plan, one, SeededGenerator(1))
        assert discrepancies(plan, first, replay(plan, other, SeededGenerator(2), first)) == []


def _pair(X, y, row, target):
    """Two data sets that differ in their first record."""
    rows, targets = X.copy(), y.copy()
    rows[0], targets[0] = row, target
    return (X, y), (rows, targets)


@pytest.mark.parametrize("strength", [220, 1560, 18_600])
def test_clipping_changes_r2_of_skewed_records_by_less_than_the_noise(strength):
    """Errors are exponential, and grow with skewed features."""
    rng, n = np.random.default_rng(0), 200_000
    X = rng.gamma(0.7, size=(n, 3)) + rng.gamma(0.3, size=(n, 1))
    errors = np.exp(0.3 * np.minimum(X[:, 0] - 1, 3)) * (rng.exponential(size=n) - 1)
    y = 0.5 * X.sum(axis=1) + errors
    y, errors = y - y.mean(), errors - errors.mean()
    clip, lost = _clip_of_errors(strength)
    limit = clip * y.std()
    clipped = [np.clip(each, -limit, limit) for each in (errors, y)]
    wrong = errors.var() / y.var() - clipped[0].var() / clipped[1].var()
    noise = 1.512 * clip**2 / strength
    assert 0 < abs(wrong) < 0.75 * noise
    assert lost == pytest.approx(0.5 * noise, rel=0.1)
