"""How records become the integers of a shard: a function of the schema and of declarations, of no cell.

The map of columns, the quantiser and the encoding of targets are those of a fit in memory, so the integers
are the same. The intercept's feature is not stored: its value belongs to the estimator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.columns import Columns, bound_pair
from dpcvx.data.declarations import Declarations
from dpcvx.data.lattice import FEATURE_BITS, integer_bounds
from dpcvx.data.levels import COMPARED, DECLARED, OMITTED, DeclaredLevels
from dpcvx.data.quantise import Quantiser
from dpcvx.data.recognised import RecognisedCells
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.table import Table
from dpcvx.data.table_schema import TableSchema
from dpcvx.data.target import Labels, Numbers, Target, open_target, read_one, read_several
from dpcvx.errors import WrongValue
from dpcvx.problem import Bounds
from dpcvx.words import is_number, show

__all__ = ["Recipe", "declared_schema", "empty_record", "encoding_of", "normalise", "parameters"]

RECOGNISED = "recognised"  # array of a shard with the counts of its recognised cells
SHARD_BYTES = 2**26  # small enough to be copied in memory, large enough for a pass to be one long read
COMPRESSION = 4  # a product of compressed rows costs about four dense ones
INDEX_BYTES = 4
ENTRIES = 100  # of a sparse row, as far as the size of a shard goes: how many there are is the records' own


def normalise(table: Table, y: Any, stated: Declarations) -> dict[str, Any]:
    """Return declarations as plain numbers, texts and lists, the same however they were written."""
    if stated.bounds is None:
        raise WrongValue(
            "bounds of the features are needed, from public knowledge and not from these records: a pair "
            "(low, high) in your units, a pair of arrays with one entry per column, or a mapping from column "
            "to pair."
        )
    classes, y_bounds, data_norm = stated.classes, stated.y_bounds, stated.data_norm
    if data_norm is not None and not is_number(data_norm, 0, math.inf):
        raise WrongValue(f"data_norm must be a positive finite number, got {show(data_norm)}.")
    if (classes is None) == (y_bounds is None):
        raise WrongValue(
            "Declare the target: classes=(...), its labels, for a classifier, or y_bounds=(low, high) for a "
            "regressor; one of them, from public knowledge."
        )
    maps = stated.map_of_each(table)
    columns = Columns.declare(table, stated.bounds, stated.categories, data_norm, stated.missing, maps)
    firsts = [span[0] for span in columns.spans()]
    declared: dict[str, Any] = {
        "bounds": [_plain(columns.low[firsts]), _plain(columns.high[firsts])],
        "categories": [
            [j if table.names is None else table.names[j], list(levels)]
            for j, levels in enumerate(columns.levels)
            if levels is not None
        ],
        "data_norm": None if data_norm is None else float(data_norm),
        "targets": several_targets(y),
    }
    if any(levels is not None for levels in columns.levels):
        declared["encoding"] = COMPARED
    if columns.marked.any():
        declared["marks_missing"] = True  # a stored 0 of a number is a missing cell; in older shards not
    if table.schema is not None:
        declared["schema"] = table.schema.to_dict()
    if classes is not None:
        return declared | {"classes": list(DeclaredLevels.declare(classes, "classes"))}
    return declared | {"y_bounds": [part.tolist() for part in bound_pair(y_bounds, "y_bounds")]}


def encoding_of(declared: Mapping[str, Any]) -> str:
    """Return the encoding of levels in shards: shards of earlier versions leave baselines out."""
    encoding = declared.get("encoding", OMITTED if "first_is_baseline" in declared else DECLARED)
    if encoding not in (COMPARED, OMITTED, DECLARED):
        raise WrongValue(
            f"These shards encode levels in a way that this version does not know: {show(encoding)}. "
            "Open them with the version that wrote them, or a later one."
        )
    return str(encoding)


def declared_schema(declared: Mapping[str, Any]) -> TableSchema | None:
    """Return the schema among normalised declarations."""
    return TableSchema.from_dict(declared["schema"]) if "schema" in declared else None


def parameters(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return normalised declarations as parameters of an estimator."""
    schema = declared_schema(declared)
    given: dict[str, Any] = {"schema": schema} if schema is not None else _column_parameters(declared)
    if declared["data_norm"] is not None:
        given["data_norm"] = declared["data_norm"]
    if "classes" in declared:
        return given | {"classes": tuple(declared["classes"])}
    return given | {"y_bounds": tuple(np.array(part) for part in declared["y_bounds"])}


def _column_parameters(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds and levels of normalised declarations, by variable where there is a schema."""
    given: dict[str, Any] = {"bounds": tuple(np.array(part) for part in declared["bounds"])}
    if declared["categories"]:
        given["categories"] = {name: tuple(levels) for name, levels in declared["categories"]}
    return given


def empty_record(
    names: Sequence[Any] | None, d: int, compressed: bool, declared: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return one record, and its target, with nothing in them.

    `names`: raw columns, where they have names; `d`: number of raw columns; `compressed`: whether the records
    came as sparse matrices; `declared`: normalised declarations.
    """
    y: NDArray[Any] = np.zeros(1 if declared["targets"] is None else (1, declared["targets"]))
    if "classes" in declared:
        y = np.array(declared["classes"][:1])
    if compressed:
        from scipy.sparse import csr_array

        return csr_array((1, d)), y
    if names is None:
        return np.zeros((1, d)), y
    import pyarrow as pa

    levels = {name for name, _ in declared["categories"]}
    return pa.table({name: pa.nulls(1, pa.string() if name in levels else pa.float64()) for name in names}), y


@dataclass(frozen=True, eq=False)
class Recipe:
    """The public map from records and targets to the arrays of a shard."""

    schema: TableSchema | None  # how columns are read, where one was declared
    columns: Columns  # from columns, or variables of the schema, to features
    quantiser: Quantiser  # without an intercept
    target: Target  # from raw targets to stored ones
    sparse: bool  # whether raw records are sparse matrices
    compressed: bool  # whether rows are stored in compressed form
    step: int  # unit of the stored integers: 2^14 where declarations leave -1, 0 and 1 alone

    @classmethod
    def of(cls, table: Table, y: Any, declared: Mapping[str, Any], step: int | None = None) -> Recipe:
        """Derive the map from a table's schema and normalised declarations.

        `table`: its rows are not read; `y`: as many targets as the table has rows; `step`: unit of the
        integers in shards that are there.
        """
        given = parameters(declared)
        norm = given.get("data_norm")
        stated = Declarations() if table.schema is not None else Declarations(**_column_parameters(declared))
        stated = stated.resolved(table.schema, encoding_of(declared))
        columns = Columns.declare(
            table, stated.bounds, stated.categories, norm, stated.missing, stated.map_of_each(table)
        )
        if not declared.get("marks_missing", False):
            columns = columns.unmarked()
        binary = _is_binary(columns, norm) if step is None else step > 1
        numbers = sum(levels is None for levels in columns.levels)
        groups = len(columns.levels) - numbers
        sparse_bytes = (numbers + groups) * (INDEX_BYTES + (1 if binary else 2))
        dense_bytes = columns.width * (1 if binary else 2)
        return cls(
            table.schema,
            columns,
            Quantiser(_bounds(columns, norm), columns.center, columns.scale),
            _target(y, table.n, given),
            table.sparse,
            table.sparse or dense_bytes > COMPRESSION * sparse_bytes,
            2**FEATURE_BITS if binary else 1,
        )

    @property
    def limits(self) -> tuple[int, int]:
        """Largest stored integer and largest sum of squares of a stored row, in units of 2^-14."""
        return integer_bounds(self.quantiser.bounds, self.columns.width)

    @property
    def parts(self) -> dict[str, str]:
        """Type of each array of a shard."""
        values = "int8" if self.step > 1 else "int16"
        others = {"targets": "float64", RECOGNISED: "int64"}
        if not self.compressed:
            return {"values": values, **others}
        indices = "int32" if self.columns.width < 2**31 else "int64"
        return {"indptr": "int64", "indices": indices, "values": values, **others}

    @property
    def question(self) -> RecognisedCells:
        """The counts of recognised cells that are stored with a shard: raw cells are not."""
        return RecognisedCells(None if self.sparse else self.columns, self.target)

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored record; of a sparse one about."""
        cells = min(ENTRIES, len(self.columns.levels)) if self.compressed else self.columns.width
        cell = np.dtype(self.parts["values"]).itemsize + INDEX_BYTES * self.compressed
        return cells * cell + 8 * self.target.columns

    @property
    def rows(self) -> int:
        """Records of a shard."""
        return max(1, SHARD_BYTES // min(SHARD_BYTES, self.row_bytes))

    def open(self, X: Any) -> Table:
        """Return some raw records as a table."""
        return Table(X, self.schema)

    def targets(self, y: Any) -> Any:
        """Return raw targets of some records."""
        return y if self.schema is None else self.schema.read_target(y)

    def quantised(self, X: Any, y: Any) -> tuple[Dense | Sparse, Vector]:
        """Return stored rows, and stored targets (K, n), of some records."""
        rows = self.columns.rows(self.open(X), self.quantiser)
        if self.compressed and isinstance(rows, Dense):
            from scipy.sparse import csr_array

            found = csr_array(rows.values)
            rows = Sparse(found.indptr.astype(np.int64), found.indices, found.data, self.columns.width)
        values: Any = rows.values if self.step == 1 else (rows.values >> FEATURE_BITS).astype(np.int8)
        targets = np.ascontiguousarray(self.target.encode(self.targets(y)).T)
        if isinstance(rows, Dense):
            return Dense(values), targets
        indices = rows.indices.astype(self.parts["indices"], copy=False)
        return Sparse(rows.indptr, indices, values, rows.shape[1]), targets


def _target(y: Any, n: int, given: Mapping[str, Any]) -> Target:
    """The declared target; labels are stored as a logistic loss takes them."""
    if "classes" in given:
        open_target(y, n)
        labels = Labels.declare(given["classes"])
        if len(labels.classes) < 2:
            raise WrongValue(f"A classifier needs at least two classes, got {show(given['classes'])}.")
        return labels if labels.outputs == 1 else replace(labels, form="codes")
    values = open_target(y, n, read_several if several_targets(y) else read_one)
    schema = given.get("schema")
    transform = None if schema is None else schema.target_transform
    return Numbers.declare(given["y_bounds"], values.shape[1:], transform)


def several_targets(y: Any) -> int | None:
    """Number of targets of a record, where there are several."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    return int(shape[1]) if len(shape) == 2 and shape[1] > 1 else None


def _is_binary(columns: Columns, data_norm: float | None) -> bool:
    """Whether declarations leave only 0 and 1: every column has declared levels, and none a baseline."""
    return data_norm is None and all(
        levels is not None and levels.baseline is None for levels in columns.levels
    )


def _plain(numbers: Vector) -> Any:
    """One number where all are equal, which keeps the manifest of a million columns short; else a list."""
    return float(numbers[0]) if (numbers == numbers[0]).all() else numbers.tolist()


def _bounds(columns: Columns, data_norm: float | None) -> Bounds:
    """Bounds of a stored row; with them the integers are those of a fit with any intercept."""
    if data_norm is not None:
        return Bounds(1.0, 1.0)
    if all(levels is None for levels in columns.levels):
        return Bounds(1.0)
    return Bounds(1.0, math.nextafter(columns.row_norm(), math.inf))
