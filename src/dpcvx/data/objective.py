"""Sum of the losses over records in float64, for minimisers that run beside the records."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.rows import Dense, Sparse
from dpcvx.losses import Loss

__all__ = ["BLOCK_ROWS", "Objective", "SumOfLosses"]

BLOCK_ROWS = 1024  # rows of one floating-point sum; the sums of blocks are added pairwise


class SumOfLosses(Protocol):
    """sum_i phi(<x_i, theta>, y_i) in float64, wherever the records are.

    Its gradient is rounded as `RidgeFacts.rounding` assumes: sums of at most `BLOCK_ROWS` rows in any
    order, and of these sums pairwise.
    """

    @property
    def n(self) -> int:
        """Number of records."""

    def value(self, theta: Vector) -> float:
        """Return the sum at theta."""

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient at theta, in its shape."""

    def hessian(self, theta: Vector) -> Vector:
        """Return the Hessian at theta for one output, good for a Newton step."""


class Objective:
    """sum_i phi(<x_i, theta>, y_i) over stored rows, in float64.

    Beyond |z| = z_max phi is continued along its tangent, which changes no minimiser over a set where
    |<x, theta>| <= z_max and keeps its slopes bounded everywhere (PRIVACY_MATH §4). Targets are held to the
    range that slopes are bounded for: clipped for regression, and no label at all where it is not -1 or 1. A
    record without a target is left out.

    `rows`: stored integers, row-major; `y`: ndarray, shape (K, n), targets, or one row of class codes;
    `z_max`: public bound on |<x, theta>| over the set; inf without one; `weights`: weights of the records in
    [0, 1], shape (n,); `units`: number of units, where it is not that of rows.
    """

    n: int
    d: int

    def __init__(
        self,
        rows: Dense | Sparse,
        y: Vector,
        loss: Loss,
        z_max: float,
        weights: Vector | None = None,
        units: int | None = None,
    ) -> None:
        count, self.d = rows.shape
        self.n = count if units is None else units
        self._loss, self._z_max = loss, math.inf if loss.joint else z_max
        unit = 2.0**-FEATURE_BITS
        if isinstance(rows, Dense):
            X: Any = rows.values * unit
        else:
            from scipy.sparse import csr_array

            X = csr_array((rows.values * unit, rows.indices, rows.indptr), shape=rows.shape)
        blocks = [X[start : start + BLOCK_ROWS] for start in range(0, count, BLOCK_ROWS)]
        self._blocks = [(block, block.T) for block in blocks]
        self._X = X
        if loss.target == "labels":
            y = np.where(np.abs(y) == 1, y, 0.0)
        elif loss.target != "codes":
            y = np.clip(y, *loss.y_range)
        y = y[0] if len(y) == 1 else np.ascontiguousarray(y.T)
        missing = np.isnan(y)
        parts = np.ones(count) if weights is None else weights
        # Of a joint loss all scores of a record have its weight, and a missing label has the slope 0.
        shaped = parts[:, None] if loss.joint or y.ndim == 2 else parts
        self._shares = shaped if loss.joint else np.where(missing, 0.0, shaped)
        self._value_shares = parts if loss.joint else self._shares
        self._y = np.where(missing, -1.0 if loss.target == "codes" else 0.0, y)

    def value(self, theta: Vector) -> float:
        """Return the sum at theta."""
        z = self._X @ theta
        inside = np.clip(z, -self._z_max, self._z_max)
        tangent = self._slopes(inside) * (z - inside) if np.isfinite(self._z_max) else 0.0
        values = self._value_shares * self._loss.value(inside, self._y)
        return math.fsum(values.ravel()) + math.fsum(np.ravel(tangent))

    def _slopes(self, z: Vector) -> Vector:
        """phi' of every record, in the shape of z."""
        return self._shares * self._loss.grad(z, self._y)

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient at theta, in its shape, within `RidgeFacts.rounding` of the exact one."""
        z = np.clip(self._X @ theta, -self._z_max, self._z_max)
        slopes = self._slopes(z)
        parts = [
            transposed @ slopes[i * BLOCK_ROWS : (i + 1) * BLOCK_ROWS]
            for i, (_, transposed) in enumerate(self._blocks)
        ]
        # NumPy sums pairwise along the fast axis.
        total: Vector = np.ascontiguousarray(np.stack(parts, axis=-1)).sum(axis=-1)
        return total

    def hessian(self, theta: Vector) -> Vector:
        """Return X^T diag(phi'') X for one output, phi'' by central differences: good for a Newton step."""
        z, h = self._X @ theta, 1e-5
        bend = (self._slopes(z + h) - self._slopes(z - h)) / (2 * h)
        bend = np.where(np.abs(z) < self._z_max, np.maximum(bend, 0.0), 0.0)
        total = np.zeros((self.d, self.d))
        for i, (block, transposed) in enumerate(self._blocks):
            weights = bend[i * BLOCK_ROWS : (i + 1) * BLOCK_ROWS]
            product = transposed @ (block * weights[:, None])
            total += product if isinstance(product, np.ndarray) else product.toarray()
        return total
