"""Private minimisers: exact output densities, brute-force neighbours, and nothing that depends on records."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

import dpcvx.mechanisms.minimiser
import dpcvx.noise.gaussian
from adversary import neighbour, records, stored
from dpcvx.accounting import RDP, Budget, Neighbours, Tight, objective_delta, objective_renyi
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.domains import Box, L1Ball, L2Ball
from dpcvx.domains.regularizers import L1
from dpcvx.errors import Incompatible
from dpcvx.estimators import PrivateLogisticRegression
from dpcvx.events import Compose, Gaussian, PerturbedObjective
from dpcvx.losses import Huber, Logistic, Quantile, SmoothHinge, Softmax, Squared
from dpcvx.mechanisms import NoisyMinimiser, PerturbedMinimiser
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent, ObjectivePerturbation, OutputPerturbation

D = 3
SMOOTH = [Logistic(), Huber(0.5), SmoothHinge(0.5), Squared()]
GRID = np.linspace(-60.0, 60.0, 240_001)


def output_law(loss, data, ridge, sigma):
    """Density over GRID of argmin sum phi(x theta, y) + ridge theta^2/2 + b theta, b ~ N(0, sigma^2)."""
    slope, bend, h = ridge * GRID, np.full(GRID.size, ridge), 1e-6
    for x, y in data:
        z, label = GRID * x, np.full(GRID.size, y)
        slope = slope + x * loss.grad(z, label)
        bend = bend + x * x * (loss.grad(z + h, label) - loss.grad(z - h, label)) / (2 * h)
    return stats.norm.pdf(slope, scale=sigma) * bend


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * (GRID[1] - GRID[0]))


def clipped(p, low, high):
    """Masses of the minimiser over [low, high]: the density inside, and an atom at either end."""
    step, (left, right) = GRID[1] - GRID[0], np.searchsorted(GRID, [low, high])
    return step * np.concatenate([[p[:left].sum()], p[left:right], [p[right:].sum()]])


def worst_ratios(relation, losses, bound):
    """True delta over its bound, for many pairs of neighbours in one dimension, free and over [-1, 1]."""
    rng = np.random.default_rng(0)
    for loss, (ridge, sigma), other in itertools.product(
        losses, [(0.5, 2.0), (3.0, 1.0), (20.0, 0.6)], (0, 4)
    ):
        beta, L = loss.smoothness(math.inf), loss.lipschitz(math.inf)
        common = [(rng.uniform(-1, 1), rng.choice([-1.0, 1.0])) for _ in range(other)]
        event = PerturbedObjective(L / sigma, math.log1p(beta / ridge), relation)
        least = event.jacobian + 2 * event.shift * math.sqrt(1 + event.shift**2)
        for first, second in [((1, 1.0), (1, -1.0)), ((1, 0.0), (0.5, 1.0)), ((-1, 1.0), (0.3, 1.0))]:
            one = [*common, first]
            two = common + ([second] if relation == "replace" else [])
            p, q = (output_law(loss, data, ridge, sigma) for data in (one, two))
            assert p.sum() * (GRID[1] - GRID[0]) == pytest.approx(1.0, abs=1e-3)
            for epsilon in least * np.array([1.01, 1.5]):
                allowed = bound(epsilon, event)
                if allowed < 1e-9:
                    continue
                for one_way, other_way in ((p, q), (q, p)):
                    yield hockey_stick(one_way, other_way, epsilon) / allowed
                    atoms = np.maximum(
                        clipped(one_way, -1, 1) - math.exp(epsilon) * clipped(other_way, -1, 1), 0.0
                    )
                    yield float(atoms.sum()) / allowed


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.long
def test_no_exact_density_breaks_the_profile(relation):
    """PRIVACY_MATH §4. The factor 2 under replace is probably not needed, so no pair comes near it."""
    losses = [Huber(1.0), Huber(0.05), Logistic()]
    ratios = list(worst_ratios(relation, losses, objective_delta))
    assert len(ratios) > 50
    assert 0.2 < max(ratios) <= 1 + 1e-6


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_densities_see_a_shift_that_is_too_small(relation):
    def with_half_the_shift(epsilon, event):
        return objective_delta(epsilon, dataclasses.replace(event, shift=event.shift / 2))

    assert max(worst_ratios(relation, [Huber(0.05)], with_half_the_shift)) > 1


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_exact_density_breaks_the_renyi_curve(relation):
    """The last case keeps slopes at opposite ends wherever its moments come from: it is near its bound."""
    orders, widest = np.array([1.5, 3.0, 8.0]), 0.0
    cases = list(itertools.product([Huber(1.0), Huber(0.05), Logistic()], [(3.0, 2.0), (0.5, 3.0)]))
    for loss, (ridge, sigma) in [*cases, (Huber(0.05), (20.0, 0.1))]:
        beta, L = loss.smoothness(math.inf), loss.lipschitz(math.inf)
        event = PerturbedObjective(L / sigma, math.log1p(beta / ridge), relation)
        other = [(1.0, -1.0)] if relation == "replace" else []
        p, q = (output_law(loss, data, ridge, sigma) for data in ([(1.0, 1.0)], other))
        kept = (p > 1e-200) & (q > 1e-200)
        for one, two in ((p[kept], q[kept]), (q[kept], p[kept])):
            for order, allowed in zip(orders, objective_renyi(orders, event), strict=True):
                moment = (np.exp(order * np.log(one) + (1 - order) * np.log(two))).sum() * (GRID[1] - GRID[0])
                divergence = math.log(moment) / (order - 1)
                assert divergence <= allowed
                widest = max(widest, divergence / allowed)
    assert widest > 0.6


def test_both_tails_are_reached_when_a_record_is_added():
    """A record with a steep slope, a large ridge: 2 delta_G(epsilon; a) is attained, so the 2 must stay."""
    sigma, ridge, loss = 1.0, 3.0, Huber(0.5)
    event = PerturbedObjective(0.5, math.log1p(1 / ridge), "add_remove")
    without, added = (output_law(loss, data, ridge, sigma) for data in ([], [(1.0, 0.0)]))
    epsilon = event.jacobian + 0.4
    assert 0.5 < hockey_stick(without, added, epsilon) / objective_delta(epsilon, event) <= 1


def problems():
    for loss, where in itertools.product(SMOOTH, ("l2", "box", "regularizer")):
        if where == "regularizer" and loss.name == "squared":
            continue
        domain = {"l2": L2Ball(2.0), "box": Box(-1.0, 1.5), "regularizer": None}[where]
        extra = {"regularizer": L1(0.05), "l2": 0.01} if domain is None else {}
        yield Problem(loss, domain, bounds=Bounds(1.0, 1.0), d=D, **extra)


def name(problem):
    return f"{problem.loss.name}-{problem.domain or problem.regularizer}"


@pytest.fixture
def silent(monkeypatch):
    """Noise of size zero; the first draw of a perturbed minimiser stays, so that b is the same twice."""
    draws = []

    def quiet(scale, size, rng):
        draws.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", quiet)
    return draws


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("problem", list(problems()), ids=name)
def test_a_minimiser_moves_by_at_most_its_sensitivity(problem, relation, silent):
    rng, n = np.random.default_rng(2), 12
    noisy = NoisyMinimiser(problem, n, 3.0, 0.5, Neighbours(relation))
    perturbed = PerturbedMinimiser(problem, n, 3.0, 0.5, 100.0, Neighbours(relation))
    allowed = 2 * perturbed.deviation / 0.5 + perturbed.sensitivity * n / 0.5
    widest = 0.0
    for trial in range(25):
        X, y = records(problem.loss, (n, D), 1, rng)
        if trial < 5:  # one record against the others, all at the same place
            X, y = np.tile(np.eye(D)[0], (n, 1)), np.full(n, 1.0)
            other = X.copy(), np.r_[-1.0, y[1:]]
            other = (X[1:], y[1:]) if relation == "add_remove" else other
        else:
            other = neighbour(X, y, problem.loss, 1, relation, rng)
        pair = [stored(*both, problem.bounds, ["dense", "csr"][trial % 2]) for both in ((X, y), other)]
        one, two = (noisy(data=data, rng=None) for data in pair)
        distance = np.linalg.norm(one - two)
        assert distance <= noisy.sensitivity + 1e-9 * noisy.noise
        widest = max(widest, distance / noisy.sensitivity)
        one, two = (perturbed(data, None) for data in pair)
        assert np.linalg.norm(one - two) <= allowed * (1 + 1e-9)
    assert len(set(silent)) <= 3  # public scales: one for each kind of noise
    assert widest > 0.01


def test_the_sensitivity_is_attained_by_records_with_constant_slopes(silent):
    """PRIVACY_MATH §5: linear losses and a ridge; Huber is linear far from its targets."""
    problem = Problem(Huber(0.01), bounds=Bounds(1.0, 1.0), d=1, l2=1.0)
    mechanism = NoisyMinimiser(problem, 2, 1.0, 2.0)
    pair = [stored(np.ones((2, 1)), np.array([1.0, y]), problem.bounds, "dense") for y in (1.0, -1.0)]
    one, two = (mechanism(data=data, rng=None) for data in pair)
    assert 0.999 < np.linalg.norm(one - two) / mechanism.sensitivity <= 1


@pytest.mark.parametrize("max_steps", [None, 1])
def test_the_deviation_is_a_public_bound_that_a_hurried_minimiser_would_break(max_steps, monkeypatch, silent):
    """||theta~ - theta*|| <= tau/ridge, against the closed form; a planted single step is far outside."""
    problem = Problem(Squared(), L2Ball(50.0), bounds=Bounds(1.0, 1.0), d=D)
    mechanism = PerturbedMinimiser(problem, 300, 3.0, 0.5, 50.0)
    if max_steps:
        monkeypatch.setattr(
            dpcvx.mechanisms.minimiser,
            "minimise",
            lambda facts, objective, linear, tolerance: -objective.gradient(linear) / facts.smoothness,
        )
    rng = np.random.default_rng(3)
    X = np.trunc(rng.uniform(-1, 1, (300, D)) / 2 * 2**14) / 2**14
    y = np.clip(X @ [1.0, -1.0, 0.5], -1, 1)
    exact = np.linalg.solve(X.T @ X + 0.5 * np.eye(D), X.T @ y)
    error = np.linalg.norm(mechanism(stored(X, y, problem.bounds, "dense"), None) - exact)
    lattice = mechanism._output.unit * math.sqrt(D)
    assert (error <= mechanism.deviation / 0.5 + lattice) == (max_steps is None)


@pytest.mark.parametrize("mechanism", [PerturbedMinimiser, NoisyMinimiser])
def test_nothing_lets_a_user_hurry_the_minimiser(mechanism):
    """Tolerance and steps follow from public facts; neither is a field."""
    names = {field.name for field in dataclasses.fields(mechanism)}
    assert names <= {"problem", "n", "noise_multiplier", "ridge", "output_multiplier", "neighbours", "linear"}
    for solver in (ObjectivePerturbation, OutputPerturbation):
        assert {field.name for field in dataclasses.fields(solver)} <= {"jacobian_share", "ridge", "clip"}


def test_noise_on_the_outcome_is_part_of_the_event_and_of_the_draw():
    problem = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=2000)
    mechanism = PerturbedMinimiser(problem, 50, 5.0, 10.0, 400.0)
    jacobian = math.log1p(0.25 * 1.0 / 10.0)
    (objective, output) = mechanism.event.events
    assert mechanism.event == Compose((objective, output))
    assert objective.shift == 0.2
    assert objective.jacobian == pytest.approx(jacobian, rel=1e-6)
    assert objective.jacobian >= math.log1p(0.25 * mechanism._facts.row**2 / 10.0)
    assert output == Gaussian(400.0)
    assert mechanism.output_noise >= 400.0 * 2 * mechanism.deviation / 10.0
    # PRIVACY_MATH §4: at least a hundredth of sigma / (n beta + ridge).
    sigma = 5.0 * mechanism.sensitivity * 50 / 2
    assert mechanism.output_noise >= 0.01 * sigma / (50 * 0.25 + 10.0)
    # Two runs with the same b: what differs is the noise on the outcome.
    theta = np.zeros(2000)
    noise = dpcvx.mechanisms.minimiser._released(theta, mechanism._output, SeededGenerator(1))
    statistic = (noise**2).sum() / mechanism.output_noise**2
    assert 1e-4 < stats.chi2.cdf(statistic, 2000) < 1 - 1e-4


def test_the_linear_term_has_its_declared_law(monkeypatch):
    """Without records the minimiser is -b / ridge."""
    problem = Problem(Logistic(), L2Ball(1e3), bounds=Bounds(1.0, 1.0), d=4000)
    mechanism = PerturbedMinimiser(problem, 1, 5.0, 10.0, 400.0)
    data = stored(np.zeros((1, 4000)), np.ones(1), problem.bounds, "dense")
    theta = mechanism(data, SeededGenerator(4))
    sigma = mechanism.noise * 1
    assert sigma == pytest.approx(5.0 * 1.0, rel=1e-6)
    statistic = ((10.0 * theta) ** 2).sum() / (sigma**2 + (10.0 * mechanism.output_noise) ** 2)
    assert 1e-4 < stats.chi2.cdf(statistic, 4000) < 1 - 1e-4
    assert not 1e-4 < stats.chi2.cdf(statistic / 1.1**2, 4000) < 1 - 1e-4


SOLVERS = [ObjectivePerturbation(), ObjectivePerturbation(0.2), OutputPerturbation(), OutputPerturbation(0.3)]


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_replay_on_a_neighbour_shows_no_difference(solver, relation):
    rng = np.random.default_rng(5)
    for problem in problems():
        plan = solver.plan(problem, 40, Budget(1.0, 1e-6, relation), Tight())
        X, y = records(problem.loss, (40, D), 1, rng)
        first = record(plan, stored(X, y, problem.bounds, "dense"), SeededGenerator(0))
        other = stored(*neighbour(X, y, problem.loss, 1, relation, rng), problem.bounds, "csr")
        second = replay(plan, other, SeededGenerator(1), first)
        assert [question.kind for question in first.questions] == ["objective"]
        assert discrepancies(plan, first, second) == []


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_plans_keep_their_budget_and_absurd_records_come_through(solver, relation):
    budget, rng = Budget(1.0, 1e-6, relation), np.random.default_rng(6)
    for problem in problems():
        plan = solver.plan(problem, 30, budget, Tight())
        assert 0.99 < plan.price.epsilon <= 1.0
        assert plan.price.sampler_delta <= 1e-3 * budget.delta
        assert plan.solver.plan(problem, 30, budget, Tight()).stages == plan.stages
        X, y = records(problem.loss, (30, D), 1, rng)
        data = stored(X, y, problem.bounds, "dense")
        one, two, third = (execute(plan, data, rng=SeededGenerator(seed)) for seed in (0, 0, 1))
        assert np.isfinite(one.theta).all()
        assert np.array_equal(one.theta, two.theta)
        assert not np.array_equal(one.theta, third.theta)
        assert problem.domain is None or problem.domain.contains(one.theta)
        assert one.n_iter == 1
        assert execute(plan, data).private
        assert plan.explain()
        assert "Minimiser" in str(plan)
        assert plan.gradient_evaluations >= 30


@pytest.mark.parametrize("solver", [ObjectivePerturbation(), OutputPerturbation()], ids=repr)
def test_a_statement_says_what_the_question_cost(solver):
    X = np.random.default_rng(9).uniform(0, 1, (300, 2))
    model = PrivateLogisticRegression(
        epsilon=2.0, delta=1e-6, bounds=(0, 1), classes=[-1, 1], solver=solver, random_state=0
    ).fit(X, np.where(X[:, 0] > 0.5, 1, -1))
    (question,) = json.loads(model.privacy_statement_.to_json())["mechanisms"]
    kinds = [part["event"] for part in question.get("events", [question])]
    objective = isinstance(solver, ObjectivePerturbation)
    assert kinds == (["PerturbedObjective", "Gaussian"] if objective else ["Gaussian"])
    for text in (str(model.privacy_statement_), str(model.plan_)):
        assert all(kind in text for kind in kinds)


def test_less_budget_is_more_noise_and_add_remove_needs_about_half():
    problem = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D)
    for solver in (ObjectivePerturbation(0.1), OutputPerturbation(0.1)):
        noises = [
            solver.plan(problem, 100, Budget(epsilon, 1e-6), Tight()).stages[0].mechanism.noise
            for epsilon in (0.5, 1.0, 4.0)
        ]
        assert noises[0] > 1.8 * noises[1] > 3 * noises[2]
        one, two = (
            solver.plan(problem, 100, Budget(1.0, 1e-6, relation), Tight()).stages[0].mechanism.noise
            for relation in ("add_remove", "replace")
        )
        assert 1.9 < two / one < 2.2


def test_an_accountant_without_the_profile_is_private_too():
    problem = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D)
    tight, renyi = (
        ObjectivePerturbation(0.1).plan(problem, 100, Budget(1.0, 1e-6), accountant)
        for accountant in (Tight(), RDP())
    )
    assert renyi.stages[0].mechanism.noise > 1.02 * tight.stages[0].mechanism.noise
    assert renyi.price.epsilon <= 1.0


@pytest.mark.parametrize(
    ("loss", "outputs", "match"),
    [(Softmax(), 3, "rank one"), (Huber(0.5), 2, "rank one"), (Quantile(0.5), 1, "smooth convex")],
)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_objective_perturbation_refuses_what_its_theorem_does_not_cover(loss, outputs, match, relation):
    problem = Problem(loss, L2Ball(1.0), bounds=Bounds(1.0), d=D, outputs=outputs)
    with pytest.raises(Incompatible, match=match):
        ObjectivePerturbation().plan(problem, 50, Budget(1.0, 1e-6, relation), Tight())


def test_output_perturbation_serves_several_outputs():
    problem = Problem(Softmax(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D, outputs=3)
    plan = OutputPerturbation().plan(problem, 500, Budget(1.0, 1e-6), Tight())
    X, y = records(problem.loss, (500, D), 3, np.random.default_rng(7))
    assert execute(plan, stored(X, y, problem.bounds, "dense")).theta.shape == (D, 3)
    assert plan.stages[0].mechanism.sensitivity >= 2 * math.sqrt(2) / (500 * plan.solver.ridge)


def test_public_linear_terms_are_bounded_in_advance(silent):
    problem = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D)
    data = stored(*records(problem.loss, (20, D), 1, np.random.default_rng(8)), problem.bounds, "dense")
    mechanism = NoisyMinimiser(problem, 20, 1.0, 2.0, linear=0.5)
    moved = mechanism(np.array([0.5, 0.0, 0.0]), data=data, rng=None) - mechanism(data=data, rng=None)
    assert moved[0] < -0.1
    with pytest.raises(ValueError, match=r"norm 0\.6, above 0\.5"):
        mechanism(np.array([0.6, 0.0, 0.0]), data=data, rng=None)


def test_misuse_is_refused():
    problem = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D, l2=0.1)
    for make in (
        lambda: PerturbedMinimiser(problem, 50, 3.0, 4.9, 100.0),
        lambda: NoisyMinimiser(problem, 50, 3.0, 4.9),
    ):
        with pytest.raises(ValueError, match="the problem's own"):
            make()
    with pytest.raises(Incompatible, match="below the problem's own"):
        OutputPerturbation(0.05).plan(problem, 50, Budget(1.0, 1e-6), Tight())
    for solver in (ObjectivePerturbation(), OutputPerturbation()):
        with pytest.raises(Incompatible, match="delta > 0"):
            solver.plan(problem, 50, Budget(1.0, 0.0), Tight())
    for share in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="jacobian_share"):
            ObjectivePerturbation(share)
    for ridge in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="ridge must be"):
            OutputPerturbation(ridge)
    with pytest.raises(Incompatible, match="too small beside"):
        PerturbedMinimiser(dataclasses.replace(problem, domain=L2Ball(1e9)), 50, 1e-4, 5.0, 1e-4)


def test_solvers_without_a_prox_refuse_a_regularizer():
    problem = Problem(Logistic(), L1Ball(2.0), bounds=Bounds(1.0), d=D, regularizer=L1(0.1))
    for solver in (NoisyGradientDescent(3), NoisyFrankWolfe(3)):
        with pytest.raises(Incompatible, match="no step for a regularizer"):
            solver.plan(problem, 50, Budget(1.0, 1e-6), Tight())
