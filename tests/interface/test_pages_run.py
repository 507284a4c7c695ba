"""Every Python block of the pages runs, block after block, in an empty folder.

A page may use names of its reader, such as X and y; `GIVEN` has them. A block after the comment
``<!-- not run: reason -->`` is compiled only.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpcvx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- not run: [^\n]* -->\n)?```python\n(.*?)```", re.DOTALL)
PAGES = sorted(page for page in DOCS.glob("*.md") if "```python\n" in page.read_text())
MOST_NOT_RUN = 2


def people(n=2000):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "hours": rng.uniform(0, 60, n),
            "income": rng.uniform(0, 200, n),
            "sex": rng.choice(["f", "m"], n),
        }
    )


def rows_and_labels(n=2000):
    X = np.random.default_rng(1).uniform(0, 1, (n, 3))
    return {"X": X, "y": (X[:, 0] > 0.5).astype(int)}


def fitted(**given):
    known = rows_and_labels()
    model = dpcvx.PrivateLogisticRegression(epsilon=2.0, bounds=(0, 1), classes=(0, 1))
    return {"model": model.fit(known["X"], known["y"]), **known, **given}


def additive():
    table = people().drop(columns="hours")
    return {"table": table, "y": (table["age"] > 50).astype(int)}


def declared():
    shutil.copy(ROOT / "examples" / "people.toml", "people.toml")
    table = pd.DataFrame({"age": [30.0, 40.0] * 500, "hours": [38.0] * 1000, "income": [30_000.0] * 1000})
    for name, column in dpcvx.TableSchema.from_toml("people.toml").columns.items():
        if name not in table and hasattr(column, "levels"):
            table[name] = column.levels[0]
        elif name not in table:
            table[name] = None
    return {"people": table, "new_people": table.head(3)}


def ledger():
    Path("elsewhere").mkdir()
    event = dpcvx.events.Gaussian(noise_multiplier=50.0)
    return {**rows_and_labels(), "event": event, "compute": lambda: b"answer"}


def problem():
    bounds = dpcvx.Bounds(1.0, y=1.0)
    return {"problem": dpcvx.Problem(dpcvx.Squared(), dpcvx.L2Ball(1.0), bounds=bounds, d=3), "n": 1000}


def visits():
    Path("visits").mkdir()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.uniform(size=500), "cost": rng.uniform(0, 9, 500), "patient": rng.integers(0, 90, 500)}
    )
    frame.to_parquet("visits/part.parquet")
    return {}


def public():
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    rows, labels = rng.uniform(size=(1000, 3)), rng.integers(0, 2, 1000)
    documents = sp.random_array((1000, 50), density=0.1, random_state=0, format="csr")
    given = {"open_rows": rows[:200], "open_labels": labels[:200], "private_rows": rows, "labels": labels}
    return {
        "dpcvx": dpcvx,
        "bounds": (0, 1),
        "open_documents": documents[:200],
        "private_documents": documents,
        **given,
    }


def queries():
    rng = np.random.default_rng(0)
    table = people(3000)
    table["income"] = rng.choice(["low", "high"], 3000)
    budget = dpcvx.Budget(1.0, 1e-9)
    return {"people": table, "visits": table.assign(patient=rng.integers(0, 500, 3000)), "budget": budget}


def universe():
    shutil.copy(ROOT / "examples" / "schema.toml", "schema.toml")
    rng, n = np.random.default_rng(0), 5000
    table = pd.DataFrame(
        {
            "sex": rng.choice(["Female", "Male"], n),
            "education": rng.choice(["school", "college", "degree"], n),
            "age": rng.uniform(17, 90, n),
            "hours": rng.uniform(0, 100, n),
            "income": rng.choice(["<=50K", ">50K"], n),
        }
    )
    return {"table": table, "statement": fitted()["model"].privacy_statement_}


GIVEN = {
    "additive": additive,
    "bounds_toml": lambda: {"dpcvx": dpcvx, **declared()},
    "ledger": ledger,
    "papers": problem,
    "persons": visits,
    "prediction": fitted,
    "public_rows": public,
    "queries": queries,
    "scale": lambda: fitted(PrivateLogisticRegression=dpcvx.PrivateLogisticRegression),
    "tuning": lambda: fitted(dpcvx=dpcvx, X_public=rows_and_labels()["X"], y_public=rows_and_labels()["y"]),
    "universe": universe,
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of fits that are too small to be useful
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = GIVEN.get(page.stem, dict)()
    for number, (skip, block) in enumerate(BLOCK.findall(page.read_text())):
        code = compile(block, f"{page.name}, block {number}", "exec")
        if not skip:
            exec(code, names)


def test_few_blocks_are_only_compiled():
    left = [page.name for page in PAGES for skip, _ in BLOCK.findall(page.read_text()) if skip]
    assert len(left) <= MOST_NOT_RUN, left


def test_names_are_given_to_pages_that_need_them():
    assert set(GIVEN) <= {page.stem for page in PAGES}
