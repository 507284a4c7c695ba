"""[U15] section 4: how many records one convex-minimisation query needs, and k of them on one budget.

The leading terms of Theorems 4.1 to 4.6, without constants and logarithms of 1/delta and 1/beta: they say how
sizes grow, not how large they are. Losses are 1-Lipschitz over the unit l2 ball, so the scale S is at most 2.
Plans never use these numbers; a solver predicts its own risk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpcvx.errors import WrongValue

__all__ = ["SampleSize"]


@dataclass(frozen=True)
class SampleSize:
    """Numbers of records for excess risk alpha, up to constants and logarithms.

    Parameters
    ----------
    alpha : float
        Excess risk of every answer.
    epsilon : float
        Of the whole run.
    d : int
        Number of coefficients.
    strong_convexity : float, optional
        sigma: the losses are sigma-strongly convex.
    linear_model : bool, default False
        The loss depends on the score alone, over the whole unit ball.
    """

    alpha: float
    epsilon: float
    d: int
    strong_convexity: float | None = None
    linear_model: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.alpha <= 1 and self.epsilon > 0 and self.d >= 1):
            raise WrongValue("alpha must be in (0, 1], epsilon positive and d at least 1.")
        if self.strong_convexity is not None and (self.linear_model or not self.strong_convexity > 0):
            raise WrongValue("strong_convexity must be positive, and cannot be combined with linear_model.")

    @property
    def one(self) -> float:
        """One query: [U15] Theorems 4.1, 4.3 and 4.5.

        sqrt(d)/(alpha eps); 1/(alpha^2 eps) for linear models; sqrt(d)/(sqrt(sigma alpha) eps) with strong
        convexity. The paper prints sqrt(sigma) alpha there: its Theorem 4.6 follows from this form only.
        """
        if self.linear_model:
            return 1 / (self.alpha**2 * self.epsilon)
        if self.strong_convexity is not None:
            return math.sqrt(self.d / (self.strong_convexity * self.alpha)) / self.epsilon
        return math.sqrt(self.d) / (self.alpha * self.epsilon)

    def many(self, k: int, cells: float) -> float:
        """K queries by private multiplicative weights: [U15] Theorems 4.2, 4.4 and 4.6.

        sqrt(log |X|) max(one/alpha, log k/(alpha^2 eps)), with |X| cells of the universe.
        """
        net = math.log(k) / (self.alpha**2 * self.epsilon)
        return math.sqrt(math.log(cells)) * max(self.one / self.alpha, net)

    def composed(self, k: int) -> float:
        """K queries, each answered by itself with its share of the budget: sqrt(k) times one."""
        return math.sqrt(k) * self.one
