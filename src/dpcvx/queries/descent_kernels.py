"""Accelerated projected gradient in a given number of steps; imported only when a query is minimised.

The weights of the cells may be private, so nothing here depends on them but numbers: no loop ends early, and
no branch is taken by a weight, a gradient or an iterate (PRIVACY_MATH §19). Branches on the kind of loss and
set are public. The exponential is made of basic operations, whose time is the same for all arguments.
Subnormal numbers would take longer: exponents are clipped, and coordinates that vanish become 0 before that.
"""

# Numba gives the kernels their types when it compiles them.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import math

import numpy as np

from dpcvx.data.kernels import compiled
from dpcvx.domains import BOX, SIMPLEX
from dpcvx.losses.slopes import exp_basic

QUADRATIC, PIECES, LOGISTIC = 0, 1, 2  # kinds of losses; PIECES: a line that is constant beyond two points
LARGEST = 40.0  # exponents beyond are clipped, which changes a slope by e^-40
VANISHED = 1e-100  # far below any rounding error; its square and its products with weights are not subnormal

exponential = compiled(exp_basic)


@compiled
def descend(loss, objective, domain, theta, size, steps):
    """Return the point after a number of accelerated projected gradient steps.

    `loss`: kind, and bend of `PIECES`; `objective`: A and b of the quadratic part <theta, A theta>/2
    + <b, theta>, then features (d, m), fixed scores (m,), weights (l, m), targets (l, m), lowest and highest
    slopes (l, m) of the other part; `domain`: a `ProjectionForm` as a tuple; `theta`: start; `size`: of a
    step.
    """
    kind, bend = loss
    A, b, features, scores, weights, targets, low, high = objective
    ahead, t = theta, 1.0
    slopes = np.zeros(scores.size)
    for _ in range(steps):
        gradient = np.dot(A, ahead) + b
        if kind != QUADRATIC:
            margins = np.dot(ahead, features) + scores
            slopes[:] = 0.0
            for level in range(weights.shape[0]):
                if kind == LOGISTIC:
                    for i in range(slopes.size):
                        y = targets[level, i]
                        exponent = min(max(y * margins[i], -LARGEST), LARGEST)
                        slopes[i] -= weights[level, i] * (y / (1.0 + exponential(exponent)))
                else:
                    for i in range(slopes.size):
                        line = bend * (margins[i] - targets[level, i])
                        slope = min(max(line, low[level, i]), high[level, i])
                        slopes[i] += weights[level, i] * slope
            gradient += np.dot(features, slopes)
        moved = project(ahead - size * gradient, domain)
        moved = np.where(np.abs(moved) < VANISHED, 0.0, moved)
        following = (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0
        ahead = moved + (t - 1.0) / following * (moved - theta)
        theta, t = moved, following
    return theta


@compiled
def project(v, domain):
    """Return the point of a set that is closest to v."""
    kind, radius, groups, n_groups, low, high = domain
    if kind == BOX:
        return np.minimum(np.maximum(v, low), high)
    if kind == SIMPLEX:
        return np.maximum(v - shift(v, radius), 0.0)
    norms = np.zeros(n_groups)
    for j in range(v.size):
        norms[groups[j]] += v[j] * v[j]
    norms = np.sqrt(norms)
    excess = max(shift(norms, radius), 0.0)  # negative inside the ball
    return v * (np.maximum(norms - excess, 0.0) / np.maximum(norms, 1e-300))[groups]


@compiled
def shift(v, radius):
    """Return tau with sum_j max(v_j - tau, 0) = radius.

    It is the largest of (sum of the entries from v_j on - radius) / (their number) over j. Sorting would
    be faster for many entries, but its branches depend on them.
    """
    tau = -np.inf
    for j in range(v.size):
        total, count = -radius, 0.0
        for i in range(v.size):
            above = 1.0 if v[i] >= v[j] else 0.0
            total += above * v[i]
            count += above
        tau = max(tau, total / count)
    return tau
