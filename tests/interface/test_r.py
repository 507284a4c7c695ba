"""R users: the functions of examples/r/dpcvx.R, run by R where it is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp

EXAMPLE = Path(__file__).parents[2] / "examples" / "r" / "dpcvx.R"
SCRIPT = """
source("{example}")
people <- read.csv("people.csv")
model <- dpcvx_fit(people, log(wage) ~ age + sex + age:sex, "people.toml", epsilon = 4, out = "model.json")
write.csv(tidy(model), "tidy.csv", row.names = FALSE)
write.csv(predict(model, people[1:5, ]), "predictions.csv", row.names = FALSE)
stopifnot(identical(names(coef(model))[1], "Intercept"))
print(model)
wrong <- try(dpcvx_fit(people, wage ~ height, "people.toml", epsilon = 1), silent = TRUE)
cat(wrong)
people$sex <- toupper(people$sex)
people$sex[3] <- "a \\"b\\"\\nc"  # a line break is no end of a record
withCallingHandlers(
  dpcvx_fit(people, log(wage) ~ age + sex, "people.toml", epsilon = 4, uncertainty = 0,
            out = "odd.json"),
  warning = function(w) cat("WARNING", conditionMessage(w))
)
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_r_fits_tidies_and_predicts(tmp_path):
    pytest.importorskip("formulaic", reason="formulas need dpcvx[formula]")
    rng = np.random.default_rng(0)
    age, sex = rng.integers(18, 70, 5000), rng.choice(["f", "m"], 5000)
    wage = np.exp(2 + 0.02 * age + 0.3 * (sex == "m") + 0.3 * rng.standard_normal(5000))
    people = pd.DataFrame({"age": age, "sex": sex, "wage": wage})
    people.to_csv(tmp_path / "people.csv", index=False)
    columns = {"age": dp.NumberColumn((18, 70)), "sex": dp.LevelColumn(["f", "m"])}
    dp.TableSchema({**columns, "wage": dp.NumberColumn((1, 300))}).to_toml(tmp_path / "people.toml")
    program = tmp_path / "dpcvx"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from dpcvx.cli import main; main()' \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "script.R").write_text(SCRIPT.format(example=EXAMPLE))
    run = subprocess.run(
        ["Rscript", "script.R"],
        cwd=tmp_path,
        env={**os.environ, "DPCVX": str(program)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert run.returncode == 0, run.stderr
    assert "PrivateLinearRegression" in run.stdout
    assert "'height'" in run.stdout  # the error's words reach R
    assert "WARNING dpcvx: " in run.stdout  # and so do those of warnings
    assert "sex: almost none of the cells is recognised" in run.stdout
    assert dp.load(tmp_path / "odd.json").privacy_statement_.public["n"] == 5000
    tidy = pd.read_csv(tmp_path / "tidy.csv").set_index("term")
    wanted = ["estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high", "noise.share"]
    assert list(tidy.columns)[:7] == wanted
    model = dp.load(tmp_path / "model.json")
    assert tidy.loc["age", "estimate"] == pytest.approx(model.coef_debiased_[0], rel=1e-12)
    predictions = pd.read_csv(tmp_path / "predictions.csv")["prediction"]
    np.testing.assert_allclose(predictions, model.predict(people[:5]), rtol=1e-9)
