"""Without noise every solver reaches, on every kind of set and regularizer, the optimum that cvxpy finds."""

import itertools
import math
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx.noise.gaussian
import dpcvx.solvers
import zoo
from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import source
from dpcvx.domains import (
    Box,
    GroupBall,
    InterpolationBall,
    L1Ball,
    L2Ball,
    LinfBall,
    NuclearBall,
    Simplex,
    SubmodularBall,
    SubmodularPolyhedron,
    Transformed,
    VertexHull,
)
from dpcvx.domains.regularizers import L1, ElasticNet, GroupL2, Ridge, SubmodularNorm
from dpcvx.domains.set_functions import FromCallable
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import (
    ConstantModel,
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyDualFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyGroupSelection,
    NoisyMirrorDescent,
    NoisyStronglyConvexMirrorDescent,
    NoisySVRG,
    NoisySVRGPlusPlus,
    ObjectivePerturbation,
    OneStep,
    OutputPerturbation,
    ScaledTarget,
    SpectralShrinkage,
    Standardised,
    SufficientStatistics,
    run_with_oracle,
)
from exact import ExactOracle, LimitAccountant

N, RIDGE = 60, 0.3
BUDGET = Budget(1.0, 1e-6)
CLOSE = 1e-6  # of the fast schedules


def named(cases):
    """Ids of (thing, shape), numbered, as objects print their addresses."""
    return [f"{i}-{type(thing).__name__}-{shape}" for i, (thing, shape) in enumerate(cases)]


over_domains = pytest.mark.parametrize("case", range(len(zoo.ALL_DOMAINS)), ids=named(zoo.ALL_DOMAINS))
over_regularizers = pytest.mark.parametrize(
    "case", range(len(zoo.ALL_REGULARIZERS)), ids=named(zoo.ALL_REGULARIZERS)
)


def fitting(solver):
    """Cases of the zoo whose sets have what the solver requires, as a parametrisation."""
    cases = [
        i
        for i, (C, _) in enumerate(zoo.ALL_DOMAINS)
        if all(isinstance(C, ability) for ability in solver.requires)
    ]
    ids = named(zoo.ALL_DOMAINS)
    return pytest.mark.parametrize("case", cases, ids=[ids[i] for i in cases])


def sizes(shape):
    """(d, outputs) of a parameter."""
    match shape:
        case int() | (int(),):
            return int(np.prod(shape)), 1
    return shape


@cache
def records(problem):
    """Rows as they are stored, and targets that a linear map explains in part."""
    d, outputs = problem.d, problem.outputs
    rng = np.random.default_rng(d + 10 * outputs)
    X = np.trunc(rng.uniform(-1, 1, (N, d)) * 2**14) / 2**14
    y = np.clip(X @ rng.normal(size=(d, outputs)) + 0.2 * rng.normal(size=(N, outputs)), -1, 1)
    return X, y if outputs > 1 else y[:, 0]


@cache
def problem_on(case, l2=RIDGE):
    domain, shape = zoo.ALL_DOMAINS[case]
    d, outputs = sizes(shape)
    return Problem(Squared(), domain, bounds=Bounds(1.0), d=d, outputs=outputs, l2=l2)


@cache
def problem_with(case, domain=None):
    """With a regularizer; slopes that are bounded everywhere let theta be free."""
    regularizer, shape = zoo.ALL_REGULARIZERS[case]
    weights = {
        name: getattr(regularizer, name) for name in ("weight", "l1", "l2") if hasattr(regularizer, name)
    }
    # A twentieth of the zoo's, which would leave nothing of theta here.
    regularizer = replace(regularizer, **{name: weight / 20 for name, weight in weights.items()})
    d, outputs = sizes(shape)
    return Problem(
        Huber(0.4), domain, bounds=Bounds(1.0), d=d, outputs=outputs, l2=RIDGE, regularizer=regularizer
    )


def risk(problem, theta):
    X, y = records(problem)
    value = problem.loss.value(X @ theta, y).sum() / N + problem.l2 / 2 * (theta**2).sum()
    return value + (problem.regularizer.value(theta) if problem.regularizer is not None else 0.0)


def extension(F, theta):
    """(Omega(theta), constraints): the least cost of sets that cover the magnitudes, dual to greedy."""
    sets = [list(A) for k in range(theta.size) for A in itertools.combinations(range(theta.size), k + 1)]
    weights = cp.Variable(len(sets), nonneg=True)
    covers = np.array([[j in A for A in sets] for j in range(theta.size)], dtype=float)
    return np.array([F(A) for A in sets]) @ weights, [covers @ weights >= cp.abs(theta)]


def group_indices(groups, shape):
    """The entries of every group, from the three ways to give them."""
    d, outputs = sizes(shape)
    if isinstance(groups, int):
        return [list(range(i, min(i + groups, d * outputs))) for i in range(0, d * outputs, groups)]
    return [[row * outputs + k for row in rows for k in range(outputs)] for rows in groups]


def constraints(C, theta, shape):
    """The set, for a flat theta, in the words of cvxpy."""
    size = math.prod(sizes(shape))
    match C:
        case L2Ball():
            return [cp.norm(theta, 2) <= C.radius]
        case L1Ball():
            return [cp.norm(theta, 1) <= C.radius]
        case LinfBall():
            return [cp.norm(theta, "inf") <= C.radius]
        case Box():
            return [theta >= C.low, theta <= C.high]
        case Simplex():
            return [theta >= 0, cp.sum(theta) == C.radius]
        case VertexHull():
            weights = cp.Variable(len(C.vertices), nonneg=True)
            return [cp.sum(weights) == 1, theta == C.vertices.T @ weights]
        case GroupBall():
            return [cp.sum([cp.norm(theta[g], 2) for g in group_indices(C.groups, shape)]) <= C.radius]
        case InterpolationBall():
            return [(1 - C.alpha) * cp.norm(theta, 1) + C.alpha * cp.norm(theta, 2) <= C.radius]
        case NuclearBall():
            return [cp.norm(cp.reshape(theta, sizes(shape), order="C"), "nuc") <= C.radius]
        case SubmodularBall():
            omega, covered = extension(C.function, theta)
            return [omega <= C.radius, *covered]
        case SubmodularPolyhedron():
            sets = [list(A) for k in range(1, size + 1) for A in itertools.combinations(range(size), k)]
            return [cp.norm(theta[A], 1) <= C.radius * C.function(A) for A in sets]
        case Transformed():
            inner = cp.Variable(size)
            return [theta == C.scale * inner + np.array(C.shift), *constraints(C.domain, inner, shape)]
    raise NotImplementedError(type(C).__name__)


def penalty(r, theta):
    """(r(theta), constraints) in the words of cvxpy."""
    match r:
        case L1():
            return r.weight * cp.norm(theta, 1), []
        case Ridge():
            return r.weight / 2 * cp.sum_squares(theta), []
        case ElasticNet():
            return r.l1 * cp.norm(theta, 1) + r.l2 / 2 * cp.sum_squares(theta), []
        case GroupL2():
            return r.weight * cp.sum([cp.norm(theta[list(g)], 2) for g in r.groups]), []
        case SubmodularNorm():
            omega, covered = extension(r.function, theta)
            return r.weight * omega, covered
    raise NotImplementedError(type(r).__name__)


@cache
def optimum(problem):
    """(value, point) by an interior-point method."""
    X, y = records(problem)
    theta = cp.Variable(problem.size)
    gaps = X @ cp.reshape(theta, (problem.d, problem.outputs), order="C") - y.reshape(N, -1)
    if isinstance(problem.loss, Huber):
        losses = cp.sum(cp.huber(gaps, problem.loss.threshold)) / 2
    else:
        losses = cp.sum_squares(gaps) / 2
    objective, inside = losses / N + problem.l2 / 2 * cp.sum_squares(theta), []
    if problem.regularizer is not None:
        value, inside = penalty(problem.regularizer, theta)
        objective += value
    if problem.domain is not None:
        inside = [*inside, *constraints(problem.domain, theta, problem.shape)]
    cp.Problem(cp.Minimize(objective), inside).solve(solver=cp.CLARABEL)  # gaps and residuals of 1e-8
    point = theta.value.reshape(problem.shape)
    return risk(problem, point), point


class Exact(ExactOracle):
    """Exact gradients of the mean over records of the sum over outputs."""

    def __init__(self, problem, plan=None):
        if plan is not None:
            super().__init__(plan, *records(problem))
        self._problem = problem

    def gradient(self, theta, support=None):
        X, y = records(self._problem)
        gradient = X.T @ self._problem.loss.grad(X @ theta, y) / N + self._problem.l2 * theta
        return gradient if support is None else gradient[support]


def excess(problem, theta):
    """Above the optimum; no point of the set may be below it by more than cvxpy's own error."""
    value, _ = optimum(problem)
    if problem.domain is not None:
        assert problem.domain.contains(theta, 1e-7)
    assert theta.shape == problem.shape
    above = risk(problem, theta) - value
    assert above > -1e-7
    return above


def loop(solver, problem, n_iter):
    """Excess of a solver's loop on exact gradients."""
    return excess(problem, run_with_oracle(solver, problem, Exact(problem), n_iter=n_iter))


def planned(solver, problem, accountant, *, n=N, budget=BUDGET):
    """Excess of a planned run whose questions are answered exactly."""
    plan = solver.plan(problem, n, budget, accountant)
    return excess(problem, plan.solver.run(plan, Exact(problem, plan)))


@pytest.fixture
def quiet(monkeypatch):
    """The private path with its noise taken out."""
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


def released(solver, problem):
    """Excess of what the gate releases, from the stored rows."""
    X, y = records(problem)
    plan = solver.plan(problem, N, BUDGET, Tight())
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    return excess(problem, theta)


def first_excess(problem):
    return excess(problem, problem.C.start(problem.shape))


@pytest.mark.long
def test_some_optima_are_inside_their_sets_and_some_on_the_boundary():
    depths = [problem_on(i).C.minkowski(optimum(problem_on(i))[1]) for i in range(len(zoo.AROUND_ZERO))]
    assert sum(depth < 0.9 for depth in depths) > 5
    assert sum(depth > 0.999 for depth in depths) > 5
    assert all(first_excess(problem_on(i)) > 1e-3 for i in range(len(zoo.ALL_DOMAINS)))
    penalised = [problem_with(i) for i in range(len(zoo.ALL_REGULARIZERS))]
    gains = [excess(problem, np.zeros(problem.shape)) for problem in penalised]
    assert sum(gain > 1e-3 for gain in gains) >= len(gains) - 1  # one is so strong that 0 is best


@fitting(NoisyGradientDescent())
def test_gradient_descent(case):
    assert loop(NoisyGradientDescent(momentum=0.8), problem_on(case), 400) <= CLOSE


@fitting(NoisyAcceleratedMirrorDescent())
def test_accelerated_mirror_descent(case):
    """[WYX17] Theorem 5.4 without noise, in the geometry of every set, without a ridge."""
    problem, T = problem_on(case, 0.0), 200
    psi = problem.C.mirror_map(problem.shape)
    D = psi.divergence_bound(problem.shape) / psi.strong_convexity
    assert (
        loop(NoisyAcceleratedMirrorDescent(), problem, T) <= 8 * problem.smoothness_in(psi) * D / (T + 1) ** 2
    )


FAMILIES = {
    type(C).__name__: i
    for i, (C, shape) in enumerate(zoo.ALL_DOMAINS)
    if not isinstance(C, VertexHull | Transformed)
}


@pytest.mark.parametrize("case", FAMILIES.values(), ids=FAMILIES)
def test_accelerated_mirror_descent_is_fast(case):
    assert loop(NoisyAcceleratedMirrorDescent(), problem_on(case, 0.0), 2000) <= CLOSE


@fitting(NoisySVRG())
def test_variance_reduced_descent(case):
    solver = NoisySVRG(n_epochs=6, n_steps=50, batch=30, share=0.5)
    assert planned(solver, problem_on(case), LimitAccountant()) <= CLOSE


@fitting(NoisySVRGPlusPlus())
def test_variance_reduced_descent_with_doubling_epochs(case):
    solver = NoisySVRGPlusPlus(n_epochs=5, n_steps=5, batch=30, share=0.5)
    assert planned(solver, problem_on(case), LimitAccountant()) <= CLOSE


@over_regularizers
@pytest.mark.parametrize("domain", [None, L2Ball(0.4)], ids=["free", "ball"])
@pytest.mark.parametrize(
    "solver",
    [
        NoisySVRG(n_epochs=6, n_steps=50, batch=30, share=0.5),
        NoisySVRGPlusPlus(n_epochs=5, n_steps=5, batch=30, share=0.5),
    ],
    ids=lambda solver: type(solver).__name__,
)
@pytest.mark.long
def test_variance_reduced_descent_with_a_regularizer(case, domain, solver):
    assert planned(solver, problem_with(case, domain), LimitAccountant()) <= CLOSE


@over_domains
def test_output_perturbation(case, quiet):
    """Its minimiser stops at a public share of the largest slope, so large sets count by their size."""
    problem = problem_on(case)
    assert released(OutputPerturbation(RIDGE), problem) <= CLOSE * max(1.0, first_excess(problem))


SCALAR = [i for i, (_, shape) in enumerate(zoo.ALL_DOMAINS) if isinstance(shape, int)]


@pytest.mark.parametrize("case", SCALAR, ids=[named(zoo.ALL_DOMAINS)[i] for i in SCALAR])
def test_objective_perturbation(case, quiet):
    """One score per record; the share is such that the problem's own ridge is enough."""
    assert released(ObjectivePerturbation(0.5), problem_on(case)) <= CLOSE


def supplied(r):
    """Whether a set function of the user's own is in it, which no minimiser beside records may trust."""
    F = getattr(r, "function", None)
    return any(isinstance(part, FromCallable) for part in (F, *getattr(F, "parts", ())))


TRUSTED = [i for i, (r, _) in enumerate(zoo.ALL_REGULARIZERS) if not supplied(r)]


@pytest.mark.parametrize("case", TRUSTED, ids=[named(zoo.ALL_REGULARIZERS)[i] for i in TRUSTED])
def test_output_perturbation_with_a_regularizer(case, quiet):
    assert released(OutputPerturbation(RIDGE), problem_with(case)) <= CLOSE


PENALTIES = [i for i in TRUSTED if isinstance(zoo.ALL_REGULARIZERS[i][1], int)]


@pytest.mark.parametrize("case", PENALTIES, ids=[named(zoo.ALL_REGULARIZERS)[i] for i in PENALTIES])
def test_objective_perturbation_with_a_regularizer(case, quiet):
    assert released(ObjectivePerturbation(0.5), problem_with(case)) <= CLOSE


@fitting(NoisyMirrorDescent())
def test_mirror_descent_is_within_its_bound(case):
    """[TTZ14] Theorem 3.2 without noise, in the geometry of every set."""
    problem, T = problem_on(case, 0.0), 200
    psi = problem.C.mirror_map(problem.shape)
    D = psi.divergence_bound(problem.shape) / psi.strong_convexity
    above = loop(NoisyMirrorDescent(), problem, T)
    assert above <= problem.lipschitz_in(psi) * math.sqrt(2 * D / (T + 1))
    assert above < 0.95 * first_excess(problem)


@fitting(NoisyStronglyConvexMirrorDescent())
def test_strongly_convex_mirror_descent_is_within_its_bound(case):
    """[TTZ14] Theorem A.1 without noise; with a smooth loss it is far better."""
    problem, T = problem_on(case), 200
    L = problem.lipschitz(2) + RIDGE * problem.C.norm(2, problem.size)
    above = loop(NoisyStronglyConvexMirrorDescent(), problem, T)
    assert above <= 2 * L**2 / (RIDGE * (T + 1))
    assert above < 1e-3 * first_excess(problem)


@fitting(NoisyGeneralFrankWolfe())
def test_general_frank_wolfe_is_within_its_bound(case):
    """[TTZ14] Theorem B.2 without noise."""
    problem, T = problem_on(case, 0.0), 200
    above = loop(NoisyGeneralFrankWolfe(), problem, T)
    assert above <= 2 * problem.curvature / (T + 2)
    assert above < 0.01 * first_excess(problem)


@fitting(NoisyFrankWolfe())
def test_frank_wolfe_is_within_its_bound(case):
    """[TTZ15] Theorem 2.5 without noise."""
    problem, T = problem_on(case, 0.0), 200
    above = planned(NoisyFrankWolfe(T), problem, Tight())
    assert above <= 2 * problem.curvature / (T + 2)
    assert above < 0.01 * first_excess(problem)


@fitting(NoisyCorrectiveFrankWolfe())
def test_corrective_frank_wolfe(case):
    """Planned for many records, so that without noise the refit's steps are as long as they may be."""
    solver, budget = NoisyCorrectiveFrankWolfe(1400, 400), Budget(10.0, 1e-3)
    assert planned(solver, problem_on(case, 0.0), Tight(), n=10**6, budget=budget) <= CLOSE


@fitting(NoisyGroupSelection())
def test_a_selection_of_all_groups(case):
    """Planned for many records too; a ball whose groups divide the scores of a feature is refused."""
    problem, budget = problem_on(case), Budget(10.0, 1e-3)
    labels = problem.C.labels(problem.shape).reshape(problem.d, -1)
    if (labels != labels[:, :1]).any():
        with pytest.raises(Incompatible, match="groups of features"):
            NoisyGroupSelection().plan(problem, 1000, budget, Tight())
        return
    k = len(np.unique(labels))
    assert planned(NoisyGroupSelection(k + 600, k), problem, Tight(), n=10**6, budget=budget) <= CLOSE


STRUCTURED = [i for i, (r, _) in enumerate(zoo.ALL_REGULARIZERS) if isinstance(r, SubmodularNorm)]


@pytest.mark.parametrize("case", STRUCTURED, ids=[named(zoo.ALL_REGULARIZERS)[i] for i in STRUCTURED])
def test_dual_frank_wolfe_is_within_its_bound(case, quiet):
    """[KD19] Algorithm 2: 8 R^2/(l2 (T + 1)), from minimisers that never see the norm."""
    problem = problem_with(case)
    r = problem.regularizer
    R = SubmodularPolyhedron(r.function, r.weight).norm(2, problem.shape)
    few, many = (released(NoisyDualFrankWolfe(T, shrink=0.0), problem) for T in (3, 30))
    assert many <= 8 * R**2 / (RIDGE * 31)
    assert many < 0.5 * few


def test_sufficient_statistics(quiet):
    """Where there is much to spend, the ridge that noise asks for is next to nothing."""
    rng = np.random.default_rng(0)
    problem = Problem(Squared(), L2Ball(20.0), bounds=Bounds(1.0), d=3)
    X = rng.uniform(-1, 1, (20_000, 3))
    y = np.clip(X @ [0.3, -0.4, 0.2] + rng.uniform(-0.1, 0.1, len(X)), -1, 1)
    plan = SufficientStatistics().plan(problem, len(X), Budget(50.0, 1e-6), Tight())
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-3)


def test_a_step_to_an_estimate_leaves_the_fit_as_it_is(quiet):
    (case,) = (i for i in SCALAR if type(zoo.ALL_DOMAINS[i][0]) is L2Ball)
    assert released(OneStep(ObjectivePerturbation(0.5), 0.2), problem_on(case)) <= CLOSE


def test_standardised_descent(quiet):
    """Rows of one length lose nothing on the way to new coordinates and back."""
    X = np.tile(list(itertools.product([-0.9, 0.9], [-0.1, 0.1], [-0.3, 0.3])), (30, 1))
    y = np.where(np.random.default_rng(0).random(len(X)) < 1 / (1 + np.exp(-X @ [1.0, 8.0, -2.0])), 1.0, -1.0)
    problem = Problem(Logistic(), L2Ball(100.0), bounds=Bounds(1.0), d=3)
    solver = Standardised(NoisyGradientDescent(n_iter=3000, step=4.0), intercept=False)
    plan = solver.plan(problem, len(X), BUDGET, Tight())
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    at_best = cp.Variable(3)
    best = cp.Problem(cp.Minimize(cp.sum(cp.logistic(cp.multiply(-y, X @ at_best))) / len(X))).solve()
    assert np.mean(np.logaddexp(0, -y * (X @ theta))) <= best + 1e-5


def regression_far_from_zero():
    """Targets that fill a small part of their range; the last feature is the intercept's."""
    X = np.column_stack([*np.random.default_rng(0).uniform(-1, 1, (2, 500)), np.ones(500)])
    return X, 0.5 + 0.05 * X[:, 0] - 0.02 * X[:, 1] + 0.01 * np.random.default_rng(1).uniform(-1, 1, 500)


def test_descent_with_a_scaled_target(quiet):
    """Least squares come back from the target's own units, residuals being within the clip."""
    X, y = regression_far_from_zero()
    problem = Problem(Squared(), L2Ball(20.0), bounds=Bounds(1.0), d=3)
    solver = ScaledTarget(NoisyGradientDescent(n_iter=2000, step=0.5))
    plan = solver.plan(problem, len(X), BUDGET, Tight())
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-4)


def test_shrunk_singular_values():
    """Where there is much to spend, noise hides no combination of the features, and little is shrunk."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 3))
    Y = np.clip(X @ np.outer([0.3, -0.4, 0.2], [1.0, -0.5]) + rng.uniform(-0.1, 0.1, (20_000, 2)), -1, 1)
    problem = Problem(Squared(), NuclearBall(20.0), bounds=Bounds(1.0), d=3, outputs=2)
    solver = SpectralShrinkage(NoisyGradientDescent(n_iter=200, step=0.5, clip=2.0), intercept=False)
    plan = solver.plan(problem, len(X), Budget(50.0, 1e-6), Tight())
    theta = execute(plan, source(X, Y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, np.linalg.lstsq(X, Y, rcond=None)[0], atol=3e-3)


def test_a_constant_is_the_mean_of_the_target(quiet):
    X, y = regression_far_from_zero()
    problem = Problem(Squared(), L2Ball(20.0), bounds=Bounds(1.0), d=3)
    plan = ConstantModel().plan(problem, len(X), BUDGET, Tight())
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(theta, [0, 0, y.mean()], atol=1e-3)


def test_every_solver_is_here():
    """A solver that is new needs a test above."""
    solvers = {name for name in dpcvx.solvers.__all__ if hasattr(getattr(dpcvx.solvers, name), "plan")}
    assert solvers <= globals().keys()
