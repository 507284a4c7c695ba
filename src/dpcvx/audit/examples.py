"""Generated records for the replays of `dpcvx audit`: every estimator, solver, search and engine method."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dpcvx.accounting import Budget, Tight
from dpcvx.audit.fits import LARGEST, FitData
from dpcvx.data.memory import source
from dpcvx.domains import Cardinality, GroupBall, Interval, L1Ball, L2Ball, SubmodularNorm
from dpcvx.losses import Huber, Logistic, Quantile, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Oracle, Plan, Solver
from dpcvx.problem import Bounds, Problem
from dpcvx.queries import Attribute, Binned, Count, Marginal, Mean, QueryEngine, Regression, Schema
from dpcvx.solvers import SOLVERS, NoisySVRG, NoisySVRGPlusPlus, configured

__all__ = ["ReplayExample", "example_engines", "example_fits", "example_solvers"]

# all that the public sees of a release, the records, and neighbours of them by the kind of change
ReplayExample = tuple[Callable[[Any], dict[str, Any]], Any, list[tuple[str, Any]]]


def example_fits(seed: int = 0) -> dict[str, tuple[Callable[[], Any], FitData]]:
    """Return unfitted estimators and searches with records: every estimator, and each path of a fit, once."""
    import pyarrow as pa

    from dpcvx import estimators as kinds
    from dpcvx.tuning import PrivateSearchCV

    rng, n = np.random.default_rng(seed), 300
    X = rng.uniform(-1, 1, (n, 3))
    labels, numbers = (X[:, 0] > 0).astype(int), X[:, 0] + 0.1 * rng.normal(size=n)
    two: dict[str, Any] = {"epsilon": 4.0, "bounds": (-1, 1), "classes": (0, 1)}
    real: dict[str, Any] = {"epsilon": 4.0, "bounds": (-1, 1), "y_bounds": (-2, 2)}
    rows, people = FitData(X, labels), FitData(X, labels, np.arange(n) // 2)
    targets, several = FitData(X, numbers), FitData(X, np.column_stack([numbers, X[:, 1]]))
    counts, amounts = rng.poisson(np.exp(X[:, 0])), np.exp(numbers)
    shares, levels = 1 / (1 + np.exp(-numbers)), np.digitize(numbers, (-0.4, 0.4))
    names = ("a", "b", "c")
    table = pa.table(dict(zip(names, X.T, strict=True)))
    named: dict[str, Any] = {"epsilon": 4.0, "bounds": dict.fromkeys(names, (-1, 1))}
    left = table.append_column("left", pa.array(labels))

    def search(model: Any, **settings: Any) -> Any:
        return PrivateSearchCV(model, {"radius": [1.0, 4.0]}, n_trials=2.0, random_state=seed, **settings)

    return {
        "logistic regression": (lambda: kinds.PrivateLogisticRegression(**two, n_iter=5), rows),
        "logistic regression of three classes": (
            lambda: kinds.PrivateLogisticRegression(**two | {"classes": (0, 1, 2)}),
            FitData(X, levels),
        ),
        "support vectors": (lambda: kinds.PrivateLinearSVC(**two), rows),
        "linear regression with standard errors": (
            lambda: kinds.PrivateLinearRegression(**real, uncertainty=0.2),
            targets,
        ),
        "private bounds": (
            lambda: kinds.PrivateLogisticRegression(epsilon=8.0, bounds="private", classes=(0, 1), n_iter=5),
            rows,
        ),
        "persons with two rows": (lambda: kinds.PrivateLogisticRegression(**two, n_iter=5), people),
        "lasso": (lambda: kinds.PrivateLasso(**real), targets),
        "elastic net": (lambda: kinds.PrivateElasticNet(**real), targets),
        "group lasso": (lambda: kinds.PrivateGroupLasso(**real, groups={"pair": [0, 2]}), targets),
        "structured lasso": (
            lambda: kinds.PrivateStructuredLasso(**real, set_function=Interval(3, 2.0)),
            targets,
        ),
        "low-rank regression": (lambda: kinds.PrivateLowRankRegression(**real), several),
        "Huber regression": (lambda: kinds.PrivateHuberRegressor(**real), targets),
        "quantile regression": (lambda: kinds.PrivateQuantileRegressor(**real), targets),
        "persons with three rows": (
            lambda: kinds.PrivateLinearRegression(**real),
            FitData(X, numbers, np.arange(n) // 3),
        ),
        "counts": (lambda: kinds.PrivatePoissonRegressor(**real | {"y_bounds": (0, 8)}), FitData(X, counts)),
        "amounts": (
            lambda: kinds.PrivateGammaRegressor(**real | {"y_bounds": (0.1, 8)}),
            FitData(X, amounts),
        ),
        "shares": (
            lambda: kinds.PrivateFractionalRegressor(**real | {"y_bounds": (0, 1)}),
            FitData(X, shares),
        ),
        "additive model": (lambda: kinds.PrivateAdditiveClassifier(**two), rows),
        "additive regression": (lambda: kinds.PrivateAdditiveRegressor(**real), targets),
        "additive model of selected columns": (
            lambda: kinds.PrivateAdditiveClassifier(**two, selected_columns=2, knots=3),
            rows,
        ),
        "ordered levels": (
            lambda: kinds.PrivateOrdinalClassifier(**named, classes=(0, 1, 2)),
            FitData(table, levels),
        ),
        "hazards": (
            lambda: kinds.PrivateHazardRegressor(**named, periods=(0, 1, 2, 3), event="left"),
            FitData(left, np.minimum(amounts, 3.0)),
        ),
        "search": (lambda: search(kinds.PrivateLogisticRegression(**two)), rows),
        "search with scores on the rows of the fits": (
            lambda: search(kinds.PrivateLinearRegression(**real), test_size=None),
            targets,
        ),
    }


def example_solvers(seed: int = 0) -> dict[str, ReplayExample]:
    """Return every solver with records: its returned parameter must depend on its answers alone."""
    rng, n, d = np.random.default_rng(seed), 60, 3
    X = rng.uniform(-1, 1, (n, d))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    ball = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=d, l2=0.1)
    polytope = Problem(Squared(), L1Ball(1.5), bounds=Bounds(1.0), d=d)
    corner = Problem(Quantile(0.8), L2Ball(1.0), bounds=Bounds(1.0), d=d, l2=0.2)
    free = Problem(Logistic(), None, bounds=Bounds(1.0, 1.0), d=d, l2=0.1)
    linear = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0), d=d)
    grouped = Problem(Huber(0.5), GroupBall([[0], [1, 2]], 1.5), bounds=Bounds(1.0), d=d)
    suited = {
        "NoisyGroupSelection": grouped,
        "NoisyFrankWolfe": polytope,
        "NoisyCorrectiveFrankWolfe": polytope,
        "NoisyAcceleratedMirrorDescent": polytope,
        "NoisyStronglyConvexMirrorDescent": corner,
        "SufficientStatistics": linear,
        "NoisyDualFrankWolfe": replace(free, regularizer=SubmodularNorm(Cardinality(), 0.1)),
        "ObjectivePerturbation": free,
        "OutputPerturbation": free,
    }
    rows = np.array([[1.0, 1, 1], [-1, 1, -1], [LARGEST, 0, 0], [np.nan] * 3, [0, 0, 0]])
    found: dict[str, ReplayExample] = {}
    for kind in SOLVERS:
        problem = suited.get(kind.__name__, ball)
        neighbours = []
        for row, target in zip(rows, (1.0, -1.0, 1.0, np.nan, -1.0), strict=True):
            other, targets = X.copy(), y.copy()
            other[-1], targets[-1] = row, target
            neighbours.append(("another row", (other, targets)))
        order = rng.permutation(n)
        if kind not in (NoisySVRG, NoisySVRGPlusPlus):  # a sample of rows in another order is of other rows
            neighbours.append(("permuted", (X[order], y[order])))
        found[kind.__name__] = (_publish_solver(kind, problem, n, seed), (X, y), neighbours)
    return found


@cache
def _plan(kind: type[Solver], problem: Problem, n: int) -> Plan:
    """Return a plan of few steps; those of sampled solvers take seconds."""
    return configured(kind, n_iter=6).plan(problem, n, Budget(4.0, 1e-5), Tight())


def _publish_solver(
    kind: type[Solver], problem: Problem, n: int, seed: int
) -> Callable[[Any], dict[str, Any]]:
    def publish(records: Any) -> dict[str, Any]:
        plan = _plan(kind, problem, n)
        data = source(*records, bounds=plan.problem.bounds).within(plan.problem.bounds)
        theta = plan.solver.run(plan, Oracle(plan, data, SeededGenerator(seed)))
        return {"plan object": plan, "parameter": theta.tobytes()}

    return publish


LEVELS = {"sex": ("f", "m"), "smokes": ("no", "yes"), "region": ("north", "south", "west")}
SCHEMA = Schema(
    (
        *(Attribute(name, levels, levels[-1]) for name, levels in LEVELS.items()),
        Binned("age", (0.0, 40.0, 100.0)),
    )
)
QUERIES = (
    Count({"sex": ["f"], "region": ["north"]}),
    Marginal(("sex", "smokes")),
    Mean("age", {"sex": ["m"]}),
    Regression("smokes", ("sex", "region", "age")),
    Regression("smokes", ("sex",), loss="huber", domain="l1"),
)
METHODS = ("warm", "histogram", "composition", "multiplicative_weights", "offline")


def example_engines(seed: int = 0) -> dict[str, ReplayExample]:
    """Return query engines, one for each method and one for persons, that are asked the same queries."""
    rng, n = np.random.default_rng(seed), 4000
    table = {name: rng.choice(np.array(levels, dtype=object), n) for name, levels in LEVELS.items()}
    table["age"] = rng.uniform(0, 100, n).astype(object)
    table["smokes"] = np.where(table["sex"] == "f", "yes", "no").astype(object)
    ids = np.arange(n) // 2
    found: dict[str, ReplayExample] = {}
    for method in METHODS:
        found[f"engine: {method}"] = (_publish_engine(method, seed), table, _tables(table, [n - 1], rng))
    # Ids have the order of the rows: a table in another order would be of other persons.
    rows_of_one = _tables(table, [n - 2, n - 1], rng)[:-1]
    found["engine: persons"] = (_publish_engine("warm", seed, ids), table, rows_of_one)
    # Pairs are chosen where there are very many cells.
    wide = _publish_engine("chosen_pairs", seed, wide=True)
    found["engine: chosen_pairs"] = (wide, table, _tables(table, [n - 1], rng))
    return found


def _tables(table: dict[str, Any], places: list[int], rng: np.random.Generator) -> list[tuple[str, Any]]:
    """Return neighbours of a table: some rows with other, hostile or missing cells; another order."""
    found: list[tuple[str, Any]] = []
    for kind, cells in {
        "another row": ("f", "yes", "north", 0.0),
        "opposite row": ("m", "no", "west", 100.0),
        "unknown": ("?", "", "nowhere", "old"),
        "missing": (None, None, None, np.nan),
        "number": (LARGEST, -1.5, 0, -LARGEST),
    }.items():
        other = {name: column.copy() for name, column in table.items()}
        for name, cell in zip(table, cells, strict=True):
            other[name][places] = [cell] * len(places)
        found.append((kind, other))
    order = rng.permutation(len(table["sex"]))
    return [*found, ("permuted", {name: column[order] for name, column in table.items()})]


def _publish_engine(
    method: str, seed: int, groups: Any = None, *, wide: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """Return a function that publishes the answers of an engine.

    `wide`: whether to add attributes that have the same value in all records.
    """
    more = tuple(Attribute(f"more{j}", ("no", "yes"), "no") for j in range(24 if wide else 0))
    schema = Schema((*SCHEMA.attributes, *more))
    budget = Budget(0.5 if wide else 8.0, 1e-5)

    def publish(table: Any) -> dict[str, Any]:
        n = len(table["sex"])
        table = {**table, **{each.name: np.full(n, "yes", dtype=object) for each in more}}
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            engine = QueryEngine(
                schema, table, budget, groups=groups, method=method, n_queries=20, rng=SeededGenerator(seed)
            )
            answers = engine.ask_many(QUERIES) if method == "offline" else [engine.ask(q) for q in QUERIES]
        return {
            "plan object": None,
            "answers": b"".join(each.body for each in answers),
            "statement": json.dumps(engine.statement().to_dict(), sort_keys=True, default=str),
            "messages": (engine.check_summary, *sorted(str(each.message) for each in heard)),
            "remaining": (engine.remaining, engine.comparisons, engine.n_updates),
        }

    return publish
