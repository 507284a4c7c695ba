"""The planner: every set gets a plan, by rules that measured risks support."""

import math
import warnings

import numpy as np
import pytest

import dpcvx
from dpcvx import Budget, GroupBall, L1Ball, L2Ball, NuclearBall, Problem, Squared
from dpcvx.accounting import Tight
from dpcvx.noise import SeededGenerator
from dpcvx.planning.outlook import is_useful
from dpcvx.planning.planner import automatic, plan, residual_clip
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
)
from zoo import ALL_DOMAINS

BUDGET = Budget(1.0, 1e-6)


def problem_over(C, d, outputs=1, **settings):
    return Problem(Squared(), C, bounds=dpcvx.Bounds(1.0), d=d, outputs=outputs, **settings)


BALLS = [(C, d) for C, d in ALL_DOMAINS if isinstance(C, L1Ball | L2Ball | NuclearBall)]
OTHERS = [pytest.param(*case, marks=pytest.mark.long) for case in ALL_DOMAINS if case not in BALLS]


@pytest.mark.parametrize(("C", "d"), BALLS + OTHERS, ids=lambda part: type(part).__name__)
def test_every_set_gets_a_plan(C, d):
    rows, *outputs = (d,) if isinstance(d, int) else d
    problem = problem_over(C, rows, *outputs)
    chosen = plan(problem, 10_000, BUDGET)
    weighed = {type(candidate.solver) for candidate in chosen.candidates if candidate.weighed}
    assert type(chosen.solver) in weighed <= set(automatic(problem))
    assert all(math.isfinite(candidate.predicted) for candidate in chosen.candidates if candidate.weighed)


class Corners:
    """A set that can do nothing but minimise linear functions: the corners of a cube and their hull."""

    def contains(self, theta, tol=1e-9):
        return float(abs(theta).max()) <= 1 + tol

    def start(self, d):
        return np.zeros(d)

    def norm(self, ord, d):
        return float(np.prod(d)) ** (1 / ord)

    def diameter(self, ord, d):
        return 2 * self.norm(ord, d)

    def gaussian_width(self, d):
        return float(np.prod(d))

    def minkowski(self, theta):
        return float(abs(theta).max())

    def lmo(self, g):
        return -np.sign(g)


def test_what_a_set_can_do_decides_which_solvers_are_weighed():
    always = {NoisyGradientDescent, NoisyMirrorDescent}
    groups = GroupBall([5] * 40, 3.0)
    assert set(automatic(problem_over(L2Ball(3.0), 200))) == {NoisyGradientDescent}
    assert set(automatic(problem_over(L1Ball(3.0), 200))) == always | {NoisyCorrectiveFrankWolfe}
    assert set(automatic(problem_over(groups, 200))) == always | {NoisyAcceleratedMirrorDescent}
    assert set(automatic(problem_over(NuclearBall(3.0), 51, 20))) == always  # its own map gains too little
    assert NoisyAcceleratedMirrorDescent in automatic(problem_over(NuclearBall(3.0), 200, 200))
    hull = dpcvx.VertexHull(np.vstack([np.eye(3), -np.ones((1, 3))]))
    assert set(automatic(problem_over(hull, 3))) == always | {NoisyFrankWolfe}
    assert NoisyGeneralFrankWolfe in automatic(problem_over(Corners(), 3))
    assert type(plan(problem_over(Corners(), 3), 1000, BUDGET).solver) is NoisyGeneralFrankWolfe


@pytest.mark.parametrize("outputs", [1, 4, 9])
def test_residuals_of_several_targets_are_clipped_at_the_constant_models_largest(outputs):
    problem = problem_over(NuclearBall(5.0), 3, outputs)
    assert residual_clip(problem) == pytest.approx(math.sqrt(outputs))
    assert problem.slope(2, clip=residual_clip(problem)) == pytest.approx(math.sqrt(outputs))


def test_descent_prices_the_noise_of_every_target():
    solver = NoisyGradientDescent(n_iter=20, step=0.01, clip=1.0)
    one, four = (solver.predict(problem_over(L2Ball(5.0), 3, k), 10_000, BUDGET)[1] for k in (1, 4))
    assert four == pytest.approx(4 * one)


def excess(problem, rows, y, chosen, seed):
    """Excess risk of a released point, over the optimum found by projected gradient descent."""
    gram, cross = rows.T @ rows / len(rows), rows.T @ y / len(rows)

    def risk(theta):
        return 0.5 * float((theta * (gram @ theta)).sum() - 2 * (cross * theta).sum())

    step, best = 1 / np.linalg.eigvalsh(gram)[-1], np.zeros(problem.shape)
    for _ in range(500):
        best = problem.domain.project(best - step * (gram @ best - cross))
    source = dpcvx.source(rows, y, bounds=problem.bounds)
    return risk(dpcvx.execute(chosen, source, rng=SeededGenerator(seed)).theta) - risk(best)


@pytest.mark.slow
def test_the_choice_for_groups_is_near_the_best():
    """20,000 people, 200 features in 40 groups, three of which matter: the figures of `how_to_choose`."""
    problem = problem_over(GroupBall([5] * 40 + [1], 3.0), 201)
    chosen = plan(problem, 20_000, BUDGET)
    others = [
        plan(problem, 20_000, BUDGET, (kind(clip=1.0),))
        for kind in (NoisyGradientDescent, NoisyMirrorDescent, NoisyGeneralFrankWolfe)
    ]
    rng = np.random.default_rng(0)
    risks = []
    for seed in range(3):
        rows = np.column_stack([rng.uniform(-1, 1, (20_000, 200)), np.ones(20_000)])
        theta = np.zeros(201)
        for group in rng.choice(40, 3, replace=False):
            theta[5 * group : 5 * group + 5] = rng.normal(size=5) / 3
        y = np.clip(rows @ theta + 0.2 * rng.normal(size=len(rows)), -1, 1)
        risks.append([excess(problem, rows, y, each, seed) for each in (chosen, *others)])
    mean = np.mean(risks, axis=0)
    assert mean[0] < 1.3 * mean[1:].min()
    assert mean[0] < 0.5 * mean[1]  # the potential of groups against the Euclidean one


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_where_nothing_is_promised_a_solver_is_chosen_that_can_return_zeros(epsilon):
    problem = dpcvx.Problem(dpcvx.Squared(), dpcvx.L1Ball(1.0), bounds=dpcvx.Bounds(1.0), d=1000)
    budget = dpcvx.Budget(epsilon, 1e-7)
    chosen = dpcvx.plan(problem, 3000, budget)
    assert not is_useful(chosen)
    assert isinstance(chosen.solver, NoisyCorrectiveFrankWolfe)
    assert chosen.chosen is chosen.candidates[0]
    assert "returns zero coefficients, and says so" in " ".join(str(chosen).split())
    descent = next(each for each in chosen.candidates if isinstance(each.solver, NoisyGradientDescent))
    assert descent.handicap * descent.predicted < chosen.chosen.handicap * chosen.chosen.predicted
    # Few features are not selected from, and a plan that promises something is chosen by its prediction.
    few = dpcvx.Problem(dpcvx.Squared(), dpcvx.L1Ball(1.0), bounds=dpcvx.Bounds(1.0), d=5)
    assert isinstance(dpcvx.plan(few, 300, budget).solver, NoisyGradientDescent)


def test_perturbation_that_could_take_very_long_is_left_to_descent():
    """Its worst number of passes follows from public numbers; alone it is planned whatever it takes."""
    from dpcvx.solvers import NoisyGradientDescent, ObjectivePerturbation

    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(30.0), bounds=dpcvx.Bounds(1.0), d=20)
    candidates = (NoisyGradientDescent(), ObjectivePerturbation())
    budget = dpcvx.Budget(4.0, 1e-10)
    few, many = (dpcvx.plan(problem, n, budget, candidates).solver for n in (20_000, 5_000_000))
    assert isinstance(few, ObjectivePerturbation)
    assert isinstance(many, NoisyGradientDescent)
    alone = dpcvx.plan(problem, 5_000_000, budget, candidates[1:])
    assert isinstance(alone.solver, ObjectivePerturbation)
    assert alone.gradient_evaluations * problem.size > 1e11


def test_a_loss_that_is_not_convex_keeps_the_way_of_the_bound():
    """Its mean curvature is 0 up to rounding, which would decide."""
    from dpcvx.solvers import NoisyGradientDescent

    problem = dpcvx.Problem(dpcvx.Sigmoid(), dpcvx.L2Ball(10.0), bounds=dpcvx.Bounds(1.0, 1.0), d=1)
    chosen = NoisyGradientDescent().plan(problem, 10**6, dpcvx.Budget(30.0, 1e-12), Tight())
    assert chosen.n_calls < 3000
    assert min(NoisyGradientDescent().predict(problem, 10**6, dpcvx.Budget(30.0, 1e-12))) >= 0


def test_default_steps_are_not_without_end():
    from dpcvx.solvers import NoisyGradientDescent

    problem = dpcvx.Problem(dpcvx.SmoothHinge(), dpcvx.L2Ball(30.0), bounds=dpcvx.Bounds(1.0, 1.0), d=1000)
    chosen = NoisyGradientDescent().plan(problem, 10**7, dpcvx.Budget(8.0, 1e-14), Tight())
    assert 9000 < chosen.n_calls < 10_300


def test_a_candidate_that_cannot_be_paid_for_leaves_the_others():
    """Most of the budget for the Hessian: what one solver cannot do with the rest another can."""
    model = dpcvx.PrivateLinearRegression(
        epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1), uncertainty=0.7, standardize=True, random_state=0
    )
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.fit(X, X[:, 0]).coef_).all()


def test_a_schedule_is_derived_once_from_its_facts(monkeypatch):
    derived = []
    travel = NoisyGradientDescent._travel

    def counted(self, problem, n, budget):
        derived.append((self, problem, n, budget))
        return travel(self, problem, n, budget)

    monkeypatch.setattr(NoisyGradientDescent, "_travel", counted)
    problem = Problem(dpcvx.Logistic(), L2Ball(7.25), bounds=dpcvx.Bounds(1.0, 1.0), d=9)
    plan(problem, 4321, Budget(1.25, 1e-7))
    assert derived
    assert len(derived) == len(set(derived))
