"""Private scores: one row moves the totals by no more than is claimed, and the noise is what was paid for."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import get_scorer

import dpcvx
import dpcvx.tuning.score
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian, PureDP
from dpcvx.noise import SeededGenerator
from dpcvx.tuning.metrics import CLASSIFICATION, REGRESSION, UNIT, metric_of
from dpcvx.tuning.score import NoisyScore, private_score

N = 6
RNG = np.random.default_rng(7)
X = RNG.uniform(-1, 1, (N, 2))
CELLS = [(0.5, -1.0), (math.nan, 1.0), (math.inf, -math.inf), (1e308, 1e308), (-1e308, 0.0), (0.0, 0.0)]
LABELS = [0, 1, 2, 7, math.nan]
NUMBERS = [-4.0, 4.0, 0.0, math.nan, math.inf, -1e300]


def classifier(classes=(0, 1, 2)):
    y = np.arange(N) % len(classes)
    settings = {"epsilon": 50.0, "bounds": (-1, 1), "classes": classes, "random_state": 1}
    return dpcvx.PrivateLogisticRegression(**settings).fit(X, y), y.astype(float)


def regressor():
    y = 3 * np.tanh(X @ [2.0, -1.0])
    settings = {"epsilon": 50.0, "bounds": (-1, 1), "y_bounds": (-4, 4), "random_state": 1}
    return dpcvx.PrivateLinearRegression(**settings).fit(X, y), y


CASES = [*product(CLASSIFICATION, [classifier]), *product(REGRESSION, [regressor])]
cases = pytest.mark.parametrize(("name", "make"), CASES, ids=[name for name, _ in CASES])


def question(model, name, law, n=N):
    metric = metric_of(model, name, n_classes=len(getattr(model, "classes_", ())))
    return NoisyScore(metric, n, law)


@cases
def test_replacing_a_row_moves_the_totals_by_at_most_the_sensitivity(name, make):
    """Every row against every row of a hostile pool; and some pair comes within half of the bound."""
    model, y = make()
    metric = question(model, name, PureDP(1.0)).metric
    pool = [(X[0], y[0]), *product(CELLS, LABELS if name in CLASSIFICATION else NUMBERS)]
    l1 = l2 = 0.0
    for i in range(N):
        totals = []
        for cells, target in pool:
            changed, targets = X.copy(), y.copy()
            changed[i], targets[i] = cells, target
            totals.append(metric.totals(model, changed, targets))
        for one, other in combinations(totals, 2):
            l1 = max(l1, np.linalg.norm(one - other, 1))
            l2 = max(l2, np.linalg.norm(one - other))
    assert metric.l1 / 2 <= l1 <= metric.l1
    assert metric.l2 / 2 <= l2 <= metric.l2 * (1 + 1e-12)


@cases
def test_without_noise_the_value_is_scikit_learns(name, make):
    model, y = make()
    asked = question(model, name, PureDP(1.0))
    plain = get_scorer(name)(model, X, y)
    # Predictions of this model stay inside the bounds, errors below half of them, chances above a hundredth.
    assert asked.value(asked.metric.totals(model, X, y) / UNIT) == pytest.approx(plain, abs=2e-6)


def test_test_vector():
    """Errors of 1 and 2 in bounds of width 8, where the largest that counts is 4."""
    model, _ = regressor()
    model.coef_, model.intercept_ = np.array([1.0, 0.0]), 0.0
    rows, y = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([1.0, -1.0])
    squares = question(model, "neg_mean_squared_error", PureDP(0.5), 2)
    assert squares.metric.totals(model, rows, y).tolist() == [(UNIT + 4 * UNIT) // 16]
    assert squares.value(np.array([5 / 16])) == pytest.approx(-2.5)
    assert (squares.sensitivity, squares.noise) == (1.0, 2.0)
    explained = question(model, "r2", Gaussian(2.0), 2)
    assert explained.metric.totals(model, rows, y).tolist() == [5 * UNIT // 16, UNIT // 8, UNIT]
    assert explained.value(np.array([5 / 16, 1 / 8, 1.0])) == pytest.approx(1 - 2.5)
    assert explained.noise == pytest.approx(2 * math.sqrt(3), rel=1e-5)


@pytest.mark.parametrize("law", [PureDP(0.5), Gaussian(3.0)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy"])
def test_noise_has_the_declared_law_and_standard_errors_are_its_deviations(name, law):
    model, y = classifier()
    asked = question(model, name, law)
    exact = asked.metric.totals(model, X, y) / UNIT
    rng = SeededGenerator(3)
    draws = np.array([asked(model, X, y, rng) - exact for _ in range(1500)])
    shape = stats.laplace if isinstance(law, PureDP) else stats.norm
    scale = asked.metric.l1 / UNIT / 0.5 if isinstance(law, PureDP) else 3.0 * asked.metric.l2 / UNIT
    for column in draws.T:
        assert stats.kstest(column, shape(scale=scale).cdf).pvalue > 1e-4
    if name == "accuracy":
        values = [asked.metric.value(exact + draw, N) for draw in draws]
        assert np.std(values) == pytest.approx(asked.standard_error(exact), rel=0.1)


def lower_epsilon(hits, false_hits, runs):
    often = stats.beta.ppf(5e-4, hits, runs - hits + 1)
    return math.log(often / stats.beta.ppf(1 - 5e-4, false_hits + 1, runs - false_hits))


def audited(monkeypatch, factor, runs=4000):
    """Largest proved epsilon over half-lines for a score that claims 1; its noise is cut by a factor."""
    model, _ = classifier((0, 1))
    rows = np.zeros((1, 2))
    right = float(model.predict(rows)[0])
    honest = dpcvx.tuning.score.lattice_laplace
    monkeypatch.setattr(
        dpcvx.tuning.score, "lattice_laplace", lambda scale, n, rng: honest(int(scale * factor), n, rng)
    )
    asked, rng = question(model, "accuracy", PureDP(1.0), 1), SeededGenerator(11)
    one, other = (
        np.array([asked(model, rows, np.array([y]), rng)[0] for _ in range(runs)]) for y in (right, 1 - right)
    )
    return max(lower_epsilon((one >= t).sum(), (other >= t).sum(), runs) for t in (0.5, 1.0, 1.2))


@pytest.mark.long
def test_a_distinguisher_proves_no_more_than_epsilon(monkeypatch):
    assert 0.7 < audited(monkeypatch, 1.0) <= 1.0


@pytest.mark.long
def test_half_the_noise_is_caught(monkeypatch):
    assert audited(monkeypatch, 0.5) > 1.2


def test_it_is_charged_before_a_row_is_read(tmp_path, monkeypatch):
    model, y = classifier()
    account = dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=0.3, delta=0)
    settings = {"ledger": account.ledger, "account": "people"}
    private_score(model, X, y, epsilon=0.2, **settings)
    assert account.used == pytest.approx(2 / 3)
    monkeypatch.setattr(dpcvx.tuning.metrics.Accuracy, "totals", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(dpcvx.BudgetExceeded):
        private_score(model, X, y, epsilon=0.2, **settings)
    assert len(account.history()) == 1


def test_a_seeded_score_is_stamped_and_never_charged(tmp_path):
    model, y = classifier()
    first, again = (private_score(model, X, y, epsilon=1.0, random_state=5) for _ in range(2))
    assert first.value == again.value
    assert not first.statement.private
    dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=1.0, delta=0)
    with pytest.raises(Incompatible, match="seeded"):
        private_score(model, X, y, epsilon=1.0, random_state=5, ledger=tmp_path / "l.db", account="people")


def test_tiny_budgets_are_refused_from_public_numbers():
    model, y = classifier()
    with pytest.raises(Incompatible, match="too little"):
        private_score(model, X, y, epsilon=1e-12)
