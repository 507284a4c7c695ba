"""Rows to predict, opened with the columns of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import validate_data

from dpcvx.data.cells import without_column
from dpcvx.data.table import Table

if TYPE_CHECKING:
    from dpcvx.data.table_schema import TableSchema

__all__ = ["open_new_rows"]


def open_new_rows(estimator: Any, X: Any, schema: TableSchema | None) -> Table:
    """Open new rows, which must have the columns of the fit.

    `estimator`: its ``n_features_in_`` and ``feature_names_in_`` are compared; `schema`: of the fit's table:
    with one, columns are found by name, and others are left out.
    """
    for role in ("person", "exposure"):
        X = without_column(X, getattr(estimator, role, None))
    table = Table(X, schema)
    validate_data(estimator, table.header(), reset=False, skip_check_array=True)
    return table
