"""Regressions on too many cells to list, answered from released pairs alone; post-processing.

Records are drawn from a tree of the strongest dependences, with public randomness. A linear map then gives
their features and target the means and second moments that the released pairs say. Squared loss depends on
nothing else, so its answer is that of the pairs themselves; other losses also see the shape of the
distribution, which the drawn records have. For losses of labels the records are y x, whose second moments
are those of x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible
from dpcvx.problem import Bounds, Problem
from dpcvx.queries.compiled import CompiledRegression, Query
from dpcvx.queries.error_bars import PropagatedNoise, inverse_hessian, shrunk_by_set
from dpcvx.queries.local_models import LocalModels

__all__ = ["WideRegression", "minimise_in_ball"]

ROWS = 2**12  # drawn records
SEED = 18  # of the public randomness that draws them
LARGEST = 1.99  # entry of a moved record, which may leave [-1, 1]; problems have bounds below 2
FLOOR = 1e-9  # smallest eigenvalue of a covariance relative to its largest one
NEWTON_STEPS, BISECTIONS = 30, 40
ENOUGH = 1e-9  # decrease at which Newton's method stops


@dataclass(frozen=True, eq=False)
class WideRegression:
    """argmin over C of E phi(<x, theta>, y) + (l2/2) ||theta||^2, x and y functions of single attributes."""

    attributes: tuple[int, ...]  # positions in the schema: target first, then features
    sizes: tuple[int, ...]  # numbers of levels or bins there
    names: tuple[str, ...]  # names of the coefficients
    problem: Problem  # loss, set, bounds and ridge
    columns: tuple[Vector, ...]  # columns of each feature at its levels, (size, k)
    target: Vector  # value of the target at its levels
    present: Vector  # 1 where the target has a value, else 0; such records are left out
    records: int  # public number of records
    description: Query = field(kw_only=True)
    units: ClassVar[None] = None  # an answer has coefficients, not a mean

    @property
    def intercept(self) -> bool:
        """Whether there is a column of ones, the first one."""
        return self.problem.d > sum(int(table.shape[1]) for table in self.columns)

    def reported(self, theta: Vector) -> Vector:
        """Return the coefficients."""
        return theta

    @cached_property
    def scale(self) -> float:
        """Bound on |l(theta; x) - l(theta'; x)| over the set and the cells."""
        far = self.problem.row_norm * self.radius
        slopes = (self.problem.loss.grad(np.full(2, end), self.target_ends) for end in (-far, far))
        return 2 * far * max(float(np.abs(each).max()) for each in slopes)

    @property
    def radius(self) -> float:
        """Radius of a ball about 0 that holds the set."""
        return float(self.problem.C.norm(2, self.problem.d))

    @property
    def target_ends(self) -> Vector:
        """Least and largest target."""
        values = self.target[self.present == 1]
        return np.array([values.min(), values.max()])

    def rows(self, codes: IntVector) -> tuple[Vector, Vector]:
        """Features and targets of records by their codes; a record without a target has features 0.

        `codes`: (attributes, m), target first.
        """
        present = self.present[codes[0]]
        parts = [np.ones((len(present), 1))] if self.intercept else []
        parts += [f[at] for f, at in zip(self.columns, codes[1:], strict=True)]
        y = self.target[codes[0]]
        if self.problem.loss.target == "labels":
            y = np.where(present == 1, y, 1.0)
        return np.concatenate(parts, axis=1) * present[:, None], y

    def margins(self, theta: Vector) -> tuple[float, float]:
        """Least and largest <x, theta> over all cells, 0 included."""
        start = int(self.intercept)
        low = high = float(theta[0]) if self.intercept else 0.0
        for f in self.columns:
            scores = f @ theta[start : start + f.shape[1]]
            low, high = low + float(scores.min()), high + float(scores.max())
            start += f.shape[1]
        return min(low, 0.0), max(high, 0.0)

    def answer(self, weights: Vector) -> Vector:
        """Refuse: there are too many cells for weights of all of them."""
        raise self._refusal()

    def range(self, theta: Vector) -> float:
        """Refuse: answers are compared by `wide_check.WideAnswer`."""
        raise self._refusal()

    def error(self, weights: Vector, theta: Vector) -> float:
        """Refuse: there are too many cells for weights of all of them."""
        raise self._refusal()

    def certificate(self, theta: Vector, better: Vector) -> Vector:
        """Refuse: there are too many cells to list a certificate at."""
        raise self._refusal()

    def gradients(self, theta: Vector) -> Vector:
        """Refuse: there are too many cells to list gradients at."""
        raise self._refusal()

    def _refusal(self) -> Incompatible:
        return Incompatible(
            f"This regression has {math.prod(self.sizes):,} cells, too many to list: it is answered from "
            "released pairs. Ask about fewer attributes."
        )

    def fit(self, models: LocalModels) -> tuple[Vector, PropagatedNoise]:
        """Return the minimiser on the model of the released pairs, and the effect of their noise on it."""
        X, y = self._rows(models)
        X = np.clip(X, -LARGEST, LARGEST)
        bounds = Bounds(LARGEST, float(np.linalg.norm(X, axis=1).max()))
        old = self.problem
        problem = Problem(old.loss, old.domain, bounds=bounds, d=old.d, l2=old.l2)
        rows = CompiledRegression(
            (0,), (len(X),), self.names, problem, X, y, self.records, description=self.description
        )
        weights = np.full(len(X), 1 / len(X))
        theta = minimise_in_ball(rows, weights) if problem.is_round else rows.answer(weights)
        return theta, self._noise(models, rows, weights, theta)

    def _moments(self, models: LocalModels) -> tuple[Vector, Vector, Vector, float]:
        """E x, E x x^T, E y x and E y^2 among the records that have a target; without the intercept."""
        target, *features = self.attributes
        shares = models.shares(target) * self.present
        share = max(float(shares.sum()), 1e-9)
        both = np.stack([self.present, self.present * self.target], axis=1)
        means, with_target, blocks = [], [], []
        for a, f in zip(features, self.columns, strict=True):
            found = models.products(target, both, a, f) / share
            means.append(found[0])
            with_target.append(found[1])
        for i, (a, f) in enumerate(zip(features, self.columns, strict=True)):
            row = []
            for j, (b, g) in enumerate(zip(features, self.columns, strict=True)):
                if i == j:
                    p = models.shares(a)
                    centre = p @ f
                    covariance = (f * p[:, None]).T @ f - np.outer(centre, centre)
                else:
                    p, q = models.shares(a), models.shares(b)
                    covariance = models.products(a, f, b, g) - np.outer(p @ f, q @ g)
                row.append(covariance + np.outer(means[i], means[j]))
            blocks.append(row)
        second = np.block(blocks) if blocks else np.zeros((0, 0))
        return (
            np.concatenate(means) if means else np.zeros(0),
            second,
            np.concatenate([[float(shares @ self.target) / share], *with_target]),
            float(shares @ self.target**2) / share,
        )

    def _rows(self, models: LocalModels) -> tuple[Vector, Vector]:
        """Features and targets of drawn records, with the moments of the release."""
        uniform = np.random.default_rng(SEED).random((len(self.attributes), ROWS))
        codes = models.draw(self.attributes, uniform)
        target, *features = self.attributes
        inside = self.present[codes[target]] == 1
        if inside.sum() < ROWS // 2:  # a target that is mostly missing; the rest must not be few
            uniform = np.random.default_rng(SEED).random((len(self.attributes), 8 * ROWS))
            codes = models.draw(self.attributes, uniform)
            inside = self.present[codes[target]] == 1
        parts = [f[codes[a][inside]] for a, f in zip(features, self.columns, strict=True)]
        y = self.target[codes[target][inside]]
        x = np.concatenate(parts, axis=1) if parts else np.zeros((len(y), 0))
        means, second, with_target, square = self._moments(models)
        ones = np.ones((len(y), 1))
        if self.problem.loss.target == "labels":
            full = np.concatenate([ones, x], axis=1) if self.intercept else x
            moments = _bordered(1.0, means, second) if self.intercept else second
            mean = with_target if self.intercept else with_target[1:]
            return _moved(full * y[:, None], mean, moments), np.ones(len(y))
        joint = _moved(
            np.concatenate([y[:, None], x], axis=1),
            np.concatenate([with_target[:1], means]),
            _bordered(square, with_target[1:], second),
        )
        X = np.concatenate([ones, joint[:, 1:]], axis=1) if self.intercept else joint[:, 1:]
        return X, joint[:, 0]

    def _noise(
        self, models: LocalModels, rows: CompiledRegression, weights: Vector, theta: Vector
    ) -> PropagatedNoise:
        """Effect of the noise of released pairs, to first order; noise on different columns as independent.

        A gradient E phi' x has the noise of E y x times the change of phi' with y, and the noise of E x x^T
        times theta and the curvature.
        """
        bend, slope = (0.25, 0.5) if self.problem.loss.target == "labels" else (1.0, 1.0)
        target, *features = self.attributes
        start = self.problem.d - sum(f.shape[1] for f in self.columns)
        parts = np.split(theta[start:], np.cumsum([f.shape[1] for f in self.columns])[:-1])
        y = (self.present * self.target)[:, None]
        variances = [np.zeros(start)]
        for a, f in zip(features, self.columns, strict=True):
            own = slope**2 * models.product_variances(a, f, target, y)[:, 0]
            for b, g, part in zip(features, self.columns, parts, strict=True):
                if a != b:
                    own = own + bend**2 * models.product_variances(a, f, b, g) @ part**2
            variances.append(own)
        V = np.diag(np.concatenate(variances))
        inverse = inverse_hessian(rows, weights, theta)
        error, shrunk = float(np.trace(inverse @ V)) / 2, shrunk_by_set(rows, weights, theta)
        return PropagatedNoise(error, inverse @ V @ inverse, inverse, shrunk=shrunk)


def _bordered(corner: float, border: Vector, inner: Vector) -> Vector:
    return np.block([[np.full((1, 1), corner), border[None, :]], [border[:, None], inner]])


def _moved(rows: Vector, mean: Vector, second: Vector) -> Vector:
    """Return rows moved to a mean and to second moments, by the affine map that moves them least.

    Moments that no distribution has are replaced by the nearest positive semidefinite ones.
    """
    centred = rows - rows.mean(axis=0)
    found = centred.T @ centred / len(rows)
    wanted = second - np.outer(mean, mean)
    if not len(wanted):
        return rows
    floor = FLOOR * max(float(np.trace(found)), 1e-12)
    root, back = _roots(found + floor * np.eye(len(found)))
    middle, _ = _roots(root @ _semidefinite(wanted) @ root)
    moved: Vector = mean + centred @ (back @ middle @ back)
    return moved


def _semidefinite(matrix: Vector) -> Vector:
    sizes, directions = np.linalg.eigh((matrix + matrix.T) / 2)
    found: Vector = (directions * np.maximum(sizes, 0.0)) @ directions.T
    return found


def _roots(matrix: Vector) -> tuple[Vector, Vector]:
    """Return the square root of a positive semidefinite matrix, and the inverse of the root."""
    sizes, directions = np.linalg.eigh((matrix + matrix.T) / 2)
    roots = np.sqrt(np.maximum(sizes, 1e-15))
    return (directions * roots) @ directions.T, (directions / roots) @ directions.T


def minimise_in_ball(rows: CompiledRegression, weights: Vector) -> Vector:
    """Minimise over an l2 ball by Newton's method; outside of it, with the multiplier found by bisection."""
    domain: Any = rows.problem.domain
    radius, d = float(domain.radius), rows.problem.d
    theta = _newton(rows, weights, 0.0, np.zeros(d))
    if np.linalg.norm(theta) <= radius:
        return theta
    low, high = 0.0, 1.0
    while np.linalg.norm(theta := _newton(rows, weights, high, theta)) > radius:
        low, high = high, 4 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        theta = _newton(rows, weights, middle, theta)
        length = float(np.linalg.norm(theta))
        if abs(length - radius) < 1e-4 * radius:
            break
        low, high = (middle, high) if length > radius else (low, middle)
    return theta * min(1.0, radius / float(np.linalg.norm(theta)))


def _newton(rows: CompiledRegression, weights: Vector, ridge: float, theta: Vector) -> Vector:
    loss, l2 = rows.rounded_loss, rows.problem.l2 + ridge

    def value(point: Vector) -> float:
        return float(weights @ loss.value(rows.X @ point, rows.y)) + l2 / 2 * float(point @ point)

    now = value(theta)
    for _ in range(NEWTON_STEPS):
        slopes = loss.grad(rows.X @ theta, rows.y)
        gradient = (weights * slopes) @ rows.X + l2 * theta
        H = rows.hessian(weights, theta) + ridge * np.eye(len(theta))
        H += 1e-7 * max(1e-9, float(np.trace(H)) / len(H)) * np.eye(len(H))
        direction = -np.linalg.solve(H, gradient)
        decrease = -float(gradient @ direction)
        if decrease < ENOUGH:
            break
        step, following = 2.0, math.inf
        while step > 1e-5 and following > now - 0.1 * step * decrease:
            step /= 2
            following = value(theta + step * direction)
        theta, now = theta + step * direction, following
    return theta
