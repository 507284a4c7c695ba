"""Accuracy on rcv1 with 1,000 public documents, and with documents that mislead; `--tables`: on tables.

The public documents are the first 1,000 of those to test on, without labels; the others are tested on.
"Shuffled" documents have their words permuted, "one word" ones consist of a single rare word.

With `--tables` the first 100 or 1,000 records of development tables are public, with their targets: as they
are ("honest"), with opposite targets ("opposite"), or with targets that follow the column that has least to
do with the true ones ("useless"). Scores are AUC or R^2; the page docs/public_rows.md gets their means.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from datasets import load
from dpcvx import PrivateLinearRegression, PrivateLogisticRegression
from figures import update
from tables import DEVELOPMENT, TableTask, questions
from tables import load as load_table

PUBLIC = 1000
SIZES = (100, 1000)
TABLES = ("cps91", "charity", "jtrain3", "CollegeDistance", "401ksubs", "HMDA", "fertil2", "gpa2", "catholic")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "public_rows.md"
BEGIN, END = (
    "<!-- public rows: written by benchmarks/public_rows.py --tables -->",
    "<!-- end of public rows -->",
)


def kinds(task: TableTask, size: int) -> dict:
    """Public rows of each kind, from the first records of a table."""
    X, y, names = task.X.iloc[:size], task.y[:size], list(task.declared["bounds"])
    related = [abs(np.corrcoef(task.X[name], task.y)[0, 1]) for name in names]
    column = X[names[int(np.argmin(related))]].to_numpy()
    useless = np.where(column > column.mean(), task.y.max(), task.y.min())
    opposite = task.y.max() + task.y.min() - y
    return {"none": None, "honest": (X, y), "opposite": (X, opposite), "useless": (X, useless)}


def tables(seeds: int, epsilons: list[float]) -> None:
    """Fit to the development tables, print every mean, write the means over tables to the page."""
    found: dict[tuple, list[float]] = {}
    for question in questions(DEVELOPMENT):
        if question.item not in TABLES:
            continue
        for size, seed in ((size, seed) for size in SIZES for seed in range(seeds)):
            task = load_table(question, seed)
            if len(task.y) < 3 * size:
                continue
            X, y = task.X.iloc[size:].reset_index(drop=True), task.y[size:]
            model = PrivateLogisticRegression if task.classifies else PrivateLinearRegression
            for epsilon in epsilons:
                for kind, public in kinds(task, size).items():
                    settings = {"epsilon": epsilon, "delta": 1 / len(y) ** 2, "random_state": seed}
                    fitted = model(**settings, public=public, **task.declared).fit(X, y)
                    predicted = getattr(fitted, "decision_function", fitted.predict)(task.X_test)
                    found.setdefault((size, epsilon, kind), []).append(task.scored(predicted))
        print(
            question.name, {key: round(float(np.mean(value)), 3) for key, value in found.items()}, flush=True
        )
    lines = [
        "| public rows | ε | none | honest | opposite targets | useless targets |",
        "|---|---|---|---|---|---|",
    ]
    figures = {"seeds": seeds}
    for size in SIZES:
        for epsilon in epsilons:
            cells = []
            for kind in ("none", "honest", "opposite", "useless"):
                scores, base = (np.array(found[size, epsilon, each]) for each in (kind, "none"))
                figures[f"{size}_eps{epsilon:g}_{kind}"] = float(scores.mean())
                change = scores - base
                error = change.std(ddof=1) / np.sqrt(len(change))
                cells.append(
                    f"{scores.mean():.3f}" if kind == "none" else f"{change.mean():+.3f} ± {error:.3f}"
                )
            lines.append(f"| {size:,} | {epsilon:g} | {' | '.join(cells)} |")
    update("public_rows", figures)
    counted = len({question.name for question in questions(DEVELOPMENT) if question.item in TABLES})
    intro = (
        f"Mean AUC or R² of {counted} development tables, {seeds} splits, and the mean change by public rows:"
    )
    text = PAGE.read_text()
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + f"\n{intro}\n\n" + "\n".join(lines) + "\n" + text[stop:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    parser.add_argument("--tables", action="store_true", help="development tables instead of rcv1")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.tables:
        tables(options.seeds, options.epsilons)
        return
    task = load("rcv1")
    honest, X_test, y_test = task.X_test[:PUBLIC], task.X_test[PUBLIC:], task.y_test[PUBLIC:]
    words = np.random.default_rng(0).permutation(task.X.shape[1])
    rare = int(np.argmin(np.asarray(task.X.sum(axis=0)).ravel()))
    one = sp.csr_matrix((np.ones(PUBLIC), (np.arange(PUBLIC), np.full(PUBLIC, rare))), shape=honest.shape)
    public = {"none": None, "honest": honest, "shuffled": sp.csr_matrix(honest[:, words]), "one word": one}
    for epsilon in options.epsilons:
        for name, rows in public.items():
            scores = []
            for seed in range(options.seeds):
                model = task.estimator(epsilon=epsilon, random_state=seed, public=rows).fit(task.X, task.y)
                scores.append(float(np.mean(model.predict(X_test) == y_test)))
            error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if scores[1:] else 0.0
            print(f"epsilon {epsilon:<4g} {name:<9} {np.mean(scores):.4f} +- {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
