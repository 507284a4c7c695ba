"""Sparse vector: finds the scores above a threshold, and pays for those only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.events import Event, PureDP
from dpcvx.queries.compiled import TOLERANCE

if TYPE_CHECKING:
    from dpcvx.noise import Generator

__all__ = ["AboveThreshold", "ComparisonRun"]

LATTICE_BITS = 30  # a score of 1, the sensitivity, has 2^30 lattice steps
SPLIT = 2.0 ** (2 / 3)  # e2 / e1, which makes the noise of a comparison least (PRIVACY_MATH §9.2)


@dataclass(frozen=True)
class AboveThreshold:
    """One run of comparisons with a noisy threshold, up to and including the first that is above.

    Question: scores f(D) = (err(D) - level) / (range / n), one for each query of the run, chosen adaptively;
    the answer says whether f(D) plus noise is at least the noisy threshold 0.
    Sensitivity (replace-one): 1 for every score, plus twice the tolerance of the inner minimiser, and one
    lattice step for rounding: D steps of 2^-30 in all, for rows and for persons. Scores need not be monotone.
    Event: PureDP(epsilon) for the whole run, however many scores are below (PRIVACY_MATH §9.2, §15): discrete
    Laplace noise of scale D/e1 on the threshold and 2 D/e2 on each score, e1 + e2 = epsilon. A further run
    draws a further threshold and is a further event.
    """

    epsilon: float  # cost of the run
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise WrongValue(f"epsilon is {self.epsilon!r}; it must be a positive finite number.")
        from dpcvx.noise.laplace import MAX_LAPLACE_SCALE

        if max(self.scales) > MAX_LAPLACE_SCALE:
            raise Incompatible(f"epsilon={self.epsilon:g} is too small for a run of comparisons.")

    @property
    def event(self) -> Event:
        """PureDP(epsilon)."""
        return PureDP(self.epsilon)

    @property
    def sensitivity(self) -> float:
        """Largest change of a score."""
        return self._steps * 2.0**-LATTICE_BITS

    @property
    def noise(self) -> float:
        """Scale of the Laplace noise on a score."""
        return self.scales[1] * 2.0**-LATTICE_BITS

    @property
    def n_draws(self) -> int:
        """One value per comparison; the threshold's is drawn when the run starts."""
        return 1

    @property
    def failure(self) -> float:
        """Total variation of one draw's noise."""
        from dpcvx.noise.laplace import laplace_failure

        return laplace_failure(max(self.scales))

    @property
    def _steps(self) -> int:
        """D: largest change of a score in lattice steps."""
        return math.ceil((1 + 2 * TOLERANCE) * 2.0**LATTICE_BITS) + 1

    @cached_property
    def scales(self) -> tuple[int, int]:
        """Scales of the threshold's and of a score's noise, in lattice steps."""
        first = Fraction(self.epsilon / (1 + SPLIT))
        second = Fraction(self.epsilon) - first  # so that the parts sum to epsilon exactly
        return math.ceil(self._steps / first), math.ceil(2 * self._steps / second)

    def tail(self, distance: float) -> float:
        """Return P(a score's noise minus the threshold's > distance), in units of the sensitivity.

        For Laplace variables of scales a > b: (a^2 e^(-t/a) - b^2 e^(-t/b)) / (2 (a^2 - b^2)).
        """
        b, a = (scale * 2.0**-LATTICE_BITS for scale in self.scales)
        upper = a * a * math.exp(-distance / a) - b * b * math.exp(-distance / b)
        return upper / (2 * (a * a - b * b))

    def distance(self, probability: float) -> float:
        """Return the error of a comparison that is exceeded with the given probability, below 1/2."""
        if not 0 < probability < 0.5:
            raise WrongValue(f"probability is {probability!r}; it must be above 0 and below 1/2.")
        low, high = 0.0, 1.0
        while self.tail(high) > probability:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.tail(middle) > probability else (low, middle)
        return high

    def start(self, rng: Generator) -> ComparisonRun:
        """Draw a fresh threshold; the run must have been paid for."""
        from dpcvx.noise.laplace import lattice_laplace

        return ComparisonRun(self, int(lattice_laplace(self.scales[0], 1, rng)[0]))

    def resume(self, threshold: int) -> ComparisonRun:
        """Continue a run that was not over.

        Comparisons below change nothing but their own noise, so that a run is its threshold. A run that
        ended must never be resumed: the caller keeps its end durably.

        `threshold`: that of the run, private.
        """
        return ComparisonRun(self, threshold)


class ComparisonRun:
    """Private state of a run: its noisy threshold. It stays on the private side and prints nothing.

    `threshold`: in lattice steps.
    """

    def __init__(self, mechanism: AboveThreshold, threshold: int) -> None:
        self._mechanism, self._over = mechanism, False
        self.threshold = threshold

    def __reduce__(self) -> NoReturn:
        raise WrongType("A ComparisonRun cannot be copied or pickled: its threshold is paid for once.")

    def above(self, score: float, rng: Generator) -> bool:
        """Compare one score; the run ends with the first one that is above."""
        from dpcvx.noise.laplace import lattice_laplace

        if self._over:
            raise Incompatible("This run is over: start another one, which must be paid for.")
        noise = int(lattice_laplace(self._mechanism.scales[1], 1, rng)[0])
        self._over = round(score * 2.0**LATTICE_BITS) + noise >= self.threshold
        return self._over
