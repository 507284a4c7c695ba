"""Rare classes: the released share of a class is where a classifier starts, and probabilities are near it."""

import warnings

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.accounting import REPLACE_ONE, Budget, Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data.memory import source
from dpcvx.data.sums import TargetSum
from dpcvx.mechanisms import NoisyTarget
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.label_share import label_stage, measure_log_odds
from dpcvx.solvers.one_step import with_uncertainty


def rare(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    z = X @ np.array([1.5, -1, 0.5, 0, 0, 0]) - 3.6
    return X, (z + rng.logistic(size=n) > 0).astype(float)


def model(**given):
    settings = {"epsilon": 0.3, "delta": 1e-8, "bounds": (-4, 4), "classes": (0, 1), "random_state": 0}
    return dp.PrivateLogisticRegression(**settings | given)


def questions(plan):
    return [type(stage.mechanism).__name__ for stage in plan.stages]


def test_probabilities_of_a_rare_class_are_near_its_share():
    X, y = rare()
    means = [model(random_state=seed).fit(X, y).predict_proba(X)[:, 1].mean() for seed in range(3)]
    assert np.mean(means) == pytest.approx(
        y.mean(), abs=0.025
    )  # 0.14 for 0.08 if descent starts at even odds


def test_the_share_is_asked_for_once_and_paid_for():
    plan = model().plan(2000, 6)
    assert questions(plan).count("NoisyTarget") == 1
    assert plan.price.epsilon <= 0.3


@pytest.mark.parametrize(
    "given",
    [
        {"fit_intercept": False},
        {"fit_intercept": False, "uncertainty": 0.2},
        {"solver": NoisyGradientDescent()},
        {"solver": "objective_perturbation"},
        {"solver": "objective_perturbation", "uncertainty": 0.2},
    ],
    ids=lambda given: "-".join(given),
)
def test_fits_that_do_not_start_at_the_share_do_not_ask_for_it(given):
    assert "NoisyTarget" not in questions(model(epsilon=4.0, standardize=True, **given).plan(2000, 6))


def test_fits_with_standard_errors_start_at_the_share_too():
    asked = questions(model(epsilon=4.0, uncertainty=0.2).plan(2000, 6))
    assert asked[0] == "NoisyTarget"
    assert asked[-1] == "NoisySecondMoments"


def test_intervals_of_a_strong_predictor_of_a_rare_class_cover():
    """From even odds descent stops half way: the mean distance was -4 standard errors."""
    fitted, away = model(epsilon=16.0, bounds=(-5, 5), uncertainty=0.2), []
    for seed in range(10):
        rng = np.random.default_rng([seed, 7])
        X = rng.normal(size=(20_000, 2))
        y = (-6 + 3 * X[:, 0] + rng.logistic(size=20_000) > 0).astype(int)
        fitted.set_params(random_state=seed).fit(X, y)
        assert fitted._uncertainty.weak == 0
        away.append((fitted.coef_debiased_ - [3, 0]) / fitted.coef_std_)
    assert abs(np.mean(away, axis=0)).max() < 0.8
    assert np.mean(np.abs(away) < 1.96) >= 0.9


def test_a_neighbour_changes_no_question_of_a_fit_with_standard_errors():
    X, y = rare(60)
    X, y = X / 4, 2 * y - 1
    solver = with_uncertainty(Standardised(NoisyGradientDescent(intercept=0.25)), 0.3, dp.Logistic())
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=Bounds(1.0), d=6)
    plan = solver.plan(problem, 60, Budget(8.0, 1e-6), Tight())
    first = record(plan, source(X, y, bounds=problem.bounds), SeededGenerator(0))
    assert [each.kind for each in first.questions][:2] == ["TargetSum", "MomentSum"]
    for label in (-y[0], 0.0):
        other, labels = X.copy(), y.copy()
        other[0], labels[0] = 1.0, label
        second = replay(plan, source(other, labels, bounds=problem.bounds), SeededGenerator(1), first)
        assert discrepancies(plan, first, second) == []


def test_several_classes_do_not_ask_for_a_share():
    assert "NoisyTarget" not in questions(model(epsilon=4.0, classes=(0, 1, 2)).plan(2000, 6))


def test_records_without_a_label_do_not_count():
    X, y = rare()
    y[::2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UnrecognisedDataWarning)
        fitted = model(epsilon=4.0).fit(X, y)
    assert fitted.predict_proba(X)[:, 1].mean() == pytest.approx(np.nanmean(y), abs=0.02)


class Answer:
    """An oracle that knows the mean and mean square of the labels."""

    def __init__(self, mean, square):
        self.answer = np.array([1.0, mean, square])

    def target(self, center, reach):
        assert (center, reach) == (0.0, 1.0)
        return self.answer


@pytest.mark.parametrize(("share", "labelled"), [(0.5, 1.0), (0.07, 1.0), (0.07, 0.4), (0.9, 1.0)])
def test_log_odds_of_many_records(share, labelled):
    stage = label_stage(10**6, Budget(1.0, 1e-8))
    found = measure_log_odds(stage, Answer(labelled * (2 * share - 1), labelled)).log_odds
    assert found == pytest.approx(np.log(share / (1 - share)), abs=0.02)


@pytest.mark.parametrize(
    ("share", "rarer"), [(0.0, "second"), (1.0, "first"), (0.014, "second"), (0.03, None)]
)
@pytest.mark.parametrize("labelled", [1.0, 0.5])
def test_a_class_whose_share_is_hardly_above_its_noise_may_be_empty(share, rarer, labelled):
    stage = label_stage(2438, Budget(1.0, 1e-7))
    assert 0.015 < stage.mechanism.noise < 0.025  # of a mean in (-1, 1): about 0.01 of a share
    found = measure_log_odds(stage, Answer(labelled * (2 * share - 1), labelled)).caution
    assert (
        found is None
        if rarer is None and labelled == 1
        else f"share of the {rarer or 'second'} of the two" in found
    )


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("estimator", [dp.PrivateLogisticRegression, dp.PrivateAdditiveClassifier])
def test_a_fit_to_one_class_says_that_all_labels_may_be_the_same(label, estimator):
    X = rare(3000)[0]
    given = {"epsilon": 1.0, "bounds": (-4, 4), "classes": ("no", "yes"), "random_state": 0}
    rarer = "first" if label else "second"
    with pytest.warns(dp.UselessModelWarning, match=f"labels are the same.*{rarer} of the two"):
        estimator(**given).fit(X, np.full(3000, given["classes"][label]))


def test_a_fit_of_levels_does_not_say_that_a_level_is_empty_which_half_of_all_people_have():
    """Labels of its rows say whether the level is above each of the seven lower ones."""
    X = pd.DataFrame(rare(1500)[0][:, :2], columns=["a", "b"])
    fitted = dp.PrivateOrdinalClassifier(
        epsilon=0.1, bounds=(-4, 4), classes=tuple(range(8)), standardize=True, random_state=0
    )
    with pytest.warns(dp.UselessModelWarning, match="labels of its rows") as heard:
        fitted.fit(X, np.arange(1500) % 2)
    assert not any("nobody is in" in str(each.message) for each in heard)


def test_log_odds_of_few_records_are_near_0_and_finite_whatever_the_noise():
    stage = label_stage(50, Budget(0.1, 1e-6))
    assert stage.mechanism.noise > 1
    assert abs(measure_log_odds(stage, Answer(-0.9, 1.0)).log_odds) < 1
    for answer in (-1e9, 1e9):
        assert np.isfinite(measure_log_odds(stage, Answer(answer, -answer)).log_odds)


@pytest.mark.parametrize(("n", "share"), [(10**5, 0.03), (300, 0.2)])
def test_the_share_of_the_budget_falls_with_the_records(n, share):
    from dpcvx.accounting import gaussian_mu

    multiplier = label_stage(n, Budget(0.1, 1e-10)).mechanism.noise_multiplier
    assert (1 / (multiplier * gaussian_mu(0.1, 1e-10))) ** 2 == pytest.approx(share, rel=1e-4)  # test vector


def test_labels_move_the_sums_by_at_most_their_sensitivity():
    # A record without a label is 0, and two labels are 2 apart.
    mechanism = NoisyTarget(5, 1.0, REPLACE_ONE)
    X, base = np.zeros((5, 1)), np.array([1.0, -1.0, 0.0, 1.0, -1.0])

    def sums(y):
        return source(X, y, bounds=Bounds(1.0)).sum(TargetSum(0.0, 1.0)).astype(float)

    moved = []
    for i in range(5):
        for label in (-1.0, 0.0, 1.0):
            other = base.copy()
            other[i] = label
            moved.append(np.linalg.norm(sums(base) - sums(other)))
    limit = float(mechanism.gaussians[0].sensitivity)
    assert limit / 2 < max(moved) <= limit
