"""The oracle: the only object that holds the records while a solver runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import (
    Combination,
    NoisyDifference,
    NoisyGradient,
    NoisyLength,
    NoisyMinimiser,
    NoisyMoments,
    NoisySecondMoments,
    NoisyVertex,
    PerturbedMinimiser,
    SecondMoments,
    Vertex,
)
from dpcvx.plans.plan import Plan
from dpcvx.problem import Bounds, Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Lazy, Linear, Margins, Quantiser, Region
    from dpcvx.noise import Generator
    from dpcvx.plans.uncertainty import Uncertainty

__all__ = ["Oracle", "Progress"]

Progress = Callable[[int, int], None]


class Oracle:
    """Answers the current stage's question, at most its planned number of times.

    The records are held here and never shown; what comes out has been noised by the stage's mechanism.
    """

    def __init__(
        self, plan: Plan, source: DataSource, rng: Generator, progress: Progress | None = None
    ) -> None:
        self._plan, self._source, self._rng, self._progress = plan, source, rng, progress
        self._stage, self._calls, self._total = 0, 0, 0
        self._margins: Margins | Lazy | Linear | None = None
        self._point: Combination | None = None
        self._bounds: Bounds | None = plan.problem.bounds  # of every row of the source
        self.uncertainty: Uncertainty | None = None
        self.trim: Region | None = None
        self.caution: str | None = None

    def _current(self, kind: type[Any] | tuple[type[Any], ...], question: str) -> Any:
        if self._stage < len(self._plan.stages) and self._calls == self._plan.stages[self._stage].n_calls:
            self._stage, self._calls, self._margins, self._point = self._stage + 1, 0, None, None
        if self._stage == len(self._plan.stages):
            raise Incompatible(
                f"The plan allows {self._plan.n_calls} private answers, and all of them are used."
            )
        mechanism = self._plan.stages[self._stage].mechanism
        if not isinstance(mechanism, kind):
            raise Incompatible(
                f"The plan's stage {self._stage + 1} answers {type(mechanism).__name__}, not a {question}."
            )
        # Rows keep the bounds that this very question's sensitivity is for, whatever was asked before it.
        own: Problem = getattr(mechanism, "problem", self._plan.problem)
        if own.d != self._source.d:
            raise Incompatible(f"The question is for d={own.d} features, the records have {self._source.d}.")
        if own.bounds != self._bounds:
            self._source, self._bounds = self._source.within(own.bounds), own.bounds
        self._calls += 1
        self._total += 1
        return mechanism

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._plan.n_calls)

    def gradient(self, theta: Vector, support: IntVector | None = None) -> Vector:
        """Noisy gradient of the objective at a public theta, on the features of a support if one is given."""
        mechanism: NoisyGradient = self._current(NoisyGradient, "gradient")
        answer = mechanism(theta, self._source, self._rng, support)
        self._report()
        return answer

    def difference(self, theta: Vector, anchor: Vector) -> Vector:
        """Noisy gradient at theta minus gradient at an anchor, both public, over a sample of the records."""
        mechanism: NoisyDifference = self._current(NoisyDifference, "difference")
        answer = mechanism(theta, anchor, self._source, self._rng)
        self._report()
        return answer

    def minimiser(self, linear: Vector | None = None) -> Vector:
        """Private minimiser of the objective, plus a public linear term where the question takes one."""
        mechanism = self._current((NoisyMinimiser, PerturbedMinimiser), "minimiser")
        public = () if linear is None else (linear,)
        answer: Vector = mechanism(*public, data=self._source, rng=self._rng)
        self._report()
        return answer

    def second_moments(self, theta: Vector) -> SecondMoments:
        """Noisy Hessian of the mean loss at a public theta, and what else was planned with it."""
        mechanism: NoisySecondMoments = self._current(NoisySecondMoments, "Hessian")
        answer = mechanism(theta, self._source, self._rng)
        self._report()
        return answer

    def moments(self, centers: Vector | None = None) -> Vector:
        """Noisy means, or mean squares about public centres, of the features and of targets with a scale."""
        mechanism: NoisyMoments = self._current(NoisyMoments, "moment")
        answer = mechanism(centers, self._source, self._rng)
        self._report()
        return answer

    def length(self) -> Vector:
        """Noisy mean squared norm of the rows, then mean squares of targets with a scale."""
        mechanism: NoisyLength = self._current(NoisyLength, "length")
        answer = mechanism(self._source, self._rng)
        self._report()
        return answer

    def remap(self, door: Quantiser, center: float = 0.0, scale: float = 1.0) -> None:
        """Send every record through a second door: a public map of its row, and of its target."""
        from dpcvx.data import CanStandardise

        if not (math.isfinite(center) and 0 < scale < math.inf):  # else what happens depends on a target
            raise ValueError(f"Targets need a finite centre and a positive scale, got {center!r}, {scale!r}.")
        if not isinstance(self._source, CanStandardise):
            raise Incompatible("These records cannot be mapped again: give standardize=False.")
        self._source, self._bounds = self._source.mapped(door, center, scale), None

    def announce(self, trim: Region, caution: str | None = None) -> None:
        """Release, with the parameter, the region of the rows, and a caution: functions of answers."""
        self.trim, self.caution = trim, caution

    def publish(self, uncertainty: Uncertainty) -> None:
        """Release, with the parameter, how uncertain it is: a function of answers and public numbers."""
        self.uncertainty = uncertainty

    def vertex(self) -> Vertex:
        """Noisy best vertex at the current point."""
        mechanism: NoisyVertex = self._current(NoisyVertex, "vertex")
        if self._point is None:
            self._point, self._margins = mechanism.start(self._source)
        answer = mechanism(self._point, self._margins, self._source, self._rng)
        self._report()
        return answer

    def move(self, step: float, vertex: Vertex) -> None:
        """Announce theta <- (1 - step) theta + step * vertex."""
        if self._point is None:
            raise Incompatible("move() follows vertex(): ask for a vertex first.")
        self._point.move(step, vertex, self._margins)
