"""The formula of a fitted model as an ONNX graph in double precision."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np

from dpcvx.data import AdditiveBasis, Region
from dpcvx.data.canonical import MISSING, canonical
from dpcvx.data.column_maps import Clip, Identity, QuantileMap, Ramps, SignedLog, each_map
from dpcvx.data.date_column import UNITS
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.schema_columns import BooleanColumn, DateColumn, HashedColumn, LevelColumn, NumberColumn
from dpcvx.data.variables import Variable
from dpcvx.errors import Incompatible, NotInstalled
from dpcvx.estimators.formula import Formula

__all__ = ["onnx_model"]

EPOCH = datetime.date(1970, 1, 1)
MEANS = {"log": "Exp", "logit": "Sigmoid"}  # operators from scores of regressors to means, by link
OPSET, ML_OPSET = 18, 3  # of ONNX 1.13 and later


def onnx_model(formula: Formula) -> Any:
    """Return a formula as an ONNX model; see `LinearModel.to_onnx`."""
    try:
        import onnx
    except ImportError as missing:
        raise NotInstalled('ONNX models need onnx: run  pip install "dpcvx[onnx]"') from missing
    graph = _Graph()
    features = _clipped(graph, formula, _features(graph, formula))
    compared = formula.row_map.compared
    if len(compared) < len(formula.row_map.clipped_names):
        features = graph.add("Gather", features, graph.constant(compared), axis=1)
    outputs = _outputs(graph, formula, _scores(graph, formula, features))
    helper = onnx.helper
    made = helper.make_graph(graph.nodes, formula.model, graph.inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = helper.make_model(made, producer_name="dpcvx", opset_imports=opsets)
    model.ir_version = 8  # that of the opset: older runtimes refuse newer files
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes, inputs and constants of a graph that is being written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, kind: str, width: int) -> str:
        from onnx import TensorProto, helper

        if name in [each.name for each in self.inputs]:  # several parts of one date
            return name
        self.inputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, kind), [None, width]))
        return name

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name


def _features(graph: _Graph, formula: Formula) -> str:
    rows = formula.row_map
    variables = () if rows.schema is None else rows.schema.variables()
    numbers = all(levels is None for levels in rows.levels) and not any(each.derived for each in variables)
    whole = graph.input("X", "DOUBLE", len(rows.levels)) if numbers else ""
    if numbers and rows.maps is None:
        return _filled(graph, whole, whole, rows.fill)
    columns = (
        [f"x{j}" for j in range(formula.columns)] if isinstance(formula.columns, int) else formula.columns
    )
    readings = {each.name: _reading(rows.schema, each) for each in variables if each.derived}
    parts, place = [], 0
    maps = each_map(rows.maps, len(rows.levels))
    for j, (name, levels, column_map) in enumerate(zip(columns, rows.levels, maps, strict=True)):
        reading = readings.get(name, _own_reading(name, levels))
        if levels is None:
            fill = rows.fill[place : place + len(column_map.suffixes)]
            if numbers:
                cells = graph.add("Gather", whole, graph.constant(np.array([j])), axis=1)
            else:
                cells = reading(graph)
            parts.append(_filled(graph, cells, MAPS[column_map.kind](graph, cells, column_map), fill))
            place += len(fill)
        else:
            fill = rows.fill[place : place + len(levels.coded)]
            parts.append(_level_features(graph, reading(graph), levels, fill))
            place += len(levels.coded)
    return graph.add("Concat", *parts, axis=1)


# -- readings: from inputs to a column of numbers, NaN for a missing one, or to codes of levels, -1 for none

Reading = Callable[[_Graph], str]


def _own_reading(name: str, levels: DeclaredLevels | None) -> Reading:
    """Return the reading of a column that is as it is."""
    if levels is None:
        return lambda graph: graph.input(name, "DOUBLE", 1)
    return lambda graph: _level_codes(graph, name, levels)


def _reading(schema: Any, variable: Variable) -> Reading:
    """Return the reading of a variable that is derived from its column."""
    column = schema.columns[variable.column]
    return lambda graph: READINGS[column.kind](graph, variable, column)


def _number_reading(graph: _Graph, variable: Variable, column: Any) -> str:
    cells = graph.input(variable.column, "DOUBLE", 1)
    codes = [code for code in map(canonical, column.missing_codes) if isinstance(code, float)]
    return _without_codes(graph, cells, codes)


def _boolean_reading(graph: _Graph, variable: Variable, column: Any) -> str:
    cells = graph.input(variable.column, "DOUBLE", 1)
    flag = graph.add(
        "Or",
        graph.add("Equal", cells, graph.constant(np.float64(0))),
        graph.add("Equal", cells, graph.constant(np.float64(1))),
    )
    return graph.add("Where", flag, cells, graph.constant(np.float64(np.nan)))


def _level_reading(graph: _Graph, variable: Variable, column: Any) -> str:
    levels = DeclaredLevels(variable.levels or ())
    missing = -1 if column.missing is None else int(levels.codes(np.array([column.missing], dtype=object))[0])
    other = -1 if variable.other is None else variable.other
    return _level_codes(graph, variable.column, levels, column.missing_codes, missing=missing, other=other)


def _date_reading(graph: _Graph, variable: Variable, column: Any) -> str:
    """Read a date as days since 1970-01-01: a number, or codes of its part."""
    from onnx import TensorProto

    days = graph.input(f"{variable.column}.days_since_1970", "DOUBLE", 1)
    codes = [
        _days(datetime.date.fromisoformat(code))
        for code in map(canonical, column.missing_codes)
        if isinstance(code, str) and _is_date(code)
    ]
    days = _without_codes(graph, days, codes)
    if not column.parts:
        past = graph.add("Sub", days, graph.constant(np.float64(_days(column.since))))
        return graph.add("Div", past, graph.constant(np.float64(UNITS[column.unit])))
    nothing = graph.add("Or", graph.add("IsNaN", days), _is_infinite(graph, days))
    known = graph.add("Where", nothing, graph.constant(np.float64(0.0)), days)
    whole = graph.add("Cast", graph.add("Floor", known), to=TensorProto.INT64)
    part = variable.name.removeprefix(f"{variable.column}.")
    code = {"year": _year, "month": _month, "weekday": _weekday}[part](graph, whole, column)
    return graph.add("Where", nothing, graph.constant(np.int64(-1)), code)


def _year(graph: _Graph, days: str, column: Any) -> str:
    """Place of the year among those of the bounds: the number of New Years after the first year's."""
    from onnx import TensorProto

    first, last = column.bounds
    starts = [_days(datetime.date(year, 1, 1)) for year in range(first.year + 1, last.year + 1)]
    if not starts:
        return graph.add("Sub", days, days)
    passed = graph.add("GreaterOrEqual", days, graph.constant(np.array(starts, dtype=np.int64)))
    counted = graph.add("Cast", passed, to=TensorProto.INT64)
    return graph.add("ReduceSum", counted, graph.constant(np.array([1])))


def _month(graph: _Graph, days: str, column: Any) -> str:
    """Month from 0 to 11, by the calendar of 400 years that begin on the 1st of March 0000."""

    def number(value: int) -> str:
        return graph.constant(np.int64(value))

    def over(value: str, by: int) -> str:
        return graph.add("Div", value, number(by))

    era_day = graph.add("Mod", graph.add("Add", days, number(719468)), number(146097))  # never negative
    leap = graph.add("Sub", graph.add("Sub", era_day, over(era_day, 1460)), over(era_day, 146096))
    year = over(graph.add("Add", leap, over(era_day, 36524)), 365)
    before = graph.add(
        "Sub", graph.add("Add", graph.add("Mul", year, number(365)), over(year, 4)), over(year, 100)
    )
    day = graph.add("Sub", era_day, before)
    march = over(graph.add("Add", graph.add("Mul", day, number(5)), number(2)), 153)  # 0 is March
    return graph.add("Mod", graph.add("Add", march, number(2)), number(12))


def _weekday(graph: _Graph, days: str, column: Any) -> str:
    """Day of the week from 0, Monday; 1970-01-01 was a Thursday."""
    return graph.add("Mod", graph.add("Add", days, graph.constant(np.int64(3))), graph.constant(np.int64(7)))


def _bucket_reading(graph: _Graph, variable: Variable, column: Any) -> str:
    """Read the bucket itself: ONNX has no keyed hash of text."""
    from onnx import TensorProto

    cells = graph.input(f"{variable.column}.bucket", "DOUBLE", 1)
    known = graph.add("Equal", cells, graph.add("Floor", cells))  # a missing bucket, NaN, equals nothing
    number = graph.add("Where", known, cells, graph.constant(np.float64(-1)))
    return graph.add("Cast", number, to=TensorProto.INT64)


READINGS: dict[str, Callable[[_Graph, Variable, Any], str]] = {
    NumberColumn.kind: _number_reading,
    LevelColumn.kind: _level_reading,
    BooleanColumn.kind: _boolean_reading,
    DateColumn.kind: _date_reading,
    HashedColumn.kind: _bucket_reading,
}


def _without_codes(graph: _Graph, cells: str, codes: list[float]) -> str:
    """Numbers, with declared codes of missing ones as NaN."""
    for code in codes:
        found = graph.add("Equal", cells, graph.constant(np.float64(code)))
        cells = graph.add("Where", found, graph.constant(np.float64(np.nan)), cells)
    return cells


def _days(date: datetime.date) -> float:
    return float((date - EPOCH).days)


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _level_codes(
    graph: _Graph,
    name: str,
    levels: DeclaredLevels,
    missing_codes: tuple[Any, ...] = (),
    *,
    missing: int = -1,
    other: int = -1,
) -> str:
    """Codes of levels of a column of shape (n, 1).

    `missing_codes`: values that stand for a missing cell; `missing`, `other`: codes of missing and of any
    other cells.
    """

    values = [*levels, *missing_codes]
    if all(isinstance(level, str) for level in values):
        # Where a level is written like a missing cell, such as "NA", a missing cell is that level.
        written = [code for code, level in enumerate(levels) if canonical(level) is None]
        known = dict.fromkeys((*MISSING, "nan", "NaN", *missing_codes), written[0] if written else missing)
        known |= {level: code for code, level in enumerate(levels)}
        return graph.add(
            "LabelEncoder",
            graph.input(name, "STRING", 1),
            domain="ai.onnx.ml",
            keys_strings=[*known],
            values_int64s=[*known.values()],
            default_int64=other,
        )
    if any(isinstance(level, str) for level in values):
        raise Incompatible(
            f"Column {name} has levels of text and of numbers, and an ONNX input has one type. Declare all "
            "of its levels as text."
        )
    cells = graph.input(name, "DOUBLE", 1)
    absent = graph.add("IsNaN", cells)
    for code in missing_codes:
        absent = graph.add("Or", absent, graph.add("Equal", cells, graph.constant(np.float64(code))))
    found = graph.constant(np.int64(other))
    for code, level in enumerate(levels):
        same = graph.add("Equal", cells, graph.constant(np.float64(level)))
        found = graph.add("Where", same, graph.constant(np.int64(code)), found)
    return graph.add("Where", absent, graph.constant(np.int64(missing)), found)


def _same(graph: _Graph, cells: str, column_map: Any) -> str:
    return cells


def _interval(graph: _Graph, cells: str, column_map: Any) -> str:
    low, high = (graph.constant(np.float64(end)) for end in (column_map.low, column_map.high))
    return graph.add("Min", graph.add("Max", cells, low), high)


def _logarithm(graph: _Graph, cells: str, column_map: Any) -> str:
    """Signed logarithms; log(1 + u) is u log(v) / (v - 1) with v = 1 + u, precise for small u too."""
    one, zero = graph.constant(np.float64(1.0)), graph.constant(np.float64(0.0))
    size = graph.add("Div", graph.add("Abs", cells), graph.constant(np.float64(column_map.scale)))
    size = graph.add("Min", size, graph.constant(np.finfo(np.float64).max))
    more = graph.add("Add", size, one)
    rise = graph.add("Sub", more, one)
    tiny = graph.add("Equal", rise, zero)
    slope = graph.add("Div", size, graph.add("Where", tiny, one, rise))
    logs = graph.add("Where", tiny, size, graph.add("Mul", graph.add("Log", more), slope))
    return graph.add("Mul", graph.add("Sign", cells), logs)


def _ramps(graph: _Graph, cells: str, column_map: Any) -> str:
    from onnx import TensorProto

    knots = np.array(column_map.knots)
    start, width = graph.constant(knots[:-1]), np.diff(knots)
    zero, one = graph.constant(np.float64(0.0)), graph.constant(np.float64(1.0))
    past = graph.add("Div", graph.add("Sub", cells, start), graph.constant(np.where(width > 0, width, 1.0)))
    ramps = graph.add("Min", graph.add("Max", past, zero), one)
    if (width > 0).all():
        return ramps
    steps = graph.add("Cast", graph.add("Greater", cells, start), to=TensorProto.DOUBLE)
    return graph.add("Where", graph.constant(width > 0), ramps, steps)


def _piecewise(graph: _Graph, cells: str, column_map: Any) -> str:
    rises = graph.constant(np.diff(column_map.values)[:, None])
    passed = graph.add("MatMul", _ramps(graph, cells, column_map), rises)
    return graph.add("Add", passed, graph.constant(np.float64(column_map.values[0])))


# how each kind of column map is written
MAPS: dict[str, Callable[[_Graph, str, Any], str]] = {
    Identity.kind: _same,
    Clip.kind: _interval,
    SignedLog.kind: _logarithm,
    Ramps.kind: _ramps,
    QuantileMap.kind: _piecewise,
}


def _filled(graph: _Graph, cells: str, features: str, fill: Any) -> str:
    """Features, those of a cell that is no finite number replaced."""
    odd = graph.add("Or", graph.add("IsNaN", cells), _is_infinite(graph, cells))
    return graph.add("Where", odd, graph.constant(fill), features)


def _is_infinite(graph: _Graph, cells: str) -> str:
    size = graph.add("Abs", cells)
    return graph.add("Equal", size, graph.constant(np.float64(np.inf)))


def _level_features(graph: _Graph, codes: str, levels: DeclaredLevels, fill: Any) -> str:
    """Codes of shape (n, 1) as 0/1 features of shape (n, number of levels that have one)."""
    from onnx import TensorProto

    places = np.arange(len(levels), dtype=np.int64)
    is_level = graph.add("Cast", graph.add("Equal", codes, graph.constant(places)), to=TensorProto.DOUBLE)
    known = graph.add("ReduceMax", is_level, graph.constant(np.array([1])))
    coded = graph.add("Gather", is_level, graph.constant(places[list(levels.coded)]), axis=1)
    return graph.add("Where", graph.add("Cast", known, to=TensorProto.BOOL), coded, graph.constant(fill))


def _clipped(graph: _Graph, formula: Formula, features: str) -> str:
    rows = formula.row_map
    clips = formula.extrapolation == "clip"
    if clips and rows.bounds is not None:
        low, high = (graph.constant(bound) for bound in rows.bounds)
        features = graph.add("Min", graph.add("Max", features, low), high)
    region = rows.region if clips or rows.region is None else rows.region.without_clipping()
    if region is not None and region.basis is not None:
        return _expanded(graph, region, region.basis, features)
    if region is not None:
        center, scale = graph.constant(region.center), graph.constant(region.scale)
        low, high = (graph.constant(np.float64(side * region.reach)) for side in (-1, 1))
        length = graph.constant(np.float64(region.length))
        units = graph.add("Div", graph.add("Sub", features, center), scale)
        units = graph.add("Min", graph.add("Max", units, low), high)
        squares = graph.add("ReduceSum", graph.add("Mul", units, units), graph.constant(np.array([1])))
        norms = graph.add("Max", graph.add("Sqrt", squares), length)
        units = graph.add("Mul", units, graph.add("Div", length, norms))
        features = graph.add("Add", center, graph.add("Mul", scale, units))
    return features


def _expanded(graph: _Graph, region: Region, basis: AdditiveBasis, cells: str) -> str:
    """Features of an additive model, shape (n, width)."""
    limits = [graph.constant(np.float64(side * region.reach)) for side in (-1, 1)]
    center, scale = graph.constant(region.center), graph.constant(region.scale)
    units = graph.add("Div", graph.add("Sub", cells, center), scale)
    units = graph.add("Min", graph.add("Max", units, limits[0]), limits[1])
    if basis.dropped:
        kept = ~np.isin(np.arange(basis.d), basis.dropped)
        units = graph.add("Mul", units, graph.constant(kept.astype(np.float64)))
    parts = [units]
    if basis.ramps and basis.numbers:
        low, high = (np.tile(side, len(basis.numbers)) for side in (basis.knots[:-1], basis.knots[1:]))
        places = np.repeat(basis.numbers, basis.ramps)
        rise = graph.add("Gather", units, graph.constant(places), axis=1)
        rise = graph.add("Div", graph.add("Sub", rise, graph.constant(low)), graph.constant(high - low))
        rise = graph.add("Max", rise, graph.constant(np.float64(0)))
        rise = graph.add("Min", rise, graph.constant(np.float64(1)))
        rise = graph.add("Mul", rise, graph.constant(np.float64(basis.ramp_weight)))
        rise = graph.add("Sub", rise, graph.constant(basis.ramp_weight * (high <= 0)))
        parts.append(graph.add("Mul", rise, graph.constant(1.0 - np.isin(places, basis.flat))))
    if basis.pairs:
        first, second = (
            graph.add("Gather", units, graph.constant(np.array(side, dtype=np.int64)), axis=1)
            for side in zip(*basis.pairs, strict=True)
        )
        product = graph.add("Max", graph.add("Mul", first, second), limits[0])
        product = graph.add("Min", product, limits[1])
        parts.append(graph.add("Mul", product, graph.constant(np.float64(basis.pair_weight))))
    features = graph.add("Concat", *parts, axis=1)
    if not np.isfinite(region.length):
        return features
    length = graph.constant(np.float64(region.length))
    squares = graph.add("ReduceSum", graph.add("Mul", features, features), graph.constant(np.array([1])))
    norms = graph.add("Max", graph.add("Sqrt", squares), length)
    return graph.add("Mul", features, graph.add("Div", length, norms))


def _scores(graph: _Graph, formula: Formula, features: str) -> str:
    """Scores of shape (n,), or (n, K)."""
    product = graph.add("MatMul", features, graph.constant(formula.coef.T))
    name = "prediction" if formula.classes is None and formula.link not in MEANS else "scores"
    return graph.add("Add", product, graph.constant(np.asarray(formula.intercept, np.float64)), output=name)


def _outputs(graph: _Graph, formula: Formula, scores: str) -> list[Any]:
    from onnx import TensorProto, helper

    several = formula.coef.ndim > 1

    def described(name: str, kind: Any, width: int | None) -> Any:
        return helper.make_tensor_value_info(name, kind, [None] if width is None else [None, width])

    outputs = len(formula.coef) if several else None
    if formula.classes is None:
        if formula.link in MEANS:
            graph.add(MEANS[formula.link], scores, output="prediction")
        return [described("prediction", TensorProto.DOUBLE, outputs)]
    labels = formula.classes.tolist()
    if several:
        codes = graph.add("ArgMax", scores, axis=1, keepdims=0)
    else:
        positive = graph.add("Greater", scores, graph.constant(np.float64(0.0)))
        codes = graph.add("Cast", positive, to=TensorProto.INT64)
    kind = _label_kind(labels)
    graph.add("Gather", graph.constant(np.array(labels, dtype=kind)), codes, output="label")
    tensor = {object: TensorProto.STRING, np.int64: TensorProto.INT64, np.float64: TensorProto.DOUBLE}[kind]
    made = [described("label", tensor, None), described("scores", TensorProto.DOUBLE, outputs)]
    if formula.link == "logit":
        _probabilities(graph, scores, several=several)
        made.append(described("probabilities", TensorProto.DOUBLE, len(labels)))
    return made


def _label_kind(labels: list[Any]) -> Any:
    if all(isinstance(label, str) for label in labels):
        return object
    if any(isinstance(label, str) for label in labels):
        raise Incompatible("The classes are text and numbers, and an ONNX output has one type.")
    return np.int64 if all(isinstance(label, int) for label in labels) else np.float64


def _probabilities(graph: _Graph, scores: str, *, several: bool) -> None:
    """Softmax of K scores, or of (0, z) for one score z."""
    if not several:
        column = graph.add("Unsqueeze", scores, graph.constant(np.array([1])))
        scores = graph.add("Concat", graph.add("Sub", column, column), column, axis=1)
    graph.add("Softmax", scores, axis=1, output="probabilities")
