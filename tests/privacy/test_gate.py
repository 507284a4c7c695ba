"""The gate between public plans and private records refuses what its guarantee does not cover."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from adversary import stored
from dpcvx.accounting import Neighbours, Tight
from dpcvx.data import GradientSum
from dpcvx.data.lattice import ResidualBound, integer_bounds
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser
from dpcvx.mechanisms import NoisyGradient, NoisyVertex
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent, OutputPerturbation

PROBLEM = dp.Problem(dp.Logistic(), dp.L1Ball(2.0), bounds=dp.Bounds(1.0), d=3)


def small_source(n=8):
    rng = np.random.default_rng(0)
    return dp.source(rng.uniform(-1, 1, (n, 3)), np.sign(rng.normal(size=n)), bounds=PROBLEM.bounds)


@pytest.mark.parametrize("relation", ["replace-one", "REPLACE", "add-remove", ""])
def test_a_misspelt_relation_is_refused_and_does_not_halve_the_sensitivity(relation):
    with pytest.raises(ValueError, match="relation must be one of"):
        Neighbours(relation)
    for mechanism, given in ((NoisyGradient, (1.0,)), (NoisyVertex, (0.1, 20))):
        with pytest.raises(AttributeError):  # a bare string has no diameter
            mechanism(PROBLEM, 100, *given, relation)


def test_a_plan_whose_stages_have_another_relation_is_refused():
    plan = dp.plan(PROBLEM, 100, dp.Budget(1.0, 1e-6))
    with pytest.raises(dp.Incompatible, match="add_remove"):
        dataclasses.replace(plan, budget=dp.Budget(1.0, 1e-6, "add_remove"))


def test_a_plan_that_costs_more_than_its_budget_does_not_run():
    plan = dp.plan(PROBLEM, 8, dp.Budget(1.0, 1e-6))
    richer = dataclasses.replace(plan, budget=dp.Budget(0.5, 1e-6))
    dp.execute(plan, small_source(), rng=SeededGenerator(0))
    with pytest.raises(dp.Incompatible, match="more than its budget"):
        dp.execute(richer, small_source(), rng=SeededGenerator(0))


def test_under_replace_one_the_number_of_records_must_be_the_planned_one():
    plan = dp.plan(PROBLEM, 9, dp.Budget(1.0, 1e-6))
    with pytest.raises(dp.Incompatible, match="n=9"):
        dp.execute(plan, small_source(8))


def test_under_add_remove_sums_cannot_wrap():
    wide = dp.Problem(dp.Squared(), dp.L1Ball(1020.0), bounds=dp.Bounds(1.999), d=2)
    selection = NoisyVertex(wide, 1000, 0.1, 20, Neighbours("add_remove"))
    k_inf, _ = integer_bounds(wide.bounds, wide.d)
    slope = math.floor(2**20 * wide.slope(math.inf))
    assert selection.capacity * slope * k_inf < 2**62 <= (selection.capacity + 1) * slope * k_inf

    class TooMany:
        n, d = selection.capacity + 1, 2

    plan = dp.plan(wide, 1000, dp.Budget(1.0, 1e-6, "add_remove"), (NoisyFrankWolfe(n_iter=2),))
    with pytest.raises(dp.Incompatible, match="more records"):
        dp.execute(plan, TooMany())


def test_rounding_never_turns_a_selection_around():
    """A ridge that dwarfs the slopes at theta = 0: the selection becomes uniform there, not inverted."""
    problem = dp.Problem(dp.Squared(), dp.L1Ball(128.0), bounds=dp.Bounds(1.0, None, 1e-6), d=3, l2=30.0)
    selection = NoisyVertex(problem, 2**20, 0.1, 20)
    assert selection._temperature(ResidualBound(1, 1)) == 0.0


def test_features_below_the_grid_are_refused():
    with pytest.raises(ValueError, match="x_inf"):
        dp.Bounds(2**-15)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_rows_stored_under_wider_bounds_are_shrunk_to_the_plans(storage, layout):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.9, 1.9, (6, 40))
    X[0] *= 1e-3  # short enough already
    y = np.sign(rng.normal(size=6))
    narrow, wide = dp.Bounds(1.0, 1.0), dp.Bounds(1.95)
    X = sp.csr_array(X) if storage == "sparse" else X
    records = dp.source(X, y, bounds=wide, layout=layout).within(narrow)
    undeclared = Arrays(Quantiser(wide).quantise(X), y[:, None], layout=layout).within(narrow)
    assert records.within(narrow) is records
    for each in (records, undeclared):
        rows = each._row_major()
        stored = rows.values.astype(int) if storage == "dense" else csr(rows)
        assert (abs(stored) <= 2**14).all()
        assert ((stored**2).sum(axis=1) <= 2**28).all()
        assert ((stored[1:] ** 2).sum(axis=1) > 0.99 * 2**28).all()  # shrunk, not dropped
        first = np.fix(np.asarray(X[[0]].todense() if storage == "sparse" else X[[0]]) * 2**14)
        assert (stored[0] == first).all()


def csr(rows):
    return sp.csr_array((rows.values.astype(int), rows.indices, rows.indptr), shape=rows.shape).toarray()


def test_a_source_with_wider_bounds_is_no_louder_than_the_plan_allows():
    """A record at the wide bound would weigh 29 times its share if execute trusted the source."""
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(1.0), bounds=dp.Bounds(1.0, 1.0), d=400)
    plan = dp.plan(problem, 4, dp.Budget(1.0, 1e-6), (NoisyGradientDescent(n_iter=1),))
    seen = []

    class Watched(Arrays):
        def sum(self, question):
            seen.append(super().sum(question))
            return seen[-1]

        def within(self, bounds):
            inner = super().within(bounds)
            return Watched(inner._row_major(), inner._y.T, bounds=bounds)

    for sign in (1.0, -1.0):
        X, y = np.zeros((4, 400)), np.ones(4)
        X[0] = 1.9 * sign
        dp.execute(plan, Watched(Quantiser(dp.Bounds(1.95)).quantise(X), y[:, None]))
    change = np.linalg.norm((seen[0] - seen[1]).astype(float)) * 2.0**-34 / 4
    assert 0.25 * plan.stages[0].mechanism.sensitivity < change <= plan.stages[0].mechanism.sensitivity


@dataclasses.dataclass(frozen=True)
class Partial:
    """A joint loss whose slope leaves its output alone for a missing label."""

    name, convex, joint, y_range, parameter, offset = "partial", True, True, (-1.0, 1.0), 0.0, False

    @staticmethod
    def slope(z, y, a, out):
        if y < 0:
            return
        out[0] = 1.0
        out[1] = -1.0


def test_what_a_joint_slope_leaves_alone_is_zero_not_another_records_residual():
    X, theta, bound = np.ones((3, 1)), np.zeros((1, 2)), ResidualBound(2**21, 2**20)
    totals = [
        dp.source(X, [first, -1.0, -1.0], bounds=dp.Bounds(1.0)).sum(GradientSum(Partial(), theta, bound))
        for first in (1.0, -1.0)
    ]
    assert (totals[0] == [[2**34, -(2**34)]]).all()
    assert (totals[1] == 0).all()


class Raising(Partial):
    joint = False

    @staticmethod
    def slope(z, y, a):
        if y > 0.9:
            raise ValueError
        return z


class Asserting(Raising):
    @staticmethod
    def slope(z, y, a):
        assert y <= 0.9
        return z


@pytest.mark.parametrize("loss", [Raising(), Asserting()])
def test_a_slope_that_could_raise_is_refused_before_a_record_is_read(loss):
    with pytest.raises(TypeError, match="must not raise"):
        dp.source([[1.0]], [0.0], bounds=dp.Bounds(1.0)).sum(
            GradientSum(loss, np.zeros(1), ResidualBound(1, 1))
        )


def test_selection_measures_the_vertices_it_scores():
    class Understated(dp.L1Ball):
        def norm(self, ord, d):
            return super().norm(ord, d) / 10

    honest, lying = (
        NoisyVertex(dp.Problem(dp.Logistic(), ball(2.0), bounds=dp.Bounds(1.0), d=3), 100, 0.1, 20, clip=1.0)
        for ball in (dp.L1Ball, Understated)
    )
    assert lying.sensitivity == pytest.approx(honest.sensitivity, rel=0.5)
    hull = dp.VertexHull(np.array([[1.0, 2.0], [0.0, -4.0], [0.5, 0.5]]))
    selection = NoisyVertex(dp.Problem(dp.Logistic(), hull, bounds=dp.Bounds(1.0), d=2), 10, 0.1, 20)
    assert selection.sensitivity == pytest.approx(2 * 4.0 * selection.problem.slope(math.inf) / 10, rel=1e-5)


def test_a_table_of_features_cannot_ask_for_many_noisy_copies_of_one_entry():
    """A thousand copies of two features are two distinct features in two rows: their mean has no noise."""
    problem = dp.Problem(dp.Logistic(), dp.L1Ball(2.0), bounds=dp.Bounds(1.0), d=5)
    question = NoisyGradient(problem, 20, 3.0, support=2)
    data = stored(np.ones((20, 5)), np.ones(20), problem.bounds, "dense")
    copies = np.repeat([[0], [1]], 1000, axis=1)
    with pytest.raises(dp.Incompatible, match="distinct features"):
        question(np.zeros(5), copies, data=data, rng=SeededGenerator(0))
    answer = question(np.zeros(5), copies[:, 0], data=data, rng=SeededGenerator(0))
    assert answer.shape == (2,)


@pytest.mark.parametrize("solver", [NoisyGradientDescent(n_iter=1), OutputPerturbation(0.5)], ids=repr)
@pytest.mark.parametrize("changed", [{"bounds": dp.Bounds(1.0, 3.0)}, {"d": 8}], ids=["bounds", "d"])
def test_a_plan_whose_questions_were_made_for_smaller_records_is_refused(solver, changed):
    """The source is held to the bounds of the plan's problem; a question's noise is for those of its own."""
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(1.0), bounds=dp.Bounds(1.0, 1.0), d=9)
    plan = solver.plan(problem, 20, dp.Budget(1.0, 1e-6), Tight())
    assert dataclasses.replace(plan, problem=dataclasses.replace(problem)) == plan
    with pytest.raises(dp.Incompatible, match="was made for records"):
        dataclasses.replace(plan, problem=dataclasses.replace(problem, **changed))
