"""Many analysts at a real server: is every question answered, and charged exactly once?

    python benchmarks/service_load.py --analysts 50 --minutes 5 [--wrong-keys 60]

Each analyst has a key, asks random questions without a pause, and repeats one in five with the same
idempotency key, half of them while the first is under way. At the end the ledger's file is compared with
what the analysts saw. Exits with 1 if anything was lost, changed or charged twice. With --wrong-keys one good
key first asks alone, and then beside so many connections that send wrong keys.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import sqlalchemy as sa

from dpcvx.ledger import Ledger
from dpcvx.service.keys import open_keys

N = 20_000
NAMES = [f"x{k}" for k in range(8)]
LIMIT = 1000  # answers that one look at the history returns


def write_people(folder: Path) -> None:
    """Eight attributes with two levels; two are parities of three others, which no three show."""
    rng = np.random.default_rng(0)
    x = (rng.random((N, 8)) < np.linspace(0.2, 0.6, 8)).astype(int)
    x[:, 6] = x[:, 1] ^ x[:, 2] ^ x[:, 3]
    x[:, 7] = x[:, 0] ^ x[:, 4] ^ x[:, 5]
    np.savetxt(folder / "people.csv", x, fmt="%d", delimiter=",", header=",".join(NAMES), comments="")
    sections = "\n".join(f'[attributes.{name}]\nlevels = ["0", "1"]\nother = "1"' for name in NAMES)
    (folder / "schema.toml").write_text(sections)


def question(rng: random.Random) -> dict[str, object]:
    target, *rest = rng.sample(NAMES, 5)
    kind = rng.choice(["regression", "count", "mean", "marginal"])
    if kind == "regression":
        return {"kind": kind, "target": target, "features": rest, "radius": rng.choice([1.0, 2.0, 3.0])}
    if kind == "count":
        return {"kind": kind, "where": {name: [rng.choice("01")] for name in rest}}
    if kind == "mean":
        return {"kind": kind, "of": target, "where": {rest[0]: ["1"]}}
    return {"kind": kind, "attributes": rest}


class Analyst:
    """Asks until told to stop, and remembers every byte of every answer."""

    def __init__(self, number: int, address: str, key: str, end: float) -> None:
        self.rng, self.address, self.end = random.Random(number), address, end
        self.headers = {"Authorization": f"Bearer {key}"}
        self.answers: dict[str, bytes] = {}
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.changed = self.busy = 0

    def __call__(self) -> None:
        with httpx.Client(base_url=f"{self.address}/api/v1", headers=self.headers, timeout=600) as http:
            while time.monotonic() < self.end:
                key, asked = f"{self.rng.getrandbits(64):x}", question(self.rng)
                if self.rng.random() < 0.1:  # twice at the same time
                    with ThreadPoolExecutor(2) as pool:
                        both = list(pool.map(lambda _: self.ask(http, key, asked), range(2)))  # noqa: B023
                    self.changed += both[0] != both[1]
                else:
                    self.ask(http, key, asked)
                    if self.rng.random() < 0.1:  # again
                        self.changed += self.ask(http, key, asked) != self.answers.get(key)

    def ask(self, http: httpx.Client, key: str, asked: dict[str, object]) -> bytes | None:
        started = time.monotonic()
        response = http.post("/queries", json=asked, headers={"Idempotency-Key": key})
        while response.status_code == 503 and response.json()["code"] == "busy":  # as the client does
            self.busy += 1
            time.sleep(float(response.headers["Retry-After"]))
            response = http.post("/queries", json=asked, headers={"Idempotency-Key": key})
        self.seconds.append(time.monotonic() - started)
        self.statuses[response.status_code] += 1
        if response.status_code != 200:
            return None
        return self.answers.setdefault(key, response.content)


def wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            httpx.get(f"{address}/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise SystemExit("the server ended")


def memory(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Memory of the server now and at most so far, in MiB; zeros where the system does not tell."""
    try:
        lines = dict(
            line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        )
        return int(lines["VmRSS"].split()[0]) >> 10, int(lines["VmHWM"].split()[0]) >> 10
    except (OSError, KeyError):
        return 0, 0


def beside_wrong_keys(address: str, text: str, connections: int) -> None:
    """Print the times of one good key alone, and beside connections that send wrong keys."""
    headers = {"Authorization": f"Bearer {text}"}

    def times(path: str, count: int, body: dict[str, object] | None = None) -> str:
        taken = []
        with httpx.Client(base_url=f"{address}/api/v1", headers=headers, timeout=60) as http:
            for _ in range(count):
                started = time.perf_counter()
                http.request("GET" if body is None else "POST", path, json=body).raise_for_status()
                taken.append(time.perf_counter() - started)
        return f"{path} median {np.median(taken):.4f}, 99 % {np.quantile(taken, 0.99):.4f}"

    def report(words: str) -> None:
        asked: dict[str, object] = {"kind": "count", "where": {"x0": ["1"]}}
        print(f"{words}: {times('/schema', 500)}; {times('/queries', 100, asked)} s", flush=True)

    report("a good key alone")
    script = Path(__file__).parents[1] / "tests" / "wrong_keys.py"
    command = [sys.executable, str(script), address.rsplit(":", 1)[1], str(connections)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdout is not None
        crowd.stdout.readline()
        time.sleep(2)
        report(f"beside {connections} connections with wrong keys")
        crowd.communicate("")


def faults(folder: Path, analysts: list[Analyst], ids: list[str]) -> list[str]:
    """What is wrong in the ledger's file, compared with what the analysts saw."""
    found = []
    ledger = Ledger(folder / "ledger.db")
    ledger.verify()
    account = ledger.account("people")
    if len(account.history()) != 1 or not 0 < account.used <= 1:
        found.append(f"{len(account.history())} charges, {account.used} of the cap used")
    engine = sa.create_engine(ledger.url)
    with engine.connect() as connection:
        asked = connection.execute(sa.text("SELECT key, idempotency, answer FROM service_questions")).all()
        notes = connection.execute(sa.text("SELECT key, answer FROM entries WHERE kind = 'note'")).all()
    engine.dispose()
    # A row names the note that holds its answer.
    texts = {row.key: bytes(row.answer) for row in notes}
    stored = {
        (row.key, row.idempotency): texts.get(bytes(row.answer).decode(), b"")
        for row in asked
        if row.key in ids
    }
    seen = {(id, key): a for id, one in zip(ids, analysts, strict=True) for key, a in one.answers.items()}
    if lost := [pair for pair, answer in seen.items() if stored.get(pair) != answer.rstrip()]:
        found.append(f"{len(lost)} answers that were sent are not stored as they were sent")
    if len(stored) != len(seen):
        found.append(f"{len(stored)} answers stored, {len(seen)} seen")
    kept = [(row.key.split()[1], row.answer) for row in notes]
    answers = [json.loads(content) for kind, content in kept if kind == "answer"]
    others = sum(row.key not in ids for row in asked)
    measured = sum(answer["branch"] == "oracle" for answer in answers)
    kinds = Counter(kind for kind, _ in kept)
    if kinds["answer"] != len(seen) + others or kinds["update"] != measured:
        found.append(
            f"{kinds['answer']} answers of {len(seen)}; {kinds['update']} updates for {measured} measurements"
        )
    print(f"answers by branch: {dict(Counter(answer['branch'] for answer in answers))}; {dict(kinds)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--analysts", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--slot", type=float, default=0.25)
    parser.add_argument("--wrong-keys", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as taken:
        folder, port = Path(name), taken.getsockname()[1]
        taken.close()
        write_people(folder)
        words = ["serve", "people.csv", "--schema", "schema.toml", "--epsilon", "2", "--ledger", "ledger.db"]
        words += ["--port", str(port), "--slot", str(given.slot), "--witness", "witness"]
        program = [sys.executable, "-c", "from dpcvx.cli import main; main()", *words]
        with subprocess.Popen(program, cwd=folder) as process:
            address = f"http://127.0.0.1:{port}"
            wait_until_ready(address, process)
            keys = open_keys(folder / "ledger.db", "people")
            made = [
                keys.create(f"analyst {k}", per_minute=10**6, per_day=10**9) for k in range(given.analysts)
            ]
            started_with = memory(process)[0]
            if given.wrong_keys:
                beside_wrong_keys(address, keys.create("good", per_minute=10**6)[1], given.wrong_keys)
            end = time.monotonic() + 60 * given.minutes
            analysts = [Analyst(k, address, text, end) for k, (_, text) in enumerate(made)]
            threads = [threading.Thread(target=analyst) for analyst in analysts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            now, most = memory(process)
            print(f"memory of the server in MiB: {started_with} at first, {now} at the end, {most} at most")
            process.terminate()
        found = faults(folder, analysts, [key.id for key, _ in made])
    statuses = sum((analyst.statuses for analyst in analysts), Counter())
    if set(statuses) != {200}:
        found.append(f"statuses {dict(statuses)}")
    if changed := sum(analyst.changed for analyst in analysts):
        found.append(f"{changed} repeated questions got other bytes")
    print(f"refused as busy, and sent again: {sum(analyst.busy for analyst in analysts)}")
    seconds = np.array([s for analyst in analysts for s in analyst.seconds])
    questions = sum(len(analyst.answers) for analyst in analysts)
    print(
        f"{given.analysts} analysts, {given.minutes:g} minutes: {questions:,} questions, {len(seconds):,} "
        f"requests, {questions / (60 * given.minutes):.1f} questions a second; seconds per request: median "
        f"{np.median(seconds):.2f}, 99 % {np.quantile(seconds, 0.99):.2f}, longest {seconds.max():.2f}"
    )
    print("\n".join(found) or "nothing lost, nothing changed, nothing charged twice")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
