"""Where records come from, a few at a time: Parquet and CSV files, Arrow streams, and any batches in memory.

A reader knows the columns before it reads a record; its errors speak of these, of files and of nothing else.
Cells are read by the rules for tables in memory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from dpcvx.data.files import NOT_PARQUET, PLAIN, CsvDialect, csv_header, csv_table
from dpcvx.data.table_file import HEADER_HINT
from dpcvx.errors import Unreadable, WrongType, WrongValue
from dpcvx.words import quantity

__all__ = ["ArrowReader", "BatchReader", "CsvReader", "FileReader", "ParquetReader", "Reader"]

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

    `features`: columns to use; by default all but the targets.
    """

    def __init__(self, data: Any, features: Sequence[str] | None, target: Target) -> None:
        stream = _arrow_stream(data)
        self._schema, self._stream = stream.schema, stream
        self._features, self._target = _chosen(self._schema.names, features, target), target
        self.source: Mapping[str, Any] = {"kind": "arrow", "schema": [*self._features, *_names(target)]}
        self.rows: int | None = None
        self.header: Batch = _split(_made_up(self._schema), self._features, target)
        self._done = 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """Records so far."""
        return self._done, None

    def batches(self, skip: int, rows: int) -> Iterator[Batch]:
        """Yield records and targets after the first ``skip``, at most ``rows`` of them at a time."""
        for batch in self._stream:
            if batch.schema.names != self._schema.names:
                raise WrongValue("The record batches of a stream must all have the columns of the first one.")
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, min(rows, batch.num_rows - start))
                fresh = part.slice(min(part.num_rows, max(0, skip - self._done)))
                self._done += part.num_rows
                if fresh.num_rows:
                    yield _split(fresh, self._features, self._target)


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
            except (pa.ArrowException, OSError):
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


class BatchReader:
    """Pairs (X, y) of whatever an estimator takes, all with the same columns."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        pairs = iter(batches)
        self.header: Batch = _pair(next(pairs, None))
        self._batches = chain([self.header], pairs)
        self.source: Mapping[str, Any] = {"kind": "batches"}
        self.rows: int | None = None
        self._done = 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """Records so far."""
        return self._done, None

    def batches(self, skip: int, rows: int) -> Iterator[Batch]:
        """Yield records and targets after the first ``skip``, at most ``rows`` of them at a time."""
        from dpcvx.data.table import Table

        for pair in self._batches:
            X, y = _pair(pair)
            n = Table(X).n
            if len(y) != n:
                raise WrongValue(f"A batch has {quantity(n, 'row')} of X but {len(y)} of y; they must agree.")
            for start in range(0, n, rows):
                stop = min(n, start + rows)
                fresh = start + min(stop - start, max(0, skip - self._done))
                self._done += stop - start
                if fresh < stop:
                    yield _sliced(X, fresh, stop), _sliced(y, fresh, stop)


def _pair(given: Any) -> Batch:
    if given is None:
        raise WrongValue("There is no batch: give an iterable of pairs (X, y).")
    if not isinstance(given, tuple) or len(given) != 2 or not hasattr(given[1], "__len__"):
        raise WrongType(f"Every batch must be a pair (X, y), got {type(given).__name__}.")
    return given[0], given[1]


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
    except (pa.ArrowException, OSError):
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
