"""Records on a GPU: the two passes over them run there, everything else where it always does.

Margins come to the host as integers, residuals are computed here by the compiled functions that serve records
in memory, and go back as integers. So the sums have the bits of the CPU for every loss, and no exponential of
the GPU takes part. Noise is drawn on the host.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dpcvx.arrays import IntVector, Vector
from dpcvx.backends import Encode, InMemory
from dpcvx.data import Arrays, Margins, Points, exact_sum, records_at_once
from dpcvx.device.products import DenseOnDevice, SparseOnDevice
from dpcvx.grid import Dense, ResidualBound, fixed_point
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

if TYPE_CHECKING:
    from dpcvx.curvature import CurvatureBound, Sums
    from dpcvx.data import DataSource
    from dpcvx.estimators.columns import Columns
    from dpcvx.grid import Door, Sparse
    from dpcvx.minimise import SumOfLosses

__all__ = ["ForDevice", "OnDevice"]

MARGINS_AT_ONCE = 2**24  # 128 MiB; short blocks would cost more in threads than they hide
SPARE_BYTES = 2**30  # of the GPU's memory, beside the records


class ForDevice(InMemory):
    """Arrays and tables in this process, to be put on a device behind the door.

    Parameters
    ----------
    X, y
        As for `InMemory`.
    device : torch.device
    """

    def __init__(self, X: Any, y: Any, device: torch.device) -> None:
        super().__init__(X, y)
        self._device = device

    def source(self, columns: Columns, door: Door, encode: Encode, layout: str) -> DataSource:
        """Take every record through the door, and to the device if it has room."""
        rows = columns.rows(self.table, door)
        # A selection over compressed records touches few of them at a step, which the host does best.
        there = (isinstance(rows, Dense) or layout == "rows") and _has_room(rows, self._device)
        host = Arrays(rows, encode(self.target), bounds=door.bounds, layout="rows" if there else layout)
        return OnDevice(host, self._device) if there else host


def _has_room(rows: Dense | Sparse, device: torch.device) -> bool:
    """Whether the free memory of the device holds the records; if not, warn."""
    if device.type != "cuda":
        return True
    needed = rows.size * (rows.values.itemsize + (0 if isinstance(rows, Dense) else rows.indices.itemsize))
    free, _ = torch.cuda.mem_get_info(device)
    if needed + SPARE_BYTES <= free:
        return True
    warnings.warn(
        f"The records take {needed / 2**30:.1f} GiB and the GPU has {free / 2**30:.1f} GiB free, so the "
        "CPU does the work, with the same integer sums.",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


class OnDevice:
    """Records whose gradients and scores are summed on a device.

    Questions that read few rows, or work in float64, are answered by `Arrays` on the host, which keeps the
    records too.

    Parameters
    ----------
    host : Arrays
        The records.
    device : torch.device
    """

    def __init__(self, host: Arrays, device: torch.device) -> None:
        self._host = host
        self.n, self.d, self.device = host.n, host.d, device
        rows = host.rows()
        self.stored = (
            DenseOnDevice(rows.values, device)
            if isinstance(rows, Dense)
            else SparseOnDevice(rows.indptr, rows.indices, rows.values, device)
        )

    def within(self, bounds: Bounds) -> OnDevice:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""
        held = self._host.within(bounds)
        return self if held is self._host else OnDevice(held, self.device)

    def gradient_sum(self, loss: Loss, theta: Vector, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_i in units of 2^-34, in the shape of theta."""
        integers, unit = fixed_point(theta)
        if integers.shape[1] != self.d:
            raise ValueError(f"theta has {integers.shape[1]} rows, but the records have {self.d} features.")
        weights = torch.from_numpy(integers).to(self.device)

        def margins(start: int, stop: int) -> torch.Tensor:
            return self.stored.margins(weights, start, stop)

        sums = self.sums(loss, margins, len(weights), unit, bound)
        return sums.T.copy().reshape(np.shape(theta))

    def sums(
        self,
        loss: Loss,
        margins: Callable[[int, int], torch.Tensor],
        outputs: int,
        unit: float,
        bound: ResidualBound,
    ) -> IntVector:
        """Return sum_i rho_i k_i, (K, d), for margins of ranges of records on the device."""
        parts = []
        for first, last in _ranges(0, self.n, records_at_once(bound)):
            sums = torch.zeros((outputs, self.d), dtype=torch.int64, device=self.device)
            for start, stop in _ranges(first, last, max(1, MARGINS_AT_ONCE // outputs)):
                arrived = self._at_host(outputs, stop - start, torch.int64).copy_(margins(start, stop))
                rho = self._at_host(outputs, stop - start, torch.int32)
                self._host.residuals(loss, arrived.numpy(), start, unit, bound, rho.numpy())
                self.stored.add_sums(rho.to(self.device), start, stop, sums)
            parts.append(sums.cpu().numpy())
        return exact_sum(parts, self.n, bound)

    def _at_host(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the host that the device reaches at full speed."""
        return torch.empty((rows, columns), dtype=dtype, pin_memory=self.device.type == "cuda")

    def difference_sum(
        self, loss: Loss, points: Points, batch: IntVector, residual: ResidualBound, bound: ResidualBound
    ) -> IntVector:
        """Return sum_i (rho_i - rho'_i) k_i over the rows of a batch, in the shape of an iterate."""
        return self._host.difference_sum(loss, points, batch, residual, bound)

    def objective(self, loss: Loss, outputs: int, z_max: float) -> SumOfLosses:
        """Return the sum of the losses, phi continued along its tangent beyond |z| = z_max."""
        return self._host.objective(loss, outputs, z_max)

    def curvature_sum(self, loss: Loss, theta: Vector, slope: ResidualBound, bend: CurvatureBound) -> Sums:
        """Return the sums of `dpcvx.curvature.curvature_sum` over all records."""
        return self._host.curvature_sum(loss, theta, slope, bend)

    def moments(self, order: int, centers: IntVector, limits: IntVector) -> IntVector:
        """Return the sums of (k - c)^order over the records, |k - c| clipped to a limit, per column."""
        return self._host.moments(order, centers, limits)

    def length(self) -> IntVector:
        """Return the sum of ||k_i||^2, one entry."""
        return self._host.length()

    def mapped(self, door: Door, center: float, scale: float) -> OnDevice:
        """Return these records after a second, public map: the door's on rows, (y - center)/scale on y."""
        return OnDevice(self._host.mapped(door, center, scale), self.device)

    def follow(self, loss: Loss, outputs: int) -> Margins:
        """Return margins that start at w = 0: of dense records on the device, of compressed ones here."""
        if isinstance(self.stored, SparseOnDevice):
            return self._host.follow(loss, outputs)
        return FollowedOnDevice(self, self.stored, loss, outputs)


class FollowedOnDevice:
    """Margins of dense records, kept on their device."""

    def __init__(self, records: OnDevice, stored: DenseOnDevice, loss: Loss, outputs: int) -> None:
        self._records, self._stored, self._loss = records, stored, loss
        self._margins = torch.zeros((outputs, records.n), dtype=torch.int64, device=records.device)

    def reset(self) -> None:
        """Set w = 0."""
        self._margins.zero_()

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""
        outputs = len(self._margins)
        if not 0 <= index < self._records.d * outputs:
            raise IndexError(f"index must be in 0..{self._records.d * outputs - 1}, got {index}.")
        j, k = divmod(index, outputs)
        self._margins[k] += self._stored.column(j) * amount

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
        outputs = len(self._margins)
        sums = self._records.sums(self._loss, self._block, outputs, scale, bound)
        return sums[0] if outputs == 1 else sums.T.copy()

    def _block(self, start: int, stop: int) -> torch.Tensor:
        return self._margins[:, start:stop]


def _ranges(first: int, last: int, height: int) -> list[tuple[int, int]]:
    """Ranges of at most `height` that cover first..last."""
    return [(start, min(last, start + height)) for start in range(first, last, height)]
