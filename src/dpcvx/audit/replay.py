"""Record a private run, replay it on a neighbouring data set with the answers frozen, and compare the two.

With the answers frozen, whatever still differs between the two runs depends on the records directly. A
private solver then asks the same questions in the same order, and the exact sums behind two answers differ by
no more than the sensitivity that the noise was made for. One pair of runs shows a violation, without any
statistics.

Replays begin at the rows that a plan is run on. Whatever a pipeline computed from records before is not seen
here: `check_pipeline` names such steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.data import (
    DifferenceSum,
    HasGramScores,
    HasLazyScores,
    ResidualBound,
    RowBounds,
    Sum,
    integer_bounds,
)
from dpcvx.losses import Loss
from dpcvx.plans import Oracle, Plan

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Lazy, Linear, Margins, Quantiser, SumOfLosses, Terms
    from dpcvx.noise import Generator
    from dpcvx.problem import Bounds

__all__ = ["RecordedQuestion", "RunTranscript", "discrepancies", "record", "replay", "share"]

Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class RecordedQuestion:
    """One call that reached the records, and the exact sum that came back."""

    kind: str  # name of the sum or of the call
    asked: tuple[Any, ...]  # its public arguments
    total: Any = None  # exact answer of the records, before noise. Private: never publish a transcript.
    sum: Sum[Any] | None = None  # the question itself; None for a call on followed margins
    # bound on one record's residual that the sensitivity of scores follows from
    bound: ResidualBound | None = None
    row: RowBounds | None = None  # integer bounds of the rows that were asked


@dataclass(frozen=True, eq=False)
class RunTranscript:
    """Record of a run: queries of the records, answers of the mechanisms, and the result."""

    questions: tuple[RecordedQuestion, ...]
    answers: tuple[Any, ...]
    theta: Vector


class _Recorder:
    """A data source that passes every call on and keeps a note of it.

    In a replay the records drawn are those of the earlier run, as far as they exist: the sample is a coin of
    the mechanism, and the sensitivity is for the same coins.
    """

    def __init__(
        self, source: DataSource, bounds: Bounds, earlier: tuple[RecordedQuestion, ...] | None
    ) -> None:
        self._source, self._earlier = source, earlier
        self.n, self.d, self.weight = source.n, source.d, getattr(source, "weight", 1)
        self.questions: list[RecordedQuestion] = []
        self._row = RowBounds(source.d, *integer_bounds(bounds, source.d))
        # The recorder has the optional abilities of its source, and no others.
        if isinstance(source, HasLazyScores):
            self.sparse, self.follow_lazily = source.sparse, self._follow_lazily
        if isinstance(source, HasGramScores):
            self.sparse, self.follow_products = source.sparse, self._follow_products

    def within(self, bounds: Bounds) -> _Recorder:
        self._source = self._source.within(bounds)
        return self

    def expect(self, bounds: Bounds) -> None:
        """Compare sums from now on with the sensitivity of rows inside these bounds."""
        self._row = RowBounds(self.d, *integer_bounds(bounds, self.d))

    def sum(self, question: Sum[Answer]) -> Answer:
        asked: Any = question
        if isinstance(asked, DifferenceSum):
            asked = replace(asked, batch=self._drawn(asked.batch))
        total: Answer = self._source.sum(asked)
        self.questions.append(
            RecordedQuestion(type(asked).__name__, _public(asked), total, asked, row=self._row)
        )
        return total

    def _drawn(self, batch: IntVector) -> IntVector:
        """The sample of the earlier run, as far as its records exist; without one the sample itself."""
        place = len(self.questions)
        earlier = None if self._earlier is None or place >= len(self._earlier) else self._earlier[place].sum
        return earlier.batch[earlier.batch < self.n] if isinstance(earlier, DifferenceSum) else batch

    def mapped(self, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector) -> _Recorder:
        units = tuple(np.ravel(center).tolist()), tuple(np.ravel(scale).tolist())
        public: tuple[Any, ...] = units
        if quantiser is not None:
            parts = (np.asarray(part).tobytes() for part in (quantiser.center, quantiser.scale))
            public = (quantiser.bounds, quantiser.intercept, quantiser.places, *parts, *units)
        self.questions.append(RecordedQuestion("mapped", public))
        self._source = self._source.mapped(quantiser, center, scale)  # type: ignore[attr-defined]
        self.d = self._source.d
        return self

    def objective(self, loss: Loss, outputs: int, z_max: float) -> SumOfLosses:
        self.questions.append(RecordedQuestion("objective", (loss, outputs, z_max)))
        return self._source.objective(loss, outputs, z_max)

    def follow(self, loss: Loss, outputs: int) -> Margins:
        self.questions.append(RecordedQuestion("follow", (loss, outputs)))
        return _RecordedMargins(self._source.follow(loss, outputs), self.questions, self._row)

    def _follow_products(self, loss: Loss) -> Linear:
        self.questions.append(RecordedQuestion("follow_products", (loss,)))
        linear = self._source.follow_products(loss)  # type: ignore[attr-defined]
        return _RecordedLinear(linear, self.questions, self._row)

    def _follow_lazily(self, loss: Loss, terms: Terms) -> Lazy:
        self.questions.append(RecordedQuestion("follow_lazily", (loss, terms)))
        lazy = self._source.follow_lazily(loss, terms)  # type: ignore[attr-defined]
        return _RecordedLazy(lazy, terms.bound, self.questions, self._row)


class _RecordedMoves:
    """Followed margins that pass every move on and keep a note of it."""

    def __init__(self, followed: Any, questions: list[RecordedQuestion], row: RowBounds) -> None:
        self._followed, self._questions, self._row = followed, questions, row

    def reset(self) -> None:
        self._questions.append(RecordedQuestion("reset", ()))
        self._followed.reset()

    def add(self, index: int, amount: int) -> None:
        self._questions.append(RecordedQuestion("add", (index, amount)))
        self._followed.add(index, amount)

    def _note(self, kind: str, asked: tuple[Any, ...], total: Any, bound: ResidualBound) -> None:
        self._questions.append(RecordedQuestion(kind, asked, total, bound=bound, row=self._row))


class _RecordedMargins(_RecordedMoves):
    """Margins that keep a note of their scores."""

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        total: IntVector = self._followed.scores(scale, bound)
        self._note("scores", (scale, bound), total.copy(), bound)
        return total


class _RecordedLinear(_RecordedMoves):
    """Scores of unclipped residuals that keep a note of the exact ones."""

    def scores(self, unit: float) -> list[Fraction]:
        exact: list[Fraction] = self._followed.scores(unit)
        return exact

    def unclipped(self, unit: float, bound: ResidualBound) -> Vector:
        self._note("unclipped", (unit, bound), np.array(self.scores(unit), dtype=object), bound)
        rounded: Vector = self._followed.unclipped(unit, bound)
        return rounded


class _RecordedLazy(_RecordedMoves):
    """Lazy scores that keep a note of the exact scores behind a draw."""

    def __init__(
        self, lazy: Lazy, bound: ResidualBound, questions: list[RecordedQuestion], row: RowBounds
    ) -> None:
        super().__init__(lazy, questions, row)
        self._bound = bound

    def scores(self, scale: float) -> list[Fraction]:
        exact: list[Fraction] = self._followed.scores(scale)
        return exact

    def advance(self, scale: float) -> None:
        self._followed.advance(scale)

    def draw(self, scale: float, rng: Generator) -> tuple[int, int]:
        self._note("draw", (scale,), np.array(self.scores(scale), dtype=object), self._bound)
        vertex: tuple[int, int] = self._followed.draw(scale, rng)
        return vertex


class _FrozenOracle(Oracle):
    """An oracle that hands out the answers of an earlier run where there are some.

    A linear term that a solver brings never reaches the source; it is noted here.
    """

    def __init__(
        self, plan: Plan, recorder: _Recorder, rng: Generator, frozen: tuple[Any, ...] | None
    ) -> None:
        super().__init__(plan, recorder, rng)
        self._recorder, self._frozen, self._questions = recorder, frozen, recorder.questions
        self._bounds_asked = chain.from_iterable(
            repeat(getattr(stage.mechanism, "problem", plan.problem).bounds, stage.n_calls)
            for stage in plan.stages
        )
        self.answers: list[Any] = []

    def ask(self, *public: Any, question: str | None = None) -> Any:
        if question == "minimiser" and public:
            self._questions.append(RecordedQuestion("linear", (public[0].tobytes(),)))
        if (bounds := next(self._bounds_asked, None)) is not None:
            self._recorder.expect(bounds)
        fresh = super().ask(*public, question=question)
        answer = fresh if self._frozen is None else self._frozen[len(self.answers)]
        self.answers.append(answer)
        return answer


def _run(plan: Plan, source: DataSource, rng: Generator, earlier: RunTranscript | None) -> RunTranscript:
    recorder = _Recorder(source, plan.problem.bounds, None if earlier is None else earlier.questions)
    frozen = None if earlier is None else earlier.answers
    oracle = _FrozenOracle(plan, recorder, rng, frozen)
    theta = plan.solver.run(plan, oracle)
    return RunTranscript(tuple(recorder.questions), tuple(oracle.answers), theta)


def record(plan: Plan, source: DataSource, rng: Generator) -> RunTranscript:
    """Run a plan and keep everything that was asked and answered."""
    return _run(plan, source, rng, None)


def replay(plan: Plan, source: DataSource, rng: Generator, transcript: RunTranscript) -> RunTranscript:
    """Run a plan on other records while the solver gets the answers of an earlier run.

    `plan`: the plan of the earlier run. `source`: the other records. `rng`: noise is drawn as usual, and not
    used. Samples of records are those of the earlier run, as far as their indices exist: under add/remove
    let the last record be the one that is missing. `transcript`: the earlier run.
    """
    return _run(plan, source, rng, transcript)


def discrepancies(plan: Plan, first: RunTranscript, second: RunTranscript) -> list[str]:
    """Say where a run and its replay on a neighbour break the privacy claim; empty if nowhere.

    The questions must be the same, in the same order, and the returned parameter the same to the last bit.
    Two exact sums may differ by what one record weighs (PRIVACY_MATH §11b): c R sqrt(K2) in the l2 norm for a
    gradient, or for a difference of gradients over the same sample; c R_inf K_inf in every entry for scores;
    for moments see `NoisyMoments` and `NoisySecondMoments`; with c = 2 under replace-one and 1 under
    add/remove.
    """
    found = []
    if len(first.questions) != len(second.questions):
        found.append(f"{len(first.questions)} questions against {len(second.questions)}")
    for place, (one, other) in enumerate(zip(first.questions, second.questions, strict=False)):
        if (one.kind, one.asked) != (other.kind, other.asked):
            found.append(
                f"question {place} differs: {one.kind} against {other.kind}, or its public arguments"
            )
        elif share(plan, one, other) > 1:
            found.append(f"question {place}, {one.kind}: the sums differ by more than the sensitivity")
    if not np.array_equal(first.theta, second.theta):
        found.append("the solver returns another parameter although the answers are the same")
    return found


def share(plan: Plan, one: RecordedQuestion, other: RecordedQuestion) -> float:
    """Distance between two exact sums over the sensitivity: at most 1 for neighbours, exactly.

    Computed in integers and rounded away from 1, so that a violation by one unit shows.
    """
    if one.total is None or other.total is None or one.row is None:
        return 0.0
    neighbours = plan.budget.neighbours
    if one.sum is not None:
        pairs = one.sum.distances(one.total, other.total, one.row, neighbours)
        return max(_ratio(distance, allowed) for distance, allowed in pairs)
    if one.bound is None:
        return 0.0
    squares = [(_exact(a) - _exact(b)) ** 2 for a, b in zip(one.total.flat, other.total.flat, strict=True)]
    return _ratio(max(squares), (neighbours.ball * one.bound.linf * one.row.k_inf) ** 2)


def _exact(value: Any) -> Any:
    """A lazy score is a rational number, any other sum an integer."""
    return value if isinstance(value, Fraction) else int(value)


def _ratio(distance: int, allowed: int) -> float:
    """Square root of the quotient of two squares, above 1 if and only if the first is larger."""
    ratio = math.sqrt(distance / allowed) if allowed else math.inf if distance else 0.0
    return max(ratio, math.nextafter(1.0, 2.0)) if distance > allowed else min(ratio, 1.0)


def _public(question: Any) -> tuple[Any, ...]:
    """Public fields of a sum, arrays as bytes; a sample of records is a coin and not among them."""
    values = (getattr(question, field.name) for field in fields(question) if field.name != "batch")
    return tuple(_plain(value) for value in values)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return value.tobytes() if isinstance(value, np.ndarray) else value
