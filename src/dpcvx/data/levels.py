"""Declared levels of a column, or classes of a target, and the place of any cell among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.data.canonical import NUMBER_KINDS, canonical, map_cells, read_numbers
from dpcvx.errors import WrongValue
from dpcvx.words import LARGEST_SHOWN, show

__all__ = ["BOOLEAN_WORDS", "COMPARED", "DECLARED", "OMITTED", "WHOLE", "DeclaredLevels"]

# Encodings of a column of levels, as features:
# compared: one for every level (of two levels, for all but the baseline). Coefficients are differences from
#   the baseline, which is the declared or the first level;
# whole: one for every level, with a coefficient each, for models without an intercept;
# omitted: one for every level but the baseline, which is the declared or the first level;
# declared: one for every level but the baseline, if one is declared.
COMPARED, WHOLE, OMITTED, DECLARED = "compared", "whole", "omitted", "declared"

BOOLEAN_WORDS = {"yes": 1.0, "y": 1.0, "t": 1.0, "no": 0.0, "n": 0.0, "f": 0.0}  # beside true, false, 1, 0
FEW = 10  # numbers that are faster checked one by one


@dataclass(frozen=True)
class DeclaredLevels:
    """Levels in a declared order; a cell is the level with the same canonical value.

    Where a level is written like a mark of a missing cell ("NA" for Namibia), every missing cell is that
    level: a reader keeps the text in a column of text, and finds a missing cell in a column of numbers.

    Features of a fit: 1 where a cell is the level, 0 where it is another, one for each level but the omitted
    one, where there is one. The features of a cell that is no level are missing: they become shares of the
    levels, so that it does not count as the baseline. The coefficients that a model publishes are differences
    from that of the baseline.
    """

    values: tuple[Any, ...]
    baseline: int | None = None  # place of the level that the others are compared with
    omitted: int | None = None  # place of the level without a feature; the baseline, or None

    @classmethod
    def declare(cls, labels: Any, what: str) -> DeclaredLevels:
        """Return levels as plain text, numbers and booleans, whose canonical values are all different.

        `what`: name of the declaration, for messages. Declared levels are returned as they are.
        """
        if isinstance(labels, DeclaredLevels):
            return labels
        try:
            plain = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
        except TypeError:
            plain = (None,)
        accepted = all(isinstance(label, str | bool | int | float) and label == label for label in plain)
        if isinstance(labels, str) or not accepted:
            raise WrongValue(
                f"{what} must be a list of different labels (text, numbers, booleans), got {show(labels)}."
            )
        first: dict[Any, int] = {}
        for place, label in enumerate(plain):
            before = first.setdefault(canonical(label), place)
            if before < place:
                few = len(plain) <= LARGEST_SHOWN  # many may be records
                pair = f"{show(plain[before])} and {show(label)}" if few else f"entries {before} and {place}"
                raise WrongValue(
                    f"{what} must be a list of different labels, but {pair} count as one value, because "
                    "readers of tables write numbers, booleans, dates and missing cells in several ways, and "
                    "white space around text does not count. "
                    "Declare one of the two, or rename one in the table."
                )
        return cls(plain)

    def with_baseline(self, place: int | None, encoding: str) -> DeclaredLevels:
        """Return the levels with their baseline and features.

        `place`: of the declared baseline; `encoding`: one of `COMPARED`, `WHOLE`, `OMITTED` and `DECLARED`.
        """
        if place is None and encoding != DECLARED and len(self.values) > 1:
            place = 0
        # Of two levels one feature is enough, and rows with two would be longer.
        whole = encoding == WHOLE or (encoding == COMPARED and len(self.values) > 2)
        return replace(self, baseline=place, omitted=None if whole else place)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, code: int) -> Any:
        return self.values[code]

    @property
    def coded(self) -> tuple[int, ...]:
        """Places of the levels that have a feature."""
        return tuple(code for code in range(len(self.values)) if code != self.omitted)

    @property
    def is_compared(self) -> bool:
        """Whether the baseline has a feature, so that the features of a known cell sum to 1."""
        return self.baseline is not None and self.omitted is None

    @property
    def share(self) -> float:
        """Value of every feature for a cell that is none of the levels, where no shares are released.

        With a baseline the L levels have equal shares 1/L.
        """
        return 0.0 if self.baseline is None else 1.0 / len(self.values)

    def codes(self, cells: NDArray[Any]) -> NDArray[np.int64]:
        """Return the place of each cell among the levels, -1 for a cell that is none of them."""
        if cells.dtype.kind in NUMBER_KINDS:
            return self._number_codes(read_numbers(cells))
        codes = map_cells(cells, lambda value: self._known.get(value, -1))
        return np.array(codes, dtype=np.int64).reshape(cells.shape)

    @cached_property
    def _known(self) -> dict[Any, int]:
        known: dict[Any, int] = {}
        for code, level in enumerate(self.values):
            known.setdefault(canonical(level), code)
        return known

    def _number_codes(self, cells: NDArray[np.float64]) -> NDArray[np.int64]:
        numbers = sorted(value for value in self._known if isinstance(value, float))
        codes = np.full(cells.shape, -1, dtype=np.int64)
        if len(numbers) < FEW:
            for number in numbers:
                codes[cells == number] = self._known[number]
        else:
            nearest = np.minimum(np.searchsorted(numbers, cells), len(numbers) - 1)
            found = np.array(numbers)[nearest] == cells
            codes[found] = np.array([self._known[number] for number in numbers])[nearest[found]]
        if None in self._known:
            codes[np.isnan(cells)] = self._known[None]
        return codes
