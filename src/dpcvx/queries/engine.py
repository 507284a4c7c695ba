"""The query engine: any number of convex-minimisation and linear queries on one budget."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.accounting import Budget, Tight
from dpcvx.accounting.gaussian import gaussian_epsilon
from dpcvx.arrays import Vector
from dpcvx.errors import BudgetExceeded, DeadKey, Incompatible
from dpcvx.events import Event, Exponential, Gaussian, count_leaves
from dpcvx.execution import SAMPLER_SHARE, Plan, Solver, spendable  # type: ignore[attr-defined]
from dpcvx.queries.allotment import Allotment, allot, choose_method
from dpcvx.queries.answers import Answer, Coefficient
from dpcvx.queries.checks import FAMILIES, RANK, Check, family
from dpcvx.queries.gate import Checked, Gate, NoisyErrors, NoisyHistogram, NoisyMeans, WorstQuestion
from dpcvx.queries.histogram import Counts, Histogram
from dpcvx.queries.marginals import Measurement, NoisyMarginals
from dpcvx.queries.multiplicative_weights import agree, step_size
from dpcvx.queries.query import Query
from dpcvx.queries.questions import ConvexQuestion, LinearQuestion, Question
from dpcvx.queries.schema import Schema
from dpcvx.queries.sparse_vector import AboveThreshold, Run
from dpcvx.queries.transcript import (
    Kept,
    Remembered,
    Transcript,
    arrays,
    measurements,
    packed,
    packed_measurements,
)
from dpcvx.queries.uncertainty import CONFIDENCE, Propagated, half_widths, propagate
from dpcvx.queries.universe import Universe
from dpcvx.statement import PrivacyStatement

if TYPE_CHECKING:
    from dpcvx.ledger import Account, Ledger
    from dpcvx.noise import Generator

__all__ = ["QueryEngine"]

FALSE_ALARM = 0.05  # chance that a run of the expected queries says "above" of a histogram without error


class QueryEngine:
    """Answers queries about a private table from a public histogram that learns where it is wrong.

    Algorithm: [U15] Figure 3. The histogram answers; sparse vector compares its answer with the records;
    where the error is above a level, a private solver measures anew and the histogram learns from it.
    Privacy: everything that may ever be asked is one event, `Allotment.event`, fixed from public sizes and
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
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: str | None = None,
        rng: Generator | None = None,
    ) -> None:
        if budget.relation != "replace":
            raise Incompatible(
                "The engine divides by the number of records, which is public under 'replace' only."
            )
        if isinstance(n_queries, bool) or not isinstance(n_queries, int) or n_queries < 1:
            raise ValueError(f"n_queries must be a positive integer, got {n_queries!r}.")
        self.schema, self.budget = schema, budget
        self.universe = Universe(schema)
        self.n = _length(table)
        if self.n < 1:
            raise ValueError("The table has no rows.")
        self.n_queries, self._oracle = n_queries, oracle
        chosen = choose_method(self.universe, n_queries) if method == "auto" else method
        self.allotment: Allotment = allot(chosen, self.universe, self.n, n_queries, budget)
        if rng is None:
            from dpcvx.noise import SecureGenerator

            rng = SecureGenerator()
        self.private = rng.private
        self._start = self._first_mechanism()
        self._lock = threading.RLock()
        self._account = self._payer(ledger, account)
        self._transcript = self._charge()
        self._gate = Gate(Counts.of(self.universe, table), rng)
        self._run: Run | None = None
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
        return self.allotment.method

    @property
    def n_updates(self) -> int:
        """Number of new measurements so far."""
        return self._updates

    @property
    def remaining(self) -> float:
        """Epsilon, at the budget's delta, of the comparisons and measurements that are still to be had."""
        left = self.allotment.updates
        runs = left - self._runs if self.allotment.run or self.allotment.selection else 0
        oracles = left - self._updates
        if max(runs, oracles) <= 0:
            return 0.0
        event = self.allotment.left(runs, oracles)
        return min(self.budget.epsilon, Tight().epsilon(event, spendable(self.budget).delta))

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
        question = query.compile(self.schema, self.n)
        with self._lock:
            if key is not None and (kept := self._transcript.answer(key)) is not None:
                answer = Answer.from_json(json.loads(kept))
                if answer.query != query.to_json():
                    raise Incompatible(f"Key {key!r} was used for another query: use a new key.")
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
        questions = [query.compile(self.schema, self.n) for query in queries]
        with self._lock:
            while self.allotment.selection and self._runs < self.allotment.updates and questions:
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
        if rng is None:
            from dpcvx.noise import SecureGenerator

            rng = SecureGenerator()
        return self.universe.decode(self._histogram.sample(rows, rng))

    def statement(self) -> PrivacyStatement:
        """Return what is promised about all answers together, in words and as JSON."""
        from dpcvx import __version__
        from dpcvx.statement import CRYPTOGRAPHIC, NO_LEDGER, SEEDED, UNIT

        where = NO_LEDGER
        if self._account is not None:
            where = f"charged to account {self._account.name!r} before a record was read"
        return PrivacyStatement(
            model=f"QueryEngine, method {self.method}",
            version=__version__,
            private=self.private,
            unit=UNIT,
            relation=self.budget.relation,
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            certified_epsilon=Tight().epsilon(self.allotment.event, spendable(self.budget).delta),
            accountant="Tight",
            sampler_delta=self._sampler_delta,
            mechanisms=tuple(self._parts()),
            bounds={"cells": "every record is mapped to a declared cell of the schema; none is refused"},
            public={"n": self.n, "attributes": list(self.schema.names), "cells": self.universe.n_cells},
            randomness=CRYPTOGRAPHIC if self.private else SEEDED,
            ledger=where,
            not_covered=("running time and memory", "a person who is in several rows"),
        )

    # What is public and fixed before the records are read.

    def _first_mechanism(self) -> NoisyMarginals | NoisyHistogram | None:
        if self.allotment.start == 0:
            return None
        if self.method == "histogram":
            return NoisyHistogram(self.universe, self.n, self.allotment.start)
        order = min(2, len(self.universe.shape))
        return NoisyMarginals(self.universe.shape, self.n, self.allotment.start, order)

    def _payer(self, ledger: Any, account: str | None) -> Account | None:
        if ledger is None and account is None:
            return None
        if ledger is None or account is None:
            given, missing = ("account", "ledger") if ledger is None else ("ledger", "account")
            raise Incompatible(f"{given} was given without {missing}: give both to charge, or neither.")
        if not self.private:
            raise Incompatible(
                "A seeded engine is not private, so no ledger can vouch for it: leave the seed out, or the "
                "ledger."
            )
        from dpcvx.ledger import Ledger

        opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        return opened.account(account)

    @property
    def _sampler_delta(self) -> float:
        """Delta paid for noise of finite precision; measurements may cost half of the share together."""
        failure = 0.0 if self._start is None else self._start.failure
        failure += sum(2.0**-70 for _ in self.allotment.checks)
        own = (1 + math.exp(min(self.budget.epsilon, 700.0))) * failure
        return own + SAMPLER_SHARE * self.budget.delta / 2

    def _charge(self) -> Transcript:
        """Pay for everything at once, durably; a plan that was paid before continues."""
        if self._sampler_delta > SAMPLER_SHARE * self.budget.delta:
            raise Incompatible("This delta is too small for noise of finite precision: use a larger one.")
        if self._account is None:
            return Remembered()
        plan = {
            "schema": self.schema.to_dict(),
            "n": self.n,
            "budget": [self.budget.epsilon, self.budget.delta],
            "n_queries": self.n_queries,
            "allotment": repr(self.allotment),
        }
        digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
        key = f"query engine {digest}"
        failure = self._sampler_delta / (1 + math.exp(min(self.budget.epsilon, 700.0)))
        try:
            receipt = self._account.charge(
                self.allotment.event,
                purpose=f"query engine, method {self.method}",
                failure=failure,
                key=key,
                budget=spendable(self.budget),
            )
            paid_before = receipt.answer is not None
        except DeadKey:  # paid, and stopped before that was noted: no record has been read
            paid_before = False
        if not paid_before:
            self._account.store(key, b"charged")
        return Kept(self._account, digest)

    def _parts(self) -> list[dict[str, Any]]:
        a = self.allotment
        rows: list[tuple[str, int, Event, float, float]] = []
        if self._start is not None:
            start = self._start
            rows.append((type(start).__name__, 1, start.event, start.sensitivity, start.noise))
        rows += [("NoisyErrors", 1, Gaussian(noise), 1.0, noise) for noise in a.checks]
        if a.run:
            run = AboveThreshold(a.run)
            rows.append(("AboveThreshold", a.updates, run.event, run.sensitivity, run.noise))
        if a.selection:
            rows.append(("WorstQuestion", a.updates, Exponential(a.selection), 1.0, 2 / a.selection))
        if a.oracle:
            rows.append(("measurement by a solver", a.updates, Gaussian(a.oracle), 1.0, a.oracle))
        return [
            {
                "question": question,
                "count": count,
                "event": type(event).__name__,
                **vars(event),
                "sensitivity": sensitivity,
                "noise": noise,
            }
            for question, count, event, sensitivity, noise in rows
        ]

    # The interaction.

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
                self._updates += 1
                self._learn(entry.content)
        self._begin_run()

    def _release_start(self) -> bytes:
        if self._start is None:
            return b""
        if isinstance(self._start, NoisyHistogram):
            return packed(shares=self._gate.ask(self._start))
        return packed_measurements(self._gate.ask(self._start))

    def _read_start(self, content: bytes) -> tuple[Histogram, tuple[Measurement, ...]]:
        if self._start is None:
            return Histogram(self.universe), ()
        if isinstance(self._start, NoisyHistogram):
            from dpcvx.domains import Simplex

            shares = Simplex().project(arrays(content)["shares"])
            return Histogram(self.universe, np.maximum(shares, 0.0)), ()
        from dpcvx.queries.maximum_entropy import fit

        released = measurements(content)
        return fit(self.universe, released), released

    def _release_checks(self) -> bytes:
        values = []
        for name, noise in zip(FAMILIES, self.allotment.checks, strict=False):
            checked = tuple(self._checked(question) for question in family(name, self.schema, self.n))
            values.append(self._gate.ask(NoisyErrors(checked, RANK, noise)))
        return packed(values=np.array(values))

    def _read_checks(self, content: bytes) -> dict[str, Check]:
        values = arrays(content)["values"].tolist()
        return {
            name: Check(value, noise)
            for name, value, noise in zip(FAMILIES, values, self.allotment.checks, strict=False)
        }

    def _begin_run(self) -> None:
        """Start a run of comparisons if one is left; it counts from before the first comparison on."""
        self._run = None
        if self.allotment.run and self._runs < self.allotment.updates:
            self._transcript.append("run", str(self._runs))
            self._runs += 1
            self._run = self._gate.start(AboveThreshold(self.allotment.run))

    def _marginal(self, question: Question) -> Vector:
        return self._histogram.marginal(question.attributes).ravel()

    def _checked(self, question: Question) -> Checked:
        return Checked(question, question.answer(self._marginal(question)))

    def _answer(self, query: Query, question: Question) -> Answer:
        if self.method == "composition":
            if self._updates == self.allotment.updates:
                raise BudgetExceeded(self._oracle_epsilon, 0.0)
            return self._answer_by_oracle(query, question, None)
        checked = self._checked(question)
        was_checked = self._run is not None
        if self._run is not None and self._gate.above(self._run, checked, self._level):
            self._run = None
            if self._updates < self.allotment.updates:
                answer = self._answer_by_oracle(query, question, checked.theta)
                self._begin_run()
                return self._with_remaining(answer)
            was_checked = False
        weights = self._marginal(question)
        propagated = propagate(question, weights, checked.theta, self._known)
        unit = question.range(checked.theta) / self.n
        guarantee = question.scale
        if was_checked:
            run = AboveThreshold(self.allotment.run)
            guarantee = min(guarantee, (self._level + run.distance(1 - CONFIDENCE)) * unit)
        check = self._checks.get("regressions" if isinstance(question, ConvexQuestion) else "shares")
        bound = guarantee if check is None else min(question.scale, max(check.bound * unit, propagated.error))
        return self._finished(
            query, question, checked.theta, propagated, "histogram", bound, guarantee, checked=was_checked
        )

    @property
    def _known(self) -> tuple[Measurement, ...]:
        if isinstance(self._start, NoisyHistogram):
            return ()
        return self._warm

    @property
    def _level(self) -> float:
        """Error, in units of its sensitivity, that the noise of a run hides."""
        return AboveThreshold(self.allotment.run).distance(FALSE_ALARM / self.n_queries)

    def _finished(
        self,
        query: Query,
        question: Question,
        theta: Vector,
        propagated: Propagated,
        branch: str,
        bound: float,
        guarantee: float,
        *,
        checked: bool,
    ) -> Answer:
        half = half_widths(question, self._marginal(question), theta, propagated, bound)
        numbers = (question.reported(each) for each in (theta, theta - half, theta + half))
        return Answer(
            query=query.to_json(),
            coefficients=tuple(
                Coefficient(name, float(estimate), float(low), float(high))
                for name, estimate, low, high in zip(question.names, *numbers, strict=True)
            ),
            branch=branch,
            error=propagated.error,
            error_bound=bound,
            confidence=CONFIDENCE,
            guarantee=guarantee,
            checked=checked,
            remaining=self.remaining,
            private=self.private,
        )

    def _with_remaining(self, answer: Answer) -> Answer:
        import dataclasses

        return dataclasses.replace(answer, remaining=self.remaining)

    # Measurements.

    @property
    def _oracle_budget(self) -> Budget:
        """Budget of one measurement: GDP of the allotted noise, and a delta small enough for its sampling."""
        parts = max(1, self.allotment.updates) * (1 + math.exp(min(self.budget.epsilon, 700.0)))
        delta = self.budget.delta / parts
        mu = (1 - 1e-9) / self.allotment.oracle
        return Budget(gaussian_epsilon(mu, delta * (1 - SAMPLER_SHARE)), delta)

    @property
    def _oracle_epsilon(self) -> float:
        return gaussian_epsilon(1 / self.allotment.oracle, self.budget.delta)

    def _plan(self, question: ConvexQuestion) -> Plan:
        from dpcvx.planner import plan, residual_clip
        from dpcvx.solvers import NoisyGradientDescent, NoisyMirrorDescent

        clip = residual_clip(question.problem)
        usual = (NoisyGradientDescent(clip=clip), NoisyMirrorDescent(clip=clip))
        solvers = usual if self._oracle is None else (self._oracle,)
        made = plan(question.problem, self.n, self._oracle_budget, solvers)
        if _zcdp(made.event) > (1 + 1e-9) / (2 * self.allotment.oracle**2):
            raise Incompatible(f"{type(made.solver).__name__} costs more than the part of one measurement.")
        return made

    def _measure(self, question: Question) -> tuple[Vector, tuple[Measurement, ...], float, float]:
        """New private answer, what it measured, and its error: expected, and at 95 % confidence."""
        if isinstance(question, LinearQuestion):
            mechanism = NoisyMeans(question, self.n, self.allotment.oracle)
            theta = self._gate.ask(mechanism)
            from scipy.special import ndtri

            tail = (1 - CONFIDENCE) / (2 * len(theta))
            bound = -float(ndtri(tail)) * mechanism.noise
            measured = Measurement(question.attributes, (question.values,), theta, mechanism.noise)
            return theta, (measured,), mechanism.noise, bound
        assert isinstance(question, ConvexQuestion)
        plan = self._plan(question)
        theta, group = self._gate.minimiser(plan, question)
        predicted = plan.candidates[0].predicted
        return theta, group, predicted, 3 * predicted

    def _answer_by_oracle(self, query: Query, question: Question, theta: Vector | None) -> Answer:
        better, group, error, bound = self._measure(question)
        if theta is None:
            content = b""
        elif self.method == "multiplicative_weights" or not group:
            step = step_size(self.universe.n_cells, self.allotment.updates)
            factor = -step * question.certificate(theta, better) / question.scale
            content = packed(attributes=np.array(question.attributes), factor=factor.reshape(question.sizes))
        else:
            content = b"m" + packed_measurements(group)
        self._transcript.append("update", str(self._updates), content)
        self._updates += 1
        self._learn(content)
        guarantee = min(question.scale, error / (1 - CONFIDENCE))
        deviations = np.zeros(len(question.names))
        return self._finished(
            query,
            question,
            better,
            Propagated(error, deviations),
            "oracle",
            min(question.scale, bound),
            guarantee,
            checked=True,
        )

    def _learn(self, content: bytes) -> None:
        """Let the histogram learn from what was measured."""
        if content.startswith(b"m"):
            self._measured.append(measurements(content[1:]))
            self._histogram = agree(self._base, self._measured)
        elif content:
            stored = arrays(content)
            self._histogram = self._histogram.reweight(tuple(stored["attributes"].tolist()), stored["factor"])

    def _improve(self, questions: Sequence[Question]) -> None:
        """One round of the offline variant: select the worst question, measure it, learn."""
        self._transcript.append("run", str(self._runs))
        self._runs += 1
        family = tuple(self._checked(question) for question in questions)
        worst = self._gate.ask(WorstQuestion(family, self.n, self.allotment.selection))
        question = questions[worst]
        _, group, _, _ = self._measure(question)
        content = b"m" + packed_measurements(group)
        self._transcript.append("update", str(self._updates), content)
        self._updates += 1
        self._learn(content)


def _zcdp(event: Event) -> float:
    """Return rho of releases and selections: 1/(2 noise^2) and eta^2/8; anything else is refused."""
    total = 0.0
    for leaf, count in count_leaves(event).items():
        match leaf:
            case Gaussian():
                total += count / (2 * leaf.noise_multiplier**2)
            case Exponential():
                total += count * leaf.eta**2 / 8
            case _:
                raise Incompatible(
                    f"Measurements are Gaussian releases or selections, not {type(leaf).__name__}."
                )
    return total


def _length(table: Any) -> int:
    """Number of rows, without reading them."""
    if isinstance(table, Mapping):
        return max((len(column) for column in table.values()), default=0)
    shape = getattr(table, "shape", None)
    return int(shape[0]) if shape else len(table)
