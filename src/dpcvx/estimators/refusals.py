"""Refusals of a fit: parameters that are wrong, and keyword arguments that are not taken."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from dpcvx.data.declarations import Declarations
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators.planning import AUTOMATIC, Parameters
from dpcvx.words import is_number, show

__all__ = ["check_extrapolation", "check_number", "check_parameters", "refuse_metadata"]

EXTRAPOLATIONS = ("clip", "linear")

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


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
