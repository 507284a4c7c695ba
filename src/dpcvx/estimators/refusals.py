"""Refusals of a fit: parameters that are wrong, and keyword arguments that are not taken."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.data.declarations import Declarations, check_schema
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators.planning import AUTOMATIC, Parameters
from dpcvx.words import LARGEST_SHOWN, is_number, quantity, show

if TYPE_CHECKING:
    from dpcvx.data.columns import Columns
    from dpcvx.data.table_schema import TableSchema
    from dpcvx.data.target import Target

__all__ = [
    "check_extrapolation",
    "check_number",
    "check_parameters",
    "check_target",
    "check_units",
    "needs_bounds_of_target",
    "refuse_levels",
    "refuse_metadata",
]

EXTRAPOLATIONS = ("clip", "linear")
LARGEST_UNIT = 1e140  # of a coefficient: its square, 1e10 times larger or smaller, is still a normal number

REFUSED = {
    "sample_weight": "a weight changes how far one person can move the result, and weights are private too",
    "class_weight": "a class's weight changes how far one person can move the model; "
    "PrivateLogisticRegression(class_weight={label: weight}) moves scores after the fit instead",
    "groups": "one row is one person here; rows that share a person are not protected together",
}


def check_parameters(model: Parameters, stated: Declarations) -> None:
    """Refuse parameters that no fit can have; `stated`: those that may be declared with the data."""
    name = type(model).__name__
    if model.epsilon is None:
        raise WrongValue(f"{name} needs epsilon, the privacy loss you allow: for instance epsilon=1.0.")
    for parameter in ("epsilon", "delta", "radius"):
        check_number(parameter, getattr(model, parameter))
    check_number("data_norm", stated.data_norm)
    if model.uncertainty is not True and model.uncertainty not in (0, AUTOMATIC):
        wanted = '"auto", 0, or a share of the budget below 1'
        check_number("uncertainty", model.uncertainty, wanted)
    if model.check != 0 and not is_number(model.check, 0, 1):
        raise WrongValue(f"check must be 0, or a share of the budget below 1, got {show(model.check)}.")
    if model.l2 != 0:
        check_number("l2", model.l2, "0 or a positive finite number")
    if model.delta is not None and model.delta >= 1:
        raise WrongValue(f"delta must be below 1, got {show(model.delta)}; less than 1/n is meaningful.")
    if stated.bounds is None:
        raise WrongValue(
            f"{name} needs bounds of the features, from public knowledge and not from these records: "
            "a pair (low, high) in your units, a pair of arrays with one entry per column, or a mapping "
            'from column to pair; "private" spends a share of the budget on noisy quantiles instead.'
        )
    if model.n_iter is not None and not (_is_integer(model.n_iter) and model.n_iter >= 1):
        raise WrongValue(f"n_iter must be a positive integer or None, got {show(model.n_iter)}.")
    if not isinstance(model.fit_intercept, bool | np.bool_):
        raise WrongType(f"fit_intercept must be True or False, got {show(model.fit_intercept)}.")
    if model.fit_intercept and stated.schema is not None and not stated.schema.intercept:
        raise Incompatible(
            f"The formula {stated.schema.formula!r} has no intercept: give fit_intercept=False too."
        )
    check_extrapolation(model.extrapolation)


def check_units(columns: Columns, target: Target) -> None:
    """Refuse standard errors in units in which squares of coefficients overflow or underflow.

    `columns`, `target`: as declared; public.
    """
    spread = np.ravel(target.scale)
    sizes = np.concatenate([spread, (spread[:, None] / columns.scale).ravel()])
    if not ((sizes > 1 / LARGEST_UNIT) & (sizes < LARGEST_UNIT)).all():
        raise WrongValue(
            "Standard errors are computed from squares of coefficients, which are too large or too small for "
            "a number in these units: use other units of the columns or the target, or uncertainty=0."
        )


def check_target(model: Any, X: Any, y: Any) -> None:
    """Refuse to predict a number where the table's own target is declared to have levels.

    Also refuse a schema without a target where the fit needs its declaration. `X`, `y`: as given to fit. A
    target that is given beside a table may be coded anew as numbers.
    """
    own = getattr(getattr(X, "table", None), "schema", None)  # of a dataset
    schema = own or getattr(model, "schema", None)
    check_schema(schema)
    if isinstance(y, str) and (schema is None or schema.target is not None):
        raise WrongValue(
            "y must be the target of each row, not a name. Give the column, as in fit(X, table[name]), and "
            "leave it out of X; or name it in a schema, TableSchema(..., target=name), and give no y."
        )
    if schema is None:
        return
    if y is None and not hasattr(type(model), "classes"):
        refuse_levels(type(model).__name__, schema)
    parameter = "classes" if hasattr(type(model), "classes") else "y_bounds"
    is_open = own is None and schema.target is None and schema.target_values is None
    if is_open and (y is None or isinstance(y, str) or getattr(model, parameter, "") is None):
        name = y if isinstance(y, str) else getattr(y, "name", None)
        shown = name if isinstance(name, str) and name in schema.columns else "NAME"
        taken, given = "", ""
        if hasattr(model, parameter):  # models of times have neither
            taken, given = f"takes {parameter} from the declaration of that column, and ", f" and {parameter}"
        raise WrongValue(
            f'The schema names no target. Give it one, TableSchema(..., target="{shown}"): '
            f"{type(model).__name__} {taken}does not use the column as a feature. Or give y{given}."
        )


def refuse_levels(kind: str, schema: TableSchema) -> None:
    """Refuse a model of numbers whose target is declared to have levels.

    `kind`: name of the estimator.
    """
    levels = schema.target_levels
    if levels is None:
        return
    name = "The target" if schema.target is None else repr(schema.target)
    ordered = " (or PrivateOrdinalClassifier, if the levels have an order)" if len(levels) > 2 else ""
    raise WrongValue(
        f"{name} is declared with {quantity(len(levels), 'level')}, {_list_levels(levels)}, and {kind} "
        f"predicts a number: use PrivateLogisticRegression{ordered}. If its cells are numbers, declare "
        "y_bounds instead of the levels."
    )


def needs_bounds_of_target(model: object, stated: Declarations, wanted: str) -> WrongValue:
    """Return the refusal of a regression without bounds of its target.

    `wanted`: the bounds, as they are written.
    """
    if stated.schema is not None:
        refuse_levels(type(model).__name__, stated.schema)
    return WrongValue(
        f"{type(model).__name__} needs y_bounds={wanted} of the target, from public knowledge and not from y."
    )


def check_extrapolation(extrapolation: Any) -> None:
    """Refuse a value of `extrapolation` that is none."""
    if not isinstance(extrapolation, str) or extrapolation not in EXTRAPOLATIONS:
        raise WrongValue(
            f'extrapolation must be "clip" or "linear", got {show(extrapolation)}: "clip" predicts '
            'rows outside the region of the fit as if they were on its edge, "linear" is X @ coef_ + '
            "intercept_ for every row."
        )


def check_number(parameter: str, value: Any, wanted: str = "a positive finite number") -> None:
    """Refuse a parameter that is neither None nor a positive finite number."""
    if value is None:
        return
    if not is_number(value, 0, math.inf):
        raise WrongValue(f"{parameter} must be {wanted}, got {show(value)}.")


def refuse_metadata(model: object, metadata: dict[str, Any]) -> None:
    """Refuse keyword arguments of ``fit`` that are not taken, with the reason."""
    name = type(model).__name__
    for keyword, value in metadata.items():
        if keyword not in REFUSED:
            raise WrongType(f"{name}.fit() got an unexpected keyword argument {keyword!r}.")
        if value is not None:
            raise WrongType(f"{name} does not take {keyword}: {REFUSED[keyword]}.")


def _list_levels(levels: tuple[Any, ...]) -> str:
    """Return the declared levels as text; if there are many, only a few."""
    shown = ", ".join(map(show, levels[:LARGEST_SHOWN]))
    return shown + (", ..." if len(levels) > LARGEST_SHOWN else "")


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
