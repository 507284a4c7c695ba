"""Distinguishing audits: thousands of runs on two neighbours, and the epsilon that tells them apart.

Black-box audits see coarse faults only; replay and the samplers' contracts see fine ones. So each audit has
a negative control (the honest mechanism passes) and positive ones (planted faults of a factor of 2 do not).
"""

import math

import numpy as np
import pytest
from scipy import stats

import dpcvx.noise.exponential
import dpcvx.noise.gaussian
from dpcvx.accounting import Budget, Neighbours, Tight, gaussian_delta
from dpcvx.data.memory import source
from dpcvx.domains import L1Ball, L2Ball
from dpcvx.losses import Huber
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Oracle
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

EPSILON, DELTA = 1.0, 1e-3
RUNS, FAULTY_RUNS = 100_000, 40_000  # on each neighbour; a factor of 2 shows in fewer
CONFIDENCE = 0.999


def lower_epsilon(hits, false_hits, runs):
    """Clopper-Pearson lower bound on epsilon from counts of one event under D and under D'."""
    tail = (1 - CONFIDENCE) / 2
    often = stats.beta.ppf(tail, hits, runs - hits + 1) if hits else 0.0
    seldom = stats.beta.ppf(1 - tail, false_hits + 1, runs - false_hits)
    return math.log((often - DELTA) / seldom) if often > DELTA else 0.0


def audit(one, other):
    """Lower bound on epsilon from half-lines: chosen on one half of the runs, tested on the other."""
    half = len(one) // 2
    best, chosen = -math.inf, None
    for cut in np.unique(np.quantile(np.r_[one[:half], other[:half]], np.linspace(0.0005, 0.9995, 200))):
        for event in (lambda v, cut=cut: v <= cut, lambda v, cut=cut: v >= cut):
            for a, b in ((one, other), (other, one)):
                value = lower_epsilon(event(a[:half]).sum(), event(b[:half]).sum(), half)
                if value > best:
                    best, chosen = value, (event, a is one)
    event, straight = chosen
    a, b = (one, other) if straight else (other, one)
    return lower_epsilon(event(a[half:]).sum(), event(b[half:]).sum(), len(one) - half)


def outputs(plan, data, seed, runs):
    """What the solver returns in many runs: `execute` without its checks of the public plan."""
    rng = SeededGenerator(seed)
    return np.array([plan.solver.run(plan, Oracle(plan, data, rng))[0] for _ in range(runs)])


def verdict(plan, sources, fault):
    """Whether the audit finds more than the claimed epsilon."""
    runs = FAULTY_RUNS if fault else RUNS
    one, other = (outputs(plan, data, seed, runs) for seed, data in enumerate(sources))
    return audit(one, other) > EPSILON


def faulty(fault, monkeypatch):
    """Plant a fault of a factor of 2 in the noise, the sensitivity or the clipping."""
    if fault == "half noise":
        draw, choose = dpcvx.noise.gaussian.lattice_gaussian, dpcvx.noise.exponential.select_signed
        monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", lambda s, n, rng: draw(s // 2, n, rng))
        monkeypatch.setattr(
            dpcvx.noise.exponential, "select_signed", lambda weights, rng: choose(2 * weights, rng)
        )
    if fault == "missing factor 2":
        monkeypatch.setattr(Neighbours, "ball", 1)


def neighbours(bounds, n, fault):
    """n records at x = 1, y = -1; the neighbour's last is at x = -1; unclipped, all are twice as long."""
    X = np.ones((n, 1))
    flipped = X.copy()
    flipped[-1] = -1.0
    if fault == "no clip":
        X, flipped, bounds = 1.9 * X, 1.9 * flipped, Bounds(1.9, 1.9)
    return [source(x, -np.ones(n), bounds=bounds) for x in (X, flipped)]


FAULTS = [None, "half noise", "missing factor 2", "no clip"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("T", [1, 2])
def test_gradient_descent_on_one_feature(T, fault, monkeypatch):
    """The last iterate is nearly a sum of all answers: steps so short that the gradient stays what it is."""
    faulty(fault, monkeypatch)
    bounds = Bounds(1.0, 1.0)
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=bounds, d=1)
    solver = NoisyGradientDescent(T, step=1e-4, momentum=0.0)
    plan = solver.plan(problem, 2, Budget(EPSILON, DELTA), Tight())
    assert verdict(plan, neighbours(bounds, 2, fault), fault) == (fault is not None)


@pytest.mark.parametrize("fault", FAULTS)
def test_selection_by_frank_wolfe_on_one_feature(fault, monkeypatch):
    """One selection between +1 and -1, with enough like-minded records that the rarer choice tells more."""
    faulty(fault, monkeypatch)
    bounds = Bounds(1.0)
    problem = Problem(Huber(0.5), L1Ball(1.0), bounds=bounds, d=1)
    n = 4
    plan = NoisyFrankWolfe(1).plan(problem, n, Budget(EPSILON, DELTA), Tight())
    assert verdict(plan, neighbours(bounds, n, fault), fault) == (fault is not None)


def test_the_audit_itself_knows_a_gaussian():
    """On exact Gaussians it stays below the true epsilon, and comes near it where many samples tell."""
    rng = np.random.default_rng(0)
    for shift in (0.4, 1.0):
        one, other = rng.normal(size=RUNS), rng.normal(size=RUNS) + shift
        found = audit(one, other)
        true = next(e for e in np.linspace(0, 20, 2001) if gaussian_delta(e, shift) <= DELTA)
        assert 0.5 * true < found <= true
