"""When does the paper's cold start win, or the offline variant? Errors by family of queries and by records.

    python benchmarks/cold_start.py [--records 5000 50000 500000 2000000] [--seeds 2]

Twelve binary attributes, 4,096 cells, epsilon = 1, delta = 1/n^2, no check of the data. Families, each of 60
queries that are asked in turn (or together, of the offline variant):

    regressions   logistic, of one attribute on six others, of records with interactions of three attributes
                  (queries.synthetic): mean excess loss
    tables        of three attributes of the same records: mean of the largest error of a share
    parities      tables of four attributes of records with three parities of four attributes each, one in ten
                  flipped, which no table of three shows; a third of the queries is about them: the same mean
    one parity    the same queries, of records with one such parity: mean over the queries about it alone

Methods: the warm start, the offline variant of it, the cold start of the paper ("multiplicative_weights"), a
noisy histogram and composition, which divides its budget by the 60 queries.
"""

import argparse

import numpy as np

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Counts, Marginal, QueryEngine, Regression, Universe
from figures import update
from queries import binary, synthetic

BITS, ASKED = 12, 60
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
FLIPPED = 0.1
METHODS = ("warm", "offline", "multiplicative_weights", "histogram", "composition")


def parities(n, groups):
    """Rows of twelve bits: the last attribute of every group is the parity of the others, up to flips."""
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 2, (n, BITS))
    for *others, last in groups:
        rows[:, last] = rows[:, others].sum(axis=1) % 2 ^ (rng.random(n) < FLIPPED)
    return binary(rows > 0)


def family(name, schema):
    """Queries, and which of them are measured."""
    rng = np.random.default_rng(1)
    found = []
    for k in range(ASKED):
        names = [schema.names[j] for j in rng.permutation(BITS)]
        if name == "regressions":
            found.append(Regression(names[0], names[1:7]))
        elif name == "tables":
            found.append(Marginal(names[:3]))
        elif k % 3 == 0:
            found.append(Marginal([schema.names[j] for j in GROUPS[(k // 3) % 3]]))
        else:
            found.append(Marginal(names[:4]))
    shown = [k for k in range(ASKED) if name != "one parity" or k % 9 == 0]
    return found, shown


def measure(name, n, method, seed):
    if name in ("regressions", "tables"):
        schema, table = synthetic(BITS, n)
    else:
        schema, table = parities(n, GROUPS if name == "parities" else GROUPS[:1])
    asked, shown = family(name, schema)
    counts = Counts.of(Universe(schema), table)
    engine = QueryEngine(
        schema,
        table,
        Budget(1.0, 1 / n**2),
        method=method,
        n_queries=ASKED,
        check=0,
        rng=SeededGenerator(seed),
    )
    answers = engine.ask_many(asked) if method == "offline" else [engine.ask(query) for query in asked]
    errors = []
    for k in shown:
        compiled = asked[k].compile(schema, n)
        shares = counts.shares(compiled.attributes).ravel()
        coded = np.array(answers[k].coded)
        regression = isinstance(asked[k], Regression)
        errors.append(max(compiled.error(shares, coded), 0.0) if regression else np.abs(coded - shares).max())
    return float(np.mean(errors)), engine.n_updates


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs="+", default=[5_000, 50_000, 500_000, 2_000_000])
    parser.add_argument("--families", nargs="+", default=["regressions", "tables", "parities", "one parity"])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    for name in given.families:
        for n in given.records:
            for method in given.methods:
                found = [measure(name, n, method, seed) for seed in range(given.seeds)]
                error = float(np.mean([each[0] for each in found]))
                used = ", ".join(str(each[1]) for each in found)
                print(f"{name}, {n:,} records, {method}: {error:.3g} ({used} updates)", flush=True)
                update("cold_start", {f"{name}, {n}, {method}": error})
