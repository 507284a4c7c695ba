"""The mean gradient of a regression along a line of coefficients, and its predicted error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.compiled import CompiledRegression, margin_range
from dpcvx.queries.mean_errors import MeanErrors, Moments

__all__ = ["ScoreFunction", "Slope"]


@dataclass(frozen=True, eq=False)
class Slope:
    """Slope of a loss along a line at several points of it, minus that at the answer, with its errors."""

    values: Vector  # (k,), at each point
    moments: Moments  # errors of the values
    sampling: Vector  # (k,): variance of a value over samples of one record


@dataclass(frozen=True, eq=False)
class ScoreFunction:
    """The mean gradient of a regression's loss under the public distribution.

    `weights`: of the query's cells; `theta`: the answer; `inverse`: inverse Hessian there.
    """

    query: CompiledRegression
    weights: Vector
    theta: Vector
    inverse: Vector
    mean_errors: MeanErrors

    def along(self, row: Vector, steps: Vector) -> Slope:
        """Return the slope along the line on which the number <row, theta> moves by the given steps.

        The line has the direction H^-1 row: to first order, the other coefficients follow so that the loss
        is least.
        """
        query, towards = self.query, self.inverse @ row
        line = query.X @ towards
        margins = (query.X @ self.theta)[:, None] + (line / (row @ towards))[:, None] * np.append(0.0, steps)
        labels = np.repeat(query.y[:, None], margins.shape[1], axis=1)
        slopes = query.rounded_loss.grad(margins.ravel(), labels.ravel()).reshape(margins.shape)
        values = slopes * line[:, None]
        means = self.weights @ values
        ridge = query.problem.l2 * (towards @ towards) / (row @ towards) * steps
        variances = self.weights @ values**2 - means**2
        return Slope(means[1:] - means[0] + ridge, self.mean_errors.of(values[:, 1:]), variances[1:])

    def range(self, row: Vector) -> tuple[float, float]:
        """Return how far the number <row, theta> can move inside the query's set, downwards and upwards."""
        low, high = margin_range(self.query.problem.C, row[None, :])
        here = float(row @ self.theta)
        return here - float(low[0]), float(high[0]) - here
