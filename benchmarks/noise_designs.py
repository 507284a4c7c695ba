"""Fits on selected features: their gain over zero coefficients, and how often the fit returns zeros.

A fit returns zeros if it finds only noise (`dpcvx.solvers.evidence`). For the first number, the gain of the
fitted coefficients, this decision is switched off. Last, LASSO fits of radius 1 whose plan promises nothing
are compared with descent over all features. Designs: the hardest instances of the LASSO of some
sizes (gain: 1 - excess loss over that of zero), rows of `lasso_designs.py` with truths of R^2 0 to 0.9, and
`group_designs.py` with and without a target that depends on its columns (gain: R^2 on new records). None is
a task of the leaderboard.

    python benchmarks/noise_designs.py [--seeds 3]
"""

import argparse
import math
import warnings

import numpy as np

import dpcvx
import group_designs
import lasso_designs
from dpcvx.solvers.evidence import Evidence
from hard_instances import hardest, optimum, risk

HARD = ((2000, 0.1), (3000, 0.2), (7000, 0.15), (10_000, 0.1))  # records, epsilon of the instance
SIZES = ((3000, 200), (10_000, 200), (3000, 1000))
FIRST_SEED = 500


def decided(fit):
    """Run a fit with its decision noted and switched off: (what it returns, whether it found something)."""
    notes, original = [], Evidence.exceeds_noise

    def exceeds_noise(self):
        notes.append(original(self))
        return True

    Evidence.exceeds_noise = exceeds_noise
    try:
        result = fit()
    finally:
        Evidence.exceeds_noise = original
    selects = "selections" in vars(result[1].plan_.solver.innermost(result[1].plan_).solver)
    return result[0], notes[-1] if selects else None  # earlier ones are of rehearsals


def hard(n, instance_epsilon, epsilon, seed):
    """Gain and model of a LASSO on a hard instance."""
    instance = hardest(n, instance_epsilon)
    records = instance.draw(np.random.default_rng(seed))
    least = optimum(instance, records)
    model = dpcvx.PrivateLasso(
        epsilon=epsilon,
        delta=1 / n**2,
        bounds=(-1.0, 1.0),
        y_bounds=(-1.0, 1.0),
        radius=1.0,
        fit_intercept=False,
        random_state=seed,
    )
    model.fit(records.X.astype(float), np.asarray(records.y, dtype=float))
    zero = risk(instance, records, np.zeros(instance.p)) - least
    return 1 - (risk(instance, records, model.coef_) - least) / zero, model


def design(name, n, p, truth, epsilon, seed):
    """Gain and model of a LASSO on a design whose truth has this R^2."""
    X, y, X_new, y_new, bounds, _ = lasso_designs.draw(name, n, p, seed)
    rng = np.random.default_rng(seed)
    share = min(truth / lasso_designs.TRUTH, 1.0)  # of the targets' variance that stays
    noisy = (
        math.sqrt(share) * part / y.std() + math.sqrt(1 - share) * rng.standard_normal(n)
        for part in (y, y_new)
    )
    y, y_new = noisy
    y_bounds = float(y.min()), float(y.max())
    model = dpcvx.PrivateLasso(
        epsilon=epsilon, delta=1 / n**2, bounds=bounds, y_bounds=y_bounds, random_state=seed
    )
    errors = y_new - model.fit(X, y).predict(X_new)
    return 1 - float((errors**2).mean() / ((y_new - y.mean()) ** 2).mean()), model


def groups(name, useful, epsilon, seed, n=4000):
    """Gain and model of a group LASSO on a design, with shuffled targets if it is not to be useful."""
    X, y, labels = group_designs.draw(name, seed, n)
    if not useful:
        y = np.random.default_rng(seed).permutation(y)
    declared = {"bounds": (-4, 4), "y_bounds": (-6, 6), "groups": labels.tolist(), "delta": 1 / n**2}
    model = dpcvx.PrivateGroupLasso(epsilon=epsilon, random_state=seed, **declared)
    errors = y[n:] - model.fit(X[:n], y[:n]).predict(X[n:])
    return 1 - float((errors**2).mean() / y[n:].var()), model


def promised_nothing(n, p, epsilon, seed, solver):
    """R^2 and model of a LASSO of radius 1 on signs, of which three have all of the effect."""
    rng = np.random.default_rng(seed)
    X, theta = rng.uniform(-1, 1, (2 * n, p)), np.zeros(p)
    theta[:3] = rng.choice([-1, 1], 3) / 3
    y = X @ theta + rng.normal(0, 0.2, 2 * n)
    declared = {"bounds": (-1.0, 1.0), "y_bounds": (-1.0, 1.0), "radius": 1.0, "fit_intercept": False}
    model = dpcvx.PrivateLasso(
        epsilon=epsilon, delta=1 / n**2, solver=solver, random_state=seed, **declared
    ).fit(X[:n], y[:n])
    return 1 - float(((y[n:] - model.predict(X[n:])) ** 2).mean() / (y[n:] ** 2).mean()), model


def show(title, runs):
    """Print means of runs that selected features."""
    runs = [(gain, found) for gain, found in runs if found is not None]
    if runs:
        lost = [gain for gain, found in runs if not found]
        gains = [gain if found else 0.0 for gain, found in runs]
        print(
            f"{title:<44} gain {np.mean([gain for gain, _ in runs]):6.3f}, with the decision "
            f"{np.mean(gains):6.3f}; zero in {len(lost)} of {len(runs)}, "
            f"best of these {max(lost, default=math.nan):6.3f}",
            flush=True,
        )


def main():
    """Print gains with and without the decision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    for epsilon in (1.0, 4.0):
        for n, own in HARD:
            runs = [decided(lambda s=s, a=(n, own, epsilon): hard(*a, s)) for s in seeds]
            show(f"hard instance, n {n}, eps {epsilon:g}", runs)
    for name in ("normal", "log-normal"):
        for n, p in SIZES:
            for truth in (0.0, 0.1, 0.65):
                for epsilon in (0.3, 1.0, 4.0):
                    cell = name, n, p, truth, epsilon
                    runs = [decided(lambda s=s, a=cell: design(*a, s)) for s in seeds]
                    show(f"{name}, n {n}, p {p}, R2 {truth:g}, eps {epsilon:g}", runs)
    for name in ("two", "eight", "correlated"):
        for useful in (False, True):
            for epsilon in (0.1, 0.3, 1.0):
                runs = [decided(lambda s=s, a=(name, useful, epsilon): groups(*a, s)) for s in seeds]
                show(f"groups {name}, {'useful' if useful else 'shuffled'}, eps {epsilon:g}", runs)
    for n, p in ((500, 20), (1000, 60), (2000, 200), (3000, 500), (3000, 1000)):
        for epsilon in (0.1, 0.3, 1.0):
            fits = {
                solver: [promised_nothing(n, p, epsilon, seed, solver) for seed in seeds]
                for solver in ("auto", "gradient_descent")
            }
            means = {solver: np.mean([gain for gain, _ in runs]) for solver, runs in fits.items()}
            name = type(fits["auto"][0][1].plan_.solver.innermost(fits["auto"][0][1].plan_).solver).__name__
            print(
                f"radius 1, n {n}, p {p}, eps {epsilon:g}: default ({name}) {means['auto']:6.3f}, "
                f"descent over all features {means['gradient_descent']:6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
