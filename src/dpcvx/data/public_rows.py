"""Rows that may be published, as side information: weights and ranges of columns follow from them.

They are no private records: nothing here is protected, and no guarantee depends on what they are. Private
rows are clipped and shrunk after their columns have been multiplied by the weights, or clipped to the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.columns import Columns
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.quantise import Quantiser
from dpcvx.data.recognised import total_of
from dpcvx.data.rows import Dense, Sparse
from dpcvx.errors import WrongValue
from dpcvx.problem import Bounds

if TYPE_CHECKING:
    from dpcvx.data.table import Table

__all__ = [
    "LongRows",
    "NearRows",
    "RowCount",
    "column_ranges",
    "column_weights",
    "fit_score",
    "narrowed_columns",
    "read_public",
    "split_public",
    "weighted_columns",
]

BLOCK = 2**12  # rows whose norms are computed at a time
FEWEST = 10  # public rows with a target from which a score is fitted
MOST_LEFT = 0.98  # of the variance of the public targets: a score that leaves more is not used
LEAST_SPREAD = 1e-6  # of the width of the bounds: a number that varies less has its declared range
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # over the variance of a column: less lets columns cancel


def split_public(public: Any) -> tuple[Any, Any]:
    """Return public rows and their targets, None without them: a pair holds both."""
    return public if isinstance(public, tuple) and len(public) == 2 else (public, None)


def fit_score(public: Table, y: Vector, columns: Columns) -> tuple[float, ...]:
    """Return coefficients of the features of a ridge regression on public rows; none if they say nothing.

    The ridge is the best by leave-one-out errors; these must be below the variance of the targets. Among the
    public rows the score has variance 1.

    `y`: targets as the loss has them, shape (n,), NaN or 0 (of a label) where one is missing; `columns`: of
    the private table.
    """
    from sklearn.linear_model import RidgeCV

    stored = columns.rows(public, Quantiser(Bounds(1.0), columns.center, columns.scale))
    if isinstance(stored, Sparse):
        return ()
    features = stored.values * 2.0**-FEATURE_BITS
    features[:, columns.marked] = np.where(
        features[:, columns.marked] == 0, np.nan, features[:, columns.marked]
    )
    known = np.isfinite(y) & (y != 0)
    if known.sum() < FEWEST:
        return ()
    features, y = features[known], y[known]
    there = np.isfinite(features)
    means = np.where(there, features, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    centred = np.where(there, features - means, 0.0)
    scale = np.sqrt((centred**2).mean(axis=0))
    varies = scale > 0
    if not varies.any() or not np.var(y) > 0:
        return ()
    ridge = RidgeCV(alphas=len(y) * np.array(RIDGES)).fit(centred[:, varies] / scale[varies], y)
    found = ridge.coef_ / scale[varies]
    spread = float(np.std(centred[:, varies] @ found))
    if -ridge.best_score_ > MOST_LEFT * np.var(y) or not (spread > 0 and np.isfinite(spread)):
        return ()
    score = np.zeros(columns.width)
    score[varies] = found / spread
    return tuple(score.tolist())


def read_public(public: Any, table: Table) -> Table:
    """Open public rows as a table with the columns of a private one; other columns are left out.

    `public`: array-like, SciPy sparse matrix, or data frame; `table`: the private one, of which names and
    number of columns are used.
    """
    from dpcvx.data.table import Table, open_declared

    if table.schema is not None:
        return open_declared(public, table.schema)
    opened = Table(public)
    if table.names is not None and opened.names is not None:
        absent = [name for name in table.names if name not in opened.names]
        if absent:
            raise WrongValue(
                f"public lacks columns that X has: {', '.join(map(repr, absent[:5]))}. Public rows need all "
                "columns of X; others, such as a target, are left out."
            )
        if opened.names != table.names:
            opened = Table(opened.only(table.names))
    if opened.d != table.d:
        raise WrongValue(f"public has {opened.d} columns and X has {table.d}: both need the same columns.")
    return opened


def column_weights(public: Table, columns: Columns, *, floor: float, long: float) -> Vector:
    """Return a weight for each feature of rows of bounded norm, from public rows.

    w_j^2 is proportional to q_j + f, with q_j the mean square of feature j over the public rows, and f such
    that a row without any frequent feature keeps ``floor`` of the usual norm. The noise is the same for every
    coefficient: rare features add to the norm and carry little information. The share ``long`` of the public
    rows stays below norm 1 after weighting; longer ones are shrunk to it. No weight is below ``floor``.

    `columns`: of the private table, features divided by the declared norm of rows.
    """
    rows = columns.rows(public, Quantiser(Bounds(1.0, 1.0), columns.center, columns.scale))
    squares = mean_squares(rows)
    total = float(squares.sum())
    if total == 0:
        return np.ones(columns.width)
    usual = float((squares**2).sum()) / total  # mean of sum_j x_j^2 q_j, over that of sum_j x_j^2
    weights = np.sqrt(squares + usual * floor**2 / (1 - floor**2))
    lengths = np.sqrt(_squared_norms(rows, weights))
    unit = float(np.quantile(lengths[lengths > 0], long))
    return np.maximum(weights / unit, floor)


def mean_squares(rows: Dense | Sparse) -> Vector:
    """Mean square of every feature of stored rows."""
    n, d = rows.shape
    if isinstance(rows, Sparse):
        squares = (rows.values * 2.0**-FEATURE_BITS) ** 2
        found: Vector = np.bincount(rows.indices, squares, minlength=d) / n
        return found
    total = np.zeros(d)
    for start in range(0, n, BLOCK):
        total += ((rows.values[start : start + BLOCK] * 2.0**-FEATURE_BITS) ** 2).sum(axis=0)
    return total / n


def _squared_norms(rows: Dense | Sparse, weights: Vector) -> Vector:
    """Squared norm of every stored row, features multiplied by weights."""
    n = rows.shape[0]
    if isinstance(rows, Sparse):
        squares = (rows.values * 2.0**-FEATURE_BITS * weights[rows.indices]) ** 2
        owners = np.repeat(np.arange(n), np.diff(rows.indptr))
        return np.bincount(owners, squares, minlength=n).astype(np.float64)
    parts = [
        ((rows.values[start : start + BLOCK] * 2.0**-FEATURE_BITS * weights) ** 2).sum(axis=1)
        for start in range(0, n, BLOCK)
    ]
    return np.concatenate(parts)


def weighted_columns(columns: Columns, weights: Vector) -> Columns:
    """Return the map to features that are multiplied by weights; coefficients return to old units."""
    return replace(columns, scale=columns.scale / weights)


def column_ranges(public: Table, columns: Columns) -> tuple[Vector, Vector, Vector]:
    """Return mean, standard deviation and largest distance from the mean of every feature of public rows.

    Features are clipped to their bounds first. The standard deviation is set to 0 for levels, and for numbers
    that are the same in all rows or missing in all: they get no range.
    """
    features = np.concatenate([columns.clipped(block) for _, block in _blocks(public, columns)])
    there = np.isfinite(features)
    count = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, features, 0.0).sum(axis=0) / count
    centred = np.where(there, features - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / count)
    spread = np.where(spread > LEAST_SPREAD * (columns.high - columns.low), spread, 0.0)
    return mean, np.where(columns.is_level, 0.0, spread), abs(centred).max(axis=0)


def narrowed_columns(columns: Columns, mean: Vector, reach: Vector) -> Columns:
    """Return columns whose features are clipped at public distances from public means, and centred there.

    A declared bound is kept where it is nearer to the mean. `reach`: largest distance from the mean; a
    feature with 0 stays as declared.
    """
    named = reach > 0
    low = np.where(named, np.maximum(columns.low, mean - reach), columns.low)
    high = np.where(named, np.minimum(columns.high, mean + reach), columns.high)
    center = np.where(named, mean, columns.center)
    scale = np.where(named, reach, columns.scale)
    fill = np.where(columns.marked, center, np.clip(columns.fill, low, high))
    return replace(columns, low=low, high=high, center=center, scale=scale, fill=fill)


def _blocks(table: Table, columns: Columns) -> Iterator[tuple[int, Vector]]:
    """Features of all rows, a block at a time."""
    return table.feature_blocks(columns.levels, columns.maps)


@dataclass(frozen=True, eq=False)
class RowCount:
    """The number of rows that are like public ones, by a test of each row alone."""

    columns: Columns  # as declared

    @property
    def numbers(self) -> int:
        """One count."""
        return 1

    @property
    def levels(self) -> tuple[int, ...]:
        """No levels are counted."""
        return ()

    def passes(self, table: Table) -> NDArray[np.bool_]:
        """Say of every row whether it passes the test, shape (n,)."""
        raise NotImplementedError

    def of(self, table: Table, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the exact count in some records; with weights of rows, their sum follows."""
        count = total_of(self.passes(table)[:, None], weights)
        return count if weights is None else np.append(count, weights.sum())


@dataclass(frozen=True, eq=False)
class LongRows(RowCount):
    """The number of rows whose norm is at least 1 once columns are weighted.

    A row is stored as integers first, so that its part of the count is a function of that row alone.
    """

    weights: Vector  # public

    def passes(self, table: Table) -> NDArray[np.bool_]:
        """Say of every row whether it is long."""
        quantiser = Quantiser(Bounds(1.0, 1.0), self.columns.center, self.columns.scale)
        return _squared_norms(self.columns.rows(table, quantiser), self.weights) >= 1


@dataclass(frozen=True, eq=False)
class NearRows(RowCount):
    """The number of rows without a cell beyond public limits; missing cells are within them.

    Cells are clipped to their declared bounds first.
    """

    low: Vector  # low, high: public limits of each feature
    high: Vector

    def passes(self, table: Table) -> NDArray[np.bool_]:
        """Say of every row whether all its features are within the limits."""
        near = np.ones(table.n, dtype=np.bool_)
        for start, block in _blocks(table, self.columns):
            features = self.columns.clipped(block)
            beyond = (features < self.low) | (features > self.high)  # both False of NaN
            near[start : start + len(block)] = ~beyond.any(axis=1)
        return near
