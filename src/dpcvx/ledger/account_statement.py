"""Statement of an account: its guarantee and every charge, in words and as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from dataclasses import dataclass
from typing import Any

from dpcvx.accounting import Budget
from dpcvx.ledger.chain import AccountState, Entry, WitnessStart
from dpcvx.words import html_table

__all__ = ["AccountStatement", "event_words"]

NOT_COVERED = (
    "releases on the same people that were not charged to this account",
    "the same people in another account or ledger: the caps of both are added",
    "a charge whose event, as its caller described it, is not that of its release",
    "anything computed from records that was not charged, for instance by steps of a pipeline before a fit",
    "running time and memory",
    "a person who is in several rows",
)


@dataclass(frozen=True)
class AccountStatement:
    """The guarantee of an account and its whole history.

    Parameters
    ----------
    account : str
    budget : Budget
        The guarantee. It is the cap, however much of it was used.
    used : float
        Part of the cap that is spent.
    history : tuple of Entry
    witness_starts : tuple of WitnessStart
        Decisions to begin a new witness: up to each of them an old copy of the ledger could have been
        restored without notice.
    states : tuple of AccountState
        Decisions to freeze, open again or close the account.
    """

    account: str
    budget: Budget
    used: float
    history: tuple[Entry, ...]
    witness_starts: tuple[WitnessStart, ...] = ()
    states: tuple[AccountState, ...] = ()

    @property
    def meaning(self) -> str:
        """The guarantee in one plain paragraph."""
        return (
            f"Take {self.budget.neighbours.words}. Any conclusion that somebody could draw from "
            f"everything that was or will be charged to account {self.account!r} "
            f"is at most e^{self.budget.epsilon:g} times as likely with one as with the other, apart from an "
            f"extra probability of at most {self.budget.delta:.3g}. The charges may depend on "
            "earlier answers, so the guarantee is the whole cap even where less of it was used."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain types that JSON can hold."""
        return {
            "account": self.account,
            **dataclasses.asdict(self.budget),
            "used": self.used,
            "meaning": self.meaning,
            "not_covered": list(NOT_COVERED),
            "history": [dataclasses.asdict(entry) for entry in self.history],
            "witness_starts": [dataclasses.asdict(start) for start in self.witness_starts],
            "states": [dataclasses.asdict(state) for state in self.states],
        }

    def to_json(self) -> str:
        """Return the statement as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    @property
    def _title(self) -> str:
        return f"Privacy statement of account {self.account!r}"

    @property
    def _rows(self) -> list[tuple[str, str]]:
        budget = self.budget
        return [
            (
                "guarantee",
                f"epsilon = {budget.epsilon:g}, delta = {budget.delta:.3g} ({budget.relation_word!r})",
            ),
            ("used", f"{self.used:.1%} of the cap, in {len(self.history)} charge(s)"),
            *(
                ("charged", f"{entry.time}  {entry.purpose}: {event_words(entry.event)}")
                for entry in self.history
            ),
            *(("new witness", f"{start.time}  {start.reason}") for start in self.witness_starts),
            *((state.word, f"{state.time}  {state.reason}") for state in self.states),
            ("not covered", "; ".join(NOT_COVERED)),
        ]

    def _repr_html_(self) -> str:
        return html_table(self._title, [("meaning", self.meaning), *self._rows])

    def __str__(self) -> str:
        lines = [self._title, "", *textwrap.wrap(self.meaning, 110), ""]
        for name, text in self._rows:
            lines += textwrap.wrap(text, 110, initial_indent=f"{name:<13}", subsequent_indent=" " * 13)
        return "\n".join(lines)


def event_words(event: dict[str, Any]) -> str:
    """Return an event of plain types in one line."""
    kind = event["event"]
    if kind == "Compose":
        return " + ".join(event_words(part) for part in event["events"])
    if kind == "Repeat":
        return f"{event['count']} x {event_words(event['of'])}"
    values = (f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in event.items() if k != "event")
    return f"{kind}({', '.join(values)})"
