"""Private Frank-Wolfe over sparse records and dense ones: python benchmarks/scale/frank_wolfe.py [part ...]

regimes   rcv1 and news20 at epsilon 1 and 100, T = 4000, logistic loss, against SciPy's two products and
          Gumbel(2p) in the same run; SciPy's total is EXTRAPOLATED from the median of a few iterations
dense     squared loss over a dense matrix: float64 products, one pass a step, cached products of columns

One thread; all times are CPU seconds of this process, so that other processes on the machine disturb them
less. Noise comes from the cryptographic generator. A fit includes its start (levels, sums), not quantising.
How the cost grows with p, n, entries and T: growth.py.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import datasets
import dpcvx as dp
import figures
from dpcvx.accounting import Tight
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser
from dpcvx.noise import SecureGenerator
from dpcvx.solvers import NoisyFrankWolfe

RADIUS, DELTA = 20.0, 1e-6
BARS = {("rcv1", 1): 150, ("rcv1", 100): 8, ("news20", 1): 400, ("news20", 100): 6}


def text(name):
    """(X, y) with cells in [0, 1] and labels -1 and 1."""
    if name == "rcv1":
        return datasets.sparse("rcv1_binary_subset")
    X, y = datasets.sparse("news20_bydate_uni_bigram_binary")
    X.data[:] = np.minimum(X.data, 1.0)
    return X, np.where(y < 10, 1.0, -1.0)


def cpu(call, *arguments):
    """(seconds of CPU, answer)"""
    start = time.process_time()
    answer = call(*arguments)
    return time.process_time() - start, answer


def plan_of(loss, n, d, epsilon, T, bounds):
    problem = dp.Problem(loss, dp.L1Ball(RADIUS), bounds=bounds, d=d)
    return NoisyFrankWolfe(T).plan(problem, n, dp.Budget(epsilon, DELTA), Tight())


def single(X, y, bounds):
    """Quantised records, read by one thread; both storage orders made."""
    records = Arrays(Quantiser(bounds).quantise(X), np.asarray(y, float)[:, None], bounds=bounds, threads=1)
    warm = plan_of(dp.Logistic(), *X.shape, 1.0, 3, bounds)
    dp.execute(warm, records, rng=SecureGenerator())  # compiles, and transposes the records
    return records


def naive_step(X, y, log_scale, rng):
    """One iteration of the plain algorithm as a closure that keeps its theta."""
    n, d = X.shape
    theta, t = np.zeros(d), 0

    def step():
        nonlocal theta, t
        gradient = X.T @ (-y / (1 + np.exp(y * (X @ theta)))) / n
        scores = np.concatenate([-gradient, gradient]) * log_scale + rng.gumbel(size=2 * d)
        j = int(np.argmax(scores))
        mu, t = 2 / (t + 2), t + 1
        theta *= 1 - mu
        theta[j % d] += mu * (RADIUS if j < d else -RADIUS)

    return step


def regimes(options):
    rows, ratios = [], {}
    for name, iterations in (("rcv1", 20), ("news20", 6)):
        X, y = text(name)
        bounds = dp.Bounds(1.0)
        records = single(X, y, bounds)
        for epsilon in (1, 100):
            plan = plan_of(dp.Logistic(), *X.shape, epsilon, options.steps, bounds)
            step = naive_step(X, y, plan.stages[0].mechanism.eta * X.shape[0] / 4, np.random.default_rng(0))
            naive, fits = [], []
            for _ in range(options.rounds):  # the two sides take turns
                naive += [cpu(step)[0] for _ in range(iterations)]
                seconds, release = cpu(dp.execute, plan, records)
                fits.append(seconds)
            fit, plain = statistics.median(fits), statistics.median(naive) * options.steps
            right = np.mean((X @ release.theta > 0) == (y > 0))
            rows.append((name, epsilon, fit, plain, plain / fit, BARS[name, epsilon], right))
            ratios[f"{name}_{epsilon}"] = plain / fit
    print(f"T = {options.steps}, radius {RADIUS:g}, delta {DELTA:g}; naive totals are extrapolated")
    print("data     epsilon    fit s  us/step   naive s   ratio  bar      training accuracy")
    for name, epsilon, fit, plain, ratio, bar, right in rows:
        each = 1e6 * fit / options.steps
        print(f"{name:8s} {epsilon:7d} {fit:8.3f} {each:8.1f} {plain:9.1f} {ratio:7.0f}", end="  ")
        print(f">= {bar:4d}  {right:.3f}")
    if options.steps == 4000:
        figures.save("sparse_frank_wolfe", ratios)


def dense(options):
    n, d, T = options.records, 2_000, 500
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (n, d))
    y = np.clip(X[:, :200] @ rng.normal(size=200) / 20 + 0.1 * rng.normal(size=n), -1, 1)
    bounds = dp.Bounds(1.0, y=1.0)
    records = Arrays(Quantiser(bounds).quantise(X), y[:, None], bounds=bounds, layout="columns", threads=1)
    problem = dp.Problem(dp.Squared(), dp.L1Ball(5.0), bounds=bounds, d=d)
    sides = {}
    for name, clip in (("one pass a step", 100.0), ("cached products", None)):  # a clip: not linear, no cache
        plan = NoisyFrankWolfe(T, clip=clip).plan(problem, n, dp.Budget(20.0, DELTA), Tight())
        fits = [cpu(dp.execute, plan, records) for _ in range(options.rounds + 1)][1:]
        sides[name] = statistics.median(seconds for seconds, _ in fits)
        distinct = np.count_nonzero(fits[-1][1].theta)
    theta = rng.normal(size=d) / d

    def naive():
        gradient = X.T @ (X @ theta - y) / n
        return np.argmax(np.concatenate([gradient, -gradient]) + rng.gumbel(size=2 * d))

    sides["float64 products"] = T * statistics.median(cpu(naive)[0] for _ in range(9))
    sides["one int16 X^T r"] = T * statistics.median(
        cpu(records.follow(dp.Squared(), 1).scores, 0.0, problem_bound(problem))[0] for _ in range(9)
    )
    print(
        f"n = {n}, p = {d}, T = {T}, squared loss, {distinct} features chosen; CPU s, products extrapolated"
    )
    for name, seconds in sides.items():
        print(f"{name:18s} {seconds:8.2f}   {sides['float64 products'] / seconds:6.1f}x")
    print("bars: cached products >= 8x float64 products; a step of one pass <= 1.3 of one int16 X^T r")
    figures.save("dense_frank_wolfe", {name.replace(" ", "_"): seconds for name, seconds in sides.items()})


def problem_bound(problem):
    limit = int(2**20 * problem.slope(np.inf))
    return ResidualBound(limit, limit)


PARTS = {"regimes": regimes, "dense": dense}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="by default all")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=20_000, help="of the dense part")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        print(f"\n-- {part}")
        with threadpool_limits(1):
            PARTS[part](options)


if __name__ == "__main__":
    main()
