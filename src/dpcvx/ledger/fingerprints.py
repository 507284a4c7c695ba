"""Keyed fingerprints of the people of an account, for the data owner's eyes only.

A fingerprint is computed from records without noise. It stays in the ledger's store, no entry of the chain
and no backup holds it, and nothing that an analyst can see may depend on it.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from dpcvx.ledger.database import fingerprint_key_table, fingerprint_table, writing
from dpcvx.words import quantity

__all__ = ["Declared", "PeopleSketch", "recognise_people"]

SIZE = 1024  # smallest hashes that are kept; an overlap is known to about 1/sqrt(SIZE)
ALL, SOME, FEW = 0.99, 0.5, 0.1  # overlaps: everybody, the same file with changes, worth a line
MODULUS = 1 << 128


@dataclass(frozen=True)
class Declared:
    """Public facts that a fingerprint is stored with."""

    unit: str  # "row" or "person"
    schema: str  # digest of the schema
    population: str = ""  # the owner's name of the population; accounts of one name are its batches


@dataclass(frozen=True)
class PeopleSketch:
    """Fingerprint of a set of people: enough to estimate how many are in two sets."""

    n: int
    distinct: int  # rows that differ, or persons
    total: int  # sum of all hashes: equal for equal tables, whatever their order
    smallest: tuple[int, ...]

    @classmethod
    def of(cls, people: Iterable[str], key: bytes) -> PeopleSketch:
        """Return the sketch of people, each given as a text; equal texts are told apart by their number."""
        seen: Counter[str] = Counter()
        hashes = []
        for each in people:
            seen[each] += 1
            text = f"{seen[each]}\x1e{each}".encode(errors="surrogatepass")
            hashes.append(int.from_bytes(hashlib.blake2b(text, digest_size=16, key=key).digest()))
        return cls(len(hashes), len(seen), sum(hashes) % MODULUS, tuple(heapq.nsmallest(SIZE, hashes)))

    @property
    def alike(self) -> bool:
        """Whether rows are too much alike to tell people by them."""
        return 2 * self.distinct < self.n

    def share_in(self, other: PeopleSketch) -> float:
        """Return about which share of these people is in another set; exactly 1 if all of them are.

        Of both sets all hashes up to the smaller one of their largest kept ones are known, which are a random
        sample of people.
        """
        reach = min(sketch.smallest[-1] if sketch.n > SIZE else MODULUS for sketch in (self, other))
        sample, theirs = [each for each in self.smallest if each <= reach], set(other.smallest)
        return sum(each in theirs for each in sample) / max(1, len(sample))


def recognise_people(url: str, account: str, people: Iterable[str], declared: Declared) -> tuple[str, ...]:
    """Compare people with those of the account's last start and of other accounts; store their fingerprint.

    Returns sentences for the data owner's console, which depend on records without noise.

    `url`: of the ledger; `people`: one text for each, their id or their whole row.
    """
    with writing(url) as connection:
        for table in (fingerprint_table, fingerprint_key_table):
            table.create(connection, checkfirst=True)  # earlier versions have none
        key = connection.execute(sa.select(fingerprint_key_table.c.key)).scalar()
        if key is None:
            key = secrets.token_bytes(32)
            connection.execute(fingerprint_key_table.insert(), {"id": 1, "key": key})
    sketch = PeopleSketch.of(people, bytes(key))
    with writing(url) as connection:
        known = {
            row.account: _read(bytes(row.content)) for row in connection.execute(sa.select(fingerprint_table))
        }
        connection.execute(fingerprint_table.delete().where(fingerprint_table.c.account == account))
        content = json.dumps({"sketch": asdict(sketch), "declared": asdict(declared)}).encode()
        connection.execute(fingerprint_table.insert(), {"account": account, "content": content})
    words = []
    if account in known:
        words += _changes(sketch, declared, *known.pop(account))
    for name, (other, said) in sorted(known.items()):
        words += _elsewhere(name, sketch, declared, other, said)
    return tuple(words)


def _read(content: bytes) -> tuple[PeopleSketch, Declared]:
    stored = json.loads(content)
    sketch = stored["sketch"]
    return PeopleSketch(**{**sketch, "smallest": tuple(sketch["smallest"])}), Declared(**stored["declared"])


def _changes(new: PeopleSketch, declared: Declared, old: PeopleSketch, said: Declared) -> list[str]:
    if declared.unit != said.unit:
        return [f"the unit was a {said.unit} at the last start and is a {declared.unit} now"]
    if (new.n, new.total) == (old.n, old.total):
        return []
    if new.alike or old.alike:
        return [
            "the table is not that of the last start; its rows are too much alike to say how many people are "
            "the same"
        ]
    if new.n > old.n and old.share_in(new) >= ALL:
        return [
            f"more rows: the {quantity(old.n, declared.unit)} of the last start are in this table, and "
            f"{new.n - old.n:,} more. Serve the new ones alone, under an account of their own and the same "
            "--population: then each person has the guarantee of their own batch"
        ]
    share = new.share_in(old)
    if share >= SOME:
        return [
            f"changed file: about {share:.0%} of the {declared.unit}s are those of the last start. "
            "A server that continues still uses earlier measurements, which were made on the earlier file"
        ]
    return [
        f"other people: about {share:.0%} of the {declared.unit}s are those of the last start. Give another "
        "--account for other people"
    ]


def _elsewhere(
    name: str, new: PeopleSketch, declared: Declared, other: PeopleSketch, said: Declared
) -> list[str]:
    batch = bool(declared.population) and declared.population == said.population
    if new.alike or other.alike or declared.unit != said.unit:
        return []
    share = max(new.share_in(other), other.share_in(new))
    if share >= FEW:
        promised = f"; they were declared as batches of {declared.population!r}" * batch
        return [
            f"about {share:.0%} of the people of one table are in the other, account {name!r}, "
            f"too{promised}. For them the guarantees of both accounts add up"
        ]
    if batch:
        return [f"batch of {declared.population!r}, as account {name!r}; hardly anybody is in both"]
    return []
