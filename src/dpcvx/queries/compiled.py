"""Queries compiled to the cells of a marginal: answer on a distribution, error, and its sensitivity.

A compiled query sees a distribution over the cells of the few attributes that it touches: that of the public
histogram, or that of the records on the private side. Convex queries are minimised by a deterministic method;
linear ones (counts, marginals, means) are convex queries whose losses are linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import SETS, Domain, HasProjectionForm, HasSupport
from dpcvx.errors import Incompatible
from dpcvx.losses import LOSSES
from dpcvx.problem import Problem
from dpcvx.queries.readings import Reading
from dpcvx.queries.schema import Schema
from dpcvx.vouched import is_vouched

__all__ = [
    "CORNER",
    "TOLERANCE",
    "WORK",
    "CompiledMeans",
    "CompiledQuery",
    "CompiledRegression",
    "Query",
    "margin_range",
]

TOLERANCE = 2.0**-7  # error of the inexact minimisation relative to the sensitivity of an error
ROUNDING = 1e-9  # relative to the range of the loss; far above the rounding of float64 sums over 2^16 cells
# Float64 rounding for each feature, relative to the size of the loss; in an error it is below 1/(100 n).
FLOAT = 2.0**-45
WORK = 2**32  # products of features in the steps of a minimisation; some ten seconds
STEP = 2**16  # fixed cost of a step, in products
RESTARTED_STEPS = 3000  # accelerated steps with restarts, before those whose number theory gives
CHECK_EVERY = 10  # accelerated steps between two certificates
CORNER = 2.0**-6  # half-width over which the corner of the pinball loss is rounded, in units of the target


class Query(Protocol):
    """Public description of a query, by names of attributes."""

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Return the query on the cells of the marginal that it touches, for n records."""
        ...

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the map from coded answers to the numbers that an analyst reads."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain types."""
        ...


class CompiledQuery(Protocol):
    """A query on the cells of a marginal."""

    @property
    def description(self) -> Query:
        """Query that this was compiled from."""
        ...

    @property
    def attributes(self) -> tuple[int, ...]:
        """Positions in the schema of the attributes of the marginal."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels or bins of each of these attributes."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers in an answer."""
        ...

    @property
    def scale(self) -> float:
        """S: largest |l(theta; x) - l(theta'; x)| over the set and the cells."""
        ...

    def answer(self, weights: Vector) -> Vector:
        """Return the minimiser on a distribution over the cells."""
        ...

    def range(self, theta: Vector) -> float:
        """Return n times the sensitivity (replace-one) of the error of a public theta."""
        ...

    def error(self, weights: Vector, theta: Vector) -> float:
        """Return the excess loss of theta on a distribution, within `TOLERANCE` range(theta) / n.

        The distribution may be private: the number of steps is the same for every one of them.
        """
        ...

    def certificate(self, theta: Vector, better: Vector) -> Vector:
        """Return u(x) over the cells, in [-S, S]: how the loss at x changes from theta towards better."""
        ...

    def gradients(self, theta: Vector) -> Vector:
        """Return at every cell the gradient of the loss, or the functions that are averaged; (m, k)."""
        ...


@dataclass(frozen=True, eq=False)
class CompiledRegression:
    """argmin over C of sum_x p(x) phi(<x, theta>, y(x)) + (l2/2) ||theta||^2 over the cells of a marginal."""

    # attributes, sizes: positions in the schema, and numbers of levels or bins there
    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]  # names of the coefficients
    problem: Problem  # loss, set, bounds and ridge
    X: Vector  # X, y: shapes (m, d) and (m,): features and target of every cell, row-major
    y: Vector
    # public number of records n. Minimisation is exact to a fraction of the sensitivity, which is a range
    # divided by n.
    records: int
    description: Query = field(kw_only=True)  # query that this was compiled from
    # of a mean: what the values -1 and 1 are reported as. None for coefficients, reported as they are.
    units: tuple[float, float] | None = field(default=None, kw_only=True)
    # a public point of the set: theta stands for anchor + reach (theta - anchor)
    anchor: Vector | None = field(default=None, kw_only=True)
    reach: float = field(default=1.0, kw_only=True)  # see ``anchor``; 1 without one

    def __post_init__(self) -> None:
        if not is_vouched(type(self.problem.domain), "queries"):
            raise Incompatible(
                f"{type(self.problem.domain).__name__} has no closed projection, which queries need: "
                f"use one of {', '.join(kind.__name__ for kind in SETS if is_vouched(kind, 'queries'))}."
            )
        if not is_vouched(type(self.problem.loss), "queries"):
            known = ", ".join(kind.__name__ for kind in LOSSES if is_vouched(kind, "queries"))
            raise Incompatible(
                f"Sensitivities rest on what {type(self.problem.loss).__name__} declares about itself, which "
                f"nothing enforces: use one of {known}."
            )
        self.problem.C.start(self.problem.d)  # refuses a set of another dimension

    def near(self, theta: Vector, reach: float) -> CompiledRegression:
        """Return the query over theta + reach (C - theta) instead of C, for a point theta of C.

        Its answers s in C stand for theta + reach (s - theta). By convexity its error at theta is between
        reach times the error over C and all of it, and all of it where the minimiser is that near; the range
        of its terms is about reach times that over C.
        """
        return replace(self, anchor=theta, reach=reach)

    def _point(self, theta: Vector) -> Vector:
        return theta if self.anchor is None else (1 - self.reach) * self.anchor + self.reach * theta

    def _margins(self, theta: Vector) -> Vector:
        margins: Vector = self.X @ self._point(theta)
        return margins

    @cached_property
    def rounded_loss(self) -> Any:
        """The loss, its corner rounded if it has one."""
        loss = self.problem.loss
        if math.isfinite(loss.smoothness(self.problem.z_max)):
            return loss
        return _RoundedPinball(loss.parameter)  # the only vouched loss with a corner

    @cached_property
    def _extremes(self) -> tuple[Vector, Vector]:
        """Bounds on the loss of every cell over the set, without the ridge term."""
        low, high = margin_range(self.problem.C, self.X)
        if self.anchor is not None:
            fixed = (1 - self.reach) * (self.X @ self.anchor)
            low, high = fixed + self.reach * low, fixed + self.reach * high
        largest = np.maximum(self.rounded_loss.value(low, self.y), self.rounded_loss.value(high, self.y))
        left, right = low.copy(), high.copy()
        for _ in range(60):  # the slope of a convex loss grows: bisection for where it changes its sign
            middle = (left + right) / 2
            falling = self.rounded_loss.grad(middle, self.y) < 0
            left, right = np.where(falling, middle, left), np.where(falling, right, middle)
        smallest = np.minimum(self.rounded_loss.value(left, self.y), self.rounded_loss.value(right, self.y))
        slack = ROUNDING * float((largest - smallest).max()) + self._lost(low, high, largest)
        return smallest - slack, largest + slack

    def _lost(self, low: Vector, high: Vector, largest: Vector) -> float:
        """Bound n times the rounding of an error in float64, which is relative to the loss, not to its range.

        Over a tiny set the losses hardly differ, and their difference is mostly rounding, which depends on
        the records.
        """
        problem = self.problem
        start = float(np.linalg.norm(problem.C.start(problem.d)))
        farthest = start + float(problem.C.diameter(2, problem.d))
        slope = max(float(np.abs(self.rounded_loss.grad(end, self.y)).max()) for end in (low, high))
        size = float(np.abs(largest).max()) + slope * problem.row_norm * farthest
        size += problem.l2 / 2 * farthest**2
        return FLOAT * (problem.d + 8) * self.records * size

    @cached_property
    def scale(self) -> float:
        """S: largest |l(theta; x) - l(theta'; x)| over the set and the cells."""
        smallest, largest = self._extremes
        return float((largest - smallest).max())

    def range(self, theta: Vector) -> float:
        """Return max_x [l(theta; x) - min l(.; x)] + max_x [max l(.; x) - l(theta; x)], or more.

        For every theta' the term l(theta; x) - l(theta'; x) of one record lies between minus the second and
        plus the first part, so replacing a record moves every mean under the maximum, hence the error, by at
        most this over n (PRIVACY_MATH §9.1).
        """
        smallest, largest = self._extremes
        value = self.rounded_loss.value(self._margins(theta), self.y)
        terms = float((value - smallest).max() + (largest - value).max())
        return max(terms, 2 / TOLERANCE * self.records * self._attainable)

    @cached_property
    def _smoothness(self) -> float:
        """Public bound on the curvature of the objective."""
        problem = self.problem
        bend = float(self.rounded_loss.smoothness(math.inf)) * problem.row_norm**2
        return self.reach**2 * (bend + problem.l2)

    @cached_property
    def _radius(self) -> float:
        """Bound on the distance of a point of the set from its public starting point."""
        C, d = self.problem.C, self.problem.d
        return min(float(C.diameter(2, d)), float(C.norm(2, d)) + float(np.linalg.norm(C.start(d))))

    @cached_property
    def _rows(self) -> Vector:
        """Features of every cell, listed once if they are the same at all levels of the first attribute."""
        levels = self.X.reshape(self.sizes[0], -1, self.problem.d)
        return levels[0] if bool((levels == levels[0]).all()) else self.X

    @cached_property
    def _most_steps(self) -> int:
        """Number of steps that `WORK` allows."""
        products = self.problem.d**2 if self.rounded_loss.affine else self._rows.size
        return WORK // (products + STEP)

    @cached_property
    def _attainable(self) -> float:
        """Accuracy that `WORK` guarantees; the sensitivity of an error is a multiple of it at least."""
        return 2 * self._smoothness * self._radius**2 / self._most_steps**2

    def steps(self, tolerance: float) -> int:
        """Return the public number of accelerated steps after which the loss is within the tolerance.

        After k steps of size 1/L it exceeds the minimum by at most 2 L R^2 / (k + 1)^2, whatever the weights:
        L is `_smoothness`, R bounds the distance from the start to the minimiser (PRIVACY_MATH §9.1, §19).
        """
        return math.ceil(self._radius * math.sqrt(2 * self._smoothness / tolerance))

    def answer(self, weights: Vector) -> Vector:
        """Return the minimiser on a public distribution over the cells; it stops at a certificate."""
        return self._certified_minimiser(weights, TOLERANCE * self.scale / self.records)

    def error(self, weights: Vector, theta: Vector) -> float:
        """Return the excess loss of theta on a distribution, within `TOLERANCE` range(theta) / n.

        The weights may be private. The number of steps is a function of the query and of the public theta,
        no certificate is looked at, and each step does the same operations for all weights.
        """
        steps = self.steps(TOLERANCE / 2 * self.range(theta) / self.records)
        start = self.problem.C.start(self.problem.d)
        best = self._descend(weights, start, steps)
        losses = (self.rounded_loss.value(self._margins(each), self.y) for each in (theta, best))
        a, b = self._point(theta), self._point(best)
        ridge = self.problem.l2 / 2 * float((a - b) @ (a + b))
        # The sum of differences is off by fewer than 32 roundings of the range of a difference.
        return float((weights * (next(losses) - next(losses))).sum()) + ridge

    def certificate(self, theta: Vector, better: Vector) -> Vector:
        """Return u(x) = <better - theta, grad l_x(theta)>, clipped to [-S, S]."""
        slopes = self.rounded_loss.grad(self._margins(theta), self.y)
        step = self.reach * (self.X @ (better - theta))
        u: Vector = np.clip(slopes * step, -self.scale, self.scale)
        return u

    def gradients(self, theta: Vector, clip: float | None = None) -> Vector:
        """Return the gradient of the loss at every cell, (m, d), ridge left out, slopes clipped."""
        slopes = self.rounded_loss.grad(self._margins(theta), self.y)
        gradients: Vector = (slopes if clip is None else np.clip(slopes, -clip, clip))[:, None] * self.X
        return gradients

    def hessian(self, weights: Vector, theta: Vector) -> Vector:
        """Return the Hessian of the objective on a distribution, by central differences of the slope."""
        z, h = self._margins(theta), 1e-4
        bend = (self.rounded_loss.grad(z + h, self.y) - self.rounded_loss.grad(z - h, self.y)) / (2 * h)
        hessian: Vector = (self.X * (weights * bend)[:, None]).T @ self.X
        return hessian + self.problem.l2 * np.eye(self.problem.d)

    def _descend(self, weights: Vector, start: Vector, steps: int) -> Vector:
        """Return the point after accelerated steps of size 1/L; the work does not depend on the weights.

        A quadratic objective is a matrix, which takes one pass over the cells; others take one each step.
        """
        from dpcvx.queries import descent_kernels as kernels

        loss, l2, reach, d = self.rounded_loss, self.problem.l2, self.reach, self.problem.d
        fixed = self._point(np.zeros(d))
        H, b = l2 * np.eye(d), np.zeros(d)
        if loss.affine:
            kind, X = kernels.QUADRATIC, self.X[:0]
            tables = [np.zeros((0, 0))] * 4
            weighted = self.X * weights[:, None]
            H, b = H + weighted.T @ self.X, -(self.y @ weighted)
        else:
            kind, X = kernels.LOGISTIC if loss.link == "logit" else kernels.PIECES, self._rows
            # One row for each level of the first attribute, or one row of all cells. They are copied because
            # kernels are compiled again for arrays that are read-only.
            tables = [table.reshape(-1, len(X)).copy() for table in (weights, self.y, *self._slopes)]
        objective = (reach**2 * H, reach * (b + H @ fixed), (reach * X).T.copy(), X @ fixed, *tables)
        point: Vector = kernels.descend(
            (kind, float(loss.smoothness(math.inf))),
            objective,
            tuple(self._set.projection_form(d)),
            start,
            1 / self._smoothness,
            steps,
        )
        return point

    @property
    def _set(self) -> HasProjectionForm:
        domain = self.problem.C
        if not isinstance(domain, HasProjectionForm):
            raise Incompatible(f"{type(domain).__name__} has no compiled projection, which queries need.")
        return domain

    @cached_property
    def _slopes(self) -> tuple[Vector, Vector]:
        """Lowest and highest slope of the loss at every cell."""
        far = np.full(len(self.y), 1e9)
        return self.rounded_loss.grad(-far, self.y), self.rounded_loss.grad(far, self.y)

    def _certified_minimiser(self, weights: Vector, tolerance: float) -> Vector:
        """Return a point with a loss within ``tolerance`` of the minimum, on public weights.

        Restarted momentum stops at a certificate, the Frank-Wolfe gap max_s <g, theta - s>: its number of
        steps tells about the weights. Where the gap has not been reached, plain momentum follows for the
        number of steps that suffices whatever the weights, as far as `WORK` allows.
        """
        C = self.problem.C

        def gradient(theta: Vector) -> Vector:
            point = self._point(theta)
            slopes: Vector = weights * self.rounded_loss.grad(self.X @ point, self.y)
            return self.reach * (slopes @ self.X + self.problem.l2 * point)

        squares = np.linalg.eigvalsh((self.X * weights[:, None]).T @ self.X)[-1]
        bend = self.rounded_loss.smoothness(math.inf) * float(squares) * (1 + 1e-9) + self.problem.l2
        step = 1 / max(self.reach**2 * bend, 1e-12)
        theta: Vector = C.start(self.problem.d)
        ahead = theta
        t = 1.0
        for count in range(RESTARTED_STEPS):
            if count % CHECK_EVERY == 0:
                g = gradient(theta)
                if float(g @ (theta - C.lmo(g))) <= tolerance:
                    return theta
            moved: Vector = C.project(ahead - step * gradient(ahead))
            if float((ahead - moved) @ (moved - theta)) > 0:  # momentum points uphill
                ahead, t = theta, 1.0
                continue
            following = (1 + math.sqrt(1 + 4 * t * t)) / 2
            ahead = moved + (t - 1) / following * (moved - theta)
            theta, t = moved, following
        # The start of these is a point of the set, at most a diameter away from the minimiser.
        return self._descend(weights, theta, min(2 * self.steps(tolerance), self._most_steps))


def margin_range(domain: Domain, X: Vector) -> tuple[Vector, Vector]:
    """Return the smallest and largest <x, theta> over the set, for every row of X."""
    if isinstance(domain, HasSupport):
        high = domain.support(X) * (1 + ROUNDING)
        return -high, high
    return (
        np.array([x @ domain.lmo(x) for x in X]),  # type: ignore[attr-defined]
        np.array([x @ domain.lmo(-x) for x in X]),  # type: ignore[attr-defined]
    )


@dataclass(frozen=True, eq=False)
class CompiledMeans:
    """Means of public functions of a cell: counts, marginals, means.

    The loss is -<theta, q(x) - answer> over the l1 ball, so the excess loss of an answer is its largest
    error, max_j |sum_x p(x) q_j(x) - answer_j|.
    """

    # attributes, sizes: positions in the schema, and numbers of levels or bins there
    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]  # names of the functions
    values: Vector  # shape (m, k): q_j(x) at every cell, row-major
    description: Query  # query that this was compiled from

    @cached_property
    def scale(self) -> float:
        """S: the widest range of a function; 1 if all are constant."""
        return float((self.values.max(axis=0) - self.values.min(axis=0)).max()) or 1.0

    def range(self, theta: Vector) -> float:
        """Return S: one record moves no mean by more than its function's range over n."""
        return self.scale

    def answer(self, weights: Vector) -> Vector:
        """Return the means."""
        means: Vector = weights @ self.values
        return means

    def error(self, weights: Vector, theta: Vector) -> float:
        """Return the largest error of a mean."""
        low, values = self._centred
        return float(np.abs(weights @ values - (theta - low)).max())

    @cached_property
    def _centred(self) -> tuple[Vector, Vector]:
        """Smallest values, and values minus these: rounding is then relative to the range of the values."""
        low: Vector = self.values.min(axis=0)
        return low, (self.values - low if low.any() else self.values)

    def certificate(self, theta: Vector, better: Vector) -> Vector:
        """Return u(x) = -sign q_j(x) for the mean j that is farthest off, centred."""
        gap = better - theta
        j = int(np.abs(gap).argmax())
        u: Vector = -np.sign(gap[j]) * (self.values[:, j] - theta[j])
        return u

    def gradients(self, theta: Vector) -> Vector:
        """Return the functions."""
        return self.values


@dataclass(frozen=True)
class _RoundedPinball:
    """The pinball loss with its corner rounded: its Moreau envelope, at most CORNER/2 max(q, 1-q)^2 below.

    s r - CORNER s^2 / 2 with r = z - y and s = r / CORNER clipped to [-q, 1 - q]
    """

    quantile: float

    affine: ClassVar[bool] = False
    link: ClassVar[str] = "identity"

    def value(self, z: Vector, y: Vector) -> Vector:
        s = self.grad(z, y)
        return s * (z - y) - CORNER / 2 * s**2

    def grad(self, z: Vector, y: Vector) -> Vector:
        return np.clip((z - y) / CORNER, -self.quantile, 1 - self.quantile)

    def smoothness(self, z_max: float) -> float:
        return 1 / CORNER
