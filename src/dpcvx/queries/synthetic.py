"""Tables of synthetic records drawn from a public histogram: post-processing, for any number of rows."""

from __future__ import annotations

import math
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.queries.schema import Binned, Schema
from dpcvx.queries.universe import Universe
from dpcvx.whole_files import replace_file

if TYPE_CHECKING:
    from dpcvx.noise import Generator
    from dpcvx.queries.histogram import Histogram
    from dpcvx.queries.local_models import LocalModels

__all__ = ["STATEMENT_KEY", "statement_path", "synthetic_table", "write_synthetic"]

STATEMENT_KEY = b"dpcvx.privacy_statement"
NUMBERS = ("value", "uniform")


class Statement(Protocol):
    """Privacy statement of the histogram."""

    def to_json(self) -> str:
        """Return it as JSON text."""
        ...


def synthetic_table(
    histogram: Histogram | LocalModels,
    n: int,
    rng: Generator,
    *,
    numbers: str = "value",
    schema: Schema | None = None,
) -> dict[str, Any]:
    """Draw records from a histogram, in the table's own units.

    Parameters
    ----------
    histogram : Histogram
        Public.
    n : int
        Rows to draw; nothing ties them to the number of records.
    rng : Generator
        A seeded one may be used: the draw hides nothing.
    numbers : {"value", "uniform"}
        Number for a bin: its value, or one drawn evenly from it.
    schema : Schema, optional
        Values of bins, where they were measured; by default those of the histogram's schema.

    Returns
    -------
    dict
        Columns by name, each of n cells.
    """
    if n < 0:
        raise WrongValue(f"The number of rows is {n}; it must not be negative.")
    if numbers not in NUMBERS:
        raise WrongValue(f"numbers must be one of {', '.join(NUMBERS)}, got {numbers!r}.")
    universe = histogram.universe if schema is None else Universe(schema)
    cells = histogram.sample(n, rng)
    columns = universe.decode(cells)
    if numbers == "uniform":
        digits = np.unravel_index(cells, universe.shape) if universe.listed else cells
        for attribute, code in zip(universe.schema.attributes, digits, strict=True):
            if isinstance(attribute, Binned):
                empty = [np.nan] * (attribute.size - attribute.known)
                low = np.append(attribute.edges[:-1], empty)[code]
                width = np.append(np.diff(attribute.edges), empty)[code]
                columns[attribute.name] = low + width * _uniform(n, rng)
    for attribute in universe.schema.attributes:
        if isinstance(attribute, Binned):
            columns[attribute.name] = _rounded(columns[attribute.name], attribute)
    return columns


def _rounded(numbers: Vector, attribute: Binned) -> Vector:
    """Return numbers to a hundredth of the narrowest bin, each inside its own bin.

    More digits would look like measured numbers, and say nothing: a bin has one mean.
    """
    edges = np.array(attribute.edges)
    step = 10.0 ** (math.floor(math.log10(np.diff(edges).min())) - 2)
    bins = np.searchsorted(edges[1:-1], numbers, side="right")
    found = numbers
    for whole in (np.ceil, np.floor, np.round):  # the nearest that stays inside
        candidate = whole(numbers / step) * step
        candidate = np.round(candidate, max(0, -round(math.log10(step))))  # 0.07, not 0.07000000000000001
        inside = (np.searchsorted(edges[1:-1], candidate, side="right") == bins) & (
            (candidate >= edges[0]) & (candidate <= edges[-1])
        )
        found = np.where(inside, candidate, found)
    return found


def _uniform(n: int, rng: Generator) -> Vector:
    return (rng.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def statement_path(path: Path) -> Path:
    """Return the path of the privacy statement of a table."""
    return path.with_name(f"{path.name}.privacy.json")


def write_synthetic(path: str | Path, columns: dict[str, Any], statement: Statement) -> None:
    """Write a table with the privacy statement of its histogram.

    The statement lies beside the table as NAME.privacy.json; a Parquet file also carries it in its metadata.

    Parameters
    ----------
    path : str or Path
        Ends in .csv or .parquet.
    columns : dict
        As `synthetic_table` returns them.
    statement : PrivacyStatement
        Privacy statement of the histogram; anything with ``to_json``.
    """
    import pyarrow as pa

    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise WrongValue(f"{path} must end in .csv or .parquet, to say what it is.")
    words = statement.to_json()
    # A missing cell is empty, of numbers too.
    table = pa.table({name: pa.array(_cells(column), from_pandas=True) for name, column in columns.items()})
    # The statement is written first, so that no table exists without one.
    replace_file(statement_path(path), lambda part: part.write_text(words, encoding="utf-8"))
    if kind == ".csv":
        from pyarrow import csv

        replace_file(path, lambda part: csv.write_csv(table, part))
    else:
        from pyarrow import parquet

        metadata = {**(table.schema.metadata or {}), STATEMENT_KEY: words.encode()}
        whole = table.replace_schema_metadata(metadata)
        replace_file(path, lambda part: parquet.write_table(whole, part))


def _cells(column: Any) -> Any:
    """Return a column of one type; levels of several types become text."""
    if column.dtype == object and len({type(cell) for cell in column} - {NoneType}) > 1:
        return [None if cell is None else str(cell) for cell in column]
    return column
