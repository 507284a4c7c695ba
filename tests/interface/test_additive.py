"""Additive models: shapes that lines miss, the fall-back to lines, exports, sets, shards and persons."""

import csv
import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp

KNOWN = {"epsilon": 4.0, "delta": 1e-6, "bounds": {"age": (18, 90), "pay": (0, 200)}, "random_state": 0}
KNOWN["categories"] = {"sex": ["f", "m"]}
N = 6000


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "pay": rng.lognormal(3, 0.6, n).clip(0, 200),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    hump = -(((table["age"] - 50) / 15) ** 2) + np.log(table["pay"] + 1) + (table["sex"] == "f")
    return table, (hump + rng.normal(0, 0.3, n)).to_numpy()


TABLE, TARGET = people()
NEW, TRUTH = people(2000, seed=1)


def regressor(**changes):
    return dp.PrivateAdditiveRegressor(**{**KNOWN, "y_bounds": (-12, 10), **changes})


def classifier(**changes):
    return dp.PrivateAdditiveClassifier(**{**KNOWN, "classes": (0, 1), **changes})


@pytest.fixture(scope="module")
def model():
    return regressor(interactions="none").fit(TABLE, TARGET)


def r2(model):
    return 1 - np.mean((model.predict(NEW) - TRUTH) ** 2) / np.var(TRUTH)


@pytest.mark.long
def test_a_hump_is_found_that_a_line_misses(model):
    line = dp.PrivateLinearRegression(**KNOWN, y_bounds=(-12, 10)).fit(TABLE, TARGET)
    assert r2(line) < 0.4
    assert r2(model) > 0.75
    labels = (TARGET > 0).astype(int)
    found = classifier().fit(TABLE, labels)
    assert (found.predict(NEW) == (TRUTH > 0)).mean() > 0.8
    assert found.predict_proba(NEW).shape == (2000, 2)


@pytest.mark.parametrize(("n", "knots"), [(300, 0), (6_500, 5), (100_000, 9)])
def test_public_numbers_choose_the_knots(n, knots):
    plan = regressor(epsilon=1.0).plan(n, list(TABLE))
    basis = getattr(plan.solver, "basis", None)
    assert (0 if basis is None else len(basis.knots)) == knots


def test_shapes_have_fewer_knots_beside_standard_errors():
    """At epsilon 4 and 15,000 records nine knots hid every shape."""
    plan = classifier(uncertainty=0.2).plan(15_000, list(TABLE))
    assert getattr(plan.solver, "basis", None) is None
    plan = regressor(uncertainty=0.2).plan(60_000, list(TABLE))
    assert len(plan.solver.basis.knots) == 5
    assert plan.solver.basis.pairs == ()


def test_a_classifier_has_straight_lines_where_records_are_few():
    facts = {**KNOWN, "epsilon": 1.0, "classes": (0, 1), "bounds": {**KNOWN["bounds"], "flag": (0, 1)}}
    plan = dp.PrivateAdditiveClassifier(**facts).plan(4_000, [*TABLE, "flag"])
    assert getattr(plan.solver, "basis", None) is None
    rising = dp.PrivateAdditiveClassifier(**facts, monotone={"flag": 1}).plan(4_000, [*TABLE, "flag"])
    assert rising.problem.domain.up == (3,)  # a flag has no ramps
    many = dp.PrivateAdditiveClassifier(**facts).plan(100_000, [*TABLE, "flag"])
    assert len(many.solver.basis.numbers) == 3


def test_shapes_add_up_to_the_score(model):
    inside = NEW[(NEW["age"] - 54).abs() < 20]
    shapes, line = model.shapes_, model.set_params(extrapolation="linear")
    try:
        total = np.full(len(inside), shapes.intercept)
        for column in ("age", "pay"):
            low, high = shapes[column].at[0], shapes[column].at[-1]
            inside = inside[(inside[column] >= low) & (inside[column] <= high)]
            total = np.full(len(inside), shapes.intercept)
        for column in ("age", "pay"):
            total += np.interp(inside[column], shapes[column].at, shapes[column].values)
        levels = dict(zip(shapes["sex"].at, shapes["sex"].values, strict=True))
        total += inside["sex"].map(levels).to_numpy()
        np.testing.assert_allclose(line.predict(inside), total, rtol=1e-9, atol=1e-9)
    finally:
        model.set_params(extrapolation="clip")


def test_a_number_that_many_cells_have_is_no_row_of_knots():
    """Half of the people have no assets: knots inside the jump of the map all stood at 0."""
    rng = np.random.default_rng(0)
    assets = np.where(rng.uniform(size=6000) < 0.4, 0.0, np.exp(rng.normal(8, 1.5, 6000)))
    table = pd.DataFrame({"assets": assets})
    y = np.log1p(assets) / 10 + rng.normal(0, 0.3, 6000)
    given = {"bounds": {"assets": (0, 1e6)}, "y_bounds": (-2, 3), "knots": 9, "random_state": 0}
    model = dp.PrivateAdditiveRegressor(epsilon=8.0, extrapolation="linear", **given).fit(table, y)
    shape = model.shapes_["assets"]
    assert shape.at[:2] == (0.0, 0.0)
    assert shape.sides[:3] == ("up to", "above", "")
    assert "up to 0" in str(model.shapes_)
    rows = list(csv.reader(io.StringIO(model.shapes_.to_csv())))
    assert [row[5] for row in rows[:4]] == ["side", "up to", "above", ""]
    assert json.loads(model.shapes_.to_json())["shapes"]["assets"]["sides"][:2] == ["up to", "above"]
    assert [text.get_text() for text in model.plot().axes[0].texts] == ["up to 0", "above 0"]
    assert shape.at[2] > 1
    below, above = model.predict(pd.DataFrame({"assets": [0.0, 1e-6]})) - model.shapes_.intercept
    np.testing.assert_allclose(shape.values[:2], [below, above], atol=1e-4)
    assert f"{model.shapes_.intercept:.4g}\n" in str(model.summary())


def test_shapes_are_tables(model, tmp_path):
    rows = list(csv.reader(io.StringIO(model.shapes_.to_csv())))
    assert rows[0] == ["column", "at", "value", "debiased", "std", "side"]
    assert {row[0] for row in rows[1:]} == {"age", "pay", "sex"}
    content = json.loads(model.shapes_.to_json())
    assert set(content) == {"intercept", "shapes", "interactions"}
    model.shapes_.save(tmp_path / "shapes.csv")
    assert "age" in str(model.shapes_)
    assert "std" not in str(model.shapes_)  # no empty columns
    assert "straight" not in str(model.shapes_)
    with pytest.raises(ValueError, match="csv or"):
        model.shapes_.save(tmp_path / "shapes.txt")


def test_files_and_exports_predict_the_same_bits(model, tmp_path):
    hostile = NEW.head(50).astype({"age": object, "pay": object}).copy()
    hostile.loc[0, "age"], hostile.loc[1, "pay"], hostile.loc[2, "sex"] = np.nan, 1e12, "x"
    expected = model.predict(hostile)
    model.save(tmp_path / "model.json")
    np.testing.assert_array_equal(dp.load(tmp_path / "model.json").predict(hostile), expected)
    np.testing.assert_array_equal(model.to_sklearn().predict(hostile), expected)
    assert "ramps" in str(model.formula_)
    assert len(model.coef_names_) == len(model.coef_)
    assert "knots at the released mean" in str(model.privacy_statement_)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.1])
def test_a_column_of_two_values_has_no_shape(share):
    """Only shares between 0.485 and 0.515 were recognised, because squares above 1 are clipped."""
    cells = np.random.default_rng(3).uniform(size=N) < share
    coded = TABLE.assign(sex=np.where(np.arange(N) % 20, cells, np.nan).astype(float))  # 5 % are missing
    facts = {"bounds": {**KNOWN["bounds"], "sex": (0, 1)}, "categories": None, "interactions": "none"}
    found = regressor(**facts).fit(coded, TARGET)
    assert len(found.shapes_["sex"].at) == 2
    assert len(found.shapes_["age"].at) > 4
    places = [k for k, name in enumerate(found.coef_names_) if name.startswith("sex[")]
    assert found.formula_.row_map.region.basis.flat == (2,)
    assert not found.to_sklearn()["features"].transform(coded)[:, places].any()


@pytest.mark.parametrize(("a", "b"), [(1, 1), (0.3, 1.2), (0.2, 0.2)])
def test_a_column_of_shares_has_a_shape(a, b):
    shares = TABLE.assign(sex=np.random.default_rng(3).beta(a, b, size=N))
    facts = {"bounds": {**KNOWN["bounds"], "sex": (0, 1)}, "categories": None, "interactions": "none"}
    found = regressor(**facts).fit(shares, TARGET)
    assert found.formula_.row_map.region.basis.flat == ()


@pytest.mark.parametrize("knots", ["auto", 0])
def test_a_declared_boolean_has_no_knots_but_a_value_for_no_and_for_yes(knots, tmp_path):
    """A rare yes had ramps, and its line ended below 1."""
    rng = np.random.default_rng(2)
    table = TABLE.assign(rare=np.where(rng.uniform(size=N) < 0.06, "yes", "no"))
    columns = {
        "age": dp.NumberColumn((18, 90), missing="indicator"),
        "pay": dp.NumberColumn((0, 200)),
        "rare": dp.BooleanColumn(),
    }
    schema = dp.TableSchema(columns)
    given = {"epsilon": 4.0, "delta": 1e-6, "y_bounds": (-12, 10), "random_state": 0, "schema": schema}
    found = dp.PrivateAdditiveRegressor(**given, knots=knots, interactions="none")
    found.fit(table, TARGET + 2 * (table["rare"] == "yes"))
    if knots == "auto":
        assert found.plan_.solver.basis.numbers == (0, 2)  # age and pay; age.missing and rare have no ramps
    for path in (None, tmp_path / "model.json"):
        if path is not None:
            found.save(path)
            found = dp.load(path)
        shape = found.shapes_["rare"]
        assert shape.at == ("no", "yes")
        assert found.shapes_["age.missing"].at == ("no", "yes")
        if knots == "auto":  # rows with a rare yes are longer than the few features of lines allow
            pair = TABLE.head(1).loc[[0, 0]].assign(rare=["no", "yes"], age=54.0, pay=25.0)
            np.testing.assert_allclose(np.diff(found.predict(pair)), np.diff(shape.values))
        rows = [row for row in csv.reader(io.StringIO(found.shapes_.to_csv())) if row[0] == "rare"]
        assert [row[1] for row in rows] == ["no", "yes"]
        lines = {row[0]: row[1:] for row in found.summary().table().rows}
        assert lines["rare"] == ("2 levels", shape.values.min(), shape.values.max())
        (axes,) = [axes for axes in found.plot().axes if axes.get_title("left") == "rare"]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["no", "yes"]
        assert len(axes.patches) == 2


def test_a_summary_has_a_line_for_each_shape(model):
    table = model.summary().table()
    assert [row[:2] for row in table.rows] == [("age", "9 knots"), ("pay", "10 knots"), ("sex", "2 levels")]
    shape = model.shapes_["age"].values
    assert table.rows[0][2:] == (shape.min(), shape.max())
    assert "age[1]" not in str(table)
    assert "age[1]" in model.coef_names_


@pytest.mark.long
def test_a_summary_tests_a_shape_as_a_whole():
    rng = np.random.default_rng(5)
    table = TABLE.assign(noise=rng.uniform(-1, 1, N))
    facts = {"bounds": {**KNOWN["bounds"], "noise": (-1, 1)}, "knots": 5, "interactions": "none"}
    found = regressor(**facts, epsilon=20.0, uncertainty=0.3).fit(table, TARGET)
    tests = {test.hypothesis: test for test in found.wald_test_terms().tests}
    assert tests["age"].df == 5  # the line and four ramps
    assert tests["age"].pvalue < 1e-6  # the hump, which no line has
    assert not tests["age"].hidden
    assert tests["noise"].pvalue > 1e-3
    names = [column.name for column in found.summary(adjust="holm").table().columns]
    assert names[:8] == ["", "form", "lowest", "highest", "chi2", "df", "P>chi2", "Holm"]
    (alone,) = found.wald_test("age").tests
    assert alone.pvalue == tests["age"].pvalue
    products = regressor(epsilon=8.0, interactions="all").fit(TABLE, TARGET).summary().table()
    assert products.rows[-1][:2] == ("products of pairs", "3 products")


@pytest.mark.long
def test_columns_of_shapes_are_found_beside_a_baseline_that_is_left_out():
    place = np.array(["north", "south", "west"])[np.arange(N) % 3]
    facts = {"categories": {"place": ["north", "south", "west"]}, "epsilon": 20.0, "knots": 5}
    table = pd.DataFrame({"place": place, "age": TABLE["age"], "pay": TABLE["pay"]})
    found = regressor(**facts, interactions="all", uncertainty=0.3).fit(table, TARGET)
    names = found.coef_names_
    terms = {label: [names[j] for j in places] for label, places, _ in found._terms().columns}
    assert terms["place"] == ["place=south", "place=west"]
    assert terms["age"] == ["age", *(f"age[{k}]" for k in range(1, 5))]
    assert all("age" in name or "pay" in name or "place" in name for name in terms["products of pairs"])
    assert sum(map(len, terms.values())) == len(names)


def test_straight_lines_are_those_of_the_linear_model():
    facts = {**KNOWN, "epsilon": 1.0, "y_bounds": (-12, 10)}
    straight = dp.PrivateAdditiveRegressor(**facts).fit(TABLE[:3000], TARGET[:3000])
    line = dp.PrivateLinearRegression(**facts).fit(TABLE[:3000], TARGET[:3000])
    np.testing.assert_array_equal(straight.predict(NEW), line.predict(NEW))
    assert "maps" in straight.privacy_statement_.bounds  # long tails of pay are clipped by both
    labels, facts = (TARGET > 0).astype(int), {**KNOWN, "epsilon": 0.3, "classes": (0, 1)}
    straight, line = (
        kind(**facts).fit(TABLE[:3000], labels[:3000])
        for kind in (dp.PrivateAdditiveClassifier, dp.PrivateLogisticRegression)
    )
    np.testing.assert_array_equal(straight.decision_function(NEW), line.decision_function(NEW))


FEW = {"epsilon": 1.0, "delta": 1e-7, "bounds": (-1, 1), "random_state": 1}  # n mu/d is about 210


def curved(errors, n=8000, bend=4.0):
    """Eight columns, one of them with a parabola, and a target with errors."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 8))
    return X, bend * X[:, 0] ** 2 + bend / 4 * X[:, 1] + errors(rng, n)


def test_few_records_have_shapes_if_the_tail_of_the_target_is_short():
    X, y = curved(lambda rng, n: rng.normal(size=n))
    model = dp.PrivateAdditiveRegressor(**FEW, y_bounds=(-6, 8)).fit(X, y)
    assert len(model.shapes_["x0"].at) == 5
    line = dp.PrivateLinearRegression(**FEW, y_bounds=(-6, 8)).fit(X, y)
    errors = [np.mean((each.predict(X) - y) ** 2) / np.var(y) for each in (model, line)]
    assert errors[0] < errors[1] - 0.2
    assert "tail of the target" in str(model.privacy_statement_)


def test_few_records_have_straight_lines_if_the_tail_of_the_target_is_long():
    X, y = curved(lambda rng, n: rng.exponential(size=n) ** 3, bend=0.3)
    model = dp.PrivateAdditiveRegressor(**FEW, y_bounds=(-2, 40)).fit(X, y)
    assert all(len(model.shapes_[f"x{j}"].at) == 2 for j in range(8))
    assert "for a target with a long tail more than for others" in str(model.shapes_)
    line = dp.PrivateLinearRegression(**FEW, y_bounds=(-2, 40)).fit(X, y)
    assert np.std(model.predict(X) - line.predict(X)) < 0.2 * np.std(y)  # noise of either
    bent = dp.PrivateAdditiveRegressor(**FEW, y_bounds=(-2, 40), knots=5).fit(X, y)
    assert len(bent.shapes_["x0"].at) == 5
    assert model.plan_.solver.straight > model.plan_.solver.residual
    planned = dp.PrivateAdditiveRegressor(**FEW, y_bounds=(-2, 40)).plan(*X.shape)
    assert model.plan_.solver == planned.solver  # for any records


def test_straight_lines_of_a_long_tail_have_the_path_of_the_linear_model():
    model = dp.PrivateAdditiveRegressor(**FEW, y_bounds=(-2, 40))
    plan, line = model.plan(8000, 8), dp.PrivateLinearRegression(**FEW, y_bounds=(-2, 40)).plan(8000, 8)
    wide, narrow = plan.solver.innermost(plan), line.solver.innermost(line)
    assert plan.solver.straight == line.solver.residual
    lines = plan.solver.with_straight_lines().inner(plan.problem)
    assert (lines.d, lines.loss) == (narrow.problem.d, narrow.problem.loss)
    shorter = wide.solver.with_path_of(wide, lines)
    assert shorter.step < wide.solver.step
    lengths = [each._reached(lines, 8000, plan.budget) for each in (shorter, narrow.solver)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.01)
    given = dataclasses.replace(wide.solver, step=0.125)
    assert given.with_path_of(wide, lines) == given


def test_shapes_that_noise_on_the_tail_would_always_forbid_are_not_planned():
    model = dp.PrivateAdditiveRegressor(**{**FEW, "epsilon": 0.1}, y_bounds=(-6, 8))
    assert getattr(model.plan(7000, 1).solver, "basis", None) is None  # n mu/d is 140, and so is n mu
    assert model.plan(60_000, 8).solver.straight > 0
    assert model.plan(60_000, 1).solver.straight == 0  # enough records for any tail


def test_a_cell_that_is_no_level_has_the_mean_contribution(model):
    row = NEW.head(1).copy()
    each = [float(model.predict(row.assign(sex=sex))[0]) for sex in ("f", "m", "?")]
    assert min(each[:2]) < each[2] < max(each[:2])


def test_monotone_shapes_do_not_turn(model):
    bound = regressor(monotone={"pay": 1, "age": -1}).fit(TABLE, TARGET)
    assert (np.diff(bound.shapes_["pay"].values) >= 0).all()
    assert (np.diff(bound.shapes_["age"].values) <= 0).all()
    assert (np.diff(model.shapes_["age"].values) > 0).any()


@pytest.mark.long
def test_bounded_shapes_keep_to_their_limit(model):
    assert np.ptp(model.shapes_["age"].values) > 2
    kept = regressor(bounded={"age": 1.6, "pay": 50.0}).fit(TABLE, TARGET)
    assert 1.5 < np.ptp(kept.shapes_["age"].values) <= 1.6
    assert (np.diff(kept.shapes_["age"].values) > 0).any()  # it is still a hump
    assert r2(kept) < r2(model)
    assert kept.privacy_statement_.public["bounded"] == {"age": 1.6, "pay": 50.0}
    both = {"bounded": {"age": 0.3}, "monotone": {"age": -1, "pay": 1}}
    labelled = classifier(**both).fit(TABLE, (TARGET > 0).astype(int))
    shape = labelled.shapes_["age"].values
    assert (np.diff(shape) <= 0).all()
    assert 0.2 < np.ptp(shape) <= 0.3
    assert (np.diff(labelled.shapes_["pay"].values) >= 0).all()


@pytest.mark.long
def test_products_are_learnt_where_they_are_asked_for():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 3))
    y = np.sign(X[:, 0] * X[:, 1]).astype(int)
    facts = {"epsilon": 4.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (-1, 1), "random_state": 0}
    one = dp.PrivateAdditiveClassifier(**facts, interactions=[(0, 1)]).fit(X, y)
    assert list(one.shapes_.interactions) == ["x0*x1"]
    assert (one.predict(X) == y).mean() > 0.9
    none = dp.PrivateAdditiveClassifier(**facts, interactions="none").fit(X, y)
    assert (none.predict(X) == y).mean() < 0.6


@pytest.mark.long
def test_pairs_are_selected_where_there_are_too_many_for_all():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 8))
    y = X[:, 0] + 3 * X[:, 2] * X[:, 5] + rng.normal(0, 0.3, 6000)
    facts = {"epsilon": 4.0, "bounds": (-1, 1), "y_bounds": (-6, 6), "random_state": 0, "knots": 0}
    found = dp.PrivateAdditiveRegressor(**facts, interactions=2).fit(X, y)
    assert len(found.shapes_.interactions) == 2
    assert "x2*x5" in found.shapes_.interactions
    assert "selected from 28" in found.privacy_statement_.public["basis"]
    assert found.score.__self__ is found
    assert 1 - np.mean((found.predict(X) - y) ** 2) / y.var() > 0.8
    # the choice is paid for within the same budget
    assert found.plan_.price.epsilon <= 4.0
    labels = (y > 1).astype(int)  # a fifth: the share of labels is released first
    facts = {"epsilon": 4.0, "bounds": (-1, 1), "classes": (0, 1), "random_state": 0, "knots": 0}
    found = dp.PrivateAdditiveClassifier(**facts, interactions=1).fit(X, labels)
    assert list(found.shapes_.interactions) == ["x2*x5"]


@pytest.mark.parametrize(("n", "selected", "pairs"), [(10_000, 12, 0), (12_000, 0, 55)])
def test_few_records_for_each_pair_select_pairs_by_default(n, selected, pairs):
    regression = {"epsilon": 20.0, "delta": 1e-9, "bounds": (-1, 1), "y_bounds": (-1, 1)}
    planned = dp.PrivateAdditiveRegressor(**regression).plan(n, 11).solver
    assert (planned.selected, len(planned.basis.pairs)) == (selected, pairs)


def test_many_columns_select_pairs_by_default():
    facts = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-1, 1)}
    many = dp.PrivateAdditiveRegressor(**facts).plan(300_000, 40)
    assert (many.solver.selected, len(many.solver.candidates)) == (12, 780)
    few = dp.PrivateAdditiveRegressor(**facts).plan(300_000, 20)
    assert (few.solver.selected, len(few.solver.basis.pairs)) == (0, 190)
    assert dp.PrivateAdditiveRegressor(**facts, uncertainty=0.2).plan(300_000, 40).solver.selected == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interactions": 99}, "must be as many"),
        ({"interactions": 2, "uncertainty": 0.2}, "would not count the"),
        ({"interactions": True}, "list of pairs"),
        ({"knots": 4}, "odd number"),
        ({"knots": True}, "odd number"),
        ({"interactions": [("age",)]}, "pair of columns"),
        ({"interactions": "some"}, "list of pairs"),
        ({"interactions": [("age", "weight")]}, "does not have"),
        ({"monotone": {"age": 2}}, "rising"),
        ({"monotone": {"sex": 1}}, "columns of numbers"),
        ({"monotone": {"age": 1}, "interactions": [("age", "pay")]}, "cannot be in an interaction"),
        ({"monotone": {"age": 1}, "uncertainty": 0.2}, "Standard errors"),
        ({"knots": 5, "standardize": False}, "standardised columns"),
        ({"bounded": {"age": 0}}, "positive number"),
        ({"bounded": {"sex": 1.0}}, "columns of numbers"),
        ({"bounded": {"age": 1.0}, "interactions": [("age", "pay")]}, "cannot be in an interaction"),
        ({"bounded": {"age": 1.0}, "uncertainty": 0.2}, "Standard errors"),
    ],
)
def test_wrong_parameters_are_refused_before_the_fit(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        regressor(**changes).plan(1000, list(TABLE))


def test_power_is_of_straight_lines():
    with pytest.raises(dp.Incompatible, match="knots=0"):
        regressor(uncertainty=0.2, knots=5).power(1000, list(TABLE))


def test_onnx_predicts_the_same(model):
    pytest.importorskip("onnx", reason="onnx is an optional extra")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is an optional extra")
    both = regressor(interactions=[("age", "pay")], knots=5).fit(TABLE, TARGET)
    for each in (model, both):
        session = runtime.InferenceSession(each.to_onnx().SerializeToString())
        cells = {name: NEW[[name]].to_numpy() for name in ("age", "pay")}
        (found,) = session.run(None, {**cells, "sex": NEW[["sex"]].to_numpy(dtype=object)})
        np.testing.assert_allclose(found, each.predict(NEW), rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_shards_and_repeated_persons_give_the_model_of_rows(tmp_path):
    small, y = TABLE[["age", "pay", "sex"]].copy(), TARGET
    small.loc[5, "sex"] = "?"
    facts = dict(KNOWN)
    facts |= {"y_bounds": (-12, 10), "check": 0, "knots": 5, "maps": None}  # shards have no maps by rule
    whole = dp.PrivateAdditiveRegressor(**facts).fit(small, y)
    file = tmp_path / "people.csv"
    small.assign(y=y).to_csv(file, index=False)
    declared = {name: facts[name] for name in ("bounds", "categories", "y_bounds")}
    shards = dp.from_csv(file, target="y", **declared, store=tmp_path / "shards", verbose=0)
    stored = dp.PrivateAdditiveRegressor(**{**facts, **dict.fromkeys(declared)}).fit(shards)
    np.testing.assert_allclose(stored.coef_, whole.coef_, rtol=1e-6)
    persons = dp.PrivateAdditiveRegressor(**facts)
    ids = np.arange(N)
    twice = pd.concat([small, small], ignore_index=True)
    model = persons.fit(twice, np.concatenate([y, y]), groups=np.concatenate([ids, ids]))
    assert r2(model) > 0.6


@pytest.mark.long
def test_a_search_tries_knots_and_interactions():
    model = dp.PrivateAdditiveClassifier(
        **{**KNOWN, "classes": (0, 1), "epsilon": 8.0, "random_state": None, "n_iter": 20}
    )
    grid = {"knots": [0, 5], "interactions": ["none", "all"]}
    search = dp.PrivateSearchCV(model, grid, n_trials=2.0).fit(TABLE, (TARGET > 0).astype(int))
    assert search.best_params_["knots"] in (0, 5)
    assert search.best_estimator_.shapes_["age"].values.shape[0] >= 2


@pytest.mark.long
def test_the_command_line_fits_predicts_and_shows(tmp_path):
    from typer.testing import CliRunner

    from dpcvx.cli import app

    TABLE.assign(target=TARGET).to_csv(tmp_path / "people.csv", index=False)
    lines = ["[bounds]", "age = [18, 90]", "pay = [0, 200]", "[categories]", 'sex = ["f", "m"]']
    (tmp_path / "bounds.toml").write_text("\n".join([*lines, "[target]", "bounds = [-12, 10]"]) + "\n")
    out = tmp_path / "model.json"
    options = (
        f"--target target --model additive --knots 5 --interactions none --epsilon 4 --seed 0 --out {out}"
    )
    fit = ["fit", str(tmp_path / "people.csv"), "--bounds", str(tmp_path / "bounds.toml"), *options.split()]
    result = CliRunner().invoke(app, fit)
    assert result.exit_code == 0, result.output
    model = dp.load(out)
    assert (model.knots, model.interactions) == (5, "none")
    assert r2(model) > 0.6
    table, picture = tmp_path / "shapes.csv", tmp_path / "shapes.png"
    shown = CliRunner().invoke(app, ["show", str(out), "--shapes", str(table), "--plot", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert f"Written: {picture}" in shown.output
    assert table.read_text() == model.shapes_.to_csv()
    assert picture.read_bytes().startswith(b"\x89PNG")
    dp.PrivateLinearRegression(**KNOWN, y_bounds=(-12, 10)).fit(TABLE, TARGET).save(tmp_path / "line.json")
    refused = CliRunner().invoke(app, ["show", str(tmp_path / "line.json"), "--plot", str(picture)])
    assert "are for additive models" in str(refused.exception)


@pytest.mark.long
def test_plots_have_a_panel_for_each_column(model, tmp_path):
    figure = model.plot(tmp_path / "shapes.png")
    assert sum(axes.get_visible() for axes in figure.axes) == 3
    assert (tmp_path / "shapes.png").stat().st_size > 1000
