"""The formula of a fitted model as an ONNX graph in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpcvx.data import AdditiveBasis, Region
from dpcvx.data.canonical import canonical
from dpcvx.data.column_maps import Clip, Identity, QuantileMap, Ramps, SignedLog, each_map
from dpcvx.data.levels import DeclaredLevels
from dpcvx.errors import Incompatible, NotInstalled
from dpcvx.estimators.formula import Formula

__all__ = ["onnx_model"]

OPSET, ML_OPSET = 18, 3  # of ONNX 1.13 and later


def onnx_model(formula: Formula) -> Any:
    """Return a formula as an ONNX model; see `LinearModel.to_onnx`."""
    try:
        import onnx
    except ImportError as missing:
        raise NotInstalled('ONNX models need onnx: run  pip install "dpcvx[onnx]"') from missing
    schema = formula.row_map.schema
    if schema is not None and (derived := [each.name for each in schema.variables() if each.derived]):
        raise Incompatible(
            f"ONNX has no reading of {', '.join(derived[:8])}: dates, hashed text, booleans and levels that "
            "other cells count as are derived from cells by dpcvx. Use to_sklearn(), or derive them before "
            "the fit and declare numbers and levels."
        )
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
    numbers = all(levels is None for levels in rows.levels)
    whole = graph.input("X", "DOUBLE", len(rows.levels)) if numbers else ""
    if numbers and rows.maps is None:
        return _filled(graph, whole, whole, rows.fill)
    columns = (
        [f"x{j}" for j in range(formula.columns)] if isinstance(formula.columns, int) else formula.columns
    )
    parts, place = [], 0
    maps = each_map(rows.maps, len(rows.levels))
    for j, (name, levels, column_map) in enumerate(zip(columns, rows.levels, maps, strict=True)):
        if levels is None:
            fill = rows.fill[place : place + len(column_map.suffixes)]
            if numbers:
                cells = graph.add("Gather", whole, graph.constant(np.array([j])), axis=1)
            else:
                cells = graph.input(name, "DOUBLE", 1)
            parts.append(_filled(graph, cells, MAPS[column_map.kind](graph, cells, column_map), fill))
            place += len(fill)
        else:
            fill = rows.fill[place : place + len(levels.coded)]
            parts.append(_level_features(graph, name, levels, fill))
            place += len(levels.coded)
    return graph.add("Concat", *parts, axis=1)


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


def _level_features(graph: _Graph, name: str, levels: DeclaredLevels, fill: Any) -> str:
    """Column of shape (n, 1) as 0/1 features of shape (n, number of levels that have one)."""
    from onnx import TensorProto

    places = np.arange(len(levels), dtype=np.int64)
    if all(isinstance(level, str) for level in levels):
        # Where a level is written like a missing cell, such as "NA", a missing cell is that level.
        missing = [code for code, level in enumerate(levels) if canonical(level) is None and level != ""]
        keys = [*levels, *([""] if missing else [])]
        codes_of_keys = [*range(len(levels)), *missing]
        codes = graph.add(
            "LabelEncoder",
            graph.input(name, "STRING", 1),
            domain="ai.onnx.ml",
            keys_strings=keys,
            values_int64s=codes_of_keys,
            default_int64=-1,
        )
        same = graph.add("Equal", codes, graph.constant(places))
    elif not any(isinstance(level, str) for level in levels):
        cells = graph.input(name, "DOUBLE", 1)
        same = graph.add("Equal", cells, graph.constant(np.array(levels.values, dtype=np.float64)))
    else:
        raise Incompatible(
            f"Column {name} has levels of text and of numbers, and an ONNX input has one type. Declare all "
            "of its levels as text."
        )
    is_level = graph.add("Cast", same, to=TensorProto.DOUBLE)
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
    name = "prediction" if formula.classes is None and formula.link != "log" else "scores"
    return graph.add("Add", product, graph.constant(np.asarray(formula.intercept, np.float64)), output=name)


def _outputs(graph: _Graph, formula: Formula, scores: str) -> list[Any]:
    from onnx import TensorProto, helper

    several = formula.coef.ndim > 1

    def described(name: str, kind: Any, width: int | None) -> Any:
        return helper.make_tensor_value_info(name, kind, [None] if width is None else [None, width])

    outputs = len(formula.coef) if several else None
    if formula.classes is None:
        if formula.link == "log":
            graph.add("Exp", scores, output="prediction")
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
