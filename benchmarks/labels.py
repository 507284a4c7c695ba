"""Classification with few records or a rare class: log-losses of default fits on the development tables.

Tables are those of `tables.py`. With `--share` the rarer class is thinned out at random to that share of the
records, to fit and to test on alike. The excess is the log-loss on new records less that of the model
without privacy, over that of the constant less the same: 0 for the model without privacy, 1 for a constant.
A fit is bad where its log-loss is above the constant's by more than a hundredth. Printed: means by n mu for
each coefficient; positive predictions (of the rarer class), over those of the model without privacy. With
`--against`, a file that `--lines` wrote with another version: mean changes of the same fits, by epsilon.
"""

import argparse
import json
import warnings
import zlib
from itertools import pairwise

import numpy as np
import pandas
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpcvx import PrivateLogisticRegression, UselessModelWarning
from dpcvx.accounting import gaussian_mu
from figures import update
from tables import DEVELOPMENT, TableQuestion, load, questions

EDGES = (0, 4, 16, 40, 100, 400, np.inf)  # of n mu for each coefficient
BAD = 0.01
FEWEST = 20  # people of the rarer class to test on


def records(question: TableQuestion, seed: int, share: float):
    """Rows and whether they are of the rarer class, to fit and to test on, and the declarations."""
    task = load(question, seed)
    rarer = float(task.y.mean() < 0.5)
    y, y_test = (np.asarray(each == rarer, dtype=np.float64) for each in (task.y, task.y_test))
    X, X_test = task.X, task.X_test
    if share and y.mean() > share:
        rng = np.random.default_rng([seed, 7])
        chance = share / (1 - share) * (1 - y.mean()) / y.mean()
        kept, kept_test = ((each == 0) | (rng.random(len(each)) < chance) for each in (y, y_test))
        X, y = X[kept].reset_index(drop=True), y[kept]
        X_test, y_test = X_test[kept_test].reset_index(drop=True), y_test[kept_test]
    return X, y, X_test, y_test, task.declared


def plain(X, y, X_test) -> np.ndarray:
    """Probabilities by a model without privacy."""
    both = pandas.get_dummies(pandas.concat([X, X_test]), dtype=float)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=500))
    return model.fit(both[: len(y)], y).predict_proba(both[len(y) :])[:, 1]


def fits(question: TableQuestion, options: argparse.Namespace):
    """Yield the figures of each fit to the records of a table."""
    for seed in range(options.seeds):
        X, y, X_test, y_test, declared = records(question, seed, options.share)
        if y_test.sum() < FEWEST:
            return
        best, constant = plain(X, y, X_test), np.full(len(y_test), y.mean())
        losses = [log_loss(y_test, np.clip(each, 1e-6, 1 - 1e-6)) for each in (best, constant)]
        for epsilon in options.epsilons:
            delta = 1 / len(y) ** 2
            draw = int(1000 * epsilon) + zlib.crc32(f"{question.name} {seed}".encode()) % 10**6
            model = PrivateLogisticRegression(epsilon=epsilon, delta=delta, random_state=draw, **declared)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(X, y)
            p = model.predict_proba(X_test)[:, 1]
            yield {
                "table": question.name,
                "target": question.target,
                "seed": seed,
                "epsilon": epsilon,
                "signal": len(y) * gaussian_mu(epsilon, delta) / len(model.coef_),
                "loss": log_loss(y_test, np.clip(p, 1e-6, 1 - 1e-6)),
                "plain_loss": losses[0],
                "constant_loss": losses[1],
                "auc": roc_auc_score(y_test, p),
                "plain_auc": roc_auc_score(y_test, best),
                "accuracy": float(np.mean((p > 0.5) == y_test)),
                "constant_accuracy": float(1 - y_test.mean()),
                "plain_accuracy": float(np.mean((best > 0.5) == y_test)),
                "positive": float((p > 0.5).mean()),
                "plain_positive": float((best > 0.5).mean()),
                "warned": any(each.category is UselessModelWarning for each in caught),
                "solver": type(model.plan_.solver.innermost(model.plan_).solver).__name__,
            }


def summary(found: list[dict]) -> dict[str, float]:
    """Means of the figures by n mu for each coefficient, and counts of warnings."""
    table = pandas.DataFrame(found)
    table["excess"] = table.loss - table.plain_loss
    table["over_constant"] = table.loss - table.constant_loss
    figures: dict[str, float] = {"fits": len(table)}
    for low, high in pairwise(EDGES):
        part = table[(table.signal >= low) & (table.signal < high)]
        if len(part):
            figures |= {f"{name}_{low:g}": float(part[name].mean()) for name in ("excess", "auc", "accuracy")}
            figures[f"over_constant_{low:g}"] = float(part.over_constant.mean())
            figures[f"positive_{low:g}"] = float(part.positive.sum() / max(part.plain_positive.sum(), 1e-9))
    bad, useful = table.over_constant > BAD, table.over_constant < -BAD
    figures["bad"] = int(bad.sum())
    figures["bad_unwarned"] = int((bad & ~table.warned).sum())
    figures["worst_unwarned"] = float(table.over_constant[~table.warned].max())
    figures["warned"] = int(table.warned.sum())
    figures["useful_warned"] = int((useful & table.warned).sum())
    return figures


def changes(found: list[dict], others: list[dict]) -> None:
    """Print the mean change of figures against another version's, over the fits of both."""

    def key(fit: dict) -> tuple:
        return fit["epsilon"], fit["table"], fit["target"], fit["seed"]

    before = {key(fit): fit for fit in others}
    pairs = [(before[key(fit)], fit) for fit in found if key(fit) in before]
    for epsilon in sorted({fit["epsilon"] for _, fit in pairs}):
        for name in ("auc", "loss", "accuracy"):
            change = np.array([b[name] - a[name] for a, b in pairs if b["epsilon"] == epsilon])
            error = change.std(ddof=1) / np.sqrt(len(change))
            print(f"epsilon {epsilon:g} {name}: {change.mean():+.4f} +- {error:.4f}, {len(change)} fits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 4.0])
    parser.add_argument("--share", type=float, default=0.0, help="most records of the rarer class")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lines", help="file to which every fit is appended")
    parser.add_argument("--largest", type=int, help="rows of the largest table")
    parser.add_argument("--against", help="file of lines of another version, for paired changes")
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    found = []
    for question in questions(DEVELOPMENT):
        if question.positive is None or (options.largest and question.rows > options.largest):
            continue
        for fit in fits(question, options):
            found.append(fit)
            if options.lines:
                with open(options.lines, "a") as file:
                    file.write(json.dumps(fit) + "\n")
    if options.against:
        with open(options.against) as file:
            changes(found, [json.loads(line) for line in file])
    figures = summary(found)
    print(json.dumps(figures, indent=2))
    if not options.dry:
        update("labels", {f"share{options.share:g}_{name}": value for name, value in figures.items()})


if __name__ == "__main__":
    main()
