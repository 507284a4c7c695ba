"""Records on a GPU: the two passes over them run there, everything else where it always does.

Margins come to the host as integers, residuals are computed here by the compiled functions that serve records
in memory, and go back as integers. So the sums have the bits of the CPU for every loss, and no exponential of
the GPU takes part. Noise is drawn on the host.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import ResidualBound, exact_sum, fixed_point, records_at_once
from dpcvx.data.memory import Arrays
from dpcvx.data.rows import Dense, Records, Sparse
from dpcvx.data.source import Margins
from dpcvx.data.sums import GradientSum, Sum
from dpcvx.data.threads import SLOPE_WORK, in_threads
from dpcvx.gpu.products import DenseOnDevice, SparseOnDevice
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

if TYPE_CHECKING:
    from dpcvx.data.objective import SumOfLosses
    from dpcvx.data.quantise import Quantiser
    from dpcvx.data.shards.source import ShardSource
    from dpcvx.data.source import DataSource

__all__ = ["OnDevice", "put"]

Answer = TypeVar("Answer")

MARGINS_AT_ONCE = 2**24  # 128 MiB; short blocks would cost more in threads than they hide
SPARE_BYTES = 2**30  # of the GPU's memory, beside the records


def put(host: Arrays | ShardSource, device: torch.device, layout: str) -> DataSource:
    """Return records on a device, or where they are if that is the better place or the only one.

    `layout`: {"rows", "columns"}, storage order that serves the plan best.
    """
    parts = _parts(host)
    # A selection over compressed records touches few of them at a step, which the host does best.
    if _is_sparse(parts[0]) and layout == "columns":
        return host
    return OnDevice(host, device) if _has_room(parts, device) else host


def _parts(host: Arrays | ShardSource) -> list[Records]:
    """The records as they are kept: all of them, or a shard at a time."""
    if isinstance(host, Arrays):
        return [host.records()]
    parts = (host.stored(index) for index in range(len(host.starts) - 1))
    return [replace(part, y=np.ascontiguousarray(part.y, dtype=np.float64)) for part in parts]


def _residuals(
    part: Records,
    loss: Loss,
    margins: NDArray[np.int64],
    first: int,
    unit: float,
    bound: ResidualBound,
    rho: NDArray[np.int32],
) -> None:
    """Write the residuals of the records that begin with number ``first``, at z_i = m_i * unit."""
    from dpcvx.data import kernels

    function = kernels.residuals_of(loss.slope, loss.joint, loss.offset)
    y = part.targets(loss, len(margins))
    rest = (unit, loss.parameter, bound.l2, bound.linf)

    def of_range(start: int, stop: int) -> None:
        kernels.block_residuals(function, margins, y, first, start, stop, *rest, rho)

    in_threads(of_range, margins.shape[1], SLOPE_WORK * margins.size, threads=part.threads)


def _is_sparse(part: Records) -> bool:
    return isinstance(part.rows, Sparse)


def _has_room(parts: list[Records], device: torch.device) -> bool:
    """Whether the free memory of the device holds the records; if not, warn where their size is public."""
    if device.type != "cuda":
        return True
    needed = sum(_bytes(part) for part in parts)
    free, _ = torch.cuda.mem_get_info(device)
    if needed + SPARE_BYTES <= free:
        return True
    # How many cells of compressed records are filled is private, and so is the number of rows of persons.
    if not any(_is_sparse(part) or part.weighted for part in parts):
        warnings.warn(
            f"The records take {needed / 2**30:.1f} GiB and the GPU has {free / 2**30:.1f} GiB free, so the "
            "CPU does the work, with the same integer sums.",
            RuntimeWarning,
            stacklevel=2,
        )
    return False


def _bytes(part: Records) -> int:
    if not _is_sparse(part):
        return 2 * part.n * part.d
    rows = part.whole_rows()
    return rows.values.nbytes + (rows.indices.nbytes if isinstance(rows, Sparse) else 0)


def _sent(rows: Dense | Sparse, device: torch.device) -> DenseOnDevice | SparseOnDevice:
    if isinstance(rows, Dense):
        return DenseOnDevice(rows.values, device)
    return SparseOnDevice(rows.indptr, rows.indices, rows.values, device)


class OnDevice:
    """Records whose gradients and scores are summed on a device.

    Questions that read few rows, or work in float64, are answered by the source that the records came from,
    in memory or on disk.

    `host`: the records.
    """

    def __init__(self, host: Arrays | ShardSource, device: torch.device) -> None:
        self._host, self._parts = host, _parts(host)
        self.n, self.d, self.device = host.n, host.d, device
        self.stored = [_sent(part.whole_rows(), device) for part in self._parts]

    @property
    def weight(self) -> int:
        """Largest sum of the weights of one unit's records; 1 where records have none."""
        return self._host.weight

    def within(self, bounds: Bounds) -> OnDevice:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""
        held = self._host.within(bounds)
        return self if held is self._host else OnDevice(held, self.device)

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return an exact sum over all records: of gradients on the device, others where they came from."""
        if isinstance(question, GradientSum):
            return cast(Answer, self._gradients(question))
        return self._host.sum(question)

    def _gradients(self, question: GradientSum) -> IntVector:
        question.check(self.d)
        integers, unit = fixed_point(question.theta)
        weights = torch.from_numpy(integers).to(self.device)

        def margins(place: int, start: int, stop: int) -> torch.Tensor:
            return self.stored[place].margins(weights, start, stop)

        sums = self.weighted_rows(question.loss, margins, len(weights), unit, question.bound)
        return sums.T.copy().reshape(np.shape(question.theta))

    def weighted_rows(
        self,
        loss: Loss,
        margins: Callable[[int, int, int], torch.Tensor],
        outputs: int,
        unit: float,
        bound: ResidualBound,
    ) -> IntVector:
        """Return sum_i rho_i k_i, (K, d), for margins of ranges of records of a part, on the device."""
        found = []
        for place, (part, stored) in enumerate(zip(self._parts, self.stored, strict=True)):
            for first, last in _ranges(0, part.n, records_at_once(bound)):
                sums = torch.zeros((outputs, self.d), dtype=torch.int64, device=self.device)
                for start, stop in _ranges(first, last, max(1, MARGINS_AT_ONCE // outputs)):
                    arrived = self._at_host(outputs, stop - start, torch.int64)
                    arrived.copy_(margins(place, start, stop))
                    rho = self._at_host(outputs, stop - start, torch.int32)
                    _residuals(part, loss, arrived.numpy(), start, unit, bound, rho.numpy())
                    stored.add_sums(rho.to(self.device), start, stop, sums)
                found.append(sums.cpu().numpy())
        return exact_sum(found, self.n, bound)

    def _at_host(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the host that the device reaches at full speed."""
        return torch.empty((rows, columns), dtype=dtype, pin_memory=self.device.type == "cuda")

    def objective(self, loss: Loss, outputs: int, z_max: float) -> SumOfLosses:
        """Return the sum of the losses, phi continued along its tangent beyond |z| = z_max."""
        return self._host.objective(loss, outputs, z_max)

    def mapped(self, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector) -> OnDevice:
        """Return these records with rows quantised again and targets (y - center)/scale, a public map."""
        if quantiser is None:
            again = copy(self)
            again._host = self._host.mapped(None, center, scale)
            again._parts = _parts(again._host)
            return again
        return OnDevice(self._host.mapped(quantiser, center, scale), self.device)

    def follow(self, loss: Loss, outputs: int) -> Margins:
        """Return margins that start at w = 0: of dense records on the device, of compressed ones here."""
        dense = [stored for stored in self.stored if isinstance(stored, DenseOnDevice)]
        if len(dense) < len(self.stored):
            return self._host.follow(loss, outputs)
        return MarginsOnGpu(self, dense, loss, outputs)


class MarginsOnGpu:
    """Margins of dense records, kept on their device."""

    def __init__(self, records: OnDevice, stored: list[DenseOnDevice], loss: Loss, outputs: int) -> None:
        self._records, self._stored, self._loss, self._outputs = records, stored, loss, outputs
        self._margins = [
            torch.zeros((outputs, len(part.rows)), dtype=torch.int64, device=records.device)
            for part in stored
        ]

    def reset(self) -> None:
        """Set w = 0."""
        for margins in self._margins:
            margins.zero_()

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""
        if not 0 <= index < self._records.d * self._outputs:
            raise IndexError(f"index must be in 0..{self._records.d * self._outputs - 1}, got {index}.")
        j, k = divmod(index, self._outputs)
        for margins, stored in zip(self._margins, self._stored, strict=True):
            margins[k] += stored.column(j) * amount

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
        sums = self._records.weighted_rows(self._loss, self._block, self._outputs, scale, bound)
        return sums[0] if self._outputs == 1 else sums.T.copy()

    def _block(self, place: int, start: int, stop: int) -> torch.Tensor:
        return self._margins[place][:, start:stop]


def _ranges(first: int, last: int, height: int) -> list[tuple[int, int]]:
    """Ranges of at most `height` that cover first..last."""
    return [(start, min(last, start + height)) for start in range(first, last, height)]
