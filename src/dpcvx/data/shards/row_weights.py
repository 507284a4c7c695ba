"""Persons whose rows are spread over files: the ids are read first, so that every row's weight is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector
from dpcvx.data.rows import Records
from dpcvx.data.units import PersonRule, Persons, choose_rows, content_ranks, equal_weights
from dpcvx.errors import StoreUnavailable

if TYPE_CHECKING:
    from dpcvx.data.shards.readers import FileReader
    from dpcvx.data.shards.recipe import Recipe

__all__ = ["OTHER_ROWS", "RowWeights", "weigh_rows"]

ROWS_AT_ONCE = 2**17
# Weights are made for the rows of the first pass: with others a person could count more than once.
OTHER_ROWS = (
    "The ids of persons were not the same when the records were read a second time, so that weights of rows "
    "would be wrong. Give data that do not change, in the same order each time, and another store."
)


@dataclass(frozen=True, eq=False, repr=False)
class RowWeights:
    """Numbers of persons and weights of rows, by a first pass over all ids; private except for `units`."""

    units: int  # public number of persons, times the rows kept of each
    met: Persons
    counts: IntVector  # rows of each person
    chosen: NDArray[np.int64] | None  # places of the rows that are kept, ascending; None for all
    order: bytes  # digest of the persons of all rows, one after the other

    def apply(self, records: Records, ids: Any, at: int) -> tuple[Records, IntVector]:
        """Return records with weights and owners, and the weights by which their cells are counted.

        `ids`: of the records; `at`: number of records before them, in all files.
        """
        owners = self.met.number(ids)
        if len(self.met) > len(self.counts):
            raise StoreUnavailable(OTHER_ROWS)
        shares = equal_weights(owners, self.counts)
        weights = shares
        if self.chosen is not None:
            places = np.arange(at, at + len(owners))
            weights = WEIGHT * np.isin(places, self.chosen, assume_unique=True)
        y = np.vstack([records.y, weights])
        return replace(records, y=y, weighted=True, owners=owners), shares


def weigh_rows(reader: FileReader, recipe: Recipe, rule: PersonRule) -> RowWeights:
    """Read all ids, and where rows are chosen by their content all records."""
    met, counts, at, order = Persons(), np.zeros(0, dtype=np.int64), 0, hashlib.sha256()
    kept: list[NDArray[Any]] = [np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int64)]
    most = rule.max_rows
    only_ids = ((None, None, ids) for ids in reader.ids(ROWS_AT_ONCE))
    for X, y, ids in only_ids if most is None else reader.batches(0, ROWS_AT_ONCE):
        owners = met.number(ids)
        order.update(owners.tobytes())
        counts = np.pad(counts, (0, len(met) - len(counts)))
        counts += np.bincount(owners[owners >= 0], minlength=len(met))
        if most is not None:
            rows, targets = recipe.quantised(X, y)
            places = np.arange(at, at + len(owners))
            more = (owners, content_ranks(rows, np.ascontiguousarray(targets.T)), places)
            kept = [np.concatenate(pair) for pair in zip(kept, more, strict=True)]
            best = choose_rows(kept[0], kept[1], most)
            kept = [each[best] for each in kept]
        at += len(owners)
    chosen = None if most is None else np.sort(kept[2])
    return RowWeights(rule.units(len(met)), met, counts, chosen, order.digest())
