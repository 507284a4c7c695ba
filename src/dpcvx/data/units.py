"""Units of protection: persons with several rows, and survey weights, as integer weights of rows.

The weights of one unit's rows add up to a public number at most, whatever the rows are (PRIVACY_MATH §16).
Ids, weights and the number of a person's rows are private: no error here depends on one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.canonical import Canonical, map_cells, read_numbers
from dpcvx.data.cells import native_array, open_typed
from dpcvx.data.columns import bound_pair
from dpcvx.data.rows import Dense, Sparse
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.words import show

__all__ = [
    "PersonColumnRule",
    "PersonRule",
    "Persons",
    "Units",
    "canonical_ids",
    "choose_rows",
    "content_ranks",
    "equal_weights",
    "person_column",
    "persons",
    "survey_weights",
    "take_column",
    "weighted_persons",
]

LARGEST_ID = 2.0**53  # larger integers may become equal when a reader turns them into floats
# Other ways to give the cells of a column, by the parameter that names it.
INSTEAD = {
    "person": ", or give fit groups=ids instead",
    "sample_weight": ", or give fit an array of weights instead",
}
Weigh = Callable[[Dense | Sparse, Vector], IntVector]


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """The units that are protected, and the weight of each row."""

    n: int  # number of units, times the rows kept of each: public
    neighbours: Neighbours  # data sets that must look alike
    facts: Mapping[str, Any]  # entries of the privacy statement
    # private: integer weights of the rows, those of a unit adding up to at most 2^14
    shares: IntVector
    owners: IntVector | None = None  # private: number of each row's person, -1 for none
    # private: integer weights in a fit, where they depend on quantised rows and targets: of chosen rows
    choose: Weigh | None = None

    @property
    def count(self) -> int:
        """Number of rows, private where units are persons."""
        return len(self.shares)

    def weigh(self, rows: Dense | Sparse, y: Vector) -> IntVector:
        """Return the integer weights of quantised rows with their targets in a fit."""
        return self.shares if self.choose is None else self.choose(rows, y)


@dataclass(frozen=True)
class PersonRule:
    """Declared number of persons, and how their rows count; public."""

    declared: int | None = None  # number of persons where it is known beforehand
    max_rows: int | None = None  # rows that are used of a person; None for all, with the weight of one row

    def __post_init__(self) -> None:
        for name, value in (("persons", self.declared), ("max_rows", self.max_rows)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise WrongValue(f"{name} must be a positive integer or None, got {show(value)}.")

    @property
    def neighbours(self) -> Neighbours:
        """Data sets that must look alike."""
        return Neighbours("replace", "person", self.max_rows or 1, WEIGHT)

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the privacy statement."""
        return {
            "person": "rows with one id, compared by value; a row without an id, or with a number of 2^53 or "
            "more, is left out",
            "persons_are": "declared; a person may have no rows"
            if self.declared is not None
            else "the different ids, whose number is public: a person has at least one row",
            "rows_used": "all; those of a person share the weight of one row"
            if self.max_rows is None
            else f"at most {self.max_rows} of a person, chosen by a hash of their content",
        }

    def units(self, found: int) -> int:
        """Return the public number of units, the rows kept of each included.

        `found`: number of different ids.
        """
        if self.declared is None and found == 0:
            raise WrongValue(
                "No row has the id of a person. Give ids as text, or as numbers below 2^53; a fit may also "
                "declare persons."
            )
        return (found if self.declared is None else self.declared) * (self.max_rows or 1)


@dataclass(frozen=True)
class PersonColumnRule:
    """The column of ids, and what is declared about persons; it is public."""

    column: str
    rule: PersonRule

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as plain types that JSON can hold."""
        return {"column": self.column, "persons": self.rule.declared, "max_rows": self.rule.max_rows}

    @classmethod
    def from_plain(cls, content: Any) -> PersonColumnRule:
        """Read what `to_plain` wrote."""
        return cls(content["column"], PersonRule(content["persons"], content["max_rows"]))


def person_column(column: str | None, persons: int | None, max_rows: int | None) -> PersonColumnRule | None:
    """Return the rule of persons that the arguments declare; None where every row is a person."""
    if column is None:
        if persons is not None or max_rows is not None:
            raise Incompatible("persons and max_rows need person, the column with the ids of persons.")
        return None
    if not isinstance(column, str):
        raise WrongType(f"person must be the name of a column, got {type(column).__name__}.")
    return PersonColumnRule(column, PersonRule(persons, max_rows))


class Persons:
    """Ids of persons, numbered as they are met, a few rows at a time; private.

    Ids are compared by canonical value. A row without an id, or with a number of 2^53 or more, belongs to
    nobody, -1.
    """

    def __init__(self) -> None:
        self._numbers: dict[Canonical, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, ids: Any) -> IntVector:
        """Return the number of each row's person; persons that were not met before are added."""
        return self.add(canonical_ids(ids))

    def add(self, values: Iterable[Canonical]) -> IntVector:
        """Return the number of each canonical id, adding new ones."""
        known = self._numbers
        owners = [-1 if value is None else known.setdefault(value, len(known)) for value in values]
        return np.array(owners, dtype=np.int64)


def persons(ids: Any, *, declared: int | None = None, max_rows: int | None = None) -> Units:
    """Return the units of records in which a person may have several rows.

    Parameters
    ----------
    ids : array-like, shape (n,)
        Id of each row's person; see `Persons`.
    declared : int, optional
        Number of persons where it is known beforehand; by default the number of different ids, which is then
        public.
    max_rows : int, optional
        Largest number of rows used of a person, chosen by a hash of their content; by default all rows of a
        person share the weight of one row.
    """
    rule, met = PersonRule(declared, max_rows), Persons()
    owners = met.number(ids)
    units = Units(rule.units(len(met)), rule.neighbours, rule.facts, equal_weights(owners), owners)
    if max_rows is None:
        return units

    def choose(rows: Dense | Sparse, y: Vector) -> IntVector:
        weights = np.zeros(len(owners), dtype=np.int64)
        weights[choose_rows(owners, content_ranks(rows, y), max_rows)] = WEIGHT
        return weights

    return replace(units, choose=choose)


def weighted_persons(people: Units, weights: Units) -> Units:
    """Return persons whose rows have survey weights: those of a person are divided by the number of rows.

    With ``max_rows`` a row that is kept has its own weight.

    `people`: of `persons`; `weights`: of `survey_weights`, for the same rows.
    """
    owners, choose = people.owners, people.choose
    if owners is None or people.count != weights.count:
        # The number of rows is private, so the message does not name it.
        raise WrongValue("groups and sample_weight must have the same number of rows.")
    whole = weights.shares
    found = replace(people, shares=_shared(whole, owners), facts={**people.facts, **weights.facts})
    if choose is None:
        return found
    return replace(found, choose=lambda rows, y: np.where(choose(rows, y) > 0, whole, 0))


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
    return Units(len(values), Neighbours(weight=WEIGHT), facts, integers)


def take_column(X: Any, name: str, parameter: str = "person") -> tuple[Any, Any]:
    """Return a table without the column of persons, of weights or of exposures, and that column.

    `parameter`: the one that names the column, for messages.
    """
    import narwhals as nw

    frame = open_typed(X)
    if not isinstance(frame, nw.DataFrame) or name not in frame.columns:
        raise WrongValue(
            f"{parameter}={name!r} names a column of a data frame, which X does not have: name a column"
            f"{INSTEAD.get(parameter, '')}."
        )
    return frame.drop(name).to_native(), frame[name].to_native()


def equal_weights(owners: IntVector, counts: IntVector | None = None) -> IntVector:
    """Return floor(2^14 / m) for each row of a person with m rows, 0 for a row of nobody.

    `counts`: rows of each person, where these are not all of them.
    """
    return _shared(np.where(owners >= 0, WEIGHT, 0), owners, counts)


def _shared(whole: IntVector, owners: IntVector, counts: IntVector | None = None) -> IntVector:
    """floor(w / m) for each row of weight w of a person with m rows, 0 for a row of nobody.

    No w is above 2^14, so the weights of a person add up to at most 2^14.
    """
    weights = np.zeros(len(owners), dtype=np.int64)
    owned = owners >= 0
    m = np.bincount(owners[owned]) if counts is None else counts
    weights[owned] = whole[owned] // m[owners[owned]]
    return weights


def choose_rows(owners: IntVector, ranks: NDArray[np.uint64], most: int) -> NDArray[np.int64]:
    """Return the places of at most so many rows of each person, those of the lowest ranks; none of nobody.

    The choice is a function of the person's own rows. Rows of one rank are alike, so that the first of them
    may be taken.
    """
    order = np.lexsort((ranks, owners))
    starts = np.searchsorted(owners[order], owners[order], side="left")
    kept = (np.arange(len(owners)) - starts < most) & (owners[order] >= 0)
    places: NDArray[np.int64] = np.sort(order[kept])
    return places


def content_ranks(rows: Dense | Sparse, y: Vector) -> NDArray[np.uint64]:
    """Return a hash of what is stored of each row and its targets, (n,)."""
    return np.array([_rank(rows, y, i) for i in range(rows.shape[0])], dtype=np.uint64)


def canonical_ids(ids: Any) -> list[Canonical]:
    """Return the value of each id; None where a row has none."""
    cells = native_array(ids)
    if cells.ndim == 2 and cells.shape[1] == 1:
        cells = cells[:, 0]
    if cells.ndim != 1:
        raise WrongValue(f"Ids of persons must form a 1d array, got {cells.ndim} dimension(s).")
    return map_cells(
        cells,
        lambda value: (
            value
            if isinstance(value, str) or (isinstance(value, float) and abs(value) < LARGEST_ID)
            else None
        ),
    )


def _rank(rows: Dense | Sparse, y: Vector, i: int) -> int:
    if isinstance(rows, Dense):
        content = rows.values[i].tobytes()
    else:
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        content = rows.indices[part].astype(np.int64).tobytes() + rows.values[part].tobytes()
    digest = hashlib.blake2b(content + y[i].tobytes(), digest_size=8, person=b"dpcvx row")
    return int.from_bytes(digest.digest(), "big")
