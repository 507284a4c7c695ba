"""Where records come from, a few at a time: Parquet and CSV files, Arrow streams, and any batches in memory.

A reader knows the columns before it reads a record; its errors speak of these, of files and of nothing else.
Cells are read by the rules for tables in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from dpcvx.data.files import (
    NOT_PARQUET,
    PLAIN,
    USUAL,
    CsvDialect,
    FileForm,
    csv_header,
    csv_table,
    open_table,
)
from dpcvx.data.table_file import FOREIGN, HEADER_HINT, TableFile
from dpcvx.data.units import take_column
from dpcvx.errors import Unreadable, WrongType, WrongValue
from dpcvx.words import quantity

__all__ = [
    "ArrowReader",
    "BatchReader",
    "CsvReader",
    "FileReader",
    "ParquetReader",
    "Reader",
    "TableFileReader",
]

BYTES_AT_ONCE = 2**22  # of a CSV file

Batch = tuple[Any, Any]
Target = str | Sequence[str]


class Reader(Protocol):
    """Records in a fixed order, with their public facts."""

    @property
    def header(self) -> Batch:
        """Records and targets with the right columns; what they hold may be made up."""

    @property
    def source(self) -> Mapping[str, Any]:
        """Facts that identify these records: kind, files with size and time, columns."""

    @property
    def rows(self) -> int | None:
        """Number of records, where it is known before they are read."""

    @property
    def progress(self) -> tuple[int, int | None]:
        """How much has been read, of how much, in any unit."""

    def batches(self, skip: int, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield records and targets after the first ``skip``, at most ``rows`` of them at a time.

        Ids of persons follow where there is a column of them.
        """


class FileReader(Reader, Protocol):
    """Records that can be read twice, so that ids of persons are known before the records are written."""

    def ids(self, rows: int) -> Iterator[Any]:
        """Yield the ids of all persons, at most ``rows`` of them at a time."""


class ArrowReader:
    """Record batches of one schema.

    `data`: whatever holds record batches, or a function that returns it, anew each time; `features`: columns
    to use, by default all but the targets and the ids; `person`: column of ids.
    """

    def __init__(
        self, data: Any, features: Sequence[str] | None, target: Target, person: str | None = None
    ) -> None:
        self._open = _opener(data, person, "from_arrow")
        self._stream = _arrow_stream(self._open())
        self._schema = self._stream.schema
        self.features, self._target = _chosen(self._schema.names, features, target, person), target
        self._person = person
        self.source: Mapping[str, Any] = {"kind": "arrow", "schema": [*self.features, *_names(target)]}
        self.rows: int | None = None
        self.header: Batch = _split(_made_up(self._schema), self.features, target)
        self._done = 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """Records so far."""
        return self._done, None

    def ids(self, rows: int) -> Iterator[Any]:
        """Yield the ids of all persons, at most ``rows`` of them at a time."""
        return (part.column(self._person) for part in self._parts(_arrow_stream(self._open()), 0, rows))

    def batches(self, skip: int, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield records, targets and ids after the first ``skip``, at most ``rows`` of them at a time."""
        stream = self._stream if self._person is None else _arrow_stream(self._open())
        ids = [] if self._person is None else [self._person]
        for part in self._parts(stream, skip, rows):
            yield (*_split(part, self.features, self._target), *(part.column(name) for name in ids))

    def _parts(self, stream: Any, skip: int, rows: int) -> Iterator[Any]:
        self._done = 0
        for batch in stream:
            if batch.schema.names != self._schema.names:
                raise WrongValue("The record batches of a stream must all have the columns of the first one.")
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, min(rows, batch.num_rows - start))
                fresh = part.slice(min(part.num_rows, max(0, skip - self._done)))
                self._done += part.num_rows
                if fresh.num_rows:
                    yield fresh


class ParquetReader:
    """Parquet files of one schema, one after the other.

    `features`: columns to use; by default all but the targets and the ids; `person`: column of ids.
    """

    def __init__(
        self, paths: Any, features: Sequence[str] | None, target: Target, person: str | None = None
    ) -> None:
        self._paths = _listed(paths, (".parquet", ".pq"))
        schemas = []
        self.rows = 0
        for path in self._paths:
            file = _parquet(path)
            schemas.append(file.schema_arrow)
            self.rows += file.metadata.num_rows
        self.features, self._target = _chosen(schemas[0].names, features, target, person), target
        self._person = person
        for path, schema in zip(self._paths, schemas, strict=True):
            if schema.names != schemas[0].names:
                raise WrongValue(f"{path} has other columns than {self._paths[0]}.")
        self.header: Batch = _split(_made_up(schemas[0]), self.features, target)
        self.source: Mapping[str, Any] = {
            "kind": "parquet",
            "files": [_file_facts(path) for path in self._paths],
            "schema": [*self.features, *_names(target)],
        }
        self._done = 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """Records so far, of all."""
        return self._done, self.rows

    def ids(self, rows: int) -> Iterator[Any]:
        """Yield the ids of all persons, at most ``rows`` of them at a time."""
        return (batch.column(self._person) for batch in self._read(0, rows, [self._person]))

    def batches(self, skip: int, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield records, targets and ids after the first ``skip``, at most ``rows`` of them at a time."""
        ids = [] if self._person is None else [self._person]
        self._done = skip
        for batch in self._read(skip, rows, [*self.features, *_names(self._target), *ids]):
            self._done += batch.num_rows
            yield (*_split(batch, self.features, self._target), *(batch.column(name) for name in ids))

    def _read(self, skip: int, rows: int, wanted: list[str | None]) -> Iterator[Any]:
        """Record batches of some columns."""
        import pyarrow as pa

        for path in self._paths:
            file = _parquet(path)
            if skip >= file.metadata.num_rows:
                skip -= file.metadata.num_rows
                continue
            groups = list(range(file.num_row_groups))
            while (held := file.metadata.row_group(groups[0]).num_rows) <= skip:
                skip -= held
                groups.pop(0)
            try:
                for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=wanted):
                    fresh = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - fresh.num_rows
                    if fresh.num_rows:
                        yield fresh
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                raise Unreadable(f"{path} {NOT_PARQUET}") from None


class CsvReader:
    """CSV files with one header, one after the other; every line below a header is one record.

    `features`: columns to use; by default all but the targets and the ids; `words`: those that are not
    numbers; `classes`: labels of the target; None for numbers; `person`: column of ids; `dialect`: form of
    the files.
    """

    def __init__(
        self,
        paths: Any,
        features: Sequence[str] | None,
        target: Target,
        *,
        words: Collection[str],
        classes: Sequence[Any] | None,
        person: str | None = None,
        dialect: CsvDialect = PLAIN,
    ) -> None:
        self._paths, self._dialect = _listed(paths, (".csv",)), dialect
        headers = [csv_header(next(self._records(path), b""), path, dialect) for path in self._paths]
        for path, header in zip(self._paths, headers, strict=True):
            if header != headers[0]:  # it may be a record: its text is nobody's business
                raise WrongValue(f"{path} has another header than {self._paths[0]}; {HEADER_HINT}")
        self._header, self._target, self._person = headers[0], target, person
        self.features = _chosen(self._header, features, target, person, shown=False)
        unknown = [name for name in words if name not in self.features]
        if unknown:
            raise WrongValue(f"categories name {unknown[0]!r}, which is no feature; {HEADER_HINT}")
        self._words, self._classes = words, classes
        facts = [_file_facts(path) for path in self._paths]
        form = {} if dialect == PLAIN else {"dialect": asdict(dialect)}
        self.source: Mapping[str, Any] = {"kind": "csv", "files": facts, "schema": self.features, **form}
        self.rows: int | None = None
        self.header: Batch = self._read([dialect.sep.encode(dialect.encoding) * (len(self._header) - 1)])
        self._done, self._total = 0, sum(file["bytes"] for file in facts)

    @property
    def progress(self) -> tuple[int, int | None]:
        """Bytes so far, of all."""
        return self._done, self._total

    def ids(self, rows: int) -> Iterator[Any]:
        """Yield the ids of all persons, at most ``rows`` of them at a time."""
        return map(self._ids, self._some(0, rows))

    def batches(self, skip: int, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield records, targets and ids after the first ``skip``, at most ``rows`` of them at a time."""
        for lines in self._some(skip, rows):
            yield self._read(lines) if self._person is None else (*self._read(lines), self._ids(lines))

    def _some(self, skip: int, rows: int) -> Iterator[list[bytes]]:
        """Lines of records after the first ``skip``, at most ``rows`` of them at a time."""
        self._done = 0
        for path in self._paths:
            lines = self._records(path)
            self._done += len(next(lines)) + 1
            waiting: list[bytes] = []
            for line in lines:
                self._done += len(line) + 1
                if skip:
                    skip -= 1
                    continue
                waiting.append(line)
                if len(waiting) == rows:
                    yield waiting
                    waiting = []
            if waiting:
                yield waiting

    def _records(self, path: Path) -> Iterator[bytes]:
        return self._dialect.join(_lines(path))

    def _ids(self, lines: Sequence[bytes]) -> Any:
        person = "" if self._person is None else self._person
        table, _ = csv_table(self._header, lines, self._dialect).read([person], [person])
        return table[person]

    def _read(self, lines: Sequence[bytes]) -> Batch:
        table = csv_table(self._header, lines, self._dialect)
        targets = _names(self._target)
        if len(targets) == 1:
            return table.read(self.features, self._words, targets[0], self._classes)
        X, _ = table.read([*self.features, *targets], self._words)
        return X.select(self.features), X.select(targets)


class TableFileReader:
    """Files of Stata, SAS, SPSS or Excel with the same columns, one after the other; each is read as a whole.

    `features`: columns to use; by default all but the targets and the ids; `words`: those that are not
    numbers; `classes`: labels of the target; None for numbers; `person`: column of ids; `form`: sheet of
    workbooks.
    """

    def __init__(
        self,
        paths: Any,
        features: Sequence[str] | None,
        target: Target,
        *,
        words: Collection[str],
        classes: Sequence[Any] | None,
        person: str | None = None,
        form: FileForm = USUAL,
    ) -> None:
        self._paths, self._form = _listed(paths, FOREIGN), form
        columns = [self._open(path).columns for path in self._paths]
        for path, names in zip(self._paths, columns, strict=True):
            if names != columns[0]:
                raise WrongValue(f"{path} has other columns than {self._paths[0]}.")
        self.features = _chosen(columns[0], features, target, person)
        if unknown := [name for name in words if name not in self.features]:
            raise WrongValue(f"categories name {unknown[0]!r}, which is no feature.")
        self._target, self._person = target, person
        self._words, self._classes = words, classes
        sheet = {} if form.sheet is None else {"sheet": form.sheet}
        self.source: Mapping[str, Any] = {
            "kind": "files",
            "files": [_file_facts(path) for path in self._paths],
            "schema": self.features,
            **sheet,
        }
        self.rows: int | None = None
        targets = _names(target)
        texts = {*words, *(() if classes is None else targets)}
        self.header: Batch = _split(_missing_record([*self.features, *targets], texts), self.features, target)
        self._done = 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """Files so far, of all."""
        return self._done, len(self._paths)

    def ids(self, rows: int) -> Iterator[Any]:
        """Yield the ids of all persons, those of a file at a time."""
        ids = [] if self._person is None else [self._person]
        return (self._open(path).read(ids, ids)[0][self._person] for path in self._paths)

    def batches(self, skip: int, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield records, targets and ids after the first ``skip``, at most ``rows`` of them at a time."""
        targets, ids = _names(self._target), [] if self._person is None else [self._person]
        words = [*self._words, *(() if self._classes is None else targets), *ids]
        for place, path in enumerate(self._paths):
            table, _ = self._open(path).read([*self.features, *targets, *ids], words)
            for start in range(min(skip, table.num_rows), table.num_rows, rows):
                part = table.slice(start, rows)
                yield (*_split(part, self.features, self._target), *(part[name] for name in ids))
            skip -= min(skip, table.num_rows)
            self._done = place + 1

    def _open(self, path: Path) -> TableFile:
        if path.suffix.lower() not in FOREIGN:
            raise WrongValue(
                f"from_files reads files that end in {', '.join(FOREIGN)}, not {path}: use from_parquet or "
                "from_csv."
            )
        return open_table(path, self._form.of(path))


class BatchReader:
    """Pairs (X, y) of whatever an estimator takes, all with the same columns.

    Batches without rows are left out: whether there are any depends on a person whose rows fill one.

    `batches`: an iterable, or a function that returns one, anew each time; `person`: column of ids in X.
    """

    def __init__(self, batches: Any, person: str | None = None) -> None:
        self._open = _opener(batches, person, "from_batches")
        self._person = person
        pairs = _with_rows(self._open())
        first = next(pairs, None)
        self._first = chain([first], pairs)
        self.header: Batch = self._with_ids(first)[:2]
        self.source: Mapping[str, Any] = {"kind": "batches"}
        self.rows: int | None = None
        self._done = 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """Records so far."""
        return self._done, None

    def ids(self, rows: int) -> Iterator[Any]:
        """Yield the ids of all persons."""
        return (self._with_ids(pair)[2] for pair in _with_rows(self._open()))

    def batches(self, skip: int, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield records, targets and ids after the first ``skip``, at most ``rows`` of them at a time."""
        from dpcvx.data.table import Table

        self._done = 0
        for pair in self._first if self._person is None else _with_rows(self._open()):
            parts = self._with_ids(pair)
            X, y = parts[:2]
            n = Table(X).n
            if len(y) != n:
                # The number of rows is private where persons have several.
                found = f": {quantity(n, 'row')} of X but {len(y)} of y" if self._person is None else ""
                raise WrongValue(f"X and y of a batch must have the same number of rows{found}.")
            for start in range(0, n, rows):
                stop = min(n, start + rows)
                fresh = start + min(stop - start, max(0, skip - self._done))
                self._done += stop - start
                if fresh < stop:
                    yield tuple(_sliced(part, fresh, stop) for part in parts)

    def _with_ids(self, pair: Any) -> tuple[Any, ...]:
        """X, y and, where there are persons, their ids."""
        X, y = _pair(pair)
        if self._person is None:
            return X, y
        X, ids = take_column(X, self._person)
        return X, y, ids


def _opener(data: Any, person: str | None, what: str) -> Callable[[], Any]:
    """Return a function that gives the data from their beginning: once, or twice where there are persons.

    `what`: the function that takes the data, for messages.
    """
    if callable(data):
        opener: Callable[[], Any] = data
        return opener
    once = hasattr(data, "__next__") or hasattr(data, "read_next_batch")
    if person is not None and once:
        raise WrongType(
            f"{what} reads the data twice where there are persons, first their ids, and "
            f"{type(data).__name__} can be read only once: give a function that returns it."
        )
    return lambda: data


def _pair(given: Any) -> Batch:
    if given is None:
        raise WrongValue("There is no batch: give an iterable of pairs (X, y).")
    if not isinstance(given, tuple) or len(given) != 2 or not hasattr(given[1], "__len__"):
        raise WrongType(f"Every batch must be a pair (X, y), got {type(given).__name__}.")
    return given[0], given[1]


def _with_rows(pairs: Any) -> Iterator[Batch]:
    """Yield the pairs that have rows."""
    for X, y in map(_pair, pairs):
        if len(y) or _length(X):
            yield X, y


def _sliced(rows: Any, start: int, stop: int) -> Any:
    if start == 0 and stop == _length(rows):
        return rows
    if hasattr(rows, "tocsr"):
        return rows.tocsr()[start:stop]
    if hasattr(rows, "iloc"):
        return rows.iloc[start:stop]
    return rows.slice(start, stop - start) if hasattr(rows, "slice") else rows[start:stop]


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _names(target: Target) -> list[str]:
    return [target] if isinstance(target, str) else list(target)


def _chosen(
    columns: Sequence[str],
    features: Sequence[str] | None,
    target: Target,
    person: str | None = None,
    *,
    shown: bool = True,
) -> list[str]:
    """Names of the features, once they, the targets and the ids are known to be there, and once only."""
    targets = _names(target) if isinstance(target, str | Sequence) else []
    if not targets or not all(isinstance(name, str) for name in targets):
        raise WrongType(f"target must be the name of a column, or a list of names; got {target!r}.")
    if isinstance(features, str):
        raise WrongType(f"features must be a list of columns, got {features!r}.")
    if len(set(columns)) < len(columns):
        raise WrongValue(f"The table names a column more than once; {HEADER_HINT}")
    # The first line of a CSV file without a header is somebody's record, so its columns are not listed.
    known = f"Columns: {', '.join(columns)}." if shown else f"C{HEADER_HINT[1:]}"
    others, ids = [*targets, person], [] if person is None else [person]
    chosen = [name for name in columns if name not in others] if features is None else list(features)
    for name in [*targets, *ids, *chosen]:
        if name not in columns:
            raise WrongValue(f"There is no column {name!r}. {known}")
    if both := set(chosen) & set(targets):
        raise WrongValue(f"{sorted(both)[0]!r} is a target and a feature at once; leave it out of features.")
    if person in (*targets, *chosen):
        raise WrongValue(f"{person!r} holds the ids of persons: it is neither a feature nor a target.")
    if not chosen or len(set(chosen)) < len(chosen):
        raise WrongValue("features must name at least one column, each once.")
    return chosen


def _split(batch: Any, features: list[str], target: Target) -> Batch:
    """Features as a table and targets as a column, or a table where there are several."""
    targets = _names(target)
    return batch.select(features), batch.select(targets) if len(targets) > 1 else batch.column(targets[0])


def _made_up(schema: Any) -> Any:
    """One record of a schema without a value in it."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=_nullable(schema))


def _missing_record(names: Sequence[str], words: Collection[str]) -> Any:
    """One record of text and numbers without a value in it."""
    import pyarrow as pa

    return pa.table(
        {name: pa.nulls(1, pa.large_string() if name in words else pa.float64()) for name in names}
    )


def _nullable(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema([field.with_nullable(True) for field in schema])


@dataclass(frozen=True)
class _Batches:
    """Record batches of the same columns; their types may differ, as those of inferred ones do."""

    schema: Any  # of the first batch
    batches: Iterator[Any]

    def __iter__(self) -> Iterator[Any]:
        return self.batches


def _arrow_stream(data: Any) -> Any:
    """Whatever holds record batches, as an iterable with the schema of the first one."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):  # Arrow tables too
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "scanner"):
        return data.scanner().to_reader()
    batches = iter(data)
    first = next(batches, None)
    if not isinstance(first, pa.RecordBatch):
        raise WrongType(
            "from_arrow takes an Arrow table, a record batch reader, an iterable of record batches or an "
            f"object that exports an Arrow stream; got {type(data).__name__}."
        )
    return _Batches(first.schema, chain([first], batches))


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _file_facts(path)
    try:
        return pq.ParquetFile(path, memory_map=True)  # a large row group need not be in memory
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise Unreadable(f"{path} {NOT_PARQUET}") from None


def _listed(paths: Any, endings: tuple[str, ...]) -> list[Path]:
    """Files of a path, a folder or several paths; those of a folder in the order of their names."""
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        if not path.is_dir():
            return [path.absolute()]
        found = sorted(each.absolute() for each in path.iterdir() if each.suffix.lower() in endings)
        if not found:
            raise Unreadable(f"{path} is a folder without files that end in {' or '.join(endings)}.")
        return found
    several = [Path(path).absolute() for path in paths]
    if not several:
        raise WrongValue("Give at least one path.")
    return several


def _file_facts(path: Path) -> dict[str, Any]:
    try:
        facts = path.stat()
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist.") from None
    except OSError as problem:
        raise Unreadable(f"{path} cannot be read: {problem.strerror}.") from None
    if facts.st_size == 0:
        raise Unreadable(f"{path} is empty.")
    return {"path": str(path), "bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}


def _lines(path: Path) -> Iterator[bytes]:
    """Lines of a file without their line feeds; what follows the last one is a line unless it is empty."""
    try:
        with path.open("rb") as file:
            rest = b""
            while content := file.read(BYTES_AT_ONCE):
                *whole, rest = (rest + content).split(b"\n")
                yield from whole
            if rest:
                yield rest
    except OSError as problem:
        raise Unreadable(f"{path} cannot be read: {problem.strerror}.") from None
