"""Rows to predict, opened with the columns of a fit."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import validate_data

from dpcvx.data.table import Levels, Table
from dpcvx.errors import WrongType

__all__ = ["open_new_rows"]


def open_new_rows(estimator: Any, levels: Levels, X: Any) -> Table:
    """Open new rows, which must have the columns of the fit.

    `estimator`: its ``n_features_in_`` and ``feature_names_in_`` are compared; `levels`: of its columns.
    """
    table = Table(X)
    validate_data(estimator, table.header(), reset=False, skip_check_array=True)
    declared = {j for j, known in enumerate(levels) if known is not None}
    wrong = [table.label(j) for j in sorted(table.untyped - declared)]
    if wrong:
        raise WrongType(f"Column(s) {', '.join(wrong)} held numbers in the fit and hold other types now.")
    return table
