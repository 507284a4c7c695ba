"""Units of protection: persons with several rows, and survey weights, as integer weights of rows.

The weights of one unit's rows add up to a public number at most, whatever the rows are (PRIVACY_MATH §16).
Ids, weights and the number of a person's rows are private: no error here depends on one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.canonical import canonical_cells, read_numbers
from dpcvx.data.cells import native_array, open_typed
from dpcvx.data.columns import bound_pair
from dpcvx.data.rows import Dense, Sparse
from dpcvx.errors import WrongValue
from dpcvx.words import show

__all__ = ["Units", "persons", "survey_weights", "take_column", "without_column"]

LARGEST_ID = 2.0**53  # larger integers may become equal when a reader turns them into floats
Weigh = Callable[[Dense | Sparse | None, Vector | None], IntVector]


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """The units that are protected, and the weight of each row."""

    n: int  # number of units, times the rows kept of each: public
    neighbours: Neighbours  # data sets that must look alike
    facts: Mapping[str, Any]  # entries of the privacy statement
    count: int  # number of rows, private where units are persons
    # private: integer weights of quantised rows with their targets; only a choice of rows looks at these
    weigh: Weigh
    # private: number of each row's person, -1 for none; None where each of a person's rows counts by itself
    owners: IntVector | None = None


def persons(ids: Any, *, declared: int | None = None, max_rows: int | None = None) -> Units:
    """Return the units of records in which a person may have several rows.

    Parameters
    ----------
    ids : array-like, shape (n,)
        Id of each row's person, compared by canonical value. A row without an id, or with a number of 2^53 or
        more, is left out.
    declared : int, optional
        Number of persons where it is known beforehand; by default the number of different ids, which is then
        public.
    max_rows : int, optional
        Largest number of rows used of a person, chosen by a hash of their content; by default all rows of a
        person share the weight of one row.
    """
    for name, value in (("persons", declared), ("max_rows", max_rows)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise WrongValue(f"{name} must be a positive integer or None, got {show(value)}.")
    owners, found = _owners(ids)
    if declared is None and found == 0:
        raise WrongValue(
            "No row has the id of a person. Give ids as text, or as numbers below 2^53; a fit may also "
            "declare persons."
        )
    known = found if declared is None else declared
    facts: dict[str, Any] = {
        "person": "rows with one id, compared by value; a row without an id, or with a number of 2^53 or "
        "more, has no part",
        "persons_are": "declared; a person may have no rows"
        if declared is not None
        else "the different ids, whose number is public: a person has at least one row",
        "rows_used": "all; those of a person share the weight of one row"
        if max_rows is None
        else f"at most {max_rows} of a person, chosen by a hash of their content",
    }
    if max_rows is None:
        neighbours = Neighbours("replace", "person", weight=WEIGHT)
        return Units(known, neighbours, facts, len(owners), lambda rows, y: _equal_weights(owners), owners)
    neighbours = Neighbours("replace", "person", max_rows, WEIGHT)
    return Units(
        known * max_rows,
        neighbours,
        facts,
        len(owners),
        lambda rows, y: WEIGHT * _choose(owners, rows, y, max_rows),
    )


def survey_weights(weights: Any, bounds: Any) -> Units:
    """Return rows with survey weights in declared bounds (0, V).

    A weight that is missing, negative or no number is 0; one above V is V.
    """
    if bounds is None:
        raise WrongValue(
            "sample_weight needs weight_bounds=(0, V), V being the largest weight, from public knowledge: "
            "noise is made for a row of that weight."
        )
    low, high = bound_pair(bounds, "weight_bounds")
    if low.shape or high.shape or low != 0 or not (np.isfinite(high) and high > 0):
        raise WrongValue(f"weight_bounds must be (0, V) with a finite V > 0, got {show(bounds)}.")
    values = native_array(weights)
    if values.ndim != 1:
        raise WrongValue(f"sample_weight must be a 1d array, got {values.ndim} dimension(s).")
    numbers = read_numbers(values)
    with np.errstate(all="ignore"):
        shares = np.clip(np.where(np.isnan(numbers), 0.0, numbers / float(high)), 0.0, 1.0)
    integers = np.floor(shares * WEIGHT).astype(np.int64)
    facts = {
        "weights": f"in [0, {float(high):g}]: a larger one counts as {float(high):g}, a missing or negative "
        "one as 0. Noise is made for a row of the largest weight"
    }
    return Units(len(values), Neighbours(weight=WEIGHT), facts, len(values), lambda rows, y: integers)


def take_column(X: Any, name: str, parameter: str = "person") -> tuple[Any, Any]:
    """Return a table without the column of persons or of weights, and that column.

    `parameter`: the one that names the column, for messages.
    """
    import narwhals as nw

    frame = open_typed(X)
    if not isinstance(frame, nw.DataFrame) or name not in frame.columns:
        raise WrongValue(
            f"{parameter}={name!r} names a column of a data frame, which X does not have: name a column, or "
            f"give fit {'groups=ids' if parameter == 'person' else 'an array of weights'} instead."
        )
    return frame.drop(name).to_native(), frame[name].to_native()


def without_column(X: Any, name: str | None) -> Any:
    """Return a table without the column of persons, where it has one."""
    import narwhals as nw

    if name is None:
        return X
    frame = open_typed(X)
    return frame.drop(name).to_native() if isinstance(frame, nw.DataFrame) and name in frame.columns else X


def _owners(ids: Any) -> tuple[IntVector, int]:
    """Number of each row's person, -1 for none, and the number of persons."""
    cells = native_array(ids)
    if cells.ndim == 2 and cells.shape[1] == 1:
        cells = cells[:, 0]
    if cells.ndim != 1:
        raise WrongValue(f"Ids of persons must form a 1d array, got {cells.ndim} dimension(s).")
    known: dict[Any, int] = {}
    owners = np.full(len(cells), -1, dtype=np.int64)
    for row, value in enumerate(canonical_cells(cells)):
        if isinstance(value, str) or (isinstance(value, float) and abs(value) < LARGEST_ID):
            owners[row] = known.setdefault(value, len(known))
    return owners, len(known)


def _equal_weights(owners: IntVector) -> IntVector:
    """floor(2^14 / m) for each of the m rows of a person, 0 for a row of none."""
    weights = np.zeros(len(owners), dtype=np.int64)
    owned = owners >= 0
    weights[owned] = WEIGHT // np.bincount(owners[owned])[owners[owned]]
    return weights


def _choose(owners: IntVector, rows: Dense | Sparse | None, y: Vector | None, most: int) -> NDArray[np.bool_]:
    """At most so many rows of each person, by a hash of what is stored of a row; none of rows of nobody.

    The choice is a function of the person's own rows, and not of their order.
    """
    if rows is None or y is None:
        raise WrongValue("Rows are chosen by their content, so that they are quantised first.")
    ranks = np.array([_rank(rows, y, i) for i in range(len(owners))], dtype=np.uint64)
    order = np.lexsort((ranks, owners))
    starts = np.searchsorted(owners[order], owners[order], side="left")
    chosen = np.zeros(len(owners), dtype=bool)
    chosen[order] = (np.arange(len(owners)) - starts < most) & (owners[order] >= 0)
    return chosen


def _rank(rows: Dense | Sparse, y: Vector, i: int) -> int:
    if isinstance(rows, Dense):
        content = rows.values[i].tobytes()
    else:
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        content = rows.indices[part].astype(np.int64).tobytes() + rows.values[part].tobytes()
    digest = hashlib.blake2b(content + y[i].tobytes(), digest_size=8, person=b"dpcvx row")
    return int.from_bytes(digest.digest(), "big")
