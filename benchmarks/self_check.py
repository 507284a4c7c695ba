"""Value and noise of a check of the engine's own errors: the reason why engines spend nothing on it.

    python benchmarks/self_check.py

With 4 % of the budget for the 97.5 % quantile of the errors of 200 public regressions, and 1 % for that of
tables of three attributes, as earlier versions had, in units of the sensitivity of an error.
"""

import dpcvx.queries.budget_split as budget_split
from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import QueryEngine
from queries import synthetic


def main() -> None:
    budget_split.CHECKS = (0.04, 0.01)
    for n in (5_000, 50_000, 250_000):
        schema, table = synthetic(8, n)
        for epsilon in (1.0, 4.0):
            budget = Budget(epsilon, 1 / n**2)
            engine = QueryEngine(schema, table, budget, method="warm", check=0, rng=SeededGenerator(0))
            for name, check in engine._checks.items():
                print(
                    f"n {n:7,} epsilon {epsilon:g} {name:11} released {check.value:6.1f}, standard deviation "
                    f"of the noise {check.noise:5.1f}"
                )


if __name__ == "__main__":
    main()
