"""Regressions about tables of very many cells: Adult at its natural granularity, and 120 binary attributes.

    python benchmarks/natural.py adult [--queries 1000] [--measured 60] [--direct 10] [--epsilon 1]
    python benchmarks/natural.py adult --features 6 --bin-means 0 --direct 0   # midpoints of bins
    python benchmarks/natural.py factors [--queries 200] [--attributes 120] [--n 48842]

adult: the complete records of Adult (45,222), nine attributes by their levels and six numbers in bins, with
cells of their own for missing values. Random logistic regressions of income or sex on 2 to 12 other
attributes over the l2 ball of radius 10 are asked; for some of them the excess loss is measured on the
numbers themselves, scaled by the ranges of the schema, not on bins. "direct" is PrivateLogisticRegression
with the whole budget for that one model on the same columns.

factors: binary attributes of a model with four normal factors per person and loadings of 0.8; regressions of
one attribute on six others, excess on the records.
"""

import argparse
import json
import time  # of the process: other programs on the machine do not count
import warnings

import numpy as np

from datasets import OUTPUT, dense
from dpcvx.accounting import Budget
from dpcvx.domains import L2Ball
from dpcvx.losses import Logistic
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.queries import Attribute, Binned, Counts, QueryEngine, Regression, Schema, Universe
from dpcvx.queries.compiled import CompiledRegression
from dpcvx.queries.wide_regression import minimise_in_ball

RADIUS = 10.0
MAXIMA = {  # by which the stored numbers were divided
    "age": 90,
    "fnlwgt": 1490400,
    "education-num": 16,
    "capital-gain": 99999,
    "capital-loss": 4356,
    "hours-per-week": 99,
}
EDGES = {
    "age": (17, 22, 27, 32, 37, 42, 47, 52, 57, 62, 67, 91),
    "fnlwgt": (0, 1e5, 1.5e5, 2e5, 2.5e5, 4e5, 1.5e6),
    "education-num": (0.5, *(k + 0.5 for k in range(3, 16)), 16.5),
    "capital-gain": (0, 1, 3000, 5000, 7000, 10000, 20000, 100000),
    "capital-loss": (0, 1, 1500, 1750, 2000, 2300, 4400),
    "hours-per-week": (0, 20, 30, 35, 39, 41, 46, 51, 61, 100),
}


def adult():
    """Schema and table of natural Adult."""
    stored = dense("adult_complete104")
    X, names = stored["X"].astype(float), [str(name) for name in stored["feature_names"]]
    table, attributes = {}, []
    groups = {}
    for j, name in enumerate(names):
        if name in MAXIMA:
            table[name] = X[:, j] * MAXIMA[name]
            if name != "fnlwgt":
                table[name] = np.rint(table[name])
            attributes.append(Binned(name, EDGES[name], "missing"))
        else:
            groups.setdefault(name.replace("=", "_").rsplit("_", 1)[0], []).append(j)
    for name, columns in groups.items():
        chosen = X[:, columns].argmax(axis=1)
        levels = tuple(names[j].replace("=", "_").rsplit("_", 1)[1] for j in columns)
        table[name] = np.array(levels, dtype=object)[chosen]
        attributes.append(Attribute(name, levels, "missing"))
    table["income"] = np.where(stored["y"] > 0, "more", "less").astype(object)
    attributes.append(Attribute("income", ("less", "more"), "missing"))
    return Schema(tuple(attributes)), table


def raw_design(schema, table, query):
    """Columns of a regression with the numbers themselves, scaled by the ranges of the schema."""
    n = len(next(iter(table.values())))
    columns = [np.ones(n)]
    for name in query.features:
        attribute = schema[name]
        if isinstance(attribute, Binned):
            low, high = attribute.edges[0], attribute.edges[-1]
            columns.append(np.clip((table[name] - low) / (high - low) * 2 - 1, -1, 1))
        elif attribute.known == 2:
            columns.append(np.where(table[name] == attribute.levels[1], 1.0, -1.0))
        else:
            columns += [(table[name] == level).astype(float) for level in attribute.levels]
        if attribute.size > attribute.known:
            columns.append(np.zeros(n))  # nobody is missing
    y = np.where(table[query.target] == schema[query.target].levels[1], 1.0, -1.0)
    return np.stack(columns, axis=1), y


def loss_of(X, y, theta):
    return float(np.logaddexp(0, -y * (X @ theta)).mean())


def best(X, y, query):
    bounds = Bounds(1.0, float(np.linalg.norm(X, axis=1).max()))
    problem = Problem(Logistic(), L2Ball(RADIUS), bounds=bounds, d=X.shape[1])
    names = tuple(f"c{i}" for i in range(X.shape[1]))
    rows = CompiledRegression((0,), (len(X),), names, problem, X, y, len(X), description=query)
    return minimise_in_ball(rows, np.full(len(X), 1 / len(X)))


def direct(X, y, epsilon, n, seed):
    """Coefficients of PrivateLogisticRegression with the whole budget, the intercept first."""
    from dpcvx import PrivateLogisticRegression

    model = PrivateLogisticRegression(
        epsilon=epsilon, delta=1 / n**2, bounds=(-1, 1), classes=(-1, 1), random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        used = np.flatnonzero(np.abs(X).max(axis=0))[1:]
        model.fit(X[:, used], y)
    theta = np.zeros(X.shape[1])
    theta[0], theta[used] = np.ravel(model.intercept_)[0], np.ravel(model.coef_)
    return theta


def random_queries(schema, count, features=None, seed=0):
    rng = np.random.default_rng(seed)
    names = list(schema.names)
    found = []
    for _ in range(count):
        target = str(rng.choice(["income", "sex"]))
        others = [name for name in names if name != target]
        size = int(rng.integers(2, 13)) if features is None else features
        found.append(
            Regression(target, [others[k] for k in rng.permutation(len(others))[:size]], radius=RADIUS)
        )
    return found


def run_adult(arguments):
    schema, table = adult()
    n = len(table["income"])
    began = time.process_time()
    engine = QueryEngine(
        schema,
        table,
        Budget(arguments.epsilon, 1 / n**2),
        rng=SeededGenerator(arguments.seed),
        bin_means=arguments.bin_means,
    )
    started = time.process_time() - began
    print(f"n = {n}, {engine.universe.n_cells:.1e} cells, start {started:.1f} s", flush=True)
    queries = random_queries(schema, arguments.queries, arguments.features)
    seconds, excess, ours, theirs = [], [], [], []
    for i, query in enumerate(queries):
        began = time.process_time()
        answer = engine.ask(query)
        seconds.append(time.process_time() - began)
        if i < arguments.measured:
            X, y = raw_design(schema, table, query)
            least = loss_of(X, y, best(X, y, query))
            excess.append(loss_of(X, y, np.array(answer.coded)) - least)
            if i < arguments.direct:
                ours.append(excess[-1])
                theirs.append(loss_of(X, y, direct(X, y, arguments.epsilon, n, i)) - least)
            print(
                f"{i} {query.target} {len(query.features)} features, {X.shape[1]} columns: "
                f"excess {excess[-1]:.5f} {answer.error:.5f}"
                + (f", direct {theirs[-1]:.5f}" if i < arguments.direct else "")
                + f", {1e3 * seconds[-1]:.0f} ms",
                flush=True,
            )
    row = {
        "n": n,
        "cells": float(engine.universe.n_cells),
        "epsilon": arguments.epsilon,
        "queries": len(queries),
        "measured": len(excess),
        "mean": float(np.mean(excess)),
        "median": float(np.median(excess)),
        "max": float(np.max(excess)),
        "mean_of_compared": float(np.mean(ours)) if ours else None,
        "direct": float(np.mean(theirs)) if theirs else None,
        "compared": len(theirs),
        "updates": engine.n_updates,
        "start_seconds": started,
        "milliseconds": 1e3 * float(np.mean(seconds)),
        "p99_milliseconds": 1e3 * float(np.quantile(seconds, 0.99)),
    }
    save("adult", row)


def factor_table(n, d, seed=0):
    """Binary attributes that share four normal factors."""
    rng = np.random.default_rng(seed)
    loadings = 0.8 * rng.normal(size=(4, d)) / 2
    thresholds = 0.7 * rng.normal(size=d)
    scores = rng.normal(size=(n, 4)) @ loadings + rng.logistic(scale=0.55, size=(n, d))
    values = (scores > thresholds).astype(int)
    return {f"a{j}": values[:, j] for j in range(d)}


def run_factors(arguments):
    d, n = arguments.attributes, arguments.n
    schema = Schema(tuple(Attribute(f"a{j}", (0, 1), 0) for j in range(d)))
    table = factor_table(n, d)
    began = time.process_time()
    engine = QueryEngine(
        schema, table, Budget(arguments.epsilon, 1 / n**2), rng=SeededGenerator(arguments.seed)
    )
    started = time.process_time() - began
    print(f"start {started:.1f} s", flush=True)
    counts = Counts.of(Universe(schema), table)
    rng = np.random.default_rng(1)
    seconds, excess = [], []
    for _ in range(arguments.queries):
        names = [f"a{j}" for j in rng.permutation(d)[:7]]
        query = Regression(names[0], names[1:])
        began = time.process_time()
        answer = engine.ask(query)
        seconds.append(time.process_time() - began)
        compiled = query.compile(engine.schema, n)
        weights = counts.shares(compiled.attributes).ravel()
        excess.append(compiled.error(weights, np.array(answer.coded)))
    save(
        f"factors_{d}",
        {
            "n": n,
            "attributes": d,
            "epsilon": arguments.epsilon,
            "queries": arguments.queries,
            "mean": float(np.mean(excess)),
            "max": float(np.max(excess)),
            "updates": engine.n_updates,
            "start_seconds": started,
            "milliseconds": 1e3 * float(np.mean(seconds)),
            "median_milliseconds": 1e3 * float(np.median(seconds)),
        },
    )


def save(name, row):
    print(json.dumps(row, indent=1))
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / f"natural_{name}.json").write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["adult", "factors"])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--measured", type=int, default=60)
    parser.add_argument("--direct", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--features", type=int, help="so many in each query, instead of 2 to 12")
    parser.add_argument("--bin-means", type=float, default=0.1)
    parser.add_argument("--attributes", type=int, default=120)
    parser.add_argument("--n", type=int, default=48_842)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    run_adult(given) if given.what == "adult" else run_factors(given)
