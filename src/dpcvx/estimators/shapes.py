"""Shapes of a fitted additive model: the contribution of each column to the score, as tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.column_maps import IDENTITY, each_map
from dpcvx.data.row_map import RowMap
from dpcvx.data.table import feature_counts
from dpcvx.errors import WrongValue
from dpcvx.words import align_columns, quantity

__all__ = ["Shape", "Shapes"]

HALVINGS = 60  # bisections that invert a column map to the last bits
ANSWERS = ("no", "yes")  # of a declared boolean
DIGITS = 13  # of a knot that was found by them, beside the range of all


@dataclass(frozen=True, eq=False)
class Shape:
    """Contribution of one column to the score, 0 at its released mean for a number.

    `column`: its name. `at`: knots in your units, or levels. `values`: contributions, shape (k,), or (k, K)
    with K outputs; between knots a shape is a straight line, of a mapped column one of its mapped cells. A
    number that many cells have may come twice, with the contributions of cells on either side of it; `sides`
    says which: "up to" and "above", or "below" and "from".
    A declared boolean has two points, "no" and "yes". `debiased`, `std`: the estimate without the bias of the
    fit, and its standard error, privacy noise included; None where the fit had no ``uncertainty``.
    `is_number`: whether `at` are knots.
    """

    column: str
    at: tuple[Any, ...]
    values: Vector
    debiased: Any
    std: Any
    is_number: bool
    sides: tuple[str, ...] = ()  # of each point, "" for most; empty if no number comes twice

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Rows (column, at, value, debiased, std, side) of a table, one for each point and output."""
        for k, at in enumerate(self.at):
            side = self.sides[k] if self.sides else ""
            for value in np.atleast_1d(self.values[k]):
                more = (None, None) if self.std is None else (float(self.debiased[k]), float(self.std[k]))
                yield (self.column, at, float(value), *more, side)


@dataclass(frozen=True, eq=False)
class Shapes(Mapping[str, Shape]):
    """Shapes of all columns by name, and products of pairs: ``print`` them, or ``to_csv``, ``to_json``.

    `shapes`: one for each column. `interactions`: coefficient of each product of standardised features, by
    its name "a*b". `intercept`: the score of a row whose cells are the released means.
    """

    model: str
    shapes: Mapping[str, Shape]
    interactions: Mapping[str, Any]
    intercept: Any
    dropped: tuple[str, ...] = ()  # columns that the fit did not select: their contributions are 0

    @classmethod
    def of(cls, model: Any) -> Shapes:
        """Return the shapes of a fitted additive model."""
        rows, coef = model._row_map, np.atleast_2d(model.coef_)
        labels = getattr(model, "feature_names_in_", None)
        labels = [f"x{j}" for j in range(model.n_features_in_)] if labels is None else list(labels)
        bounds = model.privacy_statement_.bounds["bounds"]
        known = model._uncertainty
        found, place, flags = {}, 0, _flags(rows)
        counts = feature_counts(rows.levels, rows.maps)
        for j, (label, levels, count) in enumerate(zip(labels, rows.levels, counts, strict=True)):
            span = range(place, place + int(count))
            place += int(count)
            is_number = levels is None and str(label) not in flags
            at: tuple[Any, ...]
            sides: tuple[str, ...] = ()
            if str(label) in flags:
                at, cells = ANSWERS, _answers(rows, j, span)
            elif is_number and count == 1:
                at, cells, sides = _knots(rows, j, span[0], bounds)
            else:
                at, cells = _levels(rows, levels, span, bounds)
            parts = _parts(rows, span, cells)[:, rows.compared]
            values = parts @ coef.T
            debiased = std = None
            if known is not None:
                debiased = parts @ known.estimate[:-1]
                std = np.sqrt(np.einsum("ij,jk,ik->i", parts, known.covariance[:-1, :-1], parts))
            shape = Shape(
                str(label), at, values[:, 0] if len(coef) == 1 else values, debiased, std, is_number, sides
            )
            found[shape.column] = shape
        basis = None if rows.region is None else rows.region.basis
        pairs = {}
        if basis is not None and basis.pairs:
            names, last = rows.feature_names, len(rows.feature_names)
            pairs = {
                names[k]: (basis.pair_weight * model.coef_[..., k]).tolist()
                for k in range(last - len(basis.pairs), last)
            }
        published = {place: k for k, place in enumerate(rows.compared.tolist())}  # baselines are left out
        dropped = () if basis is None else tuple(rows.feature_names[published[j]] for j in basis.dropped)
        return cls(type(model).__name__, found, pairs, _intercept(model), dropped)

    def __getitem__(self, column: str) -> Shape:
        return self.shapes[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __str__(self) -> str:
        width = 3 if all(shape.std is None for shape in self.shapes.values()) else 5
        lines = [["column", "at", "value", "debiased", "std"][:width]]
        for shape in self.shapes.values():
            for *row, side in shape.rows():
                cells = [_text(cell) for cell in row[:width]]
                lines.append([cells[0], f"{side} {cells[1]}".lstrip(), *cells[2:]])
        title = f"Shapes of {self.model}, intercept {self.intercept}:"
        return "\n".join([title, *align_columns(lines), *self._notes()])

    def _notes(self) -> Iterator[str]:
        """Say what a reader of the table could miss: products of pairs, and why nothing bends."""
        if self.interactions:
            yield (
                f"The score adds {len(self.interactions)} products of pairs of standardised columns: "
                "shapes_.interactions."
            )
        if self.dropped:
            yield (
                f"{quantity(len(self.dropped), 'column')} of numbers were not selected and have no effect: "
                "shapes_.dropped."
            )
        numbers = [shape for shape in self.shapes.values() if shape.is_number]
        if numbers and all(len(shape.at) <= 2 for shape in numbers):
            yield (
                'Numbers have straight lines: knots="auto" lets them bend only if records and epsilon are '
                "enough, for a target with a long tail more than for others; knots=5 always."
            )

    def to_json(self) -> str:
        """Return all shapes, the interactions and the intercept as JSON."""
        shapes = {
            name: {
                "at": list(shape.at),
                "sides": list(shape.sides) or [""] * len(shape.at),
                "values": shape.values.tolist(),
                "debiased": None if shape.debiased is None else shape.debiased.tolist(),
                "std": None if shape.std is None else shape.std.tolist(),
            }
            for name, shape in self.shapes.items()
        }
        content = {"intercept": self.intercept, "shapes": shapes, "interactions": dict(self.interactions)}
        return json.dumps(content, allow_nan=False, ensure_ascii=False)

    def to_csv(self) -> str:
        """Return a table (column, at, value, debiased, std, side) as CSV.

        Two of the columns need ``uncertainty``. The last is empty, except for a number that comes twice.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["column", "at", "value", "debiased", "std", "side"])
        for shape in self.shapes.values():
            writer.writerows(shape.rows())
        return text.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the shapes to a file, as its suffix says: .csv or .json."""
        suffix = Path(path).suffix
        if suffix not in (".csv", ".json"):
            raise WrongValue(f"path must end in .csv or .json, got {suffix!r}.")
        Path(path).write_text(self.to_csv() if suffix == ".csv" else self.to_json(), encoding="utf-8")


def _parts(rows: RowMap, span: range, cells: Vector) -> Vector:
    """Features of a column alone at given cells, shape (k, width); all other columns are at their means.

    The features of baselines are included.
    """
    region, width = rows.region, len(rows.clipped_names)
    parts = np.zeros((len(cells), width))
    if region is None:
        parts[:, span] = cells
        return parts
    basis = region.basis
    if basis is None:
        parts[:, span] = cells - region.center[span]
        return parts
    u = np.zeros((len(cells), basis.d))
    u[:, span] = (cells - region.center[span]) / region.scale[span]
    return basis(u)


def _intercept(model: Any) -> Any:
    """The score of a row at the released means; without standardisation that of a row of zeros."""
    region, coef, places = model._row_map.region, model.coef_, model._row_map.compared
    offset = 0.0 if region is None or region.basis is not None else coef @ region.center[places]
    return np.asarray(model.intercept_ + offset).tolist()


def _knots(
    rows: RowMap, j: int, place: int, bounds: Any
) -> tuple[tuple[float, ...], Vector, tuple[str, ...]]:
    """Knots of a number in the user's units, ends of its range included, and its mapped cells there.

    Also the side of each knot, "" for most, where a knot comes twice.
    """
    region, low, high = rows.region, bounds["low"][place], bounds["high"][place]
    knots = np.array([low, high])
    if region is not None:
        basis = region.basis
        bends = basis is not None and place in {*basis.numbers} - {*basis.flat} - {*basis.dropped}
        inner = basis.knots if basis is not None and bends else ()
        ends = (-region.reach, *inner, region.reach)
        knots = region.center[place] + region.scale[place] * np.array(ends)
    cells = np.unique(np.clip(knots, low, high))
    apply = each_map(rows.maps, len(rows.levels))[j]
    if apply == IDENTITY:
        return tuple(cells.tolist()), cells[:, None], ()
    # Many numbers have the lowest cell where a map clips: the knot is the last of them.
    wanted = [math.nextafter(cells[0], math.inf), *cells[1:].tolist()]
    at = np.array([_inverse(apply, cell) for cell in wanted])
    digits = DIGITS - math.ceil(math.log10(max(at[-1] - at[0], 1e-300)))
    rounded = [round(float(number), digits) for number in at]
    words = [""] * len(rounded)
    for number in {each for each in rounded if rounded.count(each) > 1}:
        # The map jumps, where many cells are one number: the shape has a value on either side, none between.
        first, last = rounded.index(number), rounded.index(number) + rounded.count(number)
        sides = apply(np.array([number - 10.0**-digits, number + 10.0**-digits]))[:, 0]
        rounded[first:last] = [number, number]
        at_number = apply(np.array([number]))[0, 0]
        is_below = abs(at_number - sides[0]) <= abs(at_number - sides[1])
        words[first:last] = ["up to", "above"] if is_below else ["below", "from"]
        cells = np.concatenate([cells[:first], np.clip(sides, cells[0], cells[-1]), cells[last:]])
    return tuple(rounded), cells[:, None], tuple(words) if any(words) else ()


def _inverse(apply: Any, cell: float) -> float:
    """The first number whose map is a cell: maps rise, and end at the bounds of the mapped column."""
    start, step = -1.0, 1.0
    while apply(np.array([start]))[0, 0] > cell and step < math.inf:
        start, step = start - step, 2 * step
    stop, step = 1.0, 1.0
    while apply(np.array([stop]))[0, 0] < cell and step < math.inf:
        stop, step = stop + step, 2 * step
    for _ in range(HALVINGS):
        middle = (start + stop) / 2
        start, stop = (start, middle) if apply(np.array([middle]))[0, 0] >= cell else (middle, stop)
    return stop


def _flags(rows: RowMap) -> set[str]:
    """Names of the columns that are declared to be no or yes."""
    variables = () if rows.schema is None else rows.schema.variables()
    return {each.name for each in variables if each.is_flag}


def _answers(rows: RowMap, j: int, span: range) -> Vector:
    """Mapped cells of no and yes, clipped as in predictions, since a rare yes may be beyond the clip."""
    cells = each_map(rows.maps, len(rows.levels))[j](np.array([0.0, 1.0]))
    if rows.region is None:
        return cells
    room = rows.region.reach * rows.region.scale[span]
    return np.clip(cells, rows.region.center[span] - room, rows.region.center[span] + room)


def _levels(rows: RowMap, levels: Any, span: range, bounds: Any) -> tuple[tuple[Any, ...], Vector]:
    """Levels of a column and its features there; of a map with several features the ends of each."""
    if levels is None:
        ends = np.array([[bounds[side][k] for k in span] for side in ("low", "high")])
        return ("low", "high"), ends
    cells = np.zeros((len(levels.values), len(span)))
    for k, code in enumerate(levels.coded):
        cells[code, k] = 1.0
    return tuple(levels.values), cells


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
