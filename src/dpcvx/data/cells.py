"""Raw cells as they enter: one reader of arrays, lists, and pandas / polars / Arrow columns.

A cell is a function of its own record and of declared types alone. Libraries turn a column of integers into
one of floats because of a single missing cell, give the missing cell of a dictionary the last entry, look
into the cells of a list for its type, and print a cell that is no valid text: none of that happens here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.errors import WrongType, WrongValue
from dpcvx.words import show

NUMBER_KINDS = "biuf"


def open_typed(values: Any) -> Any:
    """Return a narwhals frame or series of whatever has declared column types, anything else as it is."""
    import narwhals as nw

    pa, pd = nw.dependencies.get_pyarrow(), nw.dependencies.get_pandas()
    if pa is not None and isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    elif pa is not None and isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    elif pd is not None and isinstance(values, pd.Index | pd.api.extensions.ExtensionArray):
        values = pd.Series(values)
    return nw.from_native(values, allow_series=True, eager_only=True, pass_through=True)


def native_array(values: Any, ndim: int = 1) -> NDArray[Any]:
    """Return an array of values of any kind, their cells as they are.

    `values`: a masked cell of a NumPy array is a missing one; `ndim`: {1, 2}, dimensions of a Python list,
    which has no type to tell: 1 for a list of cells, 2 for one of rows.
    """
    import narwhals as nw

    typed = open_typed(values)
    if isinstance(typed, nw.Series):
        return column_cells(typed)
    if isinstance(typed, nw.DataFrame):
        return np.stack([column_cells(column) for column in typed.iter_columns()], axis=1)
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values)
    return np.asarray(values) if hasattr(values, "__array__") else _listed(values, ndim)


def declared_kinds(values: Any) -> frozenset[str]:
    """Say "numbers", "text" or "bytes" of every column, by its declared type alone.

    Nothing is said of objects and of lists: they may hold anything, and only a cell could tell. The type
    itself is not returned either: NumPy's type of text has the length of the longest cell.
    """
    import narwhals as nw

    typed = open_typed(values)
    if isinstance(typed, nw.DataFrame):
        return frozenset().union(*(_kind(column) for column in typed.iter_columns()))
    if isinstance(typed, nw.Series):
        return _kind(typed)
    return _numpy_kind(np.asarray(values).dtype) if hasattr(values, "__array__") else frozenset()


def _kind(column: Any) -> frozenset[str]:
    import narwhals as nw

    native: Any = getattr(column.to_native(), "dtype", None)
    if hasattr(native, "categories") and column.implementation.is_pandas_like():
        return declared_kinds(native.categories)
    if isinstance(native, np.dtype):  # narwhals would look into the cells of objects
        return _numpy_kind(native)
    kind = column.dtype
    if kind == nw.Categorical and (stored := _arrow(column.head(0))) is not None:
        kind = nw.from_native(stored, series_only=True).dtype
    if kind.is_numeric() or kind == nw.Boolean:
        return frozenset({"numbers"})
    if kind == nw.Binary:
        return frozenset({"bytes"})
    return frozenset({"text"} if kind in (nw.String, nw.Categorical, nw.Enum) else ())


def _numpy_kind(dtype: Any) -> frozenset[str]:
    kinds = dict.fromkeys(NUMBER_KINDS, "numbers") | {"U": "text", "T": "text", "S": "bytes"}
    return frozenset({kinds[dtype.kind]} if dtype.kind in kinds else ())


def column_cells(column: Any) -> NDArray[Any]:
    """Cells of a narwhals series: exact numbers and text; None, NaN or pandas' NA where one is missing."""
    if column.dtype.is_temporal() or column.dtype.is_nested():
        raise WrongType(f"Column {column.name!r} has type {column.dtype}; numbers or text are needed.")
    if isinstance(getattr(column.to_native(), "dtype", None), np.dtype):
        return np.asarray(column.to_numpy())
    stored = _arrow(column)
    # Unlike to_numpy, to_list keeps integers beside a missing cell as they are.
    return _objects(column.to_list()) if stored is None else _arrow_cells(stored)


def column_numbers(column: Any) -> Vector:
    """Cells of a narwhals series as float64, NaN where one is missing or no number."""
    stored = _arrow(column)
    if stored is not None:
        import pyarrow as pa
        from pyarrow import types

        numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
        if any(test(stored.type) for test in numeric):
            return np.asarray(stored.cast(pa.float64(), safe=False).to_numpy())
    return read_numbers(column_cells(column))


def read_numbers(cells: NDArray[Any]) -> Vector:
    """Cells as C-contiguous float64, NaN where a cell is not a number."""
    if cells.dtype.kind in NUMBER_KINDS:
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(cells, dtype=np.float64)
    numbers = np.empty(cells.shape, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a cell that warns is no number either, and must not be reported
        for place, cell in zip(np.ndindex(cells.shape), cells.flat, strict=True):
            numbers[place] = _number(cell)
    return numbers


def plain_labels(labels: Any, what: str) -> tuple[Any, ...]:
    """Return declared labels as plain text, numbers and booleans, all different."""
    try:
        plain = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
    except TypeError:
        plain = (None,)
    accepted = all(isinstance(label, str | bool | int | float) and label == label for label in plain)
    if isinstance(labels, str) or not accepted or len(set(plain)) != len(plain):
        raise WrongValue(
            f"{what} must be a list of different labels (text, numbers, booleans), got {show(labels)}."
        )
    return plain


def level_codes(cells: NDArray[Any], levels: Sequence[Any]) -> NDArray[np.int64]:
    """Return the position of each cell in `levels`, -1 for a cell that is none of them."""
    if cells.dtype.kind in "biuf" and all(isinstance(level, int | float) for level in levels):
        codes = np.full(cells.shape, -1, dtype=np.int64)
        for code, level in enumerate(levels):
            codes[cells == level] = code
        return codes
    known = {level: code for code, level in enumerate(levels)}
    return np.array([_level_code(cell, known) for cell in cells.tolist()], dtype=np.int64)


def cell_codes(values: Any, levels: Sequence[Any], read: Callable[[Any], NDArray[Any]]) -> NDArray[np.int64]:
    """Return the position of each value in `levels`, -1 for one that is none of them.

    `read`: reads whatever is no typed column.
    """
    import narwhals as nw

    typed = open_typed(values)
    if isinstance(typed, nw.Series):
        return column_codes(typed, levels)
    return level_codes(read(values), levels)


def column_codes(column: Any, levels: Sequence[Any]) -> NDArray[np.int64]:
    """Return `level_codes` of a narwhals series; of a typed column each different cell is looked up once."""
    found = distinct_cells(column)
    if found is None:
        return level_codes(column_cells(column), levels)
    cells, places = found
    return level_codes(cells, levels)[places]


def distinct_cells(column: Any) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Return the different cells of a typed narwhals series, and the place of every cell among them.

    The last of them is None, for a missing cell. Columns of floats and objects, whose cells may differ though
    they are equal, return None.
    """
    import pyarrow as pa

    stored = _arrow(column)
    types = pa.types
    if stored is None or not (
        _is_text(stored.type) or types.is_integer(stored.type) or types.is_boolean(stored.type)
    ):
        return None
    text = _is_text(stored.type)
    if text:
        stored = stored.cast(pa.large_binary(), safe=False)  # Arrow need not take it for valid UTF-8
    coded = stored.combine_chunks().dictionary_encode()
    cells = coded.dictionary.to_pylist()
    if text:
        cells = [cell.decode("utf-8", errors="replace") for cell in cells]
    places = coded.indices.cast(pa.int64()).fill_null(len(cells))
    return _objects([*cells, None]), places.to_numpy(zero_copy_only=False)


def _level_code(cell: Any, known: Mapping[Any, int]) -> int:
    try:
        return known.get(cell, -1)
    except Exception:  # an unhashable cell is no declared level, and must not stop a fit
        return -1


def compressed_rows(X: Any) -> Any:
    """Rows of a SciPy sparse matrix of numbers as a fresh float64 CSR array, duplicates summed."""
    from scipy.sparse import coo_array, csr_array

    try:
        # Fresh arrays around the same parts, so that what they claim is found again, and checked before
        # compiled code follows an index.
        if X.format in ("csr", "csc", "bsr"):
            X = type(X)((X.data, X.indices, X.indptr), shape=X.shape)
            X.check_format(full_check=True)
        elif X.format == "coo":
            X = coo_array((X.data, X.coords), shape=X.shape)
        with np.errstate(all="ignore"):
            rows = X.astype(np.float64).tocsr()  # float64 before duplicates are summed
            rows = csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=True)
            rows.check_format(full_check=True)
            if rows.indptr.size > 1 and np.diff(rows.indptr).min() < 0:  # SciPy asks only where nnz > 0
                raise ValueError
            rows.sum_duplicates()
    except (ValueError, IndexError):  # their text names an index of a record
        raise WrongValue(
            "The sparse matrix is malformed: its indices must lie inside its shape, and its row pointers "
            "must start at 0 and not descend."
        ) from None
    return rows


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except Exception:  # whatever a cell's own conversion raises, one record must not stop a fit
        return math.nan


def _arrow(column: Any) -> Any:
    """Arrow data of a series whose type has an exact Arrow form, dictionaries resolved; None for others."""
    import narwhals as nw
    import pyarrow as pa

    native, kind = column.to_native(), column.dtype
    if column.implementation.is_pandas_like():
        storage = str(getattr(native.dtype, "storage", ""))
        arrow_backed = hasattr(native.dtype, "pyarrow_dtype") or storage.startswith("pyarrow")
        nullable = (kind.is_numeric() or kind == nw.Boolean) and not isinstance(native.dtype, np.dtype)
        if not (arrow_backed or nullable):
            return None
    elif kind in (nw.Object, nw.Int128, nw.UInt128):
        return None
    stored = native if isinstance(native, pa.ChunkedArray) else column.to_arrow()
    stored = stored if isinstance(stored, pa.ChunkedArray) else pa.chunked_array([stored])
    # Arrow's to_numpy takes the last entry of a dictionary for a missing cell; its cast does not.
    return stored.cast(stored.type.value_type) if pa.types.is_dictionary(stored.type) else stored


def _arrow_cells(stored: Any) -> NDArray[Any]:
    import pyarrow as pa
    from pyarrow import types

    if types.is_floating(stored.type):
        return np.asarray(stored.to_numpy())
    if _is_text(stored.type):
        raw = stored.cast(pa.large_binary(), safe=False).to_pylist()
        return _objects([None if cell is None else cell.decode("utf-8", errors="replace") for cell in raw])
    return _objects(stored.to_pylist())


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))


def _unmasked(values: Any) -> NDArray[Any]:
    """A masked array with its masked cells missing, in a type that does not depend on the mask."""
    if values.dtype.kind == "f":
        return np.asarray(values.filled(np.nan))
    if values.dtype.kind in "biuOSU":
        cells = np.array(values, dtype=object)
        cells[np.ma.getmaskarray(values)] = None
        return cells
    return np.asarray(values)


def _listed(values: Any, ndim: int) -> NDArray[Any]:
    """A Python list cell by cell, so that one odd cell cannot change others."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return np.asarray(values, dtype=object)
    cells = _objects(values)
    if not len(cells) or not all(map(_is_row, cells)):
        return cells
    if ndim == 1:
        raise WrongValue("The list is nested deeper than cells or rows of cells; give a NumPy array.")
    lengths = {len(row) for row in cells}
    if len(lengths) > 1:
        raise WrongValue("The rows of a list must all have the same number of cells.")
    return _listed(list(chain.from_iterable(cells)), 1).reshape(len(cells), lengths.pop())


def _is_row(cell: Any) -> bool:
    return isinstance(cell, list | tuple) or (isinstance(cell, np.ndarray) and cell.ndim > 0)


def _objects(cells: Sequence[Any]) -> NDArray[Any]:
    """Cells as an array of objects; unlike np.array it looks into none of them."""
    return np.fromiter(cells, dtype=object, count=len(cells))
