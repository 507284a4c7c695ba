"""Records as several rows of one person: periods of a duration, and steps of an ordered answer.

A model of two classes of these rows, with persons as the unit that is protected, is one of hazards or of
ordered levels. Rows are a function of their own record and of public edges or levels, and every record has
equally many, so that the guarantee for persons covers the whole record.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import cell_codes, native_array, open_typed
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.target import read_one
from dpcvx.errors import WrongType, WrongValue
from dpcvx.words import show

__all__ = ["ExpandedRows", "level_rows", "period_rows"]


class ExpandedRows(NamedTuple):
    """Rows of records, for ``fit(rows.table, rows.labels, groups=rows.ids)``; private."""

    table: Any  # as many rows for each record, with a column that tells them apart
    labels: Vector  # 1, 0, or NaN where a row has no answer and is left out
    ids: Any  # number of each row's record
    levels: tuple[str, ...]  # of the new column; public


def period_rows(
    table: Any, duration: Any = None, event: Any = None, *, periods: Sequence[float]
) -> ExpandedRows:
    """Return a row for each period of each record: whether the event came in it, for a model of hazards.

    Parameters
    ----------
    table : pandas, polars or Arrow table, n rows
        Features of the records.
    duration : array-like, shape (n,), optional
        Time at which a record's event came, or until which it was observed. None for new records, of which a
        model predicts the hazards.
    event : array-like, shape (n,), optional
        Whether the event came: a number above 0, or True.
    periods : sequence of float
        Public edges e_0 < e_1 < ...; a period reaches from above one edge up to the next, included.

    Returns
    -------
    ExpandedRows
        The table with the column "period". The label of a period is 0 if it was survived, 1 if the event came
        in it, and missing afterwards, or where a record was lost in it. A missing duration has no labels.
    """
    edges = np.array([float(each) for each in periods])
    if len(edges) < 2 or not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise WrongValue(f"periods must be two or more finite edges that increase, got {show(periods)}.")
    levels = tuple(f"({low:g}, {high:g}]" for low, high in pairwise(edges))
    if duration is None or event is None:
        if duration is not event:
            raise WrongValue("Give duration and event, or neither for new records.")
        return _expanded(table, "period", levels, None)
    time, came = (read_numbers(read_one(native_array(each))) for each in (duration, event))
    if len(time) != len(came):
        raise WrongValue("duration and event must have the same length.")
    with np.errstate(all="ignore"):
        end, happened = time[:, None], (came > 0)[:, None]
        inside = (edges[:-1] < end) & (end <= edges[1:])
        labels = np.where(end > edges[1:], 0.0, np.where(inside & happened, 1.0, np.nan))
        labels = np.where((end == edges[1:]) & ~happened, 0.0, labels)
    labels = np.where(np.isfinite(end), labels, np.nan)
    return _expanded(table, "period", levels, labels)


def level_rows(table: Any, y: Any = None, *, levels: Sequence[Any]) -> ExpandedRows:
    """Return a row for each step of ordered levels: whether y is above it, for a model of ordered levels.

    Parameters
    ----------
    table : pandas, polars or Arrow table, n rows
        Features of the records.
    y : array-like, shape (n,), optional
        Answers among the levels; None for new records.
    levels : sequence
        Public levels in their order, three or more.

    Returns
    -------
    ExpandedRows
        The table with the column "above": every level but the last. The label is 1 if y is a later level; an
        answer that is none of the levels has no labels.
    """
    declared = DeclaredLevels.declare(levels, "levels")
    if len(declared.values) < 3:
        raise WrongValue(f"Ordered levels are three or more, got {show(levels)}.")
    steps = tuple(map(str, declared.values[:-1]))
    if y is None:
        return _expanded(table, "above", steps, None)
    codes = cell_codes(y, declared, read_one)[:, None]
    labels = np.where(codes < 0, np.nan, (codes > np.arange(len(declared.values) - 1)).astype(np.float64))
    return _expanded(table, "above", steps, labels)


def _expanded(table: Any, name: str, levels: tuple[str, ...], labels: Vector | None) -> ExpandedRows:
    """Return the rows; `labels`: shape (n, levels), None for missing ones."""
    import narwhals as nw

    frame = open_typed(table)
    if not isinstance(frame, nw.DataFrame):
        raise WrongType(
            "Give the features as a pandas, polars or Arrow table: rows get a column with a name."
        )
    if name in frame.columns:
        raise WrongValue(f"The table has a column {name!r} already: rename it.")
    n, steps = len(frame), len(levels)
    if labels is None:
        labels = np.full((n, steps), np.nan)
    if len(labels) != n:
        raise WrongValue("The table and the answers must have the same number of rows.")
    places = np.repeat(np.arange(n), steps)
    rows = frame[places.tolist()]
    column = nw.new_series(name, list(levels) * n, nw.String, backend=nw.get_native_namespace(frame))
    if hasattr(frame.to_native(), "index"):
        rows = nw.from_native(rows.to_native().reset_index(drop=True), eager_only=True)
    return ExpandedRows(rows.with_columns(column).to_native(), labels.ravel(), places, levels)
