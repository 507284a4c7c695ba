"""Default fits that are worse than a constant: how many say so, and how many warnings are false.

Linear and logistic regressions with every default are fitted to tables of `tables.py`: to whole tables (of at
most 15,000 records) and to their first 300, 1,000 and 4,000 records. The gain of a fit is its R^2 on new
records, or the log-loss of the constant less its own; the constant is the mean of the fitted records, without
noise. A fit is worse than the constant where the gain is below -0.02 (R^2) or -0.01 (log-loss), and useful
where it is above 0.02 or 0.01. Printed, for each epsilon: fits that are worse, those of them that did not
warn, those of these that are worse by more than the excess risk that their plan states, warnings, and false
ones: those of useful fits, but for constants, whose warning is true. With `--wide` bounds of targets, or with
`--columns` those of columns, are wider by a factor. Every fit is a line of benchmarks/output, so that a run
can go on; `--list test` is logged as a look.
"""

import argparse
import json
import warnings
import zlib

import numpy as np

from dpcvx import PrivateLinearRegression, PrivateLogisticRegression, UselessModelWarning
from dpcvx.planning.outlook import predicted_risk, trivial_risk
from figures import OUTPUT, update
from small import widened
from tables import DEVELOPMENT, TEST, TableTask, load, looked, questions

SIZES = (0, 300, 1000, 4000)  # 0: the whole table
MOST = 15_000
TOLERANCE = {True: 0.01, False: 0.02}  # by whether the target is a label


def gain(task: TableTask, model, y: np.ndarray) -> float:
    """R^2, or the decrease of log-loss, against the mean of the fitted records."""
    if not task.classifies:
        errors = task.y_test - model.predict(task.X_test)
        return 1 - float(np.mean(errors**2) / np.mean((task.y_test - y.mean()) ** 2))
    share = np.clip(y.mean(), 1e-6, 1 - 1e-6)
    scores = np.log(share / (1 - share)), model.decision_function(task.X_test)
    constant, own = (float(np.mean(np.logaddexp(0, z) - task.y_test * z)) for z in scores)
    return constant - own


def fit(task: TableTask, n: int, epsilon: float, seed: int, wide: tuple[float, float]) -> dict:
    """Fit to the first n records; return the gain, the stated risk and whether the fit warned."""
    X, y = task.X.iloc[:n].reset_index(drop=True), task.y[:n]
    declared, rng = dict(task.declared), np.random.default_rng(seed)
    if not task.classifies:
        declared["y_bounds"] = widened(declared["y_bounds"], wide[0], rng)
    declared["bounds"] = {name: widened(pair, wide[1], rng) for name, pair in declared["bounds"].items()}
    draw = int(1000 * epsilon) + zlib.crc32(f"{task.name} {seed} {n}".encode()) % 10**6
    kind = PrivateLogisticRegression if task.classifies else PrivateLinearRegression
    model = kind(epsilon=epsilon, delta=1 / n**2, random_state=draw, **declared)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    stated = sum(predicted_risk(model.plan_))
    if not task.classifies:  # as a share of the variance
        stated /= trivial_risk(model.plan_) or 1.0
    warned = any(each.category is UselessModelWarning for each in caught)
    constant = bool(model.plan_.solver.innermost(model.plan_).solver.constant)
    return {"gain": gain(task, model, y), "stated": stated, "warned": warned, "constant": constant}


def summary(found: list[dict]) -> dict[str, float]:
    """Counts of fits of one kind."""
    gains, tolerance = np.array([each["gain"] for each in found]), TOLERANCE[found[0]["classifies"]]
    warned = np.array([each["warned"] for each in found])
    constant = np.array([each["constant"] for each in found])
    worse, useful = gains < -tolerance, gains > tolerance
    silent = worse & ~warned
    return {
        "splits": len({each["key"][2] for each in found}),
        "fits": len(found),
        "worse": int(worse.sum()),
        "silent": int(silent.sum()),
        "silent_beyond_stated": int((silent & (-gains > [each["stated"] for each in found])).sum()),
        "warned": int(warned.sum()),
        "false": int((warned & useful & ~constant).sum()),
        "useful": int(useful.sum()),
        "constant": int(constant.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=["development", "test"], default="development")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 4.0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--wide", type=float, default=1.0, help="factor of the width of y_bounds")
    parser.add_argument("--columns", type=float, default=1.0, help="factor of the width of bounds")
    parser.add_argument("--name", default="usefulness", help="file of lines in benchmarks/output")
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    if options.list == "test":
        looked(f"usefulness.py, seeds {options.seeds}, epsilons {options.epsilons}")
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"{options.name}_{options.list}_{options.wide:g}_{options.columns:g}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {tuple(each["key"]) for each in lines}
    for question in questions(DEVELOPMENT if options.list == "development" else TEST):
        for seed in range(options.seeds):
            keys = [
                (question.name, question.target, seed, size, epsilon)
                for size in options.sizes
                for epsilon in options.epsilons
            ]
            if known.issuperset(keys):
                continue
            task = load(question, seed)
            for key in keys:
                n = key[3] or min(len(task.y), MOST)
                if key in known or n > len(task.y):
                    continue
                found = fit(task, n, key[4], seed, (options.wide, options.columns))
                lines.append({"key": key, "classifies": task.classifies, **found})
                with path.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    figures: dict[str, float] = {}
    for label, whole in (("whole", True), ("cut", False)):
        for classifies, epsilon in ((c, e) for c in (False, True) for e in options.epsilons):
            chosen = [
                each
                for each in lines
                if each["classifies"] == classifies
                and each["key"][4] == epsilon
                and (each["key"][3] == 0) == whole
                and each["key"][2] < options.seeds
            ]
            if not chosen:
                continue
            found = summary(chosen)
            kind = "labels" if classifies else "numbers"
            print(f"{label} tables, {kind}, epsilon {epsilon:g}: {found}", flush=True)
            name = f"{options.list}_{label}_{kind}_eps{epsilon:g}"
            if options.wide > 1 or options.columns > 1:
                name += f"_wide{options.wide:g}_{options.columns:g}"
            figures |= {f"{name}_{count}": value for count, value in found.items()}
    if not options.dry:
        update("usefulness", figures)


if __name__ == "__main__":
    main()
