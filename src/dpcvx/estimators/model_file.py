"""Model files: JSON with a schema version, read back by checking every field and executing nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx import domains, solvers
from dpcvx.data import Region
from dpcvx.data.columns import Columns
from dpcvx.domains import set_functions as submodular
from dpcvx.errors import WrongType, WrongValue
from dpcvx.estimators.registry import ESTIMATORS, estimator_class
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.plans.uncertainty import Uncertainty

__all__ = ["load", "save"]

# "trim" is the region that rows are clipped to, under the name it has had in files since version 0.1.
FORMAT = "dpcvx.model"
SCHEMA = 1
FIELDS = {
    "format", "schema", "class", "parameters", "coef", "intercept", "n_iter", "n_features_in",
    "feature_names_in", "columns", "trim", "classes", "uncertainty", "privacy_statement",
}  # fmt: skip
OBJECTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for module in (domains, solvers, submodular)
    for kind in map(vars(module).get, module.__all__)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind is not submodular.FromCallable
}
LABEL_KINDS = {"b": bool, "i": int, "u": int, "f": float, "U": str}


def save(model: Any, path: str | Path) -> None:
    """Write a fitted model as JSON; see `LinearModel.save`."""
    columns = model._columns
    names = getattr(model, "feature_names_in_", None)
    classes = getattr(model, "classes_", None)
    content = {
        "format": FORMAT,
        "schema": SCHEMA,
        "class": type(model).__name__,
        # The ledger's address may hold a password. Without it a model that is read back refuses to fit
        # again, because its account is still named.
        "parameters": {
            name: None if name == "ledger" else _plain(value, name)
            for name, value in model.get_params(deep=False).items()
        },
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "n_iter": model.n_iter_,
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else list(names),
        "columns": {
            "levels": [None if levels is None else list(levels) for levels in columns.levels],
            "names": list(columns.names),
            **{name: getattr(columns, name).tolist() for name in ("low", "high", "center", "scale")},
        },
        "trim": None if model._region is None else model._region.as_dict(),
        "classes": None if classes is None else {"kind": classes.dtype.kind, "labels": classes.tolist()},
        "uncertainty": _uncertainty_fields(model._uncertainty),
        "privacy_statement": model.privacy_statement_.to_dict(),
    }
    Path(path).write_text(
        json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False), encoding="utf-8"
    )


def load(path: str | Path) -> Any:
    """Read a model that ``save`` wrote.

    Every field is checked and nothing in the file is executed. The model predicts exactly as before and has
    its privacy statement; ``plan_`` and ``release_``, which belong to the run, are not in the file.

    Parameters
    ----------
    path : str or Path
        File to read.

    Returns
    -------
    estimator
        Of the class that was saved.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as problem:
        raise WrongValue(f"{path} is no dpcvx model: it is not valid JSON.") from problem
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WrongValue(f'{path} is no dpcvx model: it needs "format": "{FORMAT}".')
    if content.get("schema") != SCHEMA:
        raise WrongValue(
            f"{path} has model schema {content.get('schema')!r}; this version of dpcvx reads schema {SCHEMA}."
        )
    content.setdefault("uncertainty", None)  # files of a version without it
    content.setdefault("trim", None)
    if set(content) != FIELDS:
        raise WrongValue(f"{path} has unknown or missing fields: {sorted(set(content) ^ FIELDS)}.")
    try:
        return _restore(content)
    except (OverflowError, RecursionError) as problem:
        raise WrongValue(
            f"{path} is no dpcvx model: it holds numbers or lists beyond any model's."
        ) from problem


def _restore(content: dict[str, Any]) -> Any:
    name = content["class"]
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise WrongValue(f"Unknown model class {name!r}.")
    kind = estimator_class(name)
    parameters = _mapping(content["parameters"], "parameters")
    unknown = set(parameters) - set(kind().get_params(deep=False))
    if unknown:
        raise WrongValue(f"{name} has no parameters {sorted(unknown)}.")
    model = kind(**{key: _object(value, key) for key, value in parameters.items()})
    columns = _columns(_mapping(content["columns"], "columns"))
    width, d = columns.width, _count(content["n_features_in"], "n_features_in")
    if d != len(columns.levels):
        raise WrongValue(f"n_features_in is {d}, but {len(columns.levels)} columns are described.")
    n_classes = 0
    if hasattr(kind, "decision_function"):
        classes = _labels(_mapping(content["classes"], "classes"))
        n_classes = len(classes)
        if n_classes < 2:
            raise WrongValue("classes must hold two labels or more.")
        model.classes_ = classes
    elif content["classes"] is not None:
        raise WrongValue(f"{name} has no classes.")
    outputs = (n_classes,) if n_classes > 2 else ()
    if model.__sklearn_tags__().target_tags.multi_output and isinstance(content["intercept"], list):
        outputs = (_count(len(content["intercept"]), "number of targets"),)
    model.coef_ = _numbers(content["coef"], "coef", (*outputs, width))
    intercept = _numbers(content["intercept"], "intercept", outputs)
    model.intercept_ = intercept if outputs else float(intercept)
    model.n_iter_ = _count(content["n_iter"], "n_iter")
    model.coef_names_ = np.array(columns.names, dtype=object)
    model._columns = columns
    model._region = _region(content["trim"], width)
    model._uncertainty = _uncertainty(content["uncertainty"], width + 1)
    model.n_features_in_ = d
    if content["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(
            _texts(content["feature_names_in"], "feature_names_in", d), dtype=object
        )
    model.privacy_statement_ = PrivacyStatement.from_dict(content["privacy_statement"])
    return model


def _columns(content: Mapping[str, Any]) -> Columns:
    if set(content) != _field_names(Columns):
        raise WrongValue("columns must have exactly the fields levels, names, low, high, center, scale.")
    levels = content["levels"]
    if not isinstance(levels, list) or not all(item is None or isinstance(item, list) for item in levels):
        raise WrongValue("columns.levels must be a list of lists or nulls.")
    declared = tuple(None if item is None else tuple(_scalar(level) for level in item) for item in levels)
    width = sum(1 if item is None else len(item) for item in declared)
    names = tuple(_texts(content["names"], "columns.names", width))
    if width == 0:
        raise WrongValue("A model needs at least one column.")
    vectors = [_numbers(content[name], name, (width,)) for name in ("low", "high", "center", "scale")]
    return Columns(declared, names, *vectors)


def _region(content: Any, width: int) -> Region | None:
    if content is None:
        return None
    fields = _mapping(content, "trim")
    if set(fields) != {"center", "scale", "reach", "length"}:
        raise WrongValue("trim must have exactly the fields center, scale, reach, length.")
    center, scale = (_numbers(fields[name], f"trim.{name}", (width,)) for name in ("center", "scale"))
    reach, length = (_numbers(fields[name], f"trim.{name}", ()) for name in ("reach", "length"))
    if not (scale > 0).all() or min(reach, length) <= 0:
        raise WrongValue("trim needs positive scales, a positive reach and a positive length.")
    return Region(center, scale, float(reach), float(length))


def _plain(value: Any, name: str) -> Any:
    """Parameter as JSON; objects of dpcvx by class and fields, a mapping by pairs: keys may be numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), name)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key, name), _plain(item, name)] for key, item in value.items()]}
    if type(value).__name__ in OBJECTS and type(value) is OBJECTS[type(value).__name__]:
        fields = {field: _plain(getattr(value, field), name) for field in sorted(_field_names(type(value)))}
        return {"object": type(value).__name__, "fields": fields}
    if isinstance(value, Sequence):
        return [_plain(item, name) for item in value]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # the state is gone; the statement keeps the stamp
    raise WrongType(
        f"Parameter {name} is or has a {type(value).__name__}, which a model file cannot hold: functions and "
        "classes of your own are code. Use objects of dpcvx, with values in place of functions."
    )


def _object(value: Any, name: str) -> Any:
    """Parameter from JSON; only the objects in `OBJECTS` can be made."""
    if isinstance(value, list):
        return [_object(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"pairs"} and isinstance(value["pairs"], list):
        pairs = [pair for pair in value["pairs"] if isinstance(pair, list) and len(pair) == 2]
        if len(pairs) == len(value["pairs"]):
            return {_scalar(key): _object(item, name) for key, item in pairs}
    if set(value) == {"object", "fields"} and isinstance(value["object"], str):
        kind, fields = OBJECTS.get(value["object"]), value["fields"]
        if kind is not None and isinstance(fields, dict) and set(fields) == _field_names(kind):
            _check_indices(fields.get("groups"), name)
            try:
                return kind(**{key: _object(item, name) for key, item in fields.items()})
            except (TypeError, ValueError) as problem:
                raise WrongValue(f"Parameter {name} is no valid {value['object']}.") from problem
    raise WrongValue(f"Parameter {name} has content that a model file cannot hold.")


def _check_indices(groups: Any, name: str) -> None:
    """Refuse groups that a short file could make longer than any memory: indices beyond their own number."""
    if isinstance(groups, list):
        members = [item for group in groups for item in (group if isinstance(group, list) else [None])]
        if not all(type(item) is int and 0 <= item < len(members) for item in members):
            raise WrongValue(f"Parameter {name} must hold groups of indices that leave none out.")


def _field_names(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind) if field.init}


def _uncertainty_fields(known: Uncertainty | None) -> dict[str, Any] | None:
    if known is None:
        return None
    return {name: np.asarray(value).tolist() for name, value in vars(known).items()}


def _uncertainty(content: Any, size: int) -> Uncertainty | None:
    if content is None:
        return None
    fields = _mapping(content, "uncertainty")
    if set(fields) != _field_names(Uncertainty):
        raise WrongValue(f"uncertainty must have the fields {sorted(_field_names(Uncertainty))}.")
    weak = fields["weak"]
    if isinstance(weak, bool) or not isinstance(weak, int) or not 0 <= weak <= size:
        raise WrongValue("uncertainty must count its weak directions.")
    covariance = _numbers(fields["covariance"], "covariance", (size, size))
    if (covariance != covariance.T).any() or (np.diag(covariance) < 0).any():
        raise WrongValue("covariance must be symmetric with no negative variance.")
    return Uncertainty(
        _numbers(fields["estimate"], "estimate", (size,)),
        covariance,
        float(_numbers(fields["dispersion"], "dispersion", ())),
        weak,
    )


def _labels(content: Mapping[str, Any]) -> NDArray[Any]:
    kind, labels = content.get("kind"), content.get("labels")
    if set(content) != {"kind", "labels"} or not isinstance(labels, list):
        raise WrongValue("classes must have the fields kind and labels.")
    labels = [_scalar(label) for label in labels]
    if kind == "O":
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array
    if (
        not isinstance(kind, str)
        or kind not in LABEL_KINDS
        or not all(type(label) is LABEL_KINDS[kind] for label in labels)
    ):
        raise WrongValue(f"classes of kind {kind!r} do not fit their labels.")
    return np.array(labels)


def _numbers(value: Any, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        array = np.array(value, dtype=np.float64) if _only_numbers(value) else None
    except ValueError:
        array = None
    if array is None or array.shape != shape or not np.isfinite(array).all():
        raise WrongValue(f"{name} must hold finite numbers of shape {shape}.")
    return array


def _only_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(_only_numbers(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(value: Any, name: str, length: int) -> list[str]:
    if (
        not isinstance(value, list)
        or len(value) != length
        or not all(isinstance(item, str) for item in value)
    ):
        raise WrongValue(f"{name} must be a list of {length} texts.")
    return value


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongValue(f"{name} must be a positive integer.")
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise WrongValue("Labels, levels and column names must be text, numbers or true/false.")


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue(f"{name} must be a JSON object.")
    return value


def _no_constant(text: str) -> Any:
    raise WrongValue("NaN and infinities have no place in a model file.")
