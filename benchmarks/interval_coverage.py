"""Coverage of 95 % intervals of coefficients, over laws of features and errors, sizes and epsilons.

Every repetition draws new records and new noise, and fits an estimator with its own defaults and bounds far
wider than the data. Repetitions in which the table says that noise hides a direction are counted apart. A
cell has as many repetitions as fit into --seconds, at most --seeds and at least --least. Figures go into
docs/figures/coverage.json as they come. A cell that is there is not measured again without --again; with
--more, repetitions are added to it. With --write the table goes into docs/uncertainty.md.
"""

import argparse
import math
import time
import warnings
import zlib

import numpy as np
import pandas as pd

import dpcvx as dp
from figures import save, stored, write_part

CORRELATION = 0.3
WIDE, TARGET_WIDE = 10.0, 40.0
LEVELS = {"region": ("north", "south", "west", "east"), "sex": ("f", "m", "x")}
SHARES = {"region": (0.4, 0.3, 0.2, 0.1), "sex": (0.5, 0.4, 0.1)}
# log-odds at the mean: 40 % of the people are in the second class, or 4 to 5 %; and standard deviations of
# log-odds, over that of other cells, 1.5
STARTS = {"even": -0.5, "rare": -4.2, "rare 2": -4.6, "rare 3": -6.0}
SPREADS = {"rare 2": 2 / 1.5, "rare 3": 3 / 1.5}
FIGURES = ("seeds", "warned", "covered", "error", "std", "goodness", "bias")
# (model, law of features, law of errors or share of the second class, records, features, epsilon)
CELLS = [
    ("linear", "normal", "normal", 500, 2, 8.0),
    ("linear", "normal", "normal", 2_000, 2, 1.0),
    ("linear", "normal", "normal", 2_000, 5, 4.0),
    ("linear", "normal", "normal", 20_000, 5, 0.5),
    ("linear", "normal", "normal", 20_000, 10, 1.0),
    ("linear", "normal", "normal", 20_000, 10, 4.0),
    ("linear", "skewed", "normal", 2_000, 5, 4.0),
    ("linear", "skewed", "normal", 20_000, 5, 1.0),
    ("linear", "skewed", "normal", 20_000, 5, 4.0),
    ("linear", "normal", "heavy", 20_000, 5, 1.0),
    ("linear", "normal", "heavy", 20_000, 5, 4.0),
    ("linear", "normal", "varying", 2_000, 2, 4.0),
    ("linear", "normal", "varying", 20_000, 5, 1.0),
    ("linear", "normal", "varying", 20_000, 5, 4.0),
    ("linear", "skewed", "varying", 20_000, 5, 4.0),
    ("linear", "normal", "skewed", 20_000, 5, 1.0),
    ("linear", "normal", "skewed", 20_000, 5, 4.0),
    ("linear", "normal", "skewed", 20_000, 5, 8.0),
    ("linear", "levels", "normal", 20_000, 2, 1.0),
    ("linear", "levels", "varying", 20_000, 2, 4.0),
    ("linear", "normal", "normal", 1_000_000, 10, 0.5),
    ("linear", "skewed", "skewed", 1_000_000, 5, 1.0),
    ("logistic", "normal", "even", 500, 2, 8.0),
    ("logistic", "normal", "even", 2_000, 2, 1.0),
    ("logistic", "normal", "even", 2_000, 5, 4.0),
    ("logistic", "normal", "even", 20_000, 5, 0.5),
    ("logistic", "normal", "even", 20_000, 10, 1.0),
    ("logistic", "skewed", "even", 20_000, 5, 1.0),
    ("logistic", "skewed", "even", 20_000, 5, 4.0),
    ("logistic", "skewed", "even", 20_000, 5, 8.0),
    ("logistic", "normal", "rare", 20_000, 5, 1.0),
    ("logistic", "normal", "rare", 20_000, 5, 4.0),
    ("logistic", "skewed", "rare", 20_000, 5, 4.0),
    ("logistic", "normal", "rare 2", 20_000, 2, 4.0),
    ("logistic", "normal", "rare 3", 20_000, 2, 4.0),
    ("logistic", "normal", "rare 2", 100_000, 2, 1.0),
    ("logistic", "normal", "rare 3", 100_000, 2, 1.0),
    ("logistic", "normal", "rare 3", 100_000, 5, 4.0),
    ("logistic", "skewed", "rare 2", 20_000, 2, 8.0),
    ("logistic", "skewed", "rare 3", 100_000, 5, 4.0),
    ("logistic", "levels", "even", 20_000, 2, 1.0),
    ("logistic", "levels", "even", 20_000, 2, 4.0),
    ("logistic", "skewed", "even", 1_000_000, 5, 1.0),
]


def coefficients(kind, law, d):
    """Coefficients of the numbers, and of the levels after the first of every column."""
    covariance = CORRELATION * np.ones((d, d)) + (1 - CORRELATION) * np.eye(d)
    coef = np.random.default_rng(d).normal(size=d)
    coef *= (1.0 if kind == "linear" else 1.5) / math.sqrt(coef @ covariance @ coef)
    return np.concatenate([coef, [0.4, -0.3, 0.5], [0.2, -0.6]]) if law == "levels" else coef


def true_coefficients(cell):
    """Coefficients of a cell, whose scores may have a standard deviation of its own."""
    kind, law, errors, _, d, _ = cell
    return SPREADS.get(errors, 1.0) * coefficients(kind, law, d)


def draw(cell, rng):
    """Features and target of one repetition."""
    kind, law, errors, n, d, _ = cell
    covariance = CORRELATION * np.ones((d, d)) + (1 - CORRELATION) * np.eye(d)
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(covariance).T
    if law == "skewed":
        X = rng.gamma(1 - CORRELATION, size=(n, d)) + rng.gamma(CORRELATION, size=(n, 1)) - 1
    coef = true_coefficients(cell)
    z, table = X @ coef[:d], X
    if law == "levels":
        table, place = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)]), d
        for name, levels in LEVELS.items():
            codes = rng.choice(len(levels), p=SHARES[name], size=n)
            z = z + np.concatenate([[0.0], coef[place : place + len(levels) - 1]])[codes]
            table[name], place = np.array(levels)[codes], place + len(levels) - 1
    if kind == "linear":
        return table, z + 1 + spread(errors, X[:, 0], rng)
    start = STARTS[errors]
    return table, (rng.uniform(size=n) < 1 / (1 + np.exp(-start - z))).astype(int)


def spread(errors, x, rng):
    """Errors of variance about 1: normal, heavy tails, of a variance that grows with x, or skewed besides."""
    if errors == "normal":
        return rng.normal(size=len(x))
    if errors == "heavy":
        return rng.standard_t(4, size=len(x)) / math.sqrt(2)
    size = np.sqrt(0.2 + 0.8 * np.minimum(x**2, 9)) if errors == "varying" else np.exp(0.3 * np.minimum(x, 3))
    return size * (rng.normal(size=len(x)) if errors == "varying" else rng.exponential(size=len(x)) - 1)


def estimator(cell, share):
    """An estimator that plans once: the plan is public and the same for every repetition."""
    kind, law, _, _, d, epsilon = cell
    settings = {"epsilon": epsilon, "bounds": (-WIDE, WIDE), "uncertainty": share}
    if law == "levels":
        settings |= {"bounds": {f"x{j}": (-WIDE, WIDE) for j in range(d)}, "categories": LEVELS}
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


def measure(cell, options, before):
    """Return the figures of a cell by name, those before included.

    before: figures of earlier repetitions, or {}
    """
    truth = true_coefficients(cell)
    first = int(before.get("seeds", 0))
    # Cells have draws of their own: the luck of one set of people would be that of all cells with this law.
    rng = np.random.default_rng([1, first, zlib.crc32(name_of(cell).encode())])
    model, inside, warned, errors, fits, outwards = estimator(cell, options.share), [], 0, [], [], []
    began = time.perf_counter()
    seed = first
    while seed < options.seeds:
        spent = time.perf_counter() - began
        if (seed - first >= options.least and spent > options.seconds) or spent > 10 * options.seconds:
            break
        table, y = draw(cell, rng)
        with warnings.catch_warnings():  # of hidden directions, which are counted here
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(table, y)
            low, high = model.coef_interval().T
            own = model.r2_interval()
            fits.append(own[0] <= explained(model, table, y) <= own[1])
        seed += 1
        if model._uncertainty.weak:
            warned += 1
            continue
        inside.append(np.mean((low < truth) & (truth < high)))
        errors.append(model.coef_std_)
        outwards.append(np.mean(np.sign(truth) * (model.coef_debiased_ - truth) / model.coef_std_))
    fresh = {
        "seeds": seed - first,
        "warned": 100 * warned / max(1, seed - first),
        "goodness": 100 * np.mean(fits),
    }
    if len(inside) > 1:
        fresh |= {
            "covered": 100 * float(np.mean(inside)),
            "error": 100 * float(np.std(inside) / math.sqrt(len(inside))),
            "std": float(np.median(errors)),
            "bias": float(np.mean(outwards)),  # outwards, in standard errors
        }
    figures = joined(before, fresh)
    seconds = (time.perf_counter() - began) / max(1, seed - first)
    print(
        name_of(cell),
        {key: round(value, 3) for key, value in figures.items()},
        f"{seconds:.2f} s each",
        flush=True,
    )
    return figures


def explained(model, table, y):
    """R² of the fit on its own records, or McFadden's pseudo-R²."""
    if not hasattr(model, "classes_"):
        return 1 - np.mean((y - model.predict(table)) ** 2) / np.var(y)
    p, share = model.predict_proba(table)[:, 1], np.mean(y)
    constant = -share * math.log(share) - (1 - share) * math.log(1 - share)
    return 1 - np.mean(-np.log(np.where(y == 1, p, 1 - p))) / constant


def joined(before, fresh):
    """Figures of two sets of repetitions together."""
    if not before or not fresh["seeds"]:
        return fresh if fresh["seeds"] else before
    both = (before, fresh)
    runs = [each["seeds"] for each in both]
    seen = [count * (1 - each["warned"] / 100) for count, each in zip(runs, both, strict=True)]
    found = {"seeds": sum(runs)}
    for key in ("warned", "goodness", "covered", "std", "bias"):
        weights = runs if key in ("warned", "goodness") else seen
        known = [(w, each[key]) for w, each in zip(weights, both, strict=True) if key in each]
        if known:
            found[key] = float(np.average([value for _, value in known], weights=[w for w, _ in known]))
    squares = [(w, each["error"] ** 2) for w, each in zip(seen, both, strict=True) if "error" in each]
    if squares:
        whole = sum(w for w, _ in squares)
        found["error"] = math.sqrt(sum((w / whole) ** 2 * square for w, square in squares))
    return found


def name_of(cell):
    kind, law, errors, n, d, epsilon = cell
    return f"{kind}_{law}_{errors}_n{n}_d{d}_e{epsilon:g}"


def figures_of(cell, figures):
    """Stored figures of a cell by name."""
    named = {key: figures.get(f"{name_of(cell)}_{key}") for key in FIGURES}
    return {key: value for key, value in named.items() if value is not None}


def rows(figures):
    """Lines of the table; a cell that misses nominal by more than 1.5 points and two errors has a star."""
    yield "| model | features | errors, classes | n | d | epsilon | fits | warned | covered | std. err | R² |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for cell in CELLS:
        kind, law, errors, n, d, epsilon = cell
        if f"{name_of(cell)}_seeds" not in figures:
            continue
        found = figures_of(cell, figures)
        covered, std, fits = "", "", found.get("goodness")
        r2 = "" if fits is None else f"{fits:.1f}"
        if "covered" in found:
            star = "*" if abs(found["covered"] - 95) > 1.5 + 2 * found["error"] else ""
            covered, std = f"{found['covered']:.1f} ± {found['error']:.1f}{star}", f"{found['std']:.4f}"
        yield (
            f"| {kind} | {law} | {errors} | {n:,} | {d} | {epsilon:g} | {found['seeds']:.0f} | "
            f"{found['warned']:.0f} % | {covered} | {std} | {r2} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--least", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=50.0, help="for each cell")
    parser.add_argument("--share", default=0.2, help='of the budget for uncertainty, or "auto"')
    parser.add_argument("--cells", type=int, nargs="+", help="numbers of cells; all by default")
    parser.add_argument("--largest", type=int, default=10**9, help="leave out cells with more records")
    parser.add_argument("--again", action="store_true", help="measure cells that have figures")
    parser.add_argument(
        "--more", action="store_true", help="add repetitions to cells that have fewer than --seeds"
    )
    parser.add_argument("--figures", default="coverage", help="file of docs/figures")
    parser.add_argument("--write", action="store_true", help="write the table into docs/uncertainty.md")
    options = parser.parse_args()
    options.share = options.share if options.share == "auto" else float(options.share)
    for number, cell in enumerate(CELLS):
        wanted = options.cells is None or number in options.cells
        before = figures_of(cell, stored(options.figures))
        known = before.get("seeds", 0) >= (options.seeds if options.more else 1) and not options.again
        if wanted and not known and cell[3] <= options.largest:
            found = measure(cell, options, before if options.more else {})
            named = {f"{name_of(cell)}_{key}": found.get(key) for key in FIGURES}
            others = {key: value for key, value in stored(options.figures).items() if key not in named}
            save(options.figures, others | {key: value for key, value in named.items() if value is not None})
    lines = list(rows(stored("coverage")))
    print("\n".join(lines))
    if options.write:
        write_part("uncertainty.md", "coverage", lines)


if __name__ == "__main__":
    main()
