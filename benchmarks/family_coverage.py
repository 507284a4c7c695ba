"""Coverage of 95 % intervals of the models of counts, amounts, shares, ordered levels and times.

    python benchmarks/family_coverage.py --fits 300 [--only poisson ...] [--more] [--share 0.2]

Every fit has new records and new noise. Means have five slopes, of normal, binary and exponential features;
"poisson" counts have the variance of a negative binomial law, "poisson, overdispersed" four times its excess
over a Poisson law, "poisson, exposure" random exposures; amounts are gamma and shares beta. Ordered levels
and hazards have two slopes, three levels and three periods; times end at random for a fifth of the people.
Fits in which noise hides a direction are counted apart. Figures go into docs/figures/family_coverage.json as
they come, and the table of the page is printed; with --more, fits are added to those that are there.
"""

import argparse
import json
import warnings

import numpy as np
import pandas as pd

import dpcvx as dp
from figures import FOLDER

PATH = FOLDER / "family_coverage.json"
SLOPES = np.array([0.5, -0.3, 0.2, 0.0, 0.0])
TWO = np.array([0.5, -0.4])
# (name, records, epsilon)
CELLS = [
    ("poisson", 8_000, 2.0),
    ("poisson", 20_000, 1.0),
    ("poisson, overdispersed", 8_000, 2.0),
    ("poisson, overdispersed", 20_000, 1.0),
    ("poisson, exposure", 8_000, 2.0),
    ("gamma", 8_000, 2.0),
    ("gamma", 20_000, 1.0),
    ("fractional", 4_000, 2.0),
    ("ordinal", 8_000, 2.0),
    ("ordinal", 20_000, 1.0),
    ("hazard", 8_000, 2.0),
    ("hazard", 20_000, 1.0),
]


def means(name, n, rng):
    """Features, target, and estimator with its parameters; slopes are SLOPES."""
    X = rng.normal(size=(n, 5))
    X[:, 1], X[:, 2] = (X[:, 1] > 0) - 0.5, rng.exponential(size=n) - 1
    z = X @ SLOPES + (-0.5 if name == "fractional" else 1.0)
    if name == "gamma":
        return X, rng.gamma(2, np.exp(z) / 2), dp.PrivateGammaRegressor, {"y_bounds": (0, 100)}
    if name == "fractional":
        mean = 1 / (1 + np.exp(-z))
        return X, rng.beta(3 * mean, 3 * (1 - mean)), dp.PrivateFractionalRegressor, {}
    excess = 2.0 if name == "poisson, overdispersed" else 0.5  # variance = mean + excess mean^2
    mean, given = np.exp(z) * rng.gamma(1 / excess, excess, n), {"y_bounds": (0, 60)}
    if name == "poisson, exposure":
        X = pd.DataFrame(X, columns=[f"x{j}" for j in range(5)]).assign(years=rng.uniform(0.2, 2, n))
        mean, given = mean * X["years"], {"y_bounds": (0, 60), "exposure": "years", "max_exposure": 2}
    return X, rng.poisson(mean), dp.PrivatePoissonRegressor, given


def rows(name, n, rng):
    """The same for ordered levels and times; slopes are TWO."""
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    z = X.to_numpy() @ TWO
    if name == "ordinal":
        y = np.array(["low", "middle", "high"])[np.digitize(z + rng.logistic(size=n), (-0.5, 1.0))]
        return X, y, dp.PrivateOrdinalClassifier, {"classes": ("low", "middle", "high")}
    event = rng.uniform(size=(n, 3)) < 1 / (1 + np.exp(1.5 - z[:, None]))
    came = event.any(axis=1)
    time = np.where(came, event.argmax(axis=1) + 0.5, 3.0)
    lost = np.where(rng.uniform(size=n) < 0.2, rng.integers(1, 4, n), 4)  # observed until a period's end
    X = X.assign(came=(came & (time < lost)).astype(int))
    return X, np.minimum(time, lost), dp.PrivateHazardRegressor, {"periods": (0, 1, 2, 3), "event": "came"}


def measure(cell, fits, budget, before):
    """Return the figures of a cell, those before included."""
    name, n, epsilon = cell
    draw, truth = (rows, TWO) if name in ("ordinal", "hazard") else (means, SLOPES)
    hidden, seen = before.get("hidden", 0), before.get("seen", 0)
    covered, squares, widths = (before.get(each, 0.0) for each in ("covered", "squares", "widths"))
    for seed in range(before.get("fits", 0), fits):
        rng = np.random.default_rng([7, seed])
        X, y, kind, given = draw(name, n, rng)
        bounds = (-6, 6)
        if isinstance(X, pd.DataFrame):
            bounds = {each: (-6, 6) for each in X.columns if each not in ("years", "came")}
        model = kind(epsilon=epsilon, bounds=bounds, random_state=seed, uncertainty=budget, **given).fit(X, y)
        inner = getattr(model, "model_", model)
        if inner._uncertainty.weak:
            hidden += 1
            continue
        low, high = model.coef_interval().T
        inside = (low <= truth) & (truth <= high)
        share = float(inside.mean())
        seen, covered, squares = seen + 1, covered + share, squares + share**2
        widths += float(np.mean(high - low)) / 2
    sums = {"covered": covered, "squares": squares, "widths": round(widths, 4)}
    return {"fits": max(fits, before.get("fits", 0)), "hidden": hidden, "seen": seen, **sums}


def line(cell, found):
    """A line of the page's table."""
    name, n, epsilon = cell
    seen = found["seen"]
    if seen < 2:
        return f"| {name} | {n:,} | {epsilon:g} | {found['fits']} | {found['hidden']} | | |"
    share = found["covered"] / seen
    error = np.sqrt(max(found["squares"] / seen - share**2, 0) / seen)
    counts = f"| {name} | {n:,} | {epsilon:g} | {found['fits']} | {found['hidden']} "
    return f"{counts}| {100 * share:.1f} ± {100 * error:.1f} % | {found['widths'] / seen:.3f} |"


def main():
    """Measure the cells, and print the table of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fits", type=int, default=300)
    parser.add_argument("--step", type=int, default=25, help="fits between two writes of the file")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--more", action="store_true", help="add fits to those that are there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    figures = json.loads(PATH.read_text()) if PATH.exists() else {}
    for cell in CELLS:
        key = f"{cell[0]}, n={cell[1]}, epsilon={cell[2]:g}"
        found = figures.get(key, {})
        if (options.only and cell[0] not in options.only) or (found and not options.more):
            if found:
                print(line(cell, found), flush=True)
            continue
        for goal in range(found.get("fits", 0) + options.step, options.fits + 1, options.step):
            found = measure(cell, goal, options.share, found)
            figures[key] = found
            PATH.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
        print(line(cell, found), flush=True)


if __name__ == "__main__":
    main()
