"""The public transcript of an engine: its releases in order, from which a restarted engine continues."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.marginals import Measurement

if TYPE_CHECKING:
    from dpcvx.ledger import Account, SecretChange


@dataclass(frozen=True)
class TranscriptEntry:
    """One release of an engine, or the start of a run of comparisons."""

    kind: str
    key: str
    content: bytes


UNCHANGED: tuple[bytes | None, bytes | None] = (None, None)
Recorder: TypeAlias = Callable[[Any], None]  # is given the connection of a ledger's transaction


class EngineTranscript(Protocol):
    """Entries in order. An entry is durable when `append` returns."""

    def append(
        self,
        kind: str,
        key: str,
        content: bytes = b"",
        *,
        run: tuple[bytes | None, bytes | None] = UNCHANGED,
        record: Recorder | None = None,
    ) -> None:
        """Add an entry, and replace the kept state of a run with it: the state before, and after.

        `record`: writes more in the transaction of a ledger; not called where there is none.
        """
        ...

    def keep_run(self, before: bytes | None, after: bytes | None) -> None:
        """Replace the kept state of a run of comparisons, which is private; durable when it returns."""
        ...

    def read_run(self) -> bytes | None:
        """Return the state of the run that a new start may continue, or None."""
        ...

    def entries(self) -> list[TranscriptEntry]:
        """Return everything but answers."""
        ...

    def answer(self, key: str) -> bytes | None:
        """Return the answer of a key, or None."""
        ...

    def place(self, key: str) -> str | None:
        """Return the name of the ledger's note that holds the answer of a key; None without a ledger."""
        ...


class MemoryTranscript:
    """A transcript in memory, lost with the process."""

    def __init__(self) -> None:
        self._entries: list[TranscriptEntry] = []
        self._answers: dict[str, bytes] = {}
        self._run: bytes | None = None

    def append(
        self,
        kind: str,
        key: str,
        content: bytes = b"",
        *,
        run: tuple[bytes | None, bytes | None] = UNCHANGED,
        record: Recorder | None = None,
    ) -> None:
        """Add an entry."""
        if run != UNCHANGED:
            self.keep_run(*run)
        if kind == "answer":
            self._answers[key] = content
        else:
            self._entries.append(TranscriptEntry(kind, key, content))

    def keep_run(self, before: bytes | None, after: bytes | None) -> None:
        """Replace the state of the run."""
        if (before, after) != UNCHANGED:
            self._run = after

    def read_run(self) -> bytes | None:
        """Return the state of the run."""
        return self._run

    def entries(self) -> list[TranscriptEntry]:
        """Return everything but answers."""
        return list(self._entries)

    def answer(self, key: str) -> bytes | None:
        """Return the answer of a key, or None."""
        return self._answers.get(key)

    def place(self, key: str) -> str | None:
        """Return None: there is no ledger."""
        return None


class LedgerTranscript:
    """A transcript in the hash chain of an account's ledger, which shows if an old copy was restored.

    The state of a run of comparisons is stored only if there is a witness, and kept in memory otherwise.
    Without a witness an old copy of the ledger would be taken for the newest, and a run that had ended would
    go on with the same threshold.

    `engine`: digest of the engine's public plan: another plan has another transcript.
    """

    def __init__(self, account: Account, engine: str) -> None:
        self._account, self._engine = account, engine
        self._stored = account.ledger.witness is not None
        self._run: bytes | None = None  # where it is not stored

    def append(
        self,
        kind: str,
        key: str,
        content: bytes = b"",
        *,
        run: tuple[bytes | None, bytes | None] = UNCHANGED,
        record: Recorder | None = None,
    ) -> None:
        """Add an entry; durable when it returns. A run whose entry could not be written does not exist."""
        self._account.note(self._name(kind, key), content, self._change(*run), record)
        self._remember(*run)

    def keep_run(self, before: bytes | None, after: bytes | None) -> None:
        """Replace the state of the run; refused if another process did, or if the account is not open."""
        change = self._change(before, after)
        if change is None:
            self._account.require_open()
        else:
            self._account.keep(change)
        self._remember(before, after)

    def read_run(self) -> bytes | None:
        """Return the state of the run; refuse an old copy of the ledger."""
        state = self._account.read_secret(self._run_key)
        if self._stored:
            return state
        if state is not None:  # of a start with a witness: over, because this may be an old copy
            from dpcvx.ledger import SecretChange

            self._account.keep(SecretChange(self._run_key, state, None))
        return self._run

    def _change(self, before: bytes | None, after: bytes | None) -> SecretChange | None:
        if (before, after) == UNCHANGED or not self._stored:
            return None
        from dpcvx.ledger import SecretChange

        return SecretChange(self._run_key, before, after)

    def _remember(self, before: bytes | None, after: bytes | None) -> None:
        if (before, after) != UNCHANGED and not self._stored:
            self._run = after

    @property
    def _run_key(self) -> str:
        return self._name("run", "")

    def entries(self) -> list[TranscriptEntry]:
        """Return everything but answers, which the witness knows from now on; refuse an old copy."""
        self._account.ledger.check()
        found = []
        for name, content in self._account.notes(f"{self._engine} "):
            _, kind, key = name.split(" ", 2)
            if kind != "answer":
                found.append(TranscriptEntry(kind, key, content))
        return found

    def answer(self, key: str) -> bytes | None:
        """Return the answer of a key, or None."""
        return self._account.read_note(self._name("answer", key))

    def place(self, key: str) -> str | None:
        """Return the name of the ledger's note that holds the answer of a key."""
        return self._name("answer", key)

    def _name(self, kind: str, key: str) -> str:
        return f"{self._engine} {kind} {key}"


def pack(**named: Vector) -> bytes:
    """Return arrays as bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **named)
    return buffer.getvalue()


def arrays(content: bytes) -> dict[str, Vector]:
    """Read what `packed` wrote; nothing is executed."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def pack_measurements(group: tuple[Measurement, ...]) -> bytes:
    """Return released means as bytes."""
    named: dict[str, Vector] = {"count": np.array(len(group))}
    for i, m in enumerate(group):
        named[f"{i}.attributes"] = np.array(m.attributes)
        named[f"{i}.values"] = m.values
        named[f"{i}.deviation"] = np.array(m.deviation)
        for j, features in enumerate(m.features):
            named[f"{i}.features.{j}"] = features
    return pack(**named)


def measurements(content: bytes) -> tuple[Measurement, ...]:
    """Read what `packed_measurements` wrote."""
    stored = arrays(content)

    def features(i: int) -> Iterator[Vector]:
        j = 0
        while (name := f"{i}.features.{j}") in stored:
            yield stored[name]
            j += 1

    return tuple(
        Measurement(
            tuple(stored[f"{i}.attributes"].tolist()),
            tuple(features(i)),
            stored[f"{i}.values"],
            float(stored[f"{i}.deviation"]),
        )
        for i in range(int(stored["count"]))
    )
