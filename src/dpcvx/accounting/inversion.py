"""One-dimensional inversion that always ends on the private side."""

from __future__ import annotations

from collections.abc import Callable

from scipy.optimize import brentq

# An excess is a difference of logarithms; beyond this only its sign matters, and Brent needs finite values.
_LARGEST_EXCESS = 1e3


def first_passing(
    excess: Callable[[float], float], fails: float, passes: float, *, tolerance: float
) -> float:
    """Return the point next to where a monotone excess stops being positive, on the passing side.

    `excess`: positive where the guarantee fails. It is positive at ``fails`` and not at ``passes``. `fails`,
    `passes`: the bracket, in either order. `tolerance`: absolute distance to the sign change that is good
    enough.
    """

    def bounded(point: float) -> float:
        return min(max(excess(point), -_LARGEST_EXCESS), _LARGEST_EXCESS)

    point = float(brentq(bounded, fails, passes, xtol=tolerance, rtol=1e-15))
    step = tolerance if passes > fails else -tolerance
    while excess(point) > 0:
        point += step
        step *= 2
        if (point - passes) * step > 0:
            return passes
    return point
