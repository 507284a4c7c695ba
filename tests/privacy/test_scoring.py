"""Private scores: one row moves the totals by no more than is claimed, and the noise is what was paid for."""

import math
import warnings
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import get_scorer, log_loss, roc_auc_score

import dpcvx
import dpcvx.tuning.score
from dpcvx.accounting import WEIGHT
from dpcvx.data.units import persons
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Gaussian, PureDP
from dpcvx.losses import LogPoisson
from dpcvx.noise import SeededGenerator
from dpcvx.tuning.metrics import CLASSIFICATION, REGRESSION, UNIT, metric_of, score_edges
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
    y = 2 * np.tanh(X @ [2.0, -1.0])
    settings = {"epsilon": 50.0, "bounds": (-1, 1), "y_bounds": (-4, 4), "random_state": 1}
    return dpcvx.PrivateLinearRegression(**settings).fit(X, y), y


def two_classes():
    return classifier((0, 1))


CASES = [
    *((name, two_classes if name == "roc_auc" else classifier) for name in CLASSIFICATION),
    *product(REGRESSION, [regressor]),
]
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
    # Predictions of this model stay inside the bounds, chances above a hundredth; no two scores share a bin.
    # A squared error is rounded to 2^-20 of 64, the square of the bounds' width: by 3.1e-5 at most, and R^2
    # and the root have derivatives below 1 in it.
    assert asked.value(asked.metric.totals(model, X, y) / UNIT) == pytest.approx(plain, abs=3.1e-5)


def test_test_vector():
    """Errors of 1 and 2 in bounds of width 8; the third row has no target."""
    model, _ = regressor()
    model.set_params(extrapolation="linear")
    model.coef_, model.intercept_ = np.array([1.0, 0.0]), 0.0
    rows, y = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]), np.array([1.0, -1.0, math.nan])
    squares = question(model, "neg_mean_squared_error", PureDP(0.5), 3)
    assert squares.metric.totals(model, rows, y).tolist() == [5 * UNIT // 64, UNIT // 4]
    assert squares.value(np.array([5 / 64, 1 / 4])) == pytest.approx(-2.5)
    assert (squares.sensitivity, squares.noise) == (1.125, 2.25)
    explained = question(model, "r2", Gaussian(2.0), 3)
    assert explained.metric.totals(model, rows, y).tolist() == [5 * UNIT // 64, UNIT // 16, 0, UNIT // 4]
    assert explained.value(np.array([5 / 64, 1 / 16, 0.0, 1 / 4])) == pytest.approx(1 - 2.5)
    assert explained.noise == pytest.approx(2 * math.sqrt(85 / 64), rel=1e-5)
    assert question(model, "r2", PureDP(0.5), 3).sensitivity == 1.875


@pytest.mark.parametrize("kind", ["Poisson", "Gamma", "Fractional"])
@pytest.mark.long
def test_d2_is_the_score_of_means_and_no_row_moves_it_further_than_its_sensitivity(kind):
    """With exposures, missing ones too, of counts; hostile cells against each other."""
    rng = np.random.default_rng(5)
    rows = pd.DataFrame(rng.uniform(-1, 1, (400, 2)), columns=["a", "b"])
    mean = np.exp(rows["a"] + 0.5)
    settings = {"epsilon": 50.0, "bounds": {"a": (-1, 1), "b": (-1, 1)}, "random_state": 1}
    y = {"Poisson": rng.poisson(mean), "Gamma": mean * rng.gamma(3, 1 / 3, 400)}.get(kind, mean / (1 + mean))
    if kind == "Poisson":
        rows["years"] = rng.uniform(0.2, 2, 400)
        y = rng.poisson(mean * rows["years"])
        settings |= {"exposure": "years", "max_exposure": 2}
    if kind != "Fractional":
        settings["y_bounds"] = (0, 30)
    model = getattr(dpcvx, f"Private{kind}Regressor")(**settings).fit(rows, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = model.score(rows, y)
    found = private_score(model, rows, y, epsilon=1e6)
    assert (found.name, found.value) == ("d2", pytest.approx(plain, abs=2e-3))
    metric = metric_of(model)
    pool = []
    for cells in ([0.0, 0.0], [1.0, -1.0], [np.nan, np.inf]):
        for years in [1.0, 2.0, 0.0, np.nan, 1e9] if kind == "Poisson" else [None]:
            for target in (0.0, 0.5, 30.0, -4.0, np.nan, np.inf):
                row = pd.DataFrame([cells if years is None else [*cells, years]], columns=rows.columns)
                pool.append(metric.totals(model, row, np.array([target])))
    pool.append(np.zeros(5, dtype=np.int64))
    l1 = max(np.abs(one - other).sum() for one, other in combinations(pool, 2))
    l2 = max(np.linalg.norm(one - other) for one, other in combinations(pool, 2))
    assert metric.l1 / 2 <= l1 <= metric.l1
    assert metric.l2 / 2 <= l2 <= metric.l2 * (1 + 1e-12)


def test_the_sensitivity_of_r2_holds_for_all_pairs_of_targets():
    u = np.linspace(-1, 1, 401)
    parts = np.stack([u**2 / 2, u / 4, np.full_like(u, 1 / 8)], axis=-1)
    moves = abs(parts[:, None] - parts)
    assert 1 + moves.sum(axis=-1).max() == pytest.approx(1 + 25 / 32, abs=1e-4)
    assert 1 + (moves**2).sum(axis=-1).max() < 85 / 64
    assert 1 + abs(parts).sum(axis=-1).max() == 1.875


def long_tailed(n=4000):
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (n, 2))
    y = np.minimum(np.exp(rows[:, 0] + 1.2 * rng.normal(size=n)), 60.0)
    settings = {"epsilon": 50.0, "bounds": (-1, 1), "y_bounds": (0, 60), "random_state": 1}
    return dpcvx.PrivateLinearRegression(**settings).fit(rows, y), rows, y


@pytest.mark.parametrize("name", REGRESSION)
def test_large_errors_of_a_long_tailed_target_are_not_clipped(name):
    """Errors beyond half the width of the bounds were clipped: R^2 of 0.36 where it was 0.05."""
    model, rows, y = long_tailed()
    plain = get_scorer(name)(model, rows, y)
    assert float(private_score(model, rows, y, epsilon=1e5, scoring=name)) == pytest.approx(plain, rel=2e-3)


@pytest.mark.parametrize("name", REGRESSION)
def test_rows_without_a_target_have_no_part(name):
    model, rows, y = long_tailed()
    some = np.where(np.arange(len(y)) % 2, y, math.nan)
    plain = get_scorer(name)(model, rows[1::2], y[1::2])
    assert float(private_score(model, rows, some, epsilon=1e5, scoring=name)) == pytest.approx(
        plain, rel=2e-3
    )


@pytest.mark.parametrize("law", [PureDP(0.5), Gaussian(3.0)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy"])
@pytest.mark.long
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
        assert np.std(values) == pytest.approx(asked.measured(exact).standard_error, rel=0.1)


# -- intervals, and scores that noise hides


def measured(metric, exact, n, epsilon, draws=400):
    asked, rng = NoisyScore(metric, n, PureDP(epsilon)), SeededGenerator(5)
    for _ in range(draws):
        yield asked.measured(
            exact + dpcvx.tuning.score.lattice_laplace(asked._scale, asked.n_draws, rng) / UNIT
        )


def r2_totals(n, mean, variance, explained):
    """Totals of n rows whose target has this mean and variance in halves of the width of its bounds."""
    return np.array([variance * (1 - explained) / 4, (variance + mean**2) / 2, mean / 4, 1 / 8]) * n


@pytest.mark.parametrize(
    ("n", "variance", "seen"), [(5_600, 0.0012, False), (5_600, 0.06, True), (300, 0.02, False)]
)
def test_intervals_of_r2_cover_also_where_noise_hides_the_variance_of_the_target(n, variance, seen):
    """Medical expenses in wide bounds: R^2 of 0.01 came out as 1 with a standard error of 0.2."""
    metric = metric_of(regressor()[0], "r2")
    found = list(measured(metric, r2_totals(n, -0.95, variance, 0.014), n, 1.0))
    assert np.mean([one.interval[0] <= 0.014 <= one.interval[1] for one in found]) > 0.93
    assert max(one.value for one in found) <= 1
    assert max(one.interval[1] for one in found) <= 1
    shown = [one for one in found if not one.hidden]
    assert len(shown) > 390 if seen else len(shown) < 10
    assert all(one.standard_error > 1 for one in found if one.interval[0] == -math.inf)


@pytest.mark.parametrize("error", ["squared", "root"])
def test_errors_that_are_no_larger_than_their_noise_are_hidden(error):
    name = {"squared": "neg_mean_squared_error", "root": "neg_root_mean_squared_error"}[error]
    metric = metric_of(regressor()[0], name)
    truth = -64 / 1000 if error == "squared" else -8 / math.sqrt(1000)
    found = list(measured(metric, np.array([1.0, 125.0]), 1000, 1.0))
    assert np.mean([one.interval[0] <= truth <= one.interval[1] for one in found]) > 0.93
    assert np.mean([one.hidden for one in found]) > 0.97
    assert not any(one.hidden for one in measured(metric, np.array([60.0, 125.0]), 1000, 1.0))


class Halfway:
    """A model of numbers that predicts the middle between 0 and the upper bound."""

    law = LogPoisson()

    def __init__(self, low, high):
        self.y_bounds = low, high

    def predict(self, X):
        return np.full(len(X), self.y_bounds[1] / 2)

    def exposures(self, X):
        return 1.0


@pytest.mark.parametrize("high", [1e-150, 1e80, 1e150])
@pytest.mark.parametrize("name", ["d2", *REGRESSION])
def test_scores_are_the_same_in_every_unit_of_the_target(name, high):
    """In units of 1e-80 a score of squares was charged, and ended in an error of Python's arithmetic."""
    y = RNG.uniform(0.2, 0.9, 400)
    found = []
    for unit in (1.0, high):
        score = question(Halfway(0.0, unit), name, PureDP(20.0), len(y))
        totals = score(Halfway(0.0, unit), y[:, None], y * unit, SeededGenerator(0))
        scale = {"d2": 1.0, "r2": 1.0, "neg_mean_squared_error": unit**2}.get(name, unit)
        measured = score.measured(totals)
        found.append([measured.value / scale, *(end / scale for end in measured.interval), measured.hidden])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_errors_that_are_no_numbers_are_refused_before_they_are_charged():
    for high in (1e160, 1e-170):
        with pytest.raises(WrongValue, match="too large or too small for a number"):
            metric_of(Halfway(0.0, high), "neg_mean_squared_error")
        for name in ("r2", "neg_root_mean_squared_error", "neg_mean_absolute_error"):
            metric_of(Halfway(0.0, high), name)


def test_balanced_accuracy_of_many_classes_has_no_bias_by_clipping_and_covers():
    """A model that always gives one of six classes: five shares are 0, and half of their noise is below."""
    metric, exact = dpcvx.tuning.metrics.BalancedAccuracy(6), np.array([150.0, *[0] * 6, *[150] * 5])
    found = list(measured(metric, exact, 900, 0.5))
    assert np.mean([one.value for one in found]) == pytest.approx(1 / 6, abs=0.004)
    assert np.mean([one.interval[0] <= 1 / 6 <= one.interval[1] for one in found]) > 0.93
    rare = np.array([900.0, 10.0, 90.0, 10.0])  # nobody can say how the second class is predicted
    found = list(measured(dpcvx.tuning.metrics.BalancedAccuracy(2), rare, 1010, 0.3))
    assert np.mean([one.hidden for one in found]) > 0.9


def test_an_area_is_hidden_if_a_class_is_too_small_for_its_noise():
    metric = metric_of(two_classes()[0], "roc_auc", n_classes=2)
    bins = np.exp(-((np.arange(40) - 20) ** 2) / 50)
    for rows, hidden in ((20, 1.0), (400, 0.0)):
        exact = np.concatenate([5000 * bins / bins.sum(), rows * np.roll(bins, 5) / bins.sum()])
        found = list(measured(metric, exact, 5000 + rows, 1.0))
        truth = metric.value(exact, 5000 + rows)
        assert np.mean([one.interval[0] <= truth <= one.interval[1] for one in found]) > 0.92
        assert np.mean([one.hidden for one in found]) == pytest.approx(hidden, abs=0.05)


def test_a_hidden_score_shows_no_value_and_another_one_its_interval():
    model, y = regressor()
    hidden = private_score(model, X, y, epsilon=1.0, random_state=1)
    assert str(hidden).startswith("r2: hidden by noise (95 % interval ")
    assert "The noise hides the score." in str(hidden)
    found = private_score(model, X, y, epsilon=1e4, random_state=1)
    assert str(found).startswith(f"r2 = {found.value:.6g} (noise: standard error ")
    assert "95 % interval" in str(found)
    assert found.interval[0] <= found.value <= found.interval[1]
    assert "\n" not in str(found)


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


# -- persons with several rows


@cases
def test_replacing_all_rows_of_a_person_moves_the_totals_by_at_most_the_sensitivity(name, make):
    """One person's rows against any number of hostile rows, beside others with one to three rows."""
    model, y = make()
    metric = question(model, name, PureDP(1.0)).metric
    rng = np.random.default_rng(0)
    targets = LABELS if name in CLASSIFICATION else NUMBERS
    pool = [(X[0], y[0]), *product(CELLS, targets)]
    others = np.repeat(np.arange(1, N), [1, 2, 3, 1, 2])
    found = []
    for count in [1] * len(pool) + [2, 3, 5, 8] * 8 + [0]:
        drawn = [pool[len(found)]] if count == 1 else [pool[k] for k in rng.integers(len(pool), size=count)]
        rows = np.array([*(cells for cells, _ in drawn), *X[others]], dtype=float)
        truth = np.array([*(target for _, target in drawn), *y[others]], dtype=float)
        ids = [*["p"] * count, *(f"q{k}" for k in others)]
        weights = persons(ids).shares
        found.append(metric.totals(model, rows, truth, weights))
    pairs = [np.abs(one - other) for one, other in combinations(found, 2)]
    assert max(move.sum() for move in pairs) <= WEIGHT * metric.l1
    assert max(np.linalg.norm(move) for move in pairs) <= WEIGHT * metric.l2 * (1 + 1e-12)
    assert max(move.sum() for move in pairs) >= WEIGHT * metric.l1 / 2


@cases
def test_repeated_rows_of_a_person_give_the_score_of_the_rows(name, make):
    model, y = make()
    times = np.array([1, 2, 3, 5, 8, 50])
    ids, large = np.repeat(np.arange(N), times), {"epsilon": 1e6, "scoring": name}
    plain = float(private_score(model, X, y, **large))
    again = private_score(model, np.repeat(X, times, axis=0), np.repeat(y, times), groups=ids, **large)
    assert float(again) == pytest.approx(plain, abs=0.01)
    assert again.statement.unit == "one person with all of their rows"
    assert again.statement.public["persons"] == N
    assert "n" not in again.statement.public


def test_a_score_of_persons_says_nothing_of_the_number_of_rows():
    model, y = classifier()
    scores = [
        private_score(
            model, np.repeat(X, k, axis=0), np.repeat(y, k), groups=np.repeat(range(N), k), epsilon=1.0
        )
        for k in (1, 7)
    ]
    assert str(scores[0].statement) == str(scores[1].statement)
    # Their number is published, so that a data set without one of them is no neighbour.
    assert "a person has at least one row" in str(scores[0].statement)


def test_messages_about_a_score_of_persons_name_no_number_of_rows():
    model, y = classifier()
    for rows, labels, ids in ((X, y[:-1], range(N)), (X[:-1], y, range(N)), (X, y, range(N - 1))):
        with pytest.raises(ValueError, match="row") as refused:
            private_score(model, rows, labels, groups=np.array(ids), epsilon=1.0)
        assert not any(character.isdigit() for character in str(refused.value))


def test_a_model_of_persons_is_not_scored_by_rows(tmp_path):
    ids = [f"p{k // 2}" for k in range(N)]
    settings = {"epsilon": 50.0, "classes": (0, 1), "random_state": 1}
    y = np.arange(N) % 2
    model = dpcvx.PrivateLogisticRegression(**settings, bounds=(-1, 1)).fit(X, y, groups=ids)
    with pytest.raises(Incompatible, match=r"protects persons with all of their rows.*groups=ids"):
        private_score(model, X, y, epsilon=1.0)
    assert private_score(model, X, y, groups=ids, epsilon=1.0).statement.public["persons"] == N // 2
    with pytest.raises(ValueError, match="one id for each row"):
        private_score(model, X, y, groups=ids[:4], epsilon=1.0)
    ledger = dpcvx.Ledger(tmp_path / "l.db")
    ledger.create("rows", epsilon=10.0, delta=0)
    account = ledger.create("persons", epsilon=10.0, delta=0, unit="person")
    with pytest.raises(Incompatible, match="protects a row, this release protects a person"):
        private_score(model, X, y, groups=ids, epsilon=1.0, ledger=ledger, account="rows")
    private_score(model, X, y, groups=ids, epsilon=1.0, ledger=ledger, account="persons")
    assert account.used == pytest.approx(0.1)


def test_the_column_of_persons_is_found_and_left_out():
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "who": [f"p{k // 2}" for k in range(N)]})
    y = np.arange(N) % 2
    settings = {"epsilon": 50.0, "classes": (0, 1), "bounds": {"a": (-1, 1), "b": (-1, 1)}, "random_state": 1}
    model = dpcvx.PrivateLogisticRegression(**settings, person="who").fit(table, y)
    curves = dpcvx.private_curves(model, table, y, epsilon=1e6)
    assert curves.statement.public["persons"] == N // 2
    assert curves.counts.sum() == pytest.approx(N // 2, abs=0.01)
    np.testing.assert_array_equal(model.to_sklearn().predict(table), model.predict(table))


# -- ROC curve and calibration


def two_groups(n=3000, kind=dpcvx.PrivateLogisticRegression, **settings):
    rng = np.random.default_rng(4)
    rows = rng.normal(0, 0.3, (n, 3)).clip(-1, 1)
    y = (rng.random(n) < 1 / (1 + np.exp(1 - 6 * rows[:, 0] - 3 * rows[:, 1]))).astype(float)
    settings = {"epsilon": 20.0, "bounds": (-1, 1), "classes": (0, 1), "random_state": 1, **settings}
    return kind(**settings).fit(rows, y), rows, y


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("kind", [dpcvx.PrivateLogisticRegression, dpcvx.PrivateLinearSVC])
def test_the_area_is_exact_up_to_its_binning_error(kind, standardize):
    model, rows, y = two_groups(kind=kind, standardize=standardize)
    curves = dpcvx.private_curves(model, rows, y, epsilon=1e6, random_state=0)
    plain = roc_auc_score(y, model.decision_function(rows))
    assert curves.binning_error < 0.03
    assert abs(float(curves.roc_auc) - plain) < min(curves.binning_error, 2e-3)
    false, true = curves.roc_curve()
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert np.trapezoid(true, false) == pytest.approx(float(curves.roc_auc), abs=1e-6)
    assert (np.count_nonzero(curves.counts.sum(axis=0) > 0.5)) > 15  # the bins are where the scores are


def test_test_vector_of_the_area():
    """Of four pairs of the two classes three are ordered, and one is in one bin."""
    model, *_ = two_groups()
    asked = question(model, "roc_auc", PureDP(0.5), 4)
    assert (asked.metric.size, asked.sensitivity, asked.noise) == (80, 2.0, 4.0)
    assert asked.deviation == pytest.approx(4 * math.sqrt(2))
    counts = np.zeros((2, 40))
    counts[0, [5, 20]] = 1
    counts[1, [20, 35]] = 1
    assert asked.value(counts.ravel()) == (1 + 0.5 + 1 + 1) / 4
    model.set_params(extrapolation="linear")
    model.coef_, model.intercept_ = np.array([1.0, 0.0, 0.0]), 0.0
    edges = score_edges(model)
    cells = (edges[:-1] + edges[1:]) / 2
    rows = np.column_stack([cells[[4, 19, 19, 34]], np.zeros((4, 2))])
    found = asked.metric.totals(model, rows, np.array([0.0, 0.0, 1.0, 1.0]))
    np.testing.assert_array_equal(found, UNIT * counts.ravel())
    assert not asked.metric.totals(model, rows, np.array([7.0, math.nan, 2.0, -1.0])).any()


def test_binned_log_loss_and_calibration_are_those_of_the_rows():
    model, rows, y = two_groups()
    curves = dpcvx.private_curves(model, rows, y, epsilon=1e6, random_state=0)
    assert float(curves.log_loss()) == pytest.approx(-log_loss(y, model.predict_proba(rows)), abs=5e-3)
    chances = model.predict_proba(rows)[:, 1]
    noisy = dpcvx.private_curves(model, rows, y, epsilon=2.0, random_state=0).calibration()
    assert len(noisy) >= 5
    for group in noisy:
        inside = (chances > group.low) & (chances <= group.high)
        assert abs(group.observed - y[inside].mean()) < 5 * group.standard_error < 0.5
        assert abs(group.predicted - chances[inside].mean()) < 0.05
    assert (noisy[0].low, noisy[-1].high) == (0.0, 1.0)
    assert "Calibration:" in str(curves)


@pytest.mark.long
def test_standard_errors_of_curves_are_deviations_of_the_noise():
    model, rows, y = two_groups()
    runs = [dpcvx.private_curves(model, rows, y, epsilon=1.0, random_state=seed) for seed in range(150)]
    for scores in ([run.roc_auc for run in runs], [run.log_loss() for run in runs]):
        typical = np.mean([score.standard_error for score in scores])
        assert np.std([score.value for score in scores]) == pytest.approx(typical, rel=0.25)


def test_edges_depend_on_released_numbers_alone():
    """The same model, whatever the rows that are scored; and every bin is between finite, rising edges."""
    model, rows, y = two_groups()
    one = dpcvx.private_curves(model, rows, y, epsilon=1.0)
    other = dpcvx.private_curves(model, 1e6 * rows[:10], np.full(10, 7.0), epsilon=1.0)
    np.testing.assert_array_equal(one.edges, other.edges)
    assert (np.diff(one.edges) > 0).all()
    assert np.isfinite(one.edges).all()
    model.coef_ = np.zeros(3)
    assert (np.diff(dpcvx.private_curves(model, rows, y, epsilon=1.0).edges) > 0).all()


def test_curves_of_other_models_are_refused_in_words():
    model, y = classifier()
    with pytest.raises(ValueError, match="roc_auc is for two classes, and this model has 3"):
        dpcvx.private_curves(model, X, y, epsilon=1.0)
    with pytest.raises(ValueError, match="scoring must be one of r2"):
        dpcvx.private_curves(*long_tailed(100), epsilon=1.0)
    machine, rows, labels = two_groups(kind=dpcvx.PrivateLinearSVC)
    curves = dpcvx.private_curves(machine, rows, labels, epsilon=1.0)
    with pytest.raises(TypeError, match="need probabilities"):
        curves.calibration()
    assert "roc_auc" in str(curves)


@pytest.mark.long
def test_a_search_may_choose_by_the_area():
    _, rows, y = two_groups()
    base = dpcvx.PrivateLogisticRegression(epsilon=20.0, bounds=(-1, 1), classes=(0, 1), random_state=0)
    search = dpcvx.PrivateSearchCV(base, {"l2": [0, 0.001]}, scoring="roc_auc", n_trials=2).fit(rows, y)
    assert 0.5 < search.best_score_ <= 1


def test_tiny_budgets_are_refused_from_public_numbers():
    model, y = classifier()
    with pytest.raises(Incompatible, match="too little"):
        private_score(model, X, y, epsilon=1e-12)
