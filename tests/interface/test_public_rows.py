"""Public rows: the guarantee does not depend on them, they are named, and misleading ones are left out."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dpcvx as dp
from dpcvx.accounting import Neighbours
from dpcvx.data.columns import Columns
from dpcvx.data.public_rows import LongRows, column_weights
from dpcvx.data.table import Table
from dpcvx.errors import WrongValue
from dpcvx.mechanisms import NoisyRowCount

D = 200


def documents(n, seed=0, first=0):
    """Rows of norm 1 with a few frequent words, from the word ``first`` on, and many rare ones."""
    rng = np.random.default_rng(seed)
    shares = np.roll(1 / np.arange(1, D + 1), first)
    counts = rng.poisson(8 * shares / shares.sum(), (n, D)).astype(float)
    counts[counts.sum(axis=1) == 0, first] = 1
    rows = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    y = (rows[:, :10] @ np.linspace(-1, 1, 10) + 0.1 * rng.standard_normal(n) > 0).astype(int)
    return sp.csr_array(rows), y


def model(**given):
    return dp.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, bounds=(0, 1), data_norm=1.0, classes=(0, 1), random_state=0, **given
    )


@pytest.fixture(scope="module")
def private():
    return documents(4000)


def test_the_statement_names_public_rows_and_the_plan_pays_for_the_count(private):
    fitted = model(public=documents(300, seed=1)[0]).fit(*private)
    said = fitted.privacy_statement_.to_dict()["bounds"]["public_rows"]
    assert said.startswith("300 public rows were given, which nothing here protects")
    assert "multiplied by weights" in said
    assert any(stage["question"] == "NoisyRowCount" for stage in fitted.privacy_statement_.mechanisms)
    assert fitted.plan_.price.epsilon <= 1.0


def test_coefficients_are_in_the_units_of_the_columns(private):
    X, _ = private
    fitted = model(public=documents(300, seed=1)[0]).fit(*private)
    np.testing.assert_allclose(
        fitted.decision_function(X), X @ fitted.coef_ + fitted.intercept_, rtol=1e-9, atol=1e-12
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["another frequent word", "one rare word", "huge", "nothing", "no numbers"])
def test_misleading_public_rows_are_left_out(private, kind):
    # Each of them would multiply nearly all private rows by a quarter.
    public = np.zeros((100, D))
    if kind == "another frequent word":
        public = documents(100, seed=1, first=120)[0].toarray()
    if kind == "one rare word":
        public[:, -1] = 1
    if kind == "huge":
        public[:, 150] = 1e300
    if kind == "no numbers":
        public[:] = np.nan
    fitted = model(public=public).fit(*private)
    said = fitted.privacy_statement_.to_dict()["bounds"]["public_rows"]
    if kind in ("nothing", "no numbers"):  # weights are all 1
        assert np.isfinite(fitted.coef_).all()
    else:
        assert "not used" in said
    plain = model().fit(*private)
    X, y = documents(2000, seed=9)
    assert (fitted.predict(X) == y).mean() > (plain.predict(X) == y).mean() - 0.03


@pytest.mark.parametrize("kind", ["honest", "hostile"])
def test_stored_rows_keep_their_bounds_whatever_the_public_rows(private, kind):
    # Sensitivity is that of rows of norm sqrt(1 + intercept^2): weights come before the clip.
    X, _ = private
    table = Table(X)
    columns = Columns.declare(table, (0.0, 1.0), None, 1.0)
    public = documents(50, seed=1)[0] if kind == "honest" else sp.csr_array(np.full((50, D), 1e300))
    weights = column_weights(Table(public), columns, floor=0.25, long=0.1)
    assert np.isfinite(weights).all()
    assert (weights >= 0.25).all()
    from dpcvx.data.public_rows import weighted_columns
    from dpcvx.data.quantise import Quantiser

    small = np.linspace(0.1, 0.5, D)  # no row is clipped, so that features are multiplied by their weights
    plain, light = (
        each.rows(table, Quantiser(dp.Bounds(1.0, 1.0), each.center, each.scale))
        for each in (columns, weighted_columns(columns, small))
    )
    np.testing.assert_allclose(light.values, plain.values * small[plain.indices], atol=2)
    weighted = weighted_columns(columns, weights * 1e6)  # whatever they were
    rows = weighted.rows(table, Quantiser(dp.Bounds(1.0, 1.0), weighted.center, weighted.scale))
    squares = np.add.reduceat(rows.values.astype(np.int64) ** 2, rows.indptr[:-1])
    assert squares.max() <= 4**14


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_count_moves_by_at_most_its_sensitivity(relation):
    columns = Columns.declare(Table(np.zeros((1, D))), (0.0, 1.0), None, 1.0)
    question = LongRows(columns, np.linspace(0.25, 4, D))
    mechanism = NoisyRowCount(6, 1, (), 2.0, Neighbours(relation))
    hostile = np.vstack(
        [np.zeros(D), np.full(D, np.nan), np.full(D, 1e300), np.eye(D)[0], np.eye(D)[-1], np.full(D, -1e300)]
    )
    moved = []
    for i in range(len(hostile)):
        whole = question.of(Table(hostile), None)
        if relation == "add_remove":
            moved.append(abs(whole - question.of(Table(np.delete(hostile, i, 0)), None))[0])
            continue
        for j in range(len(hostile)):
            other = hostile.copy()
            other[i] = hostile[j]
            moved.append(abs(whole - question.of(Table(other), None))[0])
    assert max(moved) == 1
    assert 1 <= mechanism.sensitivity <= 1 + 1e-5
    assert mechanism.noise == pytest.approx(2.0, rel=1e-5)  # test vector


def test_public_rows_survive_clone_save_and_load(private, tmp_path):
    public = documents(300, seed=1)[0].toarray()
    fitted = clone(model(public=public)).fit(*private)
    fitted.save(tmp_path / "model.json")
    assert "public" in fitted.get_params()
    back = dp.load(tmp_path / "model.json")
    assert back.public is None  # the file holds no rows
    np.testing.assert_array_equal(back.predict(private[0]), fitted.predict(private[0]))


def test_other_columns_are_refused_and_extra_ones_left_out():
    import pandas as pd

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((500, 3)), columns=["a", "b", "c"])
    y = rng.integers(0, 2, 500)
    given = model(standardize=False)
    with pytest.raises(WrongValue, match="public lacks columns that X has: 'c'"):
        given.set_params(public=X[["a", "b"]]).fit(X, y)
    public = X.sample(50, random_state=0)[["c", "b", "a"]].assign(target=1)
    assert given.set_params(public=public).fit(X, y).coef_.shape == (3,)


def test_a_standardised_fit_says_that_it_does_not_use_them():
    rng = np.random.default_rng(0)
    X, y = rng.random((3000, 3)), rng.integers(0, 2, 3000)
    model = dp.PrivateLogisticRegression(
        epsilon=1.0, bounds=(0, 1), classes=(0, 1), public=X[:20], random_state=0
    )
    with pytest.warns(UserWarning, match="Public rows are not used"):
        fitted = model.fit(X, y)
    assert (
        "columns of this fit are standardised" in fitted.privacy_statement_.to_dict()["bounds"]["public_rows"]
    )


def test_the_command_line_takes_public_rows(tmp_path, monkeypatch):
    import csv
    import json

    from typer.testing import CliRunner

    from dpcvx.cli import app

    monkeypatch.chdir(tmp_path)
    rows, y = documents(1500)
    names = [f"w{j}" for j in range(8)]
    for name, n in (("private", 1500), ("open", 100)):
        with open(f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names, "label"])
            writer.writerows([*row, label] for row, label in zip(rows[:n, :8].toarray(), y[:n], strict=True))
    target = ["[target]", 'column = "label"', "classes = [0, 1]"]
    lines = ["[bounds]", *(f"{name} = [0, 1]" for name in names), *target]
    (tmp_path / "b.toml").write_text("\n".join(lines))
    given = "fit private.csv --bounds b.toml --model logistic --epsilon 1 --data-norm 1 --seed 0 --quiet"
    given += " --standardize false --public open.csv --out m.json"
    done = CliRunner().invoke(app, given.split())
    assert done.exit_code == 0, done.output
    said = json.loads((tmp_path / "m.json").read_text())["privacy_statement"]
    assert "100 public rows were given" in json.dumps(said)


def table(n, seed=0, d=5):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, (3 * X[:, :3] @ np.array([1.0, -1.0, 0.5]) + rng.logistic(size=n) > 0).astype(int)


def classifier(**given):
    settings = {"epsilon": 0.3, "delta": 1e-8, "bounds": (-1, 1), "classes": (0, 1), "random_state": 0}
    return dp.PrivateLogisticRegression(**settings | given)


def test_a_score_of_public_rows_with_targets_is_one_more_feature_and_is_named():
    fitted = classifier(public=table(300, seed=1)).fit(*table(2000))
    said = fitted.privacy_statement_.to_dict()["bounds"]["public_rows"]
    assert said.startswith("public rows are used: 300 public rows with targets were given, which nothing")
    inner = fitted.plan_.solver.innermost(fitted.plan_).problem
    assert inner.d == 7  # five columns, the score, the intercept
    assert fitted.coef_.shape == (5,)
    assert fitted.plan_.price.epsilon <= 0.3


@pytest.mark.long
def test_public_rows_with_targets_help_and_misleading_ones_cost_little():
    X, y = table(3000, d=20)
    X_new, y_new = table(4000, seed=9, d=20)
    rows, labels = table(1000, seed=1, d=20)
    useless = (rows[:, 4] > 0).astype(int)  # a column without information decides

    def accuracy(public):
        fits = (classifier(epsilon=0.3, random_state=seed, public=public).fit(X, y) for seed in range(12))
        return np.mean([(fitted.predict(X_new) == y_new).mean() for fitted in fits])

    without = accuracy(None)
    assert accuracy((rows, labels)) > without + 0.01
    assert accuracy((rows, useless)) > without - 0.02
    assert accuracy((rows, 1 - labels)) > without - 0.02
    assert accuracy((100 * rows, labels)) > without - 0.02


@pytest.mark.parametrize("kind", ["one class", "nothing", "no numbers", "few", "noise"])
def test_public_targets_that_say_nothing_are_not_used(kind):
    rows, labels = table(200, seed=1)
    if kind == "one class":
        labels[:] = 1
    if kind == "nothing":
        rows[:] = 0.5
    if kind == "no numbers":
        rows[:] = np.nan
    if kind == "few":
        rows, labels = rows[:5], labels[:5]
    if kind == "noise":
        labels = np.random.default_rng(3).permutation(labels)
    with pytest.warns(UserWarning, match="Public rows are not used"):
        fitted = classifier(public=(rows, labels)).fit(*table(2000))
    assert fitted.plan_.solver.score == ()


def test_a_constant_says_that_public_rows_are_not_used():
    with (
        pytest.warns(UserWarning, match="Public rows are not used: the model is the same for everybody"),
        pytest.warns(dp.UselessModelWarning, match="share of each class"),
    ):
        fitted = classifier(epsilon=0.1, public=table(200, seed=1)).fit(*table(200))
    assert fitted.plan_.solver.constant


def test_public_rows_and_targets_have_one_length():
    rows, labels = table(200, seed=1)
    with pytest.raises(WrongValue, match="200 rows and 100 targets"):
        classifier(public=(rows, labels[:100])).fit(*table(2000))


@pytest.mark.parametrize("given", [{"uncertainty": 0.2}, {"standardize": False}], ids=str)
def test_fits_without_a_score_say_that_public_rows_are_not_used(given):
    with pytest.warns(UserWarning, match="Public rows are not used"):
        plan = classifier(public=table(200, seed=1), **given).fit(*table(2000)).plan_
    assert getattr(plan.solver, "score", ()) == ()


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_stored_rows_with_a_score_keep_their_bounds(size):
    # Sensitivity is that of the bounds of mapped rows, whatever the score and the cells of a row are.
    from dpcvx.data import PublicScore, Quantiser

    rng = np.random.default_rng(0)
    score = PublicScore(size * rng.standard_normal(4), 1.9, 3.0)
    norm = score.largest_norm(4)
    bounds = dp.Bounds(1.0, np.nextafter(norm / score.largest, np.inf))
    rows = np.vstack([100 * rng.standard_normal((50, 4)), np.full((1, 4), np.nan), np.full((1, 4), 1e300)])
    stored = Quantiser(bounds, 0.0, np.ones(4), basis=score).quantise(rows).values.astype(np.int64)
    assert stored.shape == (52, 5)
    assert (stored**2).sum(axis=1).max() <= (2.0**14 * norm / score.largest) ** 2
    alone = Quantiser(bounds, 0.0, np.ones(4), basis=score).quantise(rows[7:8]).values
    np.testing.assert_array_equal(alone[0], stored[7])  # a row is mapped alone


def test_a_score_folds_into_the_coefficients_of_the_cells():
    from dpcvx.data import PublicScore

    rng = np.random.default_rng(0)
    score, rows, weights = (
        PublicScore(rng.standard_normal(4), 1e3, 3.0),
        rng.uniform(-3, 3, (9, 4)),
        np.arange(5.0),
    )
    np.testing.assert_allclose(score(rows) @ weights, rows @ score.fold(weights), rtol=1e-12)
