"""Summaries and tests of models: right numbers in every format, and no more than was released."""

import copy
import csv
import dataclasses
import io
import json
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.data.levels import DeclaredLevels
from dpcvx.errors import Incompatible, NotReleased, WrongValue
from dpcvx.estimators.hypotheses import ModelTerms
from dpcvx.estimators.inference import ContrastTests, Summary, WaldTests, holm, wald
from dpcvx.plans.uncertainty import Curvature, Steepness, Uncertainty, one_step

OLD = Path(__file__).parents[1] / "fixtures" / "version_0_1" / "models"
N = 3000
TERMS = ModelTerms.of(
    ("age", "region=south", "region=east", "x_2", "x_2b"),
    (None, DeclaredLevels(("north", "south", "east"), 0, 0), None, None),
)
KNOWN = Uncertainty(
    np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    np.diag([1.0, 4.0, 1.0, 1.0, 1.0, 9.0]) + 0.5,
    1.0,
    sampling=np.diag([0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    region = rng.choice(["north", "south", "east"], N)
    frame = pd.DataFrame({"age": rng.uniform(18, 90, N), "region": region})
    return frame, 0.5 * frame.age + 10.0 * (region == "south") + rng.normal(0, 3, N)


def regression(**changes):
    settings = {
        "epsilon": 8.0,
        "bounds": {"age": (18, 90)},
        "categories": {"region": ["north", "south", "east"]},  # the first is the baseline
        "y_bounds": (0, 80),
        "random_state": 0,
        "check": 0,
    }
    return dp.PrivateLinearRegression(**{**settings, **changes})


@pytest.fixture(scope="module")
def model(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return regression(uncertainty=0.3).fit(*data)


# -- the table


def test_rows_are_estimates_with_normal_tests_and_intervals(model):
    rows = model.summary().to_dict()["rows"]
    names = ["Intercept", "age", "region=north (baseline)", "region=south", "region=east"]
    assert [row[""] for row in rows] == names
    assert rows[2]["coef"] == 0.0
    assert rows[2]["std err"] is None
    assert list(rows[0])[:7] == ["", "coef", "std err", "z", "P>|z|", "[0.025", "0.975]"]
    frame = model.summary().to_frame().drop(index="region=north (baseline)").astype(float, errors="ignore")
    np.testing.assert_allclose(frame["coef"], [model.intercept_debiased_, *model.coef_debiased_])
    np.testing.assert_allclose(frame["std err"], [model.intercept_std_, *model.coef_std_])
    np.testing.assert_allclose(frame["z"], frame["coef"] / frame["std err"])
    np.testing.assert_allclose(frame["P>|z|"], [math.erfc(abs(z) / math.sqrt(2)) for z in frame["z"]])
    np.testing.assert_allclose(frame.loc["age":, "[0.025"], model.coef_interval()[:, 0])
    assert ((frame["noise share"] >= 0) & (frame["noise share"] <= 1)).all()
    assert "[0.05" in model.summary(0.9).to_frame().columns
    with pytest.raises(WrongValue, match="level"):
        model.summary(95).to_frame()


def test_facts_say_whose_data_which_family_and_what_was_assumed(model, data):
    facts = model.summary().to_dict()["facts"]
    assert facts["records"] == "3,000"
    assert facts["family"].startswith("Gaussian")
    assert facts["covariance"].startswith("robust")
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\] of coef_ on these records", facts["R²"])
    assert "NOT PRIVATE" in str(model.summary())
    frame, y = data
    alone = regression(random_state=None).fit(frame, y, groups=np.arange(N) // 2).summary()
    facts = alone.to_dict()["facts"]
    assert (facts["persons"], facts["epsilon"]) == ("1,500", "8")
    assert "records" not in facts
    assert "NOT PRIVATE" not in str(alone)


def test_without_a_share_the_table_says_what_it_lacks(data):
    summary = regression().fit(*data).summary()
    (note,) = summary.to_dict()["notes"]
    assert 'uncertainty="auto"' in note
    assert "--uncertainty auto" in note
    assert "epsilon is added" in note
    assert list(summary.to_dict()["rows"][0]) == ["", "coef"]
    assert summary.to_dict()["facts"]["covariance"] == "not released"


@pytest.mark.parametrize("path", sorted(OLD.glob("*.json")), ids=lambda path: path.stem)
def test_every_estimator_and_every_old_file_has_a_summary(path):
    model = dp.load(path)
    summary = model.summary()
    rows = summary.to_dict()["rows"]
    assert len(rows) == np.size(model.coef_) + np.size(model.intercept_)
    assert ("std err" in rows[0]) == (model._uncertainty is not None)
    if path.stem == "multinomial":
        assert [row["output"] for row in rows[:: len(rows) // 3]] == ["0", "1", "2"]
    if path.stem in ("multinomial", "quantile", "low_rank"):
        assert "not available" in str(summary)
    if path.stem == "logistic_interval":  # old files do not say which part of a variance is noise
        assert "noise share" not in rows[0]
        assert rows[1]["note"] == "hidden by noise"


def test_a_baseline_has_a_row_of_its_own(data):
    frame, y = data
    schema = dp.TableSchema(
        {
            "age": dp.NumberColumn((18, 90)),
            "region": dp.LevelColumn(["north", "south", "east"], baseline="north"),
        }
    )
    model = dp.PrivateLinearRegression(epsilon=8.0, schema=schema, y_bounds=(0, 80)).fit(frame, y)
    rows = model.summary().to_dict()["rows"]
    assert [row[""] for row in rows] == [
        "Intercept", "age", "region=north (baseline)", "region=south", "region=east",
    ]  # fmt: skip
    assert rows[2]["coef"] == 0.0


def test_files_keep_every_part(model, tmp_path):
    model.save(tmp_path / "model.json")
    assert dp.load(tmp_path / "model.json").summary().to_json() == model.summary().to_json()


# -- formats


def test_every_format_holds_the_same_rows(model):
    summary = model.summary(adjust="holm")
    frame = summary.to_frame()
    again = list(csv.DictReader(io.StringIO(summary.to_csv())))
    assert [float(row["coef"]) for row in again] == frame["coef"].tolist()
    assert json.loads(summary.to_json())["rows"][1]["coef"] == frame["coef"]["age"]
    assert summary._repr_html_().count("<tr>") == len(frame) + 1 + 6  # rows, header, facts
    markdown = [line for line in summary.to_markdown().splitlines() if line.startswith("|")]
    assert len(markdown) == len(frame) + 2
    assert r"P>\|z\|" in markdown[0]
    latex = summary.to_latex()
    assert latex.count(r"\\") == len(frame) + 1
    assert r"\%" in latex
    lines = str(summary).splitlines()
    assert max(map(len, lines)) < 120
    assert "Holm" in str(summary)


def test_hostile_names_stay_text():
    bad = '<script>"&|$_\n% \\end{tabular}'
    terms = ModelTerms.of((bad,), (None,))
    known = Uncertainty(np.ones(2), np.eye(2), 1.0)
    found = ContrastTests(terms.hypotheses([[1.0]]), known)
    assert "<script>" not in found.to_html()
    assert r"\<script" in found.to_markdown()
    rows = [line for line in found.to_latex().splitlines() if not line.startswith("%")]
    assert sum(line.startswith(r"\end{tabular}") for line in rows) == 1
    assert len(rows) == 7
    assert json.loads(found.to_json())["rows"][0]["hypothesis"] == f"{bad} = 0"


def test_many_coefficients_are_not_all_printed():
    names = tuple(f"x{j}" for j in range(500))
    coef = np.where(np.arange(500) % 50 == 0, 1.0, 0.0)
    from dpcvx.estimators.inference import Summary

    summary = Summary("M", (), ModelTerms.of(names, (None,) * 500), (("", coef, 2.0),), None)
    assert len(str(summary).splitlines()) < 30
    assert "490 of 501 rows are not shown" in str(summary)
    assert len(summary.to_dict()["rows"]) == 501


# -- hypotheses


@pytest.mark.parametrize(
    ("text", "row", "value"),
    [
        ("age", [1, 0, 0, 0, 0, 0], 0),
        ("age = 0", [1, 0, 0, 0, 0, 0], 0),
        ("age - x_2 = 0.5", [1, 0, 0, -1, 0, 0], 0.5),
        ("0.5 = age", [-1, 0, 0, 0, 0, 0], -0.5),
        ("2*age + x_2/4 = 1e-3", [2, 0, 0, 0.25, 0, 0], 1e-3),
        ("-age + 3 = -2 * x_2b", [-1, 0, 0, 0, 2, 0], -3),
        ("region=south = region=east", [0, 1, -1, 0, 0, 0], 0),
        ("region=south = region=north", [0, 1, 0, 0, 0, 0], 0),
        ("`region=south` = 'age'", [-1, 1, 0, 0, 0, 0], 0),
        ("Intercept = 2", [0, 0, 0, 0, 0, 1], 2),
        ("x_2b", [0, 0, 0, 0, 1, 0], 0),
    ],
)
def test_hypotheses_in_words(text, row, value):
    found = TERMS.hypotheses(text)
    np.testing.assert_array_equal(found.matrix, [row])
    np.testing.assert_array_equal(found.values, [value])


def test_several_hypotheses():
    for given in ("age = 0, x_2 = 1", ["age = 0", "x_2 = 1"]):
        found = TERMS.hypotheses(given)
        np.testing.assert_array_equal(found.matrix, np.eye(6)[[0, 3]])
        np.testing.assert_array_equal(found.values, [0, 1])
    assert TERMS.hypotheses("age = x_2 = 1").matrix.shape == (2, 6)
    matrix = TERMS.hypotheses(([[7, 1, 0, 0, 0, 0]], 3))
    np.testing.assert_array_equal(matrix.matrix, [[1, 0, 0, 0, 0, 7]])
    assert matrix.names == ("age +7 * Intercept = 3",)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "wage = 0", "age * x_2 = 0", "age +", "age = ", "= 0", "1 = 2", "2 age", "age / 0", "1 / age",
        "age,", "age age", "region=north = 0", "`wage`", [[1.0]], [[1, 2, 3, 4, math.nan]], [], None,
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_hypothesis_is_refused(wrong):
    with pytest.raises(WrongValue):
        TERMS.hypotheses(wrong)


def test_a_category_is_tested_as_a_whole():
    for name in ("region", "C(region)", " C( region ) "):
        np.testing.assert_array_equal(TERMS.whole_column(name).matrix, np.eye(6)[[1, 2]])
    free = ModelTerms.of(("r=a", "r=b", "r=c"), (DeclaredLevels(("a", "b", "c")),))
    np.testing.assert_array_equal(free.whole_column("r").matrix, [[-1, 1, 0, 0], [-1, 0, 1, 0]])
    assert TERMS.whole_column("wage") is None
    with pytest.raises(WrongValue, match="nothing to compare"):
        ModelTerms.of(("r=a",), (DeclaredLevels(("a",)),)).whole_column("r")


def test_contrasts_and_joint_tests_have_their_formulas():
    R, q = np.array([[1.0, -1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]), np.array([0.0, 1.0])
    found = ContrastTests(TERMS.hypotheses((R[:, :5], q)), KNOWN)
    V = R @ KNOWN.covariance @ R.T
    np.testing.assert_allclose(found.effect, [-1, 7])
    np.testing.assert_allclose(found.std_err, np.sqrt(np.diag(V)))
    np.testing.assert_allclose(found.statistic, [-1, 6] / np.sqrt(np.diag(V)))
    np.testing.assert_allclose(found.noise_share, 1 - np.diag(R @ KNOWN.sampling @ R.T) / np.diag(V))
    joint = wald(TERMS.hypotheses((R[:, :5], q)), KNOWN, "both")
    assert joint.statistic == pytest.approx(np.array([-1, 6]) @ np.linalg.solve(V, [-1, 6]))
    assert joint.df == 2
    assert joint.pvalue == pytest.approx(math.exp(-joint.statistic / 2))  # chi-squared with 2 degrees
    single = wald(TERMS.hypotheses("age"), KNOWN, "age")
    assert single.pvalue == pytest.approx(ContrastTests(TERMS.hypotheses("age"), KNOWN).pvalue[0])
    with pytest.raises(WrongValue, match="depend on each other"):
        wald(TERMS.hypotheses("age = 0, 2*age = 0"), KNOWN, "age")


def test_holm_is_holm():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.5])), [0.04, 0.09, 0.09, 0.5])
    np.testing.assert_allclose(holm(np.array([0.9, 0.8])), [1.0, 1.0])


def test_tests_of_a_model(model, data):
    assert model.t_test("age = 0.5").pvalue[0] > 1e-4
    assert model.t_test("region=south - region=east = 0").pvalue[0] < 0.01
    terms = model.wald_test_terms(adjust="holm")
    assert [test.hypothesis for test in terms.tests] == ["age", "region"]
    assert terms.tests[1].statistic == pytest.approx(
        model.wald_test("region=south = 0, region=east = 0").statistic[0]
    )
    assert "Holm" in str(terms)
    assert 'adjust="holm"' in str(model.t_test("age = 0, region=south = 0"))
    with pytest.raises(WrongValue, match="adjust"):
        model.t_test("age", adjust="bonferroni")
    with pytest.raises(NotReleased, match="uncertainty"):
        regression().fit(*data).t_test("age")


def test_nested_models_are_compared_in_the_larger_one(model, data):
    frame, y = data
    smaller = regression(categories=None).fit(frame[["age"]], y)
    found = model.compare_nested(smaller)
    assert found.tests[0].df == 2
    assert found.pvalue[0] == pytest.approx(model.wald_test("region=south = 0, region=east = 0").pvalue[0])
    with pytest.raises(Incompatible, match="not nested"):
        smaller.compare_nested(model)
    with pytest.raises(Incompatible, match="different losses"):
        model.compare_nested(dp.load(OLD / "huber.json"))


# -- parts of the covariance


def test_the_parts_add_up_and_hidden_directions_are_named():
    H, zero = np.diag([4.0, 0.1]), np.zeros(2)
    found = one_step(zero, Steepness(zero, np.ones(2), 0.1), Curvature(H, 0.2, 0.5), n=9, reach=3.0)
    np.testing.assert_allclose(found.hidden, np.diag([0.0, 9.0]))
    np.testing.assert_allclose(found.sampling, np.diag([0.5 / 9 / 4, 0.0]))
    tests = ContrastTests(ModelTerms.of(("a",), (None,)).hypotheses([[0.0, 1.0], [1.0, 0.0]]), found)
    assert tests.hidden == [False, True]
    assert tests.noise_share[1] == 1.0
    assert "hidden by noise: in 1 direction of 2" in str(tests)
    assert "hidden" not in str(WaldTests((wald(tests.hypotheses, found, "both"),)))
    second = ModelTerms.of(("a",), (None,)).hypotheses([[1.0, 0.0]])
    assert "A small p-value of a marked row counts" in " ".join(str(tests).split())
    assert "baseline" not in str(tests)
    assert "hidden by noise: the p-value" in str(WaldTests((wald(second, found, "one"),)))
    first = ModelTerms.of(("a",), (None,)).hypotheses([[0.0, 1.0]])
    assert "hidden" not in str(WaldTests((wald(first, found, "one"),)))


@pytest.mark.parametrize(("names", "said"), [(("town=0", "town=1"), True), (("age", "pay"), False)])
def test_a_note_on_baselines_is_there_if_all_levels_have_a_coefficient(names, said):
    """The note about hidden rows asked for a baseline in tables that have no category."""
    H, zero = np.diag([4.0, 0.1, 4.0]), np.zeros(3)
    found = one_step(zero, Steepness(zero, np.ones(3), 0.1), Curvature(H, 0.2, 0.5), n=9, reach=3.0)
    columns = (("town", range(2), ""),) if said else ((names[0], range(1), ""), (names[1], range(1, 2), ""))
    table = Summary("", (), ModelTerms(names, columns), (("", np.ones(2), 1.0),), found)
    assert "hidden by noise" in str(table)
    assert ("town: every level or bucket has a coefficient" in str(table)) == said


@pytest.mark.long
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_p_values_are_uniform_under_the_null_and_the_share_of_noise_is_right(kind, epsilon):
    """120 fits of n = 5,000: a rejection rate of 5 % is measured within 2 points for each hypothesis.

    One of twelve samples of 120 p-values fails at 1 % by chance: its case has four times as many.
    """
    runs, n = 480 if (kind, epsilon) == ("linear", 1.0) else 120, 5000
    pvalues, joint, errors, shares = [], [], [], []
    settings = {"epsilon": epsilon, "bounds": (-3, 3), "uncertainty": 0.4}
    if kind == "linear":
        model = dp.PrivateLinearRegression(y_bounds=(-4, 4), **settings)
    else:
        model = dp.PrivateLogisticRegression(classes=(0, 1), **settings)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n, 2))
        z = 0.6 * X[:, 0]  # the second feature has no effect
        noise = rng.normal(size=n) if kind == "linear" else rng.logistic(size=n)
        y = z + noise if kind == "linear" else (z + noise > 0).astype(int)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(X, y)
        if model._uncertainty.weak:
            continue
        test = model.t_test("x1 = 0, x0 = 0.6")
        pvalues.append(test.pvalue)
        joint.append(model.wald_test("x1 = 0, x0 = 0.6").pvalue[0])
        errors.append(test.effect - [0.0, 0.6])
        shares.append(test.noise_share)
    assert len(pvalues) > 0.9 * runs
    found = np.array(pvalues)
    for sample in (found[:, 0], found[:, 1], np.array(joint)):
        ordered = np.sort(sample)
        distance = max(
            abs(ordered - np.arange(len(sample)) / len(sample)).max(),
            abs(ordered - np.arange(1, len(sample) + 1) / len(sample)).max(),
        )
        assert distance < 1.63 / math.sqrt(len(sample))  # Kolmogorov-Smirnov at 1 %
    # Sampling variance of a fit without noise, beside the variance that was seen.
    information = n * 4 / 3 * (1.0 if kind == "linear" else 0.219)  # mean of p (1 - p) for scores of 0.6 x0
    share = 1 - 1 / information / np.var(errors, axis=0)[0]
    assert np.mean(shares, axis=0)[0] == pytest.approx(share, abs=0.12 if epsilon == 4 else 0.05)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"long_tail": True}, "a few targets make up most"),
        ({"tail_unknown": True}, "tail of the target was not checked: noise was too large"),
        ({"long_columns": (1,)}, "half or more of the variance of "),
    ],
)
def test_the_table_says_what_is_known_of_the_tail_of_the_target(model, known, words, tmp_path):
    told = copy.copy(model)
    told._uncertainty = dataclasses.replace(model._uncertainty, long_tail=False, tail_unknown=False)
    assert words not in " ".join(str(told.summary()).split())
    told._uncertainty = dataclasses.replace(told._uncertainty, **known)
    assert words in " ".join(str(told.summary()).split())
    told.save(tmp_path / "model.json")
    assert words in " ".join(str(dp.load(tmp_path / "model.json").summary()).split())
