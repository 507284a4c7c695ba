"""Reports of released models: what they hold, in HTML and PDF, from released and declared numbers alone."""

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dpcvx as dp
from dpcvx.cli import app
from dpcvx.errors import WrongValue
from dpcvx.report.model_report import ReportedModel, model_report, write_report

pytest.importorskip("matplotlib", reason="reports need dpcvx[report]")

COLUMNS = {
    "age": dp.NumberColumn((18, 70)),
    "region": dp.LevelColumn(["north", "south & <east>"]),
    "wage": dp.NumberColumn((0, 100)),
    "rich": dp.LevelColumn(["no", "yes"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two saved models of one account: one with intervals, one of labels."""
    path = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    age, region = rng.uniform(18, 70, 5000), rng.choice(["north", "south & <east>"], 5000)
    wage = 20 + 0.5 * age + 5 * (region != "north") + rng.normal(0, 8, 5000)
    people = pd.DataFrame(
        {"age": age, "region": region, "wage": wage, "rich": np.where(wage > 45, "yes", "no")}
    )
    ledger = dp.Ledger(path / "people.db")
    ledger.create("people", epsilon=8.0, delta=1e-5)
    paid = {"ledger": ledger, "account": "people", "delta": 1e-7}
    wages = dp.TableSchema({name: COLUMNS[name] for name in ("age", "region", "wage")}, target="wage")
    first = dp.PrivateLinearRegression(epsilon=3.0, uncertainty=0.3, schema=wages, **paid).fit(people)
    first.save(path / "wages.json")
    labels = dp.TableSchema({name: COLUMNS[name] for name in ("age", "region", "rich")}, target="rich")
    second = dp.PrivateLogisticRegression(epsilon=2.0, schema=labels, **paid).fit(people)
    second.save(path / "rich.json")
    return path


def report(folder, *names, **given):
    return model_report([ReportedModel.open(folder / f"{name}.json") for name in names], **given)


def test_a_report_counts_columns_and_marks_the_feature_without_a_coefficient():
    """A report said 3 features, and listed 4 with the baseline."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(18, 70, 2000), "place": rng.choice(["a", "b", "c"], 2000)})
    given = {"bounds": {"age": (18, 70)}, "categories": {"place": ["a", "b", "c"]}, "y_bounds": (0, 70)}
    model = dp.PrivateLinearRegression(epsilon=2.0, **given).fit(frame, frame["age"])
    found = {section.title: section for section in model_report([ReportedModel("m", model)])[1]}
    assert "on 2 columns, from 2,000 records" in found["Question"].text
    names = [row[0] for row in found["Declared data"].rows[1:]]
    assert names == ["age", "place=a (baseline, without a coefficient)", "place=b", "place=c"]


def test_a_report_has_question_table_declaration_guarantee_and_provenance(folder):
    summary, sections = report(folder, "wages", question="Do wages differ?")
    found = {section.title: section for section in sections}
    assert list(found) == [
        "Question",
        "Model",
        "Coefficients",
        "Effects",
        "Declared data",
        "Guarantee",
        "Statement",
        "Provenance and how to verify",
        "Glossary",
    ]
    assert "epsilon 3, delta 1e-07" in summary
    assert "Do wages differ?" in found["Question"].text
    assert "5,000 records" in found["Question"].text
    model = dp.load(folder / "wages.json")
    assert [list(row) for row in found["Coefficients"].rows] == model.summary().table().short_cells()[0]
    assert ("age", "18", "70") in found["Declared data"].rows
    assert found["Guarantee"].text == model.privacy_statement_.meaning
    # A question with several answers, as the Hessian and the meat are, has a row for each.
    assert [(row[0], int(row[1])) for row in found["Guarantee"].rows[1:]] == [
        (", ".join([part["question"], *([one["answer"]] if one else [])]), part["count"])
        for part in model.privacy_statement_.mechanisms
        for one in part.get("answers") or [None]
    ]
    assert found["Effects"].png[:4] == b"\x89PNG"
    facts = {row[1]: row[2] for row in found["Provenance and how to verify"].rows[1:]}
    assert re.fullmatch("[0-9a-f]{64}", facts["SHA-256 of the file"])
    assert "entry 2" in facts["ledger"]


def test_a_model_without_intervals_has_effects_without_lines(folder):
    _, sections = report(folder, "rich")
    effects = next(section for section in sections if section.title == "Effects")
    assert "interval" not in effects.caption


def test_several_models_are_added_up_or_listed_with_their_account(folder):
    _, sections = report(folder, "wages", "rich")
    together = next(section for section in sections if section.title == "Together")
    assert "epsilon 5, delta 2e-07" in together.text
    account = dp.Ledger(folder / "people.db").account("people")
    _, sections = report(folder, "wages", "rich", account=account)
    together = next(section for section in sections if section.title == "Together")
    assert "at most epsilon 8" in together.text
    assert len(together.rows) == 3
    assert together.png


def test_a_seeded_model_is_not_called_private(tmp_path):
    X = np.random.default_rng(0).uniform(0, 1, (500, 2))
    dp.PrivateLinearRegression(epsilon=4.0, bounds=(0, 1), y_bounds=(0, 2), random_state=0).fit(
        X, X.sum(axis=1)
    ).save(tmp_path / "seeded.json")
    summary, _ = report(tmp_path, "seeded")
    assert summary.startswith("NOT PRIVATE")
    _, sections = report(tmp_path, "seeded", "seeded")
    together = next(section for section in sections if section.title == "Together")
    assert "epsilon" not in together.text


def test_rows_and_persons_are_not_added_up_and_other_accounts_are_named(folder, tmp_path):
    """Two epsilons of different units are no guarantee, and a cap says nothing of what was not charged."""
    X = np.random.default_rng(0).uniform(0, 1, (500, 2))
    dp.PrivateLinearRegression(epsilon=4.0, bounds=(0, 1), y_bounds=(0, 2)).fit(
        X, X.sum(axis=1), groups=np.arange(500) // 2
    ).save(tmp_path / "people.json")
    models = [ReportedModel.open(folder / "wages.json"), ReportedModel.open(tmp_path / "people.json")]
    _, sections = model_report(models)
    assert "do not add up" in next(each for each in sections if each.title == "Together").text
    account = dp.Ledger(folder / "people.db").account("people")
    _, sections = model_report(models, account=account)
    assert (
        "Not charged to it, and no part of that: people."
        in next(each for each in sections if each.title == "Together").text
    )


def test_bounds_of_released_maps_are_not_called_declared(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(20, 60, 20_000), rng.lognormal(9, 1, 20_000)])
    dp.PrivateLinearRegression(epsilon=4.0, bounds=([0, 0], [1000, 1e7]), y_bounds=(0, 100)).fit(
        X, X[:, 0]
    ).save(tmp_path / "mapped.json")
    model = ReportedModel.open(tmp_path / "mapped.json")
    assert "maps" in model.model.privacy_statement_.bounds
    found = {section.title: section for section in model_report([model])[1]}
    assert "the fit first released noisy histograms" in found["Declared data"].text
    assert "declared value" not in found["Effects"].caption
    assert "\nbounds before maps " in found["Statement"].verbatim


def test_additive_models_have_a_report(tmp_path):
    X = np.random.default_rng(0).uniform(0, 1, (3000, 2))
    dp.PrivateAdditiveRegressor(epsilon=4.0, bounds=(0, 1), y_bounds=(0, 2)).fit(X, X.sum(axis=1)).save(
        tmp_path / "additive.json"
    )
    _, sections = report(tmp_path, "additive")
    found = {section.title: section for section in sections}
    assert "Effects" not in found
    assert found["Shapes"].png.startswith(b"\x89PNG")
    assert "on 2 columns" in found["Question"].text


@pytest.mark.parametrize("ending", ["html", "pdf"])
@pytest.mark.long
def test_the_command_writes_a_file(folder, tmp_path, ending):
    if ending == "pdf":
        pytest.importorskip("fpdf", reason="reports in PDF need dpcvx[report]")
    out = tmp_path / f"report.{ending}"
    words = ["report", str(folder / "wages.json"), str(folder / "rich.json"), "--out", str(out)]
    found = CliRunner().invoke(app, [*words, "--account", "people", "--ledger", str(folder / "people.db")])
    assert found.exit_code == 0, found.output
    content = out.read_bytes()
    if ending == "pdf":
        assert content.startswith(b"%PDF")
    else:
        text = content.decode()
        assert "<east>" not in text
        assert "&lt;east&gt;" in text
        assert not re.search(r"(src|href)=\"http", text)


def test_other_endings_are_refused(folder, tmp_path):
    with pytest.raises(WrongValue, match=r"\.html or \.pdf"):
        write_report([ReportedModel.open(folder / "rich.json")], tmp_path / "report.docx")
