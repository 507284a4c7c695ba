"""Table of a fitted additive model: a line for each shape, with one test of the whole shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.estimators.inference import Summary, WaldTests, wald
from dpcvx.estimators.shapes import Shape, Shapes
from dpcvx.estimators.tables import Column, ResultTable, number
from dpcvx.words import quantity

__all__ = ["PRODUCTS", "ShapeSummary"]

PRODUCTS = "products of pairs"
READ_SHAPES = (
    "lowest, highest: contributions of a column to the score over its knots or levels, of products their "
    "coefficients. shapes_ has all values, plot() draws them (command line: dpcvx show --shapes, --plot)."
)
JOINT = "chi2: test that a column has no effect, its line and all ramps or levels together."


@dataclass(frozen=True, eq=False, repr=False)
class ShapeSummary(Summary):
    """Table of a fitted additive model's shapes, from what was released with it."""

    shapes: Shapes | None = None

    def table(self) -> ResultTable:
        """Return the table: a row for each column, and one for all products of pairs."""
        several = len(self.estimates) > 1
        rows = list(self._rows())
        output = [Column("output")] if several else []
        columns = [Column(""), *output, Column("form"), Column("lowest", number), Column("highest", number)]
        notes = (READ_SHAPES, *self.notes)
        if self.uncertainty is not None:
            tests = self._tests().table()
            columns += tests.columns[1:]
            rows = [(*row, *test[1:]) for row, test in zip(rows, tests.rows, strict=True)]
            notes = (JOINT, *notes, *tests.notes)
        return ResultTable(self.title, self._facts(), tuple(columns), tuple(rows), notes)

    def _facts(self) -> tuple[tuple[str, str], ...]:
        start = "" if self.shapes is None else ", ".join(map(number, np.ravel(self.shapes.intercept)))
        return (*self.facts, ("score at means", start))

    def _tests(self) -> WaldTests:
        known = self.uncertainty
        tested = [(label, self.terms.whole_column(label)) for label, _, _ in self.terms.columns]
        found = [wald(column, known, label) for label, column in tested if column is not None and known]
        return WaldTests(tuple(found), self.adjust)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        shapes = self.shapes
        if shapes is None:
            return
        for place, (output, _, _) in enumerate(self.estimates):
            label = (output,) if len(self.estimates) > 1 else ()
            for shape in shapes.values():
                values = shape.values if shape.debiased is None else shape.debiased
                one = values if values.ndim == 1 else values[:, place]
                yield (shape.column, *label, _form(shape), float(one.min()), float(one.max()))
            if shapes.interactions:
                pairs = np.array(list(shapes.interactions.values())).reshape(len(shapes.interactions), -1)
                one = pairs[:, place]
                form = quantity(len(one), "product")
                yield (PRODUCTS, *label, form, float(one.min()), float(one.max()))


def _form(shape: Shape) -> str:
    if not shape.is_number:
        return quantity(len(shape.at), "level")
    if isinstance(shape.at[0], str):  # several features by a declared map, of which a shape has the ends
        return "map"
    return "line" if len(shape.at) <= 2 else f"{len(shape.at)} knots"
