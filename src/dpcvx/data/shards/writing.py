"""Quantise records once into a folder of shards; an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector
from dpcvx.data.declarations import Declarations, check_schema
from dpcvx.data.files import PLAIN, CsvDialect, FileForm
from dpcvx.data.levels import COMPARED
from dpcvx.data.recognised import total_of
from dpcvx.data.rows import Records, Sparse
from dpcvx.data.shards.dataset import Shards
from dpcvx.data.shards.folder import Manifest, Store
from dpcvx.data.shards.readers import (
    ArrowReader,
    BatchReader,
    CsvReader,
    FileReader,
    ParquetReader,
    Reader,
    TableFileReader,
)
from dpcvx.data.shards.recipe import RECOGNISED, Recipe, normalise
from dpcvx.data.shards.row_weights import OTHER_ROWS, RowWeights, weigh_rows
from dpcvx.data.shards.source import OWNERS
from dpcvx.data.table import Table, open_declared
from dpcvx.data.table_schema import TableSchema
from dpcvx.data.units import PersonColumnRule, person_column
from dpcvx.errors import ShardsDamaged, StoreUnavailable, WrongType, WrongValue

__all__ = ["from_arrow", "from_batches", "from_csv", "from_files", "from_parquet"]

CELLS_AT_ONCE = 2**22  # features quantised at a time
ROWS_AT_ONCE = 2**17
SUFFIX = ".shards"
STREAMS = ("arrow", "batches")  # sources without a file that could be recognised


def from_parquet(
    path: Any,
    *,
    target: str | Sequence[str],
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    y_bounds: Any = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    data_norm: float | None = None,
    schema: TableSchema | None = None,
    person: str | None = None,
    persons: int | None = None,
    max_rows: int | None = None,
    store: str | Path | None = None,
    verbose: int = 1,
) -> Shards:
    """Quantise Parquet files, of any size, into mapped shards that every estimator fits.

    Parameters
    ----------
    path : path or sequence of paths
        A file, several files with the same columns, or a folder of them; one row is one person, unless
        ``person`` is given.
    target : str or sequence of str
        Column to predict, or several.
    bounds : pair, pair of arrays, or mapping
        Bounds of the features, as for an estimator; one entry for each of ``features``. Required, unless
        there is a schema.
    classes : sequence, optional
        Labels of the target, for classifiers.
    y_bounds : pair, optional
        Bounds of the target, for regressors; a pair of arrays for several targets.
    features : sequence of str, optional
        Columns to use; by default all but the target.
    categories : mapping, optional
        Declared levels of columns that are not numbers.
    data_norm : float, optional
        Bound on the l2 norm of a raw row.
    schema : TableSchema, optional
        Declaration of the columns, in place of bounds and categories, and perhaps of the target's.
    person : str, optional
        Column with the id of each row's person. All rows of a person, in whatever files, are protected
        together, and the number of rows is private. The ids are read first, from all files; while the shards
        are written they are held in memory.
    persons, max_rows : int, optional
        As for an estimator. With ``max_rows`` the files are read twice.
    store : path, optional
        Folder of the shards; by default the name of the (first) file followed by ".shards". Shards that are
        there already, of the same files with the same declarations, are opened, or finished if a run was
        interrupted; anything else there is refused.
    verbose : int
        0 shows no bar; otherwise there is one on a terminal, on the error stream.

    Returns
    -------
    Shards
        To be given to ``fit``, without y. They hold private records: only their owner may read the files.
    """
    declared = _declare(target, bounds, categories, data_norm, classes, y_bounds, schema)
    people = person_column(person, persons, max_rows)

    def open_reader(chosen: Sequence[str] | None) -> ParquetReader:
        return ParquetReader(path, chosen, target, person=person)

    reader = open_reader(features)
    if declared.schema is not None:
        reader = open_reader(declared.schema.for_table(reader.features).features())
    return _open_or_write(
        reader, declared, _folder(store, path), verbose, None if people is None else (people, reader)
    )


def from_csv(
    path: Any,
    *,
    target: str | Sequence[str],
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    y_bounds: Any = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    data_norm: float | None = None,
    schema: TableSchema | None = None,
    person: str | None = None,
    persons: int | None = None,
    max_rows: int | None = None,
    dialect: CsvDialect | None = None,
    store: str | Path | None = None,
    verbose: int = 1,
) -> Shards:
    """Quantise CSV files, of any size, into mapped shards that every estimator fits.

    The first line is the header, and every line below it is one record (unless quoted cells may contain line
    breaks, see `CsvDialect`), read as by ``dpcvx fit``: a cell that is no number, or no declared level, is
    missing, and so are all cells of a line that has too many or too few.

    Parameters
    ----------
    path : path or sequence of paths
        A file, several files with the same header, or a folder of them; one row is one person, unless
        ``person`` is given.
    target, bounds, classes, y_bounds, features, categories, data_norm, schema, store, verbose
        As for `from_parquet`.
    person, persons, max_rows
        As for `from_parquet`.
    dialect : CsvDialect, optional
        Separator, decimal point, encoding and quoting of the files; by default those of the schema, or
        commas, points and UTF-8.

    Returns
    -------
    Shards
        To be given to ``fit``, without y.
    """
    declared = _declare(target, bounds, categories, data_norm, classes, y_bounds, schema)
    people, labels = person_column(person, persons, max_rows), declared.classes
    if dialect is None:
        dialect = PLAIN if schema is None else schema.file.dialect
    if declared.schema is not None:
        header = CsvReader(
            path, features, target, words=(), classes=labels, person=person, dialect=dialect
        ).features
        own = declared.schema.for_table(header)
        features, words = own.features(), own.text_columns()
        labels = own.target_parameters().get("classes") if labels is None else labels
    else:
        words = list(categories or {})
    reader = CsvReader(path, features, target, words=words, classes=labels, person=person, dialect=dialect)
    return _open_or_write(
        reader, declared, _folder(store, path), verbose, None if people is None else (people, reader)
    )


def from_files(
    path: Any,
    *,
    target: str | Sequence[str],
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    y_bounds: Any = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    data_norm: float | None = None,
    schema: TableSchema | None = None,
    person: str | None = None,
    persons: int | None = None,
    max_rows: int | None = None,
    sheet: str | None = None,
    store: str | Path | None = None,
    verbose: int = 1,
) -> Shards:
    """Quantise files of Stata, SAS, SPSS or Excel into mapped shards that every estimator fits.

    Cells are read as by ``dpcvx fit``; this needs ``dpcvx[files]``. One file at a time is held in memory.

    Parameters
    ----------
    path : path or sequence of paths
        A file (.dta, .sas7bdat, .xpt, .sav, .zsav, .xlsx), several files with the same columns, or a folder
        of them; one row is one person, unless ``person`` is given.
    target, bounds, classes, y_bounds, features, categories, data_norm, schema, store, verbose
        As for `from_parquet`.
    person, persons, max_rows
        As for `from_parquet`.
    sheet : str, optional
        Sheet of workbooks; by default that of the schema, or the first.

    Returns
    -------
    Shards
        To be given to ``fit``, without y.
    """
    declared = _declare(target, bounds, categories, data_norm, classes, y_bounds, schema)
    people, labels, words = person_column(person, persons, max_rows), declared.classes, list(categories or {})
    form = FileForm(sheet=sheet if sheet is not None or schema is None else schema.file.sheet)
    if declared.schema is not None:
        header = TableFileReader(
            path, features, target, words=(), classes=labels, person=person, form=form
        ).features
        own = declared.schema.for_table(header)
        features, words = own.features(), own.text_columns()
        labels = own.target_parameters().get("classes") if labels is None else labels
    reader = TableFileReader(path, features, target, words=words, classes=labels, person=person, form=form)
    return _open_or_write(
        reader, declared, _folder(store, path), verbose, None if people is None else (people, reader)
    )


def from_arrow(
    data: Any,
    *,
    target: str | Sequence[str],
    bounds: Any = None,
    store: str | Path,
    classes: Sequence[Any] | None = None,
    y_bounds: Any = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    data_norm: float | None = None,
    schema: TableSchema | None = None,
    person: str | None = None,
    persons: int | None = None,
    max_rows: int | None = None,
    verbose: int = 1,
) -> Shards:
    """Quantise an Arrow stream into mapped shards that every estimator fits.

    Parameters
    ----------
    data : record batch reader, iterable of record batches, table, or what exports an Arrow stream
        Read once, a batch at a time. To go on after an interruption, give the same stream from its beginning.
        With ``person`` it is read twice: a stream that can be read only once is given as a function that
        returns it, with the same rows in the same order each time.
    target, bounds, classes, y_bounds, features, categories, data_norm, schema, verbose
        As for `from_parquet`.
    person, persons, max_rows
        As for `from_parquet`.
    store : path
        Folder of the shards. One that is complete is refused, since nothing tells two streams apart: open it
        by `open_shards`.

    Returns
    -------
    Shards
        To be given to ``fit``, without y.
    """
    people = person_column(person, persons, max_rows)
    reader = ArrowReader(data, features, target, person)
    declared = _declare(target, bounds, categories, data_norm, classes, y_bounds, schema)
    return _open_or_write(
        reader, declared, Path(store), verbose, None if people is None else (people, reader)
    )


def from_batches(
    batches: Iterable[tuple[Any, Any]] | Callable[[], Iterable[tuple[Any, Any]]],
    *,
    bounds: Any = None,
    store: str | Path,
    classes: Sequence[Any] | None = None,
    y_bounds: Any = None,
    categories: Mapping[Any, Sequence[Any]] | None = None,
    data_norm: float | None = None,
    schema: TableSchema | None = None,
    person: str | None = None,
    persons: int | None = None,
    max_rows: int | None = None,
    verbose: int = 1,
) -> Shards:
    """Quantise pairs (X, y) into mapped shards that every estimator fits.

    Parameters
    ----------
    batches : iterable of pairs
        X and y as an estimator's ``fit`` takes them, SciPy sparse matrices included, all with the same
        columns. To go on after an interruption, give the same batches from their beginning. With ``person``
        they are read twice: a generator is given as a function that returns it.
    bounds, classes, y_bounds, categories, data_norm, schema, verbose
        As for `from_parquet`.
    person, persons, max_rows
        As for `from_parquet`; the column of ids is one of X, a data frame.
    store : path
        As for `from_arrow`.

    Returns
    -------
    Shards
        To be given to ``fit``, without y.
    """
    declared = _declare(None, bounds, categories, data_norm, classes, y_bounds, schema)
    people = person_column(person, persons, max_rows)
    reader = BatchReader(batches, person)
    return _open_or_write(
        reader, declared, Path(store), verbose, None if people is None else (people, reader)
    )


def _declare(
    target: str | Sequence[str] | None,
    bounds: Any,
    categories: Mapping[Any, Sequence[Any]] | None,
    data_norm: float | None,
    classes: Sequence[Any] | None,
    y_bounds: Any,
    schema: TableSchema | None,
) -> Declarations:
    """Declarations of records, the schema with its target."""
    check_schema(schema)
    if schema is not None and isinstance(target, str):
        schema = replace(schema, target=target)
    return Declarations(bounds, categories, data_norm, classes, y_bounds, schema)


def _folder(store: str | Path | None, path: Any) -> Path:
    if store is not None:
        return Path(store)
    first = Path(path if isinstance(path, str | Path) else next(iter(path)))
    return first.with_name(first.name + SUFFIX)


def _open_or_write(
    reader: Reader,
    stated: Declarations,
    folder: Path,
    verbose: int,
    people: tuple[PersonColumnRule, FileReader] | None = None,
) -> Shards:
    """Shards of a reader's records: those that are there, or new ones.

    `people`: the column of persons, and the same reader, where there is such a column.
    """
    X, y = reader.header
    raw = Table(X)
    table = raw if stated.schema is None else open_declared(X, stated.schema)
    if raw.names is not None and not all(isinstance(name, str) for name in raw.names):
        raise WrongType("The names of columns must be text; rename those that are not.")
    declared = normalise(table, y, stated.resolved(table.schema, COMPARED))
    if people is not None:
        declared["person"] = people[0].to_plain()
    recipe = Recipe.of(table, y, declared)
    fresh = Manifest(
        source=reader.source,
        names=raw.names,
        columns=raw.d,
        compressed=raw.sparse,
        declarations=declared,
        parts=recipe.parts if people is None else recipe.parts | {OWNERS: "int64"},
        width=recipe.columns.width,
        limits=recipe.limits,
        step=recipe.step,
        rows=recipe.rows,
    )
    store = _resume(folder, fresh)
    if not store.manifest.complete:
        # They may have been begun by an earlier version, with other defaults.
        recipe = Recipe.of(table, y, store.manifest.declarations, store.manifest.step)
        weights = None if people is None else weigh_rows(people[1], recipe, people[0].rule)
        if weights is not None:
            store.manifest = replace(store.manifest, units=weights.units)
        with store.writing():
            _fill(store, reader, recipe, verbose, weights)
    return Shards(store)


def _resume(folder: Path, fresh: Manifest) -> Store:
    """The store of a folder, once it is known to hold nothing else; its shards are checked."""
    try:
        store = Store.open(folder)
    except ShardsDamaged:
        if (folder / "manifest.json").exists():
            raise
        return Store.create(folder, fresh)
    found = store.manifest
    # Shards that an earlier version began keep their encoding of levels and of missing cells.
    encodings = ("encoding", "first_is_baseline", "marks_missing")
    declared = {name: value for name, value in fresh.declarations.items() if name not in encodings}
    declared |= {name: found.declarations[name] for name in encodings if name in found.declarations}
    for what, ours, theirs in (
        (
            "columns",
            [fresh.names, fresh.columns, fresh.compressed],
            [found.names, found.columns, found.compressed],
        ),
        ("declarations", declared, found.declarations),
        ("source", fresh.source, _without_types(found.source)),
    ):
        if _plain(ours) != _plain(theirs):
            changed = ", ".join(_differences(ours, theirs))
            raise StoreUnavailable(
                f"{folder} holds shards with other {what}{f' ({changed})' if changed else ''}. Give another "
                "store, or delete this folder to make the shards again."
            )
    if found.complete and found.source["kind"] in STREAMS:
        raise StoreUnavailable(
            f"{folder} holds all records of an earlier stream, and nothing tells whether this one is the "
            "same: open it by dpcvx.open_shards, or give another store."
        )
    store.verify(0, len(found.shards))
    return store


def _without_types(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts of a source; an earlier version stored the type of each column beside its name."""
    names = [entry if isinstance(entry, str) else entry[0] for entry in source.get("schema", [])]
    return {**source, "schema": names} if "schema" in source else source


def _plain(content: Any) -> Any:
    """Return a value as it comes back from a JSON file."""
    return json.loads(json.dumps(content))


def _differences(ours: Any, theirs: Any) -> list[str]:
    """Names of what differs between two mappings."""
    if not isinstance(ours, Mapping):
        return []
    return sorted(key for key in {*ours, *theirs} if _plain(ours.get(key)) != _plain(theirs.get(key)))


def _fill(
    store: Store, reader: Reader, recipe: Recipe, verbose: int, weights: RowWeights | None = None
) -> None:
    """Append the records that are not there yet."""
    if reader.rows is not None:
        store.require_room((reader.rows - store.manifest.n) * recipe.row_bytes)
    expected: dict[str, NDArray[Any]] | None = None
    if store.manifest.shards and store.manifest.source["kind"] in STREAMS:
        # The last shard is written again and compared, so that another stream is detected.
        expected = store.arrays(len(store.manifest.shards) - 1)
        store.drop_last()
    d, names, sparse = store.manifest.columns, store.manifest.names, store.manifest.compressed
    at_once = ROWS_AT_ONCE if sparse else max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // recipe.columns.width))
    waiting: list[tuple[Records, NDArray[np.bool_], IntVector | None]] = []
    at = store.manifest.n
    order = hashlib.sha256()  # of the persons of rows, those in shards that are there included
    if weights is not None:
        for index in range(len(store.manifest.shards)):
            order.update(store.arrays(index)[OWNERS].tobytes())
    # How much has been read tells the number of rows, which is private where persons have several.
    with _bar(verbose if weights is None else 0) as show:
        for X, y, *ids in reader.batches(at, at_once):
            table = Table(X)
            if (table.d, table.names, table.sparse) != (d, names, sparse):
                raise WrongValue("A batch has other columns than the first one; all must have the same.")
            seen = recipe.question.rows(recipe.open(X), recipe.targets(y))
            records, shares = Records(*recipe.quantised(X, y)), None
            if weights is not None:
                records, shares = weights.apply(records, ids[0], at)
                order.update(b"" if records.owners is None else records.owners.tobytes())
            at += len(seen)
            waiting.append((records, seen, shares))
            while sum(len(seen) for _, seen, _ in waiting) >= recipe.rows:
                _append(store, _cut(waiting, recipe.rows), expected)
                expected = None
            show(*reader.progress)
        if waiting:
            _append(store, _cut(waiting, recipe.rows), expected)
    if store.manifest.n == 0:
        raise WrongValue("There are no records: at least one is needed.")
    if weights is not None and order.digest() != weights.order:
        raise StoreUnavailable(OTHER_ROWS)
    store.finish()


def _append(
    store: Store, shard: tuple[int, dict[str, NDArray[Any]]], expected: dict[str, NDArray[Any]] | None
) -> None:
    rows, arrays = shard
    if expected is not None and not all(_same(arrays[part], expected[part]) for part in expected):
        raise StoreUnavailable(
            f"{store.folder} holds the beginning of another stream than this one. Give that stream from its "
            "beginning, or another store."
        )
    store.append(rows, arrays)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of a shard are alike; a missing target, NaN, equals another."""
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _cut(
    waiting: list[tuple[Records, NDArray[np.bool_], IntVector | None]], rows: int
) -> tuple[int, dict[str, NDArray[Any]]]:
    """Take the first records out of a list of pieces, as the arrays of one shard.

    A piece is records, which of their cells are recognised, and the weights by which these are counted.
    """
    taken: list[Records] = []
    counts: list[IntVector] = []
    missing = rows
    while waiting and missing:
        piece, seen, shares = waiting.pop(0)
        count = min(missing, len(seen))
        now, later = (None, None) if shares is None else (shares[:count], shares[count:])
        taken.append(piece.part(0, count))
        counts.append(total_of(seen[:count], now))
        if now is not None:
            counts[-1] = np.append(counts[-1], now.sum())
        if count < len(seen):
            waiting.insert(0, (piece.part(count, None), seen[count:], later))
        missing -= count
    arrays = {"values": np.concatenate([part.rows.values for part in taken])}
    arrays["targets"] = np.concatenate([part.y for part in taken], axis=1)
    arrays[RECOGNISED] = np.sum(counts, axis=0)
    owners = [part.owners for part in taken if part.owners is not None]
    if owners:
        arrays[OWNERS] = np.concatenate(owners)
    compressed = [part.rows for part in taken if isinstance(part.rows, Sparse)]
    if compressed:
        lengths = np.concatenate([np.diff(part.indptr) for part in compressed])
        arrays["indptr"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        arrays["indices"] = np.concatenate([part.indices for part in compressed])
    return rows - missing, arrays


@contextmanager
def _bar(verbose: int) -> Iterator[Any]:
    """Bar of what has been read so far, on the error stream where it is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not (verbose and console.is_terminal)) as bar:
        task = bar.add_task("quantising", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
