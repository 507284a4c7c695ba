"""How long a plan takes, roughly, from public sizes alone: said before a record is read."""

from __future__ import annotations

import warnings

from dpcvx.errors import counted
from dpcvx.mechanisms import (
    NoisyMinimiser,
    NoisySecondMoments,
    NoisyVertex,
    PerturbedMinimiser,
)
from dpcvx.plans.execution import Plan

__all__ = ["in_words", "running_time", "warn_if_long"]

# Seconds on one core of an ordinary machine; measured on a server's, right within a factor of 2 or so there.
ANSWER = 2e-4  # a private answer, however few the records
SLOPE = 5e-8  # the slope of one score of one record
CELL = 2e-10  # a stored cell that a gradient reads, 16-bit integers in rows
NONZERO = 4e-9  # the same in compressed rows

DAY = 86_400.0
UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": DAY, "year": 365.25 * DAY}
# Minimisers stop where they are accurate enough, selection reads the cells that it cannot rule out.
OFTEN_SOONER = (NoisyMinimiser, NoisyVertex, PerturbedMinimiser)


def running_time(plan: Plan, density: float = 1.0) -> float:
    """Seconds that a plan's answers take on one core, the records being loaded.

    Parameters
    ----------
    plan : Plan
    density : float
        Share of cells that are not 0, declared public, where records are compressed; with 0 the least time.

    Returns
    -------
    float
        A rough estimate; the most there can be where minimisers or vertices are asked for.
    """
    total = 0.0
    for stage in plan.stages:
        d, outputs = plan.problem.d, plan.problem.outputs
        # Every pair of features once for a record, which counts as three evaluations.
        cells = d * (d + 1) / 6 if isinstance(stage.mechanism, NoisySecondMoments) else d
        each = SLOPE + cells * (CELL if density == 1 else density * NONZERO)
        total += stage.n_calls * (ANSWER + stage.mechanism.evaluations * outputs * each)
    return total


def in_words(plan: Plan, seconds: float) -> str:
    """A plan's running time to one digit: "under a second", "about 20 seconds", "at most about 2 hours"."""
    if seconds < 1:
        return "under a second"
    unit = [name for name, length in UNITS.items() if seconds >= length][-1]
    count = float(f"{seconds / UNITS[unit]:.1g}")
    most = any(isinstance(stage.mechanism, OFTEN_SOONER) for stage in plan.stages)
    return f"{'at most ' * most}about {count:,.0f} {unit}{'s' * (count != 1)}"


def warn_if_long(plan: Plan, n_iter: int | None, density: float = 1.0, stacklevel: int = 2) -> None:
    """Warn where a number of iterations that the user gave makes a plan take more than a day.

    Parameters
    ----------
    plan : Plan
    n_iter : int or None
        As the user gave it.
    density : float
        Of `running_time`.
    stacklevel : int
        Whose line the warning names.
    """
    if n_iter is None or (seconds := running_time(plan, density)) <= DAY:
        return
    warnings.warn(
        f"With n_iter={n_iter:,} the fit takes {in_words(plan, seconds)} on one core of an ordinary machine: "
        f"{counted(plan.n_calls, 'private answer')} from {counted(plan.n, 'record')}. Give a smaller "
        "n_iter, or None to have it chosen from public numbers. Nothing was charged and no record was read "
        "so far.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
