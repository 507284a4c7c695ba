"""Neighbouring data sets: whose data may differ, and how far a sum over the records then moves."""

from __future__ import annotations

from dataclasses import dataclass

from dpcvx.errors import WrongValue
from dpcvx.events import RELATIONS

__all__ = ["REPLACE_ONE", "WEIGHT", "WEIGHT_BITS", "Neighbours"]

UNITS = ("row", "person")
WEIGHT_BITS = 14  # b of PRIVACY_MATH §16
WEIGHT = 2**WEIGHT_BITS  # the whole weight of a unit, as an integer


@dataclass(frozen=True)
class Neighbours:
    """The pairs of data sets that a guarantee is about (PRIVACY_MATH §0, §16).

    A sensitivity is the diameter of the set of all values that one unit can add to a sum. Records of one unit
    lie in a set Q; the diameters here are exact integers, or squares of them, in units of the size of Q.
    """

    # {"replace", "add_remove"}: one unit is replaced by another, so that the number of units is public; or
    # one is added or removed
    relation: str = "replace"
    unit: str = "row"  # {"row", "person"}: a person may have several rows, all of which change together
    # rows of a unit that count, k. A row counts once. A person counts as k rows if at most k of its rows are
    # used, and as one if its rows have weights that add up to that of one row.
    rows: int = 1
    # Records enter integer sums with integer weights, and those of a unit add up to at most this; 1 where
    # they have no weights. See `WEIGHT`.
    weight: int = 1

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise WrongValue(f"relation must be one of {', '.join(RELATIONS)}, got {self.relation!r}.")
        if self.unit not in UNITS:
            raise WrongValue(f"unit must be one of {', '.join(UNITS)}, got {self.unit!r}.")
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise WrongValue(f"rows must be a positive integer, got {self.rows!r}.")
        if self.unit == "row" and self.rows != 1:
            raise WrongValue(f"A row is one row, got rows={self.rows}: give unit='person'.")
        if self.weight not in (1, WEIGHT):
            raise WrongValue(f"weight must be 1, or {WEIGHT} for weighted records, got {self.weight!r}.")

    @property
    def replaces(self) -> bool:
        """Whether a unit is replaced, so that the number of units is public."""
        return self.relation == "replace"

    def squared_diameter(self, apart: int, longest: int) -> int:
        """Return the squared l2 sensitivity of a sum of records from any set Q.

        `apart`: largest squared distance between two points of Q; `longest`: largest squared norm of a point
        of Q: the distance from a record that is left out.
        """
        if not self.replaces:
            return self.rows**2 * longest
        # A person may have fewer rows than count, or none, and a weight may be 0: 0 is then among the values
        # of a unit even where it is not in Q.
        always = self.unit == "row" and self.weight == 1
        return self.rows**2 * (apart if always else max(apart, longest))

    @property
    def ball(self) -> int:
        """Diameter where Q is a ball around 0, over its radius: 2 k under replace, k under add/remove."""
        return 2 * self.rows if self.replaces else self.rows

    @property
    def interval(self) -> int:
        """Diameter where Q is an interval that has 0 in it, over its length: k under either relation."""
        return self.rows

    @property
    def cone_squared(self) -> int:
        """Squared diameter where Q holds positive semidefinite matrices, over their squared Frobenius norm.

        Their inner products are not negative, so ||A - B||^2 <= ||A||^2 + ||B||^2: 2 k^2 under replace, k^2
        under add/remove (PRIVACY_MATH §15).
        """
        return self.squared_diameter(2, 1)

    @property
    def words(self) -> str:
        """The two data sets, for the sentence "Take ..."."""
        if self.unit == "row":
            return (
                "two data sets of the same size that differ in one row"
                if self.replaces
                else "two data sets of which one has one row more"
            )
        return (
            "two data sets that differ in the rows of one person"
            if self.replaces
            else "two data sets of which one has the rows of one person more"
        )

    @property
    def change(self) -> str:
        """The difference between neighbours, for the sentence "neighbours differ by ..."."""
        return f"replacing one {self.noun}" if self.replaces else f"adding or removing one {self.noun}"

    @property
    def noun(self) -> str:
        """The word for a unit: "record" or "person"."""
        return "record" if self.unit == "row" else "person"


REPLACE_ONE = Neighbours()  # two data sets of the same public size that differ in one row
