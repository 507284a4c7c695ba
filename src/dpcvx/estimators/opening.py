"""The data of a fit as they are given: rows and targets, persons, survey weights, columns with their maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpcvx.data.cells import open_typed
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import Dataset, DeclaredRows, InMemory, open_dataset
from dpcvx.data.declarations import Declarations
from dpcvx.data.table import Table
from dpcvx.data.units import (
    PersonColumnRule,
    person_column,
    persons,
    survey_weights,
    take_column,
    weighted_persons,
)
from dpcvx.errors import Incompatible
from dpcvx.estimators.planning import Parameters

__all__ = ["map_columns", "open_fit_data", "plain_columns", "require_table"]


def open_fit_data(model: Parameters, X: Any, y: Any, groups: Any, sample_weight: Any) -> Dataset:
    """Return the data set of a fit, with persons or survey weights if they are given."""
    if groups is not None and model.person is not None:
        raise Incompatible("groups and person both give the ids of persons: give one of them.")
    if groups is None and model.person is None and not (model.persons is None and model.max_rows is None):
        raise Incompatible(
            "persons and max_rows need the ids of persons: set person, or give fit groups=ids."
        )
    if isinstance(sample_weight, str):
        if isinstance(X, DeclaredRows):
            rows, sample_weight = take_column(X.rows, sample_weight, "sample_weight")
            X = dataclasses.replace(X, rows=rows)
        else:
            X, sample_weight = take_column(X, sample_weight, "sample_weight")
    dataset = open_dataset(X, y, model.backend, model.schema, _named_person(model))
    if groups is None and sample_weight is None:
        return dataset
    if not isinstance(dataset, InMemory):
        given = "sample_weight" if groups is None else "groups"
        raise Incompatible(
            f"fit takes {given} with arrays and tables in memory only, not with "
            f"{type(dataset).__name__}. Name a column of persons, person=, where the data are opened, or "
            "load the records into memory."
        )
    units = dataset.units
    if groups is not None:
        units = persons(groups, declared=model.persons, max_rows=model.max_rows)
    if sample_weight is not None:
        weights = survey_weights(sample_weight, model.weight_bounds)
        units = weights if units is None else weighted_persons(units, weights)
    if units is not None:
        dataset.weigh_by(units)
    return dataset


def require_table(X: Any, backend: str, what: str, reason: str) -> None:
    """Refuse anything but a table in memory, before a record is read.

    `what`: the parameter or estimator that needs it; `reason`: why.
    """
    import narwhals as nw

    if backend == "auto" and isinstance(open_typed(X), nw.DataFrame):
        return
    given = type(X).__name__ if backend == "auto" else f"backend={backend!r}"
    raise Incompatible(
        f'{what} needs a pandas, polars or Arrow table in memory and backend="auto", got {given}: '
        f"{reason}. Load the records first: X.compute(), X.collect() or reader.read_all(). If there are too "
        "many, fit to as many as memory holds, taken by position."
    )


def _named_person(model: Parameters) -> PersonColumnRule | None:
    """Return the column of persons, where one is named."""
    if model.person is None:
        return None
    return person_column(model.person, model.persons, model.max_rows)


def plain_columns(table: Table, stated: Declarations) -> Columns:
    """Columns of a table without maps of numbers."""
    return Columns.declare(table, stated.bounds, stated.categories, stated.data_norm, stated.missing)


def map_columns(table: Table, stated: Declarations, plain: Columns, maps: Mapping[int, Any]) -> Columns:
    """Columns of a table with maps, by position; bounds are those of the columns without maps."""
    if not maps:
        return plain
    firsts = [span[0] for span in plain.spans()]
    bounds = plain.low[firsts], plain.high[firsts]
    return Columns.declare(table, bounds, stated.categories, stated.data_norm, stated.missing, maps)
