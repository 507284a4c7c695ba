"""Private tuning: the search pays once, what theory says, and only the best run leaves it."""

import contextlib
import math
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator

import dpcvx
from dpcvx.accounting import GDP, Budget, Tight, calibrate, spendable
from dpcvx.accounting.repetition import poisson_rate, success_probability
from dpcvx.data.dataset import open_dataset
from dpcvx.events import Compose, Gaussian, RepeatAndSelect, Worst, count_leaves, from_plain
from dpcvx.mechanisms import NoisyCounts
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Stage
from dpcvx.solvers import ObjectivePerturbation
from dpcvx.tuning import PrivateSearchCV, private_tune
from dpcvx.tuning import tune as selection
from dpcvx.tuning.metrics import Accuracy
from dpcvx.tuning.repetitions import LAWS, repetitions
from dpcvx.tuning.score import NoisyScore
from tuning_theory import lemma_7

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
GRID = {"radius": [1.0, 10.0], "l2": [0, 0.1]}


def logistic(**settings):
    return dpcvx.PrivateLogisticRegression(**{"bounds": (-1, 1), "classes": (0, 1), "n_iter": 3, **settings})


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.long
def test_the_total_charged_is_the_theorys(law, tmp_path):
    account = dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=1.0, delta=1e-6)
    search = PrivateSearchCV(
        logistic(epsilon=0.8, delta=1e-6), GRID, distribution=law, ledger=account.ledger, account="people"
    )
    statement = search.fit(X, Y).privacy_statement_
    (entry,) = account.history()  # one charge, however many fits there were
    event = from_plain(entry.event)
    assert (event.mean, event.shape) == (8.0, LAWS[law])
    noise = event.event.noise_multiplier
    apart = lemma_7(1 / noise, 8.0, LAWS[law], 1e-6 * (1 - 1e-3))
    assert statement.certified_epsilon == pytest.approx(apart, rel=2e-3)
    assert 0.999 * 0.8 < statement.certified_epsilon <= 0.8
    assert (statement.epsilon, statement.delta) == (0.8, 1e-6)
    assert "entry" in statement.ledger
    account.ledger.verify()
    # Every run is within the one that was paid for: the fit of some rows, the score of the others.
    stages = search.best_estimator_.plan_.stages
    steps = sum(stage.n_calls / stage.mechanism.event.noise_multiplier**2 for stage in stages)
    assert 0.999 / noise <= math.sqrt(steps) <= (1 + 1e-9) / noise


def priced(models, metric=None, n_train=320, budget=None, law=(6.0, 1.0), check=()):
    score = NoisyScore(metric or Accuracy(), 80, Gaussian(1.0))
    return selection._price(
        models, open_dataset(X, Y, "auto"), score, n_train, budget or Budget(1.0, 1e-6), law, check
    )


def test_different_solvers_share_one_price():
    names = ("frank_wolfe", "corrective_frank_wolfe", "gradient_descent")
    models = [logistic(domain="l1", solver=solver) for solver in names]
    models.append(logistic(solver=ObjectivePerturbation(), n_iter=None))
    found = priced(models)
    assert isinstance(found.price.event.event, Worst)
    assert len(found.price.event.event.events) == 4  # the reference stands for everything Gaussian
    assert 0.95 < found.price.epsilon <= 1.0
    assert len({model.epsilon for model in found.models}) == 1  # the same budget for everybody
    delta = spendable(Budget(1.0, 1e-6)).delta
    assert all(Tight().epsilon(RepeatAndSelect(plan.event, 6.0, 1.0), delta) <= 1.0 for plan in found.plans)


def test_scores_on_the_rows_of_the_fit_are_composed():
    found = priced([logistic()], n_train=400)
    both = Compose((found.plans[0].event, found.score.event))
    assert GDP().epsilon(both, 1e-6) == pytest.approx(GDP().epsilon(found.price.event.event, 1e-6), rel=1e-6)
    share = (1 / found.score.event.noise_multiplier) ** 2
    assert share == pytest.approx(0.1 / found.price.event.event.noise_multiplier**2)


def test_runs_of_other_noise_are_composed_with_their_scores():
    found = priced([logistic(solver=ObjectivePerturbation(), n_iter=None)], n_train=400)
    both = Compose((found.plans[0].event, found.score.event))
    delta = spendable(Budget(1.0, 1e-6)).delta
    assert 0.9 < Tight().epsilon(RepeatAndSelect(both, 6.0, 1.0), delta) <= 1.0
    assert Tight().epsilon(found.price.event, delta) >= Tight().epsilon(
        RepeatAndSelect(both, 6.0, 1.0), delta
    )


def test_the_check_of_the_data_is_paid_beside_the_search():
    check = (Stage(NoisyCounts(400, 3, (2,), 8.0), 1),)
    found = priced([logistic()], check=check)
    delta = spendable(Budget(1.0, 1e-6)).delta
    assert count_leaves(found.price.event)[Gaussian(8.0)] == 1
    assert Tight().epsilon(found.price.event, delta) <= 1.0
    alone = priced([logistic()])
    assert found.score.event.noise_multiplier > 1.01 * alone.score.event.noise_multiplier


def test_every_setting_is_as_likely_in_every_trial(monkeypatch):
    """Otherwise the best of the trials is not that of independent draws, for which the price is proved."""
    plan = priced([logistic()]).plans[0]
    monkeypatch.setattr(Constant, "plan_", plan)
    models, rng = tuple(Constant(account=str(i)) for i in range(4)), SeededGenerator(8)
    drawn = []
    copy = selection.clone
    monkeypatch.setattr(selection, "clone", lambda model: drawn.append(int(model.account)) or copy(model))
    monkeypatch.setattr(selection, "fit_silently", lambda model, X, y, people: None)
    score = NoisyScore(Accuracy(), 1, Gaussian(1.0))
    stub = selection._PricedSearch(models, (plan,) * 4, score, None)
    rows = np.zeros((1, 3)), np.array([1]), None
    selection._best(stub, 300, (X, Y, None), rows, rng)
    assert stats.chisquare(np.bincount(drawn, minlength=4)).pvalue > 1e-4
    following = np.bincount(4 * np.array(drawn[:-1]) + drawn[1:], minlength=16)
    assert stats.chisquare(following).pvalue > 1e-4


def test_the_largest_run_that_fits_is_used():
    budget = Budget(1.0, 1e-6)
    found = priced([logistic()], budget=budget)
    best = calibrate(lambda t: RepeatAndSelect(Gaussian(t), 6.0, 1.0), spendable(budget), Tight())
    assert found.score.event.noise_multiplier == pytest.approx(best, rel=1e-6)


def test_samplers_of_all_runs_are_paid(monkeypatch):
    assert priced([logistic()]).price.failure >= 2.0**-128  # of the law of their number
    monkeypatch.setattr(NoisyScore, "failure", property(lambda self: 1e-20))
    assert priced([logistic()]).price.failure == pytest.approx(6e-20, rel=1e-6, abs=0)


@pytest.mark.parametrize("law", LAWS)
def test_the_number_of_runs_has_its_law(law):
    rng, mean = SeededGenerator(5), 4.0
    draws = np.array([repetitions(mean, LAWS[law], rng) for _ in range(4000)])
    k = np.arange(1, 400)
    if law == "poisson":
        rate = poisson_rate(mean)
        chances = stats.poisson(rate).pmf(k) / -math.expm1(-rate)
    else:
        g = success_probability(mean, LAWS[law])
        chances = (1 - g) ** k / (k * -math.log(g)) if law == "logarithmic" else g * (1 - g) ** (k - 1)
    assert draws.min() == 1
    counts = np.bincount(np.minimum(draws, 12), minlength=13)[1:]
    expected = np.append(chances[:11], 1 - chances[:11].sum()) * draws.size
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.long
def test_a_row_is_in_the_fit_or_in_the_scores():
    """Replacing a scored row changes no model and its score by one row; a fitted one changes the model."""
    settings = {"epsilon": 2.0, "n_trials": 1.5, "random_state": 9, "test_size": 0.5}
    base = private_tune(logistic(), {"radius": [3.0]}, X, Y, **settings)
    steps = []
    for i in range(6):
        labels = Y.copy()
        labels[i] = 1 - labels[i]
        other = private_tune(logistic(), {"radius": [3.0]}, X, labels, **settings)
        if np.array_equal(other.model.coef_, base.model.coef_):
            steps.append(abs(other.score - base.score) * len(X) / 2)
    assert 1 <= len(steps) <= 5
    assert steps == pytest.approx([1.0] * len(steps))


def test_nothing_but_the_best_run_is_published():
    search = PrivateSearchCV(logistic(epsilon=1.0), GRID).fit(X, Y)
    published = set(vars(search)) - set(search.get_params(deep=False))
    assert published == {
        "best_estimator_",
        "best_params_",
        "best_score_",
        "best_score_error_",
        "best_score_interval_",
        "privacy_statement_",
    }
    single = vars(logistic(epsilon=1.0).fit(X, Y)).keys()
    assert vars(search.best_estimator_).keys() == single
    assert search.best_estimator_.privacy_statement_ is search.privacy_statement_
    assert search.best_estimator_.ledger is None


def test_the_best_score_of_a_search_is_hidden_where_noise_hides_it():
    """A best R^2 of 1 was released with a standard error of 0.6."""
    regression = dpcvx.PrivateLinearRegression(epsilon=4.0, bounds=(-1, 1), y_bounds=(-50, 50))
    with pytest.warns(dpcvx.UselessModelWarning, match="noise hides the score of the chosen setting"):
        tuned = private_tune(regression, {"l2": [0.0, 0.1]}, X, X[:, 0], random_state=3)
    assert math.isnan(tuned.score)
    assert "hidden by noise" in str(tuned)
    assert tuned.interval[1] - tuned.interval[0] > 1


def test_the_interval_of_the_best_score_is_wider_with_more_trials():
    """The best of many noisy scores is too good, so each of them must be covered more often."""
    settings = {"epsilon": 20.0, "random_state": 3}
    few, many = (
        private_tune(logistic(), {"radius": [3.0]}, X, Y, n_trials=trials, **settings) for trials in (1.01, 9)
    )

    def halves(tuned):
        return (tuned.interval[1] - tuned.interval[0]) / 2 / tuned.standard_error

    assert halves(few) == pytest.approx(1.96, abs=0.02)
    assert halves(many) == pytest.approx(2.77, abs=0.02)


def test_number_and_order_of_trials_do_not_leak_through_the_chosen_one(monkeypatch):
    """With equal scores the first run counts: for runs of one law that is a uniform choice among them."""
    monkeypatch.setattr(NoisyScore, "__call__", lambda self, model, X, y, rng, weights: np.array([1.0]))
    found = priced([logistic(epsilon=1.0)])
    seen = []
    monkeypatch.setattr(
        selection, "fit_silently", lambda model, X, y, people: seen.append(model) or _with_plan(model, found)
    )
    _, model, _, _ = selection._best(found, 5, (X, Y, None), (X, Y, None), SeededGenerator(0))
    assert len(seen) == 5
    assert model is seen[0]


def _with_plan(model, found):
    model.plan_ = found.plans[0]
    return model


def test_without_budget_nothing_is_fitted(tmp_path, monkeypatch):
    dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=0.5, delta=1e-6)
    monkeypatch.setattr(selection, "_rows", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(dpcvx.BudgetExceeded):
        private_tune(
            logistic(epsilon=1.0, delta=1e-6), GRID, X, Y, ledger=tmp_path / "l.db", account="people"
        )


class Constant(BaseEstimator):
    """A public model: its fit asks nothing, so that the search is that of scores alone."""

    classes_ = np.array([0, 1])
    plan_ = None

    def __init__(self, ledger=None, account=None, random_state=None):
        self.ledger, self.account, self.random_state = ledger, account, random_state

    def decision_function(self, X):
        return np.ones(len(X))


def lower_epsilon(hits, false_hits, runs, delta):
    often = stats.beta.ppf(5e-4, hits, runs - hits + 1) if hits else 0.0
    seldom = stats.beta.ppf(1 - 5e-4, false_hits + 1, runs - false_hits)
    return math.log((often - delta) / seldom) if often > delta else 0.0


def proved(factor, monkeypatch, delta=1e-3, runs=500):
    """Epsilon that best scores prove of a search that claims 1: one scored row is right, or wrong."""
    found = priced([logistic()], budget=Budget(1.0, delta))
    law = Gaussian(factor * found.score.law.noise_multiplier)
    plan = found.plans[0]
    monkeypatch.setattr(Constant, "plan_", plan)
    monkeypatch.setattr(selection, "fit_silently", lambda model, X, y, people: None)
    stub = selection._PricedSearch((Constant(),), (plan,), NoisyScore(Accuracy(), 1, law), found.price)
    rng, rows = SeededGenerator(31), np.zeros((1, 3))
    one, other = (
        np.array(
            [
                selection._best(
                    stub, repetitions(6.0, 1.0, rng), (X, Y, None), (rows, np.array([label]), None), rng
                )[2]
                for _ in range(runs)
            ]
        )
        for label in (0, 1)
    )
    cuts = np.quantile(np.r_[one, other], np.linspace(0.02, 0.98, 25))
    return max(
        lower_epsilon((a >= cut).sum(), (b >= cut).sum(), runs, delta)
        for cut in cuts
        for a, b in ((one, other), (other, one))
    )


@pytest.mark.long
def test_a_distinguisher_of_best_scores_proves_no_more_than_epsilon(monkeypatch):
    assert proved(1.0, monkeypatch) <= 1.0


@pytest.mark.long
def test_a_quarter_of_the_noise_is_caught(monkeypatch):
    assert proved(0.25, monkeypatch) > 1.0


def test_a_trial_says_nothing_even_where_warnings_are_not_held_back(monkeypatch):
    """Filters belong to the whole process: another thread's would let a trial's warning out."""
    rows = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    y = 5 + rows @ [2.0, 1.0]
    model = dpcvx.PrivateLinearRegression(bounds=(-1, 1), y_bounds=(0, 20_000), random_state=0, check=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "catch_warnings", lambda **_: contextlib.nullcontext([]))
        monkeypatch.setattr(warnings, "simplefilter", lambda *_: None)
        tuned = private_tune(model, {"fit_intercept": [True, False]}, rows, y, epsilon=1.0, n_trials=3)
        monkeypatch.undo()
    assert "no larger than its noise" in tuned.model.release_.caution
    assert not [each for each in caught if "no larger than its noise" in str(each.message)]
