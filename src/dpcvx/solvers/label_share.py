"""Released share of a class: the log-odds at which the intercept of a classifier starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.mechanisms import NoisyTarget
from dpcvx.plans import Asking, Stage
from dpcvx.solvers.defaults import default

__all__ = ["LabelShare", "label_stage", "measure_log_odds"]

SHARES: tuple[float, float] = default("solvers.label_share.SHARES")
SHARE_SCALE: float = default("solvers.label_share.SHARE_SCALE")
DEVIATION: float = default("solvers.label_share.DEVIATION")
FAINT: float = default("solvers.label_share.FAINT")
LARGEST = 6.0  # log-odds of a class with 1 record in 400
FAINT_CLASS = (
    "Perhaps all labels are the same: the released share of the {rarer} of the two is below {faint:g} times "
    "its noise (standard deviation {noise:.2g}), and coefficients may be noise alone. If a record becomes "
    "several rows, as in models of ordered levels and of periods, these are labels of its rows. Check that "
    "labels are spelt and coded as in the data, or use more records or a larger epsilon. The budget of this "
    "fit is spent."
)


@dataclass(frozen=True)
class LabelShare:
    """The share of the second of two classes, estimated from released numbers."""

    log_odds: float  # of the second class: the posterior mean
    caution: str | None  # a warning if all labels may be the same


def label_stage(n: int, budget: Budget) -> Stage:
    """Return the question about the mean of labels -1 and 1, for a share of mu^2 that falls with n mu."""
    paid = spendable(budget)
    mu = gaussian_mu(paid.epsilon, paid.delta)
    share = min(max(SHARE_SCALE * budget.neighbours.rows / (n * mu), SHARES[0]), SHARES[1])
    return Stage(NoisyTarget(n, 1 / (mu * math.sqrt(share)), budget.neighbours), 1)


def measure_log_odds(stage: Stage, ask: Asking) -> LabelShare:
    """Ask for the share p of the second class; return the posterior mean of b = log(p/(1 - p)).

    The mean of the labels is tanh(b/2). A record without a label counts as 0 in mean and mean square, so that
    their ratio is the mean of the labels that are there. b is normal beforehand, with mean 0.

    `stage`: of `label_stage`.
    """
    mechanism: Any = stage.mechanism
    _, mean, square = map(float, ask.target(0.0, 1.0))
    labelled = min(max(square, 2 * mechanism.noise), 1.0)
    b = np.linspace(-LARGEST, LARGEST, 481)
    fit = ((np.tanh(b / 2) - mean / labelled) * labelled / mechanism.noise) ** 2 + (b / DEVIATION) ** 2
    weights = np.exp((fit.min() - fit) / 2)
    # The share of the rarer label is (1 - |mean|)/2 of the records with a label, and so is its noise.
    noise = mechanism.noise / (2 * labelled)
    faint = (1 - abs(mean) / labelled) / 2 < FAINT * noise
    caution = (
        FAINT_CLASS.format(faint=FAINT, rarer="second" if mean < 0 else "first", noise=noise)
        if faint
        else None
    )
    return LabelShare(float(weights @ b / weights.sum()), caution)
