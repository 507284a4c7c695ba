"""Raw cells as they enter: one reader of arrays, lists, and pandas / polars / Arrow columns.

The type of a column is used to read it quickly, and for nothing else: see `dpcvx.data.canonical`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import NUMBER_KINDS, UNKNOWN, canonical_cells, read_numbers
from dpcvx.data.levels import DeclaredLevels
from dpcvx.errors import WrongValue

__all__ = [
    "cell_codes",
    "column_cells",
    "column_codes",
    "column_numbers",
    "compressed_rows",
    "native_array",
    "open_typed",
    "read_column",
    "without_column",
]

Places = NDArray[np.int64] | slice
ALL = slice(None)


def open_typed(values: Any) -> Any:
    """Return a narwhals frame or series of whatever has typed columns, anything else as it is."""
    import narwhals as nw

    pa, pd = nw.dependencies.get_pyarrow(), nw.dependencies.get_pandas()
    if pa is not None and isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    elif pa is not None and isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    elif pd is not None and isinstance(values, pd.Index | pd.api.extensions.ExtensionArray):
        values = pd.Series(values)
    try:
        return nw.from_native(values, allow_series=True, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise WrongValue(
            "Two columns of the table have the same name. Columns are declared by name: rename one of them."
        ) from None


def without_column(X: Any, name: str | None) -> Any:
    """Return a table without the column of persons, where it has one."""
    import narwhals as nw

    if name is None:
        return X
    frame = open_typed(X)
    return frame.drop(name).to_native() if isinstance(frame, nw.DataFrame) and name in frame.columns else X


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


def read_column(column: Any) -> tuple[NDArray[Any], Places]:
    """Return the cells of a narwhals series, and for each record the position of its cell among them.

    All numbers are returned, as float64; text, dates and categories are returned once for each different
    cell.
    """
    native = column.to_native()
    if column.implementation.is_pandas_like():
        return _read_pandas(native)
    stored = _arrow(column, native)
    return (_objects(column.to_list()), ALL) if stored is None else _read_arrow(stored)


def column_cells(column: Any) -> NDArray[Any]:
    """Return the cell of every record in a narwhals series."""
    cells, places = read_column(column)
    return cells[places]


def column_numbers(column: Any) -> Vector:
    """Return the cells of a narwhals series as float64, NaN for a cell that is missing or not a number."""
    cells, places = read_column(column)
    return read_numbers(cells)[places]


def column_codes(column: Any, levels: DeclaredLevels) -> NDArray[np.int64]:
    """Return the place of each cell of a narwhals series among levels, -1 for one that is none of them."""
    cells, places = read_column(column)
    return levels.codes(cells)[places]


def cell_codes(values: Any, levels: DeclaredLevels, read: Callable[[Any], NDArray[Any]]) -> NDArray[np.int64]:
    """Return the place of each value among levels, -1 for one that is none of them.

    `read`: reads values that are not a typed column.
    """
    import narwhals as nw

    typed = open_typed(values)
    return column_codes(typed, levels) if isinstance(typed, nw.Series) else levels.codes(read(values))


def _read_pandas(native: Any) -> tuple[NDArray[Any], Places]:
    dtype = native.dtype
    if isinstance(dtype, np.dtype):
        cells = np.asarray(native)
        if dtype.kind not in "mM":
            return cells, ALL
        different, inverse = np.unique(cells, return_inverse=True)
        return _objects(canonical_cells(different)), inverse
    if hasattr(dtype, "categories") and hasattr(native, "cat"):
        cells, places = _read_pandas(native.cat.categories.to_series())
        return _with_missing(cells[places]), np.asarray(native.cat.codes, dtype=np.int64)
    if hasattr(dtype, "pyarrow_dtype") or str(getattr(dtype, "storage", "")).startswith("pyarrow"):
        import pyarrow as pa

        return _read_arrow(pa.chunked_array(native.array.__arrow_array__()))
    if hasattr(dtype, "numpy_dtype") and dtype.numpy_dtype.kind in NUMBER_KINDS:
        return native.to_numpy(dtype=np.float64, na_value=np.nan), ALL
    return np.asarray(native, dtype=object), ALL


def _with_missing(cells: NDArray[Any]) -> NDArray[Any]:
    """Append a missing cell, which position -1 then refers to."""
    return _objects([*cells.tolist(), None])


def _arrow(column: Any, native: Any) -> Any:
    """Arrow data of a series that is not pandas'; None where a type has no Arrow form."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(native, pa.ChunkedArray):
        return native
    return None if column.dtype in (nw.Object, nw.Int128, nw.UInt128) else pa.chunked_array(column.to_arrow())


def _read_arrow(stored: Any) -> tuple[NDArray[Any], Places]:
    import pyarrow as pa
    from pyarrow import types

    kind = stored.type
    if types.is_dictionary(kind):
        # Arrow's to_numpy takes the last entry of a dictionary for a missing cell; its cast does not.
        return _read_arrow(stored.cast(kind.value_type))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return np.asarray(stored.cast(pa.float64(), safe=False).to_numpy()), ALL
    if any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view)):
        stored = stored.cast(pa.large_binary(), safe=False)  # Arrow need not take it for valid UTF-8
    temporal = types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind)
    if not (temporal or types.is_decimal(kind) or _is_binary(stored.type)):
        missing = stored.is_null().to_numpy()
        return _objects([UNKNOWN, None]), missing.astype(np.int64)
    coded = stored.combine_chunks().dictionary_encode()
    places = coded.indices.cast(pa.int64()).fill_null(-1)
    cells = coded.dictionary
    zone = ""
    if types.is_timestamp(kind) and kind.tz is not None:
        # In UTC, as they are stored: Arrow would look the zone up, which fails without a database of zones.
        cells, zone = cells.cast(pa.timestamp(kind.unit)), "Z"
    if temporal:
        cells = cells.cast(pa.large_string())
    texts = [f"{cell}{zone}" for cell in cells.to_pylist()] if zone else cells.to_pylist()
    return _objects([*texts, None]), places.to_numpy(zero_copy_only=False)


def _is_binary(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def compressed_rows(X: Any) -> Any:
    """Rows of a SciPy sparse matrix as a fresh float64 CSR array, duplicates summed."""
    from scipy.sparse import coo_array, csr_array

    try:
        # Fresh arrays around the same parts, so that what they claim is found again, and checked before
        # compiled code follows an index. float64 before duplicates are summed.
        if X.format in ("csr", "csc", "bsr"):
            X = type(X)((read_numbers(X.data), X.indices, X.indptr), shape=X.shape)
            X.check_format(full_check=True)
            if (X.indptr[1:] < X.indptr[:-1]).any():  # SciPy checks only if nnz > 0, and by differences
                raise ValueError
        else:
            X = X.tocoo()
            X = coo_array((read_numbers(X.data), X.coords), shape=X.shape)
        with np.errstate(all="ignore"):
            rows = X.tocsr()
            rows = csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=True)
            rows.check_format(full_check=True)
            rows.sum_duplicates()
    except (ValueError, IndexError):  # their text names an index of a record
        raise WrongValue(
            "The sparse matrix is malformed: its indices must lie inside its shape, and its row pointers "
            "must start at 0 and not descend."
        ) from None
    return rows


def _unmasked(values: Any) -> NDArray[Any]:
    """A masked array with its masked cells missing, in a type that does not depend on the mask."""
    if values.dtype.kind in "fc":
        return np.asarray(values.filled(np.nan))
    if values.dtype.kind in "mM":
        return np.asarray(values.filled("NaT"))
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
