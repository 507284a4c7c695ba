"""Attacks on the query engine, its ledger and its service by somebody who knows the code."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import sqlalchemy as sa

from dpcvx.accounting import Budget, Tight
from dpcvx.domains import Box, L1Ball, Simplex
from dpcvx.errors import BudgetExceeded, LedgerDamaged, LedgerUnavailable
from dpcvx.events import Gaussian
from dpcvx.ledger import Ledger
from dpcvx.losses import SmoothHinge
from dpcvx.queries import (
    Attribute,
    Binned,
    Count,
    Mean,
    Regression,
    Schema,
)
from dpcvx.queries.compiled import TOLERANCE, WORK, CompiledRegression
from dpcvx.queries.engine import QueryEngine
from dpcvx.queries.error_bars import PropagatedNoise, reach
from dpcvx.queries.histogram import Counts, Histogram
from dpcvx.queries.mechanisms import NoisyMeans, PublicAnswer
from dpcvx.queries.query import query_from_json
from dpcvx.queries.universe import Universe
from dpcvx.service.analysts import Analysts
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.refusal import Refusal
from dpcvx.solvers import NoisyFrankWolfe

SCHEMA = Schema(
    (
        Attribute("a", ("0", "1")),
        Attribute("b", ("0", "1")),
        Attribute("c", ("0", "1")),
        Binned("z", (0, 1, 2, 3, 4)),
        Binned("year", (1e13, 1e13 + 1, 1e13 + 2)),
    )
)
UNIVERSE = Universe(SCHEMA)
N = 50_000
CELLS = np.random.default_rng(0).integers(0, UNIVERSE.n_cells, N)
REGRESSION = {"kind": "regression", "target": "a", "features": ["b", "c", "z"]}


@pytest.mark.parametrize(
    "query",
    [
        Regression("a", ("b", "c", "z"), radius=1e-12),
        Regression("z", ("b", "c"), loss="squared", radius=3e-14),
        Regression("a", ("b", "c"), loss="huber", domain=L1Ball(1e-13)),
        Mean("year"),
    ],
    ids=["tiny ball", "squared", "huber", "numbers of one size"],
)
def test_rounding_over_a_tiny_set_moves_no_score_by_more_than_its_sensitivity(query):
    """Over a tiny set all losses are equal to the last bits: what one record does to those is not its range.

    The score of such a question was moved by 29 sensitivities, so comparisons told records apart.
    """
    question = query.compile(SCHEMA, N)
    theta = question.answer(Histogram(UNIVERSE).marginal(question.attributes).ravel())
    near = question.near(theta, 0.1) if isinstance(question, CompiledRegression) else question
    checked = PublicAnswer(near, theta)
    score = checked.score(Counts(UNIVERSE, CELLS))
    for record in range(40):
        neighbour = CELLS.copy()
        neighbour[record] = (neighbour[record] + 1 + 7 * record) % UNIVERSE.n_cells
        assert abs(checked.score(Counts(UNIVERSE, neighbour)) - score) <= 1 + 2 * TOLERANCE


def test_a_set_too_small_for_float64_has_an_answer():
    for radius in (5e-324, 1e-300, 1e-20):
        question = Regression("a", ("b",), radius=radius).compile(SCHEMA, N)
        theta = question.answer(Histogram(UNIVERSE).marginal(question.attributes).ravel())
        assert PublicAnswer(question, theta).score(Counts(UNIVERSE, CELLS)) == 0.0


def test_a_count_of_everybody_is_answered_and_measured():
    """Every level of an attribute ticked: the count is n, which is public, and its range is zero."""
    from dpcvx.noise import SeededGenerator

    question = Count({"a": ("0", "1")}).compile(SCHEMA, N)
    counts = Counts(UNIVERSE, CELLS)
    assert PublicAnswer(question, np.array([float(N)])).score(counts) == 0.0
    assert NoisyMeans(question, N, 10.0)(counts, SeededGenerator(0)) == pytest.approx([N])


@pytest.mark.parametrize(
    "content",
    [
        {**REGRESSION, "radius": 10**400},
        {**REGRESSION, "l2": 10**400},
        {**REGRESSION, "radius": float("nan")},
        {**REGRESSION, "set": {"name": "L1Ball", "radius": [1, 2]}},
        {**REGRESSION, "set": {"name": "Box", "low": [0, 1], "high": [2, 3]}},
        {**REGRESSION, "loss": {"name": "smooth_hinge", "width": 1e-4}},
        {**REGRESSION, "loss": {"name": "huber", "threshold": 5e-324}},
    ],
    ids=["radius", "l2", "nan", "list", "dimension", "sharp corner", "no slope"],
)
def test_a_question_that_cannot_be_answered_is_refused_from_its_description(content):
    with pytest.raises(ValueError):
        query_from_json(content).compile(SCHEMA, N)


def test_a_corner_that_takes_for_ever_to_minimise_is_refused():
    """One such question held the engine, and with it every analyst, for hours."""
    with pytest.raises(ValueError, match="sharper"):
        Regression("a", ("b",), loss=SmoothHinge(1e-4))


class TestRestoredCopy:
    """What an engine has used of its one charge is as safe from a restored copy as the charge itself."""

    @pytest.fixture
    def ledger(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness.txt")
        ledger.create("people", epsilon=1.0, delta=1e-6)
        return ledger

    def start(self, ledger):
        rng = np.random.default_rng(0)
        table = {name: rng.choice(["0", "1"], 300) for name in ("a", "b")}
        schema = Schema((Attribute("a", ("0", "1")), Attribute("b", ("0", "1"))))
        budget = Budget(1.0, 1e-6)
        return QueryEngine(
            schema, table, budget, method="composition", n_queries=3, ledger=ledger, account="people"
        )

    def test_it_measures_nothing_again(self, ledger, tmp_path):
        """The three measurements of a plan for three were made six times."""
        engine = self.start(ledger)
        shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
        for _ in range(3):
            engine.ask(Mean("a"))
        shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
        with pytest.raises(LedgerDamaged, match="old"):
            ledger.verify()
        with pytest.raises(LedgerDamaged, match="old"):
            self.start(ledger).ask(Mean("a"))

    @pytest.mark.parametrize(
        "edit",
        [
            "DELETE FROM entries WHERE key LIKE '%update%'",
            "UPDATE entries SET key = 'x' WHERE key LIKE '%update%'",
            "UPDATE entries SET answer = x'00' WHERE key LIKE '%update%'",
        ],
        ids=["removed", "renamed", "changed"],
    )
    def test_an_edited_transcript_is_detected(self, ledger, edit):
        self.start(ledger).ask(Mean("a"))
        ledger.verify()
        store = sa.create_engine(ledger.url)
        with store.begin() as connection:
            assert connection.execute(sa.text(edit)).rowcount == 1
        store.dispose()
        with pytest.raises(LedgerDamaged):
            ledger.verify()


@pytest.mark.parametrize(("cap", "fits"), [(1.3, True), (1.0, False)])
def test_a_selecting_solver_is_not_charged_as_a_gaussian_release(tmp_path, cap, fits):
    """A selection of the same zCDP as a Gaussian release is worse than it at (1, 0.15): delta is 0.160."""
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=cap, delta=0.15)
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1")), Attribute("b", ("0", "1"))))
    given = {"method": "composition", "n_queries": 1, "oracle": NoisyFrankWolfe(n_iter=1)}

    def start():
        return QueryEngine(schema, table, Budget(1.3, 0.15), **given, ledger=ledger, account="people")

    if not fits:
        with pytest.raises(BudgetExceeded):
            start()
        return
    engine = start()
    plan = engine._measurer.plan(Regression("a", ("b",), domain="l1").compile(schema, 300))
    assert Tight().delta(plan.event, 1.0) > 0.159 > 0.15 > Tight().delta(engine.budget_split.event, 1.0)
    assert engine.ask(Regression("a", ("b",), domain="l1")).branch == "oracle"
    assert len(account.history()) == 1


@pytest.mark.parametrize(
    "loss", ["quantile", "huber", SmoothHinge(0.016)], ids=["quantile", "huber", "hinge"]
)
def test_no_question_takes_more_than_its_share_of_work(loss):
    """A corner over a large ball and 2^16 cells would have taken days, and nobody else would be answered."""
    schema = Schema(tuple(Attribute(f"b{k}", ("0", "1")) for k in range(16)))
    question = Regression("b0", schema.names[1:], loss=loss, radius=1000.0).compile(schema, 10**6)
    theta = np.zeros(question.problem.d)
    small = Regression("b0", ("b1",), loss=loss, domain=Box(998.0, 1000.0), l2=1000.0)
    for each in (question, question.near(theta, 0.1), small.compile(schema, 10**6)):
        tolerance = TOLERANCE / 2 * each.range(np.full(each.problem.d, 999.0)) / 10**6
        assert each.last_steps(tolerance) * (each.X.size + 2**16) <= 1.001 * WORK


def test_a_point_is_a_set_too():
    """The simplex of one coefficient has no size to take a part of."""
    question = Regression("a", (), domain=Simplex(1.0)).compile(SCHEMA, N)
    assert reach(question, PropagatedNoise(0.1, np.ones(1))) == 1.0


def test_a_description_is_the_same_after_a_trip_through_json():
    """A retry is known by its description: one with the corners of a box was taken for another question."""
    for domain in (Box((0.0, 0.5), (1.0, 2.0)), L1Ball(2.0), Simplex(1.0), "l1"):
        content = Regression("a", ("b",), domain=domain).to_json()
        assert json.loads(json.dumps(content)) == content


def test_a_forked_engine_asks_nothing():
    """Parent and child had one threshold and one plan, and each used them up."""
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1")), Attribute("b", ("0", "1"))))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), method="composition", n_queries=2)
    hearing, telling = os.pipe()
    if (child := os.fork()) == 0:
        try:
            told = engine.ask(Mean("a")).branch
        except ValueError as error:
            told = str(error)
        os.write(telling, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "another process" in os.read(hearing, 1000).decode()
    os.close(hearing)
    os.close(telling)
    assert engine.ask(Mean("a")).branch == "oracle"


def test_measured_means_stay_within_the_samplers_share_of_delta():
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1")), Attribute("b", ("0", "1"))))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-72), method="composition", n_queries=2)
    with pytest.raises(ValueError, match="delta"):
        engine.ask(Mean("a"))


def test_a_witness_that_was_not_told_lets_nothing_be_released(tmp_path, monkeypatch):
    """A full disk took half of a line; the charge was granted, and an old copy was not noticed later."""
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness.txt")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, line: write(file, line[:40]))
        with pytest.raises(LedgerUnavailable, match="room"):
            account.charge(Gaussian(100.0), purpose="lost")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
    account.charge(Gaussian(100.0), purpose="first after it")
    shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
    with pytest.raises(LedgerDamaged, match="old"):
        account.charge(Gaussian(100.0), purpose="on an old copy")


def test_a_key_that_only_the_engine_remembers_is_refused_by_the_service(tmp_path):
    """The server stopped between the engine's answer and its own note; another question was an error 500."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people", epsilon=1.0, delta=1e-6)
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1")), Attribute("b", ("0", "1"))))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), ledger=ledger, account="people")
    analysts = Analysts(engine, ServiceDatabase(tmp_path / "ledger.db", "people"))
    key, _ = analysts.keys.create("ann")
    engine.ask(Mean("a"), key=f"{key.id}.lost")
    with pytest.raises(Refusal) as refused:
        analysts.ask(key, "lost", Mean("b"))
    assert refused.value.code == "key_reused"
    assert json.loads(analysts.ask(key, "lost", Mean("a")))["query"] == Mean("a").to_json()
