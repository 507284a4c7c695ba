"""How often intervals cover: coefficients of linear and logistic models, privacy noise and sampling included.

Features are correlated normal variables of deviation 1 with declared bounds of three deviations, the target
has equal shares of signal and noise, or odds that vary as much. Each cell is fitted with many seeds, every
one with new records and new noise. Runs in which the release says that noise hides a direction are counted
apart. Writes docs/figures/intervals.json.
"""

import argparse
import math
import time

import numpy as np

import dpcvx as dp
from dpcvx.noise import SeededGenerator
from dpcvx.planner import default_radius, residual_clip
from dpcvx.solvers import NoisyGradientDescent, ObjectivePerturbation, Standardised
from dpcvx.solvers.one_step import with_uncertainty
from figures import update

CELLS = [  # (records, features, epsilon)
    (5_000, 3, 0.5),
    (5_000, 3, 4.0),
    (50_000, 3, 1.0),
    (20_000, 10, 0.5),
    (20_000, 10, 1.0),
    (50_000, 10, 4.0),
    (5_000, 20, 4.0),
    (50_000, 20, 0.5),
    (50_000, 20, 1.0),
    (50_000, 20, 4.0),
]
BOUND, TARGET_BOUND = 3.0, 5.0
CORRELATION = 0.3
LEVELS = {95: 1.959964, 80: 1.281552}


def population(kind, d):
    """(covariance of the features, coefficients): the same for every seed."""
    covariance = CORRELATION * np.ones((d, d)) + (1 - CORRELATION) * np.eye(d)
    coef = np.random.default_rng(d).normal(size=d)
    spread = 1.0 if kind == "linear" else 1.5
    return covariance, coef * spread / math.sqrt(coef @ covariance @ coef)


def sample(kind, n, d, seed):
    """Records inside their bounds: those that are not are drawn again."""
    rng = np.random.default_rng(seed)
    covariance, coef = population(kind, d)
    root = np.linalg.cholesky(covariance)
    X = np.empty((0, d))
    while len(X) < n:
        more = rng.normal(size=(n, d)) @ root.T
        X = np.vstack([X, more[(abs(more) < BOUND).all(axis=1)]])
    X = X[:n]
    z = X @ coef
    if kind == "linear":
        return X, z + rng.normal(size=n)
    return X, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(0.5 - z)), 1.0, -1.0)


def planned(kind, cell, options):
    """The plan of a cell, from public facts."""
    n, d, epsilon = cell
    loss = dp.Squared() if kind == "linear" else dp.Logistic()
    width = d if options.standardised else d + 1  # the intercept, which standardisation brings itself
    problem = dp.Problem(loss, dp.L2Ball(default_radius(loss, "l2")), bounds=dp.Bounds(1.0), d=width)
    solver = ObjectivePerturbation() if options.perturbation else NoisyGradientDescent()
    if options.standardised:
        solver = Standardised(solver)
    elif not options.perturbation:
        solver = NoisyGradientDescent(clip=residual_clip(problem))
    return with_uncertainty(solver, options.share).plan(problem, n, dp.Budget(epsilon, 1 / n**2), dp.Tight())


def measure(kind, cell, options):
    """(coverage by level, runs with a hidden direction)."""
    n, d, epsilon = cell
    plan, (_, coef) = planned(kind, cell, options), population(kind, d)
    unit = (TARGET_BOUND if kind == "linear" else 1.0) / BOUND
    began, scores, errors, hidden = time.perf_counter(), [], [], 0
    for seed in range(options.seeds):
        X, y = sample(kind, n, d, seed)
        rows = X / BOUND if options.standardised else np.column_stack([X / BOUND, np.ones(n)])
        data = dp.source(rows, y / TARGET_BOUND if kind == "linear" else y, bounds=plan.problem.bounds)
        known = dp.execute(plan, data, rng=SeededGenerator(seed)).uncertainty
        if known.weak:
            hidden += 1
            continue
        errors.append(unit * np.sqrt(np.diag(known.covariance))[:d])
        scores.append(abs(unit * known.estimate[:d] - coef) / errors[-1])
    covered = {
        level: 100 * float(np.mean(np.array(scores) < limit)) for level, limit in LEVELS.items() if scores
    }
    seconds = (time.perf_counter() - began) / options.seeds
    print(
        f"  {kind:8} n {n:6} d {d:2} epsilon {epsilon:3g}: noise hides a direction in {hidden} runs",
        *(f"{level} % covers {share:.1f}" for level, share in covered.items()),
        f"standard error {np.mean(errors):.4f}, coefficients {np.sqrt(np.mean(coef**2)):.3f}"
        if errors
        else "",
        f"{seconds:.1f} s each",
        sep=", ",
        flush=True,
    )
    return covered, hidden


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["linear", "logistic"])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--cells", type=int, nargs="+", default=list(range(len(CELLS))))
    parser.add_argument("--standardised", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--perturbation", action="store_true", help="objective perturbation, not descent")
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    figures = {"seeds": options.seeds}
    for kind in options.kinds:
        found = [measure(kind, CELLS[number], options) for number in options.cells]
        seen = [covered[95] for covered, hidden in found if hidden == 0]
        if seen:
            figures |= {
                f"{kind}_cells": len(seen),
                f"{kind}_lowest": min(seen),
                f"{kind}_mean": float(np.mean(seen)),
                f"{kind}_highest": max(seen),
            }
    if not options.dry:
        update("intervals", figures)


if __name__ == "__main__":
    main()
