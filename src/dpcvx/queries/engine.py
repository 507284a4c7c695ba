"""The query engine: any number of convex-minimisation and linear queries on one budget."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.accounting import (
    RDP,
    Accountant,
    Budget,
    Tight,
    spendable,
)
from dpcvx.arrays import Vector
from dpcvx.errors import BudgetExceeded, Incompatible, KeyReused
from dpcvx.events import ApproxDP
from dpcvx.noise.gumbel import selection_failure
from dpcvx.plans import Solver
from dpcvx.queries.answer import Answer, Coefficient
from dpcvx.queries.budget_split import (
    FALSE_ALARM,
    BudgetSplit,
    choose_method,
    split_budget,
)
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression
from dpcvx.queries.engine_statement import engine_statement
from dpcvx.queries.error_bars import (
    CONFIDENCE,
    PropagatedNoise,
    half_widths,
    in_units,
    propagate,
    reach,
)
from dpcvx.queries.histogram import Counts, Histogram
from dpcvx.queries.marginals import Measurement, NoisyMarginals, marginal_order
from dpcvx.queries.measuring import MeasuredAnswer, Measurer
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram, PublicAnswer, WorstQuery
from dpcvx.queries.multiplicative_weights import agree, log_factor, step_size
from dpcvx.queries.notes import note
from dpcvx.queries.passes import passes_over
from dpcvx.queries.payment import Payment, open_account
from dpcvx.queries.private_side import PrivateSide, number_of_rows
from dpcvx.queries.query import Query, require_query
from dpcvx.queries.schema import Schema
from dpcvx.queries.self_check import (
    FAMILIES,
    RANK,
    Check,
    family,
)
from dpcvx.queries.sparse_vector import AboveThreshold, ComparisonRun
from dpcvx.queries.synthetic import synthetic_table
from dpcvx.queries.transcript import (
    EngineTranscript,
    MemoryTranscript,
    arrays,
    measurements,
    packed,
    packed_measurements,
)
from dpcvx.queries.universe import Universe

if TYPE_CHECKING:
    from dpcvx.ledger import Ledger
    from dpcvx.noise import Generator
    from dpcvx.plans.statement import PrivacyStatement

__all__ = ["QueryEngine"]

MEANS = b"means"  # begins a lesson that consists of measured means


class QueryEngine:
    """Answers queries about a private table from a public histogram that learns where it is wrong.

    Algorithm: [U15] Figure 3. The histogram answers; sparse vector compares its answer with the records;
    where the error is above a level, a private solver measures anew and the histogram learns from it.
    Privacy: everything that may ever be asked is one event, `BudgetSplit.event`, fixed from public sizes and
    charged before a record is read. Answers from the histogram are post-processing; a run of comparisons is
    PureDP however many answers are below; a measurement is the solver's own event. The claim is the budget,
    never less because less was used.
    Utility: after T updates no query errs by more than the level of [U15] Theorem 3.8; with a warm start the
    histogram is good from the first query on, and the comparisons are a safety net.
    Deviations: PRIVACY_MATH §9: sensitivity of an error by the range of its terms, corrected sign and scale
    of the update, fresh thresholds, exact accounting; a warm start; whole noisy gradients as measurements.

    Parameters
    ----------
    schema : Schema
        Public declaration of the table.
    table : pandas / polars / Arrow table, NumPy structured array, or mapping from name to column
        The records; one row is one person.
    budget : Budget
        The guarantee of all answers together, under replace-one.
    method : str
        "warm", "histogram", "composition", "multiplicative_weights" (the paper's cold start), "offline", or
        "auto", which chooses by public sizes.
    n_queries : int
        Number of queries that are expected. More may be asked of any method but composition.
    oracle : Solver, optional
        Solver of single queries; by default the better one of gradient and mirror descent.
    backend : {"auto", "torch"}
        Where all cells are kept: "torch" is a GPU, if there is one. Sums over records are the same integers.
    ledger : Ledger, path or URL, optional
        Where the budget is charged and the transcript kept, so that a new start continues.
    account : str, optional
        Name of the account; given if and only if a ledger is.
    rng : Generator, optional
        Source of randomness; None is cryptographic, a ``SeededGenerator`` makes the answers "not private".
    """

    def __init__(
        self,
        schema: Schema,
        table: Any,
        budget: Budget,
        *,
        method: str = "auto",
        n_queries: int = 5000,
        oracle: Solver | None = None,
        backend: str = "auto",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: str | None = None,
        rng: Generator | None = None,
    ) -> None:
        if not budget.neighbours.replaces:
            raise Incompatible(
                "The engine divides by the number of records, which is public under 'replace' only."
            )
        if isinstance(n_queries, bool) or not isinstance(n_queries, int) or n_queries < 1:
            raise ValueError(f"n_queries must be a positive integer, got {n_queries!r}.")
        self.schema, self.budget = schema, budget
        self.universe = Universe(schema)
        self._passes = passes_over(self.universe.shape, backend)
        self.n = number_of_rows(table)
        if self.n < 1:
            raise ValueError("The table has no rows.")
        self.n_queries = n_queries
        if rng is None:
            from dpcvx.noise import SecureGenerator

            rng = SecureGenerator()
        self.private = rng.private
        self._lock = threading.RLock()
        self._account = open_account(ledger, account, private=self.private)
        self._accountant: Accountant = Tight() if oracle is None else RDP()
        chosen = choose_method(self.universe, n_queries) if method == "auto" else method
        payment = None if self._account is None else Payment(self._account, self._facts(chosen))
        planned = None if payment is None else payment.planned
        self.budget_split: BudgetSplit = planned or split_budget(
            chosen, self.universe, self.n, n_queries, budget, self._accountant
        )
        self._start = self._first_mechanism()
        self._measurer = self._single_query_measurer(oracle)
        if self._sampler_failure > self._reserve:
            raise Incompatible("This delta is too small for noise of finite precision: use a larger one.")
        self._transcript: EngineTranscript = MemoryTranscript()
        if payment is not None:
            # A solver of the caller's stands for a Gaussian release by its Rényi divergence only.
            whole = ApproxDP(budget.epsilon, spendable(budget).delta)
            event = self.budget_split.event if oracle is None else whole
            self._transcript = payment.pay(
                self.budget_split, event, failure=self._sampler_failure, budget=budget
            )
        self._private_side = PrivateSide(Counts.of(self.universe, table, self._passes), rng)
        self._run: ComparisonRun | None = None
        self._runs = self._updates = 0
        self._measured: list[tuple[Measurement, ...]] = []
        self._resume()

    @property
    def histogram(self) -> Histogram:
        """The public distribution that queries are answered from."""
        return self._histogram

    @property
    def method(self) -> str:
        """The method in use."""
        return self.budget_split.method

    @property
    def n_updates(self) -> int:
        """Number of new measurements so far."""
        return self._updates

    @property
    def remaining(self) -> float:
        """Epsilon, at the budget's delta, of the comparisons and measurements that are still to be had."""
        runs, oracles = self.budget_split.updates - self._runs, self.budget_split.updates - self._updates
        if self.budget_split.run or self.budget_split.selection:  # nothing else leads to a measurement
            oracles = min(oracles, runs + (self._run is not None))
        else:
            runs = 0
        if max(runs, oracles) <= 0:
            return 0.0
        event = self.budget_split.left(runs, oracles)
        return min(self.budget.epsilon, Tight().epsilon(event, spendable(self.budget).delta))

    @property
    def comparisons(self) -> tuple[int, int]:
        """Runs of comparisons that are left, an open one included, and how many there were at first."""
        total = self.budget_split.updates if self.budget_split.run else 0
        return (total - self._runs + (self._run is not None) if total else 0), total

    def ask(self, query: Query, key: str | None = None) -> Answer:
        """Answer one query.

        Parameters
        ----------
        query : Query
            `Regression`, `Count`, `Mean` or `Marginal`.
        key : str, optional
            Makes retries safe: the same key returns the same answer, and costs nothing.

        Raises
        ------
        ValueError
            If the query does not fit the schema.
        BudgetExceeded
            If the method is composition and its queries are used up.
        """
        question = require_query(query).compile(self.schema, self.n)
        with self._lock:
            if key is not None and (kept := self._transcript.answer(key)) is not None:
                answer = Answer.from_json(json.loads(kept))
                if answer.query != query.to_json():
                    raise KeyReused(f"Key {key!r} was used for another query: use a new key.")
                return answer
            answer = self._answer(query, question)
            if key is not None:
                self._transcript.append("answer", key, json.dumps(answer.to_json()).encode())
            return answer

    def ask_many(self, queries: Sequence[Query]) -> tuple[Answer, ...]:
        """Answer a known family of queries: the histogram first learns from those that it answers worst.

        With method "offline" the exponential mechanism selects them, eta-bounded-range each, in place of
        comparisons; that part of the budget is used by the first call. Other methods answer one by one.

        Parameters
        ----------
        queries : sequence of Query
        """
        questions = [require_query(query).compile(self.schema, self.n) for query in queries]
        if self.budget_split.updates * len(questions) * selection_failure() > 0.25 * self._reserve:
            raise Incompatible(f"{len(questions)} queries are too many to select among at this delta.")
        with self._lock:
            while self.budget_split.selection and self._runs < self.budget_split.updates and questions:
                self._improve(questions)
            return tuple(
                self._answer(query, question) for query, question in zip(queries, questions, strict=True)
            )

    def synthetic(self, rows: int, rng: Generator | None = None) -> dict[str, Any]:
        """Return a table of invented records, drawn from the public histogram, as columns by name.

        Parameters
        ----------
        rows : int
        rng : Generator, optional
            None is cryptographic; nothing about the records depends on it.
        """
        if self.method == "composition":
            raise Incompatible("Composition measures each query by itself and has no histogram to draw from.")
        if rng is None:
            from dpcvx.noise import SecureGenerator

            rng = SecureGenerator()
        return synthetic_table(self._histogram, rows, rng)

    def statement(self) -> PrivacyStatement:
        """Return what is promised about all answers together, in words and as JSON."""
        return engine_statement(
            self.budget_split,
            self.budget,
            self._accountant,
            self.universe,
            self.n,
            first=type(self._start).__name__,
            failure=self._sampler_failure,
            account=None if self._account is None else self._account.name,
            private=self.private,
        )

    def _facts(self, method: str) -> dict[str, Any]:
        """Public facts by which an engine is known again."""
        return {
            "schema": self.schema.to_dict(),
            "n": self.n,
            "n_queries": self.n_queries,
            "budget": [self.budget.epsilon, self.budget.delta],
            "method": method,
            "accountant": type(self._accountant).__name__,
        }

    def _first_mechanism(self) -> NoisyMarginals | NoisyHistogram | None:
        if self.budget_split.start == 0:
            return None
        if self.method == "histogram":
            return NoisyHistogram(self.universe, self.n, self.budget_split.start)
        shape, noise = self.universe.shape, self.budget_split.start
        return NoisyMarginals(shape, self.n, noise, marginal_order(shape, self.n, noise))

    def _single_query_measurer(self, solver: Solver | None) -> Measurer | None:
        """The measurements may fail to sample by half of the samplers' share of delta, all together."""
        if self.budget_split.oracle == 0:
            return None
        # A plan may fail by a thousandth of its delta over 1 + e^0 at least.
        delta = self.budget.delta / (1 + math.exp(min(self.budget.epsilon, 700.0)))
        return Measurer(self.n, self.budget_split.oracle, delta / self.budget_split.updates, solver)

    @property
    def _sampler_failure(self) -> float:
        """Total variation of all noise: the first releases', and as much as the rest may fail by.

        Measurements may fail by half of the reserve (`Measurer`) and selections by a quarter; comparisons
        draw from a law that is exact up to e^-128.
        """
        own = 0.0 if self._start is None else self._start.failure
        own += sum(NoisyErrors((), 1, noise).failure for noise in self.budget_split.checks)
        return own + 0.75 * self._reserve

    @property
    def _reserve(self) -> float:
        """What samplers may fail by in all: their share of delta over 1 + e^epsilon."""
        share = self.budget.delta - spendable(self.budget).delta
        return share / (1 + math.exp(min(self.budget.epsilon, 700.0)))

    def _resume(self) -> None:
        """Continue from the transcript, or make the first releases and write them down."""
        entries = self._transcript.entries()
        found = {entry.kind: entry.content for entry in entries if entry.kind in ("start", "check")}
        if "start" not in found:
            found["start"] = self._release_start()
            self._transcript.append("start", "", found["start"])
        self._base, self._warm = self._read_start(found["start"])
        self._histogram = self._base
        if "check" not in found:
            found["check"] = self._release_checks()
            self._transcript.append("check", "", found["check"])
        self._checks = self._read_checks(found["check"])
        for entry in entries:
            if entry.kind == "run":
                self._runs += 1
            elif entry.kind == "update":
                self._learn(entry.content)

    def _release_start(self) -> bytes:
        if self._start is None:
            return b""
        released = self._private_side.ask(self._start)
        if isinstance(self._start, NoisyHistogram):
            return packed(shares=released)
        return packed_measurements(released)

    def _read_start(self, content: bytes) -> tuple[Histogram, tuple[Measurement, ...]]:
        if self._start is None:
            return Histogram(self.universe, passes=self._passes), ()
        if isinstance(self._start, NoisyHistogram):
            from dpcvx.domains import Simplex

            nearest = Simplex().project(arrays(content)["shares"])
            return Histogram(self.universe, np.maximum(nearest, 0.0), passes=self._passes), ()
        from dpcvx.queries.maximum_entropy import fit

        released = measurements(content)
        return fit(self.universe, released, passes=self._passes), released

    def _release_checks(self) -> bytes:
        values = []
        for name, noise in zip(FAMILIES, self.budget_split.checks, strict=False):
            answers = [self._checked(question) for question in family(name, self.schema, self.n)]
            around = tuple(self._around(checked)[0] for checked in answers)
            values.append(self._private_side.ask(NoisyErrors(around, RANK, noise)))
        return packed(values=np.array(values))

    def _read_checks(self, content: bytes) -> dict[str, Check]:
        values = arrays(content)["values"].tolist()
        named = zip(FAMILIES, values, self.budget_split.checks, strict=False)
        return {name: Check(value, noise) for name, value, noise in named}

    def _open_run(self) -> ComparisonRun | None:
        """The run that goes on, or else the next one, noted before its first comparison and not earlier."""
        if self._run is None and self.budget_split.run and self._runs < self.budget_split.updates:
            self._note_run()
            self._run = self._private_side.start(AboveThreshold(self.budget_split.run))
        return self._run

    def _note_run(self) -> None:
        self._transcript.append("run", str(self._runs))
        self._runs += 1

    @property
    def _level(self) -> float:
        """Error, in units of its sensitivity, that the noise of a run hides."""
        return AboveThreshold(self.budget_split.run).distance(FALSE_ALARM / self.n_queries)

    def _marginal(self, question: CompiledQuery) -> Vector:
        return self._histogram.marginal(question.attributes).ravel()

    def _checked(self, question: CompiledQuery) -> PublicAnswer:
        return PublicAnswer(question, question.answer(self._marginal(question)))

    def _noise(self, checked: PublicAnswer) -> PropagatedNoise:
        """What the noise of the first release does to an answer."""
        weights, deviation = self._marginal(checked.question), 0.0
        if isinstance(self._start, NoisyHistogram):
            deviation = self._start.noise * math.sqrt(self.universe.n_cells / len(weights))
        return propagate(checked.question, weights, checked.theta, self._warm, deviation)

    def _around(self, checked: PublicAnswer) -> tuple[PublicAnswer, float]:
        """What the error of an answer is measured by, and the least part of it that this shows."""
        question, theta = checked.question, checked.theta
        if not isinstance(question, CompiledRegression) or not isinstance(self._start, NoisyMarginals):
            return checked, 1.0
        part = reach(question, self._noise(checked))
        return PublicAnswer(question.near(theta, part), theta), part

    def _answer(self, query: Query, question: CompiledQuery) -> Answer:
        if self.method == "composition":
            if self._updates == self.budget_split.updates:
                raise BudgetExceeded(self._measuring.budget.epsilon, 0.0)
            return self._measured_answer(query, question, None)
        checked = self._checked(question)
        around, part = self._around(checked)
        run = self._open_run()
        compared = run is not None
        if run is not None and self._private_side.above(run, around, self._level):
            self._run = None
            if self._updates < self.budget_split.updates:
                return self._measured_answer(query, question, checked.theta)
            compared = False
        unit = around.question.range(around.theta) / self.n
        guarantee = question.scale
        if compared:
            distance = self._level + AboveThreshold(self.budget_split.run).distance(1 - CONFIDENCE)
            guarantee = min(guarantee, distance * unit / part)
        check = self._checks.get("regressions" if isinstance(question, CompiledRegression) else "shares")
        bound = guarantee if check is None else min(question.scale, check.bound * unit)
        bounds = bound, guarantee
        return self._finished(query, checked, self._noise(checked), "histogram", bounds, compared=compared)

    def _finished(
        self,
        query: Query,
        checked: PublicAnswer,
        noise: PropagatedNoise,
        branch: str,
        bounds: tuple[float, float],
        *,
        compared: bool,
    ) -> Answer:
        question, theta = checked.question, checked.theta
        weights = self._marginal(question)
        half = half_widths(question, weights, theta, noise, bounds[0])
        errors = [in_units(question, weights, theta, each) for each in (noise.error, *bounds)]
        numbers = (question.reported(each) for each in (theta, theta - half, theta + half))
        return Answer(
            query=query.to_json(),
            coefficients=tuple(
                Coefficient(name, float(estimate), float(low), float(high))
                for name, estimate, low, high in zip(question.names, *numbers, strict=True)
            ),
            branch=branch,
            error=errors[0],
            error_bound=errors[1],
            confidence=CONFIDENCE,
            guarantee=errors[2],
            checked=compared,
            remaining=self.remaining,
            private=self.private,
            comparable=self.comparisons[1] > 0,
            note=note(query, self.schema),
        )

    @property
    def _measuring(self) -> Measurer:
        if self._measurer is None:
            raise Incompatible(f"Method {self.method!r} measures nothing anew.")
        return self._measurer

    def _measured_answer(self, query: Query, question: CompiledQuery, theta: Vector | None) -> Answer:
        """Measure anew, and let the histogram learn if it answered theta."""
        measured = self._measuring.measure(question, self._private_side)
        self._note_update(b"" if theta is None else self._lesson(question, theta, measured))
        noise = PropagatedNoise(measured.error, np.zeros(len(question.names)))
        bounds = measured.bound, min(question.scale, measured.error / (1 - CONFIDENCE))
        return self._finished(
            query, PublicAnswer(question, measured.theta), noise, "oracle", bounds, compared=True
        )

    def _lesson(self, question: CompiledQuery, theta: Vector, measured: MeasuredAnswer) -> bytes:
        """What the histogram learns: all that was measured, or where that is no mean the certificate."""
        if measured.group and self.method != "multiplicative_weights":
            return MEANS + packed_measurements(measured.group)
        step = step_size(self.universe.n_cells, self.budget_split.updates)
        factor = log_factor(question, theta, measured.theta, step=step)
        return packed(attributes=np.array(question.attributes), factor=factor)

    def _note_update(self, lesson: bytes) -> None:
        self._transcript.append("update", str(self._updates), lesson)
        self._learn(lesson)

    def _learn(self, lesson: bytes) -> None:
        self._updates += 1
        if lesson.startswith(MEANS):
            self._measured.append(measurements(lesson[len(MEANS) :]))
            self._histogram = agree(self._base, self._measured)
        elif lesson:
            stored = arrays(lesson)
            where = tuple(stored["attributes"].tolist())
            self._histogram = self._histogram.reweight(where, stored["factor"])

    def _improve(self, questions: Sequence[CompiledQuery]) -> None:
        """One round of the offline variant: select the worst question, measure it, learn."""
        self._note_run()
        checked = tuple(self._checked(question) for question in questions)
        worst = checked[self._private_side.ask(WorstQuery(checked, self.n, self.budget_split.selection))]
        measured = self._measuring.measure(worst.question, self._private_side)
        self._note_update(self._lesson(worst.question, worst.theta, measured))
