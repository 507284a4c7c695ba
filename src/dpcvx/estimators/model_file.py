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
from dpcvx.data import AdditiveBasis, Deviances, LogLosses, Region, SquaredErrors, column_maps
from dpcvx.data.column_maps import IDENTITY, ColumnMap, Maps, read_map
from dpcvx.data.columns import feature_names
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.row_map import RowMap
from dpcvx.data.table import Levels, feature_counts
from dpcvx.data.table_schema import TableSchema
from dpcvx.domains import set_functions as submodular
from dpcvx.errors import WrongType, WrongValue
from dpcvx.estimators.data_check import DataCheck
from dpcvx.estimators.registry import ESTIMATORS, ROW_ESTIMATORS, estimator_class
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.plans.uncertainty import COVARIANCES, NONROBUST, Goodness, Uncertainty
from dpcvx.whole_files import replace_file

__all__ = ["load", "save"]

FORMAT = "dpcvx.model"
SCHEMA = 4
EARLIER = (1, 2, 3)
FIELDS = {
    "format", "schema", "class", "parameters", "formula", "n_iter", "uncertainty", "check",
    "privacy_statement",
}  # fmt: skip
# Schema 1 named every feature and repeated its bounds, centre and scale; "trim" was the region.
OLD_FIELDS = {
    "format", "schema", "class", "parameters", "coef", "intercept", "n_iter", "n_features_in",
    "feature_names_in", "columns", "trim", "classes", "uncertainty", "privacy_statement",
}  # fmt: skip
FORMULA = {
    "columns", "levels", "baselines", "omitted", "maps", "fill", "bounds", "region", "schema",
    "extrapolation", "coef", "intercept", "link", "classes",
}  # fmt: skip
MOST_COLUMNS = 2**25  # without names; a short file must not ask for more memory than there is
LINKS = ("identity", "log", "sign", "logit")
OBJECTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for module in (domains, solvers, submodular, column_maps)
    for kind in map(vars(module).get, module.__all__)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind is not submodular.FromCallable
}
LABEL_KINDS = {"b": bool, "i": int, "u": int, "f": float, "U": str}


def save(model: Any, path: str | Path) -> None:
    """Write a fitted model as JSON; see `LinearModel.save`."""
    name = type(model).__name__
    parameters = model.get_params(deep=False)
    if name in ROW_ESTIMATORS:  # all that was released is that of its rows
        parameters, model = model.file_parameters(), model.model_
    content = {
        "format": FORMAT,
        "schema": SCHEMA,
        "class": name,
        # The ledger's address may hold a password. Without it a model that is read back refuses to fit
        # again, because its account is still named. The schema is in the formula.
        "parameters": {
            name: None if name in ("ledger", "schema", "public") else _plain(value, name)
            for name, value in parameters.items()
        },
        "formula": model.formula_.to_dict(),
        "n_iter": model.n_iter_,
        "uncertainty": _uncertainty_fields(model._uncertainty),
        "check": None if model.check_ is None else model.check_.to_plain(),
        "privacy_statement": _short_statement(model.privacy_statement_.to_dict(), model._row_map.names),
    }
    lines = [f" {json.dumps(name)}: {_text(value)}" for name, value in content.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))


def _text(value: Any) -> str:
    """JSON with one line for each entry of an object, so that long vectors stay short."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    entries = (
        f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(entry, allow_nan=False, ensure_ascii=False)}"
        for name, entry in value.items()
    )
    return "{\n" + ",\n".join(entries) + "\n }"


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
    except WrongValue:
        raise
    except (ValueError, RecursionError) as problem:  # of the decoder, of UTF-8, or of a number's digits
        raise WrongValue(f"{path} is no dpcvx model: it is not valid JSON.") from problem
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WrongValue(f'{path} is no dpcvx model: it needs "format": "{FORMAT}".')
    if content.get("schema") not in (*EARLIER, SCHEMA):
        raise WrongValue(
            f"{path} has model schema {content.get('schema')!r}; this version of dpcvx reads schemas 1 to "
            f"{SCHEMA}."
        )
    old = content["schema"] == 1
    if old:
        content.setdefault("uncertainty", None)  # files of a version without it
        content.setdefault("trim", None)
    else:
        content.setdefault("check", None)
    if wrong := set(content) ^ (OLD_FIELDS if old else FIELDS):
        raise WrongValue(f"{path} has unknown or missing fields: {sorted(wrong)}.")
    try:
        return _restore(_from_schema_1(content) if old else content, schema=content["schema"])
    except (OverflowError, RecursionError) as problem:
        raise WrongValue(
            f"{path} is no dpcvx model: it holds numbers or lists beyond any model's."
        ) from problem


def _restore(content: dict[str, Any], *, schema: int) -> Any:
    """Return the model of a file.

    `schema`: up to 2 a cell that is no level takes equal shares of the levels, and not those of the file; up
    to 3 baselines have no feature at all.
    """
    name = content["class"]
    if not isinstance(name, str) or name not in {*ESTIMATORS, *ROW_ESTIMATORS}:
        raise WrongValue(f"Unknown model class {name!r}.")
    kind = estimator_class(name)
    parameters = _mapping(content["parameters"], "parameters")
    unknown = set(parameters) - set(kind().get_params(deep=False))
    if unknown:
        raise WrongValue(f"{name} has no parameters {sorted(unknown)}.")
    model = kind(**{key: _object(value, key) for key, value in parameters.items()})
    if name in ROW_ESTIMATORS:
        return model.restored(_fitted(model.logistic(), content, schema=schema))
    return _fitted(model, content, schema=schema)


def _fitted(model: Any, content: dict[str, Any], *, schema: int) -> Any:
    """Return a model with what a file says that it released."""
    kind, name = type(model), type(model).__name__
    # Older files have no schema, no baselines and no maps.
    formula = {"schema": None, "baselines": {}, "maps": {}, **_mapping(content["formula"], "formula")}
    if schema < 4:
        formula["omitted"] = formula["baselines"]
    if wrong := set(formula) ^ FORMULA:
        raise WrongValue(f"formula has unknown or missing fields: {sorted(wrong)}.")
    if formula["extrapolation"] != model.extrapolation:
        raise WrongValue("extrapolation must be the same in the formula and among the parameters.")
    names = formula["columns"]
    d = _count(names if not isinstance(names, list) else len(names), "number of columns")
    if d > MOST_COLUMNS:
        raise WrongValue(f"A model has at most {MOST_COLUMNS} columns.")
    labels = _texts(names, "columns", d) if isinstance(names, list) else [f"x{j}" for j in range(d)]
    levels = _levels(formula, d)
    if formula["schema"] is not None:
        model.schema = TableSchema.from_dict(formula["schema"])
        if list(names) != [variable.name for variable in model.schema.variables()]:
            raise WrongValue("columns must be the variables of the schema.")
    row_map = dataclasses.replace(_row_map(formula, labels, levels), schema=model.schema)
    if schema < 3:
        row_map = dataclasses.replace(row_map, fill=_with_equal_shares(row_map.fill, levels, row_map.maps))
    width = len(row_map.feature_names)
    n_classes = 0
    if hasattr(kind, "decision_function"):
        classes = _labels(_mapping(formula["classes"], "classes"))
        n_classes = len(classes)
        if n_classes < 2:
            raise WrongValue("classes must hold two labels or more.")
        model.classes_ = classes
    elif formula["classes"] is not None:
        raise WrongValue(f"{name} has no classes.")
    if formula["link"] not in LINKS:
        raise WrongValue(f"link must be one of {', '.join(LINKS)}.")
    outputs = (n_classes,) if n_classes > 2 else ()
    if model.__sklearn_tags__().target_tags.multi_output and isinstance(formula["intercept"], list):
        outputs = (_count(len(formula["intercept"]), "number of targets"),)
    model.coef_ = _dense(formula["coef"], "coef", (*outputs, width))
    intercept = _numbers(formula["intercept"], "intercept", outputs)
    model.intercept_ = intercept if outputs else float(intercept)
    model.n_iter_ = _count(content["n_iter"], "n_iter")
    model.coef_names_ = np.array(row_map.feature_names, dtype=object)
    model._row_map, model._link = row_map, formula["link"]
    model._uncertainty = _uncertainty(content["uncertainty"], width + 1)
    model.check_ = None if content["check"] is None else DataCheck.from_plain(content["check"])
    model.n_features_in_ = d
    if isinstance(names, list):
        model.feature_names_in_ = np.array(names, dtype=object)
    model.privacy_statement_ = PrivacyStatement.from_dict(
        _whole_statement(content["privacy_statement"], row_map.names)
    )
    return model


def _from_schema_1(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of schema 1 under the names of schema 2."""
    columns = _mapping(content["columns"], "columns")
    if set(columns) != {"levels", "names", "low", "high", "center", "scale"}:
        raise WrongValue("columns must have exactly the fields levels, names, low, high, center, scale.")
    levels, names, d = columns["levels"], content["feature_names_in"], content["n_features_in"]
    if not isinstance(levels, list) or not all(item is None or isinstance(item, list) for item in levels):
        raise WrongValue("columns.levels must be a list of lists or nulls.")
    if d != len(levels) or (names is not None and len(_texts(names, "feature_names_in", d)) != d):
        raise WrongValue(f"n_features_in is {d!r}, but {len(levels)} columns are described.")
    width = sum(1 if item is None else len(item) for item in levels)
    _texts(columns["names"], "columns.names", width)
    for side in ("low", "high", "center", "scale"):
        _numbers(columns[side], f"columns.{side}", (width,))
    parameters = _mapping(content["parameters"], "parameters")
    link = "identity" if content["classes"] is None else "sign"
    if content["class"] == "PrivateLogisticRegression":
        link = "logit"
    released = parameters.get("bounds") == "private"
    return {
        "class": content["class"],
        "parameters": parameters,
        "formula": {
            "columns": d if names is None else names,
            "levels": {str(j): item for j, item in enumerate(levels) if item is not None},
            "fill": columns["center"],
            "bounds": [columns["low"], columns["high"]] if released else None,
            "region": content["trim"],
            "extrapolation": "clip",
            "coef": content["coef"],
            "intercept": content["intercept"],
            "link": link,
            "classes": content["classes"],
        },
        "n_iter": content["n_iter"],
        "uncertainty": content["uncertainty"],
        "check": None,
        "privacy_statement": content["privacy_statement"],
    }


def _levels(formula: Mapping[str, Any], d: int) -> tuple[DeclaredLevels | None, ...]:
    baselines, omitted = (_mapping(formula[name], name) for name in ("baselines", "omitted"))
    declared = {}
    for place, levels in _mapping(formula["levels"], "levels").items():
        if not place.isdecimal() or not 0 <= int(place) < d or not isinstance(levels, list) or not levels:
            raise WrongValue("levels must map positions of columns to lists of levels.")
        baseline = baselines.get(place)
        if baseline is not None and (type(baseline) is not int or not 0 <= baseline < len(levels) >= 2):
            raise WrongValue("baselines must map positions of columns to places among their levels.")
        if omitted.get(place, baseline) != baseline:
            raise WrongValue("omitted must be some of the baselines.")
        declared[int(place)] = DeclaredLevels(tuple(map(_scalar, levels)), baseline, omitted.get(place))
    return tuple(declared.get(j) for j in range(d))


def _maps(content: Any, levels: Sequence[Any]) -> Maps:
    found = {}
    for place, fields in _mapping(content, "maps").items():
        if not place.isdecimal() or not 0 <= int(place) < len(levels) or levels[int(place)] is not None:
            raise WrongValue("maps must map positions of columns of numbers to maps.")
        found[int(place)] = read_map(fields, "maps")
        if not isinstance(found[int(place)], ColumnMap):
            raise WrongValue("maps must be maps with their numbers.")
    return tuple(found.get(j, IDENTITY) for j in range(len(levels))) if found else None


def _with_equal_shares(fill: NDArray[np.float64], levels: Levels, maps: Maps) -> NDArray[np.float64]:
    """Values of missing cells, with equal shares of levels that have a baseline: older files lack these."""
    shares = [None if each is None or each.baseline is None else each.share for each in levels]
    equal = np.repeat(np.array(shares, dtype=np.float64), feature_counts(levels, maps))
    return np.where(np.isnan(equal), fill, equal)


def _row_map(formula: Mapping[str, Any], labels: Sequence[str], levels: Any) -> RowMap:
    maps = _maps(formula["maps"], levels)
    names = feature_names(labels, levels, maps)
    width, bounds = len(names), formula["bounds"]
    if bounds is not None:
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise WrongValue("bounds must be a pair of numbers or of lists of numbers.")
        bounds = tuple(_vector(bound, "bounds", width) for bound in bounds)
    fill, region = _vector(formula["fill"], "fill", width), _region(formula["region"], width)
    return RowMap(levels, maps, names, fill, bounds, region)


def _vector(value: Any, name: str, width: int) -> NDArray[np.float64]:
    """Numbers, one for all features where they are equal."""
    if isinstance(value, list):
        return _numbers(value, name, (width,))
    return np.full(width, _numbers(value, name, ()))


def _dense(value: Any, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers, all of them or those that are not 0."""
    if isinstance(value, list):
        return _numbers(value, name, shape)
    fields = _mapping(value, name)
    places = fields.get("places")
    size = math.prod(shape)
    if (
        set(fields) != {"shape", "places", "values"}
        or fields["shape"] != list(shape)
        or not isinstance(places, list)
        or not all(type(place) is int and 0 <= place < size for place in places)
    ):
        raise WrongValue(f"{name} must have the shape {shape}, and places and values of equal length.")
    array = np.zeros(size)
    array[places] = _numbers(fields["values"], name, (len(places),))
    return array.reshape(shape)


def _short_statement(statement: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The statement without the names of features, and with equal bounds said once."""
    bounds, public = dict(statement["bounds"]), dict(statement["public"])
    if isinstance(bounds.get("bounds"), dict):
        bounds["bounds"] = {
            side: values[0] if len(values) > 1 and len(set(values)) == 1 else values
            for side, values in bounds["bounds"].items()
        }
    if public.get("features") == list(names):
        public["features"] = None
    return {**statement, "bounds": bounds, "public": public}


def _whole_statement(statement: Any, names: Sequence[str]) -> Any:
    """The statement as it was before `_short_statement`."""
    known = _mapping(statement, "privacy_statement")
    bounds, public = known.get("bounds"), known.get("public")
    if not isinstance(bounds, dict) or not isinstance(public, dict):
        return statement
    bounds, public = dict(bounds), dict(public)
    if isinstance(bounds.get("bounds"), dict):
        bounds["bounds"] = {
            side: values if isinstance(values, list) else [values] * len(names)
            for side, values in bounds["bounds"].items()
        }
    if "features" in public and public["features"] is None:
        public["features"] = list(names)
    return {**known, "bounds": bounds, "public": public}


def _region(content: Any, width: int) -> Region | None:
    if content is None:
        return None
    fields = {**_mapping(content, "region")}
    basis = fields.pop("basis", None)
    if set(fields) != {"center", "scale", "reach", "length"}:
        raise WrongValue("region must have exactly the fields center, scale, reach, length.")
    center, scale = (_vector(fields[name], f"region.{name}", width) for name in ("center", "scale"))
    reach, length = (_numbers(fields[name], f"region.{name}", ()) for name in ("reach", "length"))
    if not (scale > 0).all() or min(reach, length) <= 0:
        raise WrongValue("region needs positive scales, a positive reach and a positive length.")
    return Region(center, scale, float(reach), float(length), _basis(basis, width, float(reach)))


def _basis(content: Any, d: int, reach: float) -> AdditiveBasis | None:
    if content is None:
        return None
    fields = {"dropped": [], **_mapping(content, "basis")}  # written only where columns were selected
    if set(fields) != {"numbers", "knots", "ramp_weight", "pairs", "pair_weight", "flat", "dropped"}:
        raise WrongValue("basis must have the fields numbers, knots, ramp_weight, pairs, pair_weight, flat.")
    numbers, pairs = fields["numbers"], fields["pairs"]
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise WrongValue("basis.pairs must be a list of pairs.")
    if not all(isinstance(fields[name], list) for name in ("numbers", "knots", "flat", "dropped")):
        raise WrongValue("basis.numbers, basis.knots, basis.flat and basis.dropped must be lists.")
    named = [*numbers, *fields["flat"], *fields["dropped"], *(j for pair in pairs for j in pair)]
    if not all(type(j) is int and 0 <= j < d for j in named):
        raise WrongValue("basis must name features by their places.")
    knots = _numbers(fields["knots"], "basis.knots", (len(fields["knots"]),)) if fields["knots"] else ()
    ramp_weight, pair_weight = (
        float(_numbers(fields[name], f"basis.{name}", ())) for name in ("ramp_weight", "pair_weight")
    )
    places = tuple((i, j) for i, j in pairs)
    return AdditiveBasis(
        d,
        tuple(numbers),
        tuple(map(float, knots)),
        ramp_weight,
        places,
        pair_weight,
        reach,
        tuple(fields["flat"]),
        tuple(fields["dropped"]),
    )


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
    fields = {name: np.asarray(value).tolist() for name, value in vars(known).items() if name != "goodness"}
    fields["goodness"] = None if known.goodness is None else dataclasses.asdict(known.goodness)
    # Symmetric: every row up to its diagonal.
    return fields | {
        name: [row[: k + 1] for k, row in enumerate(fields[name])]
        for name in ("covariance", "sampling", "hidden")
        if fields[name] is not None
    }


def _uncertainty(content: Any, size: int) -> Uncertainty | None:
    if content is None:
        return None
    # Older files do not say which part of the covariance is what, and how good the fit is.
    unknown: dict[str, Any] = {"sampling": None, "hidden": None, "kind": NONROBUST, "goodness": None}
    unknown |= {"long_tail": False, "tail_unknown": False, "long_columns": []}
    fields = {**unknown, **_mapping(content, "uncertainty")}
    if set(fields) != _field_names(Uncertainty):
        raise WrongValue(f"uncertainty must have the fields {sorted(_field_names(Uncertainty))}.")
    weak = fields["weak"]
    if isinstance(weak, bool) or not isinstance(weak, int) or not 0 <= weak <= size:
        raise WrongValue("uncertainty must count its weak directions.")
    if not isinstance(fields["kind"], str) or fields["kind"] not in COVARIANCES:
        raise WrongValue(f"uncertainty must be of a kind among {', '.join(COVARIANCES)}.")
    if not (isinstance(fields["long_tail"], bool) and isinstance(fields["tail_unknown"], bool)):
        raise WrongValue("uncertainty must say whether the target has a long tail.")
    columns = fields["long_columns"]
    if not isinstance(columns, list) or not all(type(k) is int and 0 <= k < size for k in columns):
        raise WrongValue("uncertainty must list the places of columns with long tails.")
    return Uncertainty(
        _numbers(fields["estimate"], "estimate", (size,)),
        _covariance(fields["covariance"], "covariance", size),
        float(_numbers(fields["dispersion"], "dispersion", ())),
        weak,
        _covariance_part(fields["sampling"], "sampling", size),
        _covariance_part(fields["hidden"], "hidden", size),
        fields["kind"],
        _goodness(fields["goodness"]),
        fields["long_tail"],
        fields["tail_unknown"],
        tuple(columns),
    )


def _goodness(content: Any) -> Goodness | None:
    if content is None:
        return None
    fields = _mapping(content, "goodness")
    names = (SquaredErrors.name, LogLosses.name, Deviances.name)
    if set(fields) != _field_names(Goodness) or fields["name"] not in names:
        raise WrongValue(f"goodness must have the fields {sorted(_field_names(Goodness))} and a known name.")
    value = None if fields["value"] is None else float(_numbers(fields["value"], "value", ()))
    deviation = float(_numbers(fields["deviation"], "deviation", ()))
    if deviation < 0:
        raise WrongValue("The standard deviation of goodness must not be negative.")
    return Goodness(fields["name"], value, deviation)


def _covariance_part(rows: Any, name: str, size: int) -> NDArray[np.float64] | None:
    return None if rows is None else _covariance(rows, name, size)


def _covariance(rows: Any, name: str, size: int) -> NDArray[np.float64]:
    matrix = _numbers(_square(rows), name, (size, size))
    if (matrix != matrix.T).any() or (np.diag(matrix) < 0).any():
        raise WrongValue(f"{name} must be symmetric with no negative variance (a covariance).")
    return matrix


def _square(rows: Any) -> Any:
    """Rows of a symmetric matrix up to their diagonals, or whole ones of schema 1, as whole rows."""
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) == k + 1 for k, row in enumerate(rows)
    ):
        return rows
    return [[rows[max(j, k)][min(j, k)] for j in range(len(rows))] for k in range(len(rows))]


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
