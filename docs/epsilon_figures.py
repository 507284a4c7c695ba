"""Write the tables of how_much_epsilon.md and draw its pictures, from the accountant and stored figures.

python docs/epsilon_figures.py
"""

import json
import math
from pathlib import Path

import numpy as np
from scipy.stats import norm

from dpcvx.accounting import gaussian_epsilon, gaussian_mu

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "how_much_epsilon.md"
DELTA = 1e-6
BUDGETS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
MEASURED = ("0.1", "0.3", "1.0", "4.0")
LEAST_GAIN = 0.05  # of a model without privacy, R^2 or AUC above 1/2: a share of less says little


def per_cent(share: float) -> str:
    """Return a share in per cent, with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.1f} %"


def attacker_table() -> str:
    """Return what the best attacker gains: odds, certainty, and found members at 5 % false alarms."""
    lines = [
        "| epsilon | odds grow at most by | from 50 % sure to at most | from 1 % sure to at most "
        "| found at 5 % false alarms |",
        "|---:|---:|---:|---:|---:|",
    ]
    for epsilon in BUDGETS:
        odds = math.exp(epsilon)
        rare = odds / 99 / (1 + odds / 99)
        found = norm.cdf(gaussian_mu(epsilon, DELTA) + norm.ppf(0.05))
        sure = odds / (1 + odds)
        cells = (
            f"{epsilon:g}",
            f"{odds:,.{0 if odds > 1000 else 2}f} times",
            *map(per_cent, (sure, rare, found)),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def years_table() -> str:
    """Return the epsilon of releases every year, and of the single one that a cap of 1 leaves for each."""
    lines = [
        "| releases | each with epsilon 0.3: together | sum of the epsilons | each, for 1 together |",
        "|---:|---:|---:|---:|",
    ]
    one, cap = gaussian_mu(0.3, DELTA), gaussian_mu(1.0, DELTA)
    for count in (1, 2, 5, 10, 20, 50):
        together = gaussian_epsilon(one * math.sqrt(count), DELTA)
        each = gaussian_epsilon(cap / math.sqrt(count), DELTA)
        lines.append(f"| {count} | {together:.2f} | {0.3 * count:.1f} | {each:.3f} |")
    return "\n".join(lines)


def shares() -> dict[str, list[list[float]]]:
    """Return the share of the gain without privacy that the linear default keeps: epsilon by table."""
    kept: dict[str, list[list[float]]] = {"AUC": [], "R²": []}
    for cell in json.loads((DOCS / "figures" / "additive.json").read_text()).values():
        constant = 0.5 if cell["classifies"] else 0.0
        best = np.mean([scores["plain linear"] for scores in cell["plain"].values()]) - constant
        row = [
            (np.mean([scores["linear"] for scores in cell["private"][e].values()]) - constant) / best
            for e in MEASURED
        ]
        kept["AUC" if cell["classifies"] else "R²"].append(row)
    return kept


def tables_table() -> str:
    """Return how much of the gain is kept on real tables."""
    lines = [
        "| epsilon | " + " | ".join(f"{float(e):g}" for e in MEASURED) + " |",
        "|---|" + "---:|" * len(MEASURED),
    ]
    for name, rows in shares().items():
        for label, value in (("median", np.median(rows, axis=0)), ("worst", np.min(rows, axis=0))):
            lines.append(
                f"| {name}, {label} of {len(rows)} | " + " | ".join(map(per_cent_of_gain, value)) + " |"
            )
    return "\n".join(lines)


def small_shares() -> list[tuple[float, float]]:
    """Return n times epsilon and the share of the gain that is kept, for fits to small tables."""
    cells: dict[str, dict[str, float]] = {}
    for key, value in json.loads((DOCS / "figures" / "small_kept.json").read_text()).items():
        name, _, fact = key.partition(":")
        cells.setdefault(name, {})[fact] = value
    return [
        (cell["n"] * float(e), cell[f"{float(e):g} gain"] / cell["plain"])
        for cell in cells.values()
        if cell["plain"] >= LEAST_GAIN
        for e in MEASURED
    ]


def records_table() -> str:
    """Return the share that is kept by the product of records and epsilon."""
    cells = json.loads((DOCS / "figures" / "additive.json").read_text()).values()
    kept = [row for rows in shares().values() for row in rows]
    numbers = [cell["n"] for kind in (True, False) for cell in cells if cell["classifies"] is kind]
    pairs = np.array(
        [
            (n * float(e), share)
            for n, row in zip(numbers, kept, strict=True)
            for e, share in zip(MEASURED, row, strict=True)
        ]
        + small_shares()
    )
    lines = ["| n times epsilon | fits | worst | a quarter is below | median |", "|---|---:|---:|---:|---:|"]
    for label, low, high in (
        ("below 300", 0, 3e2),
        ("300 to 1,000", 3e2, 1e3),
        ("1,000 to 3,000", 1e3, 3e3),
        ("3,000 to 10,000", 3e3, 1e4),
        ("10,000 to 30,000", 1e4, 3e4),
        ("30,000 and more", 3e4, np.inf),
    ):
        found = pairs[(pairs[:, 0] >= low) & (pairs[:, 0] < high), 1]
        values = " | ".join(map(per_cent_of_gain, np.quantile(found, (0, 0.25, 0.5))))
        lines.append(f"| {label} | {len(found)} | {values} |")
    return "\n".join(lines)


def per_cent_of_gain(share: float) -> str:
    """Return a share in whole per cent."""
    return f"{100 * share:.0f} %"


def page() -> str:
    """Return the page with today's numbers in it."""
    text = PAGE.read_text()
    tables = {
        "attacker": attacker_table(),
        "years": years_table(),
        "tables": tables_table(),
        "records": records_table(),
    }
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, rest = text.split(start)
        text = before + start + table + end + rest.split(end)[1]
    return text


def draw() -> None:
    """Draw what an attacker gains, and what accuracy is kept, against epsilon."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
    epsilon = np.geomspace(0.05, 10, 100)
    mu = np.array([gaussian_mu(e, DELTA) for e in epsilon])
    for rate, colour in ((0.05, "C3"), (0.01, "C1")):
        found = norm.cdf(mu + norm.ppf(rate))
        left.plot(epsilon, found, color=colour, label=f"with {100 * rate:.0f} % false alarms")
        left.axhline(rate, color=colour, linewidth=0.8, linestyle=":")
    left.set(xscale="log", ylim=(0, 1), xlabel="epsilon", ylabel="chance to recognise a member")
    left.set_title("what an attacker gains (dotted: by guessing)", fontsize=10)
    left.legend(frameon=False)
    places = np.array(list(map(float, MEASURED)))
    for (name, rows), colour in zip(shares().items(), ("C0", "C2"), strict=True):
        right.plot(places, np.array(rows).T, color=colour, alpha=0.3, linewidth=0.8)
        right.plot(places, np.median(rows, axis=0), color=colour, linewidth=2.5, label=f"{name}, median")
    right.axhline(1, color="0.6", linewidth=0.8)
    right.set(xscale="log", ylim=(-0.1, 1.1), xlabel="epsilon", ylabel="share of the gain that is kept")
    right.set_title("what the model keeps, on real tables", fontsize=10)
    right.legend(frameon=False, loc="lower right")
    for axis in (left, right):
        axis.set_xticks([0.1, 0.3, 1, 4, 10], ["0.1", "0.3", "1", "4", "10"])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    fig.savefig(DOCS / "images" / "epsilon.png", dpi=130)


if __name__ == "__main__":
    PAGE.write_text(page())
    draw()
