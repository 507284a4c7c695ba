"""The oracle: the only object that holds the records while a solver runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.mechanisms import Mechanism, Vertex
from dpcvx.plans.answers import Answers
from dpcvx.plans.asking import Asking
from dpcvx.plans.plan import Plan
from dpcvx.problem import Bounds, Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Quantiser
    from dpcvx.noise import Generator

__all__ = ["Observer", "Oracle", "Progress"]

Progress = Callable[[int, int], None]
Observer = Callable[[Mechanism, tuple[Any, ...], Any], None]


class Oracle(Asking):
    """Answers the current stage's question, at most its planned number of times.

    The records are held here and never shown; what comes out has been noised by the stage's mechanism.
    """

    def __init__(
        self,
        plan: Plan,
        source: DataSource,
        rng: Generator,
        progress: Progress | None = None,
        observe: Observer | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._plan, self._source, self._progress, self._observe = plan, source, progress, observe
        self._answers = Answers(rng) if answers is None else answers
        self._stage, self._calls, self._total = 0, 0, 0
        self._state: tuple[Any, ...] | None = None  # of a mechanism with one: a point, and margins there
        self._bounds: Bounds | None = plan.problem.bounds  # of every row of the source

    def __reduce__(self) -> NoReturn:
        raise WrongType("An Oracle cannot be copied or pickled: the copy would give every answer once more.")

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Return the noised answer to the question of the current stage."""
        mechanism: Any = self.next_mechanism(question)
        if self._state is None:
            self._state = mechanism.start(self._source) if hasattr(mechanism, "start") else ()
        answers, state = self._answers, self._state
        if answers.replays and hasattr(mechanism, "skip"):
            mechanism.skip(*state)
        answer = answers.give(
            (self._stage, *public), lambda rng: mechanism(*state, *public, data=self._source, rng=rng)
        )
        if self._observe is not None:
            answers.store()  # nobody sees an answer that a run which is continued would draw again
            self._observe(mechanism, public, answer)
        if self._progress is not None:
            self._progress(self._total - answers.waiting, self._plan.n_calls)
        return answer

    def next_mechanism(self, question: str | None) -> Mechanism:
        """Count one more answer of the current stage, and return its mechanism."""
        if self._stage < len(self._plan.stages) and self._calls == self._plan.stages[self._stage].n_calls:
            self._stage, self._calls, self._state = self._stage + 1, 0, None
        if self._stage == len(self._plan.stages):
            raise Incompatible(
                f"The plan allows {self._plan.n_calls} private answers, and all of them are used."
            )
        mechanism = self._plan.stages[self._stage].mechanism
        if question not in (None, mechanism.traits.question):
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

    def remap(
        self, quantiser: Quantiser | None, center: float | Vector = 0.0, scale: float | Vector = 1.0
    ) -> None:
        """Send every record through a second quantiser: a public map of its row, and of its target.

        Without a quantiser rows stay as they are. Several targets may have a centre and a scale each.
        """
        from dpcvx.data import CanStandardise

        usable = np.isfinite(center).all() and np.isfinite(scale).all() and np.min(scale) > 0
        if not usable:  # else what happens depends on a target
            raise WrongValue(f"Targets need a finite centre and a positive scale, got {center!r}, {scale!r}.")
        if not isinstance(self._source, CanStandardise):
            raise Incompatible("These records cannot be mapped again: give standardize=False.")
        self._source = self._source.mapped(quantiser, center, scale)
        self._bounds = self._bounds if quantiser is None else None

    def move(self, step: float, vertex: Vertex) -> None:
        """Announce theta <- (1 - step) theta + step * vertex."""
        if not self._state:
            raise Incompatible("move() follows vertex(): ask for a vertex first.")
        point, margins = self._state
        point.move(step, vertex, margins)
