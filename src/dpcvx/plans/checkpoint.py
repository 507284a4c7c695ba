"""Checkpoints: a file with the released answers of a run, so that a killed run goes on where it stopped.

Released answers are public, so they may be stored; the state of a generator is not, and later questions draw
fresh noise. The price of a plan covers one answer to each of its questions. Two answers to the same question
would come from a process that dies after somebody saw an answer that was not stored, from an old copy of the
file, or from two processes that continue the same file. Hence:

1. Answers are written in parts. An answer that is in memory only was seen by nobody, and may be drawn again.
   A part is on the disk before anybody sees it.
2. A run that is charged to an account seals each part with a key of its own, writes it, and then writes the
   key into the ledger as the only note of that number. Until then nobody can read the part, and a ledger
   takes each note once: of two processes one is refused, and its answers stay sealed. A file with fewer parts
   than the ledger has keys is an old copy and is refused.
3. Without an account the parts lie open. One process at a time can use the file, but an old copy of it cannot
   be told from the newest one: keep one copy.

The records cannot be compared with those of the first part, because nothing of them is stored. If they have
changed the guarantee holds all the same: let D_1, ..., D_T be the records that the T questions were asked
about. A person is one record of each D_t, the noise of question t covers the replacement of one record of
D_t, whatever the earlier answers were, and so adaptive composition over the T questions gives the plan's
price for a neighbour that replaces the person in all of them. The model is a mixture of both, though.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.errors import Incompatible, Unreadable, WrongType, WrongValue
from dpcvx.mechanisms import SecondMoments, Vertex

if TYPE_CHECKING:
    from dpcvx.ledger import Account
    from dpcvx.plans.plan import Plan

__all__ = ["Checkpoint", "CheckpointFile", "decode", "digest", "encode"]

FORMAT = "dpcvx.checkpoint 1"
KEY_BYTES = 32
OBJECTS: dict[str, Any] = {kind.__name__: kind for kind in (SecondMoments, Vertex)}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where the answers of a run are stored, and what the run is about besides its plan.

    Parameters
    ----------
    path : Path
        File to write. If it exists, the run that it belongs to is continued.
    about : tuple
        Public facts that the plan does not hold, such as the bounds of columns in the user's units.
    shortest : float
        Seconds; a plan that is expected to take less starts no checkpoint.
    """

    path: Path
    about: tuple[Any, ...] = ()
    shortest: float = 0.0

    def open(self, plan: Plan, payer: Account | None, *, private: bool) -> CheckpointFile | None:
        """Open the file, or create it, and keep other processes out; None where the plan is too short.

        `payer`: the account that the run is charged to; `private`: whether its noise is cryptographic.
        """
        if plan.seconds < self.shortest and not self.path.exists():
            return None
        return CheckpointFile(self, plan, payer, private=private)


class CheckpointFile:
    """An open checkpoint: the parts that are stored, and room for more.

    `key`: name of the charge in the ledger; None without an account. `created`: whether the file is new.
    """

    path: Path
    created: bool
    key: str | None

    def __init__(self, checkpoint: Checkpoint, plan: Plan, payer: Account | None, *, private: bool) -> None:
        self.path, self._payer = checkpoint.path, payer
        self._stored = 0
        facts = (plan.stages, plan.before, plan.problem, plan.n, plan.solver, plan.budget)
        wanted = {
            "format": FORMAT,
            "fit": digest([_facts(each) for each in (*facts, *checkpoint.about)]),
            "account": None if payer is None else payer.name,
            "private": private,
        }
        self.created = not self.path.exists()
        self._file = self._connect()
        try:
            found = self._header()
            if found is None:
                self.key = None if payer is None else f"checkpoint {os.urandom(16).hex()}"
                self._write("INSERT INTO header VALUES (?)", (json.dumps({**wanted, "key": self.key}),))
            else:
                self._check(found, wanted)
                self.key = found["key"]
                self._check_charge()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        try:
            # For its owner alone; files of the database beside it have the same mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            file = sqlite3.connect(self.path, timeout=0.0, isolation_level=None)
        except (sqlite3.Error, OSError):
            raise Unreadable(f"The checkpoint {self.path} cannot be opened or written.") from None
        try:
            # The lock is kept until the file is closed. EXTRA syncs the folder too.
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=DELETE", "synchronous=EXTRA"):
                file.execute(f"PRAGMA {pragma}")
            file.execute("BEGIN EXCLUSIVE")
            file.execute("CREATE TABLE IF NOT EXISTS header (content TEXT NOT NULL)")
            file.execute(
                "CREATE TABLE IF NOT EXISTS parts (number INTEGER PRIMARY KEY, content BLOB NOT NULL)"
            )
            file.execute("COMMIT")
        except sqlite3.OperationalError as problem:
            file.close()
            if "locked" in str(problem):
                raise Incompatible(
                    f"Another process uses the checkpoint {self.path}: wait for it, or end it."
                ) from None
            raise Unreadable(f"The checkpoint {self.path} cannot be opened or written.") from None
        except sqlite3.Error:
            file.close()
            raise WrongValue(f"{self.path} is no checkpoint, or it is damaged.") from None
        return file

    def _header(self) -> dict[str, Any] | None:
        """Return the header; None if the file is new, or its process was stopped before it wrote one."""
        rows = self._file.execute("SELECT content FROM header").fetchall()
        if not rows:
            return None
        try:
            found = json.loads(rows[0][0])
            if found["format"] != FORMAT:
                raise WrongValue(f"The checkpoint {self.path} has another format: {found['format']!r}.")
            return {name: found[name] for name in ("fit", "account", "private", "key")}
        except (KeyError, TypeError, json.JSONDecodeError):
            raise WrongValue(f"{self.path} is no checkpoint, or it is damaged.") from None

    def _check(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Refuse to continue another run than this one."""
        if found["fit"] != wanted["fit"]:
            raise Incompatible(
                f"The checkpoint {self.path} belongs to another fit: its parameters, bounds, columns or "
                "number of records differ, or another version of dpcvx wrote it. Use what it was begun with; "
                "for a new fit choose another file, or delete this one."
            )
        if found["account"] != wanted["account"]:
            before, now = (
                "no account" if each["account"] is None else f"account {each['account']!r}"
                for each in (found, wanted)
            )
            raise Incompatible(
                f"The checkpoint {self.path} was begun with {before} and this fit has {now}: use the same, "
                "so that one charge covers the whole fit."
            )
        if found["private"] != wanted["private"]:
            kind = "cryptographic" if found["private"] else "seeded"
            raise Incompatible(
                f"The checkpoint {self.path} was begun with {kind} noise: go on with the same kind, or begin "
                "a new one."
            )

    def _check_charge(self) -> None:
        """Refuse a ledger that never saw the charge of a run with answers."""
        if self._payer is None or self._payer.receipt(str(self.key)) is not None:
            return
        if self._file.execute("SELECT 1 FROM parts").fetchone() is not None:
            raise Incompatible(
                f"The ledger has no charge of the fit in {self.path}: it is another ledger than the one that "
                "the fit was begun with, or an old copy. Give the right one."
            )

    def parts(self) -> Iterator[bytes]:
        """Yield the parts that were stored, in order; forget one whose key never reached the ledger."""
        rows = self._file.execute("SELECT number, content FROM parts ORDER BY number").fetchall()
        contents = [bytes(content) for _, content in rows]
        if [number for number, _ in rows] != list(range(len(rows))):
            raise WrongValue(f"{self.path} is no checkpoint, or it is damaged.")
        if self._payer is not None:
            notes = [note for _, note in self._payer.notes(f"{self.key} ")]
            if not len(notes) <= len(contents) <= len(notes) + 1:  # a kill may leave one without its key
                old = f"checkpoint {self.path}" if len(contents) < len(notes) else "ledger"
                raise Incompatible(
                    f"The {old} is an old copy: the ledger knows {len(notes)} parts of this fit, the "
                    f"checkpoint has {len(contents)}. The questions between them were answered already, and "
                    "each is answered once. Continue with the newest copies; if they are lost, fit again, "
                    "which is a new charge."
                )
            contents = [_unsealed(*pair, self.path) for pair in zip(contents, notes, strict=False)]
            self._write("DELETE FROM parts WHERE number >= ?", (len(notes),))
        self._stored = len(contents)
        yield from contents

    def append(self, content: bytes) -> None:
        """Store one more part; durable, and counted by the ledger, when it returns."""
        number, sealed = self._stored, content
        if self._payer is not None:
            key = os.urandom(KEY_BYTES)
            sealed = _masked(content, key)
        self._write("INSERT INTO parts VALUES (?, ?)", (number, sealed))
        if self._payer is not None:
            self._payer.note(f"{self.key} {number}", key + hashlib.sha256(content).digest())
        self._stored += 1

    def _write(self, command: str, values: tuple[Any, ...]) -> None:
        try:
            self._file.execute("BEGIN EXCLUSIVE")
            self._file.execute(command, values)
            self._file.execute("COMMIT")
        except sqlite3.Error:
            raise Unreadable(
                f"The checkpoint {self.path} cannot be written: is the disk full, or was the file moved?"
            ) from None

    def close(self) -> None:
        """Close the file; another process may then continue it."""
        self._file.close()

    def discard(self) -> None:
        """Remove a file that holds nothing."""
        self.close()
        self.path.unlink(missing_ok=True)


def _masked(content: bytes, key: bytes) -> bytes:
    """Return content xor a stream of SHAKE-256, which nobody can compute without the key."""
    stream = hashlib.shake_256(key).digest(len(content))
    return (np.frombuffer(content, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()


def _unsealed(sealed: bytes, note: bytes, path: Path) -> bytes:
    content = _masked(sealed, note[:KEY_BYTES])
    if hashlib.sha256(content).digest() != note[KEY_BYTES:]:
        raise Incompatible(
            f"A part of the checkpoint {path} is not the one that the ledger knows: the file was edited, or "
            "is a copy that another process continued. Continue with the newest copy."
        )
    return content


def digest(content: Any) -> str:
    """Return the SHA-256 of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def encode(value: Any) -> Any:
    """Return an answer, or a public argument, as JSON can hold it, to the last bit."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": value.dtype.str, "shape": list(value.shape), "content": content}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [encode(each) for each in value]}
    if type(value).__name__ in OBJECTS and type(value) is OBJECTS[type(value).__name__]:
        return {
            "object": type(value).__name__,
            "fields": {name: encode(v) for name, v in vars(value).items()},
        }
    raise WrongType(
        f"A checkpoint cannot hold a {type(value).__name__}, which this solver asks with or is answered by: "
        "use arrays, numbers and tuples, or fit without a checkpoint."
    )


def decode(content: Any) -> Any:
    """Return the value that `encode` was given."""
    if not isinstance(content, dict):
        return content
    if "array" in content:
        flat = np.frombuffer(base64.b64decode(content["content"]), np.dtype(content["array"]))
        array = flat.reshape(content["shape"]).copy()
        return array if array.ndim else array[()]
    if "tuple" in content:
        return tuple(decode(each) for each in content["tuple"])
    return OBJECTS[content["object"]](**{name: decode(v) for name, v in content["fields"].items()})


def _facts(value: Any) -> Any:
    """Return a public object as JSON can hold it, for its hash alone."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        plain = value.tolist() if value.dtype.kind == "O" else hashlib.sha256(value.tobytes()).hexdigest()
        return [value.dtype.str, list(value.shape), _facts(plain)]
    if isinstance(value, Mapping):
        return [[_facts(key), _facts(item)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_facts(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [type(value).__qualname__, {name: _facts(each) for name, each in named.items()}]
    return getattr(value, "__qualname__", type(value).__qualname__)
