"""The safety net of a warm start: how many hidden interactions it finds and repairs, by records and updates.

    python benchmarks/net.py [--records 1000000 250000 50000] [--updates N]

Sixteen binary attributes with five parities of four attributes each, one in ten of them flipped, which no
table of three attributes shows. 200 random queries (counts, tables of three attributes, regressions) are
asked, and among them the table of each group, in random order, at epsilon = 1, delta = 1/n^2. A group is
repaired if the largest error of its 16 shares is below the level that the comparisons detect. --updates sets
the number of updates instead of the rule; 4 is what versions before the rule had at any n.
"""

import argparse
import time

import numpy as np

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Count, Marginal, QueryEngine, Regression, Schema, budget_split

GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15), (0, 4, 8, 12))
FLIPPED = 0.1


def parities(n, seed=0):
    """Rows of 16 bits: the last attribute of every group is the parity of the others, up to flips."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (n, 16))
    for group in reversed(GROUPS):  # 12 is the parity of 0, 4, 8, and then 15 of 12, 13, 14
        *others, last = group
        rows[:, last] = rows[:, others].sum(axis=1) % 2 ^ (rng.random(n) < FLIPPED)
    return rows


def queries(rng):
    """Random queries of usual kinds."""
    for _ in range(200):
        names = [f"x{j}" for j in rng.choice(16, 4, replace=False)]
        yield (
            Marginal(tuple(names[:3])),
            Count({name: ["1"] for name in names[:2]}),
            Regression(names[0], tuple(names[1:])),
        )[rng.integers(3)]


def measure(n, seed):
    """Ask everything; return the engine, and errors of the groups before and after."""
    rows = parities(n, seed)
    schema = Schema(tuple(Attribute(f"x{j}", (0, 1), 1) for j in range(16)))
    table = {f"x{j}": rows[:, j] for j in range(16)}
    engine = QueryEngine(
        schema, table, Budget(1.0, 1 / n**2), method="warm", rng=SeededGenerator(seed), check=0
    )
    truth = [np.bincount(rows[:, g] @ (8, 4, 2, 1), minlength=16) / n for g in GROUPS]

    def errors():
        found = (engine.histogram.marginal(g).ravel() for g in GROUPS)
        return [float(np.abs(t - f).max()) for t, f in zip(truth, found, strict=True)]

    before = errors()
    rng = np.random.default_rng(seed)
    asked = [*queries(rng), *(Marginal(tuple(f"x{j}" for j in g)) for g in GROUPS)]
    for k in rng.permutation(len(asked)):
        engine.ask(asked[k])
    return engine, before, errors()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 250_000, 50_000])
    parser.add_argument("--updates", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.updates is not None:
        budget_split.CORRECTIONS = budget_split.MOST_CORRECTIONS = given.updates
    print("records    updates  level of shares  groups repaired  largest error before, after  used  seconds")
    for n in given.records:
        started = time.time()
        engine, before, after = measure(n, given.seed)
        level = engine.plan.level / n if engine.plan.comparison else np.inf
        repaired = sum(error < level for error in after)
        print(
            f"{n:>9,} {engine.budget_split.updates:>8} {level:>16.4f} {repaired:>12} of 5 "
            f"{max(before):>16.4f}, {max(after):.5f} {engine.n_updates:>11} {time.time() - started:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
