"""Excess risk of the private LASSO on padded Tardos codes, beside the bound for every private algorithm.

The hardest instance of each size (`PaddedTardos.hardest`, the best p a power of 2), epsilon = 0.1,
delta = 1/n^2, radius 1, solvers by default; the optimum is that of the normal equations, which lies inside
the ball. "nothing" answers theta = 0.

    python benchmarks/hard_instances.py [--sizes 1000 3000 10000] [--epsilon 0.1] [--seeds 3]
"""

import argparse
import math

import numpy as np

from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import source
from dpcvx.domains import L1Ball
from dpcvx.losses import Squared
from dpcvx.noise import SeededGenerator
from dpcvx.papers.hard_instances import PaddedTardos
from dpcvx.planning.planner import plan as choose
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyCorrectiveFrankWolfe, NoisyFrankWolfe
from figures import panels, save, save_plot

SOLVERS = {
    "Frank-Wolfe": NoisyFrankWolfe().plan,
    "corrective Frank-Wolfe": NoisyCorrectiveFrankWolfe().plan,
    "planner's choice": lambda problem, n, budget, accountant: choose(problem, n, budget),
}


def hardest(n, epsilon):
    """The instance with the largest lower bound over all p that are powers of 2."""
    candidates = [
        PaddedTardos.hardest(n, 2**i, epsilon=epsilon, delta=1 / n**2)
        for i in range(3, int(math.log2(n / 2)) + 1)
    ]
    return max(candidates, key=lambda instance: instance.lower_bound(epsilon, 1 / n**2))


def risk(instance, records, theta):
    """Of users and of rows with orthogonal columns."""
    users = records.X[: instance.users] @ theta
    return float(((users - 1) ** 2).sum() + instance.anchors * (theta**2).sum()) / (2 * instance.n)


def optimum(instance, records):
    """Least risk over the l1 ball."""
    users = records.X[: instance.users].astype(float)
    system = users.T @ users + instance.anchors * np.eye(instance.p)
    theta = np.linalg.solve(system, users.T @ np.ones(instance.users))
    if np.abs(theta).sum() > 1:
        raise RuntimeError("the solution of the normal equations is outside the ball")
    return risk(instance, records, theta)


def measure(n, epsilon, seeds):
    """Mean excess of every solver, of theta = 0, and the lower bound."""
    instance = hardest(n, epsilon)
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=instance.p)
    plans = {name: plan(problem, n, Budget(epsilon, 1 / n**2), Tight()) for name, plan in SOLVERS.items()}
    excesses = {name: [] for name in (*SOLVERS, "nothing")}
    for seed in range(seeds):
        records = instance.draw(np.random.default_rng(seed))
        best = optimum(instance, records)
        data = source(records.X, records.y, bounds=problem.bounds)
        for name, plan in plans.items():
            theta = execute(plan, data, rng=SeededGenerator(seed)).theta
            excesses[name].append(risk(instance, records, theta) - best)
        excesses["nothing"].append(risk(instance, records, np.zeros(instance.p)) - best)
    found = {name: float(np.mean(values)) for name, values in excesses.items()}
    found["lower bound"] = instance.lower_bound(epsilon, 1 / n**2)
    print(f"  n={n:<7} p={instance.p} users={instance.users} code {instance.share:.0%}")
    for name, values in excesses.items():
        error = np.std(values) / math.sqrt(seeds)
        print(f"    {name:<24} {np.mean(values):.6f} +- {error:.6f}", flush=True)
    print(f"    {'lower bound':<24} {found['lower bound']:.6f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 5000, 10_000, 20_000])
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    sizes = np.array(options.sizes)
    rows = [measure(n, options.epsilon, options.seeds) for n in options.sizes]
    curves = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    figure, (axis,) = panels(1)
    for name, curve in curves.items():
        axis.loglog(sizes, curve, "k-" if name == "lower bound" else "o-", label=name)
    paper = 1 / (sizes * np.log(sizes)) ** (2 / 3)
    axis.loglog(sizes, 0.3 * paper, "k:", label="0.3/(n log n)^(2/3)")
    axis.set(
        title=f"padded Tardos code, epsilon = {options.epsilon:g}", xlabel="records n", ylabel="excess risk"
    )
    axis.legend(fontsize=7, framealpha=0.4)
    save_plot(figure, "hard_instances")
    slopes = {name: np.polyfit(np.log(sizes), np.log(curve), 1)[0] for name, curve in curves.items()}
    for name, slope in slopes.items():
        print(f"  {name}: slope {slope:.2f} in n")
    save(
        "hard_instances",
        {
            "largest_n": max(options.sizes),
            "epsilon": options.epsilon,
            "frank_wolfe_over_bound": curves["Frank-Wolfe"][-1] / curves["lower bound"][-1],
            "corrective_over_bound": curves["corrective Frank-Wolfe"][-1] / curves["lower bound"][-1],
            "nothing_over_bound": curves["nothing"][-1] / curves["lower bound"][-1],
            "slope_frank_wolfe": slopes["Frank-Wolfe"],
            "slope_corrective": slopes["corrective Frank-Wolfe"],
            "slope_lower_bound": slopes["lower bound"],
        },
    )


if __name__ == "__main__":
    main()
