"""Targets: how declared labels and numbers become the targets of a loss.

Records in memory, on disk and on workers are all encoded here. No cell raises: a label that is not declared
and a number that is missing have fixed codes, under which a record is left out (PRIVACY_MATH §17).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import canonical_cells, read_numbers
from dpcvx.data.cells import cell_codes, native_array
from dpcvx.data.columns import bound_pair
from dpcvx.data.levels import BOOLEAN_WORDS, DeclaredLevels
from dpcvx.data.table import Levels
from dpcvx.errors import WrongType, WrongValue
from dpcvx.words import quantity, show

if TYPE_CHECKING:
    from dpcvx.data.model_formula import TargetTransform

# Every spelling, in upper and lower case, of the words for true and false.
SPELLINGS = {
    "".join(letters): bool(value)
    for word, value in BOOLEAN_WORDS.items()
    for letters in itertools.product(*((letter, letter.upper()) for letter in word))
}
STILL_MEASURED = "its features count in means and deviations where these are released"
NO_PART = f"a row whose target is missing, or no finite number, is left out of the fit; {STILL_MEASURED}"


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels among declared classes."""

    classes: NDArray[Any]  # labels in the order of their codes
    # {"signs", "codes"}: targets of the loss. "signs" are +1 and -1: one column for two classes, +1 for the
    # second, and one column for each of more classes, +1 for its own. "codes" are positions in ``classes``.
    form: str = "signs"
    origin: str = "declared"  # how the classes became known, for the privacy statement
    center: ClassVar[float] = 0.0
    scale: ClassVar[float] = 1.0

    @classmethod
    def declare(cls, classes: Any) -> Labels:
        """Return declared labels, checked."""
        return cls(label_array(DeclaredLevels.declare(classes, "classes").values))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row's scores: () for two classes, (K,) for more."""
        return () if len(self.classes) == 2 else (len(self.classes),)

    @property
    def outputs(self) -> int:
        """Number of scores of a row."""
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Number of encoded targets of a row."""
        return 1 if self.form == "codes" else self.outputs

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the privacy statement."""
        return {
            "classes": self.classes.tolist(),
            "classes_are": self.origin,
            "labels": "a row with another label, or without one, is left out of the fit; " + STILL_MEASURED,
        }

    @property
    def levels(self) -> Levels:
        """Declared labels of the raw target, as the levels of columns are."""
        return (DeclaredLevels(tuple(self.classes.tolist())),)

    def codes(self, y: Any) -> NDArray[np.int64]:
        """Return the index of the class of each raw target, shape (n,); -1 for a target of no class.

        Classes False and True are also written as no and yes, in the words of a column of booleans.
        """
        classes = self.classes.tolist()
        if self.classes.dtype.kind != "b":
            return cell_codes(y, DeclaredLevels(tuple(classes)), read_one)
        found = cell_codes(y, DeclaredLevels((*classes, *SPELLINGS)), read_one)
        places = [*range(len(classes)), *map(classes.index, SPELLINGS.values()), -1]
        codes: NDArray[np.int64] = np.array(places, dtype=np.int64)[found]
        return codes

    def recognised(self, y: Any) -> NDArray[np.bool_]:
        """Say of each class whether it is the label of a record, shape (n, classes)."""
        found: NDArray[np.bool_] = self.codes(y)[:, None] == np.arange(len(self.classes))
        return found

    def encode(self, y: Any) -> Vector:
        """Return targets of the loss, shape (n, K); a label that is none of the classes is 0, as code -1."""
        codes = self.codes(y)[:, None]
        if self.form == "codes":
            return codes.astype(np.float64)
        positive = [1] if self.outputs == 1 else list(range(self.outputs))
        return np.where(codes < 0, 0.0, np.where(codes == np.array(positive), 1.0, -1.0))


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers within declared bounds.

    A score z stands for center + scale * z in the user's units.
    """

    low: Vector  # low, high: bounds, of shape () for one target and (K,) for several
    high: Vector
    # how the bounds became known, for the privacy statement; None where they are declared
    origin: str | None = None
    transform: TargetTransform | None = None  # of raw numbers, by the left side of a formula

    @classmethod
    def declare(cls, y_bounds: Any, shape: tuple[int, ...], transform: TargetTransform | None = None) -> Self:
        """Return declared bounds of a target, shape (), or of each of K, shape (K,), checked."""
        low, high = bound_pair(y_bounds, "y_bounds")
        if not {low.shape, high.shape} <= {(), shape}:
            wanted = " or of arrays with one entry for each target" if shape else ""
            raise WrongValue(f"y_bounds must be a pair (low, high) of numbers{wanted}, got {show(y_bounds)}.")
        if not ((low < high) & np.isfinite(high - low)).all():
            hint = " A pair of arrays holds all lows, then all highs." if shape else ""
            raise WrongValue(f"y_bounds must be finite with low < high, got {show(y_bounds)}.{hint}")
        return cls(np.broadcast_to(low, shape), np.broadcast_to(high, shape), transform=transform)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row's scores."""
        return self.low.shape

    @property
    def outputs(self) -> int:
        """Number of scores of a row."""
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Number of encoded targets of a row."""
        return self.outputs

    @property
    def scale(self) -> Vector:
        """Half of the width of the bounds."""
        half: Vector = (self.high - self.low) / 2
        return half

    @property
    def center(self) -> Vector:
        """Middle of the bounds."""
        return self.low + self.scale

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the privacy statement."""
        known = {"y_bounds": [self.low.tolist(), self.high.tolist()], "y_enforced": f"clipped; {NO_PART}"}
        if self.transform is not None:
            known = {"y": str(self.transform.expression), **known}
        return known if self.origin is None else {**known, "y_bounds_are": self.origin}

    @property
    def levels(self) -> Levels:
        """No declared labels for any of the raw targets, as for columns of numbers."""
        return (None,) * self.outputs

    def numbers(self, y: Any) -> Vector:
        """Return raw targets as numbers, shape (n,) or (n, K); NaN where one is none."""
        found = read_numbers(read_several(y) if self.shape else read_one(y))
        return found if self.transform is None else self.transform(found)

    def recognised(self, y: Any) -> NDArray[np.bool_]:
        """Say of each raw target whether it is a finite number, shape (n, K)."""
        found: NDArray[np.bool_] = np.isfinite(self.numbers(y)).reshape(-1, self.outputs)
        return found

    def encode(self, y: Any) -> Vector:
        """Return targets in [-1, 1], shape (n, K); NaN, which leaves the row out, if not a finite number."""
        with np.errstate(all="ignore"):
            raw = self.numbers(y)
            scaled = np.where(np.isfinite(raw), np.clip((raw - self.center) / self.scale, -1.0, 1.0), np.nan)
        return scaled.reshape(len(scaled), -1)


@dataclass(frozen=True, eq=False)
class Amounts(Numbers):
    """Numbers >= 0 up to a declared bound: scaled, but not centred.

    A lower bound below 0 counts as 0.
    """

    def __post_init__(self) -> None:
        if not (self.high > 0).all():
            raise WrongValue(f"Amounts need y_bounds=(low, high) with high > 0, got high={self.high}.")

    @property
    def scale(self) -> Vector:
        """The upper bound."""
        return self.high

    @property
    def center(self) -> Vector:
        """Zero."""
        return np.zeros_like(self.high)

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the privacy statement."""
        return {**super().facts, "y_enforced": f"clipped, and to 0 from below; {NO_PART}"}

    def encode(self, y: Any) -> Vector:
        """Return targets in [0, 1], shape (n, K); NaN, which leaves the row out, if not a finite number."""
        return np.maximum(super().encode(y), np.maximum(self.low, 0.0) / self.scale)


Target = Labels | Numbers


def read_one(y: Any) -> NDArray[Any]:
    """Return raw targets of shape (n,); a single column counts as one."""
    values = native_array(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise WrongValue(f"y should be a 1d array, got one with {_dimensions(values)} instead.")
    return values


def _dimensions(values: NDArray[Any]) -> str:
    """Shape of targets in words, without the number of rows: it may be private."""
    rest = "".join(f" x {length}" for length in values.shape[1:])
    return f"shape n{rest}" if values.size else "no cells"


def read_several(y: Any) -> NDArray[Any]:
    """Return raw targets of shape (n, K) or (n,)."""
    if hasattr(y, "tocsr"):
        raise WrongType("y must be dense; a sparse matrix of targets is not taken.")
    values = native_array(y, ndim=2)
    if values.ndim == 1 and isinstance(y, Sequence) and any(isinstance(row, list | tuple) for row in y):
        # One odd row must not decide how many targets a list has.
        raise WrongValue("The rows of a list must all have the same number of cells.")
    if values.ndim not in (1, 2) or values.size == 0:
        raise WrongValue(f"y must have shape (n, K) or (n,), got one with {_dimensions(values)}.")
    return values


def open_target(
    y: Any, n: int, read: Callable[[Any], NDArray[Any]] = read_one, *, stacklevel: int = 2
) -> NDArray[Any]:
    """Return raw targets whose shape is right for n records; no cell is looked at.

    `n`: number of records; `read`: `read_one` or `read_several`; `stacklevel`: of the warning about a column
    vector.
    """
    values = read(y)
    if values.ndim == 1 and len(getattr(y, "shape", ())) == 2:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Use y.ravel().",
            DataConversionWarning,
            stacklevel=stacklevel,
        )
    if values.shape[0] != n:
        raise WrongValue(f"X has {quantity(n, 'row')} but y has {values.shape[0]}; they must agree.")
    return values


def distinct_labels(y: NDArray[Any]) -> list[float | str]:
    """Return the different canonical values of raw targets that are neither missing nor unknown objects."""
    return [value for value in dict.fromkeys(canonical_cells(y)) if isinstance(value, float | str)]


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Return labels as an array that keeps them apart: 1 and "1" are different."""
    array = np.asarray(labels)
    if array.dtype.kind in "US" and not all(isinstance(label, str) for label in labels):
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
    return array
