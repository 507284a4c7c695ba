"""Imports point one way, heavy ones wait until they are used, and only mechanisms talk to records."""

import ast
import importlib
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import dpcvx

ROOT = Path(dpcvx.__file__).parent
# A room may import from rooms to its left, and from those between the same arrows. Imports inside functions
# and those for type checkers count.
ORDER = (
    "words errors arrays events vouched whole_files -> gpu losses domains checker -> problem -> accounting "
    "-> ledger -> noise -> data -> mechanisms -> plans -> solvers -> planning -> estimators "
    "-> tuning queries -> report papers audit -> demo service -> cli -> __main__"
)
LEVEL = {name: level for level, names in enumerate(ORDER.split(" -> ")) for name in names.split()}
HEAVY = {
    "scipy",
    "numba",
    "sklearn",
    "dp_accounting",
    "pyarrow",
    "matplotlib",
    "pandas",
    "polars",
    "dask",
    "distributed",
    "sqlalchemy",
    "torch",
}
# Modules that the package itself, and every other module, needs: they cost NumPy and nothing else.
LIGHT = "arrays errors events vouched losses domains.mirror problem noise data.cells data.quantise cli"
# The sums that records answer with, and the other methods by which they do. `data` implements them;
# `audit.replay` stands between, a source itself, and `queries.private_side` sums the gradients of its cells.
SUMS = {
    name
    for name, value in vars(importlib.import_module("dpcvx.data")).items()
    if isinstance(value, type) and callable(getattr(value, "of", None)) and name != "Sum"
}
QUESTIONS = {"follow", "follow_lazily", "follow_products", "objective", "accumulated"}
# Common words: asked of records only under these names.
MARGIN_QUESTIONS = {"scores", "draw", "unclipped", "add", "reset", "sum", "of"}
MARGINS = ("margins", "source", "followed", "records", "data")
MAY_NAME_A_SUM = ("audit.replay", "queries.private_side")


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {dotted(path): path for path in sorted(ROOT.rglob("*.py"))}


def room(module):
    return module.split(".")[0]


@cache
def tree(path):
    return ast.parse(path.read_text())


@cache
def imports(path, *, only_at_import_time=False):
    """(module, line) of every import, absolute; a name that is a module of the package counts as that."""
    found = []

    def visit(node, at_import_time):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            at_import_time = False
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            at_import_time = False
        if at_import_time or not only_at_import_time:
            if isinstance(node, ast.Import):
                found.extend((alias.name, node.lineno) for alias in node.names)
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.name}:{node.lineno} imports relatively; write dpcvx. in full"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    module = inner if inner.removeprefix("dpcvx.") in MODULES else node.module
                    found.append((module, node.lineno))
        for child in ast.iter_child_nodes(node):
            visit(child, at_import_time)

    visit(tree(path), True)
    return found


def edges(*, only_at_import_time=False):
    """(module, imported module, line) for every import within the package."""
    return [
        (module, name.removeprefix("dpcvx."), line)
        for module, path in MODULES.items()
        for name, line in imports(path, only_at_import_time=only_at_import_time)
        if name.startswith("dpcvx.")
    ]


def test_every_room_has_a_place_in_the_order():
    assert {room(module) for module in MODULES} - {""} <= LEVEL.keys()


def test_imports_point_one_way():
    upward = [
        f"{module}:{line} imports {other}"
        for module, other, line in edges()
        if module and LEVEL[room(other)] > LEVEL[room(module)]
    ]
    assert not upward, "\n".join(upward)


def test_no_cycle_of_imports():
    names = list(MODULES)
    pairs = [(names.index(a), names.index(b)) for a, b, _ in edges() if a and b in MODULES and a != b]
    graph = csr_array((np.ones(len(pairs)), tuple(zip(*pairs, strict=True))), shape=(len(names), len(names)))
    _, component = connected_components(graph, connection="strong")
    cycles = [[names[i] for i in np.flatnonzero(component == label)] for label in set(component)]
    assert not [cycle for cycle in cycles if len(cycle) > 1]


def test_the_package_imports_its_rooms_when_they_are_used():
    found = {name for name, _ in imports(MODULES[""], only_at_import_time=True) if name.startswith("dpcvx")}
    assert found == {"dpcvx.estimators.registry"}  # a table of names, which imports nothing


def test_only_mechanisms_ask_a_data_source():
    asks = []
    for module, path in MODULES.items():
        if room(module) in ("mechanisms", "data") or module == "audit.replay":
            continue
        for name, line in imports(path):
            assert not name.startswith(("dpcvx.data.sums", "dpcvx.data.curvature")), f"{module}:{line}"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name) and node.id in SUMS and module not in MAY_NAME_A_SUM:
                asks.append(f"{module}:{node.lineno} makes a question to records: {node.id}")
            if isinstance(node, ast.Attribute) and node.attr in QUESTIONS | MARGIN_QUESTIONS:
                of_records = any(word in ast.unparse(node.value).lower() for word in MARGINS)
                if node.attr in QUESTIONS or of_records:
                    asks.append(f"{module}:{node.lineno} asks records: {ast.unparse(node)}")
    assert not asks, "\n".join(asks)
    assert {"GradientSum", "DifferenceSum", "CurvatureSum", "MomentSum", "LengthSum"} <= SUMS


def test_no_private_name_is_imported_by_another_room():
    crossing = []
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("dpcvx."):
                names = [alias.name for alias in node.names if alias.name.startswith("_")]
                if names and room(node.module.removeprefix("dpcvx.")) != room(module):
                    crossing.append(f"{module}:{node.lineno} imports {', '.join(names)} of {node.module}")
    assert not crossing, "\n".join(crossing)


def test_no_two_rooms_have_a_public_class_of_one_name():
    rooms = {}
    for module, path in MODULES.items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms.setdefault(node.name, set()).add(room(module))
    twins = [f"{name} in {' and '.join(sorted(found))}" for name, found in rooms.items() if len(found) > 1]
    assert len(rooms) > 100
    assert not twins, "\n".join(twins)


def test_light_modules_import_nothing_heavy():
    for module in ["", *LIGHT.split()]:
        path = MODULES[module]
        roots = {name.split(".")[0] for name, _ in imports(path, only_at_import_time=True)}
        assert not roots & HEAVY, f"{module} imports {roots & HEAVY}"
