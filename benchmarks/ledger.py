"""Durable charges beside bare transactions of SQLite, and how much of a cap the filters lose.

    python benchmarks/ledger.py [--rounds 15] [--folder on_the_disk_to_measure]

Charges and bare transactions take turns, on the same disk and with the same settings.
"""

import argparse
import math
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from dpcvx.accounting import RDP, Budget, gaussian_mu
from dpcvx.events import Compose, Event, Exponential, Gaussian, PureDP, Repeat
from dpcvx.ledger import Account, Ledger
from dpcvx.ledger.filters import FRESH, admit

EACH = 40  # transactions in a round


def bare(connection: sqlite3.Connection) -> float:
    """Rate of one-row transactions."""
    start = time.perf_counter()
    for _ in range(EACH):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO charges (content) VALUES ('a charge')")
        connection.execute("COMMIT")
    return EACH / (time.perf_counter() - start)


def charges(account: Account) -> float:
    start = time.perf_counter()
    for _ in range(EACH):
        account.charge(Gaussian(1e5), purpose="benchmark")
    return EACH / (time.perf_counter() - start)


def rates(folder: Path, rounds: int) -> None:
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    for pragma in ("journal_mode=DELETE", "synchronous=EXTRA", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, content TEXT)")
    plain = Ledger(folder / "plain.db").create("a", epsilon=1000.0, delta=1e-6)
    told = Ledger(folder / "told.db", witness=folder / "witness").create("a", epsilon=1000.0, delta=1e-6)
    bare(connection), charges(plain), charges(told)
    found = [(bare(connection), charges(plain), charges(told)) for _ in range(rounds)]
    names = ("BEGIN IMMEDIATE .. COMMIT", "charges", "charges with a witness file")
    for i, name in enumerate(names):
        rate = statistics.median(row[i] for row in found)
        ratio = statistics.median(row[i] / row[0] for row in found)
        bar = "  (bar: 0.3)" if i == 1 else ""
        print(f"{name:<28} {rate:8.0f} a second   {ratio:5.2f} of bare{bar}")
    connection.close()


def granted(cap: Budget, event: Event) -> int:
    spending, count = FRESH, 0
    while (after := admit(cap, spending, event)) is not None:
        spending, count = after, count + 1
    return count


def known_in_advance(cap: Budget, event: Event) -> int:
    """How often the event fits if the number is fixed before the first answer, by Rényi accounting."""
    count = 1
    while RDP().epsilon(Repeat(event, count + 1), cap.delta) <= cap.epsilon:
        count += 1
    return count


def losses() -> None:
    print("\nreleases granted, chosen one by one, of those that fit if their number is fixed in advance")
    print(f"{'cap':<20}{'event':<34}{'granted':>8}{'fixed':>8}")
    for cap in (Budget(1.0, 1e-6), Budget(0.1, 1e-6), Budget(8.0, 1e-6), Budget(1.0, 1e-10)):
        mu = gaussian_mu(cap.epsilon, cap.delta)
        for count in (10, 100, 1000):
            fitting = granted(cap, Gaussian(math.sqrt(count) / mu))
            row(cap, f"Gaussian, mu^2 of the cap / {count}", fitting, count)
        size = mu / 10
        for name, event in (
            ("Exponential of that size", Exponential(2 * size)),
            ("PureDP of that size", PureDP(size)),
            ("Gaussian + Exponential", Compose((Gaussian(1 / size), Exponential(2 * size)))),
        ):
            row(cap, name, granted(cap, event), known_in_advance(cap, event))


def row(cap: Budget, name: str, found: int, fixed: int) -> None:
    print(f"{f'({cap.epsilon:g}, {cap.delta:g})':<20}{name:<34}{found:>8}{fixed:>8}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rates(Path(folder), arguments.rounds)
    losses()


if __name__ == "__main__":
    main()
