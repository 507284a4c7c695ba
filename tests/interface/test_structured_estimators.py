"""Elastic net, group, structured and low-rank regression: their sets, their parameters, what they recover."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import dpcvx
from dpcvx import (
    GroupBall,
    L1Ball,
    NuclearBall,
    PrivateElasticNet,
    PrivateGroupLasso,
    PrivateLowRankRegression,
    PrivateStructuredLasso,
    SubmodularBall,
)
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import GradientSum
from dpcvx.data.lattice import SUM_UNIT
from dpcvx.domains import Cardinality, ConcaveOfCardinality, DirectSum, FromCallable, GroupCover, Interval
from dpcvx.mechanisms.mechanism import residual_bound
from dpcvx.noise import SeededGenerator

pytestmark = pytest.mark.long

N = 300
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (N, 4))
Y = 2 * X[:, 0] - X[:, 1] + 5
TABLE = pd.DataFrame({"age": X[:, 0], "job": RNG.choice(["a", "b", "c"], N), "hours": X[:, 1]})
DECLARED = {"bounds": {"age": (0, 10), "hours": (0, 10)}, "categories": {"job": ["a", "b", "c"]}}


def model(kind, **changes):
    settings = {"epsilon": 20.0, "delta": 1e-5, "bounds": (0, 10), "y_bounds": (-5, 25), "random_state": 0}
    return kind(**{**settings, **changes})


def domain(kind, rows=X, **changes):
    return model(kind, n_iter=2, **changes).fit(rows, Y).plan_.problem.domain


# -- elastic net


def test_the_default_ridge_costs_at_most_a_tenth_of_the_constant():
    # Without a radius the fit standardises, in a ball that is 1 + sqrt(4) times as wide.
    for radius, expected in ((None, 0.1 / 9**2), (2.0, 0.025), (0.5, 0.4)):
        problem = model(PrivateElasticNet, radius=radius).fit(X, Y).plan_.problem
        assert problem.l2 == pytest.approx(expected)
        assert problem.domain == L1Ball(9.0 if radius is None else radius)
        assert problem.l2 / 2 * problem.domain.radius**2 == pytest.approx(0.1 * problem.loss_at_zero)
    assert model(PrivateElasticNet, l2=0.3).fit(X, Y).plan_.problem.l2 == 0.3
    assert model(PrivateElasticNet, l2=0).fit(X, Y).plan_.problem.l2 == 0


@pytest.mark.parametrize("l2", [0.3, 3.0])
def test_the_ridge_shrinks_as_a_ridge_does(l2):
    rows = np.column_stack([(X - 5) / 5, np.ones(N)])
    ridge = np.linalg.solve(rows.T @ rows / N + l2 * np.eye(5), rows.T @ (Y - 10) / 15 / N)
    theta = model(PrivateElasticNet, epsilon=30.0, l2=l2, standardize=False).fit(X, Y).release_.theta
    np.testing.assert_allclose(theta, ridge, atol=0.03)
    assert abs(theta).max() > 0.05


def test_only_the_elastic_net_has_a_rule_for_the_ridge():
    with pytest.raises(ValueError, match="needs l2, the ridge: 0 for none"):
        model(PrivateGroupLasso, l2=None).fit(X, Y)


# -- groups


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (None, [[0], [1, 2, 3], [4], [5]]),
        ({"person": ["age", "hours"]}, [[0, 4], [1, 2, 3], [5]]),
        ([["age"], ["job", "hours"]], [[0], [1, 2, 3, 4], [5]]),
        ([[0, 1]], [[0, 1, 2, 3], [4], [5]]),
        (["x", "y", "x"], [[0, 4], [1, 2, 3], [5]]),
        (np.array([7, 7, 2]), [[0, 1, 2, 3], [4], [5]]),
        (pd.Series(["x", "x", "x"]), [[0, 1, 2, 3, 4], [5]]),
        ((("job", "age"), np.array(["hours"])), [[0, 1, 2, 3], [4], [5]]),
    ],
)
def test_groups_in_every_form(groups, expected):
    assert domain(PrivateGroupLasso, TABLE, **DECLARED, groups=groups) == GroupBall(expected, 3.0)


def test_groups_of_numbered_columns_and_without_an_intercept():
    chosen = domain(PrivateGroupLasso, groups=[[0, 2], [3]], fit_intercept=False, radius=1.5)
    assert chosen == GroupBall([[0, 2], [1], [3]], 1.5)
    assert domain(PrivateGroupLasso, sp.csr_array(X), groups=["a", "b", "b", "a"]) == GroupBall(
        [[0, 3], [1, 2], [4]], 3.0
    )
    numbered = pd.DataFrame(X, columns=[3, 2, 1, 0])
    assert domain(PrivateGroupLasso, numbered, groups=[[3, 2]]) == GroupBall([[0, 1], [2], [3], [4]], 3.0)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("age", "groups must be a mapping"),
        (3, "groups must be a mapping"),
        ({"a": "age"}, "must be a list of columns"),
        ([["age"], "hours"], "must be a list of columns"),
        ([["age"], []], "at least one column"),
        ([["age"], ["sex"]], r"'sex' that X does not have\. Columns of X: age, job, hours\."),
        ([[3]], "3 that X does not have"),
        ([[-1]], "-1 that X does not have"),
        ([["age", "job"], ["job"]], "'job' twice.*PrivateStructuredLasso"),
        (["a", "b"], "2 labels for 3 columns"),
    ],
)
def test_wrong_groups_are_named(groups, words):
    with pytest.raises((TypeError, ValueError), match=words):
        model(PrivateGroupLasso, **DECLARED, groups=groups).fit(TABLE, Y)


def test_the_statement_names_the_groups():
    fitted = model(PrivateGroupLasso, **DECLARED, groups=[["age", "hours"]], n_iter=2).fit(TABLE, Y)
    named = fitted.privacy_statement_.public["groups"]
    assert named == [["age", "hours"], ["job=a", "job=b", "job=c"], ["intercept"]]
    wide = model(PrivateGroupLasso, n_iter=2, radius=1.25).fit(np.zeros((N, 200)), Y)
    assert wide.privacy_statement_.public["domain"].endswith("radius=1.25)")


def group_data(seed, n=20_000, d=60, size=5):
    rng = np.random.default_rng(seed)
    rows, theta = rng.uniform(-1, 1, (n, d)), np.zeros(d)
    theta[:size] = theta[3 * size : 4 * size] = 0.4
    return rows, rows @ theta + 0.1 * rng.normal(size=n), theta


def test_the_active_groups_stand_out():
    rows, y, theta = group_data(1)
    fitted = model(
        PrivateGroupLasso, epsilon=2.0, bounds=(-1, 1), y_bounds=(-2, 2), groups=np.arange(60) // 5
    )
    sizes = np.linalg.norm(fitted.fit(rows, y).coef_.reshape(12, 5), axis=1)
    active = np.linalg.norm(theta.reshape(12, 5), axis=1) > 0
    assert sizes[active].min() > 4 * sizes[~active].max()
    np.testing.assert_allclose(fitted.coef_, theta, atol=0.12)
    assert fitted.plan_.problem.domain.contains(fitted.release_.theta)


# -- set functions


def test_by_default_a_column_is_priced_once():
    prices = DirectSum([GroupCover([[0], [1, 2, 3], [4]]), GroupCover([[0]])], [5, 1])
    assert domain(PrivateStructuredLasso, TABLE, **DECLARED) == SubmodularBall(prices, 3.0)
    plain = domain(PrivateStructuredLasso, fit_intercept=False, radius=2.0)
    theta = RNG.normal(size=4)
    assert plain.minkowski(theta) == pytest.approx(L1Ball(2.0).minkowski(theta))


@pytest.mark.parametrize("function", [Interval(4, 6.0), GroupCover([[0, 1], [1, 2, 3]], [0.5, 2.0])])
def test_no_coefficient_exceeds_three_whatever_the_prices(function):
    chosen = domain(PrivateStructuredLasso, set_function=function)
    assert chosen.norm(math.inf, 5) == pytest.approx(3.0)
    assert chosen.minkowski(np.array([0, 0, 0, 0, 3.0])) == pytest.approx(1.0)  # the intercept alone
    both = chosen.minkowski(np.array([1.0, 0, 0, 0, 1.0]))
    parts = chosen.minkowski(np.array([1.0, 0, 0, 0, 0])) + chosen.minkowski(np.array([0, 0, 0, 0, 1.0]))
    assert both == pytest.approx(parts)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("cardinality", "set_function must be a set function such as"),
        (Cardinality, "set_function must be a set function such as"),
        (len, "set_function must be a set function such as"),
        (GroupCover([[0, 1, 2, 3, 4]]), "of 5 coordinates; there are 4 features"),
        (Interval(3, 2.0), "of 3 coordinates; there are 4 features"),
        (FromCallable(lambda mask: float(mask.sum() ** 2), 4), "Not submodular"),
        (FromCallable(lambda mask: float(mask[0]), 4), "positive value"),
    ],
)
def test_wrong_set_functions_are_named(function, words):
    with pytest.raises((TypeError, ValueError), match=words):
        model(PrivateStructuredLasso, set_function=function).fit(X, Y)


def test_a_set_function_of_any_size_and_one_of_your_own():
    own = FromCallable(lambda mask: math.sqrt(mask.sum()), 4)
    fitted = [
        model(PrivateStructuredLasso, set_function=function, n_iter=20).fit(X, Y)
        for function in (ConcaveOfCardinality(np.sqrt), own)
    ]
    np.testing.assert_allclose(fitted[0].release_.theta, fitted[1].release_.theta, atol=1e-9)
    for one in fitted:
        assert one.plan_.problem.domain.contains(one.release_.theta)


def test_a_contiguous_support_is_found():
    rng = np.random.default_rng(2)
    rows = rng.uniform(-1, 1, (20_000, 12))
    y = rows[:, 4:8].sum(axis=1) / 4 + 0.05 * rng.normal(size=len(rows))
    fitted = model(
        PrivateStructuredLasso, epsilon=3.0, bounds=(-1, 1), y_bounds=(-1, 1), set_function=Interval(12, 10.0)
    ).fit(rows, y)
    np.testing.assert_allclose(fitted.coef_, np.r_[np.zeros(4), np.full(4, 0.25), np.zeros(4)], atol=0.05)


# -- several targets

TARGETS = np.stack([Y, 10 - Y, X[:, 2] * 100], axis=1)
WIDE = {"y_bounds": ([-5, -15, 0], [25, 15, 1000])}


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.ndarray.tolist,
        lambda y: pd.DataFrame(y, columns=list("uvw")),
        lambda y: pl.DataFrame(y, schema=list("uvw")),
        lambda y: pa.table(dict(zip("uvw", y.T, strict=True))),
        lambda y: y.astype(object),
    ],
    ids=["array", "list", "pandas", "polars", "arrow", "objects"],
)
def test_targets_of_every_kind_in_their_own_units(convert):
    fitted = model(PrivateLowRankRegression, standardize=False, **WIDE).fit(X, convert(TARGETS))
    theta = fitted.release_.theta
    assert (theta.shape, fitted.coef_.shape, fitted.intercept_.shape) == ((5, 3), (3, 4), (3,))
    low, high = map(np.array, WIDE["y_bounds"])
    by_hand = (low + high) / 2 + (high - low) / 2 * ((X - 5) / 5 @ theta[:-1] + theta[-1])
    np.testing.assert_allclose(fitted.predict(X), by_hand, rtol=1e-9)
    reference = model(PrivateLowRankRegression, standardize=False, **WIDE).fit(X, TARGETS)
    np.testing.assert_array_equal(fitted.coef_, reference.coef_)
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        assert fitted.score(X, TARGETS) > 0.8


def test_one_target_as_a_column_or_not():
    flat = model(PrivateLowRankRegression).fit(X, Y)
    column = model(PrivateLowRankRegression).fit(X, Y[:, None])
    assert flat.coef_.shape == (4,)
    assert isinstance(flat.intercept_, float)
    assert (column.coef_.shape, column.intercept_.shape) == ((1, 4), (1,))
    assert column.predict(X).shape == (N, 1)
    np.testing.assert_array_equal(flat.coef_, column.coef_[0])
    # The nuclear ball of one column, without phases, which only l2 balls have; a named solver leaves the
    # target in its units.
    solver = replace(flat.plan_.solver, solver=replace(flat.plan_.solver.solver, phases=()))
    linear = model(dpcvx.PrivateLinearRegression, standardize=False, solver=solver).fit(X, Y)
    np.testing.assert_allclose(flat.coef_, linear.coef_, atol=1e-12)


def test_the_set_grows_with_the_number_of_targets_and_the_clip_too():
    plan = model(PrivateLowRankRegression, **WIDE).fit(X, TARGETS).plan_
    assert plan.problem.domain == NuclearBall(3 * math.sqrt(2 * 3))
    # 1 + 1.5/3 standard deviations of each target, in units of 2.5
    assert plan.solver.clip == pytest.approx((1 + 1.5 / 3) * math.sqrt(3) / 2.5)
    fixed = model(PrivateLowRankRegression, **WIDE, radius=2.0).fit(X, TARGETS)
    assert fixed.plan_.problem.domain == NuclearBall(2.0)
    assert fixed.plan_.problem.domain.contains(fixed.release_.theta)
    assert fixed.plan_.solver.clip == pytest.approx(math.sqrt(3))  # of residuals (1, 1, 1) at theta = 0


@pytest.mark.parametrize("standardize", [False, "auto"])
def test_no_pair_of_people_moves_the_gradient_beyond_the_sensitivity(standardize):
    settings = {**WIDE, "n_iter": 1, "standardize": standardize}
    mechanism = model(PrivateLowRankRegression, **settings).fit(X, TARGETS).plan_.stages[-1].mechanism
    problem = mechanism.problem
    rng = np.random.default_rng(0)
    corners = np.column_stack([rng.choice([-1.0, 1.0], (40, 4)), np.ones(40)])
    corners *= problem.row_norm / math.sqrt(5)
    people = [
        dpcvx.source(row[None], y[None], bounds=problem.bounds)
        for row, y in zip(corners, rng.choice([-1.0, 1.0], (40, 3)), strict=True)
    ]
    worst = 0.0
    for theta in (np.zeros((5, 3)), problem.domain.project(rng.normal(size=(5, 3)))):
        bound = residual_bound(problem, problem.margin_bound(theta), mechanism.clip)
        shares = [person.sum(GradientSum(problem.loss, theta, bound)) * SUM_UNIT / N for person in people]
        worst = max(worst, *(float(np.linalg.norm(one - other)) for one in shares for other in shares))
    assert 0.9 * mechanism.sensitivity < worst <= mechanism.sensitivity


def _several(n, width):
    """Four targets of two combinations of six columns, in bounds of very different widths."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 10, (n, 6))
    signal = (rows - 5) @ rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
    y = signal / signal.std(axis=0) + 0.5 * rng.standard_normal((n, 4)) + [0, 1, -2, 3]
    units = np.array([1.0, 1.0, 100.0, 0.01])
    settings = {"y_bounds": (-width * units, width * units), "bounds": (0, 10), "delta": 1e-8}
    return rows, y * units, settings


@pytest.mark.parametrize("width", [6.0, 60.0])
def test_several_targets_are_found_in_wide_bounds(width):
    """Noise follows the spread of the targets: R^2 was -8 with bounds of 60 standard deviations."""
    rows, y, settings = _several(6000, width)
    kept = {"epsilon": 1.0, "random_state": 0, **settings}
    fitted = PrivateLowRankRegression(**kept).fit(rows[:4000], y[:4000])
    assert isinstance(fitted.plan_.solver, dpcvx.solvers.Standardised)
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        found = fitted.score(rows[4000:], y[4000:])
    assert found > 0.7
    by_bounds = PrivateLowRankRegression(**kept, standardize=False).fit(rows[:4000], y[:4000])
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        assert by_bounds.score(rows[4000:], y[4000:]) < found - (0.03 if width == 6 else 1.0)


def test_few_records_of_several_targets_have_the_means_as_their_model():
    rows, y, settings = _several(500, 6.0)
    with pytest.warns(dpcvx.UselessModelWarning):
        fitted = PrivateLowRankRegression(epsilon=0.5, random_state=0, **settings).fit(rows, y)
    assert isinstance(fitted.plan_.solver, dpcvx.solvers.ConstantModel)
    assert not fitted.coef_.any()
    np.testing.assert_allclose(fitted.intercept_ / y.std(axis=0), y.mean(axis=0) / y.std(axis=0), atol=1.5)


def test_a_replayed_fit_of_several_targets_asks_the_same_of_a_neighbour():
    """Public arguments follow from answers alone, and no sum moves by more than its sensitivity."""
    rows, y, settings = _several(200, 6.0)
    plan = PrivateLowRankRegression(epsilon=3.0, maps=None, n_iter=3, **settings).fit(rows, y).plan_
    assert [type(stage.mechanism).__name__ for stage in plan.stages[:1]] == ["NoisyTarget"]
    scaled, other = y / settings["y_bounds"][1], np.array(y / settings["y_bounds"][1])
    other[7] = [1.0, -1.0, math.nan, 1.0]
    cells = (rows - 5) / 5
    moved = cells.copy()
    moved[7] = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0]
    first = dpcvx.source(cells, scaled, bounds=plan.problem.bounds)
    second = dpcvx.source(moved, other, bounds=plan.problem.bounds)
    transcript = record(plan, first, SeededGenerator(0))
    assert discrepancies(plan, transcript, replay(plan, second, SeededGenerator(5), transcript)) == []


@pytest.mark.parametrize(
    ("y", "bounds", "words"),
    [
        (TARGETS, ([0, 0], [1, 1]), "one entry for each target"),
        (Y, ([0, 0], [1, 1]), "pair .low, high. of numbers, got"),
        (TARGETS, ([0, 0, 5], [1, 1, 5]), "low < high"),
        (TARGETS, [(0, 1e5, 1), (0, 60, 2)], r"low < high, got .*all lows, then all highs"),
        (TARGETS, None, "needs y_bounds"),
        (TARGETS[:-1], (0, 1), "300 rows but y has 299"),
        (TARGETS[:, :0], (0, 1), r"shape \(n, K\) or \(n,\)"),
        (TARGETS[None], (0, 1), r"shape \(n, K\) or \(n,\)"),
        (sp.csr_array(TARGETS), (0, 1), "y must be dense"),
        ([*TARGETS[:-1].tolist(), None], (0, 1), "same number of cells"),
        ([*TARGETS[:-1].tolist(), [1.0]], (0, 1), "same number of cells"),
    ],
    ids=[
        "bounds",
        "flat",
        "constant",
        "pairs",
        "none",
        "short",
        "empty",
        "deep",
        "sparse",
        "odd row",
        "ragged",
    ],
)
def test_wrong_targets_are_refused(y, bounds, words):
    with pytest.raises((TypeError, ValueError), match=words):
        model(PrivateLowRankRegression, y_bounds=bounds).fit(X, y)


def test_a_missing_target_has_no_part_and_the_others_of_its_row_have():
    """A value of 500 is the middle of the third target's bounds, as which a missing one counted before."""
    blank, middle = TARGETS.copy(), TARGETS.copy()
    blank[:9, 2], middle[:9, 2] = np.nan, 500.0
    odd = np.where(np.isnan(blank), np.inf, blank)
    fits = [model(PrivateLowRankRegression, **WIDE, n_iter=5).fit(X, y).coef_ for y in (blank, odd, middle)]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])


def test_targets_of_low_rank_are_predicted_together():
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (20_000, 20))
    scores = rows @ rng.normal(size=(20, 1)) @ rng.normal(size=(1, 6))
    y = np.clip(scores / 8 + 0.05 * rng.normal(size=scores.shape), -1, 1)
    fitted = model(PrivateLowRankRegression, epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1)).fit(rows, y)
    singular = np.linalg.svd(fitted.coef_, compute_uv=False)
    assert singular[0] > 5 * singular[1]
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        assert fitted.score(rows, y) > 0.8
