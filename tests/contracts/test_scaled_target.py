"""The scale of a regression's target: private, found in wide bounds, and no model far worse than a mean."""

import math
import warnings

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Stage
from dpcvx.solvers import (
    ConstantModel,
    NoisyCorrectiveFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    ScaledTarget,
    Standardised,
)
from dpcvx.solvers.scaled_target import (
    LOOK_NOISE,
    RESIDUAL,
    TargetScale,
    enough_shown,
    measure_target,
    residual_deviations,
    target_stage,
)
from dpcvx.solvers.target_posterior import TargetAnswer, clipped_moments, target_posterior

BOUNDS = dp.Bounds(1.0)


def problem(d=4, loss=None, domain=None):
    return dp.Problem(loss or dp.Squared(), domain or dp.L2Ball(3.0), bounds=BOUNDS, d=d)


def records(n=400, d=4):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, (n, d - 1)), np.ones(n)])
    return X, np.clip(0.3 + 0.2 * X[:, 0] + 0.05 * rng.normal(size=n), -1, 1)


PLANS = {
    "descent": (problem(), ScaledTarget(NoisyGradientDescent(n_iter=3), residual=1.0)),
    "mirror": (problem(loss=dp.Quantile(0.3)), ScaledTarget(NoisyMirrorDescent(n_iter=3))),
    "selection": (problem(domain=dp.L1Ball(3.0)), ScaledTarget(NoisyCorrectiveFrankWolfe(4, 2))),
    "standardised": (problem(), Standardised(NoisyGradientDescent(n_iter=3), residual=1.0)),
    "constant": (problem(), ConstantModel()),
    "share": (problem(loss=dp.Logistic()), ConstantModel()),
    "short rows": (problem(), ScaledTarget(NoisyGradientDescent(n_iter=3), residual=0.3, length=1.0)),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_neighbour_changes_the_answers_only_within_their_sensitivity(name):
    task, solver = PLANS[name]
    X, y = records(60)
    plan = solver.plan(task, 60, dp.Budget(2.0, 1e-4), Tight())
    assert 1.9 <= plan.price.epsilon <= 2.0
    first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(0))
    for row, target in (([1e30, -1e30, 1, 1], -1.0), ([0, 0, 0, 0], math.nan), ([-1, 1, -1, 1], 1.0)):
        other_X, other_y = X.copy(), y.copy()
        other_X[0], other_y[0] = row, target
        second = replay(plan, dp.source(other_X, other_y, bounds=BOUNDS), SeededGenerator(5), first)
        assert discrepancies(plan, first, second) == []


def test_a_fit_comes_back_in_the_old_units():
    X, y = records(20_000)
    plan = ScaledTarget(NoisyGradientDescent(n_iter=300)).plan(
        problem(), len(X), dp.Budget(25.0, 1e-4), Tight()
    )
    theta = dp.execute(plan, dp.source(X, y, bounds=BOUNDS), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, [0.2, 0, 0, 0.3], atol=0.01)


def test_without_an_intercept_the_target_is_not_centred():
    X, y = records(20_000)
    plan = ScaledTarget(NoisyGradientDescent(n_iter=300), intercept=0.0).plan(
        problem(3), len(X), dp.Budget(25.0, 1e-4), Tight()
    )
    theta = dp.execute(plan, dp.source(X[:, :3], y, bounds=BOUNDS), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, [0.2, 0, 0], atol=0.02)


@pytest.mark.parametrize("deviation", [0.3, 0.01, 0.001])
@pytest.mark.parametrize("law", ["normal", "mostly zero"])
def test_centre_and_deviation_are_found_however_wide_the_bounds(deviation, law):
    n, found = 20_000, []
    stage = target_stage(n, dp.Budget(1.0, 1 / n**2))
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = (
            rng.normal(size=n)
            if law == "normal"
            else np.where(rng.random(n) < 0.7, 0, rng.exponential(size=n))
        )
        y = np.clip(rng.uniform(-0.5, 0.5) + deviation * y / y.std(), -1, 1)
        oracle = _TargetAlone(stage, y, seed)
        scale = measure_target(stage, n, oracle, 1.0, centred=True)
        assert scale.caution is None
        assert scale.present == pytest.approx(n, rel=0.05)
        found.append(((scale.center - y.mean()) / y.std(), scale.deviation / y.std()))
    errors, ratios = np.array(found).T
    assert np.sqrt(np.mean(errors**2)) < (0.1 if law == "normal" else 0.4)
    assert 0.3 < ratios.min() <= ratios.max() < 1.6


def test_a_target_that_fills_its_bounds_is_not_called_lost(monkeypatch):
    """With 300 records at epsilon 1 noise hides the spread of some targets; fits to them were useful."""
    n, stage = 300, target_stage(300, dp.Budget(1.0, 1 / 300**2))

    def measure(deviation, seed):
        y = np.clip(deviation * np.random.default_rng(seed).normal(size=n), -1, 1)
        return measure_target(stage, n, _TargetAlone(stage, y, seed), 1.0, centred=True)

    seeds = range(40)
    assert all(measure(0.3, seed).caution is None or measure(0.3, seed).deviation < 0.1 for seed in seeds)
    assert sum(measure(1e-7, seed).caution is not None for seed in seeds) > 20
    monkeypatch.setattr("dpcvx.solvers.scaled_target.LOST_DEVIATION", math.inf)
    found = [measure(0.3, seed) for seed in seeds]
    assert any(each.caution is not None and each.deviation >= 0.1 for each in found)


class _TargetAlone:
    """Answers the questions about a target, and no others."""

    def __init__(self, stage: Stage, y, seed):
        self._mechanism, self._rng = stage.mechanism, SeededGenerator(seed)
        self._data = dp.source(np.zeros((len(y), 1)), y, bounds=BOUNDS)

    def target(self, center, reach, place=None):
        return self._mechanism(center, reach, place, data=self._data, rng=self._rng)


def test_residuals_are_clipped_closer_where_records_are_few():
    clips = [residual_deviations(problem(10), n, dp.Budget(1.0, 1e-6)) for n in (300, 3000, 10_000)]
    assert clips[0] == RESIDUAL[0] == 0.7
    assert 0.7 < clips[1] < 2.5
    assert clips[2] == RESIDUAL[1] == 2.5
    kept = {"epsilon": 1.0, "bounds": (-1, 1), "y_bounds": (-1, 1)}
    plans = [dp.PrivateLinearRegression(uncertainty=share, **kept).plan(1000, 10) for share in (0, 0.2)]
    assert [plan.solver.residual for plan in plans] == [0.7, 2.5]  # coverage needs residuals as they are


def test_a_regression_with_too_few_records_is_the_mean_of_the_target_and_says_so():
    """Coefficients of these 200 records would be noise: R^2 was -1.4 without a word."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = 20 + X @ np.ones(8) + rng.normal(size=200)
    scores = []
    for seed in range(5):
        model = dp.PrivateLinearRegression(epsilon=0.3, bounds=(-4, 4), y_bounds=(0, 40), random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        assert any("mean of the target alone" in str(each.message) for each in caught)
        assert isinstance(model.plan_.solver, ConstantModel)
        np.testing.assert_array_equal(model.coef_, 0.0)
        scores.append(1 - np.mean((y - model.predict(X)) ** 2) / y.var())
    assert np.mean(scores) > -0.5
    text = model.plan_.explain()
    assert "mean of the target alone" in text
    assert "ConstantModel" in str(model.privacy_statement_)
    free = dp.PrivateLinearRegression(epsilon=0.3, bounds=(-4, 4), y_bounds=(0, 40), standardize=False)
    assert not isinstance(free.plan(200, 8).solver, ConstantModel)  # the user's own choice stays


@pytest.mark.parametrize(
    "kind",
    [
        dp.PrivateLinearRegression,
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in (dp.PrivateLasso, dp.PrivateHuberRegressor, dp.PrivateGroupLasso)
        ),
    ],
)
def test_bounds_a_hundred_times_too_wide_cost_little(kind):
    """R^2 was -23 to -850."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 4))
    y = 20 + X @ [2.0, -1.0, 0.0, 1.0] + rng.normal(size=3000)
    scores = [
        1 - np.mean((y - model.predict(X)) ** 2) / y.var()
        for width in (20, 2000)
        for model in [
            kind(epsilon=1.0, bounds=(-4, 4), y_bounds=(20 - width, 20 + 1.2 * width), random_state=0).fit(
                X, y
            )
        ]
    ]
    assert scores[1] > scores[0] - 0.1
    assert scores[0] > 0.5


def test_losses_with_units_and_several_targets_of_other_losses_are_not_scaled():
    for task in (
        problem(loss=dp.Huber(0.1)),
        dp.Problem(dp.Quantile(0.5), dp.L2Ball(3.0), bounds=BOUNDS, d=3, outputs=2),
    ):
        with pytest.raises(dp.Incompatible, match="not scaled"):
            ScaledTarget(NoisyGradientDescent()).inner(task)
    with pytest.raises(dp.Incompatible, match="means of numbers"):
        ConstantModel().plan(problem(loss=dp.Quantile(0.5)), 100, dp.Budget(1.0, 1e-5), Tight())
    with pytest.raises(dp.Incompatible, match="delta > 0"):
        ConstantModel().plan(problem(), 100, dp.Budget(1.0, 0.0), Tight())


@pytest.mark.parametrize("model", [dp.PrivateLasso, dp.PrivateElasticNet])
def test_regressions_over_an_l1_ball_of_few_columns_are_standardised(model):
    """Rows are divided by 1 + sqrt(d): the ball is one of coefficients of standardised cells."""
    settings = {"epsilon": 1, "bounds": (0, 10), "y_bounds": (0, 1)}
    plan = model(**settings).plan(4000, 9)
    assert plan.solver.standardises
    assert plan.problem.domain == dp.L1Ball(3 * (1 + 3))
    assert plan.problem.l2 == (0 if model is dp.PrivateLasso else pytest.approx(0.1 / 12**2))
    assert not model(**settings, radius=3.0).plan(4000, 9).solver.standardises
    assert not model(**settings, solver="frank_wolfe").plan(4000, 9).solver.standardises
    assert model(**settings, radius=3.0, standardize=True).plan(4000, 9).problem.domain == dp.L1Ball(3.0)


def test_long_rows_are_shrunk_with_their_targets():
    """Rows of all lengths give the coefficients of the model; the sensitivity is that of short rows."""
    X, y = records(20_000)
    X[:, :3] *= np.random.default_rng(1).uniform(0.1, 1, (len(X), 1))
    y = 0.3 + 0.2 * X[:, 0] - 0.1 * X[:, 1]
    solver = ScaledTarget(NoisyGradientDescent(n_iter=300), length=1.1)
    plan = solver.plan(problem(), len(X), dp.Budget(25.0, 1e-4), Tight())
    theta = dp.execute(plan, dp.source(X, y, bounds=BOUNDS), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, [0.2, -0.1, 0, 0.3], atol=0.01)
    assert plan.stages[1].mechanism.sensitivity == pytest.approx(2 / len(X), rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("kind", [dp.PrivateLinearRegression, dp.PrivateLasso, dp.PrivateElasticNet])
def test_few_records_are_fitted_with_short_rows(kind):
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    scores = []
    for seed in range(4):
        model = kind(
            epsilon=0.7, bounds=(X.min(axis=0), X.max(axis=0)), y_bounds=(25, 350), random_state=seed
        )
        scores.append(1 - np.mean((y - model.fit(X, y).predict(X)) ** 2) / y.var())
    assert model.plan_.solver.length == pytest.approx(0.5 * 11**0.5)
    assert np.mean(scores) > 0.3  # 0.20 with rows as they are


@pytest.mark.parametrize("model", [dp.PrivateLasso, dp.PrivateElasticNet])
def test_few_records_in_an_l1_ball_have_short_rows(model):
    """A ridge does not decide whether a fit is useful; with one range of all cells, columns are selected."""
    settings = {"epsilon": 0.3, "delta": 1 / 1595**2, "bounds": (0, 1), "y_bounds": (0, 1)}
    plan = model(**settings).plan(1595, 100)
    assert plan.solver.length == pytest.approx(0.5 * 101**0.5)
    assert plan.problem.domain == dp.L1Ball(3 * (1 + 101**0.5))
    assert plan.solver.inner(plan.problem).bounds == dp.Bounds(1.0, 1.0)
    for fixed in ({"radius": 3.0}, {"solver": "frank_wolfe"}, {"data_norm": 1.0}, {"uncertainty": 0.2}):
        assert getattr(model(**settings, **fixed).plan(1595, 100).solver, "length", None) is None
    assert model(**settings).plan(10_000, 1000).solver.length is None


def test_very_few_records_give_a_mean():
    model = dp.PrivateLinearRegression(epsilon=0.1, delta=1e-5, bounds=(0, 1), y_bounds=(0, 1))
    assert isinstance(model.plan(600, 2).solver, ConstantModel)
    assert isinstance(model.plan(3000, 10).solver, ScaledTarget)


@pytest.mark.parametrize("tail", [0, 1])
def test_a_long_tail_makes_the_unit_of_squared_loss_larger(tail):
    rng, n = np.random.default_rng(0), 20_000
    y = np.minimum(0.01 * np.exp(2 * rng.normal(size=n)), 1) if tail else 0.1 * rng.normal(size=n)
    stage = target_stage(n, dp.Budget(1.0, 1e-6))
    scale = measure_target(stage, n, _TargetAlone(stage, y, 0), 1.0, centred=True)
    assert scale.long_tail == bool(tail)
    stretch = 1.5 if tail else 1.0
    units = [
        scale.units(*each).scale
        for each in ((dp.Squared(), 0.7), (dp.Squared(), 2.5), (dp.Quantile(0.5), 0.7))
    ]
    assert units == pytest.approx(2.5 * scale.deviation * np.array([stretch, 1, 1]))


def test_many_records_of_a_long_tail_have_the_longest_clip():
    """Clips in standard deviations: the planned one, in units of 2.5, times the unit."""
    long, short = (TargetScale(0.0, 1.0, 1000, None, within) for within in (0.2, 0.5))

    def clip(scale, residual, **more):
        return residual * scale.units(dp.Squared(), residual, **more).scale / 2.5

    clips = [clip(long, each, longest=4.0) for each in (0.7, 2.4, 2.5, 5.0)]
    assert clips == pytest.approx([1.05, 2.5, 4, 5])  # noise may make a tail look long
    assert [clip(short, each, longest=4.0) for each in (0.7, 2.5)] == [0.7, 2.5]
    assert clip(long, 2.5) == 2.5
    assert [clip(each, 1.0, straight=2.0) for each in (long, short)] == [2.0, 1.0]
    assert clip(long, 1.0, straight=1.2) == pytest.approx(1.5)
    assert clip(TargetScale(0.0, 1.0, 1000, None, None), 1.0, straight=2.0) == 2.0


def test_standard_errors_keep_their_clip_where_the_tail_is_long():
    rng, n = np.random.default_rng(0), 20_000
    rows = rng.uniform(-1, 1, (n, 2))
    y = np.minimum(rows[:, 0] + rng.exponential(size=n) ** 3, 60)
    facts = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-2, 60), "random_state": 0}
    seen = []
    for more in ({}, {"uncertainty": 0.2}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TargetScale, "units", _noting(seen))
            dp.PrivateLinearRegression(**facts, **more).fit(rows, y)
    assert [longest for _, longest in seen] == [4.0, 2.5]
    assert seen[0][0] == 2.5 < seen[1][0]


def _noting(seen):
    found = TargetScale.units

    def units(self, loss, residual=2.5, straight=0.0, longest=2.5):
        if self.long_tail:  # a forecast fits drawn records too, whose tail is short
            seen.append((residual, longest))
        return found(self, loss, residual, straight, longest)

    return units


@pytest.mark.parametrize(("within", "tail"), [(None, "unknown"), (0.2, "long"), (0.35, "long"), (0.46, "")])
def test_units_say_what_is_known_of_the_tail_of_the_target(within, tail):
    """A normal law has 0.52 and an exponential one 0.46; intervals are in doubt before the unit changes."""
    scale = TargetScale(0.0, 0.1, 1000, None, within)
    assert scale.units(dp.Squared()).tail == tail
    assert scale.units(dp.Huber(0.5, threshold_deviations=1.0)).tail == ""
    assert scale.long_tail == (within == 0.2)


def test_the_tail_is_asked_for_earlier_where_there_are_standard_errors():
    from dpcvx.solvers.one_step import with_uncertainty

    plain = NoisyGradientDescent()
    assert enough_shown(plain) == 3
    assert enough_shown(with_uncertainty(plain, 0.2, dp.Squared())) == 2


@pytest.mark.parametrize("n", [600, 1200])
def test_few_records_in_wide_bounds_of_the_target_give_no_model_far_below_a_constant(n):
    """R^2 was below -10: three questions leave the range at a quarter of bounds 40 deviations wide."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 6))
    y = 200 + 40 * X @ [1.0, -1, 1, 0, 0, 0] + 40 * rng.normal(size=n)
    scores = []
    for seed in range(6):
        model = dp.PrivateLinearRegression(epsilon=0.1, bounds=(-1, 1), y_bounds=(0, 5000), random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dp.UselessModelWarning)
            model.fit(X, y)
        scores.append(1 - np.mean((y - model.predict(X)) ** 2) / y.var())
    assert isinstance(model.plan_.solver, ConstantModel if n == 600 else ScaledTarget)
    assert np.median(scores) > -0.3
    assert min(scores) > -2


def test_noisy_answers_narrow_the_range_ten_times_and_more():
    n, errors, ratios = 1500, [], []
    stage = target_stage(n, dp.Budget(0.1, 1 / n**2))
    assert stage.mechanism.noise > LOOK_NOISE
    for seed in range(12):
        y = np.clip(0.4 + 0.02 * np.random.default_rng(seed).normal(size=n), -1, 1)
        scale = measure_target(stage, n, _TargetAlone(stage, y, seed), 1.0, centred=True)
        errors.append((scale.center - y.mean()) / y.std())
        ratios.append(scale.deviation / y.std())
    assert np.sqrt(np.mean(np.square(errors))) < 0.5  # 2 to 4 with half of the range after each answer
    assert np.median(ratios) < 1.5  # 6
    free = measure_target(stage, n, _TargetAlone(stage, y, 0), 1.0, centred=False)
    assert free.center == 0
    assert 0.2 < free.deviation < 0.8  # the root mean square about 0


def test_missing_targets_count_in_noisy_answers_once_noise_cannot_explain_them():
    n = 1500
    stage = target_stage(n, dp.Budget(0.1, 1 / n**2))
    y = 0.2 * np.random.default_rng(0).normal(size=n)
    absent = np.where(np.arange(n) < 0.6 * n, np.nan, y)
    found = [
        measure_target(stage, n, _TargetAlone(stage, each, 0), 1.0, centred=True) for each in (y, absent)
    ]
    assert found[0].present == n
    assert found[1].present == pytest.approx(0.4 * n, abs=0.2 * n)


@pytest.mark.parametrize(
    ("epsilon", "n", "level", "said"),
    [
        (1.0, 4000, 5000.0, "upper end of"),
        (0.1, 1500, 5000.0, "upper end of"),
        (1.0, 4000, -9.0, "lower end of"),
        (1.0, 4000, 300.0, "a wrong unit"),
    ],
)
def test_targets_at_an_end_of_their_bounds_are_not_said_to_need_narrower_ones(epsilon, n, level, said):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    y = level + X @ [1e-4, -1e-4]
    model = dp.PrivateLinearRegression(epsilon=epsilon, bounds=(-1, 1), y_bounds=(0, 1000), random_state=0)
    with pytest.warns(dp.UselessModelWarning, match=said):
        model.fit(X, y)


def test_a_constant_whose_mean_is_noise_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 2)), 500 + rng.normal(size=300)
    settings = {"epsilon": 0.1, "bounds": (-1, 1), "random_state": 0}
    with pytest.warns(dp.UselessModelWarning, match="predicted mean is itself noise"):
        dp.PrivateLinearRegression(**settings, y_bounds=(0, 1000)).fit(X, y)
    X, y = rng.uniform(-1, 1, (900, 2)), 500 + 200 * rng.normal(size=900)
    with pytest.warns(dp.UselessModelWarning) as caught:
        dp.PrivateLinearRegression(**settings, y_bounds=(0, 1000)).fit(X, y)
    assert not any("itself noise" in str(each.message) for each in caught)


def test_clipped_moments_are_those_of_clipped_normal_numbers():
    z = np.random.default_rng(0).normal(size=400_000)
    for m, s in ((0.0, 0.3), (0.7, 0.5), (-1.4, 0.2), (0.2, 3.0)):
        clipped = np.clip(m + s * z, -1, 1)
        assert clipped_moments(m, s) == pytest.approx((clipped.mean(), np.mean(clipped**2)), abs=0.01)


@pytest.mark.parametrize("truth", [(0.0, 0.2), (-0.9, 0.02), (0.31, 0.005)])
def test_answers_without_noise_have_a_posterior_at_the_truth(truth):
    center, reach = 0.0, 1.0
    answers = []
    for _ in range(8):
        mean, square = clipped_moments((truth[0] - center) / reach, truth[1] / reach)
        answers.append(TargetAnswer(center, reach, float(mean), float(square)))
        found = target_posterior(answers, 0.05, 1.0, centred=True)
        center, reach = found.center, min(found.reach, 1.0)
    assert found.center == pytest.approx(truth[0], abs=0.1 * truth[1])
    assert found.deviation == pytest.approx(truth[1], rel=0.2)
    assert found.center_error < truth[1]
