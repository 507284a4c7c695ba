"""Audit of a large problem in one run: many canaries at once, each with a random sign that is guessed.

Every canary is one record, and its sign decides between two records: m independent pairs of neighbours in one
data set. From the released answers alone an attacker guesses the signs that the answers show most clearly.
If the release is (epsilon, delta)-private, many right guesses are improbable (T. Steinke, M. Nasr and
M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, main theorem), so that right
guesses prove a lower bound on epsilon. The bound is weaker than that of many runs on one pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.accounting import Budget, Tight
from dpcvx.arrays import Vector
from dpcvx.audit.distinguish import CONFIDENCE
from dpcvx.audit.watch import watching
from dpcvx.data.memory import source
from dpcvx.domains import L2Ball
from dpcvx.losses import Huber
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Answers, Oracle
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGradientDescent

__all__ = ["OneRunAudit", "audit_one_run", "one_run_epsilon"]

SHARES = (0.02, 0.05, 0.1, 0.2)  # of the canaries that are guessed: their number is chosen on one half


@dataclass(frozen=True)
class OneRunAudit:
    """Result of an audit in one run."""

    records: int
    features: int
    canaries: int
    guesses: int
    right: int
    claimed: float
    audited: float  # lower bound at 95 %
    control: float  # of guesses of signs that no record had: 0
    half_noise: float  # with half of the noise; no less than with all of it

    @property
    def holds(self) -> bool:
        """Whether the bound is at most the claimed epsilon, and both controls are as expected."""
        return self.audited <= self.claimed and self.control == 0 and self.half_noise >= self.audited


def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float) -> float:
    """Return the largest epsilon that this number of right guesses refutes at 95 %; 0 if none."""
    low, high = 0.0, 20.0
    if _p_value(canaries, guesses, right, 0.0, delta) > 1 - CONFIDENCE:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        if _p_value(canaries, guesses, right, middle, delta) > 1 - CONFIDENCE:
            high = middle
        else:
            low = middle
    return low


def _p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return a bound on P(at least this many right guesses) for any (epsilon, delta)-private release.

    Of m canaries with fair signs r are guessed. With W ~ Binomial(r, e^epsilon / (1 + e^epsilon)),
        P(right >= v) <= P(W >= v) + 2 m delta max over 1 <= i <= m of P(v - i <= W < v) / i
    (Steinke, Nasr and Jagielski 2023, main theorem). For one canary let p and q be the densities of the
    release for its two signs, the signs before it given. Without delta, p <= e^epsilon q: whatever is
    released, the likelier sign has chance at most e^epsilon / (1 + e^epsilon), and W dominates. With delta
    the integral of (p - e^epsilon q)+ is at most delta, and so is that with p and q exchanged: releases that
    give this canary away have chance at most 2 delta. The number F of canaries that are given away has mean
    at most 2 m delta, and their proof shows that right guesses are dominated by W + F with W independent of
    F. P(W + F >= v) is P(W >= v) plus the sum over i of P(F = i) P(v - i <= W < v), where the sum of
    i P(F = i) is at most 2 m delta. Beyond i = v the ratio falls: W is at least 0.
    """
    from scipy import stats

    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    below = np.cumsum(law.pmf(right - np.arange(1, right + 1)))
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, float(law.sf(right - 1)) + 2 * canaries * delta * steepest)


def audit_one_run(
    canaries: int = 2000, *, epsilon: float = 8.0, delta: float = 1e-6, seed: int = 0
) -> OneRunAudit:
    """Audit gradient descent on many records and features in one run.

    Canary i is a record at the i-th unit vector, at its bound; its sign is its target. Other records, as
    many again, are ordinary.
    """
    rng = np.random.default_rng(seed)
    n = 2 * canaries
    X = np.zeros((n, canaries))
    X[:canaries] = np.eye(canaries)
    X[canaries:] = rng.normal(size=(n - canaries, canaries)) / math.sqrt(canaries)
    signs = rng.choice([-1.0, 1.0], canaries)
    y = np.concatenate([signs, rng.choice([-1.0, 1.0], n - canaries)])
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=canaries)
    plan = NoisyGradientDescent(4, step=1e-3, momentum=0.0).plan(problem, n, Budget(epsilon, delta), Tight())
    records = source(X, y, bounds=problem.bounds).within(problem.bounds)

    def evidence(factor: float) -> Vector:
        """Sum of the released gradients: the more negative, the likelier a positive sign."""
        with watching(seed, factor=factor) as run:
            generator = SeededGenerator(seed)
            plan.solver.run(plan, Oracle(plan, records, generator, answers=Answers(generator)))
        return np.asarray(-np.sum([each.numbers for each in run.answers], axis=0))

    seen = evidence(1.0)
    guesses, right, audited = _best(seen, signs, delta)
    control = _best(seen, rng.choice([-1.0, 1.0], canaries), delta)[2]
    half = _best(evidence(0.5), signs, delta)[2]
    return OneRunAudit(n, canaries, canaries, guesses, right, epsilon, audited, control, half)


def _best(evidence: Vector, signs: Vector, delta: float) -> tuple[int, int, float]:
    """Return guesses, right guesses and the bound; the number of guesses is chosen on the first half."""
    half = len(signs) // 2
    chosen = max(SHARES, key=lambda share: _guess(evidence[:half], signs[:half], share, delta)[2])
    return _guess(evidence[half:], signs[half:], chosen, delta)


def _guess(evidence: Vector, signs: Vector, share: float, delta: float) -> tuple[int, int, float]:
    guesses = max(1, round(share * len(signs)))
    clearest = np.argsort(-abs(evidence), kind="stable")[:guesses]
    right = int((np.sign(evidence[clearest]) == signs[clearest]).sum())
    return guesses, right, one_run_epsilon(len(signs), guesses, right, delta)
