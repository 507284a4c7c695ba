"""check=...: noisy counts show a wrong column, a misspelt level and labels of another coding."""

import json
import math
import re
import warnings

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import dpcvx as dp
from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.data import RecognisedCells
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import InMemory
from dpcvx.data.table import Table
from dpcvx.data.target import Labels, Numbers
from dpcvx.errors import UnrecognisedDataWarning, WrongValue
from dpcvx.estimators.data_check import CheckedColumn, DataCheck, check_stages, release_check
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Answers

N = 20_000
RNG = np.random.default_rng(0)
AGE, SEX = RNG.uniform(18, 90, N), RNG.choice(["f", "m"], N)
ILL = np.where(AGE + 20 * (SEX == "f") + RNG.normal(0, 20, N) > 60, "yes", "no")
TABLE = pa.table({"age": AGE, "sex": SEX.tolist(), "town": RNG.choice(["A", "B", "C"], N).tolist()})
SETTINGS = {
    "epsilon": 1.0,
    "bounds": {"age": (18, 90)},
    "categories": {"sex": ["f", "m"], "town": ["A", "B", "C"]},
    "classes": ("no", "yes"),
    "solver": "gradient_descent",
    "n_iter": 2,
    "standardize": False,
    "random_state": 3,
}


def fitted(X=TABLE, y=ILL, **changed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UselessModelWarning)
        return dp.PrivateLogisticRegression(**{**SETTINGS, **changed}).fit(X, y)


def plan(n=N, **changed):
    return dp.PrivateLogisticRegression(**{**SETTINGS, **changed}).plan(n, TABLE.column_names)


def test_clean_data_have_counts_and_no_warning():
    model = fitted()
    check = model.check_
    assert [each.name for each in check.columns] == ["age", "sex", "town", "target"]
    assert check.findings == ()
    noise = math.sqrt(1 + 2 + 2 + 2) * model.plan_.before[0].mechanism.noise_multiplier
    assert check.noise == pytest.approx(noise, rel=1e-5)
    for each, exact in zip(
        check.columns,
        ([N], *(np.unique(c, return_counts=True)[1] for c in (SEX, TABLE["town"].to_numpy(), ILL))),
        strict=True,
    ):
        np.testing.assert_allclose(each.counts, exact, atol=5 * noise)
    text = str(check)
    assert "100 % +- " in text
    assert "town" in text
    assert "no column, level or class looks wrong" in str(model.privacy_statement_)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"categories": {"sex": ["F", "m"], "town": ["A", "B", "C"]}}, "sex: no people are visible at 'F'"),
        ({"classes": (0, 1)}, "target: almost none of the labels is recognised"),
        ({"classes": ("no", "Yes")}, "target: no people are visible at 'Yes'"),
    ],
    ids=["misspelt level", "other coding", "misspelt class"],
)
def test_wrong_declarations_are_named_in_one_warning_and_in_the_statement(changed, found):
    with pytest.warns(UnrecognisedDataWarning, match=found) as caught:
        model = fitted(**changed)
    assert len(caught) == 1
    assert "print(model.check_)" in str(caught[0].message)
    assert found in model.privacy_statement_.bounds["check"]
    assert found in str(model.check_)
    assert any(finding.startswith(found) for finding in model.check_.findings)


def test_a_wrong_column_is_named():
    """Nothing is refused by its type: text in the place of a number counts as missing."""
    bounds = {"age": (18, 90), "sex": (0, 1)}
    with pytest.warns(UnrecognisedDataWarning, match="sex: almost none of the cells is recognised"):
        fitted(bounds=bounds, categories={"town": list("ABC")})


def test_many_missing_targets_of_a_regression_are_named_with_their_share():
    y = np.where(RNG.random(N) < 0.42, np.nan, AGE / 100)
    settings = {"epsilon": 1.0, "bounds": (18, 90), "y_bounds": (0, 1), "random_state": 1, "n_iter": 2}
    model = dp.PrivateLinearRegression(**settings, solver="gradient_descent", standardize=False)
    with pytest.warns(UnrecognisedDataWarning, match=r"target: only 5[78]\.. % \+- 0.8 % of the cells"):
        model.fit(AGE[:, None], y)


def test_the_check_is_a_stage_with_a_price_and_the_fit_keeps_the_rest():
    with_check, without = plan(), plan(check=0)
    mu = gaussian_mu(1.0, spendable(Budget(1.0, 1 / N**2)).delta)
    (stage,) = with_check.before
    assert stage.mechanism.noise_multiplier == pytest.approx(1 / (0.1 * mu))
    assert without.before == ()
    one, other = (each.stages[0].mechanism.noise_multiplier for each in (with_check, without))
    assert one == pytest.approx(other / math.sqrt(0.99), rel=1e-8)
    assert with_check.price.epsilon == pytest.approx(1.0, rel=1e-8)
    assert with_check.price.epsilon <= 1.0
    assert "1 x NoisyCounts, Gaussian(noise_multiplier=" in str(with_check)
    assert "NoisyCounts" in with_check.explain()


def test_without_a_check_plans_and_numbers_are_those_of_a_plan_without_the_stage(monkeypatch):
    """As before there was one: the golden record of earlier versions has the same numbers for check=0."""
    first = fitted(check=0)
    monkeypatch.setattr("dpcvx.estimators.planning.check_stages", lambda *_, **__: ((), ""))
    second = fitted()
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.plan_.event == second.plan_.event
    assert first.check_ is second.check_ is None
    assert "check" not in first.privacy_statement_.bounds


def test_where_the_check_is_off_the_plan_says_why():
    made, reason = plan(1000), "not below 0.05 of 1,000 records"
    assert made.before == ()
    assert reason in made.notes[0]
    assert reason in str(made)
    assert reason in made.explain()
    assert made.to_plain()["notes"] == list(made.notes)


def test_there_is_no_check_without_delta():
    stages, note = check_stages(*clean(), N, Budget(1.0, 0.0), 0.01)
    assert stages == ()
    assert "needs delta > 0" in note


def test_the_share_that_the_plan_names_is_enough():
    columns = ["age", "sex", "town"]
    for n in (700, 1500):
        words = str(dp.PrivateLogisticRegression(**SETTINGS).plan(n, columns))
        share = float(re.search(r"check=(\S+)\s+would\s+do", words)[1])
        plan = dp.PrivateLogisticRegression(**SETTINGS, check=share).plan(n, columns)
        assert plan.before
    words = str(dp.PrivateLogisticRegression(**SETTINGS).plan(50, columns))
    assert "more records or a larger epsilon would do" in " ".join(words.split())


def test_a_larger_share_makes_up_for_few_records():
    assert plan(1000, check=0.1).before
    with pytest.warns(UnrecognisedDataWarning, match="'F'"):
        fitted(
            TABLE.slice(0, 1000), ILL[:1000], check=0.1, categories={"sex": ["F", "m"], "town": list("ABC")}
        )


@pytest.mark.parametrize("wrong", [-0.1, 1.0, math.nan, "yes", True, None])
def test_a_share_that_is_none_is_refused(wrong):
    with pytest.raises(WrongValue, match="check must be"):
        fitted(check=wrong)


def test_plan_and_public_facts_are_the_same_for_any_records():
    one = fitted()
    with pytest.warns(UnrecognisedDataWarning):
        other = fitted(pa.table({name: pa.nulls(N) for name in TABLE.column_names}), np.full(N, None))
    assert str(one.plan_) == str(other.plan_)
    assert one.plan_.event == other.plan_.event
    assert one.check_.noise == other.check_.noise


def test_the_ledger_is_charged_before_a_cell_is_counted(tmp_path, monkeypatch):
    ledger = dp.Ledger(tmp_path / "l.db", witness=tmp_path / "w")
    account = ledger.create("people", epsilon=0.5, delta=1e-4)
    monkeypatch.setattr(RecognisedCells, "of", lambda *_: pytest.fail("cells were counted"))
    with pytest.raises(dp.BudgetExceeded):
        fitted(ledger=ledger, account="people", random_state=None)
    assert account.used == 0


def test_files_keep_the_counts(tmp_path):
    with pytest.warns(UnrecognisedDataWarning):
        model = fitted(classes=("no", "Yes"))
    model.save(tmp_path / "m.json")
    again = dp.load(tmp_path / "m.json")
    assert again.check_ == model.check_
    content = json.loads((tmp_path / "m.json").read_text())
    del content["check"]
    (tmp_path / "m.json").write_text(json.dumps(content))
    assert dp.load(tmp_path / "m.json").check_ is None
    for wrong in ({}, {"n": 1, "noise": -1, "columns": []}, {"n": 1, "noise": 1.0, "columns": [{"name": 3}]}):
        (tmp_path / "m.json").write_text(json.dumps({**content, "check": wrong}))
        with pytest.raises(WrongValue, match="check"):
            dp.load(tmp_path / "m.json")


def test_shards_and_sparse_records_are_checked(tmp_path):
    declared = {name: SETTINGS[name] for name in ("bounds", "categories")}
    shards = dp.from_arrow(
        TABLE.append_column("ill", [ILL.tolist()]), target="ill", **declared, classes=("NO", "yes"),
        store=tmp_path / "s", verbose=0,
    )  # fmt: skip
    settings = {name: value for name, value in SETTINGS.items() if name not in (*declared, "classes")}
    with pytest.warns(UnrecognisedDataWarning, match="target: no people are visible at 'NO'"):
        stored = dp.PrivateLogisticRegression(**settings).fit(shards)
    with pytest.warns(UnrecognisedDataWarning):
        memory = fitted(classes=("NO", "yes"))
    assert stored.check_ == memory.check_
    changed = {"bounds": (0, 1), "data_norm": 1.0, "classes": ("NO", "yes"), "random_state": 1}
    sparse = dp.PrivateLogisticRegression(**{**settings, **changed})
    with pytest.warns(UnrecognisedDataWarning, match="'NO'"):
        sparse.fit(csr_array(np.eye(N, 3)), ILL)
    assert [each.name for each in sparse.check_.columns] == ["target"]


def test_shards_of_earlier_versions_are_fitted_without_a_check(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dpcvx.data.shards.recipe.Recipe.parts", property(lambda _: {"values": "int16", "targets": "float64"})
    )
    shards = dp.from_batches(
        [(AGE[:, None], ILL)], bounds=(18, 90), classes=("no", "yes"), store=tmp_path / "s", verbose=0
    )
    assert not shards.countable
    settings = {"epsilon": 1.0, "solver": "gradient_descent", "n_iter": 2, "standardize": False}
    model = dp.PrivateLogisticRegression(**settings).fit(shards)
    assert model.check_ is None
    assert "written without counts" in model.plan_.notes[0]


def clean(levels=5):
    """A question about 10 columns, and records all of which are recognised, every level by as many."""
    n = 4000
    X = np.column_stack([np.zeros((n, 6)), *(np.arange(n) % levels for _ in range(4))])
    table = Table(X)
    columns = Columns.declare(table, (0, 1), {j: range(levels) for j in range(6, 10)}, None)
    return InMemory(X, np.arange(n) % 2), columns, Labels.declare((0, 1))


def test_false_alarms_are_as_rare_as_stated():
    """600 clean runs: at most 1 % in the long run, so more than 16 of them have a chance below 1e-3."""
    dataset, columns, target = clean()
    asked = RecognisedCells(columns, target)
    stages, _ = check_stages(dataset, columns, target, dataset.n, Budget(1.0, 1e-7), 0.05)
    rng, exact = SeededGenerator(1), dataset.count(asked)
    dataset.count = lambda _: exact
    runs = [release_check(stages, dataset, columns, target, Answers(rng)) for _ in range(600)]
    assert 2 * runs[0].error < 800  # every level has the people that the promise asks for
    assert sum(bool(run.findings) for run in runs) <= 16


def test_a_level_without_people_is_found_nearly_always():
    dataset, columns, target = clean()
    asked = RecognisedCells(columns, target)
    stages, _ = check_stages(dataset, columns, target, dataset.n, Budget(1.0, 1e-7), 0.05)
    exact, rng = dataset.count(asked), SeededGenerator(2)
    exact[6] = 0  # the first level of a category: its people are spelt otherwise
    dataset.count = lambda _: exact
    runs = [release_check(stages, dataset, columns, target, Answers(rng)) for _ in range(300)]
    assert sum(any("x6: no people are visible at 0" in each for each in run.findings) for run in runs) >= 275


def test_few_and_many_levels_are_named_in_short():
    levels = tuple("abcdefgh")
    check = DataCheck(100_000, 50.0, (CheckedColumn("town", levels, (99_800.0, *[0.0] * 7)),))
    assert check.findings == (
        "town: no people are visible at 'b', 'c', 'd' and 4 more (at most about 310 each)",
    )
    assert DataCheck.from_plain(check.to_plain()) == check
    assert check.warning.endswith("rare levels and columns with many empty cells are listed too.")


def test_several_targets_have_a_count_each():
    question = RecognisedCells(None, Numbers.declare((0, 1), (3,)))
    assert (question.numbers, question.levels) == (3, ())
    y = np.array([[0.5, np.nan, 1.0], [np.inf, 0.0, 7.0]])
    assert question.of(Table(np.zeros((2, 1))), y).tolist() == [1, 1, 2]


@pytest.mark.long
def test_a_search_checks_the_data_once_for_all_trials():
    X, y = np.column_stack([AGE, AGE[::-1]]), (AGE > 50).astype(int)
    settings = {"epsilon": 1.0, "bounds": (18, 90), "classes": (0, 1), "random_state": 1, "n_iter": 2}
    model = dp.PrivateLogisticRegression(**settings, solver="gradient_descent", standardize=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UselessModelWarning)
        search = dp.PrivateSearchCV(model, {"radius": [3.0, 30.0]}).fit(X, y)
        statement = search.privacy_statement_
        assert [part["question"] for part in statement.mechanisms].count("NoisyCounts") == 1
        assert search.best_estimator_.check_.findings == ()
        assert search.best_estimator_.plan_.before == ()
        assert statement.certified_epsilon <= 1.0
        assert "no column" in statement.bounds["check"]
        with pytest.warns(UnrecognisedDataWarning, match="target: no people are visible at 2"):
            dp.PrivateSearchCV(model.set_params(classes=(0, 1, 2)), {"radius": [3.0]}).fit(X, y)
        with pytest.raises(WrongValue, match="check is not tuned"):
            dp.PrivateSearchCV(model, {"check": [0.1]}).fit(X, y)


@pytest.mark.long
def test_the_command_line_shows_the_findings_last_and_on_the_error_stream(tmp_path, capsys, monkeypatch):
    from dpcvx.cli import main

    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(TABLE.append_column("ill", [ILL.tolist()]), tmp_path / "p.parquet")
    bounds = '[bounds]\nage=[18,90]\n[categories]\nsex=["F","m"]\n[target]\nclasses=["no","yes"]\n'
    (tmp_path / "b.toml").write_text(bounds)
    monkeypatch.chdir(tmp_path)
    words = (
        "dpcvx fit p.parquet --target ill --model logistic --epsilon 1 --bounds b.toml --out m.json --seed 1"
    )

    def said(*more):
        monkeypatch.setattr("sys.argv", [*words.split(), "--force", *more])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 0
        return capsys.readouterr()

    captured = said()
    assert "dpcvx: The check of the data found: sex: " in captured.err
    assert "! sex: no people are visible at 'F'" in captured.err
    assert dp.load(tmp_path / "m.json").check_.findings
    assert said("--quiet").err.startswith("dpcvx: The check of the data found: sex: ")
    assert json.loads(said("--json").out)["check"]["n"] == N
    assert "check of the data" not in said("--check", "0").err
    assert dp.load(tmp_path / "m.json").check_ is None


def test_counts_of_many_levels_are_not_all_printed():
    column = CheckedColumn("job", tuple(f"job {k}" for k in range(300)), (100.0,) * 300)
    text = str(DataCheck(30_000, 10.0, (column,)))
    assert "job 19: 100 and 280 more levels\n" in text + "\n"
    assert max(map(len, text.splitlines())) < 400
