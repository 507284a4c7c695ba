"""A solver's loop on an oracle of the user's own, without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.plans import Asking, Solver, check_count
from dpcvx.problem import Problem

__all__ = ["GradientOracle", "run_with_oracle"]


class GradientOracle(Protocol):
    """Anything that answers with a gradient: exact, sampled, or with noise of any law."""

    def gradient(self, theta: Vector) -> Vector:
        """Return a gradient, or an unbiased guess of it, at theta."""


class _OwnAnswers(Asking):
    """Passes questions for gradients on to the user's object, and refuses others."""

    def __init__(self, own: GradientOracle) -> None:
        self._own = own

    def ask(self, *public: Any, question: str | None = None) -> Any:
        if question != "gradient":
            raise Incompatible(f"An oracle of your own answers gradients; the solver asks for a {question}.")
        return self._own.gradient(*public)


@dataclass(frozen=True)
class _Noise:
    noise: float


@dataclass(frozen=True)
class _Stage:
    mechanism: _Noise
    n_calls: int


@dataclass(frozen=True)
class _Schedule:
    """The part of a plan that a loop reads, without event, budget or guarantee."""

    problem: Problem
    stages: tuple[_Stage, ...]

    @property
    def n_calls(self) -> int:
        return self.stages[0].n_calls


def run_with_oracle(
    solver: Solver, problem: Problem, ask: GradientOracle, *, n_iter: int, noise: float = 0.0
) -> Vector:
    """Run a solver's loop on your own gradients. **Nothing about it is private**, and nothing is accounted.

    A solver only ever sees an oracle's answers, so that the loop of [TTZ14] Corollary 3.6, mirror descent on
    gradients with sub-Gaussian noise of any covariance, is the private one with another oracle.

    Parameters
    ----------
    solver : Solver
        One that asks for gradients: the descents and `NoisyGeneralFrankWolfe`.
    problem : Problem
        Its constants set the steps.
    ask : GradientOracle
        ``ask.gradient(theta)`` answers.
    n_iter : int
        Number of answers asked for.
    noise : float
        Bound on the standard deviation of the answers in any direction, the square root of the largest
        eigenvalue of their covariance; 0 for exact gradients. It shortens the steps of averaging solvers.

    Returns
    -------
    Vector
    """
    check_count("n_iter", n_iter)
    if not 0 <= noise < float("inf"):
        raise WrongValue(f"noise must be finite and not negative, got {noise!r}.")
    schedule: Any = _Schedule(problem, (_Stage(_Noise(noise), n_iter),))
    return solver.run(schedule, _OwnAnswers(ask))
