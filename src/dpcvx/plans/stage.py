"""One stage of a plan: a private question, the number of times it is asked, and how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpcvx.events import Compose, to_plain
from dpcvx.mechanisms import Mechanism
from dpcvx.problem import Problem
from dpcvx.words import duration, show_fields

__all__ = ["Stage", "running_time", "time_in_words"]

# Seconds on one core of an ordinary machine; measured on a server's, right within a factor of 2 or so there.
ANSWER = 2e-4  # a private answer, however few the records
SLOPE = 5e-8  # the slope of one score of one record
CELL = 2e-10  # a stored cell that a gradient reads, 16-bit integers in rows
NONZERO = 4e-9  # the same in compressed rows
LAZY = 1e-4  # a vertex by lazy scores over compressed rows; measured on text with 75 and 400 cells per row


@dataclass(frozen=True)
class Stage:
    """A private question and the number of times it will be asked."""

    mechanism: Mechanism
    n_calls: int

    @property
    def label(self) -> str:
        """Name of the question."""
        return getattr(self.mechanism, "label", type(self.mechanism).__name__)

    @property
    def price(self) -> str:
        """Privacy event of one call, in words."""
        event = self.mechanism.event
        parts = event.events if isinstance(event, Compose) else (event,)
        return " and ".join(f"{type(part).__name__}({show_fields(part)})" for part in parts)

    @property
    def description(self) -> dict[str, Any]:
        """Public description of the question, as privacy statements have it."""
        return {
            "question": type(self.mechanism).__name__,
            "count": self.n_calls,
            **to_plain(self.mechanism.event),
            "sensitivity": self.mechanism.sensitivity,
            "noise": self.mechanism.noise,
            **({"answers": answers} if (answers := getattr(self.mechanism, "answers", ())) else {}),
        }

    def to_plain(self) -> dict[str, Any]:
        """Return the stage as plain types that JSON can hold."""
        mechanism = self.mechanism
        return {
            "question": type(mechanism).__name__,
            "count": self.n_calls,
            "event": type(mechanism.event).__name__,
            **asdict(mechanism.event),
            "sensitivity": mechanism.sensitivity,
            "noise": mechanism.noise,
        }


def running_time(stages: Sequence[Stage], problem: Problem, density: float = 1.0) -> float:
    """Seconds that the answers of some stages take on one core, the records being loaded.

    Parameters
    ----------
    stages : sequence of Stage
    problem : Problem
    density : float
        Share of cells that are not 0, declared public, where records are compressed; with 0 the least time.

    Returns
    -------
    float
        A rough estimate from public sizes alone; an upper bound where minimisers or vertices are asked for.
    """
    total, d = 0.0, problem.d
    for stage in stages:
        if density < 1 and getattr(stage.mechanism, "may_be_lazy", False):
            total += stage.n_calls * LAZY
            continue
        each = SLOPE + stage.mechanism.traits.cells(d) * (CELL if density == 1 else density * NONZERO)
        total += stage.n_calls * (ANSWER + stage.mechanism.evaluations * problem.outputs * each)
    return total


def time_in_words(stages: Sequence[Stage], seconds: float) -> str:
    """Running time of some stages to one digit; "at most" where a question may stop sooner."""
    sooner = seconds >= 1 and any(stage.mechanism.traits.stops_sooner for stage in stages)
    return f"{'at most ' * sooner}{duration(seconds)}"
