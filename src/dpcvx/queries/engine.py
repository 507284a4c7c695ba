"""The query engine: any number of convex-minimisation and linear queries on one budget."""

from __future__ import annotations

import json
import math
import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpcvx.accounting import RDP, Accountant, Budget, Tight, spendable, warn_of_delta
from dpcvx.arrays import Vector
from dpcvx.errors import (
    BudgetExceeded,
    Incompatible,
    KeyReused,
    UnrecognisedDataWarning,
    WrongType,
    WrongValue,
)
from dpcvx.events import ApproxDP
from dpcvx.plans import Solver, open_account
from dpcvx.queries.answer import Answer, reading_note
from dpcvx.queries.answer_intervals import (
    coefficients,
    cut_by_set,
    expected_error,
    interval_argument,
    without_hidden,
)
from dpcvx.queries.bin_means import with_bin_means
from dpcvx.queries.budget_split import (
    BIN_MEANS,
    CHECK,
    BudgetSplit,
    check_choice,
    choose_method,
    split_budget,
)
from dpcvx.queries.chosen_pairs import EACH
from dpcvx.queries.comparison_runs import Asker, ComparisonRuns
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression, Query
from dpcvx.queries.engine_plan import DECLARED, DIFFERENT_IDS, EXPECTED, EnginePlan, engine_facts
from dpcvx.queries.engine_statement import engine_statement
from dpcvx.queries.error_bars import CONFIDENCE, Bound, PropagatedNoise, at_edge, in_units
from dpcvx.queries.histogram import Counts, Histogram, check_units
from dpcvx.queries.legend import legend_of
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.measuring import MeasuredAnswer, Measurer
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram, PublicAnswer, WorstQuery
from dpcvx.queries.number_errors import bin_errors
from dpcvx.queries.passes import passes_over
from dpcvx.queries.payment import Payment
from dpcvx.queries.private_side import PrivateSide
from dpcvx.queries.public_side import PublicSide, released_start
from dpcvx.queries.query import require_query, stored_query
from dpcvx.queries.schema import Schema
from dpcvx.queries.self_check import FAMILIES, RANK, Check, check_queries
from dpcvx.queries.synthetic import synthetic_table
from dpcvx.queries.table_check import NOT_PAID, objection_to_check, read_counts
from dpcvx.queries.transcript import (
    UNCHANGED,
    EngineTranscript,
    MemoryTranscript,
    Recorder,
    TranscriptEntry,
    arrays,
    pack,
    pack_measurements,
)
from dpcvx.queries.units import find_units, number_of_rows
from dpcvx.queries.universe import Universe, require_columns
from dpcvx.queries.wide_regression import WideRegression
from dpcvx.words import is_number, quantity, show

if TYPE_CHECKING:
    from dpcvx.estimators import DataCheck
    from dpcvx.ledger import Ledger
    from dpcvx.noise import Generator
    from dpcvx.plans.statement import PrivacyStatement

__all__ = ["QueryEngine"]

FIRST = ("start", "bins", "check", "counts")  # entries of a transcript that are releases of the start


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
        The records; one row is one person, unless ``person`` or ``groups`` says whose each row is.
    budget : Budget
        The guarantee of all answers together, under replace-one.
    person : str, optional
        Column with the id of each row's person. All rows of a person are then protected together and share
        the weight of one; the number of rows is private.
    groups : array-like, optional
        These ids, in place of a column.
    persons : int, optional
        Number of persons, if it is known beforehand; by default the number of different ids, which is then
        public. A person without rows counts as one without a value in any column.
    method : str
        "warm", "chosen_pairs" (measures few pairs of attributes, chosen by the exponential mechanism, in
        place of all), "histogram", "composition", "multiplicative_weights" (the paper's cold start),
        "offline", or "auto", which chooses by public sizes, and never "chosen_pairs".
    n_queries : int
        Number of queries that are expected. More may be asked of any method but composition.
    oracle : Solver, optional
        Solver of single queries; by default the better one of gradient and mirror descent.
    backend : {"auto", "torch"}
        Where all cells are kept: "torch" is a GPU, if there is one. Sums over records are the same integers.
    check : float
        Share of the budget for noisy counts of recognised cells, `data_check`, which show wrong columns and
        misspelt levels; 0 asks nothing. An engine that continues has what it was paid for.
    bin_means : float
        Share of the budget for noisy means of numbers inside their bins, which answers then use in place of
        midpoints; 0 measures none. Bins with declared values need none.
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
        person: str | None = None,
        groups: Any = None,
        persons: int | None = None,
        method: str = "auto",
        n_queries: int = EXPECTED,
        oracle: Solver | None = None,
        backend: str = "auto",
        check: float = CHECK,
        bin_means: float = BIN_MEANS,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: str | None = None,
        rng: Generator | None = None,
    ) -> None:
        if not budget.neighbours.replaces:
            raise Incompatible(
                "The engine divides by the number of records, which is public under 'replace' only."
            )
        if isinstance(n_queries, bool) or not isinstance(n_queries, int) or n_queries < 1:
            raise WrongValue(f"n_queries must be a positive integer, got {n_queries!r}.")
        if check != 0 and not is_number(check, 0, 1):
            raise WrongValue(f"check must be 0, or a share of the budget below 1, got {show(check)}.")
        if bin_means != 0 and not is_number(bin_means, 0, 1 - check):
            raise WrongValue(
                f"bin_means must be 0, or a share of the budget below {1 - check:g}, got {show(bin_means)}."
            )
        units = find_units(schema, table, budget, person=person, groups=groups, persons=persons)
        require_columns(schema, table)
        if units is not None:
            budget = replace(budget, unit=units.neighbours.unit, weight=units.neighbours.weight)
        self.schema, self.budget, self._neighbours = schema, budget, budget.neighbours
        self.universe = Universe(schema)
        if method == "chosen_pairs":
            check_choice(self.universe, units is not None)
        check_units(self.universe, units is not None)
        self._passes = passes_over(self.universe.shape, backend)
        self.n = number_of_rows(table) if units is None else units.n
        if self.n < 1:
            raise WrongValue("The table has no rows.")
        self._unit_facts = {} if units is None else units.facts
        self.n_queries = n_queries
        if rng is None:
            from dpcvx.noise import SecureGenerator

            rng = SecureGenerator()
        self.private = rng.private
        self._lock = threading.RLock()
        self._account = open_account(ledger, account, private=self.private)
        self._accountant: Accountant = Tight() if oracle is None else RDP()
        chosen = choose_method(self.universe, n_queries) if method == "auto" else method
        facts = engine_facts(
            self.universe,
            self.n,
            n_queries,
            budget,
            method=chosen,
            accountant=type(self._accountant).__name__,
            check=check,
            bin_means=bin_means,
            persons=None if units is None else DIFFERENT_IDS if persons is None else DECLARED,
        )
        payment = None if self._account is None else Payment(self._account, facts)
        planned = None if payment is None else payment.paid_split
        self.budget_split: BudgetSplit = planned or split_budget(
            chosen,
            self.universe,
            self.n,
            n_queries,
            budget,
            self._accountant,
            check=check,
            bin_means=bin_means,
        )
        # Why there is no check, if there is none.
        self._unchecked = objection_to_check(self.universe, self.n, budget, check) or NOT_PAID
        self.plan = EnginePlan(
            self.universe, self.n, n_queries, budget, self.budget_split, self._accountant, oracle
        )
        self._counts, self._measurer = self.plan.counts, self.plan.measurer
        self.price = self.plan.price
        self.price.check_samplers()
        self.price.check_budget()
        self._transcript: EngineTranscript = MemoryTranscript()
        warn_of_delta(budget.delta, self.n, self._neighbours.noun, stacklevel=2)
        if payment is not None:
            # A solver of the caller's stands for a Gaussian release by its Rényi divergence only.
            whole = ApproxDP(budget.epsilon, spendable(budget).delta)
            price = self.price if oracle is None else replace(self.price, event=whole, accountant=Tight())
            price.check_budget()
            self._transcript = payment.pay(self.budget_split, price)
        self._private_side = PrivateSide(Counts.of(self.universe, table, self._passes, units), rng)
        self._runs = ComparisonRuns(self.plan, self._private_side, self._transcript)
        self._resume()
        if self.data_check is not None and (found := self.data_check.warning):
            warnings.warn(
                f"{found} A level that collects all other values on purpose is no mistake; "
                "print(engine.data_check) shows all counts.",
                UnrecognisedDataWarning,
                stacklevel=2,
            )

    def __reduce__(self) -> NoReturn:
        raise WrongType(
            "A QueryEngine cannot be copied or pickled: the copy would have the whole budget again. "
            "Share one engine, which threads may use together, or give it a ledger and continue from there."
        )

    @property
    def histogram(self) -> Histogram | LocalModels:
        """The public distribution that queries are answered from."""
        return self._public_side.histogram

    @property
    def method(self) -> str:
        """The method in use."""
        return self.budget_split.method

    @property
    def noun(self) -> str:
        """The word for a unit that is protected: "record" or "person"."""
        return self._neighbours.noun

    @property
    def n_updates(self) -> int:
        """Number of new measurements so far."""
        return self._public_side.updates

    @property
    def data_check(self) -> DataCheck | None:
        """Noisy counts of recognised cells of each attribute, and what they show; None if there are none."""
        return self._data_check

    @property
    def check_summary(self) -> str:
        """The findings of the check of the data in one line, or why there is none."""
        return self._unchecked if self._data_check is None else self._data_check.summary

    @property
    def remaining(self) -> float:
        """Epsilon, at the budget's delta, of the comparisons and measurements that are still to be had.

        An open run is still to be had: the number falls when something was measured, not before.
        """
        runs, oracles = self._runs.left, self.budget_split.updates - self.n_updates
        if self.budget_split.run or self.budget_split.selection:  # nothing else leads to a measurement
            oracles = min(oracles, runs)
        else:
            runs = 0
        if max(runs, oracles) <= 0:
            return 0.0
        event = self.budget_split.event_left(runs, oracles)
        return min(self.budget.epsilon, Tight().epsilon(event, spendable(self.budget).delta))

    @property
    def comparisons(self) -> tuple[int, int]:
        """Runs of comparisons that are left, an open one included, and how many there were at first."""
        total = self.budget_split.updates if self.budget_split.run else 0
        return (self._runs.left if total else 0), total

    @property
    def often_missing(self) -> dict[str, float]:
        """Noisy shares of people who lack an attribute, of attributes that too many lack for intervals.

        Regressions of these on several attributes have none, because nothing shows which combinations of
        features these people have. The shares are of the first release and may be published.
        """
        return self._public_side.often_missing

    def measurements_by(self, name: str) -> int:
        """Return the number of new measurements that queries of one asker caused."""
        return self._runs.caused_by(name)

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
        return self.answer(require_query(query).compile(self.schema, self.n), key)

    def answer(
        self,
        compiled: CompiledQuery,
        key: str | None = None,
        asker: Asker | None = None,
        record: Recorder | None = None,
    ) -> Answer:
        """Answer one query that was compiled for this engine's schema and number of records.

        Parameters
        ----------
        compiled : CompiledQuery
            Result of ``query.compile(engine.schema, engine.n)``.
        key : str, optional
            As in `ask`.
        asker : Asker, optional
            Somebody whose share of the comparisons is limited; by default nobody's is.
        record : callable, optional
            Writes more in the ledger's transaction that stores the answer, whose connection it is given. It
            is not called without a ledger, and for answers that were stored before.
        """
        if isinstance(compiled, CompiledRegression | WideRegression) and compiled.records != self.n:
            raise Incompatible(
                f"The query was compiled for {quantity(compiled.records, self.noun)}, this engine has "
                f"{self.n:,}."
            )
        with self._lock:
            if key is not None and (stored := self._transcript.answer(key)) is not None:
                answer = Answer.from_json(json.loads(stored))
                if answer.query != compiled.description.to_json():
                    raise KeyReused(f"Key {key!r} was used for another query: use a new key.")
                return answer
            answer = self._answer(compiled, asker)
            return self._keep(answer, key, record)

    def place(self, key: str) -> str | None:
        """Return the name of the ledger's note that holds the answer of a key; None without a ledger."""
        return self._transcript.place(key)

    def ask_many(self, queries: Sequence[Query]) -> tuple[Answer, ...]:
        """Answer a known family of queries: the histogram first learns from those that it answers worst.

        With method "offline" the exponential mechanism selects them, eta-bounded-range each, in place of
        comparisons; that part of the budget is used by the first call. Other methods answer one by one.

        Parameters
        ----------
        queries : sequence of Query
        """
        family = [require_query(query).compile(self.schema, self.n) for query in queries]
        with self._lock:
            listed = [each for each in family if not isinstance(each, WideRegression)]
            while self.budget_split.selection and self._runs.left and listed:
                self._improve(listed)
            return tuple(self._keep(self._answer(compiled)) for compiled in family)

    def synthetic(self, rows: int, rng: Generator | None = None) -> dict[str, Any]:
        """Return a table of invented records, drawn from the public histogram, as columns by name.

        An account that is frozen or closed refuses it, as it refuses a new answer.

        Parameters
        ----------
        rows : int
        rng : Generator, optional
            None is cryptographic; nothing about the records depends on it.
        """
        if self.method == "composition":
            raise Incompatible("Composition measures each query by itself and has no histogram to draw from.")
        if self._account is not None:
            self._account.require_open()
        if rng is None:
            from dpcvx.noise import SecureGenerator

            rng = SecureGenerator()
        return synthetic_table(self._public_side.histogram, rows, rng, schema=self.schema)

    def statement(self) -> PrivacyStatement:
        """Return the privacy statement of all answers together, in words and as JSON."""
        return engine_statement(
            self.price,
            self.budget_split.method,
            self.universe,
            self.n,
            facts=self._unit_facts,
            check=self.check_summary,
            account=None if self._account is None else self._account.name,
            private=self.private,
        )

    def _resume(self) -> None:
        """Continue from the transcript, or make the first releases and write them down."""
        entries = self._transcript.entries()
        found = {entry.kind: entry.content for entry in entries if entry.kind in FIRST}
        if "start" not in found:
            found["start"] = self._release_start()
            self._transcript.append("start", "", found["start"])
        chosen = self._release_choices(found["start"], entries)
        self._public_side = PublicSide(self.plan, self._passes, found["start"], chosen)
        declared, sums, noise = self.schema, None, 0.0
        if self.plan.bin_sums is not None:
            if "bins" not in found:
                found["bins"] = pack(sums=self._private_side.sum_bins(self.plan.bin_sums))
                self._transcript.append("bins", "", found["bins"])
            sums, noise = arrays(found["bins"])["sums"], self.plan.bin_sums.noise
            self.schema = with_bin_means(declared, sums, noise)
        self._public_side.bin_errors = bin_errors(declared, sums, noise)
        if "check" not in found:
            found["check"] = self._release_checks()
            self._transcript.append("check", "", found["check"])
        self._checks = self._read_checks(found["check"])
        self._data_check: DataCheck | None = None
        if self._counts is not None:
            if "counts" not in found:
                found["counts"] = pack(counts=self._private_side.count(self._counts))
                self._transcript.append("counts", "", found["counts"])
            self._data_check = read_counts(self.schema, self._counts, arrays(found["counts"])["counts"])
        self._settle()

    def _release_start(self) -> bytes:
        if self.plan.start is None:
            return b""
        released = self._private_side.ask(self.plan.start)
        if isinstance(self.plan.start, NoisyHistogram):
            return pack(shares=released)
        if not self.universe.listed:
            return pack(means=np.concatenate([m.values for m in released]))
        return pack_measurements(released)

    def _release_choices(self, start: bytes, entries: Sequence[TranscriptEntry]) -> list[Measurement]:
        """Return the means of chosen pairs; every stage is written down before its model is fitted."""
        choice = self.plan.choice
        if choice is None:
            return []
        stored = [arrays(entry.content) for entry in entries if entry.kind == "choice"]
        stages = [choice.read(each["pairs"], each["means"]) for each in stored]
        singles = released_start(self.plan, start)
        for stage in choice.release(self._private_side.ask, self.universe, singles, tuple(stages)):
            pairs = np.array([m.attributes for m in stage[EACH - 1 :: EACH]]).reshape(-1, 2)
            means = np.concatenate([np.zeros(0), *(m.values for m in stage)])
            self._transcript.append("choice", str(len(stages)), pack(pairs=pairs, means=means))
            stages.append(stage)
        return [m for stage in stages for m in stage]

    def _release_checks(self) -> bytes:
        values = []
        for name, noise in zip(FAMILIES, self.budget_split.checks, strict=False):
            answers = []
            for compiled in check_queries(name, self.schema, self.n):
                public, propagated = self._public_side.answer(compiled)
                answers.append(self._public_side.near(public, propagated)[0])
            errors = NoisyErrors(tuple(answers), RANK, noise, self._neighbours)
            values.append(self._private_side.ask(errors))
        return pack(values=np.array(values))

    def _read_checks(self, content: bytes) -> dict[str, Check]:
        values = arrays(content)["values"].tolist()
        named = zip(FAMILIES, values, self.budget_split.checks, strict=False)
        return {name: Check(value, noise) for name, value, noise in named}

    def _settle(self) -> None:
        """Finish what a stop or an error interrupted: make the measurement that a comparison led to."""
        if self._runs.settled:
            return
        entries = self._transcript.entries()
        for entry in entries:
            if entry.kind == "update" and int(entry.key) >= self.n_updates:
                self._public_side.learn(entry.content)
        due = self._runs.restore(entries, self.n_updates)
        if due is not None and self.n_updates < self.budget_split.updates:
            try:
                compiled = stored_query(due).compile(self.schema, self.n)
                theta = self._public_side.answer(compiled)[0].theta
                lesson = self._public_side.lesson(
                    compiled, theta, self._measuring.measure(compiled, self._private_side)
                )
            except ValueError:  # the query cannot be measured; it must not stop every new start
                lesson = b""
            self._note_update(lesson)
        self._runs.settled = True

    def _keep(self, answer: Answer, key: str | None = None, record: Recorder | None = None) -> Answer:
        """Store an answer under its key, with the result of its comparison; durable when it returns."""
        if key is not None:
            self._transcript.append("answer", key, answer.body, run=self._runs.unkept, record=record)
        else:
            self._transcript.keep_run(*self._runs.unkept)
        self._runs.unkept, self._runs.settled = UNCHANGED, True
        return answer

    def _answer(self, compiled: CompiledQuery, asker: Asker | None = None) -> Answer:
        self._settle()
        if self.method == "composition":
            if self._public_side.updates == self.budget_split.updates:
                raise BudgetExceeded(self._measuring.budget.epsilon, 0.0)
            return self._measured_answer(compiled, None)
        if (measured := self._public_side.measured_wide(compiled)) is not None:
            return self._finished_measurement(compiled, measured)
        public, noise = self._public_side.answer(compiled)
        near, part = self._public_side.near(public, noise)
        compared = self._can_compare(compiled) and self.comparisons[0] > 0
        compared = compared and (asker is None or self._runs.caused_by(asker.name) < asker.measurements)
        if compared and self._runs.above(near, self.n_updates, asker):
            if self.n_updates < self.budget_split.updates:
                return self._measured_answer(compiled, public.theta)
            compared = False
        unmeasured = self._public_side.unmeasured(compiled)
        missing = self._public_side.missing_targets(compiled)
        if unmeasured or missing:  # no model of the interaction, or of who is left out
            noise = PropagatedNoise(None, None, shrunk=noise.shrunk)
        unit = near.range / self.n
        below = self.plan.largest_below * unit / part if compared else math.inf
        return self._finished(
            public,
            noise,
            bound=self._public_side.proved(public, below),
            branch="histogram",
            compared=compared,
            typical=self._typical(compiled, noise, unit),
            unmeasured=unmeasured,
            missing=missing,
        )

    def _can_compare(self, compiled: CompiledQuery) -> bool:
        """Say whether answers to a query can be compared: rows of persons are not read one by one."""
        return self._neighbours.weight == 1 or not isinstance(compiled, WideRegression)

    def _typical(self, compiled: CompiledQuery, noise: PropagatedNoise, unit: float) -> float | None:
        """Result of the self-check in the units of an answer; its families have no cells beyond a list."""
        if isinstance(compiled, WideRegression):
            return None
        check = self._checks.get("regressions" if isinstance(compiled, CompiledRegression) else "shares")
        return None if check is None else in_units(compiled, noise.inverse, check.bound * unit)

    def _finished(
        self,
        public: PublicAnswer,
        noise: PropagatedNoise,
        *,
        bound: Bound | None,
        branch: str,
        compared: bool,
        typical: float | None = None,
        unmeasured: Sequence[str] = (),
        missing: float = 0.0,
    ) -> Answer:
        compiled, theta = public.query, public.theta
        noise = self._public_side.with_bin_errors(compiled, noise)
        by_bins = self._public_side.mean_of_bins(compiled)
        reading = compiled.description.reading(self.schema, self.n)
        hidden = self._public_side.hidden_levels(compiled)
        numbers = without_hidden(coefficients(reading, theta, noise, bound, self.n), hidden)
        is_mean = isinstance(compiled, CompiledRegression) and compiled.units is not None
        proved = None
        if bound is not None:
            proved = bound.error if bound.is_excess else reading.largest(bound.numbers)
        return Answer(
            query=compiled.description.to_json(),
            coefficients=numbers,
            coded=tuple(theta.tolist()),
            branch=branch,
            error=expected_error(compiled, reading, noise),
            error_bound=proved,
            confidence=CONFIDENCE,
            covered_by="none" if bound is None else bound.argument,
            interval_by=interval_argument(noise, bound, branch == "oracle"),
            typical=typical,
            checked=compared,
            remaining=self.remaining,
            private=self.private,
            comparable=self._can_compare(compiled) and self.comparisons[1] > 0,
            people=self.n,
            unit=self.noun,
            note=reading_note(
                compiled.description,
                self.schema,
                self._neighbours,
                not self.universe.listed,
                unmeasured,
                [f"{name}={label}" for name, label in hidden],
                missing,
                by_bins is not None and by_bins.errors.noise is not None,
                shrunk=noise.shrunk,
                few=self._public_side.hides_mean(compiled),
                cut=() if is_mean else cut_by_set(reading, noise, numbers),
                intervals=any(each.low is not None for each in numbers),
                independent=branch == "histogram" and self._public_side.is_independent(compiled),
                blurred=branch == "histogram" and self._public_side.is_blurred(compiled),
                pairs=self._public_side.measured_pairs(compiled) if branch == "histogram" else (0, 0, 0),
            ),
            data="" if self._account is None else self._account.name,
            legend=legend_of(self.schema, compiled.description.to_json()),
        )

    @property
    def _measuring(self) -> Measurer:
        if self._measurer is None:
            raise Incompatible(f"Method {self.method!r} makes no new measurements.")
        return self._measurer

    def _measured_answer(self, compiled: CompiledQuery, theta: Vector | None) -> Answer:
        """Measure anew, and update the histogram if it answered theta."""
        measured = self._measuring.measure(compiled, self._private_side)
        self._note_update(b"" if theta is None else self._public_side.lesson(compiled, theta, measured))
        return self._finished_measurement(compiled, measured)

    def _finished_measurement(self, compiled: CompiledQuery, measured: MeasuredAnswer) -> Answer:
        k = len(compiled.names)
        covariance = None if measured.deviation is None else measured.deviation**2 * np.eye(k)
        by_bins = self._public_side.mean_of_bins(compiled)
        more = 0.0 if by_bins is None else float(by_bins.distances.max())
        bound = None if measured.bound is None else Bound("measurement", np.full(k, measured.bound + more))
        inverse, sampling = self._public_side.curvature_and_sampling(compiled, measured.theta)
        shrunk = isinstance(compiled, CompiledRegression | WideRegression) and at_edge(
            compiled.problem, measured.theta
        )
        noise = PropagatedNoise(measured.error, covariance, inverse, sampling=sampling, shrunk=shrunk)
        public = PublicAnswer(compiled, measured.theta)
        return self._finished(public, noise, bound=bound, branch="oracle", compared=True)

    def _note_update(self, lesson: bytes) -> None:
        self._transcript.append("update", str(self._public_side.updates), lesson)
        self._public_side.learn(lesson)

    def _improve(self, family: Sequence[CompiledQuery]) -> None:
        """Run one round of the offline variant: select the worst query, measure it, update the histogram."""
        self._runs.begin()
        answers = tuple(PublicAnswer(each, each.answer(self._public_side.marginal(each))) for each in family)
        selection = WorstQuery(answers, self.n, self.budget_split.selection, self._neighbours)
        worst = answers[self._private_side.ask(selection)]
        measured = self._measuring.measure(worst.query, self._private_side)
        shown = self._public_side.shows_error(measured)
        self._note_update(self._public_side.lesson(worst.query, worst.theta, measured) if shown else b"")
