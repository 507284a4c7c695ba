"""Imports point one way, heavy ones wait until they are used, and only mechanisms talk to records."""

import ast
from pathlib import Path

import pytest

import dpcvx

ROOT = Path(dpcvx.__file__).parent
# A module may import from earlier layers and from its own.
LAYERS = [
    "arrays cells device errors",
    "events hard_instances losses mirror domains minimum_norm submodular direct_sum regularizers",
    "accounting problem",
    "trim typical uncertainty",
    "ledger",
    "gram grid noise noise_kernels kernels lazy lazy_kernels selection selection_kernels minimise",
    "curvature data sampling",
    "mechanisms",
    "execution",
    "bill private_bounds solvers",
    "rehearsal running_time",
    "comparison papers",
    "planner usefulness",
    "plots report statement tables",
    "backends cluster estimators shards torch_source",
    "metrics",
    "scoring",
    "queries tuning",
    "audit client",
    "ledger_commands",
    "cli demo service service_commands",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
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
UPWARD = {("execution", "report")}  # a plan prints itself, through an import made when it is printed
# The methods by which records answer. `data` implements them; `audit.replay` stands between, a source itself.
QUESTIONS = {
    "gradient_sum",
    "difference_sum",
    "follow",
    "follow_lazily",
    "follow_products",
    "objective",
    "curvature_sum",
}
# Common words: asked of records only under these names.
MARGIN_QUESTIONS = {"scores", "draw", "unclipped", "add", "reset", "moments", "length"}
MARGINS = ("margins", "source", "followed", "records")


def modules():
    return sorted(ROOT.rglob("*.py"))


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def top(path):
    return dotted(path).split(".")[0]


def imports(path, *, only_at_import_time):
    """(module, line) of every import, absolute; those for type checkers alone are left out."""
    found = []

    def visit(node, inside):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = True
        if not (inside and only_at_import_time):
            if isinstance(node, ast.Import):
                found.extend((alias.name, node.lineno) for alias in node.names)
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.name}:{node.lineno} imports relatively; write dpcvx. in full"
                # `from dpcvx import kernels` is an import of dpcvx.kernels.
                whole = node.module == "dpcvx"
                names = [f"dpcvx.{alias.name}" for alias in node.names] if whole else [node.module]
                found.extend((name, node.lineno) for name in names)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text()), False)
    return found


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_point_one_way(path):
    if not dotted(path):
        assert not [name for name, _ in imports(path, only_at_import_time=True) if name.startswith("dpcvx")]
        return
    assert top(path) in LEVEL, f"{dotted(path)} is new: give it a place in LAYERS"
    for name, line in imports(path, only_at_import_time=False):
        parts = name.split(".")
        if parts[0] != "dpcvx" or len(parts) == 1:
            continue
        other = parts[1] if parts[1] in LEVEL else dpcvx._HOME.get(parts[1], "__init__")
        if other == "__init__":  # the package itself, for its version
            assert parts[1] == "__version__", f"{path.name}:{line} imports {name}"
            continue
        downward = LEVEL[other] <= LEVEL[top(path)] or (dotted(path), other) in UPWARD
        assert downward, f"{path.name}:{line} imports {name}, which lies above it"


def test_no_cycle_at_import_time():
    names = {dotted(path): path for path in modules()}
    edges = {
        name: {
            other.removeprefix("dpcvx.")
            for other, _ in imports(path, only_at_import_time=True)
            if other.removeprefix("dpcvx.") in names and other.startswith("dpcvx.")
        }
        for name, path in names.items()
    }
    left = dict(edges)
    while left:
        free = [name for name, others in left.items() if not (others & left.keys()) - {name}]
        assert free, f"a cycle of imports among {sorted(left)}"
        for name in free:
            del left[name]


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_only_mechanisms_ask_a_data_source(path):
    if (
        top(path) in ("mechanisms", "cluster", "data", "shards", "torch_source")
        or dotted(path) == "audit.replay"
    ):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            of_records = any(word in ast.unparse(node.value).lower() for word in MARGINS)
            asks = node.attr in QUESTIONS or (node.attr in MARGIN_QUESTIONS and of_records)
            assert not asks, f"{path.name}:{node.lineno} asks records: {ast.unparse(node)}"


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_light_modules_import_nothing_heavy(path):
    """The package itself, and what every other module needs, cost NumPy and nothing else."""
    if dotted(path) not in (
        "",
        "arrays",
        "errors",
        "events",
        "losses",
        "mirror",
        "problem",
        "noise",
        "cells",
        "grid",
        "cli",
    ):
        return
    roots = {name.split(".")[0] for name, _ in imports(path, only_at_import_time=True)}
    assert not roots & HEAVY
