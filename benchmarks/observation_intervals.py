"""Intervals for the target of a new person: share of new people inside, and width beside the true one.

Features and errors are those of interval_coverage.py. The true width is that between the quantiles 2.5 and
97.5 % of the errors. With --write the table goes into docs/uncertainty.md and figures into
docs/figures/observation_intervals.json.
"""

import argparse
import warnings

import numpy as np

from figures import read_cell, replace_cell, stored, write_part
from interval_coverage import coefficients, draw, estimator

CELLS = [
    ("linear", "normal", errors, n, d, epsilon)
    for n, d, epsilon in ((2_000, 2, 4.0), (20_000, 5, 1.0), (20_000, 5, 4.0))
    for errors in ("normal", "heavy", "varying", "skewed")
]


def measure(cell, fits):
    """Return the percentage of new people covered, and the mean and largest width over the true one."""
    rng, model = np.random.default_rng(1), estimator(cell, 0.2)
    X_new, y_new = draw((*cell[:3], 20_000, *cell[4:]), rng)
    true = np.ptp(np.quantile(y_new - X_new @ coefficients("linear", cell[1], cell[4]), [0.025, 0.975]))
    inside, widths = [], []
    for seed in range(fits):
        X, y = draw(cell, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = (
                model.set_params(random_state=seed).fit(X, y).predict_interval(X_new, of="observation").T
            )
        inside.append(np.mean((low < y_new) & (y_new < high)))
        widths.append(np.median(high - low) / true)
    found = {"covered": 100 * np.mean(inside), "least": 100 * np.min(inside), "width": np.mean(widths)}
    return {key: float(value) for key, value in (found | {"widest": np.max(widths)}).items()}


def lines(figures):
    yield "| errors | n | d | epsilon | covered | least | width | widest |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for cell in CELLS:
        found = read_cell(figures, name_of(cell))
        if found:
            _, _, errors, n, d, epsilon = cell
            yield (
                f"| {errors} | {n:,} | {d} | {epsilon:g} | {found['covered']:.1f} | {found['least']:.1f} | "
                f"{found['width']:.2f} | {found['widest']:.2f} |"
            )


def name_of(cell):
    return f"{cell[2]}_n{cell[3]}_d{cell[4]}_e{cell[5]:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=50)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for cell in CELLS:
        found = measure(cell, options.fits)
        print(name_of(cell), {key: round(value, 2) for key, value in found.items()}, flush=True)
        if options.write:
            replace_cell("observation_intervals", name_of(cell), found)
    if options.write:
        write_part("uncertainty.md", "people", lines(stored("observation_intervals")))


if __name__ == "__main__":
    main()
