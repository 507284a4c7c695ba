"""Draw the pictures of bounds_and_clipping.md, from simulated incomes and seeded fits.

python docs/bounds_pictures.py
"""

import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np

from dpcvx import PrivateLinearRegression, UselessModelWarning
from dpcvx.accounting import gaussian_mu

mpl.use("agg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).resolve().parent / "images"
N = 5_000


def finish(fig, name: str) -> None:
    """Save a picture without frames that say nothing."""
    for axis in fig.axes:
        axis.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    fig.savefig(IMAGES / name, dpi=130)
    plt.close(fig)


def trade_off() -> None:
    """A private mean of incomes: bias of clipping and noise against the upper bound."""
    rng = np.random.default_rng(0)
    incomes = rng.lognormal(np.log(30_000), 0.7, N)
    bounds = np.geomspace(10_000, 1e7, 200)
    mean = incomes.mean()
    bias = np.array([mean - np.minimum(incomes, bound).mean() for bound in bounds])
    noise = bounds / N / gaussian_mu(1.0, 1e-6)  # standard deviation of the noise on a mean
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.5))
    left.hist(incomes, bins=np.linspace(0, 200_000, 60), color="0.7")
    for bound, colour in ((30_000, "C3"), (150_000, "C2")):
        left.axvline(bound, color=colour, label=f"bound {bound:,}")
    left.set(xlabel="income, thousands", ylabel="people")
    left.set_xticks(range(0, 200_001, 50_000), ["0", "50", "100", "150", "200"])
    left.set_title("incomes of 5,000 people, simulated", fontsize=10)
    left.legend(frameon=False)
    right.loglog(bounds, bias, label="clipping: the mean is too low by")
    right.loglog(bounds, noise, label="noise: standard deviation")
    right.loglog(bounds, np.hypot(bias, noise), "k", label="both")
    right.set(ylim=(10, 1e5), xlabel="upper bound that is declared", ylabel="error of the mean")
    right.set_title("too narrow is biased, too wide is noisy", fontsize=10)
    right.legend(frameon=False)
    finish(fig, "bounds_trade_off.png")


def simulated(seed: int):
    """Return two columns and a target of simulated people."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(45, 15, N), rng.lognormal(10, 0.7, N)])
    y = 0.1 * X[:, 0] + np.log(X[:, 1]) + rng.normal(0, 1.5, N)
    return X, y


def too_wide() -> None:
    """R² against the width of the declared bounds, with and without the automatic treatment."""
    factors = (1, 3, 10, 30, 100)
    settings = {
        "default: standardised, long tails mapped": {},
        "maps=None: standardised only": {"maps": None},
        "standardize=False": {"standardize": False},
    }
    warnings.simplefilter("ignore", UselessModelWarning)
    warnings.simplefilter("ignore", UserWarning)
    fig, axis = plt.subplots(figsize=(6.5, 3.6))
    for label, setting in settings.items():
        scores = []
        for factor in factors:
            row = []
            for seed in range(4):
                X, y = simulated(seed)
                new, target = simulated(100 + seed)
                bounds = (
                    [45 - 45 * factor, 20_000 - 20_000 * factor],
                    [45 + 45 * factor, 20_000 + 180_000 * factor],
                )
                model = PrivateLinearRegression(
                    epsilon=1.0, bounds=bounds, y_bounds=(0, 30), random_state=seed, **setting
                ).fit(X, y)
                row.append(1 - ((model.predict(new) - target) ** 2).mean() / target.var())
            scores.append(np.mean(row))
        axis.plot(factors, np.maximum(scores, -0.2), "o-", label=label)
    axis.set(
        xscale="log", ylim=(-0.22, 0.8), xlabel="bounds are so many times too wide", ylabel="R² on new people"
    )
    axis.set_xticks(factors, [str(factor) for factor in factors])
    axis.minorticks_off()
    axis.axhline(0, color="0.7", linewidth=0.8)
    axis.legend(frameon=False)
    finish(fig, "bounds_too_wide.png")


def region() -> None:
    """The region of a standardised fit: cells at three deviations, rows at a released length."""
    X, y = simulated(0)
    model = PrivateLinearRegression(
        epsilon=1.0, bounds=([0, 0], [120, 1e6]), y_bounds=(0, 30), random_state=0, maps=None
    ).fit(X, y)
    region = model.formula_.to_dict()["region"]
    center, scale = np.array(region["center"]), np.array(region["scale"])
    u = (X - center) / scale
    clipped = np.clip(u, -region["reach"], region["reach"])
    length = np.linalg.norm(clipped, axis=1, keepdims=True)
    used = clipped * np.minimum(1, region["length"] / length)
    moved = np.abs(used - u).max(axis=1) > 1e-9
    fig, axis = plt.subplots(figsize=(6.5, 5))
    axis.plot(*u[~moved].T, ".", color="0.75", markersize=3, label=f"as they are: {(~moved).mean():.0%}")
    axis.plot(*u[moved].T, ".", color="C3", markersize=3, label=f"moved by the fit: {moved.mean():.0%}")
    for row, new in list(zip(u[moved], used[moved], strict=True))[:80]:
        axis.plot(*np.stack([row, new]).T, color="C3", linewidth=0.4, alpha=0.5)
    angle = np.linspace(0, 2 * np.pi, 300)
    axis.plot(
        region["length"] * np.cos(angle),
        region["length"] * np.sin(angle),
        color="C0",
        label="region of the fit",
    )
    axis.set(
        xlabel="age, standardised", ylabel="income, standardised", xlim=(-4, 4), ylim=(-2, 5), aspect="equal"
    )
    axis.legend(frameon=False)
    finish(fig, "bounds_region.png")


if __name__ == "__main__":
    trade_off()
    too_wide()
    region()
