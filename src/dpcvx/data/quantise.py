"""Raw records become stored integers: centre, scale, clip, shrink, round.

The bounds of a record are checked on the stored integers, so the sensitivity of a sum holds without slack.

Nothing here raises, warns or chooses a path because of a value or of the type of an array: errors name only
shapes and parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.additive_basis import AdditiveBasis
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import column_numbers, compressed_rows, native_array, open_typed
from dpcvx.data.lattice import FEATURE_BITS, integer_bounds
from dpcvx.data.public_score import PublicScore
from dpcvx.data.rows import Dense, Records, Sparse
from dpcvx.errors import WrongValue
from dpcvx.losses import BoundedInfluence
from dpcvx.problem import Bounds

__all__ = ["Quantiser", "enforce", "remap", "targets"]


SHRINK = ("row", "numbers", "labels", "gradient")
CELLS_AT_ONCE = 2**20  # cells converted to float64 at a time


@dataclass(frozen=True, eq=False)
class Quantiser:
    """The public map through which records enter: centre, scale, clip, shrink, round toward zero.

    A cell v becomes (v - center) / scale clipped to [-x_inf, x_inf]; a cell that is missing, infinite or
    not a number becomes 0. The row is then shrunk to l2 norm x_2 and each entry rounded toward zero on the
    grid 2^-14. The integers are checked against `integer_bounds`, and a row that still fails is shrunk again.
    With `places` only these columns are read, which center and scale are for. Every step sees one row only.
    With a basis, dense cells (v - center) / scale are standardised ones, and its features over their largest
    absolute value are clipped, shrunk and rounded.
    """

    bounds: Bounds  # bounds of a stored row, in scaled units, the intercept's entry included
    # center, scale: float or ndarray of shape (d,): public map per column; sparse records need center 0
    center: float | Vector = 0.0
    scale: float | Vector = 1.0
    intercept: float = 0.0  # value of an appended constant column, in scaled units; 0 appends none
    basis: AdditiveBasis | PublicScore | None = None  # other features of dense cells
    missing: Vector | None = None  # value of each column that stands for a missing cell, or NaN; shape (d,)
    # Treatment of a row longer than x_2, shrunk by f, in `remap`. "row": nothing else. "numbers":
    # intercept and target are shrunk too, so that the record has the weight f^2 in squared loss and a linear
    # model that is right keeps its coefficients. "labels": the intercept is shrunk and the label becomes y/f
    # (`BoundedLogistic`). "gradient": every row is divided by its length f, on a grid, with intercept and
    # target, and the target holds f, which gives the record its weight again (`BoundedInfluence`).
    shrink: str = "row"
    places: tuple[int, ...] | None = None  # columns that are kept, in this order; None for all

    def __post_init__(self) -> None:
        scale, center = np.asarray(self.scale), np.asarray(self.center)
        if not (np.isfinite(scale).all() and (scale > 0).all() and np.isfinite(center).all()):
            raise WrongValue(
                "A quantiser needs finite centers and finite scales > 0; check the bounds of each column."
            )
        v, x_2 = self.intercept, self.bounds.x_2
        if self.shrink not in SHRINK or (self.shrink != "row" and (x_2 is None or x_2 > self.bounds.x_inf)):
            raise WrongValue(
                f"shrink must be one of {', '.join(SHRINK)}, all but the first with bounds x_2 <= x_inf; got "
                f"{self.shrink!r} and {self.bounds}."
            )
        if v < 0 or (
            v > 0 and (self.constant == 0 or self.bounds.x_inf < v or (x_2 is not None and x_2 <= v))
        ):
            raise WrongValue(
                f"An intercept is a feature of value {v:g}: it needs x_inf >= {v:g} and x_2 > {v:g}, "
                f"and a value of at least 2^-{FEATURE_BITS}; got {self.bounds}."
            )

    def width(self, d: int) -> int:
        """Return the number of stored features of a row of d cells."""
        kept = d if self.places is None else len(self.places)
        return (kept if self.basis is None else self.basis.width) + (self.constant > 0)

    @property
    def constant(self) -> int:
        """The intercept's stored integer, 0 for none."""
        return math.floor(2.0**FEATURE_BITS * self.intercept)

    def quantise(self, X: Any) -> Dense | Sparse:
        """Return the stored integers of raw records.

        `X`: array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d), raw records;
        cells are read as numbers one by one. Stored rows are read as they are. Returns integers, d columns,
        plus one with an intercept.
        """
        if hasattr(X, "tocsr"):
            return self._quantise_sparse(X)
        n, d, blocks = _blocks(X)
        if self.places is not None:
            kept, whole = list(self.places), blocks
            d, blocks = len(kept), ((start, np.ascontiguousarray(block[:, kept])) for start, block in whole)
        center, scale, limits = self._limits(n, d)
        from dpcvx.data.kernels import quantise_additive, quantise_dense

        blocks, basis = self._known_cells(blocks), self.basis
        if basis is not None:
            *_, limits = replace(self, center=0.0, scale=1.0)._limits(n, basis.width)
            d = basis.width
        if isinstance(basis, PublicScore):
            blocks = _expanded(blocks, basis, center, scale)
            center, scale = np.zeros(d), np.full(d, basis.largest)
        stored = np.zeros((n, d + (self.constant > 0)), dtype=np.int16)
        stored[:, d:] = self.constant
        for start, block in blocks:
            out = stored[start : start + len(block)]
            if isinstance(basis, AdditiveBasis):
                quantise_additive(block, center, scale, *basis.arrays, *limits, out)
            else:
                quantise_dense(block, center, scale, *limits, out)
        return Dense(stored)

    def factors(self, rows: Dense) -> Vector:
        """Return the factor by which each stored row is shrunk, at most 1, shape (n,)."""
        n, d = rows.shape
        center, scale, (_, x_2, _, _) = self._limits(n, d)
        found = np.ones(n)
        step = max(1, CELLS_AT_ONCE // d)
        for start in range(0, n, step):
            cells = (rows.values[start : start + step] - center) / scale
            norms = np.sqrt((cells**2).sum(axis=1))
            found[start : start + step] = x_2 / np.maximum(norms, x_2)
        return found

    def unit_rows(self, rows: Dense) -> tuple[Dense, Vector, Vector]:
        """Return stored rows of norm about 1 with their intercept, their divisors, and codes of the divisors.

        A divisor is the code f of `BoundedInfluence`, which is at least the length, or the length where that
        is larger than every code. Integers are checked against the bounds as those of any row.
        """
        from dpcvx.data.kernels import quantise_dense

        n, d = rows.shape
        center, scale, _ = self._limits(n, d)
        width = d + (self.constant > 0)
        plain = Quantiser(self.bounds)._limits(n, width)
        stored, divisors, lengths = np.empty((n, width), dtype=np.int16), np.empty(n), np.empty(n)
        step = max(1, CELLS_AT_ONCE // width)
        for start in range(0, n, step):
            cells = (rows.values[start : start + step] - center) / scale
            if self.constant:
                cells = np.column_stack([cells, np.full(len(cells), self.intercept)])
            part, norms = slice(start, start + len(cells)), np.sqrt((cells**2).sum(axis=1))
            lengths[part] = BoundedInfluence.lengths(norms / self.bounds.row_norm(width))
            divisors[part] = np.maximum(lengths[part], norms / self.bounds.row_norm(width))
            quantise_dense(cells / divisors[part, None], *plain[:2], *plain[2], stored[part])
        return Dense(stored), divisors, lengths

    def _known_cells(self, blocks: Iterator[tuple[int, NDArray[Any]]]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Blocks of rows with NaN in place of the value that stands for a missing cell."""
        for start, block in blocks:
            yield start, block if self.missing is None else np.where(block == self.missing, np.nan, block)

    def _quantise_sparse(self, X: Any) -> Sparse:
        if np.any(self.center):
            raise WrongValue("Sparse records cannot be centred: give center 0, or pass them dense.")
        if X.ndim != 2:
            raise WrongValue(f"Records must form a 2-d matrix, got {X.ndim} dimension(s).")
        rows = compressed_rows(X)
        n, d = rows.shape
        _, scale, limits = self._limits(n, d)
        from dpcvx.data.kernels import quantise_sparse

        extra = n if self.constant else 0
        indices = np.empty(rows.nnz + extra, dtype=rows.indices.dtype)
        values = np.empty(rows.nnz + extra, dtype=np.int16)
        indptr = rows.indptr.astype(np.int64)
        quantise_sparse(indptr, rows.indices, rows.data, scale, *limits, self.constant, d, indices, values)
        if self.constant:
            indptr = indptr + np.arange(n + 1)
        return Sparse(indptr, indices, values, d + (self.constant > 0))

    def _limits(self, n: int, d: int) -> tuple[Vector, Vector, tuple[float, float, int, int]]:
        """Center and scale per column, and the limits of the features alone: x_inf, x_2, K_inf, K2."""
        if n == 0 or d == 0:
            raise WrongValue(f"Records must have at least one row and one column, got shape ({n}, {d}).")
        if any(np.ndim(part) and np.shape(part) != (d,) for part in (self.center, self.scale)):
            raise WrongValue(
                f"center and scale must be numbers or have one entry for each of the {d} columns, "
                f"got shapes {np.shape(self.center)} and {np.shape(self.scale)}."
            )
        k_inf, k2 = integer_bounds(self.bounds, d + (self.constant > 0))
        k2 -= self.constant**2
        row_norm = math.inf if self.bounds.x_2 is None else math.sqrt(k2) / 2**FEATURE_BITS
        center = np.array(np.broadcast_to(np.asarray(self.center, dtype=np.float64), (d,)))
        scale = np.array(np.broadcast_to(np.asarray(self.scale, dtype=np.float64), (d,)))
        # Of a whole record no cell is clipped by itself: the bound of the row is the tighter one.
        x_inf = self.bounds.x_inf if self.shrink == "row" else math.inf
        return center, scale, (x_inf, row_norm, k_inf, k2)


def enforce(rows: Dense | Sparse, bounds: Bounds, constant: int = 0) -> Dense | Sparse:
    """Return stored rows with those outside the bounds shrunk into them.

    `constant`: last feature of every row, 0 for none. It is not shrunk if the bounds have room for it.
    """
    intercept = constant * 2.0**-FEATURE_BITS
    if intercept > bounds.x_inf or (bounds.x_2 is not None and intercept >= bounds.x_2):
        intercept = 0.0
    quantiser, d = Quantiser(bounds, intercept=intercept), rows.shape[1] - (intercept > 0)
    if isinstance(rows, Dense):
        return quantiser.quantise(rows.values[:, :d] * 2.0**-FEATURE_BITS)
    from scipy.sparse import csr_array

    values = rows.values * 2.0**-FEATURE_BITS
    return quantiser.quantise(csr_array((values, rows.indices, rows.indptr), shape=rows.shape)[:, :d])


def remap(
    records: Records, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector
) -> Records:
    """Return stored records after a second, public map: the quantiser's on rows, (y - center)/scale on y.

    `center`, `scale`: of the targets, or one for each of them.

    Without a quantiser rows stay as they are. Every factor is a function of its own row, and a smaller
    intercept keeps the row within its bounds, so sensitivities do not change.
    """
    y, targets = np.array(records.y, dtype=np.float64), records.outcomes
    centers, scales = (np.reshape(each, (-1, 1)) for each in (center, scale))
    if any(len(each) not in (1, targets) for each in (centers, scales)):
        raise WrongValue(f"A centre and a scale for each of the {targets} targets are needed.")
    with np.errstate(all="ignore"):  # the content of a record never triggers a warning
        y[:targets] = (y[:targets] - centers) / scales
    if quantiser is None:
        return replace(records, y=np.ascontiguousarray(y))
    rows, unit = records.whole_rows(), 2.0**FEATURE_BITS
    if not isinstance(rows, Dense):
        raise WrongValue("Sparse records cannot be standardised: a centre would fill them.")
    # Stored integers are read as they are, in blocks.
    of_integers = replace(quantiser, center=unit * quantiser.center, scale=unit * quantiser.scale)
    if quantiser.shrink == "gradient":
        units, divisors, lengths = of_integers.unit_rows(rows)
        with np.errstate(all="ignore"):
            y[:targets] = BoundedInfluence.pack(y[:targets] / divisors, lengths)
        return replace(
            records, rows=units, y=np.ascontiguousarray(y), step=1, constant=0, threads=None, block_rows=None
        )
    stored = of_integers.quantise(rows)
    if quantiser.shrink != "row":
        factors = of_integers.factors(rows)
        with np.errstate(all="ignore"):
            y[:targets] *= factors if quantiser.shrink == "numbers" else 1 / factors
        if quantiser.constant:
            stored.values[:, -1] = np.floor(factors * quantiser.constant)
    return replace(
        records, rows=stored, y=np.ascontiguousarray(y), step=1, constant=0, threads=None, block_rows=None
    )


def targets(y: Any, limit: float | None = None, missing: float = math.nan) -> Vector:
    """Return targets or class codes as float64 (n, K), clipped.

    `y`: array-like or Series, shape (n,) or (n, K), raw targets; `limit`: clip to [-limit, limit]; `missing`:
    what a cell that is no finite number becomes; NaN for a record that is left out of a loss.
    """
    if math.isinf(missing):
        raise WrongValue(f"missing must be a finite number or NaN, got {missing!r}.")
    y = native_array(y)
    if y.ndim not in (1, 2) or y.shape[0] == 0:
        raise WrongValue(f"y must have shape (n,) or (n, K) with n >= 1, got {y.shape}.")
    numbers = read_numbers(y.reshape(y.shape[0], -1))
    numbers = np.where(np.isfinite(numbers), numbers, missing)
    return numbers if limit is None else np.clip(numbers, -limit, limit)


def _blocks(X: Any) -> tuple[int, int, Iterator[tuple[int, NDArray[Any]]]]:
    """Shape of dense records, and blocks of rows as numbers, each with the index of its first row."""
    if isinstance(X, Dense):
        return *X.shape, _read_by_blocks(*X.shape, lambda start, stop: X.values[start:stop])
    import narwhals as nw

    frame = open_typed(X)
    if isinstance(frame, nw.DataFrame):
        n, d = frame.shape

        def read(start: int, stop: int) -> Vector:
            part = frame[start:stop]
            block = np.empty((stop - start, d))
            for j, column in enumerate(part.iter_columns()):
                block[:, j] = column_numbers(column)
            return block

    else:
        array = native_array(X, ndim=2)
        if array.ndim != 2:
            raise WrongValue(
                f"Records must form a 2-d array, got {array.ndim} dimension(s). "
                "Reshape with X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record."
            )
        n, d = array.shape

        def read(start: int, stop: int) -> Vector:
            return read_numbers(array[start:stop])

    return n, d, _read_by_blocks(n, d, read)


def _expanded(
    blocks: Iterator[tuple[int, NDArray[Any]]], basis: PublicScore, center: Vector, scale: Vector
) -> Iterator[tuple[int, Vector]]:
    """Blocks of rows as blocks of a basis's features, a part at a time that is as small."""
    for start, block in blocks:
        step = max(1, CELLS_AT_ONCE // basis.width)
        for first in range(0, len(block), step):
            yield start + first, basis((block[first : first + step] - center) / scale)


def _read_by_blocks(
    n: int, d: int, read: Callable[[int, int], NDArray[Any]]
) -> Iterator[tuple[int, NDArray[Any]]]:
    step = max(1, CELLS_AT_ONCE // max(d, 1))
    for start in range(0, n, step):
        yield start, read(start, min(n, start + step))
