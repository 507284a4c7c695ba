"""New rows of a fitted model: the map from their cells to the features that coefficients multiply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.column_maps import Maps
from dpcvx.data.region import Region, ordered_sum
from dpcvx.data.table import Levels, Table, baseline_places
from dpcvx.errors import WrongType

if TYPE_CHECKING:
    from dpcvx.data.table_schema import TableSchema

__all__ = ["RowMap", "linear_scores"]


@dataclass(frozen=True, eq=False)
class RowMap:
    """Map from the cells of a new row to features: read, map numbers, encode levels, fill, clip, compare.

    The features of a cell that is not a finite number are `fill`; every declared level is a 0/1 feature. Then
    features are clipped to `bounds`, and rows to `region`, if the fit did so with released numbers. At last
    the features of baselines, which have no coefficient, are left out.
    """

    levels: Levels  # for each raw column its declared levels, or None for a number
    maps: Maps  # for each raw column the map of its numbers
    names: tuple[str, ...]  # one name per mapped cell: the column's, "column[map]" or "column=level"
    fill: Vector  # value of a feature whose cell is missing, one per mapped cell
    bounds: tuple[Vector, Vector] | None = None  # lowest and highest value of each feature
    region: Region | None = None
    schema: TableSchema | None = None  # how columns are read, if a schema was declared

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature: those of mapped cells, or of a basis on them, without baselines."""
        names = self.clipped_names
        return tuple(names[j] for j in self.compared)

    @property
    def clipped_names(self) -> tuple[str, ...]:
        """One name per feature before baselines are left out."""
        basis = None if self.region is None else self.region.basis
        return self.names if basis is None else basis.names(self.names)

    @cached_property
    def compared(self) -> NDArray[np.int64]:
        """Places of the features that are left once baselines are left out."""
        return np.delete(np.arange(len(self.clipped_names)), baseline_places(self.levels, self.maps))

    def target_numbers(self, y: Any) -> Vector:
        """Return raw targets as numbers, without codes of missing ones, transformed as a formula says."""
        if self.schema is None:
            return read_numbers(y)
        numbers, transform = read_numbers(self.schema.read_target(y)), self.schema.target_transform
        return numbers if transform is None else transform(numbers)

    def without_clipping(self) -> RowMap:
        """Return the map of rows that are clipped neither to bounds nor to the region."""
        region = None if self.region is None else self.region.without_clipping()
        return replace(self, bounds=None, region=region)

    def features(self, table: Table) -> Any:
        """Return the features of all rows, shape (n, d): a CSR array of sparse rows that are not clipped."""
        if table.sparse:
            rows = self._compressed(table)
            return rows if self.region is None else self.region(rows.toarray())
        features = np.empty((table.n, len(self.feature_names)))
        with np.errstate(all="ignore"):
            for start, block in table.feature_blocks(self.levels, self.maps):
                features[start : start + len(block)] = self._mapped(block)
        return features

    def scores(self, table: Table, coef: Vector, intercept: Any) -> Vector:
        """Return the linear scores of all rows, a block of them at a time.

        `coef`: shape (d,) or (d, K); `intercept`: one number, or one for each of K outputs.
        """
        if table.sparse:
            rows = self._compressed(table)
            if self.region is None:
                return linear_scores(rows, coef, intercept)
            table = Table(rows.toarray())
        scores = np.empty((table.n, *coef.shape[1:]))
        with np.errstate(all="ignore"):
            for start, block in table.feature_blocks(self.levels, self.maps):
                scores[start : start + len(block)] = linear_scores(self._mapped(block), coef, intercept)
        return scores

    def _mapped(self, block: Vector) -> Vector:
        block = np.where(np.isfinite(block), block, self.fill)
        if self.bounds is not None:
            block = block.clip(*self.bounds)
        features = block if self.region is None else self.region(block)
        return features if len(self.compared) == features.shape[1] else features[:, self.compared]

    def _compressed(self, table: Table) -> Any:
        """Sparse rows, whose absent cells are 0."""
        levels = any(declared is not None for declared in self.levels)
        if levels or self.maps is not None or self.bounds is not None:
            raise WrongType(
                "This model has categories, maps or released bounds, so it cannot predict from sparse rows. "
                "Give a dense array or a data frame."
            )
        rows = table.compressed()
        rows.data = np.where(np.isfinite(rows.data), rows.data, self.fill[rows.indices])
        return rows


def linear_scores(features: Any, coef: Vector, intercept: Any) -> Vector:
    """Return x @ coef + intercept for every row x, with terms added in the order of the features.

    `features`: shape (n, d), dense or CSR; `coef`: shape (d,) or (d, K); `intercept`: one number, or K.
    """
    scores: Vector
    with np.errstate(all="ignore"):
        if hasattr(features, "tocsr"):  # SciPy adds the entries of a row in order
            scores = features @ coef + intercept
        elif coef.ndim == 1:
            scores = ordered_sum(features * coef) + intercept
        else:
            scores = np.stack([ordered_sum(features * each) for each in coef.T], axis=1) + intercept
    return scores
