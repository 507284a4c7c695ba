"""How often intervals cover: coefficients of linear and logistic models, privacy noise and sampling included.

Features are correlated normal variables of deviation 1 with declared bounds of three deviations, the target
has equal shares of signal and noise, or odds that vary as much. Each cell is fitted with many seeds, every
one with new records and new noise. Runs in which the release says that noise hides a direction are counted
apart. With --defaults the estimators are measured as users meet them: all settings but bounds are their own,
bounds are far wider than the data, features are normal or skewed, and besides coefficients the intervals of
predictions for new people are counted. Writes docs/figures/intervals.json.
"""

import argparse
import itertools
import math
import time
import warnings

import numpy as np

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.noise import SeededGenerator
from dpcvx.planning.planner import default_radius, residual_clip
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
# (law of the features, records, features, epsilon), with bounds of ten deviations.
DEFAULTS = list(itertools.product(("normal", "skewed"), (2_000, 20_000), (2, 5, 10), (1.0, 4.0)))
WIDE, TARGET_WIDE = 10.0, 15.0
NEW_PEOPLE = 50
LEAST_COEFFICIENTS = 600  # of which a share of 95 % is measured within 0.9 points
LEAST_RUNS = 30  # without a hidden direction, for a share of them to be worth writing down
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
    return with_uncertainty(solver, options.share, problem.loss).plan(
        problem, n, dp.Budget(epsilon, 1 / n**2), Tight()
    )


def measure(kind, cell, options):
    """(coverage by level, runs with a hidden direction)."""
    n, d, epsilon = cell
    plan, (_, coef) = planned(kind, cell, options), population(kind, d)
    unit = (TARGET_BOUND if kind == "linear" else 1.0) / BOUND
    began, scores, errors, hidden = time.perf_counter(), [], [], 0
    runs = max(options.seeds, LEAST_COEFFICIENTS // d)
    for seed in range(runs):
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
    seconds = (time.perf_counter() - began) / runs
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


def wide_sample(kind, shape, n, d, rng):
    """Records with features of deviation 1 and mean 0 without limits, normal or of skewness 2."""
    covariance, coef = population(kind, d)
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(covariance).T
    if shape == "skewed":
        X = rng.gamma(1 - CORRELATION, size=(n, d)) + rng.gamma(CORRELATION, size=(n, 1)) - 1
    z = X @ coef - 0.5
    if kind == "linear":
        return X, z + rng.normal(size=n), z
    chances = 1 / (1 + np.exp(-z))
    return X, (rng.uniform(size=n) < chances).astype(int), chances


def default_model(kind, epsilon, share):
    """An estimator with wide bounds, which plans once: what is known before a fit is the same for all."""
    settings = {"epsilon": epsilon, "bounds": (-WIDE, WIDE), "uncertainty": share}
    if kind == "linear":
        model = dp.PrivateLinearRegression(y_bounds=(-TARGET_WIDE, TARGET_WIDE), **settings)
    else:
        model = dp.PrivateLogisticRegression(classes=(0, 1), **settings)
    plan_fit, plans = model._plan_fit, []

    def once(*facts, **more):
        if not plans:
            plans.append(plan_fit(*facts, **more))
        return plans[0]

    model._plan_fit = once
    return model


def measure_defaults(kind, cell, options):
    """Figures of a cell by name: coverage of coefficients and of means of new people, runs with warnings."""
    shape, n, d, epsilon = cell
    (_, coef), rng = population(kind, d), np.random.default_rng(0)
    model, began = default_model(kind, epsilon, options.share), time.perf_counter()
    coefs, means, sure = [], [], []
    for seed in range(options.seeds):
        X, y, _ = wide_sample(kind, shape, n, d, rng)
        people, _, truth = wide_sample(kind, shape, NEW_PEOPLE, d, rng)
        with warnings.catch_warnings():  # of hidden directions, which are counted here
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(X, y)
            for found, intervals, right in (
                (coefs, model.coef_interval(), coef),
                (means, model.predict_interval(people), truth),
            ):
                found.append(100 * np.mean((intervals[:, 0] < right) & (right < intervals[:, 1])))
        sure.append(model._uncertainty.weak == 0)
    name, runs = f"defaults_{kind}_{shape}_n{n}_d{d}_e{epsilon:g}", sum(sure)
    figures = {f"{name}_warned": options.seeds - runs, f"{name}_all": float(np.mean(coefs))}
    if runs >= LEAST_RUNS:
        for part, found in (("coef", np.array(coefs)[sure]), ("mean", np.array(means)[sure])):
            figures[f"{name}_{part}"] = float(found.mean())
            figures[f"{name}_{part}_error"] = float(found.std() / math.sqrt(runs))
    seconds = (time.perf_counter() - began) / options.seeds
    print(f"  {name}", *(f"{key[len(name) + 1 :]} {value:.4g}" for key, value in figures.items()), end=", ")
    print(f"{seconds:.2f} s each", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["linear", "logistic"])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--cells", type=int, nargs="+", help="numbers of cells; all by default")
    parser.add_argument("--defaults", action="store_true", help="estimators with their own defaults")
    parser.add_argument("--standardised", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--perturbation", action="store_true", help="objective perturbation, not descent")
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    cells = [
        cell
        for number, cell in enumerate(DEFAULTS if options.defaults else CELLS)
        if options.cells is None or number in options.cells
    ]
    if options.defaults:
        for kind, cell in itertools.product(options.kinds, cells):
            figures = measure_defaults(kind, cell, options)
            if not options.dry:
                update("intervals", figures | {"defaults_seeds": options.seeds})
        return
    figures = {"seeds": options.seeds}
    for kind in options.kinds:
        found = [measure(kind, cell, options) for cell in cells]
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
