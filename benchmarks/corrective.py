"""Excess risk of the private LASSO: plain against corrective Frank-Wolfe, on designs of signs.

Targets: k equal coefficients of total 1, and harmonic ones; the designs, the noise of the targets and the
certified optimum are those of lasso_rates.py. delta = 1/n^2, radius 1, all else by default.
"""

import argparse
import math
import time

import numpy as np

from datasets import OUTPUT
from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import Arrays
from dpcvx.domains import L1Ball
from dpcvx.losses import Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyCorrectiveFrankWolfe, NoisyFrankWolfe, NoisyGradientDescent
from figures import save
from lasso_rates import Design, coefficients

SOLVERS = (NoisyFrankWolfe(), NoisyCorrectiveFrankWolfe(), NoisyGradientDescent())
SETTINGS = ((10_000, 1000, 1.0), (50_000, 2000, 0.3))
KINDS = ("4", "8", "16", "harmonic")


def measure(design, kind, epsilon):
    """Excess risk and seconds of every solver on one design."""
    truth = coefficients(kind, design.p)
    y = design.targets(truth)
    best = design.optimum(y, truth)
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=design.p)
    data = Arrays(design.stored, y[:, None])
    rows = []
    for solver in SOLVERS:
        plan = solver.plan(problem, design.n, Budget(epsilon, 1 / design.n**2), Tight())
        began = time.perf_counter()
        theta = execute(plan, data, rng=SeededGenerator(design.seed)).theta
        rows.append((design.risk(theta, y) - best, time.perf_counter() - began))
    return np.array(rows)


def plot(results):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(5 * len(results), 4), squeeze=False)
    for axis, ((n, p, epsilon), by_kind) in zip(axes[0], results.items(), strict=True):
        places = np.arange(len(by_kind))
        for i, solver in enumerate(SOLVERS):
            heights = [max(risks[i], 1e-5) for risks in by_kind.values()]
            axis.bar(places + 0.27 * (i - 1), heights, 0.25, label=type(solver).__name__)
        axis.set(xticks=places, yscale="log", title=f"n = {n:,}, p = {p:,}, epsilon = {epsilon:g}")
        axis.set_xticklabels(by_kind)
        axis.set(xlabel="coefficients", ylabel="excess risk")
    axes[0, 0].legend(fontsize=8)
    OUTPUT.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(OUTPUT / "corrective.png", dpi=150)
    print(f"plot: {OUTPUT.parent.name}/{OUTPUT.name}/corrective.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--kinds", nargs="+", default=list(KINDS), help="numbers of equal coefficients, or harmonic"
    )
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many settings to run")
    options = parser.parse_args()
    results = {}
    for n, p, epsilon in SETTINGS[: options.settings]:
        runs = {kind: [] for kind in options.kinds}
        for seed in range(options.seeds):
            design = Design(n, p, seed)
            for kind in options.kinds:
                runs[kind].append(measure(design, kind, epsilon))
        results[n, p, epsilon] = {kind: np.mean(rows, axis=0)[:, 0] for kind, rows in runs.items()}
        print(f"n={n} p={p} epsilon={epsilon:g}")
        for kind, rows in runs.items():
            means = np.mean(rows, axis=0)
            errors = (
                np.std(rows, axis=0, ddof=1)[:, 0] / math.sqrt(len(rows))
                if len(rows) > 1
                else means[:, 0] * 0
            )
            cells = (
                f"{type(solver).__name__[5:]} {mean:.5f} +- {error:.5f} ({seconds:.1f} s)"
                for solver, (mean, seconds), error in zip(SOLVERS, means, errors, strict=True)
            )
            print(f"  {kind:>8}  " + "   ".join(cells), flush=True)
    plot(results)
    save(
        "corrective",
        {
            f"gain_{kind}_n{n}": risks[0] / risks[1]
            for (n, _, _), by_kind in results.items()
            for kind, risks in by_kind.items()
        },
    )


if __name__ == "__main__":
    main()
