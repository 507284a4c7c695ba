"""Excess risk of the private LASSO by Frank-Wolfe against n and against p, on designs of signs.

Targets: harmonic coefficients of l1 norm 1 (at every n some are just too small to be found, the case that the
rate n^(-2/3) is about), and k equal ones, which are easier once they can be seen. epsilon = 1, delta = 1/n^2,
radius 1, all else by default; excess over the optimum on the same records, certified by its duality gap.
"""

import argparse
import math

import numpy as np

from datasets import OUTPUT
from dpcvx.accounting import Budget, Tight
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.memory import Arrays
from dpcvx.data.rows import Dense
from dpcvx.domains import L1Ball
from dpcvx.losses import Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe
from figures import save

TOLERANCE = 1e-6


class Design:
    """n rows of p signs, and the squared loss of any targets on them."""

    def __init__(self, n: int, p: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n, self.p, self.seed = n, p, seed
        signs = 2 * self.rng.integers(0, 2, size=(n, p), dtype=np.int8) - 1
        self.floats = signs.astype(np.float32)
        self.stored = Dense(signs.astype(np.int16) * np.int16(2**FEATURE_BITS))
        self.largest = (1 + math.sqrt(p / n)) ** 2 * 1.1  # above the top eigenvalue of X'X/n

    def targets(self, coefficients):
        used = np.flatnonzero(coefficients)
        signal = self.floats[:, used] @ coefficients[used].astype(np.float32)
        return np.clip(signal + self.rng.uniform(-0.2, 0.2, self.n), -1, 1).astype(np.float64)

    def residual(self, theta, y):
        used = np.flatnonzero(theta)
        return (self.floats[:, used] @ theta[used].astype(np.float32)).astype(np.float64) - y

    def gradient(self, residual):
        return (residual.astype(np.float32) @ self.floats).astype(np.float64) / self.n

    def risk(self, theta, y):
        return 0.5 * np.mean(self.residual(theta, y) ** 2)

    def optimum(self, y, start):
        ball, theta, t = L1Ball(1.0), start, 1.0
        point = theta
        for _ in range(3000):
            new = ball.project(point - self.gradient(self.residual(point, y)) / self.largest)
            after = (1 + math.sqrt(1 + 4 * t * t)) / 2
            theta, point, t = new, new + (t - 1) / after * (new - theta), after
            g = self.gradient(self.residual(theta, y))
            if g @ theta + abs(g).max() < TOLERANCE:
                break
        else:
            raise RuntimeError("the optimum was not reached")
        return self.risk(theta, y)

    def measure(self, coefficients):
        """(excess of the private run, number of its steps)."""
        y = self.targets(coefficients)
        problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=self.p)
        plan = NoisyFrankWolfe().plan(problem, self.n, Budget(1.0, 1 / self.n**2), Tight())
        data = Arrays(self.stored, y[:, None], layout="columns")
        theta = execute(plan, data, rng=SeededGenerator(self.seed)).theta
        return self.risk(theta, y) - self.optimum(y, coefficients), plan.n_calls


def coefficients(kind, p):
    if kind == "harmonic":
        values = 1 / np.arange(1, p + 1)
        return values / values.sum()
    k = int(kind)
    return np.r_[np.full(k, 1 / k), np.zeros(p - k)]


def table(sizes, features, kinds, seeds):
    """Mean excess for every kind, at every (n, p)."""
    result = {kind: [] for kind in kinds}
    for n, p in zip(sizes, features, strict=True):
        designs = (Design(n, p, seed) for seed in range(seeds))
        rows = [[design.measure(coefficients(kind, p)) for kind in kinds] for design in designs]
        for i, kind in enumerate(kinds):
            excess = [row[i][0] for row in rows]
            result[kind].append(np.mean(excess))
            error = np.std(excess, ddof=1) / math.sqrt(seeds)
            steps = rows[0][i][1]
            print(
                f"  n={n:<7} p={p:<6} {kind:>8}  T={steps:<5} excess {np.mean(excess):.5f} +- {error:.5f}",
                flush=True,
            )
    return result


def plot(sizes, by_n, features, by_p):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for kind, excess in by_n.items():
        left.loglog(sizes, excess, "o-", label=f"{kind} coefficients")
    guide = by_n["harmonic"][0] * (np.array(sizes) / sizes[0]) ** (-2 / 3)
    left.loglog(sizes, guide, "k--", label="slope -2/3")
    left.set(xlabel="records n", ylabel="excess risk", title="p = 1000, epsilon = 1")
    for kind, excess in by_p.items():
        right.semilogx(features, excess, "o-", label=f"{kind} coefficients")
    guide = by_p["harmonic"][0] * np.log(2 * np.array(features)) / math.log(2 * features[0])
    right.semilogx(features, guide, "k--", label="log 2p")
    right.set(xlabel="features p", title="fixed n, epsilon = 1", ylim=(0, None))
    for axis in (left, right):
        axis.legend()
    OUTPUT.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(OUTPUT / "lasso_rates.png", dpi=150)
    print(f"plot: {OUTPUT.parent.name}/{OUTPUT.name}/lasso_rates.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 20_000, 50_000, 100_000, 200_000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n", type=int, default=10_000, help="records of the sweep over p")
    options = parser.parse_args()
    print("against n, p = 1000")
    by_n = table(options.sizes, [1000] * len(options.sizes), ["harmonic", "16", "64"], options.seeds)
    for kind, excess in by_n.items():
        slope = np.polyfit(np.log(options.sizes), np.log(excess), 1)[0]
        print(f"  log-log slope, {kind}: {slope:.3f}")
    features = [100, 1000, 10_000]
    print(f"against p, n = {options.n}")
    by_p = table([options.n] * 3, features, ["harmonic", "16", "64"], options.seeds)
    logs = math.log(2 * features[-1]) / math.log(2 * features[0])
    for kind, excess in by_p.items():
        print(
            f"  growth from p = 100 to 10,000, {kind}: {excess[-1] / excess[0]:.2f} (log 2p grows {logs:.2f})"
        )
    plot(options.sizes, by_n, features, by_p)
    save(
        "lasso_rates",
        {
            "slope_in_n": np.polyfit(np.log(options.sizes), np.log(by_n["harmonic"]), 1)[0],
            "growth_with_p": by_p["harmonic"][-1] / by_p["harmonic"][0],
            "smallest_n": min(options.sizes),
            "largest_n": max(options.sizes),
        },
    )


if __name__ == "__main__":
    main()
