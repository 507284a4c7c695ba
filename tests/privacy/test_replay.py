"""With the answers frozen, a run on a neighbour asks the same, and its sums differ by the sensitivity."""

import dataclasses
import itertools
import math
import zlib

import numpy as np
import pytest

import dpcvx.noise.exponential
import dpcvx.noise.gaussian
from adversary import neighbour, records, stored
from dpcvx.accounting import Budget, Tight
from dpcvx.audit import discrepancies, record, replay, share
from dpcvx.domains import L1Ball, L2Ball, Simplex, VertexHull
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent, NoisyMirrorDescent
from zoo import ALL_LOSSES

N, D, T = 7, 3, 3
CONFIGURATIONS = list(itertools.product(ALL_LOSSES, ["dense", "csr"], ["replace", "add_remove"]))
# Of losses that are listed twice, with other limits, the first is in the quick suite.
FIRST = {type(loss): loss for loss in reversed(ALL_LOSSES)}
BY_LENGTH = [
    each if each[0] == FIRST[type(each[0])] else pytest.param(each, marks=pytest.mark.long)
    for each in CONFIGURATIONS
]
HARD = 0.5  # of the sensitivity: noise that is twice as large as it must be is found too
PAIRS, MOST = 20, 120  # of neighbours in each of the 60 configurations; more until one pair is hard


def named(configurations):
    return [f"{loss!r}-{storage}-{relation}" for loss, storage, relation in configurations]


def outputs_of(loss, pair):
    return 3 if loss.joint else 1 + pair % 2


def gradient_plan(loss, outputs, relation, pair):
    """Gradients at points that the answers throw to the boundary of C and, by momentum, beyond."""
    bounds = [Bounds(1.0, 1.0), Bounds(1.0), Bounds(1.9, 2.5), Bounds(0.3, 0.4)][pair % 4]
    problem = Problem(loss, L2Ball([0.5, 3.0][pair % 2]), bounds=bounds, d=D, outputs=outputs, l2=0.01)
    clip = [None, 0.2][pair // 4 % 2]
    smooth = math.isfinite(problem.smoothness)
    solver = NoisyGradientDescent(T, 0.8, 0.9, clip) if smooth else NoisyMirrorDescent(T, clip)
    return solver.plan(problem, N, Budget(4.0, 1e-6, relation), Tight())


def vertex_plan(loss, outputs, relation, pair):
    bounds = [Bounds(1.0), Bounds(1.0, 1.0), Bounds(1.9, 2.5), Bounds(0.3)][pair % 4]
    size = D * outputs
    hull = VertexHull(np.vstack([np.eye(size), -np.eye(size), np.full((1, size), 0.5)]))
    domain = [L1Ball(2.0), Simplex(1.5), hull][pair % 3]
    problem = Problem(loss, domain, bounds=bounds, d=D, outputs=outputs, l2=0.01)
    solver = NoisyFrankWolfe(T, ["decaying", "constant"][pair % 2], [None, 0.2][pair // 4 % 2])
    return solver.plan(problem, N, Budget(4.0, 1e-6, relation), Tight())


def pairs(make_plan, configuration):
    """Neighbouring sources, the plan for both, and a seed."""
    loss, storage, relation = configuration
    # The same draws for a configuration whatever else is in the list.
    rng = np.random.default_rng(zlib.crc32("-".join(map(repr, configuration)).encode()))
    for pair in range(MOST):
        outputs = outputs_of(loss, pair)
        plan = make_plan(loss, outputs, relation, pair)
        X, y = records(loss, (N, D), outputs, rng)
        one = stored(X, y, plan.problem.bounds, storage)
        other = stored(*neighbour(X, y, loss, outputs, relation, rng), plan.problem.bounds, storage)
        yield plan, one, other, pair


def both(plan, one, other, seed):
    first = record(plan, one, SeededGenerator(seed))
    return first, replay(plan, other, SeededGenerator(seed + 1), first)


def spy(monkeypatch, name, argument=0, module=dpcvx.noise.gaussian):
    """Keep what a sampler is given; it draws as usual."""
    given, sampler = [], getattr(module, name)

    def watched(*arguments):
        given.append(arguments[argument])
        return sampler(*arguments)

    monkeypatch.setattr(module, name, watched)
    return given


@pytest.mark.parametrize("configuration", BY_LENGTH, ids=named(CONFIGURATIONS))
def test_gradients_of_neighbours_differ_by_the_sensitivity_and_nothing_else_differs(
    configuration, monkeypatch
):
    scales = spy(monkeypatch, "lattice_gaussian")
    heaviest = 0.0
    for plan, one, other, seed in pairs(gradient_plan, configuration):
        first, second = both(plan, one, other, seed)
        assert discrepancies(plan, first, second) == []
        assert len(first.questions) == plan.n_calls == T
        # The price: the noise that is really drawn is the same for both and as large as the event says.
        multiplier = plan.stages[0].mechanism.noise_multiplier
        assert scales[:T] == scales[T:]
        for a, b, scale in zip(first.questions, second.questions, scales, strict=False):
            moved = sum((int(u) - int(v)) ** 2 for u, v in zip(a.total.flat, b.total.flat, strict=True))
            assert moved * multiplier**2 <= scale**2
            heaviest = max(heaviest, share(plan, a, b))
        scales.clear()
        if seed >= PAIRS - 1 and heaviest > HARD:
            break
    assert heaviest > HARD


@pytest.mark.parametrize("configuration", BY_LENGTH, ids=named(CONFIGURATIONS))
def test_selections_of_neighbours_have_the_declared_range_and_nothing_else_differs(
    configuration, monkeypatch
):
    log_weights = spy(monkeypatch, "select", module=dpcvx.noise.exponential)
    signed = spy(monkeypatch, "select_signed", module=dpcvx.noise.exponential)
    widest = 0.0
    for plan, one, other, seed in pairs(vertex_plan, configuration):
        first, second = both(plan, one, other, seed)
        assert discrepancies(plan, first, second) == []
        eta = plan.stages[0].mechanism.eta
        log_weights.extend(np.r_[weights, -weights] for weights in signed)
        signed.clear()
        assert len(log_weights) == 2 * T
        for a, b in zip(log_weights[:T], log_weights[T:], strict=True):
            width = float(np.ptp(a - b))
            assert width <= eta
            widest = max(widest, width / eta)
        log_weights.clear()
        if seed >= PAIRS - 1 and widest > HARD:
            break
    assert widest > HARD


def example(relation="replace"):
    plan = gradient_plan(ALL_LOSSES[0], 1, relation, 0)
    X = np.eye(D)[np.arange(N) % D]
    return plan, X, np.where(np.arange(N) % 2, 1.0, -1.0)


def test_a_row_past_the_door_unclipped_is_found():
    plan, X, y = example()
    longer = X.copy()
    longer[0] *= -2.5
    unclipped = stored(longer, y, Bounds(1.9, 10.0), "dense")
    first, second = both(plan, stored(X, y, plan.problem.bounds, "dense"), unclipped, 0)
    assert any("more than the sensitivity" in line for line in discrepancies(plan, first, second))


def test_two_changed_records_are_found():
    plan, X, y = example()
    flipped = np.where(np.arange(N) < 2, -y, y)
    sources = [stored(X, labels, plan.problem.bounds, "dense") for labels in (y, flipped)]
    assert discrepancies(plan, *both(plan, *sources, 0)) != []


@dataclasses.dataclass(frozen=True)
class Peeking:
    """A solver that looks past the oracle, at the first record's target."""

    honest: NoisyGradientDescent
    how: str

    def run(self, plan, ask):
        peek = float(ask._source._source._y[0, 0])
        theta = self.honest.run(plan, ask if self.how == "result" else Nudged(ask, peek))
        return theta + peek if self.how == "result" else theta


class Nudged:
    def __init__(self, ask, peek):
        self._ask, self._peek = ask, peek

    def gradient(self, theta):
        return self._ask.gradient(theta + 1e-9 * self._peek)


@pytest.mark.parametrize(("how", "message"), [("result", "another parameter"), ("question", "differs")])
def test_a_solver_that_looks_at_a_record_is_found(how, message):
    plan, X, y = example()
    plan = dataclasses.replace(plan, solver=Peeking(plan.solver, how))
    flipped = np.where(np.arange(N) < 1, -y, y)
    sources = [stored(X, labels, plan.problem.bounds, "dense") for labels in (y, flipped)]
    assert any(message in line for line in discrepancies(plan, *both(plan, *sources, 0)))


class Leaky:
    """A source that answers one unit more than the sensitivity allows, in the second run only."""

    def __init__(self, source, extra):
        self.n, self.d, self._source, self._extra = source.n, source.d, source, extra

    def within(self, bounds):
        return self

    def sum(self, question):
        total = np.zeros(question.theta.shape, dtype=np.int64)
        total[0] = self._extra and 2 * question.bound.l2 * 2**14 + self._extra - 1
        return total


@pytest.mark.parametrize(("extra", "found"), [(1, 0), (2, T)])
def test_one_unit_too_much_is_found(extra, found):
    plan, X, y = example()  # rows of norm 1: the sensitivity is 2 R 2^14 exactly
    honest = stored(X, y, plan.problem.bounds, "dense")
    first, second = both(plan, Leaky(honest, 0), Leaky(honest, extra), 0)
    assert len(discrepancies(plan, first, second)) == found
