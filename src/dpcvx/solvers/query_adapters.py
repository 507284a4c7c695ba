"""Queries of a fit that are passed on at another point, or answered over another number of records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible
from dpcvx.losses import Loss
from dpcvx.mechanisms import Mechanism, SecondMoments, Vertex
from dpcvx.plans import Asking, Plan, Stage

__all__ = ["PresentAsk", "ShiftedAsk", "check_questions", "divide_by"]

DIVIDED = ("gradient", "gradient on a support", "difference", "Hessian")  # questions whose answers are over n
SHIFTED = ("gradient", "difference", "goodness", "Hessian")  # questions that `ShiftedAsk` passes on


def check_questions(loss: Loss, fit: Plan) -> None:
    """Refuse a solver that asks for more than gradients and Hessians of a loss that starts at the mean."""
    if loss.link != "identity" and any(each.mechanism.traits.question not in SHIFTED for each in fit.stages):
        raise Incompatible(
            f"{type(fit.solver).__name__} does not fit a model of the logarithm or the log-odds of a mean, "
            'which starts at the released mean. Use solver="gradient_descent", or "auto".'
        )


class ShiftedAsk(Asking):
    """Passes queries of theta on as queries of start + theta; a ridge stays one of theta."""

    def __init__(self, ask: Asking, start: Vector, l2: float) -> None:
        self._ask, self._start, self._ridge = ask, start, l2 * start

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Ask for a gradient, a difference of two, goodness of fit or a Hessian at shifted points."""
        answer = self._ask.ask(*(each + self._start for each in public), question=question)
        return answer - self._ridge if question == "gradient" else answer

    def move(self, step: float, vertex: Vertex) -> None:
        """Pass a move on."""
        self._ask.move(step, vertex)

    def withdraw(self, theta: Vector, start: Vector, caution: str) -> Vector:
        """Pass it on."""
        return self._ask.withdraw(theta, start, caution)


class PresentAsk(Asking):
    """Passes queries on, and turns sums over n into means over the records that have a target.

    Vertices and minimisers do not depend on the divisor, apart from a ridge.
    """

    def __init__(self, ask: Asking, factor: float, l2: float) -> None:
        self._ask, self._factor, self._l2 = ask, factor, l2

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Ask, and rescale gradients, their differences and Hessians."""
        answer = self._ask.ask(*public, question=question)
        if question == "Hessian":
            meat = None if answer.meat is None else self._factor * answer.meat
            return SecondMoments(self._factor * answer.hessian, meat)
        if question not in DIVIDED:
            return answer
        point = public[0]
        if len(public) > 1:
            point = point - public[1] if question == "difference" else point[public[1]]
        ridge = self._l2 * point
        return self._factor * (answer - ridge) + ridge

    def move(self, step: float, vertex: Vertex) -> None:
        """Pass a move on."""
        self._ask.move(step, vertex)

    def withdraw(self, theta: Vector, start: Vector, caution: str) -> Vector:
        """Pass it on."""
        return self._ask.withdraw(theta, start, caution)


def divide_by(n: int, stage: Stage) -> Stage:
    """Return a stage with the noise that its answers have once `PresentAsk` has rescaled them."""
    if stage.mechanism.traits.question not in DIVIDED:
        return stage
    mechanism: Any = stage.mechanism
    rescaled: Mechanism = replace(mechanism, n=n)
    return replace(stage, mechanism=rescaled)
