"""Every query keeps its promise: JSON both ways, the minimiser it says, an error within its sensitivity."""

import itertools
import json

import numpy as np
import pytest
from scipy.optimize import minimize

from dpcvx.domains import SETS as KNOWN_SETS
from dpcvx.domains import Box, GroupBall, L1Ball, L2Ball, LinfBall, Simplex, VertexHull
from dpcvx.losses import Huber, Logistic, Quantile, Sigmoid, SmoothHinge, Squared
from dpcvx.queries import Attribute, Binned, Count, Marginal, Mean, Regression, Schema, query_from_json
from dpcvx.queries.compiled import TOLERANCE
from dpcvx.vouched import is_vouched

SCHEMA = Schema(
    (
        Attribute("sex", ("f", "m"), "m"),
        Attribute("work", ("none", "part", "full"), "full"),
        Binned("age", (18.0, 30.0, 50.0, 90.0), 40),
        Attribute("income", ("low", "high"), "high"),
    )
)
N = 40
QUERIES = [
    *(
        Regression("income", ("sex", "age", "work"), loss=loss, domain=domain)
        for loss in ("logistic", "squared", "huber", "smooth_hinge", "quantile")
        for domain in ("l2", "l1")
    ),
    Regression("age", ("sex", "work"), loss=Huber(0.2), domain=Box(-1.0, 2.0)),
    Regression("age", ("sex",), loss=Quantile(0.8), domain=LinfBall(1.5)),
    Regression("income", ("sex", "age"), loss=SmoothHinge(0.3), domain=Simplex(2.0), l2=0.3),
    Regression("income", (), loss="logistic", radius=1.0),
    Regression("income", ("sex", "age", "work"), interactions=(("age", "sex"), ("work", "age"))),
    Regression("age", ("sex", "work"), "squared", "l1", 1.0, interactions=[("sex", "work")]),
    Count({"sex": ["f"], "age": ["[18, 30)", "[50, 90]"]}),
    Mean("age"),
    Mean("income", {"work": ["part", "full"]}),
    Mean("age", {"age": ["[18, 30)", "[30, 50)"], "sex": ["m"]}),
    Marginal(("sex", "work")),
]
over_queries = pytest.mark.parametrize("query", QUERIES, ids=lambda query: json.dumps(query.to_json()))


def random_weights(question, rng):
    m = int(np.prod(question.sizes))
    return rng.multinomial(N, rng.dirichlet(np.full(m, 0.3))) / N


@over_queries
def test_json_goes_both_ways(query):
    text = json.dumps(query.to_json())
    assert query_from_json(json.loads(text)).to_json() == query.to_json()
    assert query_from_json(json.loads(text)).compile(SCHEMA, N).names == query.compile(SCHEMA, N).names


def test_thresholds_in_standard_deviations_are_no_part_of_a_query():
    with pytest.raises(ValueError, match="are for estimators"):
        Regression("age", ["sex"], loss=Huber(0.2, threshold_deviations=1.3)).to_json()


@over_queries
def test_answers_are_minimisers(query):
    question, rng = query.compile(SCHEMA, N), np.random.default_rng(0)
    for _ in range(3):
        weights = random_weights(question, rng)
        theta = question.answer(weights)
        assert theta.shape == (len(question.names),)
        assert question.error(weights, theta) * N <= 2 * TOLERANCE * question.range(theta) + 1e-9
        if hasattr(question, "problem"):
            assert question.problem.C.contains(theta, 1e-6)
            other = question.problem.C.project(theta + rng.normal(size=theta.shape))
            assert question.error(weights, other) >= -1e-9


@pytest.mark.parametrize("loss", ["logistic", "squared", "smooth_hinge", "huber"])
def test_errors_agree_with_an_independent_minimiser(loss):
    question = Regression("income", ("sex", "age", "work"), loss=loss, radius=1.0).compile(SCHEMA, N)
    rng, found = np.random.default_rng(1), 0.0
    for _ in range(4):
        weights = random_weights(question, rng)
        theta = question.problem.C.project(rng.normal(size=len(question.names)))

        def value(point, weights=weights):
            return float(weights @ question.problem.loss.value(question.X @ point, question.y))

        ball = {"type": "ineq", "fun": lambda point: 1.0 - point @ point}
        best = minimize(value, np.zeros_like(theta), constraints=[ball], method="SLSQP", tol=1e-12).fun
        error = question.error(weights, theta)
        assert error == pytest.approx(value(theta) - best, abs=TOLERANCE * question.range(theta) / N + 1e-7)
        found = max(found, error)
    assert found > 0.01


@over_queries
def test_errors_move_by_no_more_than_their_sensitivity(query):
    question, rng = query.compile(SCHEMA, N), np.random.default_rng(2)
    m = int(np.prod(question.sizes))
    largest = 0.0
    for trial in range(6):
        counts = rng.multinomial(N, rng.dirichlet(np.full(m, 0.05 if trial % 2 else 1.0)))
        theta = question.answer(random_weights(question, rng))
        if trial == 0 and hasattr(question, "problem"):
            theta = question.problem.C.start(question.problem.d)
        sensitivity = question.range(theta) / N
        before = question.error(counts / N, theta)
        for old in np.flatnonzero(counts)[:2]:
            for new in rng.choice(m, min(m, 5), replace=False):
                moved = counts.copy()
                moved[old] -= 1
                moved[new] += 1
                change = abs(question.error(moved / N, theta) - before)
                assert change <= sensitivity * (1 + 2 * TOLERANCE)
                largest = max(largest, change / sensitivity)
    assert largest > 0.1  # not vacuous
    assert question.range(theta) <= 2 * question.scale * (1 + 1e-6)


def test_the_sensitivity_of_an_error_is_reached():
    # All records agree, one of them turns: PRIVACY_MATH §9.1.
    question = Regression("income", (), loss="logistic", radius=3.0).compile(SCHEMA, N)
    theta = np.zeros(1)
    errors = [question.error(np.array([N - k, k]) / N, theta) for k in (0, 1)]
    largest = abs(errors[0] - errors[1]) * N / question.range(theta)
    assert 0.9 < largest <= 1 + 2 * TOLERANCE


def test_scale_and_range_are_the_extremes_over_set_and_cells():
    rng = np.random.default_rng(3)
    for loss, domain in itertools.product(
        ("logistic", "squared", "huber"), (L2Ball(2.0), L1Ball(2.0), Box(-1.0, 1.5))
    ):
        question = Regression("age", ("sex", "work"), loss="squared", domain=domain).compile(SCHEMA, N)
        if loss != "squared":
            target = "income" if loss == "logistic" else "age"
            question = Regression(target, ("sex", "work"), loss=loss, domain=domain).compile(SCHEMA, N)
        points = [domain.lmo(rng.normal(size=len(question.names))) for _ in range(60)]
        points += [domain.project(rng.normal(size=len(question.names))) for _ in range(60)]
        values = np.array([question.problem.loss.value(question.X @ p, question.y) for p in points])
        spread = (values.max(axis=0) - values.min(axis=0)).max()
        assert 0.6 * question.scale < spread <= question.scale
        gaps = values[0] - values  # terms of the error of the first point
        moved = (gaps.max(axis=1) - gaps.min(axis=1)).max()
        assert moved <= question.range(points[0])


def test_the_certificate_is_the_slope_towards_a_better_point():
    rng = np.random.default_rng(4)
    question = Regression("income", ("sex", "age")).compile(SCHEMA, N)
    theta, better = (question.problem.C.project(rng.normal(size=3)) for _ in range(2))
    h = 1e-6
    for cell in range(len(question.y)):
        one = np.zeros(len(question.y))
        one[cell] = 1.0
        ahead, here = question._margins(theta + h * (better - theta)), question._margins(theta)
        loss = question.rounded_loss
        slope = one @ (loss.value(ahead, question.y) - loss.value(here, question.y)) / h
        assert question.certificate(theta, better)[cell] == pytest.approx(slope, abs=1e-4)
    assert np.abs(question.certificate(theta, better)).max() <= question.scale


def test_near_questions_show_errors_between_their_reach_and_all():
    rng = np.random.default_rng(5)
    for trial in range(10):
        question = Regression("income", ("sex", "age", "work"), l2=0.5 * (trial % 2)).compile(SCHEMA, N)
        weights = random_weights(question, rng)
        theta = question.problem.C.project(2 * rng.normal(size=len(question.names)))
        best = question.answer(weights)
        assert question.near(best, 0.1).error(weights, best) <= question.error(weights, best) + 1e-3
        whole = question.error(weights, theta)
        for reach in (0.05, 0.3, 1.0):
            near = question.near(theta, reach)
            slack = TOLERANCE * question.range(theta) / N
            assert reach * whole - slack <= near.error(weights, theta) <= whole + slack
            assert near.range(theta) <= 2.5 * reach * question.range(theta) + 1e-6


def test_answers_of_linear_queries_are_the_counts_means_and_shares():
    sizes = (2, 3, 3, 2)
    records = np.random.default_rng(6).integers(0, sizes, size=(N, 4))
    sex, work, age, income = records.T
    middles = np.array([24.0, 40.0, 70.0])

    def answered(query):
        question = query.compile(SCHEMA, N)
        axes = records[:, question.attributes].T
        counts = np.bincount(
            np.ravel_multi_index(tuple(axes), question.sizes), minlength=np.prod(question.sizes)
        )
        return query.reading(SCHEMA, N).numbers(question.answer(counts / N))

    assert answered(Count({"sex": ["f"], "age": ["[18, 30)", "[50, 90]"]})) == pytest.approx(
        ((sex == 0) & (age != 1)).sum()
    )
    assert answered(Mean("age")) == pytest.approx(middles[age].mean())
    assert answered(Mean("income", {"work": ["part", "full"]})) == pytest.approx(
        income[work > 0].mean(), abs=1e-3
    )
    chosen = (age < 2) & (sex == 1)
    assert answered(Mean("age", {"age": ["[18, 30)", "[30, 50)"], "sex": ["m"]})) == pytest.approx(
        middles[age[chosen]].mean(), abs=0.05
    )
    table = answered(Marginal(("sex", "work")))
    assert table[:6].reshape(2, 3)[1, 2] == pytest.approx(((sex == 1) & (work == 2)).sum())
    margins = [(sex == 0).sum(), (sex == 1).sum(), *np.bincount(work, minlength=3), N]
    assert table[6:] == pytest.approx(margins)


MISSING = Schema(
    (
        Attribute("sex", ("f", "m"), other="none"),
        Attribute("work", ("none", "part", "full"), other="unknown"),
        Binned("age", (18, 30, 50, 90), missing="none"),
        Binned("wage", (0, 10, 30, 100), 20),
    )
)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("loss", "target"), [("squared", "wage"), ("huber", "sex"), ("logistic", "sex")])
def test_coefficients_in_the_tables_units_predict_what_the_coded_ones_do(loss, target, intercept):
    """For every kind of person, from the names and numbers that an analyst reads alone."""
    features = tuple(name for name in ("sex", "work", "age") if name != target)
    query = Regression(target, features, loss=loss, intercept=intercept)
    question = query.compile(MISSING, N)
    theta = np.random.default_rng(1).normal(size=len(question.names))
    reading = query.reading(MISSING, N)
    shown = dict(zip(reading.names, reading.numbers(theta), strict=True))
    low, high = {"wage": (0, 100), "sex": (0, 1)}[target] if loss != "logistic" else (-1, 1)
    sizes = question.sizes
    for cell in np.ndindex(*sizes):
        x = question.X.reshape(*sizes, -1)[cell]
        if not x.any():  # without a target: left out
            continue
        predicted = shown["intercept"]
        for name, code in zip(features, cell[1:], strict=True):
            attribute = MISSING[name]
            if name != "age":
                label = f"{name}={attribute.labels[code]}"
                predicted += shown[label if code else f"{label} (baseline)"]
            elif code < attribute.known:
                predicted += shown["age"] * attribute.midpoints[code]
            else:
                predicted += shown["age"] * 54 + shown["age=none (against 54)"]
        assert predicted == pytest.approx(low + (x @ theta + 1) / 2 * (high - low))
    assert [shown[name] for name in shown if "(baseline)" in name] == [0.0] * (len(features) - 1)


def test_a_missing_feature_is_a_level_of_its_own():
    question = Regression("wage", ("sex", "work", "age"), loss="squared").compile(MISSING, N)
    assert question.names[1:3] == ("sex=m", "sex=none")
    assert "work=unknown" in question.names
    assert question.names[-2:] == ("age", "age=none")
    X = question.X.reshape(3, 3, 4, 4, -1)
    assert X[0, 2, 3, 3].tolist() == [1, 0, 1, 0, 0, 0, 1, 0, 1]


def test_features_are_signs_midpoints_and_indicators():
    question = Regression("income", ("sex", "age", "work")).compile(SCHEMA, N)
    assert question.names == ("intercept", "sex=m", "age", "work=none", "work=part", "work=full")
    row = question.X.reshape(2, 2, 3, 3, 6)[0, 1, 2, 1]
    assert row == pytest.approx([1.0, 1.0, (70 - 54) / 36, 0.0, 1.0, 0.0])
    assert question.y.reshape(2, -1)[:, 0].tolist() == [-1.0, 1.0]


WRONG = [
    None,
    [],
    {"kind": "sum"},
    {"kind": "count"},
    {"kind": "count", "where": {}},
    {"kind": "count", "where": {"sex": []}},
    {"kind": "count", "where": {"sex": "f"}},
    {"kind": "count", "where": {"sex": [1]}},
    {"kind": "mean", "of": 3},
    {"kind": "marginal", "attributes": "sex"},
    {"kind": "marginal", "attributes": []},
    {"kind": "marginal", "attributes": ["sex", "sex"]},
    {"kind": "regression", "target": "income"},
    {"kind": "regression", "target": "income", "features": ["income"]},
    {"kind": "regression", "target": "income", "features": ["sex"], "loss": "cubic"},
    {
        "kind": "regression",
        "target": "income",
        "features": ["sex"],
        "loss": {"name": "huber", "threshold": -1},
    },
    {"kind": "regression", "target": "income", "features": ["sex"], "loss": {"name": "huber", "width": 1}},
    {"kind": "regression", "target": "income", "features": ["sex"], "loss": {"name": ["huber"]}},
    {"kind": "regression", "target": "income", "features": ["sex"], "set": "ball"},
    {"kind": "regression", "target": "income", "features": ["sex"], "set": {"name": "Box", "low": 1}},
    {
        "kind": "regression",
        "target": "income",
        "features": ["sex"],
        "set": {"name": "Box", "low": 1, "high": 0},
    },
    {"kind": "regression", "target": "income", "features": ["sex"], "radius": True},
    {"kind": "regression", "target": "income", "features": ["sex"], "radius": float("nan")},
    {"kind": "regression", "target": "income", "features": ["sex"], "radius": 1e9},
    {"kind": "regression", "target": "income", "features": ["sex"], "intercept": 1},
    {"kind": "regression", "target": "income", "features": ["sex"], "intercept": False},
    {"kind": "regression", "target": "income", "features": ["sex"], "extra": 1},
]


@pytest.mark.parametrize("content", WRONG, ids=repr)
def test_wrong_descriptions_are_refused_by_name(content):
    with pytest.raises(ValueError, match=r"\w"):
        query_from_json(content)


@pytest.mark.parametrize(
    "query",
    [
        Regression("height", ("sex",)),
        Regression("work", ("sex",)),
        Count({"sex": ["x"]}),
        Mean("work"),
        Marginal(("sex", "height")),
        Regression("income", ("sex",), domain=VertexHull(((0.0, 0.0), (1.0, 0.0)))),
    ],
    ids=["target", "labels", "level", "number", "attribute", "set"],
)
def test_queries_that_do_not_fit_the_schema_are_refused(query):
    with pytest.raises(ValueError, match=r"\w"):
        query.compile(SCHEMA, N)


def test_losses_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="convex"):
        Regression("income", ("sex",), loss=Sigmoid())

    class Steeper(Squared):
        pass

    with pytest.raises(ValueError, match="declares"):
        Regression("income", ("sex",), loss=Steeper()).compile(SCHEMA, N)
    assert Regression("income", ("sex",), loss=Logistic()).compile(SCHEMA, N).scale > 0


def test_queries_on_too_many_cells_are_refused():
    wide = Schema(tuple(Attribute(f"a{i}", tuple(range(8)), 7) for i in range(6)))
    regression = Regression("a0", [f"a{i}" for i in range(1, 6)], loss="squared").compile(wide, N)
    with pytest.raises(ValueError, match="cells"):  # answered from pairs, never from cells
        regression.answer(np.ones(1))
    with pytest.raises(ValueError, match="cells"):
        Marginal([f"a{i}" for i in range(5)]).compile(wide, N)


def test_a_description_is_the_same_after_a_trip_through_json():
    """A retry is known by its description: one with the corners of a box was taken for another question."""
    for domain in (Box((0.0, 0.5), (1.0, 2.0)), L1Ball(2.0), Simplex(1.0), "l1"):
        content = Regression("a", ("b",), domain=domain).to_json()
        assert json.loads(json.dumps(content)) == content


SETS = [L2Ball(3.0), L1Ball(2.0), LinfBall(1.5), Box(-1.0, 2.0), Box((0.5, -2, -3, 0, 1), 4.0), Simplex(2.0)]
SETS += [GroupBall([1, 3, 1], 2.0), GroupBall(2, 0.5)]


@pytest.mark.parametrize("domain", SETS, ids=repr)
def test_compiled_projections_are_those_of_the_sets(domain):
    from dpcvx.queries.descent_kernels import project

    rng = np.random.default_rng(5)
    points = [scale * rng.normal(size=5) for scale in (0.01, 0.3, 1.0, 10.0, 1e4) for _ in range(8)]
    for v in (*points, np.zeros(5), np.full(5, 0.4), np.array([3.0, 0, 0, 0, -3.0])):
        found = project(v, tuple(domain.projection_form(5)))
        np.testing.assert_allclose(found, domain.project(v), rtol=1e-12, atol=1e-12 * np.abs(v).max())


def test_every_vouched_set_has_a_compiled_projection():
    assert {type(each) for each in SETS} == {kind for kind in KNOWN_SETS if is_vouched(kind, "queries")}


REFERENCE = [
    Regression("income", ("sex", "age", "work"), loss=loss, domain=domain, l2=l2)
    for loss in ("logistic", "squared", "smooth_hinge", "huber", "quantile")
    for domain in ("l2", "l1", LinfBall(1.0), Simplex(2.0))
    for l2 in (0.0, 0.2)
]


@pytest.mark.parametrize("query", REFERENCE, ids=repr)
def test_a_public_number_of_steps_reaches_the_minimum(query):
    """Against the certified minimiser at 10^9 records, whose Frank-Wolfe gap bounds its own error."""
    question, fine = query.compile(SCHEMA, N), query.compile(SCHEMA, 10**9)
    rng = np.random.default_rng(6)
    for trial in range(3):
        weights = random_weights(question, rng) if trial else np.eye(question.y.size)[3]
        theta = question.problem.C.project(rng.normal(size=len(question.names)))
        for each, exact in ((question, fine), (question.near(theta, 0.3), fine.near(theta, 0.3))):
            best = exact._certified_minimiser(weights, 1e-9)
            losses = [each.rounded_loss.value(each._margins(point), each.y) for point in (theta, best)]
            points = [each._point(point) for point in (theta, best)]
            error = weights @ (losses[0] - losses[1])
            error += query.l2 / 2 * (points[0] @ points[0] - points[1] @ points[1])
            found = each.error(weights, theta)
            assert found >= error - TOLERANCE / 2 * each.range(theta) / N - 1e-12
            assert found <= error + 2e-9


def test_a_regression_over_a_condition_is_that_of_the_records_that_satisfy_it():
    schema = Schema(
        (Attribute("y", (0, 1), 0), Attribute("x", (0, 1), 0), Attribute("town", ("a", "b", "c"), "a"))
    )
    query = Regression("y", ("x",), loss="squared", radius=5, where={"town": ["a", "c"]})
    compiled = query.compile(schema, 1000)
    weights = np.random.default_rng(0).random(compiled.sizes)
    weights /= weights.sum()
    inside = weights[:, :, [0, 2]].sum(axis=2)
    alone = Regression("y", ("x",), loss="squared", radius=5).compile(schema, 1000)
    expected = alone.answer(inside.ravel() / inside.sum())
    assert compiled.answer(weights.ravel()) == pytest.approx(expected, abs=0.02)
    assert query_from_json(query.to_json()) == query
    assert "where" not in Regression("y", ("x",)).to_json()
    with pytest.raises(ValueError, match="no level"):
        Regression("y", ("x",), where={"town": ["z"]}).compile(schema, 1000)


def test_large_regressions_have_no_condition():
    wide = Schema(tuple(Attribute(f"a{i}", tuple(range(8)), 0) for i in range(6)))
    names = [f"a{i}" for i in range(1, 6)]
    with pytest.raises(ValueError, match="with a condition"):
        Regression("a0", names, loss="squared", where={"a1": ["1", "2"]}).compile(wide, 100)
