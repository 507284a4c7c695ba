"""How good is the planner's choice? Measured risk of each weighed solver on real data, and of three rules.

    python benchmarks/choice.py [--seeds 3]

For each data set, set, number of records and epsilon every solver that the planner weighs is planned and run.
The rules are the planner's own (rehearsed risk times handicap), the rehearsed risk alone, and the solvers'
formulas (times the handicap of objective perturbation). The regret of a rule is the excess of the chosen
solver's measured risk over that of the best one, as a share of what theta = 0 leaves to learn. Bounds are the
data's own minima and maxima, which nobody may use on private data; the comparison is between solvers.
"""

import argparse
import math
import warnings

import numpy as np

import dpcvx as dp
from datasets import dense, sparse
from dpcvx.noise import SeededGenerator
from dpcvx.planning.candidates import rehearse_once
from dpcvx.planning.planner import automatic, default_clip
from dpcvx.solvers import configured
from figures import save

SIZES = (600, 3000, 15_000)
EPSILONS = (0.3, 1.0, 4.0)
LEAST_LEFT = 0.05  # of the loss at theta = 0: where less can be learnt, regrets are shares of this
MOST_PASSES = 3000  # a solver that needs more is left out here, as it is too slow to be measured
RULES = ("planner", "rehearsal", "formula")


def scaled(X):
    """Columns mapped to [-1, 1] by their minima and maxima."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.clip((X - (low + high) / 2) / np.where(high > low, (high - low) / 2, 1.0), -1, 1)


def tables():
    """(name, X, y, loss) of each data set, rows in random order."""
    X, y = sparse("a9a")
    yield "a9a", X.toarray(), y, dp.Logistic()
    stored = dense("covtype")
    yield "covtype", stored["X"], np.where(stored["y"] == 2, 1.0, -1.0), dp.Logistic()
    stored = dense("mnist")
    yield "mnist", stored["X"][:, ::4], np.where(stored["y"] > 4, 1.0, -1.0), dp.Logistic()
    for name in ("california_housing", "communities_crime"):
        stored = dense(name)
        yield name, stored["X"], stored["y"], dp.Squared()
    stored = dense("blogfeedback")
    yield "blogfeedback", stored["X"], np.log1p(stored["y"]), dp.Squared()


def sets(loss):
    reach = 10.0 if loss.name == "logistic" else 3.0
    yield "l1", dp.L1Ball(reach)
    yield "l2", dp.L2Ball(3 * reach if loss.name == "logistic" else reach)
    yield "groups", dp.GroupBall(5, reach)


def measured(problem, X, y, budget, seeds):
    """{solver: (planner's number, rehearsed, formula, measured risk)} of every solver that is weighed."""
    n, found = len(X), {}
    records, clip = dp.source(X, y, bounds=problem.bounds), default_clip(problem, n, budget)
    for kind in automatic(problem):
        try:
            plan = dp.plan(problem, n, budget, (configured(kind, clip=clip),))
        except dp.Incompatible:
            continue
        if plan.gradient_evaluations > MOST_PASSES * n:
            continue
        (candidate,) = plan.candidates
        typical, handicap = rehearse_once(plan), candidate.handicap
        formula = sum(plan.solver.predict(problem, n, budget)) * (
            2 if kind.__name__ == "ObjectivePerturbation" else 1
        )
        thetas = (dp.execute(plan, records, rng=SeededGenerator(seed)).theta for seed in range(seeds))
        risk = float(np.mean([problem.loss.value(X @ theta, y).mean() for theta in thetas]))
        simulated = math.inf if typical is None else sum(typical)
        found[kind.__name__] = (handicap * candidate.predicted, simulated, formula, risk)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--data", default="", help="only data sets whose name contains this; nothing is saved"
    )
    options = parser.parse_args()
    seeds = options.seeds
    warnings.simplefilter("ignore")
    regrets, rows = {rule: [] for rule in RULES}, []
    for name, X, y, loss in tables():
        if options.data not in name:
            continue
        order = np.random.default_rng(0).permutation(len(y))
        for n in SIZES:
            if n > len(y):
                continue
            chosen = order[:n]
            rows_n = np.column_stack([scaled(np.asarray(X[chosen], dtype=float)), np.ones(n)])
            y_n = np.asarray(y[chosen], dtype=float)
            y_n = y_n if loss.name == "logistic" else scaled(y_n[:, None])[:, 0]
            for place, domain in sets(loss):
                problem = dp.Problem(loss, domain, bounds=dp.Bounds(1.0), d=rows_n.shape[1])
                for epsilon in EPSILONS:
                    found = measured(problem, rows_n, y_n, dp.Budget(epsilon, 1 / n**2), seeds)
                    if len(found) < 2:
                        continue
                    best = min(risk for *_, risk in found.values())
                    trivial = float(loss.value(np.zeros(n), y_n).mean())
                    left = max(trivial - best, LEAST_LEFT * trivial)
                    picks = [min(found, key=lambda kind: found[kind][rule]) for rule in range(3)]
                    costs = [(found[pick][3] - best) / left for pick in picks]
                    for rule, cost in zip(RULES, costs, strict=True):
                        regrets[rule].append(cost)
                    rows.append([name, place, n, epsilon, *picks, *(round(cost, 4) for cost in costs)])
                    print(*rows[-1], flush=True)
    summary: dict[str, float] = {"cells": len(rows), "seeds": seeds}
    for rule, values in regrets.items():
        summary[f"{rule}: mean regret"] = float(np.mean(values))
        summary[f"{rule}: worst regret"] = float(np.max(values))
        summary[f"{rule}: share of cells within 0.05"] = float(np.mean(np.array(values) <= 0.05))
    print(*(f"{name}: {value:.4g}" for name, value in summary.items()), sep="\n")
    if not options.data:
        save("choice", summary)


if __name__ == "__main__":
    main()
