"""The public names exist, are typed, and cost nothing until they are used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import dpcvx
from dpcvx import estimators
from dpcvx.estimators.registry import COMMANDS, ESTIMATORS, ROW_ESTIMATORS

EVERY = {**ESTIMATORS, **ROW_ESTIMATORS}
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
    "typer",
}


def test_every_public_name_comes_from_the_module_that_lists_it():
    assert set(dpcvx.__all__) == {*dpcvx._HOME, "__version__"}
    wrong = []
    for name, home in dpcvx._HOME.items():
        module = importlib.import_module(f"dpcvx.{home}")
        if getattr(dpcvx, name) is not getattr(module, name, None):
            wrong.append(f"dpcvx.{name} is not dpcvx.{home}.{name}")
        elif name not in getattr(module, "__all__", [name]):
            wrong.append(f"{name} is not in __all__ of dpcvx.{home}")
    assert not wrong


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(dpcvx.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module.removeprefix("dpcvx.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.pop("*") == "estimators"  # every estimator, and what it is made of
    assert seen == {name: home for name, home in dpcvx._HOME.items() if name not in EVERY}


def test_every_estimator_is_registered_and_public():
    found = set()
    for path in (Path(dpcvx.__file__).parent / "estimators").glob("*.py"):
        tree = ast.parse(path.read_text())
        found |= {
            (node.name, path.stem)
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and any("document" in ast.unparse(d) for d in node.decorator_list)
        }
    assert found == {(name, entry.module) for name, entry in EVERY.items()}
    assert set(EVERY) <= {*estimators.__all__} & {*dpcvx.__all__}
    assert all(hasattr(estimators, name) for name in estimators.__all__)
    assert len(COMMANDS) == sum(entry.command is not None for entry in EVERY.values())


def test_an_unknown_name_is_an_attribute_error_and_dir_lists_the_known():
    with pytest.raises(AttributeError, match="no attribute 'Private'"):
        dpcvx.Private  # noqa: B018
    assert set(dpcvx.__all__) <= set(dir(dpcvx))


def loaded_after(statement):
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy():
    loaded = loaded_after("import dpcvx")
    assert "dpcvx" in loaded
    assert not loaded & HEAVY


def test_losses_and_errors_need_no_more_than_numpy():
    assert (
        not loaded_after(
            "import dpcvx; dpcvx.Logistic, dpcvx.BudgetExceeded; from dpcvx.noise import SecureGenerator"
        )
        & HEAVY
    )


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert dpcvx.__version__ == version("dpcvx")
