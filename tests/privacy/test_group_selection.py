"""Selected groups: scores of neighbours, the law of the draws, whole fits, and what is found."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Neighbours, Tight, gaussian_mu, spendable
from dpcvx.audit import discrepancies, record, replay
from dpcvx.errors import Incompatible
from dpcvx.events import Exponential
from dpcvx.mechanisms import NoisyGradient, NoisyGroup
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Asking
from dpcvx.solvers import NoisyGroupSelection

BOUNDS = dp.Bounds(1.0)
GROUPS = ((0,), (1, 2), (3, 4, 5))
BALL = dp.GroupBall([list(group) for group in GROUPS], 2.0)
BUDGET = dp.Budget(4.0, 1e-5)


def mechanism(n, relation="replace", eta=0.5, unit="row", rows=1):
    problem = dp.Problem(dp.Logistic(), BALL, bounds=BOUNDS, d=6)
    return NoisyGroup(problem, n, eta, GROUPS, Neighbours(relation, unit, rows))


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.choice([-1.0, 0.0, 0.3, 1.0], (n, 6)), rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_neighbour_moves_a_score_by_more_than_one(relation):
    asked, (X, y) = mechanism(6, relation), records(6)
    y[:] = -1.0
    X[:] = np.abs(X)
    largest = 0.0
    for theta in (np.zeros(6), np.array([0.0, 0.5, -1.0, 0.2, 0.3, 0.0])):
        scores, sensitivity = asked.scores(theta, dp.source(X, y, bounds=BOUNDS))
        assert sensitivity == 1.0
        for row, label in itertools.product(itertools.product((-1.0, 1.0), repeat=6), (-1.0, 1.0)):
            other, again = X.copy(), y.copy()
            if relation == "replace":
                other[2], again[2] = row, label
            else:
                other, again = np.vstack([X, row]), np.append(y, label)
            change = np.abs(asked.scores(theta, dp.source(other, again, bounds=BOUNDS))[0] - scores).max()
            assert change <= 1 + 1e-12
            largest = max(largest, change)
    assert largest > 0.6  # not vacuous


def test_all_rows_of_a_person_together_move_a_score_by_one_at_most():
    asked, (X, y) = mechanism(6, unit="person", rows=3), records(6)
    scores, _ = asked.scores(np.zeros(6), dp.source(X, y, bounds=BOUNDS))
    largest = 0.0
    for row, label in itertools.product(itertools.product((-1.0, 1.0), repeat=6), (-1.0, 1.0)):
        other, again = X.copy(), y.copy()
        other[:3], again[:3] = row, label
        change = np.abs(asked.scores(np.zeros(6), dp.source(other, again, bounds=BOUNDS))[0] - scores).max()
        assert change <= 1 + 1e-12
        largest = max(largest, change)
    assert largest > 0.4


def test_scores_are_norms_of_exact_sums_over_the_change_of_one_record():
    asked, (X, y) = mechanism(50), records(50)
    sums = [0] * 6
    for row, label in zip(X, y, strict=True):
        for j, cell in enumerate(row):
            sums[j] += -int(label) * 2**19 * int(2**14 * cell)  # slope -y/2 of the logistic loss at 0
    scores, _ = asked.scores(np.zeros(6), dp.source(X, y, bounds=BOUNDS))
    for score, group in zip(scores, GROUPS, strict=True):
        norm = math.sqrt(sum(sums[j] ** 2 for j in group))
        step = 2 * 2**19 * 2**14 * math.sqrt(len(group))  # R at theta = 0 is 1/2
        assert score == pytest.approx(norm / step, rel=1e-9)


def test_the_sensitivity_is_that_of_the_formula():
    """2 R B sqrt(s)/n for the largest group; R is the slope at the largest score, 2 sqrt(3), of the ball."""
    slope = 1 / (1 + math.exp(-2 * math.sqrt(3)))
    one = slope * math.sqrt(3) / 1000
    assert mechanism(1000).sensitivity == pytest.approx(2 * one, rel=1e-5)
    assert mechanism(1000, "add_remove").sensitivity == pytest.approx(one, rel=1e-5)
    assert mechanism(1000, eta=0.25).noise == pytest.approx(2 * 2 * one / 0.25, rel=1e-5)


def law(asked, X, y):
    """Probability of every sequence of two draws, by hand."""
    scores, _ = asked.scores(np.zeros(6), dp.source(X, y, bounds=BOUNDS))
    weights = np.exp(scores * asked.eta / 2)
    return {
        (i, j): weights[i] / weights.sum() * weights[j] / (weights.sum() - weights[i])
        for i, j in itertools.permutations(range(3), 2)
    }


def test_draws_have_the_law_of_one_exponential_mechanism_after_another():
    asked, (X, y) = mechanism(40, eta=3.0), records(40)
    source, rng = dp.source(X, y, bounds=BOUNDS), SeededGenerator(0)
    (slopes,), drawn = asked.start(source), []
    for _ in range(3000):
        first = asked(slopes, np.zeros(6), (), source, rng)
        drawn.append((first, asked(slopes, np.zeros(6), (first,), source, rng)))
    probabilities = law(asked, X, y)
    assert max(probabilities.values()) > 2 * min(probabilities.values())  # scores matter
    for pair, probability in probabilities.items():
        error = math.sqrt(probability * (1 - probability) / len(drawn))
        assert abs(drawn.count(pair) / len(drawn) - probability) < 4.5 * error + 1e-3
    assert asked.event == Exponential(3.0)


def test_the_range_of_log_ratios_of_neighbours_is_that_of_the_event():
    asked, widest = mechanism(6, eta=0.8), 0.0
    for seed in range(40):
        X, y = records(6, seed)
        other, again = X.copy(), y.copy()
        other[0], again[0] = np.sign(records(1, seed + 500)[0][0] - 0.1), -y[0]
        first, second = law(asked, X, y), law(asked, other, again)
        ratios = [math.log(first[pair] / second[pair]) for pair in first]
        widest = max(widest, max(ratios) - min(ratios))
    assert 0.2 < widest <= 2 * asked.eta * (1 + 1e-9)


def test_rounding_of_scores_is_paid_out_of_eta():
    # A norm of three squares adds three eighths to the eight roundings of other scores.
    for n in (100, 10**9, 10**13):
        assert 0 < 0.5 - mechanism(n)._temperature == pytest.approx(4 * 2.0**-50 * 0.5 * n * 11 / 8, rel=1e-3)
    with pytest.raises(Incompatible, match="rounding"):
        mechanism(2**49)


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Huber(0.5)])
def test_a_whole_fit_agrees_on_neighbours(loss):
    problem = dp.Problem(loss, BALL, bounds=BOUNDS, d=6)
    plan = NoisyGroupSelection(6, 2, kept=(5,)).plan(problem, 40, BUDGET, Tight())
    assert plan.price.epsilon <= 4.0
    assert plan.stages[0].mechanism.groups == ((0,), (1, 2), (3, 4))  # 5 is kept, never drawn
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.choice([-1e9, -1.0, -0.3, 0.0, 1e-9, 0.4, 1.0, np.inf, np.nan], (40, 6))
        y = rng.choice([-1.0, 1.0], 40)
        other, again = X.copy(), y.copy()
        other[seed], again[seed] = rng.choice([-1.0, 1.0], 6), -y[seed]
        first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(seed))
        second = replay(plan, dp.source(other, again, bounds=BOUNDS), SeededGenerator(seed + 1), first)
        assert not discrepancies(plan, first, second)


def test_draws_have_three_tenths_of_the_budget():
    """A draw of the bounded range eta counts as mu = eta/2 (PRIVACY_MATH §2.1)."""
    problem = dp.Problem(dp.Huber(0.5), BALL, bounds=BOUNDS, d=6)
    select, refit = NoisyGroupSelection(8, 3).plan(problem, 4000, BUDGET, Tight()).stages
    drawn = select.n_calls * (select.mechanism.eta / 2) ** 2
    steps = refit.n_calls / refit.mechanism.noise_multiplier**2
    assert drawn / (drawn + steps) == pytest.approx(0.3, rel=1e-6)
    paid = spendable(BUDGET)
    assert drawn + steps == pytest.approx(gaussian_mu(paid.epsilon, paid.delta) ** 2, rel=0.1)


def design(n=8000, groups=20, size=8):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, groups * size))
    theta = np.zeros((groups, size))
    theta[[3, 11]] = rng.normal(size=(2, size))
    signal = X @ theta.ravel()
    y = signal / signal.std() + rng.normal(size=n) * 0.7
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :], [i // size for i in range(groups * size)]


def test_two_useful_groups_of_twenty_are_found_and_the_fit_is_better_than_one_of_all():
    X, y, new, truth, labels = design()
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-4, 4), "groups": labels}
    errors = {}
    for solver in ("auto", "gradient_descent", "mirror_descent"):
        model = dp.PrivateGroupLasso(**settings, solver=solver, random_state=0).fit(X, y)
        errors[solver] = float(np.mean((model.predict(new) - truth) ** 2) / np.var(truth))
        if solver == "auto":
            assert "NoisyGroupSelection) (chosen)" in str(model.plan_)
            used = {labels[j] for j in np.flatnonzero(model.coef_)}
            assert {3, 11} <= used
            assert len(used) < 20
    assert errors["auto"] < 0.45
    assert errors["auto"] < min(errors["gradient_descent"], errors["mirror_descent"]) - 0.02


def test_groups_are_selected_only_if_somebody_names_groups():
    X, y, *_ = design()
    settings = {"epsilon": 4.0, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-4, 4)}
    model = dp.PrivateGroupLasso(**settings, random_state=0).fit(X, y)
    assert "NoisyGroupSelection" not in str(model.plan_)


def test_the_refit_of_exact_answers_reaches_the_optimum_of_the_selected_groups():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (4000, 6))
    y = 0.4 * X[:, 3] - 0.2 * X[:, 4] + 0.1 * rng.uniform(-1, 1, 4000)
    problem = dp.Problem(dp.Squared(), BALL, bounds=BOUNDS, d=6)
    plan = NoisyGroupSelection(2001, 1).plan(problem, 10**6, dp.Budget(10.0, 1e-3), Tight())

    class Exact(Asking):
        def ask(self, *public, question=None):
            if question == "group":
                return 2
            theta, support = public
            return (X.T @ (X @ theta - y) / len(y))[support]

    theta = plan.solver.run(plan, Exact())
    best = np.linalg.lstsq(X[:, 3:], y, rcond=None)[0]
    assert np.allclose(theta[:3], 0)
    assert np.allclose(theta[3:], best, atol=1e-3)


def test_what_cannot_be_planned_is_refused():
    problem = dp.Problem(dp.Huber(0.5), BALL, bounds=BOUNDS, d=6)
    for wrong, message in (
        ({"selections": 4}, "more than the 3 groups"),
        ({"n_iter": 2, "selections": 2}, "leaves no step"),
        ({"kept": tuple(range(6))}, "a group beside the features that it keeps"),
    ):
        with pytest.raises(Incompatible, match=message):
            NoisyGroupSelection(**wrong).plan(problem, 100, BUDGET, Tight())
    corner = dp.Problem(dp.Quantile(0.5), BALL, bounds=BOUNDS, d=6)
    with pytest.raises(Incompatible, match="smooth"):
        NoisyGroupSelection().plan(corner, 100, BUDGET, Tight())
    entries = dp.Problem(dp.Softmax(), dp.GroupBall(2, 2.0), bounds=BOUNDS, d=6, outputs=3)
    with pytest.raises(Incompatible, match="groups of features"):
        NoisyGroupSelection().plan(entries, 100, BUDGET, Tight())
    for groups in ((), ((0,), ()), ((0, 6),), ((-1,),), ((0, 0), (1,))):
        with pytest.raises(ValueError, match="Groups must hold places of 6 features"):
            NoisyGroup(problem, 100, 0.1, groups)
    for kept in ((6,), (-1,), (0, 0)):
        with pytest.raises(ValueError, match="kept must hold different places of 6 features"):
            NoisyGroupSelection(kept=kept).plan(problem, 100, BUDGET, Tight())


def test_groups_are_listed_a_few_times_for_a_plan():
    """Groups are not listed again for each number of draws: before, plans of many groups took minutes."""
    problem = dp.Problem(dp.Huber(0.5), dp.GroupBall(2, 2.0), bounds=BOUNDS, d=400)
    listed = []

    class Solver(NoisyGroupSelection):
        def _groups(self, problem):
            listed.append(problem)
            return super()._groups(problem)

    Solver().plan(problem, 20_000, BUDGET, Tight())
    assert len(listed) < 10


def test_supports_are_as_large_as_the_largest_groups():
    problem = dp.Problem(dp.Huber(0.5), BALL, bounds=BOUNDS, d=6)
    plan = NoisyGroupSelection(8, 2, kept=(0,)).plan(problem, 4000, BUDGET, Tight())
    refit = plan.stages[1].mechanism
    assert isinstance(refit, NoisyGradient)
    assert refit.support == 6  # two groups of at most 5 features, and the one that is kept
