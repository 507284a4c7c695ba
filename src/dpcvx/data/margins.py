"""Margins of records in memory, kept up to date while an iterate moves along coordinates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import ResidualBound, records_at_once
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.threads import SLOPE_WORK, in_threads
from dpcvx.losses import Loss

__all__ = ["MarginsInMemory"]

Accumulate = Callable[[NDArray[np.int32], ResidualBound], IntVector]


class MarginsInMemory:
    """Margins of records in memory, moved one feature-major column at a time.

    `columns`: stored integers, feature-major; `y`: ndarray of float64, shape (K, n); `accumulate`: returns
    sum_i rho_i k_i, (K, d), where the sums of all records do not fit 62 bits; `threads`: threads of a pass.
    """

    def __init__(
        self,
        columns: Dense | Sparse,
        y: Vector,
        loss: Loss,
        outputs: int,
        *,
        accumulate: Accumulate,
        threads: int | None,
    ) -> None:
        self._columns, self._y, self._loss = columns, y, loss
        self._accumulate, self._threads = accumulate, threads
        self._d, n = columns.shape
        self._margins: NDArray[np.int64] = np.zeros((outputs, n), dtype=np.int64)
        self._rho: NDArray[np.int32] = np.zeros((outputs, n), dtype=np.int32)

    def reset(self) -> None:
        """Set w = 0."""
        self._margins[:] = 0

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""
        from dpcvx.data import kernels

        outputs = self._margins.shape[0]
        if not 0 <= index < self._d * outputs:
            raise IndexError(f"index must be in 0..{self._d * outputs - 1}, got {index}.")
        j, k = divmod(index, outputs)
        columns = self._columns
        if isinstance(columns, Dense):
            kernels.add_dense(columns.values[j], amount, self._margins[k])
        else:
            start, stop = columns.indptr[j], columns.indptr[j + 1]
            kernels.add_sparse(
                columns.indices[start:stop], columns.values[start:stop], amount, self._margins[k]
            )

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
        from dpcvx.data import kernels

        columns, rho = self._columns, self._rho
        function = kernels.residuals_of(self._loss.slope, self._loss.joint, self._loss.offset)
        rest = (scale, self._loss.parameter, bound.l2, bound.linf)
        outputs, n = rho.shape
        sums = np.empty((outputs, self._d), dtype=np.int64)

        def residuals(start: int, stop: int) -> None:
            kernels.block_residuals(function, self._margins, self._y, 0, start, stop, *rest, rho)

        def products(start: int, stop: int) -> None:
            if isinstance(columns, Dense):
                kernels.multiply_dense(columns.values, rho, start, stop, start, sums)
            else:
                kernels.multiply_sparse(
                    columns.indptr, columns.indices, columns.values, rho, start, stop, start, sums
                )

        in_threads(residuals, n, SLOPE_WORK * n * outputs, threads=self._threads)
        if n > records_at_once(bound):
            sums = self._accumulate(rho, bound)
        else:
            in_threads(products, self._d, columns.size * outputs, threads=self._threads)
        return sums[0] if outputs == 1 else sums.T.copy()
