"""Choose for the user: candidates, their predicted excess risk, the best of them. Nothing here reads data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpcvx.accounting import Accountant, Budget, Tight
from dpcvx.errors import Incompatible
from dpcvx.execution import Candidate, Plan, Solver
from dpcvx.losses import Loss
from dpcvx.problem import Problem, is_regression
from dpcvx.solvers import (
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
)

__all__ = ["AUTOMATIC", "default_radius", "plan", "residual_clip"]

# Those whose predictions have been held against measured risks; the others are asked for by name.
AUTOMATIC: tuple[type[Any], ...] = (
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisyFrankWolfe,
    NoisyCorrectiveFrankWolfe,
)


def default_radius(loss: Loss) -> float:
    """Size of the set, in scaled units, when the user names none.

    A classifier's score is a log-odds: with rows of norm 1, radius 10 reaches odds of e^10. A regression's
    target is mapped to [-1, 1]: with radius 3 a feature that varies over a third of its declared range can
    explain all of it.
    """
    return 3.0 if is_regression(loss) else 10.0


def residual_clip(problem: Problem) -> float | None:
    """Largest residual worth keeping where slopes are unbounded (squared loss): the largest one at theta = 0.

    A model that misses a person by more than the constant in the middle of y's range can miss anybody is of
    little use; clipping there leaves the gradient of a better one nearly as it is, and caps the noise that a
    large set would ask for.
    """
    loss = problem.loss
    if math.isfinite(loss.lipschitz(math.inf)):
        return None
    return loss.lipschitz(0.0)


def plan(
    problem: Problem,
    n: int,
    budget: Budget,
    candidates: str | tuple[Solver, ...] = "all",
    accountant: Accountant | None = None,
) -> Plan:
    """Plan a private fit: weigh the solvers that fit the problem and fix the best one's noise.

    Parameters
    ----------
    problem : Problem
    n : int
        Number of records, public under replace-one.
    budget : Budget
    candidates : "all" or tuple of Solver
        Solvers to weigh.
    accountant : Accountant, optional
        The tightest known by default.

    Returns
    -------
    Plan
        With ``plan.candidates`` sorted by predicted excess risk.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    if candidates == "all":
        clip = residual_clip(problem)
        candidates = tuple(kind(clip=clip) for kind in AUTOMATIC)
    if isinstance(candidates, str):
        raise ValueError(f'candidates must be "all" or a tuple of solvers, got {candidates!r}.')
    weighed, refusals = [], []
    for solver in candidates:
        try:
            chosen = solver.plan(problem, n, budget, accountant or Tight())
            weighed.append((Candidate(chosen.solver, *solver.predict(problem, n, budget)), chosen))
        except Incompatible as refusal:
            refusals.append(str(refusal))
    if not weighed:
        raise Incompatible("No solver fits this problem:\n  " + "\n  ".join(refusals))
    weighed.sort(key=lambda pair: pair[0].predicted)
    return replace(weighed[0][1], candidates=tuple(candidate for candidate, _ in weighed))
