"""The convex set of coefficients whose shapes are within their bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from dpcvx.data import AdditiveBasis
from dpcvx.domains.limited import LimitedBall, ShapeLimit
from dpcvx.problem import Problem

__all__ = ["limit_shapes"]


def limit_shapes(
    problem: Problem, limits: tuple[tuple[int, float, int], ...], basis: AdditiveBasis, unit: float
) -> Problem:
    """Return the problem in the part of its ball where shapes are within their bounds.

    A shape is linear between its knots and ends at the reach of its cells, so its range is the largest
    difference between two of these points.

    `limits`: place of a number, largest difference of its contributions, sign of slopes or 0; `unit`:
    contribution to the score of a feature of 1 with a coefficient of 1; it is released, so the set is
    post-processing.
    """
    ball: Any = problem.domain
    found = []
    for j, limit, sign in limits:
        places = (j, *(basis.ramp_places(j) if j in basis.numbers else ()))
        cells = np.zeros((len(basis.knots) + 2, basis.d))
        cells[:, j] = (-basis.reach, *basis.knots, basis.reach)
        apart = [p - q for p, q in combinations(basis(cells)[:, places], 2)]
        found.append(ShapeLimit(places, tuple(tuple(p.tolist()) for p in apart), limit / unit, sign))
    return replace(problem, domain=LimitedBall(ball.radius, tuple(found)))
