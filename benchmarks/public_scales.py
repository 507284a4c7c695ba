"""Ranges of numbers from public rows in regressions with few records: honest rows, and rows that mislead.

python benchmarks/public_scales.py            # 2 splits, 4 fits to each, into docs/public_rows.md

The first 100 records of a development table are public, without targets; the others are private. Default fits
with and without public rows are compared, on the questions with at most 8,000 records whose plan counts the
rows that are near public ones; the others standardise their columns or predict a constant. Rows mislead where

- "squeezed": all numbers are moved nine tenths of the way to the lower end of their bounds;
- "shifted": all numbers are moved up by half the width of their bounds, and clipped to these;
- "narrow": all numbers are moved nine tenths of the way to their means;
- "one column": the number that is most correlated with the target is squeezed, the others are honest;
- "selected": they are a hundred of the fifth of the records with the lowest values of that number.

Scores are R^2, as differences from the default without public rows.
"""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np

import tables
from dpcvx import PrivateLinearRegression
from figures import save, write_part

PUBLIC = 100
MOST = 8000
EPSILONS = (0.1, 0.3)
KINDS = ("honest", "squeezed", "shifted", "narrow", "one column", "selected")


def public_rows(task: tables.TableTask) -> dict[str, Any]:
    """Return public rows of each kind; all but "selected" follow from the first records."""
    names = list(task.declared["bounds"])
    low, high = np.array([task.declared["bounds"][name] for name in names]).T
    rows, rest, y = task.X.iloc[:PUBLIC], task.X.iloc[PUBLIC:], task.y[PUBLIC:]
    numbers, private = rows[names].to_numpy(np.float64), rest[names].to_numpy(np.float64)
    related = [abs(np.nan_to_num(np.corrcoef(column, y)[0, 1])) for column in private.T]
    best = int(np.argmax(related))
    squeezed, mean = low + 0.1 * (numbers - low), numbers.mean(axis=0)
    one = numbers.copy()
    one[:, best] = squeezed[:, best]
    lowest = np.argsort(private[:, best], kind="stable")[: len(private) // 5]
    chosen = {
        "honest": numbers,
        "squeezed": squeezed,
        "shifted": np.clip(numbers + 0.5 * (high - low), low, high),
        "narrow": mean + 0.1 * (numbers - mean),
        "one column": one,
    }
    found = {kind: rows.assign(**dict(zip(names, each.T, strict=True))) for kind, each in chosen.items()}
    return {**found, "selected": rest.iloc[lowest[:: max(1, len(lowest) // PUBLIC)][:PUBLIC]]}


def gains(task: tables.TableTask, epsilon: float, seed: int) -> dict[str, tuple[float, bool]]:
    """Return the gain of each kind of public rows, and whether their ranges were used; empty without any."""
    X, y = task.X.iloc[PUBLIC:].reset_index(drop=True), task.y[PUBLIC:]
    given = {**task.declared, "epsilon": epsilon, "delta": 1 / len(y) ** 2, "random_state": seed}

    def fit(public: Any) -> tuple[float, str]:
        fitted = PrivateLinearRegression(**given, public=public).fit(X, y)
        said = fitted.privacy_statement_.bounds.get("public_rows", "")
        return max(task.scored(fitted.predict(task.X_test)), -1.0), said

    default = PrivateLinearRegression(**given).plan(len(y), list(X)).solver
    if default.standardises or default.constant:
        return {}
    without, found = fit(None)[0], {}
    for kind, rows in public_rows(task).items():
        score, said = fit(rows)
        if "near them" not in said:
            return {}
        found[kind] = score - without, "not used" not in said
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="splits of each table")
    parser.add_argument("--draws", type=int, default=4, help="fits to each split")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [f"| ε | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    figures: dict[str, Any] = {"splits": options.seeds, "draws": options.draws}
    found: dict[tuple[float, str], dict[str, list[tuple[float, bool]]]] = {}
    for question in tables.questions(tables.DEVELOPMENT):
        for seed in range(options.seeds if question.positive is None else 0):
            task = tables.load(question, seed)
            if not 3 * PUBLIC <= len(task.y) <= MOST or not task.declared["bounds"]:
                continue
            for epsilon in EPSILONS:
                for draw in range(options.draws):
                    for kind, each in gains(task, epsilon, 100 * draw + seed).items():
                        found.setdefault((epsilon, kind), {}).setdefault(task.name, []).append(each)
    for epsilon in EPSILONS:
        cells = []
        for kind in KINDS:
            each = list(found[epsilon, kind].values())
            means = [np.mean([gain for gain, _ in table]) for table in each]
            used = float(np.mean([used for table in each for _, used in table]))
            mean, error = float(np.mean(means)), float(np.std(means, ddof=1)) / math.sqrt(len(means))
            key = f"{kind}_eps{epsilon:g}"
            figures |= {key: mean, f"{key}_error": error, f"{key}_used": used}
            cells.append(f"{mean:+.3f} ± {error:.3f} ({used:.0%})")
        figures[f"tables_eps{epsilon:g}"] = len(each)
        lines.append(f"| {epsilon:g}, {len(each)} tables | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    save("public_scales", figures)
    write_part("public_rows.md", "public ranges", lines)


if __name__ == "__main__":
    main()
