"""Warm start, passes over all cells and gradients without a matrix: accuracy on Adult, times and memory.

    python benchmarks/universe.py accuracy [--queries 200] [--seeds 3]
    python benchmarks/universe.py speed [--largest 20]

accuracy: Adult (a9a and a9a_test together), 16 binary attributes: the 15 columns of largest variance and the
label. The histogram is fitted to noisy marginals alone; then random logistic regressions of one attribute on
6 others, features and target -1 or 1, ||theta||_2 <= 3, no intercept. Excess risk is that of the histogram's
minimiser on the records over the best one.

speed: one marginal, one fit, and the gradient of a logistic model on all attributes but one over all cells,
against float64 products with the matrix of all cells (written out before the clock starts). Best of five; set
OMP_NUM_THREADS=1 where other programs run.
"""

import argparse
import resource
import time

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import vstack

from datasets import sparse
from dpcvx.accounting import gaussian_mu
from dpcvx.losses import Logistic
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Counts, Histogram, NoisyMarginals, Schema, Universe
from dpcvx.queries.marginals import marginal_order
from dpcvx.queries.maximum_entropy import fit

RADIUS, FEATURES = 3.0, 6
LOSS = Logistic()


def binary_universe(d):
    return Universe(Schema(tuple(Attribute(f"a{i}", (0, 1), 1) for i in range(d))))


def adult(d=16):
    """The records of Adult as counts of cells."""
    parts = [sparse(name) for name in ("a9a", "a9a_test")]
    X = vstack([part[0] for part in parts]).tocsc()
    y = np.concatenate([part[1] for part in parts])
    means = np.asarray(X.mean(axis=0)).ravel()
    chosen = np.sort(np.argsort(-means * (1 - means), kind="stable")[: d - 1])
    columns = np.column_stack([X[:, chosen].toarray(), y > 0]).astype(int)
    universe = binary_universe(d)
    return universe, Counts.of(universe, {f"a{i}": columns[:, i] for i in range(d)})


SIGNS = 2.0 * np.array(np.unravel_index(np.arange(2 ** (FEATURES + 1)), (2,) * (FEATURES + 1))).T - 1
MARGINS = SIGNS[:, :FEATURES] * SIGNS[:, FEATURES:]


def risk(theta, weights):
    z = MARGINS @ theta
    return weights @ np.logaddexp(0, -z), -(MARGINS.T @ (weights / (1 + np.exp(z))))


def best(weights):
    """Minimiser over the ball: free, or on its boundary with the multiplier found by bisection."""
    ridge_low, ridge_high = 0.0, 1.0
    theta = _ridged(weights, 0.0, np.zeros(FEATURES))
    if np.linalg.norm(theta) <= RADIUS:
        return theta
    for _ in range(60):
        ridge = (ridge_low + ridge_high) / 2
        theta = _ridged(weights, ridge, theta)
        outside = np.linalg.norm(theta) > RADIUS
        ridge_low, ridge_high = (ridge, ridge_high) if outside else (ridge_low, ridge)
    return theta * min(1.0, RADIUS / np.linalg.norm(theta))


def _ridged(weights, ridge, start):
    def objective(theta):
        value, gradient = risk(theta, weights)
        return value + ridge / 2 * theta @ theta, gradient + ridge * theta

    bounds = [(-50.0, 50.0)] * FEATURES
    return minimize(
        objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    ).x


def accuracy(queries, seeds):
    universe, counts = adult()
    n, d = counts.n, len(universe.shape)
    rng = np.random.default_rng(0)
    asked = [tuple(map(int, rng.permutation(d)[: FEATURES + 1])) for _ in range(queries)]
    truth = [counts.marginal(A).ravel() / n for A in asked]
    optimum = [risk(best(p), p)[0] for p in truth]
    print(f"n = {n}, {universe.n_cells} cells, {queries} queries, {seeds} seeds, delta = 1/n^2")
    print("epsilon  order   noise of pairs   mean excess   max excess   fit, s")
    for epsilon in (0.1, 1.0, 4.0):
        multiplier = 1 / gaussian_mu(epsilon, 1 / n**2)
        chosen = marginal_order(universe.shape, n, multiplier)
        for order in sorted({2, chosen}):
            mechanism = NoisyMarginals(universe.shape, n, multiplier, order)
            excess, seconds = [], []
            for seed in range(seeds):
                measured = mechanism(counts, SeededGenerator(seed))
                start = time.perf_counter()
                histogram = fit(universe, measured)
                seconds.append(time.perf_counter() - start)
                for A, p, least in zip(asked, truth, optimum, strict=True):
                    excess.append(risk(best(histogram.marginal(A).ravel()), p)[0] - least)
            mark = "*" if order == chosen else " "
            print(
                f"{epsilon:7g}  {order:4d}{mark}  {mechanism.deviations[1]:15.5f}  {np.mean(excess):12.6f}"
                f"  {np.max(excess):11.6f}  {np.mean(seconds):7.2f}",
                flush=True,
            )
    print("* the order that marginal_order chooses")


def shortest(call, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(largest):
    print("cells   marginal of 7, ms   gradient, ms   with a matrix, ms   ratio   fit, s   peak MiB")
    for d in [size for size in (16, 18, 20, 22, 24) if size <= largest]:
        universe = binary_universe(d)
        rng = np.random.default_rng(0)
        histogram = Histogram(universe, rng.gamma(0.5, size=universe.n_cells))
        subset = tuple(range(0, d, max(1, d // 7)))[:7]
        histogram.marginal(subset)  # compiles
        marginal = shortest(lambda h=histogram, A=subset: h.marginal(A))
        theta, target = 0.3 * rng.normal(size=d - 1), d // 2
        others = [a for a in range(d) if a != target]
        scores = {a: np.array([-t, t]) for a, t in zip(others, theta, strict=True)}
        implicit = histogram.gradient(LOSS, scores, target)
        quick = shortest(lambda h=histogram, s=scores, t=target: h.gradient(LOSS, s, t))
        slow = np.nan
        if d <= 20:
            cells = np.array(np.unravel_index(np.arange(universe.n_cells), universe.shape)).T * 2.0 - 1.0
            matrix, y, p = np.delete(cells, target, axis=1), cells[:, target].copy(), histogram.weights

            def explicit(matrix=matrix, y=y, p=p, theta=theta):
                return matrix.T @ (p * LOSS.grad(matrix @ theta, y))

            difference = explicit() - [implicit[a][1] - implicit[a][0] for a in others]
            if abs(difference).max() > 1e-12:
                raise SystemExit(f"the two gradients differ by {abs(difference).max():g}")
            slow = shortest(explicit)
            del cells, matrix
        n = 50_000
        counts = Counts(universe, Histogram(universe, _dependent(d)).sample(n, SeededGenerator(1)))
        measured = NoisyMarginals(universe.shape, n, 1 / gaussian_mu(1.0, 1 / n**2), 2)(
            counts, SeededGenerator(2)
        )
        start = time.perf_counter()
        fit(universe, measured, dtype=np.float32 if d > 22 else np.float64)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"2^{d}  {1e3 * marginal:18.2f}  {1e3 * quick:13.2f}  {1e3 * slow:18.2f}  {slow / quick:6.1f}"
            f"  {seconds:7.2f}  {peak:9.0f}",
            flush=True,
        )


def _dependent(d):
    """Weights of a distribution in which each attribute leans on the one before."""
    weights = np.ones(1)
    for place in range(d):
        stay = 0.85 if place % 3 else 0.6
        turn = np.array([[stay, 1 - stay], [1 - stay, stay]])
        last = np.arange(weights.size) % 2 if place else np.zeros(1, dtype=int)
        weights = (weights[:, None] * turn[last]).ravel()
    return weights


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["accuracy", "speed"])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=20)
    given = parser.parse_args()
    if given.what == "accuracy":
        accuracy(given.queries, given.seeds)
    else:
        speed(given.largest)
