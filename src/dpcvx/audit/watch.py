"""Watch the private answers of a run: what each would be without noise, and how large its noise is.

Every answer of a fit or a plan goes through `Answers.give`, every score of a search through `NoisyScore`, and
every answer of a query engine through its `PrivateSide`; all noise comes from the samplers of `dpcvx.noise`.
Under `watching` all of these are replaced, for this process: each question is asked three times, without
noise, with noise of one standard deviation on every number, and as usual. The ratio of the first two is all
that privacy depends on, so that nothing is taken from what a mechanism declares. Comparisons of an engine
have one bit as their answer: their scores are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.events import Event
from dpcvx.noise import SeededGenerator, exponential, gaussian
from dpcvx.plans import Answers, Oracle
from dpcvx.queries.private_side import PrivateSide
from dpcvx.queries.sparse_vector import AboveThreshold
from dpcvx.tuning import score

__all__ = ["WatchedAnswer", "WatchedRun", "epsilon_between", "mu_between", "range_between", "watching"]

SCORES: Any = score  # a module whose samplers are replaced


@dataclass(frozen=True, eq=False)
class WatchedAnswer:
    """One private answer. Private: it holds exact values of the records."""

    question: str  # its place in the plan and its public arguments, as text
    stage: int | None  # number of its stage of the plan; None before the fit
    # "gaussian", "laplace", "selection", "comparison", or "other" where noise is not added to the answer
    kind: str
    exact: Vector  # without noise; the log-weights of a selection; the score of a comparison
    # standard deviation of the noise on each number; scale of Laplace noise; sensitivity of a comparison
    deviations: Vector
    answer: Any  # as it was given
    numbers: Vector  # the answer as numbers, in the order of ``exact``; the item that was selected
    event: Event | None = None  # of its mechanism, where that is known


@dataclass(eq=False)
class WatchedRun:
    """All private answers of one run, in order."""

    answers: list[WatchedAnswer] = field(default_factory=list)


class _Samplers:
    """Samplers in place of the real ones: silent, or of one standard deviation, or as usual.

    `factor`: by which all real noise is multiplied: 1/2 for the control that must be found.
    """

    def __init__(self, factor: float = 1.0) -> None:
        self.mode, self.factor = "usual", factor
        self.weights: list[Vector] = []
        self.chosen: list[int] = []
        self._gaussian, self._select = gaussian.lattice_gaussian, exponential.select
        self._signed, self._laplace = exponential.select_signed, SCORES.lattice_laplace
        self.laplace = self.asking = False

    def lattice_gaussian(self, scale: int, size: int, rng: Any) -> Any:
        if self.mode == "usual":
            return self._gaussian(max(1, round(self.factor * scale)), size, rng)
        return np.full(size, scale if self.mode == "unit" else 0, dtype=np.int64)

    def lattice_laplace(self, scale: int, size: int, rng: Any) -> Any:
        self.laplace = True
        if self.mode == "usual":
            return self._laplace(max(1, round(self.factor * scale)), size, rng)
        return np.full(size, scale if self.mode == "unit" else 0, dtype=np.int64)

    def select(self, weights: Vector, rng: Any) -> int:
        return self._note(weights, self._select(weights / self.factor, rng))

    def select_signed(self, weights: Vector, rng: Any) -> tuple[int, int]:
        index, sign = self._signed(weights / self.factor, rng)
        self._note(np.concatenate([weights, -weights]), index + (sign < 0) * len(weights))
        return index, sign

    def _note(self, weights: Vector, chosen: int) -> int:
        self.weights.append(np.array(weights, dtype=np.float64))
        self.chosen.append(chosen)
        return chosen


@contextmanager
def watching(seed: int, frozen: WatchedRun | None = None, *, factor: float = 1.0) -> Iterator[WatchedRun]:
    """Watch the answers that are given inside; with ``frozen``, give those of an earlier run instead.

    `seed`: of noise and of other coins, such as samples of the records, which a replay must share.
    `factor`: of all noise, for controls. One run at a time: the samplers are replaced for the whole process.
    """
    run, samplers = WatchedRun(), _Samplers(factor)
    events: list[Event] = []  # of the mechanism whose answer an oracle is about to give
    score_of, mechanism_of = SCORES.NoisyScore.__call__, Oracle.next_mechanism
    compare_side = PrivateSide.above

    def ask(question: tuple[Any, ...], draw: Callable[[Any], Any], event: Event | None = None) -> Any:
        place, parts = len(run.answers), []
        for mode in ("silent", "unit", "usual"):
            samplers.mode, samplers.weights, samplers.chosen, samplers.laplace = mode, [], [], False
            coins = SeededGenerator(seed)
            coins.jump(place)
            samplers.asking = True
            try:
                parts.append(draw(coins))
            finally:
                samplers.asking = False
        samplers.mode = "usual"
        silent, unit, usual = parts
        if samplers.weights:
            kind, exact, deviations = "selection", samplers.weights[0], np.zeros(0)
            numbers = np.array([float(samplers.chosen[0])])
        else:
            exact, numbers = as_numbers(silent), as_numbers(usual)
            deviations = abs(as_numbers(unit) - exact)
            kind = "laplace" if samplers.laplace else "gaussian"
            if not deviations.size or not (deviations > 0).all():
                kind = "other"
        given = usual
        if frozen is not None and place < len(frozen.answers):
            given = frozen.answers[place].answer
        stage = question[0] if question and isinstance(question[0], int) else None
        found = WatchedAnswer(_text(question), stage, kind, exact, deviations, given, numbers, event)
        run.answers.append(found)
        return given

    def give(self: Answers, question: tuple[Any, ...], draw: Callable[[Any], Any]) -> Any:
        return ask(question, draw, events.pop() if events else None)

    def note(self: Oracle, question: str | None) -> Any:
        mechanism: Any = mechanism_of(self, question)
        events[:] = [mechanism.event]
        return mechanism

    def score_rows(self: Any, model: Any, X: Any, y: Any, rng: Any, *weights: Any) -> Any:
        if samplers.asking:
            return score_of(self, model, X, y, rng, *weights)
        return ask(("score",), lambda coins: score_of(self, model, X, y, coins, *weights), self.event)

    def ask_side(through: Any) -> Any:
        # The coins of the engine are those of `watching` if it was made with a seeded generator.
        def answer(self: PrivateSide, mechanism: Any) -> Any:
            return ask((type(mechanism).__name__,), lambda _: through(self, mechanism), mechanism.event)

        return answer

    def compare(self: PrivateSide, started: Any, checked: Any, level: float) -> bool:
        place, sensitivity = len(run.answers), np.array([AboveThreshold(1.0).sensitivity])
        heard: list[float] = []
        if frozen is not None and place < len(frozen.answers):
            given = bool(frozen.answers[place].answer)
            compare_side(self, _ScoreRecorder(heard), checked, level)  # type: ignore[arg-type]
        else:
            given = compare_side(self, _ScoreRecorder(heard, started), checked, level)  # type: ignore[arg-type]
        exact = np.array(heard)
        found = WatchedAnswer("comparison", None, "comparison", exact, sensitivity, given, exact)
        run.answers.append(found)
        return given

    replaced: list[tuple[Any, str, Any]] = [
        (Answers, "give", give),
        (Oracle, "next_mechanism", note),
        (SCORES.NoisyScore, "__call__", score_rows),
        (PrivateSide, "ask", ask_side(PrivateSide.ask)),
        (PrivateSide, "count", ask_side(PrivateSide.count)),
        (PrivateSide, "sum_bins", ask_side(PrivateSide.sum_bins)),
        (PrivateSide, "above", compare),
        (gaussian, "lattice_gaussian", samplers.lattice_gaussian),
        (exponential, "select", samplers.select),
        (exponential, "select_signed", samplers.select_signed),
        (SCORES, "lattice_gaussian", samplers.lattice_gaussian),
        (SCORES, "lattice_laplace", samplers.lattice_laplace),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in replaced]
    try:
        for place, name, new in replaced:
            setattr(place, name, new)
        yield run
    finally:
        for place, name, old in before:
            setattr(place, name, old)


class _ScoreRecorder:
    """A run of comparisons that writes down each score, and compares it if there is a real run behind."""

    def __init__(self, heard: list[float], behind: Any = None) -> None:
        self._heard, self._behind = heard, behind

    def above(self, score: float, rng: Any) -> bool:
        self._heard.append(score)
        return False if self._behind is None else bool(self._behind.above(score, rng))


def as_numbers(answer: Any) -> Vector:
    """Return an answer as an array of the numbers that have noise of their own."""
    if hasattr(answer, "hessian"):  # symmetric matrices, whose mirrored entries share their noise
        matrices = [each for each in (answer.hessian, answer.meat) if each is not None]
        return np.concatenate([each[np.triu_indices(len(each))] for each in matrices])
    if isinstance(answer, tuple) and answer and all(hasattr(part, "attributes") for part in answer):
        return np.concatenate([np.ravel(part.values) for part in answer])  # marginals
    try:
        return np.asarray(answer, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        return np.zeros(0)


def mu_between(one: WatchedAnswer, other: WatchedAnswer) -> float:
    """Return mu of a Gaussian answer on two data sets: the distance of exact values over their noise."""
    if one.exact.shape != other.exact.shape:
        return math.inf
    deviations = np.maximum(one.deviations, other.deviations)
    smaller = np.minimum(one.deviations, other.deviations)
    if not np.allclose(deviations, smaller, rtol=1e-9):
        return math.inf  # the size of the noise depends on the records
    return float(np.linalg.norm((one.exact - other.exact) / smaller))


def epsilon_between(one: WatchedAnswer, other: WatchedAnswer) -> float:
    """Return epsilon of an answer with Laplace noise on two data sets."""
    if not np.allclose(one.deviations, other.deviations, rtol=1e-9):
        return math.inf  # the size of the noise depends on the records
    return float(np.abs((one.exact - other.exact) / one.deviations).sum())


def range_between(one: WatchedAnswer, other: WatchedAnswer) -> float:
    """Return the range of the log-ratios of a selection's weights on two data sets."""
    return float(np.ptp(one.exact - other.exact)) if one.exact.shape == other.exact.shape else math.inf


def _text(question: tuple[Any, ...]) -> str:
    from dpcvx.plans.checkpoint import digest, encode

    try:
        return digest(encode(question))
    except Exception:
        return repr(question)
