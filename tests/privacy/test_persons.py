"""Persons with several rows: what a whole person can change, whose rows are whose, and what nobody learns."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import dpcvx as dp
from dpcvx import cli
from dpcvx.accounting import WEIGHT, Budget, Neighbours, Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import (
    CurvatureBound,
    CurvatureSum,
    DifferenceSum,
    GoodnessSum,
    GradientSum,
    LengthSum,
    LogLosses,
    MomentSum,
    ResidualBound,
    RowBounds,
    SquaredErrors,
    TargetSum,
    integer_bounds,
)
from dpcvx.data import units as units_module
from dpcvx.data.curvature import CurvatureTotals
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense
from dpcvx.data.units import persons, survey_weights, weighted_persons
from dpcvx.errors import Incompatible, PrivacyLeakWarning, UnrecognisedDataWarning, WrongValue
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyDifference, NoisyQuantile
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import (
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisySVRG,
    ObjectivePerturbation,
    OneStep,
    OutputPerturbation,
    Standardised,
    SufficientStatistics,
)
from dpcvx.tuning import tune

D = 3
BOUNDS = dp.Bounds(1.0, 1.5)
PERSON = Neighbours("replace", "person", weight=WEIGHT)
UNIT = 2**14
REGRESSION = {"epsilon": 2.0, "bounds": (-1, 1), "y_bounds": (-1, 1), "random_state": 0}


def of(ids, X, y, neighbours=None, layout="rows", n=None, max_rows=None, sparse=False):
    """Source of rows with ids."""
    units = persons(ids, declared=n, max_rows=max_rows)
    rows = Quantiser(BOUNDS).quantise(csr_array(X) if sparse else X)
    y = np.asarray(y, dtype=float).reshape(len(X), -1)
    weights, owners = units.weigh(rows, y), units.owners
    return Arrays(rows, y, bounds=BOUNDS, layout=layout, weights=weights, units=units.n, owners=owners)


def person(generator, m):
    """Rows of one person, extreme ones among them, and targets, some missing."""
    rows = generator.choice([-9.0, -1.0, 0.0, 0.3, 1.0, 9.0], (m, D))
    if generator.random() < 0.5:
        rows[:] = rows[0]
    return rows, generator.choice([-1.0, 1.0, 0.2, np.nan], m)


QUESTIONS = {
    "gradient": GradientSum(dp.Squared(), np.zeros(D), ResidualBound(2**20, 2**20)),
    "means": MomentSum(1, np.zeros(D + 1, int), np.full(D + 1, UNIT), math.isqrt(2 * UNIT**2), 2**15),
    "squares": MomentSum(2, np.array([0, UNIT, -UNIT, 3000]), np.full(D + 1, UNIT)),
    "length": LengthSum(),
    "target": TargetSum(0.2, 0.5),
    "squared errors": GoodnessSum(np.array([0.5, -0.5, 0.2]), SquaredErrors(1.0, 1.0)),
    "log-losses": GoodnessSum(np.array([9.0, -9.0, 4.0]), LogLosses(0.5)),
    "curvature": CurvatureSum(
        dp.Squared(),
        np.zeros(D),
        ResidualBound(2**20, 2**20),
        CurvatureBound(2**12, 12),
        CurvatureBound(2**12, 12),
    ),
}


@pytest.mark.parametrize("max_rows", [None, 3])
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_two_persons_are_further_apart_than_the_sensitivity_and_some_are_as_far(name, max_rows):
    question, generator = QUESTIONS[name], np.random.default_rng(0)
    row = RowBounds(D, *integer_bounds(BOUNDS, D))
    neighbours = replace(PERSON, rows=max_rows or 1)
    answers = []
    for m in (1, 1, 1, 2, 3, 7, 100, 20_000):
        for _ in range(8 if m < 50 else 1):
            rows, y = person(generator, m)
            answers.append(of(np.zeros(m), rows, y, max_rows=max_rows).sum(question))
    answers.append(of([None], np.ones((1, D)), [1.0], n=1, max_rows=max_rows).sum(question))  # nobody
    edge = np.full((1, D), 1.5 / math.sqrt(3))
    for sign in (-1, 1):
        k = max_rows or 1
        answers.append(
            of(np.zeros(k), np.repeat(sign * edge, k, 0), [-1.0] * k, max_rows=max_rows).sum(question)
        )
        answers.append(
            of(np.zeros(k), np.repeat(edge, k, 0), [float(sign)] * k, max_rows=max_rows).sum(question)
        )
    reached = 0.0
    for one in answers:
        for other in answers:
            for distance, allowed in question.distances(one, other, row, neighbours):
                assert distance <= allowed
                reached = max(reached, distance / allowed)
    assert reached > 0.9


def test_no_two_persons_are_further_apart_in_a_sampled_difference():
    """Whole persons are sampled, and the difference of a person's residuals is at most that of one row."""
    generator, row = np.random.default_rng(7), RowBounds(D, *integer_bounds(BOUNDS, D))
    points = np.array([0.6, -0.5, 0.4]), np.array([-0.4, 0.3, 0.1])
    residual, bound = ResidualBound(2**21, 2**21), ResidualBound(2**18, 2**18)
    for sparse in (False, True):
        answers = []
        for m in (1, 1, 2, 7, 300, 5000):
            rows, y = person(generator, m)
            source = of(
                np.r_[np.zeros(m), 1, 1], np.vstack([rows, np.ones((2, D))]), [*y, 1, 1], sparse=sparse
            )
            question = DifferenceSum(dp.Squared(), points, np.array([0]), residual, bound)
            answers.append(source.sum(question))
            assert not source.sum(replace(question, batch=np.array([], dtype=np.int64))).any()
        for one in answers:
            for other in answers:
                ((distance, allowed),) = question.distances(one, other, row, PERSON)
                assert distance <= allowed
        assert any(answer.any() for answer in answers)


@pytest.mark.parametrize("max_rows", [None, 2])
def test_a_sample_of_persons_has_all_rows_of_each_and_no_others(max_rows):
    generator = np.random.default_rng(3)
    ids = generator.permutation(np.repeat(np.arange(6), [1, 2, 3, 1, 4, 2]))
    X, y = generator.choice([-1.0, 0.3, 1.0], (13, D)), generator.choice([-1.0, 1.0], 13)
    points, bound = (np.full(D, 0.4), np.zeros(D)), ResidualBound(2**20, 2**20)
    everybody = of(ids, X, y, max_rows=max_rows)
    numbers = persons(ids).owners

    def total(source, batch):
        return source.sum(DifferenceSum(dp.Logistic(), points, np.array(batch), bound, bound))

    alone = []
    for number in range(6):
        own = numbers == number
        alone.append(total(of(ids[own], X[own], y[own], max_rows=max_rows), [0]))
        assert (total(everybody, [number]) == alone[-1]).all()
    assert abs(np.array(alone)).max() > 0
    assert (total(everybody, [1, 4]) == alone[1] + alone[4]).all()
    assert (total(everybody, range(6)) == np.sum(alone, axis=0)).all()


@pytest.mark.long
@pytest.mark.parametrize("max_rows", [None, 2])
def test_a_fit_on_samples_of_persons_is_replaced_without_a_violation(max_rows):
    PLANS["svrg"] = problem(l2=0.1), NoisySVRG(n_epochs=1, n_steps=3, batch=3)
    try:
        assert not audit("svrg", max_rows)
    finally:
        del PLANS["svrg"]


def test_the_noise_of_sampled_persons_covers_all_of_their_kept_rows():
    """Two persons of r rows each are 2 r C apart in a sample, and the noise is the multiplier times r C."""
    points = np.array([0.6, -0.5, 0.4]), np.array([-0.4, 0.3, 0.1])
    single, kept = (NoisyDifference(problem(), 4, 0.5, 1.0, replace(PERSON, rows=rows)) for rows in (1, 3))
    assert kept.sensitivity == pytest.approx(3 * single.sensitivity, rel=1e-6)
    assert kept.noise == pytest.approx(3 * single.noise, rel=1e-6)
    assert kept.event == single.event
    bound, largest = kept.bound(*points), 0
    edge = np.full(D, 1.5 / math.sqrt(3))
    answers = [
        of(np.zeros(3), np.tile(sign * edge, (3, 1)), [y] * 3, max_rows=3).sum(
            DifferenceSum(dp.Squared(), points, np.array([0]), ResidualBound(2**22, 2**22), bound)
        )
        for sign in (-1, 1)
        for y in (-1.0, 1.0)
    ]
    for one in answers:
        for other in answers:
            largest = max(largest, np.linalg.norm((one - other).astype(float)))
    assert largest <= 2 * kept._gaussian(bound).sensitivity


@pytest.mark.parametrize("max_rows", [2, 3])
def test_private_bounds_and_the_check_count_persons_whatever_rows_are_kept(max_rows):
    """Rows of a person share one weight there, so that the price is that of one row for each person."""
    X, y, ids = people(4, n=2000)
    settings = {**REGRESSION, "bounds": "private"}
    plain = dp.PrivateLinearRegression(**settings).fit(X, y, groups=ids)
    kept = dp.PrivateLinearRegression(**settings, max_rows=max_rows).fit(X, y, groups=ids)
    assert [stage.mechanism for stage in kept.plan_.before] == [
        stage.mechanism for stage in plain.plan_.before
    ]
    assert kept.check_.n == 2000
    assert kept.privacy_statement_.bounds["bounds"] == plain.privacy_statement_.bounds["bounds"]


@pytest.mark.long
def test_standard_errors_of_kept_rows_are_cluster_robust():
    """Three rows of a person with a common error count as one draw of it, not as three."""
    generator = np.random.default_rng(0)
    owner = np.repeat(np.arange(20_000), 3)
    X = generator.uniform(-1, 1, (20_000, 2))[owner] * 0.8 + generator.uniform(-0.2, 0.2, (60_000, 2))
    y = 0.5 * X[:, 0] + 0.1 * generator.standard_normal(20_000)[owner]
    settings = {**REGRESSION, "epsilon": 60.0, "uncertainty": 0.5, "max_rows": 3}
    model = dp.PrivateLinearRegression(**settings).fit(X, y, groups=owner)
    design = np.column_stack([X, np.ones(len(X))])
    scores = np.add.reduceat(design * (y - 0.5 * X[:, 0])[:, None], np.arange(0, 60_000, 3))
    bread = np.linalg.inv(design.T @ design)
    wanted = np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))[:2]
    assert (model.coef_std_ >= 0.9 * wanted).all()
    assert (model.coef_std_ <= 2.0 * wanted).all()


@pytest.mark.parametrize("norm", [0.3573, 0.77, 1.1917, 1.6])
def test_the_outer_product_of_a_persons_gradient_stays_within_the_bound(norm):
    bounds, m = dp.Bounds(1.0, norm), 2
    row = RowBounds(D, *integer_bounds(bounds, D))
    entries, left = [], row.k2
    for _ in range(D):
        entries.append(min(row.k_inf, math.isqrt(left)))
        left -= entries[-1] ** 2
    units = persons(np.zeros(m))
    source = Arrays(
        Dense(np.tile(np.array(entries, dtype=np.int16), (m, 1))),
        np.full((m, 1), -1.0),
        bounds=bounds,
        weights=units.shares,
        units=1,
        owners=units.owners,
    )
    question = QUESTIONS["curvature"]
    none = np.zeros((D, D), dtype=np.int64)
    nobody = CurvatureTotals(none, none)
    _, (distance, allowed) = question.distances(source.sum(question), nobody, row, PERSON)
    # sqrt(2) is for two persons with gradients at right angles.
    assert 0.98 * allowed < 2 * distance <= allowed


def test_scores_of_persons_stay_within_the_bound():
    generator, bound = np.random.default_rng(1), ResidualBound(2**20, 2**20)
    k_inf, _ = integer_bounds(BOUNDS, D)
    for sparse in (False, True):
        for m in (1, 2, 50, 3000):
            rows, y = person(generator, m)
            margins = of(np.zeros(m), rows, y, layout="columns", sparse=sparse).follow(dp.Squared(), 1)
            margins.add(1, 2**28)
            assert abs(margins.scores(2.0**-42, bound)).max() <= bound.linf * k_inf


def test_a_persons_rows_weigh_as_much_as_one_row_and_rows_without_id_nothing():
    ids = ["a", "b", "b", "b", None, "", 2**53, "c", "c"]
    units = persons(ids)
    assert units.n == 3
    assert units.shares.tolist() == [WEIGHT] + [WEIGHT // 3] * 3 + [0] * 3 + [WEIGHT // 2] * 2


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 1],
        np.array([1.0, 2.0, 1.0]),
        ["1", "2", " 1"],
        ["1", "2", "1.0"],
        pd.Series([1, 2, True], dtype=object),
        pl.Series(["1", "2", "1"], dtype=pl.Categorical),
        pd.Series([1, 2, 1], dtype="Int64"),
        np.array([1, 2, 1], dtype=np.uint8),
    ],
    ids=str,
)
def test_equality_of_ids_does_not_depend_on_the_type_that_a_reader_chose(ids):
    units = persons(ids)
    assert units.n == 2
    assert units.shares.tolist() == [WEIGHT // 2, WEIGHT, WEIGHT // 2]


def test_another_persons_cell_changes_no_weights():
    """One odd cell makes a column of numbers text, one missing cell makes integers floats."""
    for other in (7, "abc", None, 2**60, math.nan, 0.5):
        weights = persons([1, 1, 2, other]).shares
        assert weights[:3].tolist() == [WEIGHT // 2, WEIGHT // 2, WEIGHT]


def test_no_person_moves_the_score_of_a_quantile_by_more_than_one():
    """Weighted ranks: persons of any number of rows, with less than the whole weight, or none."""
    generator, n = np.random.default_rng(4), 6
    quantile = NoisyQuantile(n, 5, 1.0, PERSON)
    largest = 0.0
    for _ in range(200):
        cells, weights = generator.normal(size=40), persons(generator.integers(0, n, 40)).shares
        m = int(generator.integers(0, 20))
        share = WEIGHT // max(m, 1) // int(generator.integers(1, 3))
        added = [generator.choice([-9.0, 0.0, 9.0]), *generator.normal(size=m)][:m]
        more = np.concatenate([cells, added]), np.concatenate([weights, np.full(m, share)])
        one, other = (
            quantile.scores(*more),
            quantile.scores(np.append(cells, 99.0), np.append(weights, WEIGHT)),
        )
        largest = max(largest, abs(one - other).max())
    assert 0.5 < largest <= 1 + 1e-14  # rounding of quotients is paid out of eta
    with pytest.raises(Incompatible, match="whether records have weights"):
        quantile.scores(np.zeros(3))


def test_quantiles_of_repeated_rows_are_those_of_the_rows():
    cells = np.random.default_rng(0).normal(size=50)
    plain = NoisyQuantile(50, 40, 1.0).scores(cells)
    owner = np.repeat(np.arange(50), 4)
    weighted = NoisyQuantile(50, 40, 1.0, PERSON).scores(cells[owner], persons(owner).shares)
    np.testing.assert_allclose(weighted, plain, atol=1e-9)
    X, y, ids = people(3, n=2000)
    model = dp.PrivateLinearRegression(**{**REGRESSION, "bounds": "private"}).fit(X, y, groups=ids)
    assert (abs(np.array(model.privacy_statement_.bounds["bounds"]["high"])) < 4).all()


# -- replay of whole persons


def problem(loss=None, domain=None, l2=0.0):
    return dp.Problem(loss or dp.Squared(), domain or dp.L2Ball(2.0), bounds=BOUNDS, d=D, l2=l2)


PLANS = {
    "descent": (problem(), NoisyGradientDescent(n_iter=4)),
    "several": (replace(problem(), outputs=2), NoisyGradientDescent(n_iter=3)),
    "mirror": (problem(dp.Quantile(0.3), dp.L1Ball(2.0)), NoisyMirrorDescent(n_iter=4)),
    "frank-wolfe": (problem(domain=dp.L1Ball(2.0)), NoisyFrankWolfe(n_iter=5)),
    "output": (problem(dp.Huber(0.5), l2=0.1), OutputPerturbation()),
    "statistics": (problem(), SufficientStatistics()),
    "standardised": (problem(), Standardised(NoisyGradientDescent(n_iter=4))),
    "one step": (problem(), OneStep(NoisyGradientDescent(n_iter=4))),
    "standardised labels": (problem(dp.Logistic()), Standardised(NoisyGradientDescent(n_iter=4))),
}


def audit(name, max_rows=None, rounds=6):
    """Violations over replays in which one person's rows are replaced by any number of others."""
    task, solver = PLANS[name]
    found, generator = [], np.random.default_rng(5)
    sizes = generator.integers(1, 6, 8)
    parts = [person(generator, m) for m in sizes]
    outputs = task.outputs

    def source(parts):
        ids = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
        X, y = np.vstack([rows for rows, _ in parts]), np.concatenate([y for _, y in parts])
        if task.loss.target == "labels":
            y = np.sign(y)
        return of(ids, X, np.repeat(y[:, None], outputs, 1), max_rows=max_rows)

    k = max_rows or 1
    budget = Budget(2.0, 1e-4, unit="person", rows=k, weight=WEIGHT)
    plan = solver.plan(task, len(parts) * k, budget, Tight())
    first = record(plan, source(parts), SeededGenerator(0))
    for m in generator.integers(1, 40, rounds):
        others = list(parts)
        others[int(generator.integers(len(parts)))] = person(generator, m)
        second = replay(plan, source(others), SeededGenerator(1), first)
        found += discrepancies(plan, first, second)
    return found


@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("name", PLANS)
def test_a_whole_person_is_replaced_without_a_violation(name, max_rows):
    assert not audit(name, max_rows)


@pytest.mark.parametrize("name", ["descent", "standardised", "statistics", "one step"])
def test_weights_of_half_of_the_rows_are_found_out(name, monkeypatch):
    """A fault: a person's rows are counted by pairs, so that they weigh twice as much as one row."""

    def half(owners):
        return np.minimum(WEIGHT, WEIGHT // np.maximum(1, np.bincount(owners)[owners] // 2))

    monkeypatch.setattr(units_module, "equal_weights", half)
    assert audit(name, rounds=12)


# -- fits


def people(repeats, seed=0, n=300):
    """Records, repeated under their person's id."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (n, D))
    y = np.clip(X @ [0.5, -0.3, 0.1] + 0.1 * generator.standard_normal(n), -1, 1)
    owner = np.repeat(np.arange(n), repeats)
    return X[owner], y[owner], owner


def test_the_number_of_rows_is_shown_nowhere():
    told = []
    for repeats in (1, 2, np.arange(300) % 7 + 1):
        X, y, owner = people(repeats)
        model = dp.PrivateLinearRegression(**REGRESSION).fit(X, y, groups=owner)
        statement = model.privacy_statement_
        assert statement.unit == "one person with all of their rows"
        assert statement.public["persons"] == 300
        assert "n" not in statement.public
        assert "a person who is in several rows" not in statement.not_covered
        told.append(
            (statement.to_json(), str(model.plan_), model.plan_.explain(), str(model.plan_.to_plain()))
        )
        assert "300 persons" in model.plan_.explain()
    assert told[0] == told[1] == told[2]


def test_messages_about_lengths_name_no_number():
    X, y, owner = people(2)
    for arguments in ((X, y, owner[:-1]), (X, y[:-1], owner), (X[:-1], y, owner)):
        with pytest.raises(WrongValue) as refused:
            dp.PrivateLinearRegression(**REGRESSION).fit(*arguments[:2], groups=arguments[2])
        assert not any(character.isdigit() for character in str(refused.value))


def test_a_single_row_of_each_person_is_a_fit_of_rows():
    """Weights are whole then, and sums are those of rows; only standardisation asks for more, their sum."""
    X, y, owner = people(1)
    settings = {**REGRESSION, "standardize": False}
    rows = dp.PrivateLinearRegression(**settings).fit(X, y)
    assert_array_equal(dp.PrivateLinearRegression(**settings).fit(X, y, groups=owner).coef_, rows.coef_)
    twice, again, owners = people(2)
    repeated = dp.PrivateLinearRegression(**settings).fit(twice, again, groups=owners)
    np.testing.assert_allclose(repeated.coef_, rows.coef_, atol=1e-5)


def test_a_column_of_persons_is_no_feature_and_predictions_do_without_it(tmp_path):
    X, y, owner = people(3)
    frame = pd.DataFrame(X, columns=list("abc")).assign(id=owner)
    model = dp.PrivateLinearRegression(**REGRESSION, person="id").fit(frame, y)
    beside = dp.PrivateLinearRegression(**REGRESSION).fit(frame.drop(columns="id"), y, groups=owner)
    assert_array_equal(model.coef_, beside.coef_)
    assert model.coef_names_.tolist() == ["a", "b", "c"]
    assert_array_equal(model.predict(frame), model.predict(frame.drop(columns="id")))
    assert str(model.plan(300, ["a", "b", "c"])) == str(model.plan_)
    model.save(tmp_path / "model.json")
    assert_array_equal(dp.load(tmp_path / "model.json").predict(frame), model.predict(frame))
    with pytest.raises(WrongValue, match="names a column"):
        model.fit(X, y)


def test_default_delta_is_that_of_persons():
    X, y, owner = people(np.arange(300) % 5 + 1)
    model = dp.PrivateLinearRegression(**REGRESSION).fit(X, y, groups=owner)
    assert model.plan_.budget.delta == min(1 / 300**2, 1e-5)
    kept = dp.PrivateLinearRegression(**REGRESSION, max_rows=4).fit(X, y, groups=owner)
    assert kept.plan_.budget.delta == model.plan_.budget.delta
    declared = dp.PrivateLinearRegression(**REGRESSION, persons=1000).fit(X, y, groups=owner)
    assert declared.privacy_statement_.public["persons"] == 1000


X0, Y0, IDS = people(2, n=60)


@pytest.mark.parametrize(
    ("settings", "data", "words"),
    [
        (
            {"solver": ObjectivePerturbation(), "max_rows": 2},
            {"groups": IDS},
            "not for several whole rows of each person",
        ),
        ({}, {"sample_weight": Y0}, "needs weight_bounds"),
        ({"weight_bounds": (1, 2)}, {"sample_weight": Y0}, r"must be \(0, V\)"),
        ({"max_rows": 2}, {}, "give fit groups=ids"),
        ({"max_rows": 0}, {"groups": IDS}, "must be a positive integer"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_is_not_proved_is_refused_with_the_reason(settings, data, words):
    with pytest.raises((Incompatible, WrongValue), match=words):
        dp.PrivateLinearRegression(**{**REGRESSION, "standardize": False, "l2": 0.1, **settings}).fit(
            X0, Y0, **data
        )


def test_a_plan_of_rows_refuses_a_source_of_persons():
    plan = NoisyGradientDescent(n_iter=2).plan(problem(), 2, Budget(1.0, 1e-4), Tight())
    with pytest.raises(Incompatible, match="whether records have weights"):
        dp.execute(plan, of([0, 1, 1], np.ones((3, D)), np.ones(3)), rng=SeededGenerator(0))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("kind", [dp.PrivateLinearRegression, dp.PrivateLogisticRegression])
def test_rows_repeated_under_a_persons_id_cost_nothing(kind, standardize):
    """Excess of 40 fits to a table whose rows are repeated 1 to 50 times, and to the table itself."""
    generator = np.random.default_rng(3)
    weights = np.array([1.0, -0.6, 0.3])
    excess = {"rows": [], "persons": []}
    for seed in range(40):
        X = generator.uniform(-1, 1, (2000, D))
        z = X @ weights
        settings = {"epsilon": 1.0, "bounds": (-1, 1), "random_state": seed, "standardize": standardize}
        # Without the check the same seed draws the same noise; objective perturbation is not for persons.
        settings |= {"check": 0, "solver": "gradient_descent"}
        if kind is dp.PrivateLinearRegression:
            y, settings["y_bounds"] = z + 0.3 * generator.standard_normal(2000), (-3, 3)
        else:
            y = (generator.random(2000) < 1 / (1 + np.exp(-3 * z))).astype(int)
            settings["classes"] = (0, 1)
        owner = np.repeat(np.arange(2000), generator.integers(1, 51, 2000))
        for name, data in (("rows", (X, y)), ("persons", (X[owner], y[owner]))):
            groups = {"groups": owner} if name == "persons" else {}
            model = kind(**settings).fit(*data, **groups)
            if kind is dp.PrivateLinearRegression:
                excess[name].append(np.mean((model.predict(X) - z) ** 2))
            else:
                chance = model.predict_proba(X)[:, 1]
                best = 1 / (1 + np.exp(-3 * z))
                excess[name].append(
                    np.mean(best * np.log(best / chance) + (1 - best) * np.log((1 - best) / (1 - chance)))
                )
    if not standardize:  # the same noise for the same seed
        assert np.mean(excess["persons"]) == pytest.approx(np.mean(excess["rows"]), rel=0.05)
    more = np.array(excess["persons"]) - 1.05 * np.array(excess["rows"])
    assert more.mean() < 2 * more.std(ddof=1) / math.sqrt(len(more))


def test_the_command_line_names_the_column_of_persons(tmp_path, monkeypatch):
    def main(arguments):
        monkeypatch.setattr("sys.argv", ["dpcvx", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0

    X, y, owner = people(3, n=200)
    pd.DataFrame(X, columns=list("abc")).assign(id=owner, y=y).to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "bounds.toml").write_text("default = [-1, 1]\n[target]\nbounds = [-1, 1]\n")
    common = ["fit", str(tmp_path / "people.csv"), "--target", "y", "--bounds", str(tmp_path / "bounds.toml")]
    common += [
        "--model",
        "linear",
        "--epsilon",
        "2",
        "--seed",
        "0",
        "--out",
        str(tmp_path / "m.json"),
        "--quiet",
    ]
    assert main([*common, "--person", "id"]) == 0
    model = dp.load(tmp_path / "m.json")
    assert model.coef_names_.tolist() == ["a", "b", "c"]
    assert model.privacy_statement_.public["persons"] == 200
    assert main([*common, "--person", "nobody"]) == 2


def test_an_account_has_a_unit_and_refuses_another(tmp_path):
    X, y, owner = people(2)
    ledger = dp.Ledger(tmp_path / "ledger.db")
    for unit in ("row", "person"):
        ledger.create(unit, epsilon=4.0, delta=1e-3, unit=unit)
    settings = {**REGRESSION, "random_state": None, "ledger": ledger}
    model = dp.PrivateLinearRegression(**settings, account="person").fit(X, y, groups=owner)
    assert "charged to account 'person'" in model.privacy_statement_.ledger
    (entry,) = ledger.account("person").history()
    assert entry.purpose == "fit of PrivateLinearRegression to 300 persons"
    assert "replace/person" in str(ledger.account("person").statement())
    dp.PrivateLinearRegression(**settings, account="row").fit(X, y)
    with pytest.raises(Incompatible, match="Account 'row' protects a row"):
        dp.PrivateLinearRegression(**settings, account="row").fit(X, y, groups=owner)
    with pytest.raises(Incompatible, match="Account 'person' protects a person"):
        dp.PrivateLinearRegression(**settings, account="person").fit(X, y)
    with pytest.raises(Incompatible, match="Account 'person' protects a person"):
        ledger.account("person").charge(Gaussian(100.0), purpose="of unknown unit")
    assert len(ledger.account("person").history()) == len(ledger.account("row").history()) == 1
    ledger.verify()
    with pytest.raises(WrongValue, match="unit must be one of"):
        ledger.create("house", epsilon=1.0, delta=1e-3, unit="house")


@pytest.mark.long
def test_a_search_splits_fits_and_scores_by_person():
    """Copies of rows under their person's id change neither the price nor what is said about it."""
    X, y, owner = people(1, n=600)
    search = dp.PrivateSearchCV(
        dp.PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-1, 1)), {"radius": [1.0, 2.0]}, epsilon=4.0
    ).set_params(random_state=3)
    told = []
    for repeats in (1, np.arange(600) % 5 + 1):
        again = np.repeat(owner, repeats)
        fitted = clone(search).fit(X[again], y[again], groups=again)
        statement = fitted.privacy_statement_
        assert statement.unit == "one person with all of their rows"
        assert (statement.public["persons"], statement.public["fitted_to"]) == (600, 480)
        assert "at least one row" in statement.bounds["persons_are"]
        told.append(json.loads(statement.to_json()))
    for each in told:
        del each["bounds"]["check"], each["public"]["chosen"], each["mechanisms"], each["public"]["domain"]
    assert told[0] == told[1]
    frame = pd.DataFrame(X, columns=list("abc")).assign(id=owner)
    named = clone(search).set_params(estimator__person="id").fit(frame, y)
    assert named.predict(frame.drop(columns="id")).shape == (600,)
    assert named.privacy_statement_.public["persons"] == 600


@pytest.mark.parametrize("max_rows", [None, 2])
def test_no_person_is_in_both_parts_of_a_split_and_none_in_neither(max_rows):
    *_, owner = people(np.arange(300) % 4 + 1)
    units = persons(owner, declared=310, max_rows=max_rows)
    rows = np.arange(len(owner))
    train, test = tune._split(rows[:, None], rows, (310, 60), SeededGenerator(0), units)
    fitted, scored = (set(owner[part[1]]) for part in (train, test))
    assert not fitted & scored
    assert fitted | scored == set(range(300))
    for part, size in ((train, 250), (test, 60)):
        assert part[2].n == size * (max_rows or 1)
        assert np.bincount(part[2].owners, part[2].shares).max() <= WEIGHT
        assert sorted(part[1]) == np.flatnonzero(np.isin(owner, owner[part[1]])).tolist()


def test_a_part_without_rows_raises_no_error():
    """Declared persons may have no rows: whether the rows of a score have any is private."""
    units = persons([7, 7, 7], declared=5)
    for seed in range(6):
        for X, y, found in tune._split(np.ones((3, 2)), np.ones(3), (5, 2), SeededGenerator(seed), units):
            assert len(X) == len(y) in (1, 3)
            assert found.shares.sum() in (0, 3 * (WEIGHT // 3))


def test_what_a_search_cannot_do_with_persons_is_refused():
    model = dp.PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-1, 1))
    for settings, data, words in (
        ({"weight_bounds": (0, 1)}, {}, "takes no weights"),
        ({"max_rows": 2}, {}, "need the ids of persons"),
        ({"person": "id"}, {"groups": IDS}, "both give the ids"),
    ):
        search = dp.PrivateSearchCV(clone(model).set_params(**settings), {"radius": [1.0]}, epsilon=1.0)
        with pytest.raises(Incompatible, match=words):
            search.fit(X0, Y0, **data)
    with pytest.raises(WrongValue, match="max_rows is not tuned"):
        dp.PrivateSearchCV(model, {"max_rows": [1, 2]}, epsilon=1.0).fit(X0, Y0)


@pytest.mark.filterwarnings("ignore::dpcvx.errors.UselessModelWarning")
def test_cross_validations_say_that_groups_reach_the_splitter_alone():
    X, y, owner = people(2, n=30)
    model = dp.PrivateLinearRegression(**REGRESSION)
    with pytest.warns(PrivacyLeakWarning, match="hands groups to its splitter alone"):
        cross_val_score(model, X, y, groups=owner, cv=GroupKFold(2))


def test_a_pipeline_with_persons_is_checked_and_one_that_drops_their_column_is_refused():
    model = dp.PrivateLinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1), person="id")
    pipeline = make_pipeline(Normalizer(), model)
    assert dp.check_pipeline(pipeline).safe
    with pytest.raises(WrongValue, match="names a column of a data frame, which X does not have"):
        pipeline.fit(pd.DataFrame(X0).assign(id=IDS).rename(columns=str), Y0)


# -- the check of the data


@pytest.mark.parametrize("kind", ["persons", "kept rows", "weights"])
def test_a_misspelt_level_is_named(kind):
    """Also where rows have weights: shares are those of the released weight of all rows."""
    X, y, owner = people(3, n=1500)
    frame = pd.DataFrame(X, columns=list("abc")).assign(town=np.where(X[:, 0] > 0, "York", "Bath"))
    settings = {**REGRESSION, "bounds": dict.fromkeys("abc", (-1, 1)), "epsilon": 4.0}
    if kind == "kept rows":
        settings["max_rows"] = 2
    data = {"groups": owner}
    if kind == "weights":
        data, settings["weight_bounds"] = {"sample_weight": np.full(len(y), 0.5)}, (0, 1)
    for levels, wrong in ((("York", "Bath"), False), (("York", "bath"), True)):
        model = dp.PrivateLinearRegression(**settings, categories={"town": levels})
        if wrong:
            with pytest.warns(
                UnrecognisedDataWarning, match=r"town: only 5\d % .* no people are visible at 'bath'"
            ):
                model.fit(frame, y, **data)
        else:
            model.fit(frame, y, **data)
        assert model.check_.weight == pytest.approx(4500 / 2 if kind == "weights" else 1500, rel=0.2)
        assert bool(model.check_.findings) == wrong
        assert type(model.check_).from_plain(model.check_.to_plain()) == model.check_


def test_a_misspelt_level_beside_other_is_named_where_rows_have_small_weights():
    """Its people count as other, so that no cell is unrecognised; an other without people is no finding."""
    X, y, _ = people(3, n=1500)
    frame = pd.DataFrame(X, columns=list("abc")).assign(town=np.where(X[:, 0] > 0, "York", "Bath"))
    numbers = dict.fromkeys("abc", dp.NumberColumn((-1, 1)))
    for level, wrong in (("Bath", False), ("bath", True)):
        schema = dp.TableSchema({**numbers, "town": dp.LevelColumn(["York", level], other="elsewhere")})
        model = dp.PrivateLinearRegression(
            epsilon=3.0, y_bounds=(-1, 1), random_state=0, schema=schema, weight_bounds=(0, 5)
        )
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            model.fit(frame, y, sample_weight=np.full(len(y), 0.5))
        check = model.check_
        assert check.error >= 0.05 * check.whole  # too noisy for levels of a column without other cells
        assert bool(check.findings) == wrong, check
        assert not wrong or "town: no people are visible at 'bath'" in check.findings[0]
        assert type(check).from_plain(check.to_plain()) == check


def test_the_check_of_persons_who_are_mostly_absent_names_no_column():
    """Declared persons without rows are no unrecognised cells."""
    X, y, owner = people(3, n=1500)
    model = dp.PrivateLinearRegression(**{**REGRESSION, "epsilon": 4.0}, persons=6000).fit(X, y, groups=owner)
    assert not model.check_.findings
    assert "100 %" in str(model.check_)


# -- survey weights


def test_weights_of_a_persons_rows_add_up_to_one_row():
    people_, weights = persons([1, 1, 1, 2, None]), survey_weights([2.0, 9.0, 1.0, 1.0, 2.0], (0, 2))
    both = weighted_persons(people_, weights)
    assert both.shares.tolist() == [WEIGHT // 3, WEIGHT // 3, WEIGHT // 6, WEIGHT // 2, 0]
    assert both.neighbours == PERSON
    with pytest.raises(WrongValue, match="same number of rows"):
        weighted_persons(people_, survey_weights([1.0], (0, 2)))


@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.filterwarnings("ignore:A delta of")  # of 1/n and more
def test_weights_of_persons_are_those_of_a_weighted_mean(max_rows):
    """Without noise to speak of: persons of weight 0 to 3, each with two rows, and one row of each person."""
    X, y, _ = people(1, n=2000)
    weights = np.arange(2000) % 4
    y = np.where(weights == 3, np.clip(y + 0.3, -1, 1), y)
    settings = {**REGRESSION, "epsilon": 100.0, "delta": 1e-3, "n_iter": 400, "weight_bounds": (0, 3)}
    rows = dp.PrivateLinearRegression(**settings).fit(X, y, sample_weight=weights)
    twice = np.repeat(np.arange(2000), 2)
    both = dp.PrivateLinearRegression(**settings, max_rows=max_rows).fit(
        X[twice], y[twice], groups=twice, sample_weight=weights[twice]
    )
    assert both.intercept_ == pytest.approx(rows.intercept_, abs=0.03)
    np.testing.assert_allclose(both.coef_, rows.coef_, atol=0.04)
    assert {"person", "weights"} <= set(both.privacy_statement_.bounds)


def test_survey_weights_are_held_to_their_bounds():
    units = survey_weights([0.0, 1.0, 2.0, 5.0, -3.0, None, math.nan, math.inf, "1", "x"], (0, 2))
    assert units.shares.tolist() == [
        0, WEIGHT // 2, WEIGHT, WEIGHT, 0, 0, 0, WEIGHT, WEIGHT // 2, 0
    ]  # fmt: skip
    assert units.n == 10
    assert units.neighbours == Neighbours(weight=WEIGHT)


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_two_weighted_rows_are_further_apart_than_the_sensitivity(name):
    question, generator = QUESTIONS[name], np.random.default_rng(2)
    row, neighbours = RowBounds(D, *integer_bounds(BOUNDS, D)), Neighbours(weight=WEIGHT)
    answers = []
    for weight in (0, 1, 5000, WEIGHT, WEIGHT, WEIGHT):
        for _ in range(8):
            rows, y = person(generator, 1)
            stored = Quantiser(BOUNDS).quantise(rows)
            source = Arrays(stored, y[:, None], bounds=BOUNDS, weights=np.array([weight]), units=1)
            answers.append(source.sum(question))
    for one in answers:
        for other in answers:
            for distance, allowed in question.distances(one, other, row, neighbours):
                assert distance <= allowed


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.filterwarnings("ignore:A delta of")  # of 1/n and more
def test_a_weighted_fit_is_one_of_rows_repeated_as_often(standardize):
    """Without noise to speak of: rows of weight 0 to 3, and the same rows 0 to 3 times."""
    X, y, _ = people(1, n=2000)
    weights = np.arange(2000) % 4
    y = np.where(weights == 3, np.clip(y + 0.3, -1, 1), y)
    settings = {**REGRESSION, "epsilon": 100.0, "delta": 1e-3, "standardize": standardize, "n_iter": 400}
    weighted = dp.PrivateLinearRegression(**settings, weight_bounds=(0, 3)).fit(X, y, sample_weight=weights)
    again = np.repeat(np.arange(2000), weights)
    repeated = dp.PrivateLinearRegression(**settings).fit(X[again], y[again])
    plain = dp.PrivateLinearRegression(**settings).fit(X, y)
    assert abs(weighted.intercept_ - repeated.intercept_) < 0.03 < abs(plain.intercept_ - repeated.intercept_)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=0.04)
    assert "weights" in weighted.privacy_statement_.bounds
    assert "noise for a row of the largest weight" in str(weighted.plan_)


def test_weights_of_one_row_enter_standard_errors_squared():
    """Standard errors of a weighted fit are those of the weighted sandwich, up to noise."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (60_000, 2))
    weights = generator.choice([0.1, 2.0], 60_000)
    y = 0.5 * X[:, 0] + 0.1 * generator.standard_normal(60_000)
    settings = {**REGRESSION, "epsilon": 20.0, "uncertainty": 0.5, "weight_bounds": (0, 2)}
    model = dp.PrivateLinearRegression(**settings).fit(X, y, sample_weight=weights)
    design = np.column_stack([X, np.ones(len(X))])
    H = design.T @ (weights[:, None] * design)
    meat = design.T @ ((weights**2 * 0.1**2)[:, None] * design)
    wanted = np.sqrt(np.diag(np.linalg.inv(H) @ meat @ np.linalg.inv(H)))[:2]
    assert (model.coef_std_ >= 0.95 * wanted).all()
    assert (model.coef_std_ <= 2.0 * wanted).all()


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.long
def test_standard_errors_of_persons_are_those_of_the_cluster_robust_sandwich(standardize):
    """Five rows of a person share an error: as independent rows they would have too short intervals."""
    generator = np.random.default_rng(0)
    owner = np.repeat(np.arange(20_000), 5)
    X = generator.uniform(-1, 1, (20_000, 2))[owner] * 0.8 + generator.uniform(-0.2, 0.2, (100_000, 2))
    y = 0.5 * X[:, 0] + 0.1 * generator.standard_normal(20_000)[owner]
    settings = {**REGRESSION, "epsilon": 20.0, "uncertainty": 0.5, "standardize": standardize}
    model = dp.PrivateLinearRegression(**settings).fit(X, y, groups=owner)
    design = np.column_stack([X, np.ones(len(X))])
    scores = np.add.reduceat(design * (y - 0.5 * X[:, 0])[:, None], np.arange(0, 100_000, 5)) / 5
    bread = np.linalg.inv(design.T @ design / 5)
    wanted = np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))[:2]
    assert (model.coef_std_ >= 0.9 * wanted).all()
    assert (model.coef_std_ <= 2.0 * wanted).all()
    assert (abs(model.coef_debiased_ - [0.5, 0.0]) < 4 * model.coef_std_).all()


def test_likelihoods_of_rows_weighted_rows_and_persons_ask_for_the_meat():
    X, y, owner = people(2)
    settings = {"epsilon": 2.0, "bounds": (-1, 1), "classes": (0, 1), "uncertainty": 0.2, "random_state": 0}
    labels = (y > 0).astype(int)
    fits = [
        dp.PrivateLogisticRegression(**settings, **more).fit(X, labels, **data)
        for more, data in (
            ({}, {}),
            ({}, {"groups": owner}),
            ({"weight_bounds": (0, 1)}, {"sample_weight": abs(y)}),
        )
    ]
    assert all(fit.plan_.stages[-1].mechanism.meat_multiplier is not None for fit in fits)
    assert [fit._uncertainty.kind for fit in fits] == ["robust", "cluster-robust", "robust"]
