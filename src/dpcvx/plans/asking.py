"""Interface of an oracle, as a solver sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpcvx.arrays import IntVector, Vector
from dpcvx.mechanisms import SecondMoments, Vertex

if TYPE_CHECKING:
    from dpcvx.data import Quantiser, Region
    from dpcvx.plans.uncertainty import Uncertainty

__all__ = ["Asking"]


class Asking:
    """Asks public queries and returns noised answers.

    There is one verb, `ask`; the other methods give it a name and a type, so that a loop reads like its
    pseudocode. An imitation implements `ask` alone, and `move` if vertices are asked for.
    """

    uncertainty: Uncertainty | None = None
    region: Region | None = None
    caution: str | None = None

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Return the noised answer to the question of the current stage.

        Parameters
        ----------
        *public
            Public arguments of the stage's mechanism.
        question : str, optional
            Kind of question that is meant; a stage that answers another one refuses.
        """
        raise NotImplementedError(f"{type(self).__name__} does not answer.")

    def gradient(self, theta: Vector, support: IntVector | None = None) -> Vector:
        """Noisy gradient of the objective at a public theta, on the features of a support if one is given."""
        if support is None:
            answer: Vector = self.ask(theta, question="gradient")
        else:
            answer = self.ask(theta, support, question="gradient on a support")
        return answer

    def difference(self, theta: Vector, anchor: Vector) -> Vector:
        """Noisy gradient at theta minus gradient at an anchor, both public, over a sample of the records."""
        answer: Vector = self.ask(theta, anchor, question="difference")
        return answer

    def minimiser(self, linear: Vector | None = None) -> Vector:
        """Private minimiser of the objective, plus a public linear term where the question takes one."""
        answer: Vector = self.ask(*(() if linear is None else (linear,)), question="minimiser")
        return answer

    def second_moments(self, theta: Vector) -> SecondMoments:
        """Noisy Hessian of the mean loss at a public theta, and what else was planned with it."""
        answer: SecondMoments = self.ask(theta, question="Hessian")
        return answer

    def goodness(self, theta: Vector, base: Vector | None = None) -> Vector:
        """Noisy sums of the errors of the model at a public theta, and of a constant's, over n."""
        points = (theta,) if base is None else (theta, base)
        answer: Vector = self.ask(*points, question="goodness")
        return answer

    def moments(self, centers: Vector | None = None) -> Vector:
        """Noisy means of the features, or mean squares about public centres."""
        answer: Vector = self.ask(centers, question="moment")
        return answer

    def length(self) -> float:
        """Noisy mean squared norm of the rows."""
        answer: float = self.ask(question="length")
        return answer

    def target(self, center: float, reach: float, place: int | None = None) -> Vector:
        """Noisy share of present targets, and mean and mean square of (y - center)/reach, clipped.

        All three are sums over n, of the target at a place if there are several.
        """
        public = (center, reach) if place is None else (center, reach, place)
        answer: Vector = self.ask(*public, question="target")
        return answer

    def pair(self, theta: Vector, drawn: tuple[int, ...] = ()) -> int:
        """Pair with a large slope of the loss along its product at a public theta, none of those drawn."""
        answer: int = self.ask(theta, drawn, question="pair")
        return answer

    def group(self, theta: Vector, drawn: tuple[int, ...] = ()) -> int:
        """Group of features with a large gradient at a public theta, except the groups drawn before."""
        answer: int = self.ask(theta, drawn, question="group")
        return answer

    def vertex(self) -> Vertex:
        """Noisy best vertex at the current point."""
        answer: Vertex = self.ask(question="vertex")
        return answer

    def move(self, step: float, vertex: Vertex) -> None:
        """Announce theta <- (1 - step) theta + step * vertex."""
        raise NotImplementedError(f"{type(self).__name__} follows no point.")

    def remap(
        self, quantiser: Quantiser | None, center: float | Vector = 0.0, scale: float | Vector = 1.0
    ) -> None:
        """Send every record through a second quantiser: a public map of its row, and of its target or K."""
        raise NotImplementedError(f"{type(self).__name__} holds no records.")

    def announce(self, region: Region | None, caution: str | None = None) -> None:
        """Release, with the parameter, the region of the rows, and a caution: functions of answers."""
        self.region, self.caution = region, caution

    def withdraw(self, theta: Vector, start: Vector, caution: str) -> Vector:
        """Return the start in place of a parameter that is only noise, and add a caution to the release."""
        self.caution = caution if self.caution is None else f"{caution} {self.caution}"
        return start

    def publish(self, uncertainty: Uncertainty) -> None:
        """Release, with the parameter, how uncertain it is: a function of answers and public numbers."""
        self.uncertainty = uncertainty
