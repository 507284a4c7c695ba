"""ROC curve, calibration and log loss of a two-class model, from one noisy histogram of its scores."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongType
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.tuning.metrics import metric_of, score_edges
from dpcvx.tuning.ratios import CHANCE, Ratio, laplace_width
from dpcvx.tuning.score import Score, ScorePayment, release_totals
from dpcvx.words import align_columns

if TYPE_CHECKING:
    from dpcvx.ledger import Ledger

__all__ = ["CalibrationGroup", "ScoreCurves", "private_curves"]

# A group of bins has this many standard deviations of the noise on its count, so that the noise moves its
# observed share by about a twentieth at most.
LEAST_COUNT = 20


class CalibrationGroup(NamedTuple):
    """Neighbouring bins of predicted probabilities, large enough for their noise."""

    low: float  # low, high: edges of the predicted probability of the second class
    high: float
    predicted: float  # mean prediction, a bin counted as its middle score
    observed: float  # share of the second class among the rows
    standard_error: float  # of the observed share, by noise alone
    rows: float  # noisy number of rows


@dataclass(frozen=True, eq=False)
class ScoreCurves:
    """Noisy histograms of the scores of both classes, with the ROC curve, calibration and log loss they give.

    Parameters
    ----------
    edges : ndarray of shape (bins - 1,)
        Public edges between the bins of the score; the first and the last bin are unbounded.
    counts : ndarray of shape (2, bins)
        Noisy numbers of rows with each class and bin.
    noise : float
        Standard deviation of the noise on a count.
    roc_auc : Score
        Area under the ROC curve.
    statement : PrivacyStatement
        Privacy statement: ``print`` it, or ``to_json()``.
    link : str
        Meaning of a score; "logit" has probabilities.
    """

    edges: Vector
    counts: Vector
    noise: float
    roc_auc: Score
    statement: PrivacyStatement
    link: str

    @property
    def binning_error(self) -> float:
        """Estimated upper bound on the change of ``roc_auc`` by binning: half the probability of a tie."""
        shares = np.maximum(self.counts, 0.0) / np.maximum(self.counts.sum(axis=1, keepdims=True), 1.0)
        return float(shares[0] @ shares[1]) / 2

    def roc_curve(self) -> tuple[Vector, Vector]:
        """Return false and true positive rates, from (0, 0) to (1, 1), for the edges as thresholds.

        Noisy counts are made non-negative, so that both rates rise.
        """
        falls = np.cumsum(np.maximum(self.counts, 0.0)[:, ::-1], axis=1)
        rates = np.pad(falls / np.maximum(falls[:, -1:], 1.0), ((0, 0), (1, 0)))
        return rates[0], rates[1]

    def log_loss(self) -> Score:
        """Return minus the mean log loss of the rows with a declared label, each at the middle of its bin.

        The loss has slope at most 1 in the score, so binning changes it by at most half the width of a row's
        bin; of the outer bins, which have no end, by how far a score lies beyond the last edge.
        """
        self._need_probabilities()
        middles = self._middles()
        losses = np.stack([np.logaddexp(0, middles), np.logaddexp(0, -middles)])
        total, rows, variance = float((self.counts * losses).sum()), float(self.counts.sum()), self.noise**2
        # The number of rows is noisy too, by the noise on the same counts.
        ratio = Ratio(
            total,
            rows,
            (variance * float((losses**2).sum()), variance * losses.size),
            variance * float(losses.sum()),
        )
        width = laplace_width(CHANCE)
        low, high = ratio.interval(width)
        return Score(
            "neg_log_loss",
            -max(total / max(rows, 1.0), 0.0),
            (high - low) / (2 * width),
            self.statement,
            (-high, min(-low, 0.0)),
            high - low >= math.log(2),
        )

    def calibration(self) -> list[CalibrationGroup]:
        """Return predicted and observed shares of the second class in groups of neighbouring bins.

        Bins are joined from below until the count of a group is 20 standard deviations of its noise;
        remaining bins with fewer rows join the last group. The list is empty if all rows together are too
        few.
        """
        self._need_probabilities()
        ends = np.concatenate([[-math.inf], self.edges, [math.inf]])
        groups: list[list[int]] = [[]]
        for place in range(self.counts.shape[1]):
            groups[-1].append(place)
            if self._enough(groups[-1]):
                groups.append([])
        rest = groups.pop()
        if groups:
            groups[-1] += rest
        return [self._group(places, ends) for places in groups]

    def _group(self, places: list[int], ends: Vector) -> CalibrationGroup:
        counts = self.counts[:, places]
        rows = float(counts.sum())
        observed = float(counts[1].sum()) / rows
        weights = np.maximum(counts.sum(axis=0), 0.0)
        predicted = float(weights @ _logistic(self._middles()[places]) / weights.sum())
        # A count of the first class moves the share by -observed / rows, one of the second by (1 - observed).
        deviation = self.noise * math.sqrt(len(places)) * math.hypot(observed, 1 - observed) / rows
        low, high = _logistic(ends[[places[0], places[-1] + 1]])
        clipped = min(max(observed, 0.0), 1.0)
        return CalibrationGroup(float(low), float(high), predicted, clipped, deviation, rows)

    def _enough(self, places: list[int]) -> bool:
        deviation = self.noise * math.sqrt(2 * len(places))
        return float(self.counts[:, places].sum()) >= LEAST_COUNT * deviation

    def _middles(self) -> Vector:
        """Middle scores of the bins; of the outer ones their only edge."""
        padded = np.concatenate([self.edges[:1], self.edges, self.edges[-1:]])
        middles: Vector = (padded[:-1] + padded[1:]) / 2
        return middles

    def _need_probabilities(self) -> None:
        if self.link != "logit":
            raise WrongType("Calibration and log loss need probabilities, which this model does not have.")

    def __str__(self) -> str:
        lines = [str(self.roc_auc), f"  binning changes it by at most about {self.binning_error:.2g}"]
        if self.link == "logit":
            header = ["predicted", "observed", "standard error", "rows"]
            rows = [
                [f"{g.predicted:.3f}", f"{g.observed:.3f}", f"{g.standard_error:.3f}", f"{g.rows:.0f}"]
                for g in self.calibration()
            ]
            lines += [str(self.log_loss()), "", "Calibration:", *align_columns([header, *rows], left=())]
        return "\n".join(lines)


def private_curves(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float,
    groups: Any = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    account: str | None = None,
    random_state: Any = None,
) -> ScoreCurves:
    """Release ROC curve, calibration and log loss of a two-class model on private rows, at one price.

    The query is `dpcvx.tuning.metrics.AreaUnderCurve`: the number of rows of either class in 40 public bins
    of their score; one row changes two counts by one. Every count gets discrete Laplace noise of scale
    2 / epsilon; the rest is arithmetic on the noisy counts.

    Parameters
    ----------
    model : estimator
        A fitted classifier of dpcvx with two classes, or a `PrivateSearchCV` of one.
    X, y : as for ``model.predict`` and ``model.fit``
        Private rows, one per person unless there are ``groups``; rows without a declared label are left
        out.
    epsilon : float
        Privacy loss that one person may suffer; delta is 0.
    groups, ledger, account, random_state
        As for `private_score`.

    Returns
    -------
    ScoreCurves
    """
    name = "roc_auc"
    released = release_totals(
        model,
        (X, y, groups),
        lambda model: metric_of(model, name, n_classes=len(getattr(model, "classes_", ()))),
        name,
        ScorePayment(epsilon, ledger, account, random_state),
    )
    question, totals = released.question, released.totals
    area = question.measured(totals).of(name, released.statement)
    return ScoreCurves(
        score_edges(released.model),
        totals.reshape(2, -1),
        question.deviation,
        area,
        released.statement,
        released.model.formula_.link,
    )


def _logistic(scores: Vector) -> Vector:
    with np.errstate(over="ignore"):
        probabilities: Vector = np.exp(-np.logaddexp(0, -scores))
    return probabilities
