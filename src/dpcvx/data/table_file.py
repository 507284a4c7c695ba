"""The file of a table, of any format: its header, and cells that are read on demand."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dpcvx.errors import Unreadable, WrongValue

__all__ = [
    "FOREIGN",
    "HEADER_HINT",
    "STATISTICS",
    "WORKBOOK",
    "FileHeader",
    "TableFile",
    "check_names",
    "open_binary",
    "read_bytes",
    "read_toml",
]

Level = str | int | float

WORKBOOK = ".xlsx"
# readers of pyreadstat, by the ending of a file
STATISTICS = {
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
    ".sav": "read_sav",
    ".zsav": "read_sav",
}
FOREIGN = (*STATISTICS, WORKBOOK)  # files of other programs

# Said instead of the columns found: the first line of a file without a header is somebody's record.
HEADER_HINT = (
    "check the names: the first line of a CSV file must be its header, with a comma between two names "
    "(the commands take another separator by --sep)."
)


def check_names(names: Sequence[str]) -> None:
    """Refuse columns of the same name."""
    if len(set(names)) < len(names):
        raise WrongValue(f"The table names a column more than once; {HEADER_HINT}")


@dataclass(frozen=True)
class FileHeader:
    """Names of columns, with the types and value labels that a file declares; no cell is read.

    Types and labels may have been made from cells by the program that wrote the file: they serve proposals
    that somebody confirms.
    """

    names: list[str]
    types: Mapping[str, str] = field(default_factory=dict)  # "number", "text", "boolean" or "date", by column
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of values, by column


class TableFile:
    """A file of a table whose cells are read only on demand.

    `columns`: names, in the file's order; `read`: returns an Arrow table of the columns of the given names:
    those of numbers, and those of levels.
    """

    def __init__(self, columns: list[str], read: Callable[[Sequence[str], Sequence[str]], Any]) -> None:
        self.columns, self._read = columns, read
        check_names(columns)

    def read(
        self,
        features: Sequence[str],
        words: Collection[str],
        target: str | None = None,
        classes: Sequence[Level] | None = None,
    ) -> tuple[Any, Any]:
        """Return the features as an Arrow table, and the target as an Arrow array.

        `features`: columns to return; `words`: those that are not numbers; `target`: column of the target;
        None returns no target; `classes`: its labels; None for a numeric target.
        """
        labelled = {*words} if classes is None else {*words, target}
        wanted = [*features] if target is None else [*features, target]
        table = self._read(
            [name for name in wanted if name not in labelled], [name for name in wanted if name in labelled]
        )
        return table.select(list(features)), None if target is None else table[target]


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """Return the first bytes of a file, or all, and say in one sentence where that fails."""
    with open_binary(path) as file:
        return file.read(limit)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise WrongValue, in one sentence, if it is not valid TOML."""
    try:
        content = tomllib.loads(read_bytes(path).decode())
        repr(content)  # Python reads hexadecimal and binary numbers of any length, but does not show them all
    except RecursionError:
        raise WrongValue(f"{path} is nested too deeply.") from None
    # Of the decoder, of UTF-8, or of a number that has too many digits.
    except ValueError as error:
        raise WrongValue(f"{path} is not valid TOML: {error}") from None
    return content


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read bytes, and say in one sentence where that fails."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist.") from None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None
