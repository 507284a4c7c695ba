"""Text about the columns of a schema that analysts see: label, unit, names of levels and of codes in bins."""

from __future__ import annotations

from typing import Any, Protocol

from dpcvx.data.column_labels import check_label, check_value_labels
from dpcvx.data.variables import Variable, one_cell
from dpcvx.errors import WrongValue

__all__ = ["WORDS", "check_words", "declared_words", "words_of"]

WORDS = ("label", "unit", "value_labels")  # entries for people, which change no answer


class Worded(Protocol):
    """The parts of an attribute of a schema that have words."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def label(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def value_labels(self) -> Any: ...
    def cell(self, value: str) -> int: ...


def check_words(column: Worded) -> None:
    """Check words for people; names of values become those of cells, several of one cell joined."""
    try:
        for name in ("label", "unit"):
            object.__setattr__(column, name, check_label(name, getattr(column, name)))
        pairs = check_value_labels(column.value_labels, lambda value: column.cell(value) >= 0)
    except WrongValue as error:
        raise WrongValue(f"{column.name!r}: {error}") from None
    cells: dict[str, list[str]] = {}
    for value, name in sorted(pairs, key=lambda pair: column.cell(pair[0])):
        cells.setdefault(column.labels[column.cell(value)], []).append(name)
    object.__setattr__(
        column, "value_labels", tuple((cell, " / ".join(each)) for cell, each in cells.items())
    )


def words_of(column: Worded) -> dict[str, Any]:
    """Return the words of a column as plain types, as far as they are declared."""
    words = {"label": column.label, "unit": column.unit, "value_labels": dict(column.value_labels)}
    return {name: value for name, value in words.items() if value}


def declared_words(column: Any, variable: Variable) -> dict[str, Any]:
    """Return the words that the declaration of a column gives one of its variables."""
    label = getattr(column, "label", "")
    if variable.name != variable.column:  # a part of a date, or whether a number is missing
        part = variable.name.removeprefix(variable.column).lstrip(".")
        return {"label": f"{label}, {part}" if label else ""}
    unit = "" if variable.levels is not None else getattr(column, "unit", "")
    labels = getattr(column, "value_labels", ())
    if variable.answers is not None:
        truth = {variable.answers[int(column.read(one_cell(value))[0])]: name for value, name in labels}
        return {"label": label, "value_labels": truth}
    return {"label": label, "unit": unit, "value_labels": labels}
