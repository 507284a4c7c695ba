"""False alarms about columns: numbers that a fit names as flat, or as clipped at their upper bound.

A standardised fit names a column whose released mean square is within its noise, or whose released mean is at
the upper end of its bounds (`solvers.standardised`). Here every column of numbers of the development list of
`tables.py` has the noise of the default plan, for whole tables (of at most 15,000 records) and for 1,000
records, and the bounds of the list, which are right. Printed: columns, and shares of them that are named as
flat and as at the upper end. No model is fitted.
"""

import argparse
import zlib

import numpy as np

from dpcvx import PrivateLinearRegression, PrivateLogisticRegression
from dpcvx.solvers.standardised import doubtful_columns
from figures import update
from tables import DEVELOPMENT, TableTask, load, questions

MOST = 15_000


def named(task: TableTask, n: int, epsilon: float) -> np.ndarray | None:
    """Whether each column of numbers is named as flat, and as at the end; None if there is none."""
    kind = PrivateLogisticRegression if task.classifies else PrivateLinearRegression
    declared = {name: value for name, value in task.declared.items() if value is not None}
    plan = kind(epsilon=epsilon, delta=1 / n**2, **declared).plan(n, list(task.X.columns))
    if not (plan.solver.standardises and declared["bounds"]):
        return None
    stages = [each.mechanism for each in plan.stages if each.mechanism.traits.question == "moment"]
    noise = [float(each.deviations[0]) for each in stages]
    rng = np.random.default_rng(zlib.crc32(f"{task.name} {n} {epsilon}".encode()))
    low, high = np.array(list(declared["bounds"].values())).T
    cells = np.clip((2 * task.X[list(declared["bounds"])].to_numpy()[:n] - low - high) / (high - low), -1, 1)
    means = np.clip(cells.mean(axis=0) + noise[0] * rng.normal(size=len(low)), -1, 1)
    squares = np.mean((cells - means) ** 2, axis=0) + noise[1] * rng.normal(size=len(low))
    found = np.zeros((len(low), 2), dtype=bool)
    for kind_of_doubt, places in enumerate(doubtful_columns(means, squares, *noise)):
        found[list(places), kind_of_doubt] = True
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.3, 1.0, 4.0])
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    tasks = [load(question) for question in questions(DEVELOPMENT)]
    figures: dict[str, float] = {}
    for size in (0, 1000):
        for epsilon in options.epsilons:
            sizes = [size or min(len(task.y), MOST) for task in tasks]
            fitting = [(task, n) for task, n in zip(tasks, sizes, strict=True) if n <= len(task.y)]
            found = [each for task, n in fitting if (each := named(task, n, epsilon)) is not None]
            flat, at_end = np.concatenate(found).mean(axis=0)
            columns = sum(map(len, found))
            label = f"{'whole' if size == 0 else size} epsilon {epsilon:g}"
            print(f"{label}: {columns} columns, flat {flat:.4f}, at the upper end {at_end:.4f}", flush=True)
            name = f"{size}_eps{epsilon:g}"
            figures |= {f"{name}_columns": columns, f"{name}_flat": flat, f"{name}_at_end": at_end}
    if not options.dry:
        update("column_units", figures)


if __name__ == "__main__":
    main()
