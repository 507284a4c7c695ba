"""Excess risk against gradient evaluations: variance-reduced descent beside full descent, condition >= 100.

Logistic regression on rows of norm 1 whose features have different scales, with a ridge that makes the public
condition number what is asked for. Every point is a plan of its own, calibrated for the whole budget: full
descent of T steps costs T n evaluations, variance-reduced descent n + 2 q n (m - 1) for each epoch, expected.
The level to reach is 1.5 times the excess of the default plan of `NoisySVRG`.

    python benchmarks/svrg.py [--n 100000] [--features 20] [--condition 200] [--epsilon 1] [--seeds 3]
"""

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from dpcvx.accounting import PLD, Budget, Tight
from dpcvx.data.memory import source
from dpcvx.domains import L2Ball
from dpcvx.losses import Logistic
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Oracle, Stage
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGradientDescent, NoisySVRG, NoisySVRGPlusPlus
from figures import save

OUTPUT = Path(__file__).parent / "output"
PASSES = (4, 8, 16, 32, 64, 128, 256, 512)


class Study:
    def __init__(self, n, d, condition, epsilon, radius=10.0):
        rng = np.random.default_rng(0)
        scales = 1 / np.sqrt(np.arange(1, d + 1))
        scales /= np.linalg.norm(scales)
        X = rng.choice([-1.0, 1.0], (n, d)) * scales
        self.X = np.trunc(X * 2**14) / 2**14
        z = self.X @ (0.5 * rng.normal(size=d) / scales)
        self.y = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
        l2 = 0.25 / (condition - 1)
        self.problem = Problem(Logistic(), L2Ball(radius), bounds=Bounds(1.0, 1.0), d=d, l2=l2)
        self.n, self.budget = n, Budget(epsilon, 1 / n**2)
        self.data = source(self.X, self.y, bounds=self.problem.bounds)
        found = minimize(self.value, np.zeros(d), jac=self.gradient, tol=1e-13, options={"maxiter": 10_000})
        self.optimum, self.length = found.fun, float(np.linalg.norm(found.x))

    def value(self, theta):
        losses = np.logaddexp(0, -self.y * (self.X @ theta))
        return losses.mean() + self.problem.l2 / 2 * theta @ theta

    def gradient(self, theta):
        slopes = self.problem.loss.grad(self.X @ theta, self.y)
        return self.X.T @ slopes / self.n + self.problem.l2 * theta

    def measure(self, solver, seeds):
        """Passes over the records, mean excess with its standard error, and excess without noise."""
        plan = solver.plan(self.problem, self.n, self.budget, accountant_of(solver))
        noisy = [self.excess(plan, seed) for seed in range(seeds)]
        silent = tuple(
            Stage(replace(stage.mechanism, noise_multiplier=1e-9), stage.n_calls) for stage in plan.stages
        )
        return Point(
            plan.gradient_evaluations / self.n,
            float(np.mean(noisy)),
            float(np.std(noisy) / math.sqrt(seeds)),
            self.excess(replace(plan, stages=silent), 0),
        )

    def excess(self, plan, seed):
        theta = plan.solver.run(plan, Oracle(plan, self.data, SeededGenerator(seed)))
        return self.value(theta) - self.optimum


@dataclass(frozen=True)
class Point:
    passes: float
    excess: float
    error: float
    silent: float


def accountant_of(solver):
    """Full descent has an exact price; samples are composed numerically, on a grid that is quick."""
    return Tight() if isinstance(solver, NoisyGradientDescent) else PLD(interval=1e-3)


def first(points, level, value):
    """Fewest passes whose excess is at most the level; infinite if none is."""
    return min((point.passes for point in points if value(point) <= level), default=math.inf)


def compare(curves, level, value):
    reduced = first(curves["NoisySVRG"], level, value)
    for name, points in curves.items():
        passes = first(points, level, value)
        shown = f"{passes:.0f} passes" if math.isfinite(passes) else "not reached by any plan here"
        if math.isfinite(passes) and math.isfinite(reduced):
            shown += f", {passes / reduced:.1f} times those of NoisySVRG"
        print(f"    {name:<40} {shown}")


def best_descent(curves, level, value):
    """Passes of the better full-batch descent over those of NoisySVRG, to reach the level."""
    full = min(first(points, level, value) for name, points in curves.items() if "Gradient" in name)
    return full / first(curves["NoisySVRG"], level, value)


def plot(curves, levels, title):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for name, points in curves.items():
        passes = [point.passes for point in points]
        left.loglog(passes, [max(point.silent, 1e-9) for point in points], "o-", label=name)
        right.errorbar(passes, [p.excess for p in points], [p.error for p in points], fmt="o-", label=name)
    for axis, level, what in zip((left, right), levels, ("without noise", title), strict=True):
        axis.axhline(level, color="grey", linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel="gradient evaluations / n (expected)", title=what)
    left.set_ylabel("excess risk")
    right.legend()
    OUTPUT.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(OUTPUT / "svrg.png", dpi=150)
    print(f"plot: {OUTPUT.parent.name}/{OUTPUT.name}/svrg.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--condition", type=float, default=200.0)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    study = Study(options.n, options.features, options.condition, options.epsilon)
    problem = study.problem
    start = study.value(np.zeros(problem.d)) - study.optimum
    print(
        f"n = {study.n}, d = {problem.d}, condition {problem.smoothness / problem.strong_convexity:.0f}, "
        f"epsilon {options.epsilon:g}: excess at the start {start:.3g}, |theta*| = {study.length:.2f}"
    )
    step = 1 / problem.smoothness
    chosen = NoisySVRG().plan(problem, study.n, study.budget, PLD(interval=1e-3)).solver
    print(f"  default: {chosen}")
    solvers = {
        "NoisySVRG": [replace(chosen, n_epochs=S, share=None) for S in range(1, 9)],
        "NoisySVRGPlusPlus": [NoisySVRGPlusPlus(n_epochs=S, n_steps=4) for S in range(2, 9)],
        "NoisyGradientDescent, momentum 0": [NoisyGradientDescent(T, step, 0.0) for T in PASSES],
        "NoisyGradientDescent, momentum 0.9": [NoisyGradientDescent(T, step, 0.9) for T in PASSES],
    }
    curves = {}
    for name, kinds in solvers.items():
        curves[name] = [study.measure(solver, options.seeds) for solver in kinds]
        for point in curves[name]:
            print(
                f"  {name:<36} {point.passes:6.1f} passes  excess {point.excess:.2e} +- {point.error:.0e}"
                f"  without noise {point.silent:.1e}",
                flush=True,
            )
    default = curves["NoisySVRG"][chosen.n_epochs - 1]
    levels = 1e-4 * start, 1.5 * default.excess
    print(f"  to reach {levels[0]:.2e} without noise")
    compare(curves, levels[0], lambda point: point.silent)
    print(f"  to reach {levels[1]:.2e} with noise, 1.5 times the excess of the default plan")
    compare(curves, levels[1], lambda point: point.excess)
    save(
        "svrg",
        {
            "condition": problem.smoothness / problem.strong_convexity,
            "n": study.n,
            "epsilon": options.epsilon,
            **{
                f"times_the_passes_{kind}": best_descent(curves, level, value)
                for kind, level, value in (
                    ("without_noise", levels[0], lambda point: point.silent),
                    ("with_noise", levels[1], lambda point: point.excess),
                )
            },
        },
    )
    plot(curves, levels, f"epsilon = {options.epsilon:g}, delta = 1/n^2, n = {study.n}")


if __name__ == "__main__":
    main()
