"""bounds="private": a fit that asks for quantiles of its columns first.

A plan is in scaled units, so it is the same whatever the bounds will be: it is made with others in their
place. Once the quantiles are released, columns and target are declared again with the bounds they give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.accounting import (
    Accountant,
    Budget,
    Following,
    Tight,
)
from dpcvx.arrays import Vector
from dpcvx.data.cells import read_numbers
from dpcvx.data.columns import Columns, Table
from dpcvx.data.dataset import Dataset, InMemory
from dpcvx.errors import Incompatible
from dpcvx.estimators.private_bounds import PRIVATE, quantile_stages, release_bounds
from dpcvx.events import Compose, Repeat
from dpcvx.noise.samplers import Generator
from dpcvx.plans.execution import Plan

if TYPE_CHECKING:
    from dpcvx.estimators.linear_model import LinearModel
    from dpcvx.estimators.planning import Planning, Target

__all__ = ["RELEASED", "ask_for_bounds", "is_private", "plan_after_quantiles", "to_come"]

RELEASED = "drawn around two noisy quantiles of each column, which this fit released first"
PLACE = (-1.0, 1.0)


def is_private(bounds: Any) -> bool:
    """Say whether bounds are to be released."""
    return isinstance(bounds, str) and bounds == PRIVATE


def _private(model: LinearModel) -> list[str]:
    return [name for name in ("bounds", "y_bounds") if is_private(getattr(model, name, None))]


def _with(model: LinearModel, **bounds: Any) -> LinearModel:
    return type(model)(**{**model.get_params(deep=False), **bounds})


def to_come(model: LinearModel, dataset: Dataset) -> LinearModel:
    """The model itself, or one with (-1, 1) in the place of bounds that are to come."""
    names = _private(model)
    if not names:
        return model
    if not isinstance(dataset, InMemory) or dataset.table.sparse:
        raise Incompatible(f'{names[0]}="private" needs dense records in memory; declare bounds of others.')
    if "y_bounds" in names and getattr(model, "threshold", None) is not None:
        raise Incompatible(
            'threshold is in the units of y, which y_bounds="private" leaves open: give bounds.'
        )
    return _with(model, **dict.fromkeys(names, PLACE))


def plan_after_quantiles(
    model: Planning,
    columns: Columns,
    target: Target,
    facts: tuple[int, Budget],
    make: Callable[[Accountant], Plan],
) -> Plan:
    """Plan of a fit, with the questions about bounds before it where some are to come.

    Parameters
    ----------
    model, columns, target
        As declared.
    facts : tuple of int and Budget
        Number of records, and what everything may cost.
    make : callable
        Makes the plan of the fit itself with an accountant.
    """
    n, budget = facts
    wanted = 0
    if is_private(model.bounds):
        wanted += sum(levels is None for levels in columns.levels)
    if is_private(getattr(model, "y_bounds", None)):
        wanted += target.outputs
    if not (before := quantile_stages(n, wanted, budget)):
        return make(Tight())
    asked = Compose(tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in before))
    return dataclasses.replace(make(Following(asked, Tight())), before=before, accountant=Tight())


def ask_for_bounds(
    model: LinearModel, dataset: Dataset, plan: Plan, columns: Columns, rng: Generator
) -> tuple[Columns, Target]:
    """Ask the questions before the fit; return columns and target with the bounds that came out."""
    table, names = dataset.table, _private(model)
    places = [j for j, levels in enumerate(columns.levels) if levels is None] if "bounds" in names else []
    values = model._target_cells(dataset.target)
    targets = values.reshape(table.n, -1) if "y_bounds" in names else np.empty((table.n, 0))
    low, high = release_bounds(plan.before, _cells(table, places, targets), rng)
    found: dict[str, Any] = {}
    if "bounds" in names:
        lows, highs = np.zeros(table.d), np.ones(table.d)
        lows[places], highs[places] = low[: len(places)], high[: len(places)]
        found["bounds"] = (lows, highs)
    if "y_bounds" in names:
        shape = values.shape[1:]
        found["y_bounds"] = tuple(part[len(places) :].reshape(shape) for part in (low, high))
    known = _with(model, **found)
    target = known._declare_target(values)
    if "y_bounds" in names:
        target = dataclasses.replace(target, facts={**target.facts, "y_bounds_are": RELEASED})
    return Columns.declare(table, known.bounds, model.categories, model.data_norm), target


def _cells(table: Table, places: list[int], targets: Any) -> Iterator[Vector]:
    for j in places:
        yield table.column_numbers(j, 0, table.n)
    for column in targets.T:
        yield read_numbers(column)
