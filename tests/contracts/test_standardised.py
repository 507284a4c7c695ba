"""Standardised fits return what a fit in the old coordinates means, and help where scales differ."""

import contextlib
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dpcvx as dp
from dpcvx.accounting import Tight, gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.standardised import _mean_square, doubtful_columns

LARGE = dp.Budget(25.0, 1e-4)


def fitted(X, y, loss, intercept=True, budget=LARGE, solver=None):
    bounds = dp.Bounds(1.0)
    problem = dp.Problem(loss, dp.L2Ball(10.0), bounds=bounds, d=X.shape[1])
    solver = Standardised(solver or NoisyGradientDescent(n_iter=400), intercept)
    plan = solver.plan(problem, len(X), budget, Tight())
    return dp.execute(plan, dp.source(X, y, bounds=bounds), rng=SeededGenerator(0)).theta


def test_coefficients_come_back_in_the_old_units():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20000, 3)) * [0.9, 0.2, 0.05] + [0.05, 0.5, -0.3]
    y = X @ [0.2, -0.6, 1.5] + 0.4 + rng.uniform(-0.05, 0.05, len(X))
    np.testing.assert_allclose(fitted(X, y, dp.Squared()), [0.2, -0.6, 1.5, 0.4], rtol=0.05)


def test_without_an_intercept_nothing_is_centred():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20000, 2)) * [0.9, 0.1] + [0.0, 0.05]
    y = X @ [0.4, -2.0] + rng.uniform(-0.05, 0.05, len(X))
    theta = fitted(X, y, dp.Squared(), intercept=False)
    assert theta.shape == (2,)
    np.testing.assert_allclose(theta, [0.4, -2.0], rtol=0.05)


def test_a_matrix_parameter_comes_back_too():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 2)) * [1.0, 0.1]
    y = np.argmax(X @ np.array([[3.0, 0.0, -3.0], [0.0, 30.0, 0.0]]), axis=1).astype(float)
    bounds = dp.Bounds(1.0)
    problem = dp.Problem(dp.Softmax(), dp.L2Ball(30.0), bounds=bounds, d=2, outputs=3)
    plan = Standardised(NoisyGradientDescent(n_iter=100)).plan(problem, len(X), LARGE, Tight())
    theta = dp.execute(plan, dp.source(X, y, bounds=bounds), rng=SeededGenerator(0)).theta
    assert theta.shape == (3, 3)
    assert np.mean(np.argmax(X @ theta[:2] + theta[2], axis=1) == y) > 0.9


@pytest.mark.filterwarnings("ignore:The released standard deviation of x4")
def test_features_of_different_scales_are_learnt_as_one():
    """The narrow feature carries the signal; without standardisation descent does not get there."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(-1, 1, (20000, 4)), rng.uniform(-0.01, 0.01, 20000) + 0.4])
    y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-300 * (X[:, 4] - 0.4))), 1, 0)
    kept = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (0, 1), "random_state": 0, "check": 0}
    accuracy = {
        standardize: np.mean(
            dp.PrivateLogisticRegression(standardize=standardize, **kept).fit(X, y).predict(X) == y
        )
        for standardize in (True, False)
    }
    assert accuracy[True] > 0.74
    assert accuracy[False] < 0.7


def test_a_target_far_below_its_range_gets_a_scale_at_second_sight():
    rng = np.random.default_rng(0)
    X = rng.normal(0.0, 0.3, (20000, 3))
    y = 0.01 * (X @ [1.0, -2.0, 0.5]) + 0.005 * rng.normal(size=len(X))
    kept = {"epsilon": 0.2, "bounds": (-1, 1), "y_bounds": (-1, 1)}
    models = [dp.PrivateLinearRegression(random_state=seed, **kept).fit(X, y) for seed in (1, 2, 3)]
    explained = [1 - np.mean((y - model.predict(X)) ** 2) / y.var() for model in models]
    assert np.mean(explained) > 0.4  # with one look -0.01


def linear_model(**settings):
    rng = np.random.default_rng(0)
    X = rng.normal(0.0, 0.1, (8000, 3))
    y = np.clip(X @ [1.0, -2.0, 0.5] + 0.1, -1, 1)
    model = dp.PrivateLinearRegression(
        epsilon=4.0, bounds=(-1, 1), y_bounds=(-1, 1), random_state=0, **settings
    )
    return model.fit(X, y), X, y


def test_new_rows_are_brought_into_the_region_of_the_fit():
    model, X, y = linear_model()
    region = model.release_.region
    wild = np.array([[0.9, -0.9, 0.9], [0.05, np.nan, 0.0]])
    inside = region(np.where(np.isnan(wild), region.center, wild))  # a missing cell is the released mean
    assert not np.allclose(inside[0], wild[0])
    np.testing.assert_allclose(inside[1], [0.05, region.center[1], 0.0], atol=1e-12)
    np.testing.assert_allclose(model.predict(wild), inside @ model.coef_ + model.intercept_)
    rows = (inside - region.center) / region.scale
    assert np.abs(rows).max() <= region.reach * (1 + 1e-12)
    assert np.linalg.norm(rows, axis=1).max() <= region.length * (1 + 1e-12)
    assert 1 - np.mean((model.predict(X) - y) ** 2) / y.var() > 0.95


def test_the_region_is_in_the_users_units_and_survives_a_file(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(50.0, 5.0, (8000, 2))
    y = np.where(X[:, 0] > 50, 1, 0)
    model = dp.PrivateLogisticRegression(epsilon=2.0, bounds=(0, 200), classes=(0, 1), random_state=0)
    model.fit(X, y)
    np.testing.assert_allclose(model._row_map.region.center, 50.0, atol=1.5)
    np.testing.assert_allclose(model._row_map.region.scale, 5.0, atol=1.5)
    model.save(tmp_path / "model.json")
    wild = np.array([[190.0, 3.0], [51.0, 49.0]])
    again = dp.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.decision_function(wild), model.decision_function(wild))
    assert abs(model.decision_function(wild)[0]) < abs(wild[0] @ model.coef_ + model.intercept_)


def test_a_file_with_a_false_region_is_refused(tmp_path):
    model = linear_model()[0]
    path = tmp_path / "model.json"
    model.save(path)
    for field, value in (("scale", [0.0, 1.0, 1.0]), ("length", -1.0), ("center", [1.0])):
        content = json.loads(path.read_text())
        content["formula"]["region"][field] = value
        (tmp_path / "false.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="region"):
            dp.load(tmp_path / "false.json")


def test_the_statement_says_what_was_measured():
    model, X, _ = linear_model()
    text = str(model.privacy_statement_)
    assert "NoisyMoments" in text
    assert "NoisyLength" in text
    assert model.privacy_statement_.public["standardized"] is True
    plain = linear_model(standardize=False)[0]
    assert plain.privacy_statement_.public["standardized"] is False
    np.testing.assert_allclose(plain.predict(X[:5]), X[:5] @ plain.coef_ + plain.intercept_)


def three_classes(n, epsilon, **settings):
    """Return a fit of three classes to wide bounds, and rows of the first column's sign and zero."""
    rng = np.random.default_rng(1)
    y = rng.choice(3, n)
    X = 0.5 * rng.standard_normal((n, 6))
    X[:, :3] += np.eye(3)[y]
    model = dp.PrivateLogisticRegression(
        epsilon=epsilon, bounds=(-8, 8), classes=(0, 1, 2), random_state=0, **settings
    )
    return model.fit(X, y), X, y


def test_columns_of_several_classes_are_standardised_with_a_clip_for_classes():
    model, X, y = three_classes(3000, 1.0)
    assert isinstance(model.plan_.solver, Standardised)
    assert model.plan_.solver.clip < math.sqrt(2)  # slopes of softmax have no larger norm
    plain, _, _ = three_classes(3000, 1.0, standardize=False)
    right, without = (np.mean(each.predict(X) == y) for each in (model, plain))
    assert right > without + 0.1


def test_rows_of_several_classes_are_short_where_columns_are_not_standardised():
    model, _, _ = three_classes(1500, 0.1)
    assert not isinstance(model.plan_.solver, Standardised)
    problem = model.plan_.problem
    assert problem.row_norm == pytest.approx(math.hypot(0.3 * math.sqrt(6), 0.3))
    clip = model.plan_.solver.clip
    assert model.plan_.stages[0].mechanism.sensitivity == pytest.approx(
        2 * clip * problem.row_norm / 1500, rel=1e-3
    )
    assert f"shrunk to l2 norm {problem.row_norm:.4g}" in str(model.privacy_statement_)
    for settings in ({"standardize": False}, {"radius": 5.0}):
        fixed, _, _ = three_classes(1500, 0.1, **settings)
        assert fixed.plan_.problem.bounds.x_2 is None
        assert "shrunk" not in str(fixed.privacy_statement_)
    without, _, _ = three_classes(1500, 0.1, fit_intercept=False)
    assert without.plan_.problem.row_norm == pytest.approx(0.3 * math.sqrt(6))


def test_rows_of_two_classes_are_short_where_columns_are_not_standardised():
    settings = {"epsilon": 0.1, "delta": 1e-7, "bounds": (-8, 8), "classes": (0, 1)}
    found = dp.PrivateLogisticRegression(**settings).plan(2000, 12)
    norm = math.hypot(0.65 * math.sqrt(12), 0.3)
    assert found.problem.row_norm == pytest.approx(norm)
    assert found.stages[0].mechanism.sensitivity == pytest.approx(
        2 * found.solver.clip * norm / 2000, rel=1e-3
    )
    given = ({"standardize": False}, {"radius": 5.0}, {"uncertainty": 0.2})
    for other in (dp.PrivateLogisticRegression(**settings, **each).plan(2000, 12) for each in given):
        assert other.problem.bounds.x_2 is None


def test_short_rows_of_two_classes_find_the_classes_of_few_records():
    """If rows are not shrunk, noise in proportion to the longest one that bounds allow hides the signal."""
    rng = np.random.default_rng(0)
    y = rng.choice([0.0, 1.0], 3000)
    X = np.clip(0.25 * rng.standard_normal((3000, 12)) + 0.15 * np.outer(2 * y - 1, np.ones(12)), -1, 1)
    right = []
    for seed in range(6):
        model = dp.PrivateLogisticRegression(
            epsilon=0.1, delta=1e-7, bounds=(-1, 1), classes=(0, 1), random_state=seed, check=0
        )
        right.append(np.mean(model.fit(X, y).predict(X) == y))
    assert "shrunk to l2 norm" in str(model.privacy_statement_)
    assert np.mean(right) > 0.9


def test_rows_of_two_classes_are_shorter_the_fewer_records_there_are():
    settings = {"epsilon": 1.0, "delta": 1e-8, "bounds": (-1, 1)}
    mu = gaussian_mu(1.0, 1e-8)

    def stretch(records, model=dp.PrivateLogisticRegression, **more):
        more = more or {"classes": (0, 1)}
        return model(**settings, **more).plan(round(records * 10 / mu), 10).solver.stretch

    assert [stretch(each) for each in (20, 59, 300, 3000)] == pytest.approx([0.6, 0.6, 1.0, 1.0], rel=1e-3)
    assert stretch(math.sqrt(60 * 300)) == pytest.approx(math.sqrt(0.6), rel=1e-2)
    assert stretch(20, classes=(0, 1, 2)) == 1.0
    assert stretch(20, dp.PrivateLinearRegression, y_bounds=(0, 1)) == 1.0


@pytest.mark.parametrize(("noise", "found"), [(1e-9, 2.0), (0.3, 1.5), (1e9, 1.0)])
def test_the_length_of_rows_is_the_released_one_unless_that_is_noise(noise, found):
    assert _mean_square(1.0, 2.0, noise) == pytest.approx(found)


def test_a_hidden_length_of_rows_is_not_taken_for_a_large_one():
    """The noise is 1.6 times the length; before, the length counted as at least twice its noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1000, 4))
    lengths = []
    for seed in range(8):
        model = dp.PrivateLinearRegression(
            epsilon=0.35, delta=1e-6, bounds=(-1, 1), y_bounds=(-1, 1), random_state=seed, standardize=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lengths.append(model.fit(X, X[:, 0]).release_.region.length)
    assert np.mean(lengths) == pytest.approx(1.5 * 2, rel=0.25)  # (1 + 1/sqrt(d)) sqrt(d)


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_no_other_statement_says_that_rows_are_shrunk(epsilon):
    rng = np.random.default_rng(0)
    table = {"place": rng.choice(["a", "b", "c"], 1000), "age": rng.uniform(18, 90, 1000)}
    model = dp.PrivateLinearRegression(
        epsilon=epsilon,
        bounds={"age": (18, 90)},
        categories={"place": ["a", "b", "c"]},
        y_bounds=(0, 1),
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(pd.DataFrame(table), rng.uniform(0, 1, 1000))
    assert "shrunk to l2 norm" not in str(model.privacy_statement_)


@pytest.mark.long
def test_the_automatic_choice_uses_public_facts():
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (3000, 3)), rng.choice([0, 1], 3000)
    kept = {"bounds": (-1, 1), "classes": (0, 1), "random_state": 0}

    def standardised(records=X, **settings):
        model = dp.PrivateLogisticRegression(**kept, **settings).fit(records, y)
        return isinstance(model.plan_.solver, Standardised)

    from scipy.sparse import csr_array

    assert standardised(epsilon=1.0)
    assert standardised(epsilon=1.0, data_norm=1.0)
    assert not standardised(epsilon=1.0, radius=5.0)
    assert not standardised(epsilon=1.0, domain=dp.L2Ball(5.0))
    assert not standardised(epsilon=1.0, domain="l1")
    assert not standardised(epsilon=1.0, standardize=False)
    assert not standardised(epsilon=0.002)
    assert not standardised(csr_array(X), epsilon=1.0)
    with pytest.raises(dp.Incompatible, match="dense"):
        standardised(csr_array(X), epsilon=1.0, standardize=True)
    with pytest.raises(ValueError, match="standardize"):
        standardised(epsilon=1.0, standardize="yes")


@pytest.mark.parametrize(("widest", "lost"), [(20.0, False), (2000.0, False), (2e8, True)])
def test_a_target_lost_in_noise_is_said_from_released_numbers(widest, lost):
    """Its bounds are ten million times as wide as it is: nothing public tells, released numbers do."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    y = 5 + X @ [2.0, 1.0]
    model = dp.PrivateLinearRegression(epsilon=0.5, bounds=(-1, 1), y_bounds=(0, widest), random_state=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    said = [each for each in caught if "no larger than its noise" in str(each.message)]
    assert bool(said) == lost
    assert all(each.category is dp.UselessModelWarning for each in said)
    with warnings.catch_warnings():  # the budget is spent: who makes warnings errors has the model still
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*no larger than its noise")
        again = clone(model)
        with pytest.raises(dp.UselessModelWarning) if lost else contextlib.nullcontext():
            again.fit(X, y)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def _houses(n=60_000):
    rng = np.random.default_rng(0)
    area, rooms = rng.uniform(800, 4000, n), rng.integers(1, 9, n)
    X = np.column_stack([area, rooms, np.log(rng.uniform(20, 80, n)), rng.exponential(0.1, n)])
    return X, 50 * area + 10_000 * rooms + 20_000 * rng.normal(size=n)


@pytest.mark.parametrize("columns", ["right", "wrong"])
def test_columns_in_a_wrong_unit_are_named_in_one_warning(columns):
    """Areas are not thousands of square feet, and an age on a log scale is not in years."""
    X, y = _houses()
    low, high = [0, 0, 0, 0], [4500, 10, 5, 2] if columns == "right" else [6, 10, 110, 2]
    declared = {"bounds": (low, high), "y_bounds": (0, 4e5), "maps": None}  # maps would find the ages
    model = dp.PrivateLinearRegression(epsilon=1.0, **declared, random_state=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    said = [str(each.message) for each in caught if each.category is dp.UnrecognisedDataWarning]
    facts = model.privacy_statement_.bounds
    if columns == "right":
        assert said == []
        assert "flat" not in facts
        assert "at_end" not in facts
        return
    assert len(said) == 1
    assert "mean of x0 is within its noise of the upper bound" in said[0]
    assert "standard deviation of x2 is within its noise" in said[0]
    assert (facts["at_end"], facts["flat"]) == (["x0"], ["x2"])
    assert "unit" in str(model.privacy_statement_)


def test_doubtful_columns_follow_from_released_moments():
    means, squares = np.array([0.99, 0.99, -0.99, 0.0, 0.0, np.nan]), np.array([0, 0.2, 0, 0, 0.1, np.nan])
    assert doubtful_columns(means, squares, 0.02, 0.002) == ((2, 3), (0,))
    assert doubtful_columns(means, squares, 0.02, 0.02) == ((), (0,))  # noise hides many a useful column
    assert doubtful_columns(means, squares, 0.45, 0.45) == ((), (0, 1))
    assert doubtful_columns(means, squares, 0.5, 0.5) == ((), ())  # noise alone could put a usual mean there


@pytest.mark.parametrize("level", [20.0, 370.0])
@pytest.mark.parametrize("kind", [dp.PrivateHuberRegressor, dp.PrivateQuantileRegressor])
def test_targets_near_an_end_of_their_range_are_reached(kind, level):
    """Standardised rows have a small feature for the intercept: the set must have room for it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 3))
    y = level + X @ [2.0, -1.0, 0.5] + rng.normal(size=len(X))
    model = kind(epsilon=4.0, bounds=(-4, 4), y_bounds=(0, 400), random_state=0).fit(X, y)
    assert isinstance(model.plan_.solver, Standardised)
    assert 0.4 < np.mean(y < model.predict(X)) < 0.6


def test_several_targets_of_other_losses_are_refused_not_centred_by_the_first():
    problem = dp.Problem(dp.Quantile(0.5), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=3, outputs=2)
    with pytest.raises(dp.Incompatible, match="several targets of squared loss only"):
        Standardised(NoisyGradientDescent()).inner(problem)


def test_a_hundred_columns_have_room_for_their_coefficients():
    """In a ball of radius 3 an independent column could have a third of its coefficient here."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (22_000, 150))
    signal = X @ rng.choice([-1.0, 1.0], 150)
    y = signal / signal.std() + 0.5 * rng.normal(size=len(X))
    settings = {"epsilon": 8.0, "delta": 1e-8, "bounds": (-1, 1), "y_bounds": (-6, 6), "random_state": 0}
    model = dp.PrivateLinearRegression(**settings).fit(X[:20_000], y[:20_000])
    errors = y[20_000:] - model.predict(X[20_000:])
    assert errors.var() < 0.25 * y[20_000:].var()  # 0.2 at best, 0.3 and more with a radius of 3
    # Standard errors keep the smaller ball, which limits directions that noise hides.
    with_errors = dp.PrivateLinearRegression(**settings, uncertainty=0.2).plan(20_000, 150)
    assert with_errors.problem.C.radius == 3.0
    assert dp.PrivateLinearRegression(**settings).plan(20_000, 150).problem.C.radius == pytest.approx(
        150**0.5
    )
    assert dp.PrivateLinearRegression(**settings).plan(20_000, 5).problem.C.radius == 3.0


@pytest.mark.parametrize("domain", [dp.L2Ball(3.0), dp.L1Ball(3.0)])
def test_a_set_that_the_user_names_is_the_set_of_the_fit(domain):
    """Room is made in the default set alone."""
    known = {"epsilon": 8.0, "delta": 1e-8, "bounds": (-1, 1), "standardize": True, "domain": domain}
    for model in (
        dp.PrivateHuberRegressor(**known, y_bounds=(-6, 6)),
        dp.PrivateHuberRegressor(**known, y_bounds=(-6, 6), threshold=0.5),
        dp.PrivateQuantileRegressor(**known, y_bounds=(-6, 6)),
        dp.PrivateLogisticRegression(**known, classes=(0, 1)),
    ):
        assert domain == model.plan(20_000, 150).problem.C
