"""Levels in standardised fits: many, rare, absent and unknown ones."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dpcvx as dp
from dpcvx.audit import discrepancies, record, replay
from dpcvx.data import Quantiser
from dpcvx.data.dataset import InMemory
from dpcvx.estimators.linear_model import declare_fit
from dpcvx.noise import SeededGenerator

LEVELS = ["a", "b", "c", "absent"]
DECLARED = {"bounds": {"x": (-3, 3)}, "categories": {"group": LEVELS, "flag": ["no", "yes"]}}


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "group": rng.choice(["a", "b", "c", "other"], n, p=[0.5, 0.3, 0.1, 0.1]),
            "flag": rng.choice(["no", "yes", None], n),
        }
    )
    return frame, frame["x"] + 2 * (frame["group"] == "b") + rng.normal(size=n)


def source_of(model, frame, y):
    dataset = InMemory(frame, y)
    made = declare_fit(model, dataset, len(frame))
    quantiser = Quantiser(made.plan.problem.bounds, made.columns.center, made.columns.scale)
    return made.plan, dataset.source(made.columns, quantiser, made.target, made.plan.layout)


CHANGES = [
    {"x": 3.0, "group": "a", "flag": "yes"},
    {"x": -3.0, "group": "absent", "flag": "yes"},
    {"x": 3.0, "group": "absent", "flag": None},
    {"x": None, "group": None, "flag": "no"},
    {"x": -3.0, "group": "other", "flag": None},
]


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_whole_fits_with_baselines_absent_and_unknown_levels_are_replayed(fit_intercept):
    frame, y = people(60)
    model = dp.PrivateLinearRegression(
        epsilon=2.0, y_bounds=(-5, 5), standardize=True, n_iter=4, fit_intercept=fit_intercept, **DECLARED
    )
    for seed, (one, other) in enumerate(zip(CHANGES, CHANGES[1:] + CHANGES[:1], strict=True)):
        pair = []
        for change, target in ((one, -5.0), (other, 5.0)):
            changed, targets = frame.astype(object), y.copy()
            changed.loc[7, list(change)] = list(change.values())
            targets[7] = target
            plan, source = source_of(model, changed, targets)
            pair.append(source)
        first = record(plan, pair[0], SeededGenerator(seed))
        second = replay(plan, pair[1], SeededGenerator(seed + 1), first)
        assert discrepancies(plan, first, second) == []
        assert len(first.questions) >= plan.n_calls


def test_unknown_cells_take_the_released_shares_in_fit_and_prediction(tmp_path):
    frame, y = people(4000)
    model = dp.PrivateLinearRegression(
        epsilon=20.0, y_bounds=(-5, 5), standardize=True, check=0, random_state=0, **DECLARED
    ).fit(frame, y)
    fill = model.formula_.to_dict()["fill"]
    shares = dict(zip(model.privacy_statement_.public["features"], fill, strict=True))
    assert sum(shares[f"group={level}"] for level in LEVELS) == pytest.approx(1)
    assert shares["group=b"] == pytest.approx(0.3 + 0.1 / 4, abs=0.02)
    assert shares["group=c"] == pytest.approx(0.1 + 0.1 / 4, abs=0.02)
    assert min(shares["group=absent"], shares["flag=yes"]) >= 0
    new = pd.DataFrame({"x": 0.0, "group": ["other", None], "flag": "no"})
    known = pd.DataFrame({"x": 0.0, "group": LEVELS, "flag": "no"})
    weights = [shares[f"group={level}"] for level in LEVELS[1:]]
    linear = model.set_params(extrapolation="linear")
    scores = linear.predict(known)
    mixed = scores[0] + np.dot(weights, scores[1:] - scores[0])
    np.testing.assert_allclose(linear.predict(new), [mixed, mixed], rtol=1e-9)
    model.save(tmp_path / "model.json")
    assert_array_equal(dp.load(tmp_path / "model.json").predict(new), model.predict(new))


@pytest.mark.long
def test_many_levels_cost_no_more_than_a_number():
    """800 levels made the other columns useless: 0.50 for an accuracy of 0.73 without them."""
    n, rng = 5000, np.random.default_rng(1)
    X = rng.normal(size=(n + 4000, 10))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    frame["town"] = rng.integers(0, 800, len(X))
    y = rng.random(len(X)) < 1 / (1 + np.exp(-0.5 * X.sum(axis=1)))
    found = []
    for categories in ({"town": range(800)}, None):
        model = dp.PrivateLogisticRegression(
            epsilon=0.3,
            bounds={f"x{j}": (-4, 4) for j in range(10)},
            categories=categories,
            classes=(False, True),
            check=0,
            random_state=2,
        )
        used = frame if categories else frame.drop(columns="town")
        found.append((model.fit(used[:n], y[:n]).predict(used[n:]) == y[n:]).mean())
    assert found[0] > found[1] - 0.03


@pytest.mark.parametrize("first", ["a", "c"])
def test_levels_without_visible_people_are_marked_in_the_table_and_left_out_of_tests(first, tmp_path):
    """Their standard error of 0 gave NaN in the table, and tests of the column were refused."""
    n, rng = 5000, np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=n), "group": rng.choice(["a", "b", "C"], n)})
    y = frame["x"] + (frame["group"] == "b") + rng.normal(size=n)
    levels = [first, *(level for level in "abc" if level != first)]
    declared = {"bounds": {"x": (-4, 4)}, "categories": {"group": levels}, "y_bounds": (-6, 6)}
    model = dp.PrivateLinearRegression(epsilon=8.0, uncertainty=0.2, random_state=0, **declared)
    with pytest.warns(dp.UnrecognisedDataWarning, match="no people are visible at 'c'"):
        model.fit(frame, y)
    model.save(tmp_path / "model.json")
    for each in (model, dp.load(tmp_path / "model.json")):
        table = each.summary().table()
        mark = "group=c (no visible people)" if first == "a" else "group=c (baseline, no visible people)"
        (row,) = [row for row in table.rows if row[0] == mark]
        assert row[1] == 0
        assert set(row[2:]) == {None}
        assert "spelt as in the data" in str(table)
        assert "nan" not in str(table)
        tests = {test.hypothesis: test.df for test in each.wald_test_terms().tests}
        assert tests == {"x": 1, "group": 1}


@pytest.mark.parametrize("levels", [["a", "b", "absent"], ["a", "absent"]])
def test_without_a_check_levels_that_may_be_empty_are_named_by_released_shares(levels, tmp_path):
    n, rng = 4000, np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=n), "group": rng.choice(levels[:-1], n)})
    y = frame["x"] + (frame["group"] == "b") + rng.normal(size=n)
    declared = {"bounds": {"x": (-4, 4)}, "categories": {"group": levels}, "y_bounds": (-6, 6), "check": 0}
    model = dp.PrivateLinearRegression(epsilon=2.0, random_state=0, standardize=True, **declared)
    model.fit(frame, y).save(tmp_path / "model.json")
    assert model.privacy_statement_.bounds["faint"] == ["group=absent"]
    for each in (model, dp.load(tmp_path / "model.json")):
        assert "Nobody may be at group=absent: the released shares" in str(each.summary())
        said = str(each.privacy_statement_)
        assert "doubts       Nobody may be at group=absent: the released shares" in said
        assert "faint" not in said
        assert "share noise" not in said
    for given, named in (("absent", levels[:-1]), (None, [])):
        other = model.fit(frame.assign(group=frame["group"] if given is None else given), y)
        told = other.privacy_statement_.bounds.get("faint", [])
        assert [name for name in told if name != "group=absent"] == [f"group={level}" for level in named]


def test_without_a_check_and_released_shares_the_table_says_that_nothing_is_known():
    n, rng = 300, np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=n), "group": rng.choice(["a", "b"], n)})
    declared = {"bounds": {"x": (-4, 4)}, "categories": {"group": ["a", "b", "c"]}, "y_bounds": (-6, 6)}
    model = dp.PrivateLinearRegression(epsilon=1.0, random_state=0, standardize=False, **declared)
    text = str(model.fit(frame, frame["x"]).summary())
    assert "Nothing that was released shows whether there are people at every level" in text
    plain = dp.PrivateLinearRegression(epsilon=1.0, bounds=(-4, 4), y_bounds=(-6, 6), random_state=0)
    assert "at every level" not in str(plain.fit(frame[["x"]], frame["x"]).summary())


@pytest.mark.parametrize("standardize", [True, False])
def test_levels_in_another_spelling_are_named_and_pooled_with_the_baseline(standardize):
    """Their coefficients were noise, up to 17 in logistic models."""
    n, rng = 5000, np.random.default_rng(3)
    frame = pd.DataFrame(
        {"x": rng.normal(size=n), "group": rng.choice(["a", "b", "C"], n, p=[0.5, 0.3, 0.2])}
    )
    y = rng.random(n) < 1 / (1 + np.exp(-frame["x"] - (frame["group"] == "b")))
    model = dp.PrivateLogisticRegression(
        epsilon=4.0,
        bounds={"x": (-4, 4)},
        categories={"group": ["a", "b", "c"]},
        classes=(False, True),
        standardize=standardize,
        random_state=0,
    )
    with pytest.warns(dp.UnrecognisedDataWarning, match="no people are visible at 'c'"):
        model.fit(frame, y)
    coef = dict(zip(model.coef_names_, model.coef_, strict=True))
    assert coef["group=c"] == 0
    assert coef["group=b"] > 0.3
    assert model.privacy_statement_.bounds["pooled"] == ["group=c"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_rare_levels_beside_other_keep_their_coefficients():
    """Titles that few people have are not pooled because others count as "other"."""
    rng = np.random.default_rng(0)
    n, titles = 20_000, 26
    share = 1 / np.arange(1, titles + 1)
    share[-1] = 0.5  # people without a declared title
    title = rng.choice(titles, n, p=share / share.sum())
    y = rng.normal(0, 1, titles)[title] + 0.5 * rng.standard_normal(n)
    names = np.array([f"title {k}" for k in range(25)] + ["something else"])
    people = pd.DataFrame({"age": rng.uniform(0, 1, n), "title": names[title], "y": y})
    schema = dp.TableSchema(
        {
            "age": dp.NumberColumn((0, 1)),
            "title": dp.LevelColumn(list(names[:25]), other="other"),
            "y": dp.NumberColumn((-5, 5)),
        },
        target="y",
    )
    model = dp.PrivateLinearRegression(epsilon=1.0, schema=schema, random_state=0).fit(people)
    rare = [count for count in model.check_.columns[1].counts if count < model.check_.error]
    assert len(rare) >= 5  # cannot be distinguished from 0
    assert "pooled" not in model.privacy_statement_.bounds
    assert (model.coef_[1:] != 0).all()
