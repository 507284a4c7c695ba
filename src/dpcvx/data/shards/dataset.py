"""A data set of shards, which a fit opens in place of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.accounting import REPLACE_ONE
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.bins import CellsInBins
from dpcvx.data.columns import Columns
from dpcvx.data.public_rows import RowCount
from dpcvx.data.quantise import Quantiser
from dpcvx.data.recognised import RecognisedCells
from dpcvx.data.shards.folder import Store
from dpcvx.data.shards.recipe import (
    RECOGNISED,
    Recipe,
    declared_schema,
    empty_record,
    encoding_of,
    parameters,
)
from dpcvx.data.shards.source import ShardSource, map_shard, source_of
from dpcvx.data.table import Table
from dpcvx.data.target import Amounts, Labels, Numbers, Target
from dpcvx.data.units import PersonColumnRule
from dpcvx.errors import Incompatible
from dpcvx.words import quantity

__all__ = ["Shards", "open_shards"]


class Shards:
    """Records in a folder of shards, with the declarations that they were quantised with.

    ``PrivateLogisticRegression(epsilon=1.0).fit(shards)`` fits them. Bounds, categories, data_norm, and
    classes or y_bounds are declared with the records; an estimator that declares one of them again is
    refused.

    Parameters
    ----------
    store : Store
        Complete, its files checked.

    Attributes
    ----------
    n : int
        Number of records; of persons, times the rows kept of each, where a column of persons was named.
    neighbours : Neighbours
        Data sets that must look alike: they differ in one row, or in one person.
    folder : Path
        Where they are.
    declarations : mapping
        Parameters of an estimator that are declared with the records.
    encoding : str
        How levels became features when the records were written, see `DeclaredLevels.with_baseline`.
    marks_missing : bool
        Whether missing cells of numbers can be told from others; not in older shards.
    """

    def __init__(self, store: Store) -> None:
        manifest = store.manifest
        self.n, self.folder = manifest.n if manifest.units is None else manifest.units, store.folder
        declared = manifest.declarations.get("person")
        self._people = None if declared is None else PersonColumnRule.from_plain(declared)
        self.neighbours = REPLACE_ONE if self._people is None else self._people.rule.neighbours
        self.declarations: Mapping[str, Any] = parameters(manifest.declarations)
        self.encoding = encoding_of(manifest.declarations)
        self.marks_missing: bool = manifest.declarations.get("marks_missing", False)
        X, self.target = empty_record(
            manifest.names, manifest.columns, manifest.compressed, manifest.declarations
        )
        self._table, self._store = Table(X, declared_schema(manifest.declarations)), store
        self._recipe = Recipe.of(self._table, self.target, manifest.declarations, manifest.step)
        self._shards = [map_shard(store, index) for index in range(len(manifest.shards))]
        self._check = store.unchanged()

    def __repr__(self) -> str:
        units = self.n // self.neighbours.rows
        records, columns = quantity(units, self.neighbours.noun), quantity(self._table.d, "column")
        return f"<Shards: {records} of {columns} in {self.folder}>"

    def __reduce__(self) -> Any:
        """Travel as the name of the folder: no record enters a pickle."""
        return open_shards, (self.folder,)

    @property
    def table(self) -> Table:
        """One made-up record with the right columns; the files are seen to be there still."""
        self._check()
        return self._table

    def labels(self) -> Any:
        """Return the declared labels."""
        return self.declarations["classes"]

    @property
    def countable(self) -> bool:
        """Whether the shards have counts of recognised cells; those of version 0.1 have none."""
        return RECOGNISED in self._store.manifest.parts

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the privacy statement about persons, and about records written by version 0.1."""
        if self._people is not None:
            return self._people.rule.facts
        if self.countable or "y_bounds" not in self.declarations:
            return {}
        return {"y_enforced": "clipped; a missing target was stored as the middle of the bounds"}

    def count(self, question: RecognisedCells | CellsInBins | RowCount) -> IntVector:
        """Return the exact counts of recognised cells, which were taken when the shards were written."""
        if isinstance(question, CellsInBins | RowCount):
            raise Incompatible(f"The records in {self.folder} are stored quantised, without their cells.")
        self._levels(question.target)  # refuses other classes or bounds than the stored ones
        stored = [self._store.arrays(index)[RECOGNISED] for index in range(len(self._shards))]
        total: IntVector = np.sum(stored, axis=0)
        if total.shape != (question.numbers + sum(question.levels) + (self._people is not None),):
            raise Incompatible(f"The counts in {self.folder} are of other columns: make new shards.")
        return total

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> ShardSource:
        """Return the stored records, which were clipped and quantised when they were written.

        Parameters
        ----------
        columns : Columns
        quantiser : Quantiser
            Its map must be the one that the records were quantised with; its intercept may be any.
        target : Labels or Numbers
            Of the same classes or bounds; several classes may be encoded in another form than the stored one.
        layout : {"rows", "columns"}
            Shards are stored by rows whatever it is; see `ShardSource.columns`.
        """
        mine = self._recipe
        same = (columns.levels, columns.maps) == (mine.columns.levels, mine.columns.maps) and all(
            np.array_equal(ours, theirs)
            for ours, theirs in (
                (mine.quantiser.center, quantiser.center),
                (mine.quantiser.scale, quantiser.scale),
                (mine.columns.fill, columns.fill),
                (mine.columns.marked, columns.marked),
            )
        )
        if not same:
            raise Incompatible(
                f"The records in {self.folder} were quantised by another map than this fit's: make new "
                "shards with its declarations."
            )
        levels = self._levels(target)
        source = source_of(self._shards, self._store, constant=quantiser.constant, levels=levels)
        stored = self._recipe.target
        if isinstance(stored, Numbers) and type(stored) is not type(target):
            # Stored targets t stand for center + scale t, and amounts for y/high.
            source = source.mapped(
                None, float(-stored.center / stored.scale), float(target.scale / stored.scale)
            )
        return source

    def _levels(self, target: Target) -> Vector | None:
        """Targets of the classes, where the loss takes them in another form than the stored one."""
        mine = self._recipe.target
        if isinstance(mine, Labels) and isinstance(target, Labels):
            classes = mine.classes.tolist()
            if classes == target.classes.tolist():
                if mine.form == target.form:
                    return None
                if len(classes) > 2:
                    return target.encode(np.array([*classes, None], dtype=object))
        elif isinstance(mine, Numbers) and (
            type(target) is type(mine) or (isinstance(target, Amounts) and (mine.low >= 0).all())
        ):  # stored numbers below 0 are not clipped to 0 as amounts are
            same = zip((mine.low, mine.high), (target.low, target.high), strict=True)
            if all(np.array_equal(ours, theirs) for ours, theirs in same):
                return None
        raise Incompatible("This estimator encodes targets differently from the shards.")


def open_shards(folder: str | Path) -> Shards:
    """Open a folder of shards; every file is checked against its checksum.

    Parameters
    ----------
    folder : str or Path
        Where `from_parquet`, `from_csv`, `from_arrow` or `from_batches` have put them.

    Returns
    -------
    Shards
        To be given to ``fit`` of an estimator, without y.
    """
    store = Store.open(Path(folder))
    store.require_complete()
    store.verify(0, len(store.manifest.shards))
    return Shards(store)
