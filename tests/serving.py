"""A service for tests: real HTTP, real keys, a real ledger, and an engine that is easy to steer."""

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass, field

import httpx
import numpy as np
import uvicorn

from dpcvx.accounting import Budget
from dpcvx.ledger import Ledger
from dpcvx.queries.answer import Answer, Coefficient
from dpcvx.queries.schema import Attribute, Binned, Schema
from dpcvx.service.analysts import Analysts
from dpcvx.service.application import application
from dpcvx.service.connections import server_config
from dpcvx.service.database import ServiceDatabase

SCHEMA = Schema(
    (
        Attribute("sex", ("f", "m"), "m"),
        Binned("age", (20, 40, 60, 80), 50),
        Attribute("region", ("north", "south", "west"), "west"),
        Attribute("smokes", ("no", "yes"), "yes"),
    )
)
REGRESSION = {"kind": "regression", "target": "smokes", "features": ["age", "sex"]}


class Promise:
    """A statement that says enough for a page to show it."""

    def to_dict(self):
        meaning = "This run gives no guarantee."
        return {"meaning": meaning, "private": False, "not_covered": ["running time", "several rows"]}

    def to_json(self):
        return json.dumps(self.to_dict())


@dataclass
class Teller:
    """An engine without data: says what it is told to, and notes what it was asked."""

    schema: Schema = SCHEMA
    n: int = 1000
    budget: Budget = Budget(1.0, 1e-6)  # noqa: RUF009 - frozen
    remaining: float = 0.4
    comparisons: tuple = (3, 4)
    checked: bool = True
    note: str = ""
    branch: str = "histogram"
    number: float = 0.25
    seconds: float = 0.0
    problem: Exception | None = None
    asked: list = field(default_factory=list)
    askers: list = field(default_factory=list)
    inside: int = 0
    most_inside: int = 0
    gate: threading.Event | None = None

    def ask(self, query, key=None):
        return self.answer(query.compile(self.schema, self.n), key)

    def place(self, key):
        return None

    def measurements_by(self, name):
        return sum(self.branch == "oracle" and key.startswith(f"{name}.") for _, key in self.asked)

    def answer(self, compiled, key=None, asker=None, record=None):
        query = compiled.description
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            self.asked.append((query, key))
            self.askers.append(asker)
            if self.gate is not None:
                self.gate.wait(30)
            time.sleep(self.seconds)
            if self.problem is not None:
                raise self.problem
            reading, at = query.reading(self.schema, self.n), self.number
            values = [
                Coefficient(name, 0.0)
                if known
                else Coefficient(name, at, 1.0, at - 1, at + 1, 1.0, at - 2, at + 2)
                for name, known in zip(reading.names, reading.known, strict=True)
            ]
            return Answer(
                query=query.to_json(),
                coefficients=tuple(values),
                coded=(self.number,) * len(compiled.names),
                branch=self.branch,
                error=self.number,
                error_bound=2 * self.number,
                confidence=0.95,
                covered_by="comparison",
                interval_by="prediction",
                typical=3 * self.number,
                checked=self.checked,
                remaining=self.remaining,
                private=True,
                comparable=self.comparisons[1] > 0,
                people=self.n,
                unit="record",
                note=self.note,
            )
        finally:
            self.inside -= 1

    noun: str = "record"
    often_missing: dict = field(default_factory=dict)

    def statement(self):
        return Promise()

    def synthetic(self, rows, rng=None):
        if self.problem is not None:
            raise self.problem
        return {name: np.repeat(self.schema[name].units[:1], rows) for name in self.schema.names}


def make_analysts(folder, engine=None, account="people"):
    """A analysts on a ledger in a folder; the same account again if it is there already."""
    ledger = Ledger(folder / "ledger.db")
    if not (folder / "ledger.db").exists():
        ledger.create(account, epsilon=1.0, delta=1e-6)
    return Analysts(engine or Teller(), ServiceDatabase(ledger.url, account))


@contextlib.contextmanager
def serving(app):
    """Serve an application on a free port; yields its address."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = uvicorn.Server(server_config(app, grace=10, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextlib.contextmanager
def visitor(analysts, *, slot=0.01, **key):
    """An HTTP client with a fresh key at a served analysts."""
    with serving(application(analysts, slot=slot)) as address:
        _, text = analysts.keys.create("ann", **key)
        headers = {"Authorization": f"Bearer {text}"}
        with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
            yield client
