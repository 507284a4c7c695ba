"""Maps of columns on the command line, and in the file that dpcvx declare writes."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dpcvx.cli import app


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    income = np.exp(rng.normal(size=500))
    pd.DataFrame({"income": income, "y": np.log(income)}).to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "b.toml").write_text(
        "[bounds]\nincome = [0, 100]\n[target]\ncolumn = 'y'\nbounds = [-5, 5]\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, list(words))


FIT = (
    "fit",
    "p.csv",
    "--model",
    "linear",
    "--epsilon",
    "4",
    "--bounds",
    "b.toml",
    "--out",
    "m.json",
    "--quiet",
)


def test_a_map_is_an_option(folder):
    done = run(*FIT, "--map", "income=log:0.1", "--check", "0")
    assert done.exit_code == 0, done.output
    formula = json.loads((folder / "m.json").read_text())["formula"]
    assert formula["maps"] == {"0": {"kind": "log", "scale": 0.1}}
    assert run(*FIT, "--maps", "none", "--force").exit_code == 0
    for wrong in ("age=log", "income=logs", "income"):
        assert run(*FIT, "--force", "--map", wrong).exit_code != 0


def test_declare_names_maps(folder):
    assert run("declare", "p.csv", "--out", "s.toml").exit_code == 0
    assert 'map = "log"' in (folder / "s.toml").read_text()
