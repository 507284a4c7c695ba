"""Private bounds: quantiles on a public grid, their range between neighbours, and one price with the fit."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import log_softmax

import dpcvx
import dpcvx.data.table
from dpcvx.accounting import Budget, gaussian_mu, selection_renyi, spendable
from dpcvx.errors import Incompatible
from dpcvx.estimators.private_bounds import quantile_stages, release_bounds
from dpcvx.events import Exponential
from dpcvx.mechanisms import NoisyQuantile, quantile_grid
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Answers

GRID = quantile_grid()
COLUMNS = {
    "spread": np.array([-3.0, 0.5, 2.0, 40.0, 1e5, 7.0]),
    "equal": np.full(6, 5.0),
    "two values": np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]),
    "hostile": np.array([math.nan, math.inf, -math.inf, 1e308, -1e-300, 0.0]),
}
POOL = [0.0, 1.0, -1e300, 1e300, 4.9, 5.1, math.nan, math.inf, -2.0]


def test_the_grid_is_public_and_the_same_for_every_type():
    assert GRID.size == 2 * (104 * 8 + 1) + 1
    assert (np.diff(GRID) > 0).all()
    assert np.array_equal(GRID, -GRID[::-1])
    assert (GRID[0], GRID[-1]) == (-(2.0**64), 2.0**64)


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_a_replaced_cell_moves_every_score_by_at_most_one(column, rank):
    """And the log-probabilities by a range of at most eta, which some pair comes near."""
    asked = NoisyQuantile(6, rank, 0.8)
    range_found = step_found = 0.0
    for i in range(6):
        variants = []
        for cell in [column[i], *POOL]:
            changed = column.copy()
            changed[i] = cell
            variants.append(asked.scores(changed))
        for one, other in combinations(variants, 2):
            step_found = max(step_found, abs(one - other).max())
            ratio = log_softmax(0.4 * one) - log_softmax(0.4 * other)
            range_found = max(range_found, ratio.max() - ratio.min())
    assert step_found == 1.0
    assert 0.4 <= range_found <= 0.8 + 1e-9


def test_test_vector():
    """Cells 0, 1, 1, 3: counts pass 2 in the part that ends at 1, and pass 1 there or at 0."""
    scores = NoisyQuantile(4, 2, 1.0).scores(np.array([0.0, 1.0, 1.0, 3.0]))
    at_zero, at_one, at_three = (int(np.searchsorted(GRID, value)) for value in (0.0, 1.0, 3.0))
    assert scores.size == GRID.size + 1
    assert scores[[0, at_zero, at_one, at_three, -1]].tolist() == [-2.0, -1.0, 0.0, -1.0, -2.0]
    assert set(scores[at_one + 1 : at_three]) == {-1.0}
    assert NoisyQuantile(4, 2, 1.0).event == Exponential(1.0)


def test_parts_are_drawn_with_their_probabilities():
    column, asked, rng = COLUMNS["two values"], NoisyQuantile(6, 5, 6.0), SeededGenerator(1)
    draws = np.array([asked(column, rng)[1] for _ in range(4000)])
    chances = np.exp(log_softmax(3.0 * asked.scores(column)))
    one = int(np.searchsorted(GRID, 1.0))
    counts = [(draws < 1).sum(), (draws == 1).sum(), (draws > 1).sum()]
    expected = [chances[:one].sum(), chances[one], chances[one + 1 :].sum()]
    assert min(expected) > 1e-3
    assert stats.chisquare(counts, 4000 * np.array(expected)).pvalue > 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda n: np.full(n, 5.0),
        lambda n: np.arange(n) % 2.0,
        lambda n: np.linspace(1e6, 1e6 + 1, n),
        lambda n: np.random.default_rng(0).normal(50, 10, n),
    ],
    ids=["equal", "two values", "narrow", "normal"],
)
def test_an_answer_beyond_all_records_is_rare(make):
    """Exact chances; without this the scale of a feature would be anything up to 2^64."""
    n = 20_000
    low, high = (stage.mechanism for stage in quantile_stages(n, 5, Budget(1.0, 1e-9)))
    column = make(n)
    for asked in (low, high):
        chances = np.exp(log_softmax(asked.eta / 2 * asked.scores(column)))
        first, last = (int(np.searchsorted(GRID, end)) for end in (column.min(), column.max()))
        assert chances[:first].sum() + chances[last + 1 :].sum() <= math.exp(-7) / 10


def share_of_budget(stages, budget):
    paid = spendable(budget)
    spent = sum(stage.n_calls * stage.mechanism.eta**2 / 4 for stage in stages)
    return spent / gaussian_mu(paid.epsilon, paid.delta) ** 2


def test_few_records_spend_as_much_as_their_ranks_need_and_at_most_half():
    """At epsilon 1 and delta 1e-5 452 records are enough; at 15 % of the budget 824 were needed."""
    budget = Budget(1.0, 1e-5)
    shares = []
    for n in (452, 500, 600, 800, 824, 5000):
        stages = quantile_stages(n, 1, budget)
        assert stages[0].mechanism.rank <= n / 4
        assert stages[1].mechanism.rank == n - stages[0].mechanism.rank
        shares.append(share_of_budget(stages, budget))
    assert shares == sorted(shares, reverse=True)
    assert 0.49 < shares[0] <= 0.5 * (1 + 1e-12)
    assert shares[-1] == pytest.approx(0.15)
    with pytest.raises(Incompatible, match=r"need 452 records, and there are 451.*half of the budget"):
        quantile_stages(451, 1, budget)


@pytest.mark.long
def test_private_bounds_of_a_target_make_a_useful_model_of_few_records():
    rng = np.random.default_rng(0)
    X, noise = rng.uniform(-1, 1, (500, 3)), rng.normal(0, 6.5, 500)
    y = 50 + 14 * X[:, 0] + noise
    settings = {"epsilon": 1.0, "bounds": (-1, 1), "y_bounds": "private"}
    fits = [dpcvx.PrivateLinearRegression(**settings, random_state=seed).fit(X, y) for seed in range(9)]
    explained = [1 - ((model.predict(X) - y) ** 2).mean() / y.var() for model in fits]
    assert np.median(explained) > 0.2


def curve(stages, mu, orders):
    eta, count = stages[0].mechanism.eta, sum(stage.n_calls for stage in stages)
    return count * selection_renyi(orders, eta) + orders * mu**2 / 2


def fitted(column_count=3, n=4000, **settings):
    rng = np.random.default_rng(2)
    X = rng.normal([10.0, -5.0, 0.0][:column_count], [1.0, 20.0, 1e-3][:column_count], (n, column_count))
    y = (X[:, 0] > 10).astype(int)
    base = {"epsilon": 4.0, "delta": 1e-6, "bounds": "private", "classes": (0, 1), "n_iter": 3, "check": 0}
    return dpcvx.PrivateLogisticRegression(**{**base, **settings}).fit(X, y), X, y


def test_quantiles_and_fit_have_one_price():
    """The Rényi curves of both are added and converted once; quantiles have 15 % of mu^2."""
    model, *_ = fitted(solver="gradient_descent", standardize=False)
    plan, delta = model.plan_, spendable(Budget(4.0, 1e-6)).delta
    steps = sum(stage.n_calls / stage.mechanism.event.noise_multiplier**2 for stage in plan.stages)

    def epsilon(log_less):
        order = 1 + math.exp(log_less)
        total = float(curve(plan.before, math.sqrt(steps), np.array([order]))[0])
        return total + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    apart = minimize_scalar(epsilon, bounds=(-2, 6), method="bounded").fun
    assert plan.price.epsilon == pytest.approx(apart, rel=1e-6)
    assert 0.999 * 4 < plan.price.epsilon <= 4
    selections = sum(stage.n_calls * stage.mechanism.eta**2 / 4 for stage in plan.before)
    assert selections == pytest.approx(0.15 * gaussian_mu(4.0, delta) ** 2)
    assert [part["question"] for part in model.privacy_statement_.mechanisms][:2] == ["NoisyQuantile"] * 2
    assert model.privacy_statement_.certified_epsilon == plan.price.epsilon


@pytest.mark.filterwarnings("ignore:Perhaps no cell of")  # none is: noise decides which columns are named
def test_plan_and_price_are_the_same_for_any_records():
    one, X, y = fitted()
    settings = one.get_params()
    other = type(one)(**settings).fit(np.full_like(X, math.nan), y)
    assert other.plan_.event == one.plan_.event
    assert other.plan_.before == one.plan_.before
    assert np.isfinite(other.coef_).all()


def test_the_charge_is_for_both_and_comes_before_a_cell(tmp_path, monkeypatch):
    account = dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=4.5, delta=1e-5)
    paying = {"ledger": account.ledger, "account": "people"}
    fitted(**paying)
    (entry,) = account.history()
    assert "Exponential" in str(entry.event)
    assert "Gaussian" in str(entry.event)
    monkeypatch.setattr(dpcvx.data.table.Table, "column_numbers", lambda *_: pytest.fail("cells were read"))
    with pytest.raises(dpcvx.BudgetExceeded):
        fitted(**paying)


def test_a_type_that_one_missing_cell_would_change_changes_nothing():
    rng = np.random.default_rng(4)
    whole = rng.integers(0, 100, (3000, 2))
    y = (whole[:, 0] > 50).astype(int)
    models = []
    for X in (whole, whole.astype(float), whole.astype(np.int16)):
        settings = {"epsilon": 4.0, "bounds": "private", "classes": (0, 1), "random_state": 3}
        models.append(dpcvx.PrivateLogisticRegression(**settings).fit(X, y))
    for other in models[1:]:
        assert other.privacy_statement_.bounds == models[0].privacy_statement_.bounds
        assert np.array_equal(other.coef_, models[0].coef_)


def test_refusals_come_from_public_numbers():
    with pytest.raises(Incompatible, match=r"need \d+ records, and there are 60"):
        fitted(n=60)
    with pytest.raises(Incompatible, match="dense records"):
        dpcvx.PrivateLasso(epsilon=1.0, bounds="private", y_bounds=(0, 1)).fit(
            csr_array(np.eye(9)), np.ones(9)
        )
    huber = dpcvx.PrivateHuberRegressor(epsilon=1.0, bounds=(0, 1), y_bounds="private", threshold=2.0)
    with pytest.raises(Incompatible, match="threshold"):
        huber.fit(np.zeros((9, 1)), np.ones(9))
    with pytest.raises(Incompatible, match="relation"):
        quantile_stages(9, 1, Budget(1.0, 1e-6, "add_remove"))
    with pytest.raises(Incompatible, match="delta"):
        quantile_stages(9, 1, Budget(1.0, 0.0))
    with pytest.raises(Incompatible, match="rounding"):
        NoisyQuantile(2**50, 5, 1.0)
    assert NoisyQuantile(10, 5, 1e-13).failure == 0.0  # exact, however small eta is
    stages = quantile_stages(10**5, 2, Budget(1.0, 1e-6))
    with pytest.raises(Incompatible, match="2 column"):
        release_bounds(stages, iter([np.zeros(10**5)]), Answers(SeededGenerator(0)))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ((2.0, 4.0), (6.0, 8.0), (2.0, 8.0)),
        ((6.0, 8.0), (2.0, 4.0), (4.0, 6.0)),  # noise may turn them round
        ((-(2.0**-40), 0.0), (-(2.0**-40), 0.0), (-1.0, 1.0)),
        ((2.0**64, 2.0**64), (2.0**64, 2.0**64), (0.0, 2.0**65)),
    ],
    ids=["apart", "turned", "zero", "end"],
)
def test_whatever_the_quantiles_are_bounds_follow(low, high, expected, monkeypatch):
    stages = quantile_stages(10**6, 1, Budget(1.0, 1e-6))
    rank = stages[0].mechanism.rank
    monkeypatch.setattr(NoisyQuantile, "__call__", lambda self, *_: low if self.rank == rank else high)
    found = np.concatenate(release_bounds(stages, iter([np.zeros(1)]), Answers(SeededGenerator(0))))
    wider = 3 / -stats.norm.ppf(rank / 10**6)
    middle, half = sum(expected) / 2, (expected[1] - expected[0]) / 2
    assert found == pytest.approx([middle - wider * half, middle + wider * half], abs=1e-9)
    assert found[0] < found[1]


def lower_epsilon(hits, false_hits, runs):
    often = stats.beta.ppf(5e-4, hits, runs - hits + 1) if hits else 0.0
    return math.log(often / stats.beta.ppf(1 - 5e-4, false_hits + 1, runs - false_hits)) if often else 0.0


def proved(drawn_with, runs=4000):
    """Epsilon that answers prove: one of two cells is far below the other, or far above it."""
    asked, rng = NoisyQuantile(2, 1, drawn_with), SeededGenerator(8)
    one, other = (
        np.array([asked(np.array([0.0, cell]), rng)[1] for _ in range(runs)])
        for cell in (-(2.0**64), 2.0**64)
    )
    return max(
        lower_epsilon((a <= cut).sum(), (b <= cut).sum(), runs)
        for cut, (a, b) in product((-1.0, 0.0, 1.0), ((one, other), (other, one)))
    )


def test_a_distinguisher_proves_no_more_than_eta():
    assert 0.7 < proved(2.0) <= 2.0


def test_a_selection_three_times_as_sharp_is_caught():
    assert proved(6.0) > 2.0
