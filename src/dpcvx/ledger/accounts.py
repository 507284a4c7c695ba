"""Durable accounts of the budget spent on a data set: charge, then compute, never refund."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpcvx.accounting import Budget, budget_of
from dpcvx.errors import (
    AccountNotOpen,
    BudgetExceeded,
    DeadKey,
    Incompatible,
    LedgerDamaged,
    WrongType,
    WrongValue,
)
from dpcvx.events import Event, Poisson, count_leaves, to_plain, walk
from dpcvx.ledger.account_entries import AccountEntries
from dpcvx.ledger.account_secrets import change_secret, read_secret
from dpcvx.ledger.account_statement import AccountStatement
from dpcvx.ledger.backup import copy_ledger
from dpcvx.ledger.chain import (
    FORMAT,
    AccountState,
    Entry,
    Receipt,
    SecretChange,
    append,
    canonical,
    digest,
    genesis,
)
from dpcvx.ledger.database import (
    OTHER_LEDGER,
    account_table,
    address,
    entry_table,
    head_table,
    metadata,
    preparing,
    reading,
    secret_table,
    writing,
)
from dpcvx.ledger.filters import FRESH, WHOLE, Spending, admit, remaining, requested
from dpcvx.ledger.fingerprints import Declared, recognise_people
from dpcvx.ledger.heads import read_head, tell_witness, witnessed_head
from dpcvx.ledger.verification import Verification, verify
from dpcvx.ledger.witness import Head, witness_at
from dpcvx.words import html_table

__all__ = ["Account", "Ledger"]

LONGEST = 1000  # characters of names, purposes and keys

# Made once: building a statement costs as much as running it.
_ACCOUNT = sa.select(account_table).where(account_table.c.name == sa.bindparam("wanted"))
_UPDATE = account_table.update().where(account_table.c.name == sa.bindparam("wanted"))


@dataclass(frozen=True, init=False, repr=False)
class Ledger:
    """Accounts in a file or on a server.

    A ledger is its address. Copies, pickles, clones and forked processes speak of the same accounts.

    Parameters
    ----------
    url : str or path, optional
        A path, ``sqlite:///file.db`` or ``postgresql://user@host/name``. By default ``dpcvx.db`` in the
        user's data folder.
    witness : str or path, optional
        A file, or the URL of a second store, that is told of every entry of this one ledger. With it an old
        copy of the ledger is refused; keep it apart from the ledger and its backups. Charges are refused too
        if the ledger has entries and the witness knows none of them; `start_witness` begins a new one.
    """

    url: str
    witness: str | None

    def __init__(
        self, url: str | os.PathLike[str] | None = None, *, witness: str | os.PathLike[str] | None = None
    ) -> None:
        place = None if witness is None else os.fspath(witness)
        if place is not None:
            place = address(place) if "://" in place else os.path.abspath(os.path.expanduser(place))
        object.__setattr__(self, "url", address(url))
        if place is not None and address(place) == self.url:
            raise WrongValue("The witness must be kept apart from the ledger: give it a place of its own.")
        object.__setattr__(self, "witness", place)

    def __repr__(self) -> str:
        witness = "" if self.witness is None else f", witness={_without_password(self.witness)!r}"
        return f"Ledger({_without_password(self.url)!r}{witness})"

    @property
    def _words(self) -> str:
        """The name of the ledger in messages: its file, or its address without a password."""
        place = self.url.removeprefix("sqlite:///")
        return f"ledger {_without_password(place)}"

    def _repr_html_(self) -> str:
        rows = [["account", "epsilon", "delta", "used"]]
        for name in self.accounts():
            account = Account(self, name)
            cap = account.budget
            rows.append([name, f"{cap.epsilon:g}", f"{cap.delta:.3g}", f"{account.used:.1%}"])
        return html_table(repr(self), (), rows)

    def create(
        self, name: str, *, epsilon: float, delta: float, relation: str = "replace", unit: str = "row"
    ) -> Account:
        """Open an account; its cap never changes.

        Parameters
        ----------
        name : str
            For instance the name of the data set.
        epsilon, delta : float
            The cap: the guarantee of everything that will ever be charged to the account.
        relation : {"replace", "add_remove"}
            Neighbouring relation of the cap and of every charge.
        unit : {"row", "person"}
            Unit that the cap protects: a row, or all rows of a person together. Charges of releases that
            protect another unit are refused.

        Returns
        -------
        Account
        """
        _check_text("name", name)
        cap = Budget(float(epsilon), float(delta), relation, unit)
        with preparing(self.url) as connection:
            metadata.create_all(connection)
            if connection.execute(sa.select(head_table.c.id)).first() is None:
                identity = uuid.uuid4().hex
                first = {"id": 1, "format": FORMAT, "identity": identity, "sequence": 0}
                connection.execute(head_table.insert(), {**first, "hash": genesis(identity)})
            head = self._lock(connection)
            if head.sequence == 0:
                self._tell(head)  # a witness that knows no entry of a ledger has therefore lost them
            known = sa.select(account_table.c.name).where(account_table.c.name == name)
            if connection.execute(known).first() is not None:
                raise Incompatible(f"The ledger has an account {name!r} already.")
            limits = {"epsilon": cap.epsilon, "delta": cap.delta, "relation": cap.relation_word}
            start = {"spending": canonical(FRESH.to_plain()), "used": 0, "failed": 0}
            connection.execute(account_table.insert(), {"name": name, **limits, **start})
            head = append(connection, head, name, "create", None, limits)[0]
        self._tell(head)
        return Account(self, name)

    def account(self, name: str) -> Account:
        """Return an account that exists."""
        if name not in (known := self.accounts()):
            raise Incompatible(
                f"The ledger has no account {name!r}; it has {', '.join(map(repr, known)) or 'none'}. "
                f"Make it with Ledger.create or dpcvx ledger create, or name another ledger ({OTHER_LEDGER})."
            )
        return Account(self, name)

    def accounts(self) -> tuple[str, ...]:
        """Return the names of the accounts, sorted."""
        with reading(self.url) as connection:
            return tuple(sorted(connection.execute(sa.select(account_table.c.name)).scalars()))

    def verify(self, witness: str | os.PathLike[str] | None = None) -> Verification:
        """Check every entry, hash and total, and that no witnessed head is missing.

        Parameters
        ----------
        witness : str or path, optional
            Another witness than the ledger's own.

        Raises
        ------
        LedgerDamaged
            If anything was edited or is missing.
        """
        ledger = self if witness is None else Ledger(self.url, witness=witness)
        return verify(ledger.url, ledger.witness, ledger._words)

    def check(self) -> None:
        """Check the newest entry, and that the witness knows it and no later one; less than `verify`.

        A witness that lags behind, after a stop between an entry and its witness, is told first.

        Raises
        ------
        LedgerDamaged
            If the newest entry was edited, or the ledger is an old copy or has lost its witness.
        """
        with reading(self.url) as connection:
            head = self._lock(connection)
            newest = sa.select(entry_table.c.content).where(entry_table.c.sequence == head.sequence)
            content = connection.execute(newest).scalar()
        if head.sequence and (content is None or digest(content) != head.hash):
            raise LedgerDamaged(f"The last entry of {self._words} is missing or was edited.")
        seen = None if self.witness is None else witness_at(self.witness).latest(head.identity)
        if seen is not None and seen.sequence < head.sequence:
            self._tell(head)

    def recognise_people(self, account: str, people: Iterable[str], declared: Declared) -> tuple[str, ...]:
        """Compare people with those of the account's last start, and of other accounts of this ledger.

        Returns sentences for the data owner's console: they depend on records without noise, so that nothing
        an analyst can see may depend on them.

        Parameters
        ----------
        account : str
        people : iterable of str
            One text for each, the id of a person or a whole row.
        declared : Declared
        """
        return recognise_people(self.url, account, people, declared)

    def backup(self, path: str | os.PathLike[str]) -> Verification:
        """Copy the ledger's file, also while it is used, and check the copy.

        The copy has every entry and no secret: a ledger that is restored from it has no open run of
        comparisons. With a witness it is refused if the ledger has had entries since.

        Parameters
        ----------
        path : str or path
            File of the copy, which must not exist.
        """
        copy_ledger(self.url, place := Path(path))
        return verify(address(place), None, f"the copy {place}")

    def start_witness(self, *, reason: str) -> None:
        """Begin a new witness for a ledger that has entries, after the old one was lost or if there was none.

        The ledger is verified first, and its chain records the decision in every account. An old copy of the
        ledger cannot be told from the newest one here: do this only if no copy was restored since the witness
        was lost, and retire the accounts otherwise.

        Parameters
        ----------
        reason : str
            Why a new witness is needed, in words that may be published.

        Raises
        ------
        Incompatible
            If the witness holds entries already, of this or of another ledger.
        LedgerDamaged
            If the ledger was edited.
        """
        _check_text("reason", reason)
        if self.witness is None:
            raise Incompatible("No place for a witness was given: use Ledger(url, witness=...).")
        verify(self.url, None, self._words)
        with writing(self.url) as connection:
            head = read_head(connection, self._words)
            if witness_at(self.witness).latest(head.identity) is not None:
                raise Incompatible(
                    f"The witness at {_without_password(self.witness)} holds entries, so it was not lost. "
                    "Ledger.verify says whether they are of this ledger; a new witness needs a new place."
                )
            # The copy may be an old one: what was kept secret in it may have been used up since.
            secret_table.create(connection, checkfirst=True)
            connection.execute(secret_table.delete())
            for name in connection.execute(sa.select(account_table.c.name)).scalars().all():
                head = append(connection, head, name, "witness", None, {"reason": reason})[0]
        self._tell(head)

    def _lock(self, connection: sa.Connection) -> Head:
        """Return the head after a look at the witness; nobody else appends before the transaction ends."""
        return witnessed_head(connection, self.witness, self._words)

    def _tell(self, head: Head) -> None:
        tell_witness(self.witness, head)


@dataclass(frozen=True)
class Account:
    """Account of one data set: its cap, and everything charged to it.

    Parameters
    ----------
    ledger : Ledger
    name : str
    """

    ledger: Ledger
    name: str

    @property
    def budget(self) -> Budget:
        """The cap."""
        return self._state()[0]

    @property
    def used(self) -> float:
        """Part of the cap that is spent, between 0 and 1."""
        cap, spending = self._state()
        return spending.used(cap) / WHOLE

    def share(self, event: Event, *, failure: float = 0.0, delta: float | None = None) -> float | None:
        """Return the part of the cap that a charge would use now, or None if it does not fit.

        Nothing is charged. The part can be larger than the event alone would use: a charge of another kind
        may rule out the cheapest way to add up the earlier charges.

        Parameters
        ----------
        event, failure
            As for `charge`.
        delta : float, optional
            Delta that the release is planned for.
        """
        cap, spending = self._state()
        after = admit(cap, spending, event, failure=failure, delta=delta)
        return None if after is None else (after.used(cap) - spending.used(cap)) / WHOLE

    def charge(
        self,
        event: Event,
        *,
        purpose: str,
        failure: float = 0.0,
        key: str | None = None,
        budget: Budget | None = None,
    ) -> Receipt:
        """Pay for a release before it is made; durable when it returns.

        Parameters
        ----------
        event : Event
            Event of the release.
        purpose : str
            Purpose of the release, in words that may be published.
        failure : float
            Total-variation distance of the samplers from the event's noise, summed over all draws.
        key : str, optional
            Makes retries safe. A key that was charged and answered returns its receipt with the stored
            answer and charges nothing.
        budget : Budget, optional
            Budget that the release was planned for. Its relation must be the account's; basic composition
            prices the event at its delta.

        Returns
        -------
        Receipt

        Raises
        ------
        BudgetExceeded
            If the event does not fit; nothing is written.
        DeadKey
            If the key was charged and its answer was never stored.
        """
        _check_text("purpose", purpose)
        if key is not None:
            _check_text("key", key)
        if isinstance(failure, bool) or not isinstance(failure, int | float) or not 0 <= failure < 1:
            raise WrongValue(f"failure is {failure!r}; it must be a probability below 1.")
        details = {
            "purpose": purpose,
            "event": to_plain(event),
            "failure": float(failure),
            "planned_delta": None if budget is None else budget.delta,
        }
        relation, unit = (None, "row") if budget is None else (budget.relation, budget.unit)
        relations = {relation, *(getattr(leaf, "relation", None) for leaf in walk(event))} - {None}
        if any(isinstance(leaf, Poisson) for leaf in count_leaves(event)):
            cap, spending = self._state()
            self._check_relations(cap, relations, unit)
            self._admit(cap, spending, event, details)  # seconds of work, kept for the locked part below
        with writing(self.ledger.url) as connection:
            head = self.ledger._lock(connection)
            cap, spending = self._state(connection)
            self._check_relations(cap, relations, unit)
            self._entries(connection).require_open()
            if key is not None and (paid := self._entries(connection).find("charge", key)) is not None:
                return self._again(connection, cap, paid, details)
            after = self._admit(cap, spending, event, details)
            if after is not None:
                content = {**details, "spending": after.to_plain()}
                head, time = append(connection, head, self.name, "charge", key, content)
                changed = {"spending": canonical(after.to_plain()), "used": after.used(cap)}
                connection.execute(_UPDATE, {"wanted": self.name, **changed, "failed": after.failed(cap)})
        if after is None:
            raise self._exceeded(cap, spending, event, budget)
        self.ledger._tell(head)
        return Receipt(self.name, cap, head.sequence, time, head.hash, key)

    def store(self, key: str, answer: bytes) -> None:
        """Store the answer of a charged key, once; durable when it returns.

        Parameters
        ----------
        key : str
        answer : bytes
            Bytes to send, now and to every retry.
        """
        if not isinstance(answer, bytes):
            raise WrongType(f"answer is a {type(answer).__name__}; it must be bytes.")
        with writing(self.ledger.url) as connection:
            head = self.ledger._lock(connection)
            if self._entries(connection).find("charge", key) is None:
                raise Incompatible(
                    f"Key {key!r} was never charged to account {self.name!r}: charge it first."
                )
            if self._entries(connection).content("answer", key) is not None:
                raise Incompatible(f"Key {key!r} has an answer already; it is never replaced.")
            content = {"answer": digest(answer)}
            head, _ = append(connection, head, self.name, "answer", key, content, answer)
        self.ledger._tell(head)

    def receipt(self, key: str) -> Receipt | None:
        """Return the receipt of a charged key, or None."""
        with reading(self.ledger.url) as connection:
            cap, _ = self._state(connection)
            paid = self._entries(connection).find("charge", key)
            if paid is None:
                return None
            told = json.loads(paid.content)["time"]
            answer = self._entries(connection).content("answer", key)
        return Receipt(self.name, cap, paid.sequence, told, paid.hash, key, answer)

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer of a key, or None."""
        with reading(self.ledger.url) as connection:
            return self._entries(connection).content("answer", key)

    def note(
        self,
        key: str,
        content: bytes,
        secret: SecretChange | None = None,
        record: Callable[[sa.Connection], None] | None = None,
    ) -> None:
        """Record how much of a charge was used, once for each key; durable when it returns.

        Notes are entries of the hash chain, as charges are: otherwise a restored copy of the ledger would
        allow the same charge to be used twice.

        Parameters
        ----------
        key : str
        content : bytes
        secret : SecretChange, optional
            Private value that changes with the note: both are written, or neither.
        record : callable, optional
            Writes more in the same transaction, whose connection it is given: again all or nothing.

        Raises
        ------
        Incompatible
            If the key has a note already: of several processes that write it, only the first succeeds.
        """
        with writing(self.ledger.url) as connection:
            head = self.ledger._lock(connection)
            self._entries(connection).require_open()
            if secret is not None:
                change_secret(connection, self.name, secret)
            if self._entries(connection).content("note", key) is not None:
                raise Incompatible(f"Account {self.name!r} has a note {key!r} already; it is never replaced.")
            details = {"answer": digest(content)}
            head, _ = append(connection, head, self.name, "note", key, details, content)
            if record is not None:
                record(connection)
        self.ledger._tell(head)

    def keep(self, secret: SecretChange) -> None:
        """Replace a private value; durable when it returns.

        Secrets are no part of the chain: nothing but the store holds them, and only their newest value.

        Parameters
        ----------
        secret : SecretChange

        Raises
        ------
        Incompatible
            If the value is not the expected one, because another process has replaced it.
        LedgerDamaged
            If the witness knows that this is an old copy of the ledger.
        """
        with writing(self.ledger.url) as connection:
            self.ledger._lock(connection)
            self._entries(connection).require_open()
            change_secret(connection, self.name, secret)

    def read_secret(self, key: str) -> bytes | None:
        """Return a private value, or None; refuse an old copy of the ledger as a charge does."""
        with writing(self.ledger.url) as connection:
            self.ledger._lock(connection)
            secret_table.create(connection, checkfirst=True)  # earlier versions have none
            return read_secret(connection, self.name, key)

    def read_note(self, key: str) -> bytes | None:
        """Return the note of a key, or None."""
        with reading(self.ledger.url) as connection:
            return self._entries(connection).content("note", key)

    def notes(self, prefix: str) -> tuple[tuple[str, bytes], ...]:
        """Return the keys that begin with a text, with their notes, in order."""
        with reading(self.ledger.url) as connection:
            return self._entries(connection).notes(prefix)

    @property
    def states(self) -> tuple[AccountState, ...]:
        """Decisions to freeze, open again or close the account, in order; without any it is open."""
        with reading(self.ledger.url) as connection:
            return self._entries(connection).states()

    def freeze(self, *, reason: str) -> None:
        """Refuse every charge and every new answer until `thaw`.

        Parameters
        ----------
        reason : str
            Words that may be published.
        """
        self._set_state("frozen", reason)

    def thaw(self, *, reason: str) -> None:
        """Open a frozen account again.

        Parameters
        ----------
        reason : str
        """
        self._set_state("open", reason)

    def close(self, *, reason: str) -> None:
        """Refuse every charge and every new answer from now on; this is final. Reading goes on.

        Parameters
        ----------
        reason : str
        """
        self._set_state("closed", reason)

    def _set_state(self, word: str, reason: str) -> None:
        _check_text("reason", reason)
        with writing(self.ledger.url) as connection:
            head = self.ledger._lock(connection)
            self._state(connection)  # refuses an account that is not there
            states = self._entries(connection).states()
            now = states[-1].word if states else "open"
            if now == "closed" or now == word:
                raise AccountNotOpen(f"Account {self.name!r} is {now} already.")
            details = {"state": word, "reason": reason}
            head, _ = append(connection, head, self.name, "state", None, details)
        self.ledger._tell(head)

    def require_open(self) -> None:
        """Refuse an account that is frozen or closed, with AccountNotOpen."""
        with reading(self.ledger.url) as connection:
            self._entries(connection).require_open()

    def history(self) -> tuple[Entry, ...]:
        """Return every charge, in order."""
        with reading(self.ledger.url) as connection:
            cap, _ = self._state(connection)
            return self._entries(connection).charges(cap)

    def remaining(self, delta: float | None = None) -> float:
        """Return the epsilon that one more Gaussian release could still have.

        Parameters
        ----------
        delta : float, optional
            The release's delta; by default the cap's.
        """
        cap, spending = self._state()
        return remaining(cap, spending, cap.delta if delta is None else float(delta))

    def statement(self) -> AccountStatement:
        """Return the guarantee and the whole history, in words and as JSON."""
        history = self.history()
        used = history[-1].used if history else 0.0
        with reading(self.ledger.url) as connection:
            starts = self._entries(connection).witness_starts()
        return AccountStatement(self.name, self.budget, used, history, starts, self.states)

    def _repr_html_(self) -> str:
        return self.statement()._repr_html_()

    def _entries(self, connection: sa.Connection) -> AccountEntries:
        return AccountEntries(connection, self.name)

    def _state(self, connection: sa.Connection | None = None) -> tuple[Budget, Spending]:
        if connection is None:
            with reading(self.ledger.url) as opened:
                return self._state(opened)
        row = connection.execute(_ACCOUNT, {"wanted": self.name}).first()
        if row is None:
            raise Incompatible(
                f"The ledger has no account {self.name!r}; make it with Ledger.create or dpcvx ledger "
                f"create, or name another ledger ({OTHER_LEDGER})."
            )
        cap = budget_of(row.epsilon, row.delta, row.relation)
        return cap, Spending.from_plain(json.loads(row.spending))

    def _check_relations(self, cap: Budget, relations: set[Any], unit: str) -> None:
        if unit != cap.unit:
            raise Incompatible(
                f"Account {self.name!r} protects a {cap.unit}, this release protects a {unit}"
                f"{' with all rows' * (unit == 'person')}: charge it to an account of its own unit "
                f"(dpcvx ledger create NAME --unit {unit})."
            )
        if relations - {cap.relation}:
            raise Incompatible(
                f"Account {self.name!r} is kept under {cap.relation!r}; the release is private under "
                f"{', '.join(sorted(map(repr, relations)))}. Charge it to an account of its own relation."
            )

    def _admit(
        self, cap: Budget, spending: Spending, event: Event, details: Mapping[str, Any]
    ) -> Spending | None:
        delta = details["planned_delta"]
        return admit(cap, spending, event, failure=details["failure"], delta=delta)

    def _again(
        self, connection: sa.Connection, cap: Budget, paid: Any, details: Mapping[str, Any]
    ) -> Receipt:
        """Receipt of a key that was charged before."""
        content = json.loads(paid.content)
        if any(content[name] != value for name, value in details.items()):
            raise Incompatible(
                f"Key {paid.key!r} was charged for something else ({content['purpose']}): use a new key."
            )
        answer = self._entries(connection).content("answer", paid.key)
        if answer is None:
            raise DeadKey(
                f"Key {paid.key!r} was charged at {content['time']} and its answer was never stored. The "
                "charge is lost; ask again with a new key, which pays again."
            )
        return Receipt(self.name, cap, paid.sequence, content["time"], paid.hash, paid.key, answer)

    def _exceeded(
        self, cap: Budget, spending: Spending, event: Event, planned: Budget | None
    ) -> BudgetExceeded:
        asked, left = requested(cap, event), remaining(cap, spending, cap.delta)
        reason = ""
        if spending.mode == "whole":
            reason = f"One release has taken the whole of account {self.name!r}."
        elif asked <= left:
            reason = (
                "Together with what was charged before, a release of this kind, such as a score, costs more "
                "than a Gaussian one of the same epsilon, and does not fit."
            )
        elif planned is not None and planned.delta > cap.delta > 0 and planned.epsilon <= left:
            reason = (
                f"Its own delta, {planned.delta:g}, is larger. Plan it with that of the account, "
                f"delta={cap.delta:g} (command line: --delta {cap.delta:g}), at which {planned.epsilon:g} is "
                "enough."
            )
        return BudgetExceeded(asked, left, reason, cap.delta)


def _check_text(name: str, value: str) -> None:
    if not isinstance(value, str):
        raise WrongType(f"{name} is a {type(value).__name__}; it must be text.")
    if not value.strip() or len(value) > LONGEST or not value.isprintable():
        raise WrongValue(f"{name} must be printable text of 1 to {LONGEST} characters.")


def _without_password(place: str) -> str:
    """Address without its password."""
    return sa.make_url(place).render_as_string(hide_password=True) if "://" in place else place
