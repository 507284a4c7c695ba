"""Selected pairs: scores of neighbours, the law of the draws, and whole fits on neighbouring records."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Neighbours, Tight, gaussian_mu, spendable
from dpcvx.audit import discrepancies, record, replay
from dpcvx.data import AdditiveBasis
from dpcvx.errors import Incompatible
from dpcvx.events import Exponential
from dpcvx.mechanisms import NoisyPair
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent, Standardised

BOUNDS = dp.Bounds(1.0)
PAIRS = ((0, 1), (0, 2), (1, 2))
BASIS = AdditiveBasis(3, (0, 1), (-2.0, -1.0, 0.0, 1.0, 2.0), 0.7, (), 0.5, 3.0)


def mechanism(n, relation="replace", eta=0.5, pairs=((0, 1), (0, 3), (2, 3))):
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=BOUNDS, d=4)
    return NoisyPair(problem, n, eta, pairs, 3.0, Neighbours(relation))


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.choice([-1.0, 0.0, 0.3, 1.0], (n, 4)), rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("pairs", [((0, 1), (0, 3), (2, 3)), ((0, 3), (0, 0), (1, 3), (1, 1))])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_neighbour_moves_a_score_by_more_than_the_sensitivity(relation, pairs):
    asked, (X, y) = mechanism(6, relation, pairs=pairs), records(6)
    largest = 0.0
    for theta in (np.zeros(4), np.array([0.0, 0.5, -1.0, 0.2])):
        scores, sensitivity = asked.scores(theta, dp.source(X, y, bounds=BOUNDS))
        cells = itertools.product((-1.0, 0.0, 1.0), repeat=4)
        for row, label in itertools.product(cells, (-1.0, 1.0)):
            other, again = X.copy(), y.copy()
            if relation == "replace":
                other[2], again[2] = row, label
            else:
                other, again = np.vstack([X, row]), np.append(y, label)
            change = np.abs(asked.scores(theta, dp.source(other, again, bounds=BOUNDS))[0] - scores).max()
            assert change <= sensitivity * (1 + 1e-12)
            largest = max(largest, change / sensitivity)
        assert sensitivity <= asked.sensitivity
    assert largest > 0.6  # not vacuous


def test_scores_are_sums_over_rows_of_whole_numbers():
    asked, (X, y) = mechanism(50), records(50)
    by_hand = [0, 0, 0]
    for row, label in zip(X, y, strict=True):
        cells = [int(2**14 * cell) for cell in row]
        rho = -int(label) * 2**19  # slope -y/2 of the logistic loss at 0
        for j, (a, b) in enumerate(asked.pairs):
            product = abs(3 * cells[a] * cells[b]) >> 14
            by_hand[j] += rho * min(product, 2**14) * (1 if cells[a] * cells[b] > 0 else -1)
    scores, _ = asked.scores(np.zeros(4), dp.source(X, y, bounds=BOUNDS))
    assert np.rint(scores[:, 0] * 50 * 2.0**34).tolist() == by_hand


def law(asked, X, y):
    """Probability of every sequence of two draws, by hand."""
    scores, sensitivity = asked.scores(np.zeros(4), dp.source(X, y, bounds=BOUNDS))
    weights = 2 * np.cosh(scores[:, 0] * asked.eta / (2 * sensitivity))
    return {
        (i, j): weights[i] / weights.sum() * weights[j] / (weights.sum() - weights[i])
        for i, j in itertools.permutations(range(3), 2)
    }


def test_draws_have_the_law_of_one_exponential_mechanism_after_another():
    asked, (X, y) = mechanism(40, eta=6.0), records(40)
    source, rng = dp.source(X, y, bounds=BOUNDS), SeededGenerator(0)
    (slopes,), drawn = asked.start(source), []
    for _ in range(3000):
        first = asked(slopes, np.zeros(4), (), source, rng)
        drawn.append((first, asked(slopes, np.zeros(4), (first,), source, rng)))
    for pair, probability in law(asked, X, y).items():
        error = math.sqrt(probability * (1 - probability) / len(drawn))
        assert abs(drawn.count(pair) / len(drawn) - probability) < 4.5 * error + 1e-3
    assert asked.event == Exponential(6.0)
    assert repr(slopes) == "Slopes()"


def test_slopes_that_are_kept_are_those_of_the_point_that_is_asked():
    asked, (X, y) = mechanism(40), records(40)
    source = dp.source(X, y, bounds=BOUNDS)
    (slopes,) = asked.start(source)
    for theta in (np.zeros(4), np.array([0.0, 3.0, -2.0, 1.0]), np.zeros(4)):
        kept, sensitivity = slopes.at(theta, lambda theta: asked.scores(theta, source))
        fresh, its_own = asked.scores(theta, source)
        assert (kept == fresh).all()
        assert sensitivity == its_own


def test_the_range_of_log_ratios_of_neighbours_is_that_of_the_event():
    asked = mechanism(6, eta=0.8)
    widest = 0.0
    for seed in range(40):
        X, y = records(6, seed)
        other, again = X.copy(), y.copy()
        other[0], again[0] = records(1, seed + 500)[0][0], -y[0]
        first, second = law(asked, X, y), law(asked, other, again)
        ratios = [math.log(first[pair] / second[pair]) for pair in first]
        widest = max(widest, max(ratios) - min(ratios))
    assert widest <= 2 * asked.eta * (1 + 1e-9)
    assert widest > 0.02


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Squared()])
def test_a_whole_fit_with_selected_pairs_agrees_on_neighbours(loss):
    problem = dp.Problem(loss, dp.L2Ball(10.0), bounds=BOUNDS, d=3)
    solver = Standardised(NoisyGradientDescent(n_iter=3), basis=BASIS, candidates=PAIRS, selected=2)
    check_neighbours(solver.plan(problem, 40, dp.Budget(4.0, 1e-5), Tight()))


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Squared()])
def test_a_whole_fit_with_selected_columns_agrees_on_neighbours(loss):
    problem = dp.Problem(loss, dp.L2Ball(10.0), bounds=BOUNDS, d=3)
    pairs = ((0, 3), (0, 0), (1, 3), (1, 1))
    solver = Standardised(
        NoisyGradientDescent(n_iter=3), basis=BASIS, candidates=pairs, selected=1, droppable=(0, 1)
    )
    plan = solver.plan(problem, 40, dp.Budget(4.0, 1e-5), Tight())
    assert plan.stages[-1].mechanism.problem.d == 2 + 4 + 1  # cells, ramps of one number, intercept
    check_neighbours(plan)


def check_neighbours(plan):
    assert plan.price.epsilon <= 4.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.choice([-1e9, -1.0, -0.3, 0.0, 1e-9, 0.4, 1.0, np.inf, np.nan], (40, 3))
        y = rng.choice([-1.0, 1.0], 40)
        other, again = X.copy(), y.copy()
        other[seed], again[seed] = rng.choice([-1.0, 1.0], 3), -y[seed]
        first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(seed))
        second = replay(plan, dp.source(other, again, bounds=BOUNDS), SeededGenerator(seed + 1), first)
        assert not discrepancies(plan, first, second)


def test_wrong_numbers_are_refused():
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=BOUNDS, d=4)
    for pairs in ((), ((1, 4),), ((-1, 2),)):
        with pytest.raises(ValueError, match="Pairs must be places of 4 features"):
            NoisyPair(problem, 100, 0.1, pairs, 3.0)


def test_rounding_of_scores_is_paid_out_of_eta():
    # A log-weight is up to eta n/2, off by 2^-50 of eta n at most; two weights of two scores are compared.
    for n in (100, 10**9, 10**13):
        assert 0 < 0.5 - mechanism(n)._temperature == pytest.approx(4 * 2.0**-50 * 0.5 * n, rel=1e-3)
    with pytest.raises(Incompatible, match="rounding"):
        mechanism(2**49)


def test_pairs_have_a_twentieth_of_the_budget():
    """A draw of the bounded range eta counts as mu = eta/2."""
    problem, budget = dp.Problem(dp.Squared(), dp.L2Ball(10.0), bounds=BOUNDS, d=3), dp.Budget(4.0, 1e-5)
    solver = Standardised(NoisyGradientDescent(n_iter=3), basis=BASIS, candidates=PAIRS, selected=2)
    stages = solver.plan(problem, 4000, budget, Tight()).stages
    (pairs,) = (stage for stage in stages if isinstance(stage.mechanism, NoisyPair))
    paid = spendable(budget)
    spent = pairs.n_calls * (pairs.mechanism.eta / 2) ** 2
    assert spent == pytest.approx(0.05 * gaussian_mu(paid.epsilon, paid.delta) ** 2)
