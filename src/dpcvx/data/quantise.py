"""The exact data plane: records become integers at the door, iterates on their way to the data.

Features are 16-bit integers k on the grid 2^-14, residuals integers rho on the grid 2^-20, and the sums
sum_i rho_i k_i are exact 64-bit integers in units of 2^-34 (PRIVACY_MATH §11b). The bounds of a record are
checked on the stored integers, so the sensitivity of a sum holds without slack.

Nothing here raises, warns or chooses a path because of a value: errors speak of shapes, types and parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.cells import (
    NUMBER_KINDS,
    column_numbers,
    compressed_rows,
    native_array,
    opened,
    read_numbers,
)
from dpcvx.problem import Bounds

__all__ = [
    "FEATURE_BITS",
    "RESIDUAL_BITS",
    "SUM_UNIT",
    "Dense",
    "Door",
    "ResidualBound",
    "Sparse",
    "enforce",
    "fixed_point",
    "integer_bounds",
    "targets",
    "whole_rows",
]

FEATURE_BITS = 14
RESIDUAL_BITS = 20
SUM_UNIT = 2.0 ** -(FEATURE_BITS + RESIDUAL_BITS)

LARGEST_RESIDUAL = 2**31 - 1  # residuals are multiplied as 32-bit integers
ITERATE_BITS = 30  # entries of an iterate stay below 2^30
ITERATE_SUM_BITS = 46  # and their sum below 2^46 before rounding, so that margins stay inside 62 bits
CELLS_AT_ONCE = 2**20  # cells converted to float64 at a time


@dataclass(frozen=True)
class ResidualBound:
    """Bounds of one record's residual rho in Z^K, in units of 2^-20, enforced after rounding.

    ||rho||_2 <= l2 and max_k |rho_k| <= linf

    Parameters
    ----------
    l2 : int
        Largest Euclidean norm.
    linf : int
        Largest absolute entry.
    """

    l2: int
    linf: int

    def __post_init__(self) -> None:
        for name in ("l2", "linf"):
            value = getattr(self, name)
            if not 0 <= value <= LARGEST_RESIDUAL:
                raise ValueError(
                    f"ResidualBound needs 0 <= {name} <= 2^31 - 1, got {value}: slopes must stay below 2048, "
                    "so use a smaller radius or a residual clip."
                )


def integer_bounds(bounds: Bounds, d: int) -> tuple[int, int]:
    """Bounds (K_inf, K2) of a stored row of d features: max_j |k_j| <= K_inf and sum_j k_j^2 <= K2.

    K_inf = floor(2^14 x_inf), K2 = min(d K_inf^2, floor(2^28 x_2^2)), in exact arithmetic.
    """
    k_inf = math.floor(2**FEATURE_BITS * Fraction(float(bounds.x_inf)))
    k2 = d * k_inf**2
    if bounds.x_2 is not None:
        k2 = min(k2, math.floor(4**FEATURE_BITS * Fraction(float(bounds.x_2)) ** 2))
    return k_inf, k2


def fixed_point(theta: Vector) -> tuple[NDArray[np.int32], float]:
    """Send a public iterate in fixed point, as finely as exact 62-bit margins allow.

    Parameters
    ----------
    theta : Vector
        Shape (d,) or (d, K).

    Returns
    -------
    integers : ndarray of int32, shape (K, d)
        rint(2^q theta), one row per output, with q <= 30 a function of theta alone.
    unit : float
        2^-(14 + q): the score <x, theta> of a record for an integer margin of 1.
    """
    theta = np.asarray(theta, dtype=np.float64)
    if theta.ndim not in (1, 2) or theta.size == 0 or not np.isfinite(theta).all():
        raise ValueError(f"An iterate must be finite, of shape (d,) or (d, K); got shape {theta.shape}.")
    outputs = theta.reshape(theta.shape[0], -1).T
    _, entry = math.frexp(abs(outputs).max())
    _, weight = math.frexp(abs(np.ldexp(outputs, -entry)).sum(axis=1).max())
    bits = min(ITERATE_BITS, ITERATE_BITS - entry, ITERATE_SUM_BITS - entry - weight)
    return np.rint(np.ldexp(outputs, bits)).astype(np.int32, order="C"), 2.0 ** -(FEATURE_BITS + bits)


class Dense:
    """Stored rows as one matrix of 16-bit integers, row-major.

    Parameters
    ----------
    values : ndarray of int16, shape (n, d)
        C-contiguous.
    """

    def __init__(self, values: NDArray[np.int16]) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def size(self) -> int:
        """Number of stored integers."""
        return self.values.size

    def transpose(self) -> Dense:
        """Return the same integers, feature-major."""
        n, d = self.shape
        values = np.empty((d, n), dtype=self.values.dtype)
        tile = 256  # a tile of both matrices stays in cache
        for i in range(0, n, tile):
            for j in range(0, d, tile):
                values[j : j + tile, i : i + tile] = self.values[i : i + tile, j : j + tile].T
        return Dense(values)


class Sparse:
    """Stored rows in compressed form; an entry that is not stored is 0.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n + 1,)
        Row i is at positions indptr[i] to indptr[i + 1].
    indices : ndarray of int32 or int64
        Columns, ascending and unique within a row.
    values : ndarray of int16
        The integers.
    columns : int
        Number of columns.
    """

    def __init__(
        self, indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[np.int16], columns: int
    ) -> None:
        self.indptr, self.indices, self.values = indptr, indices, values
        self._columns = columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.indptr.shape[0] - 1, self._columns

    @property
    def size(self) -> int:
        """Number of stored integers."""
        return self.values.size

    def transpose(self) -> Sparse:
        """Return the same integers, feature-major."""
        from scipy.sparse import csr_array

        flipped = csr_array((self.values, self.indices, self.indptr), shape=self.shape).tocsc()
        return Sparse(flipped.indptr.astype(np.int64), flipped.indices, flipped.data, self.shape[0])


@dataclass(frozen=True, eq=False)
class Door:
    """The public map through which records enter: centre, scale, clip, shrink, round toward zero.

    A cell v becomes (v - center) / scale clipped to [-x_inf, x_inf]; a cell that is missing, infinite or
    not a number becomes 0. The row is then shrunk to l2 norm x_2 and each entry rounded toward zero on the
    grid 2^-14. The integers are checked against `integer_bounds`, and a row that still fails is shrunk again.
    Every step sees one row only.

    Parameters
    ----------
    bounds : Bounds
        Bounds of a stored row, in scaled units, the intercept's entry included.
    center, scale : float or ndarray of shape (d,)
        Public map per column; sparse records need center 0.
    intercept : float
        Value of an appended constant column, in scaled units; 0 appends none.
    """

    bounds: Bounds
    center: float | Vector = 0.0
    scale: float | Vector = 1.0
    intercept: float = 0.0

    def __post_init__(self) -> None:
        scale, center = np.asarray(self.scale), np.asarray(self.center)
        if not (np.isfinite(scale).all() and (scale > 0).all() and np.isfinite(center).all()):
            raise ValueError(
                "A door needs finite centers and positive finite scales; check the bounds of each column."
            )
        v, x_2 = self.intercept, self.bounds.x_2
        if v < 0 or (
            v > 0 and (self.constant == 0 or self.bounds.x_inf < v or (x_2 is not None and x_2 <= v))
        ):
            raise ValueError(
                f"An intercept is a feature of value {v:g}: it needs x_inf >= {v:g} and x_2 > {v:g}, "
                f"and a value of at least 2^-{FEATURE_BITS}; got {self.bounds}."
            )

    @property
    def constant(self) -> int:
        """The intercept's stored integer, 0 for none."""
        return math.floor(2.0**FEATURE_BITS * self.intercept)

    def quantise(self, X: Any) -> Dense | Sparse:
        """Return the stored integers of raw records.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            Raw records; text and object cells are read as numbers one by one.

        Returns
        -------
        Dense or Sparse
            Integers, d columns, plus one with an intercept.
        """
        if hasattr(X, "tocsr"):
            return self._quantise_sparse(X)
        n, d, blocks = _blocks(X)
        center, scale, limits = self._limits(n, d)
        from dpcvx.data.kernels import quantise_dense

        stored = np.zeros((n, d + (self.constant > 0)), dtype=np.int16)
        stored[:, d:] = self.constant
        for start, block in blocks:
            quantise_dense(block, center, scale, *limits, stored[start : start + len(block)])
        return Dense(stored)

    def _quantise_sparse(self, X: Any) -> Sparse:
        if np.any(self.center):
            raise ValueError("Sparse records cannot be centred: give center 0, or pass them dense.")
        if X.ndim != 2:
            raise ValueError(f"Records must form a 2-d matrix, got {X.ndim} dimension(s).")
        _check_dtype(X.dtype)
        if X.dtype.kind not in NUMBER_KINDS:
            raise TypeError(f"Sparse records must be numbers, got dtype {X.dtype}.")
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
            raise ValueError(f"Records must have at least one row and one column, got shape ({n}, {d}).")
        if any(np.ndim(part) and np.shape(part) != (d,) for part in (self.center, self.scale)):
            raise ValueError(
                f"center and scale must be numbers or have one entry for each of the {d} columns, "
                f"got shapes {np.shape(self.center)} and {np.shape(self.scale)}."
            )
        k_inf, k2 = integer_bounds(self.bounds, d + (self.constant > 0))
        k2 -= self.constant**2
        row_norm = math.inf if self.bounds.x_2 is None else math.sqrt(k2) / 2**FEATURE_BITS
        center = np.array(np.broadcast_to(np.asarray(self.center, dtype=np.float64), (d,)))
        scale = np.array(np.broadcast_to(np.asarray(self.scale, dtype=np.float64), (d,)))
        return center, scale, (self.bounds.x_inf, row_norm, k_inf, k2)


def enforce(rows: Dense | Sparse, bounds: Bounds) -> Dense | Sparse:
    """Return stored rows inside the bounds: one that is, unchanged; one that is not, shrunk by the door."""
    if isinstance(rows, Dense):
        return Door(bounds).quantise(rows.values * 2.0**-FEATURE_BITS)
    from scipy.sparse import csr_array

    values = rows.values * 2.0**-FEATURE_BITS
    return Door(bounds).quantise(csr_array((values, rows.indices, rows.indptr), shape=rows.shape))


def whole_rows(rows: Dense | Sparse, step: int = 1, constant: int = 0) -> Dense | Sparse:
    """Return 16-bit rows of values stored in units of ``step``, with a last feature that is a constant.

    Parameters
    ----------
    rows : Dense or Sparse
        What is stored, 8-bit or 16-bit integers.
    step : int
        Their unit, in units of 2^-14.
    constant : int
        Value of the last feature in every row; 0 for none.
    """
    if step == 1 and constant == 0:
        return rows
    n, d = rows.shape
    if isinstance(rows, Dense):
        values = np.full((n, d + (constant > 0)), constant, dtype=np.int16)
        values[:, :d] = rows.values
        values[:, :d] *= step
        return Dense(values)
    entries, indices, indptr = rows.values.astype(np.int16) * np.int16(step), rows.indices, rows.indptr
    if constant:
        entries = np.insert(entries, indptr[1:], constant)
        indices = np.insert(indices, indptr[1:], d)
        indptr = indptr + np.arange(n + 1)
    return Sparse(indptr, indices, entries, d + (constant > 0))


def targets(y: Any, limit: float | None = None, missing: float = 0.0) -> Vector:
    """Return targets or class codes as float64 (n, K), clipped.

    Parameters
    ----------
    y : array-like or Series, shape (n,) or (n, K)
        Raw targets.
    limit : float, optional
        Clip to [-limit, limit].
    missing : float
        What a cell that is no finite number becomes.
    """
    if not math.isfinite(missing):
        raise ValueError(f"missing must be a finite number, got {missing!r}.")
    y = native_array(y)
    if y.ndim not in (1, 2) or y.shape[0] == 0:
        raise ValueError(f"y must have shape (n,) or (n, K) with n >= 1, got {y.shape}.")
    _check_dtype(y.dtype)
    numbers = read_numbers(y.reshape(y.shape[0], -1))
    numbers = np.where(np.isfinite(numbers), numbers, missing)
    return numbers if limit is None else np.clip(numbers, -limit, limit)


def _blocks(X: Any) -> tuple[int, int, Iterator[tuple[int, Vector]]]:
    """Shape of dense records, and float64 blocks of rows with the index of their first row."""
    import narwhals as nw

    frame = opened(X)
    if isinstance(frame, nw.DataFrame):
        n, d = frame.shape
        for name, dtype in frame.schema.items():
            if dtype.is_temporal() or dtype.is_nested():
                raise TypeError(f"Column {name!r} has type {dtype}; numbers are needed.")

        def read(start: int, stop: int) -> Vector:
            part = frame[start:stop]
            block = np.empty((stop - start, d))
            for j, column in enumerate(part.iter_columns()):
                block[:, j] = column_numbers(column)
            return block

    else:
        array = native_array(X, ndim=2)
        if array.ndim != 2:
            raise ValueError(
                f"Records must form a 2-d array, got {array.ndim} dimension(s). "
                "Reshape with X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record."
            )
        _check_dtype(array.dtype)
        n, d = array.shape

        def read(start: int, stop: int) -> Vector:
            return read_numbers(array[start:stop])

    return n, d, _read_by_blocks(n, d, read)


def _read_by_blocks(n: int, d: int, read: Callable[[int, int], Vector]) -> Iterator[tuple[int, Vector]]:
    step = max(1, CELLS_AT_ONCE // max(d, 1))
    for start in range(0, n, step):
        yield start, read(start, min(n, start + step))


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.kind == "c":
        raise ValueError("Complex data not supported: give real numbers.")
    if dtype.kind in "mMV":
        raise TypeError(f"Data of type {dtype} are not numbers; convert them first.")
