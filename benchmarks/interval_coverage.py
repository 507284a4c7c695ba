"""Coverage of 95 % intervals of coefficients, over laws of features and errors, sizes and epsilons.

Every repetition draws new records and new noise, and fits an estimator with its own defaults and bounds far
wider than the data. Repetitions in which the table says that noise hides a direction are counted apart. A
cell has as many repetitions as fit into --seconds, at most --seeds and at least --least. With --write the
table goes into docs/uncertainty.md; figures go into docs/figures/coverage.json as they come, and a cell that
is there is not measured again without --again.
"""

import argparse
import math
import time
import warnings

import numpy as np
import pandas as pd

import dpcvx as dp
from figures import FOLDER, stored, update

CORRELATION = 0.3
WIDE, TARGET_WIDE = 10.0, 40.0
LEVELS = {"region": ("north", "south", "west", "east"), "sex": ("f", "m", "x")}
SHARES = {"region": (0.4, 0.3, 0.2, 0.1), "sex": (0.5, 0.4, 0.1)}
PAGE, START, END = "uncertainty.md", "<!-- coverage: begin -->", "<!-- coverage: end -->"
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


def draw(cell, rng):
    """Features and target of one repetition."""
    kind, law, errors, n, d, _ = cell
    covariance = CORRELATION * np.ones((d, d)) + (1 - CORRELATION) * np.eye(d)
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(covariance).T
    if law == "skewed":
        X = rng.gamma(1 - CORRELATION, size=(n, d)) + rng.gamma(CORRELATION, size=(n, 1)) - 1
    coef = coefficients(kind, law, d)
    z, table = X @ coef[:d], X
    if law == "levels":
        table, place = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)]), d
        for name, levels in LEVELS.items():
            codes = rng.choice(len(levels), p=SHARES[name], size=n)
            z = z + np.concatenate([[0.0], coef[place : place + len(levels) - 1]])[codes]
            table[name], place = np.array(levels)[codes], place + len(levels) - 1
    if kind == "linear":
        return table, z + 1 + spread(errors, X[:, 0], rng)
    start = {"even": -0.5, "rare": -4.2}[errors]  # 40 and 4 to 5 % are in the second class
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


def measure(cell, options):
    """Return the figures of a cell by name."""
    truth = coefficients(*cell[:2], cell[4])
    model, rng = estimator(cell, options.share), np.random.default_rng(1)
    inside, warned, errors, began = [], 0, [], time.perf_counter()
    seed = 0
    while seed < options.seeds:
        spent = time.perf_counter() - began
        if (seed >= options.least and spent > options.seconds) or spent > 10 * options.seconds:
            break
        table, y = draw(cell, rng)
        with warnings.catch_warnings():  # of hidden directions, which are counted here
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(table, y)
            low, high = model.coef_interval().T
        seed += 1
        if model._uncertainty.weak:
            warned += 1
            continue
        inside.append(np.mean((low < truth) & (truth < high)))
        errors.append(model.coef_std_)
    figures = {"seeds": seed, "warned": 100 * warned / seed}
    if len(inside) > 1:
        figures |= {
            "covered": 100 * float(np.mean(inside)),
            "error": 100 * float(np.std(inside) / math.sqrt(len(inside))),
            "std": float(np.median(errors)),
        }
    seconds = (time.perf_counter() - began) / seed
    print(
        name_of(cell),
        {key: round(value, 3) for key, value in figures.items()},
        f"{seconds:.2f} s each",
        flush=True,
    )
    return figures


def name_of(cell):
    kind, law, errors, n, d, epsilon = cell
    return f"{kind}_{law}_{errors}_n{n}_d{d}_e{epsilon:g}"


def rows(figures):
    """Lines of the table; a cell that misses nominal by more than 1.5 points and two errors has a star."""
    yield "| model | features | errors or classes | n | d | epsilon | runs | warned | covered | std. error |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for cell in CELLS:
        name, (kind, law, errors, n, d, epsilon) = name_of(cell), cell
        if f"{name}_seeds" not in figures:
            continue
        found = {key: figures.get(f"{name}_{key}") for key in ("seeds", "warned", "covered", "error", "std")}
        covered, std = "", ""
        if found["covered"] is not None:
            star = "*" if abs(found["covered"] - 95) > 1.5 + 2 * found["error"] else ""
            covered, std = f"{found['covered']:.1f} ± {found['error']:.1f}{star}", f"{found['std']:.4f}"
        yield (
            f"| {kind} | {law} | {errors} | {n:,} | {d} | {epsilon:g} | {found['seeds']:.0f} | "
            f"{found['warned']:.0f} % | {covered} | {std} |"
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
    parser.add_argument("--write", action="store_true", help="write the table into docs/uncertainty.md")
    options = parser.parse_args()
    options.share = options.share if options.share == "auto" else float(options.share)
    for number, cell in enumerate(CELLS):
        wanted = options.cells is None or number in options.cells
        known = f"{name_of(cell)}_seeds" in stored("coverage") and not options.again
        if wanted and not known and cell[3] <= options.largest:
            found = measure(cell, options)
            update("coverage", {f"{name_of(cell)}_{key}": value for key, value in found.items()})
    lines = "\n".join(rows(stored("coverage")))
    print(lines)
    if options.write:
        page = FOLDER.parent / PAGE
        before, rest = page.read_text(encoding="utf-8").split(START)
        after = rest.split(END)[1]
        page.write_text(f"{before}{START}\n{lines}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
