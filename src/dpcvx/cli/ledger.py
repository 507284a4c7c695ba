"""Commands of the ledger: ``dpcvx ledger create``, ``show``, ``history``, ``export``, ``verify`` and more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcvx.cli.options import AsJson, LedgerUrl, Witness
from dpcvx.cli.output import write

if TYPE_CHECKING:
    from dpcvx.ledger import Account

__all__ = ["ledger_app"]

Name = Annotated[str, typer.Argument(help="Name of the account.")]
WIDTH, NARROWEST = 110, 30  # characters: of a line if there is no terminal, and least width of the purposes
GAUGE = 30  # characters

ledger_app = typer.Typer(
    help="Accounts of what was spent on each data set.", no_args_is_help=True, rich_markup_mode=None
)


@ledger_app.command()
def create(
    name: Name,
    epsilon: Annotated[float, typer.Option(help="Cap: epsilon of everything that will ever be charged.")],
    delta: Annotated[float, typer.Option(help="Cap: delta; well below one over the number of records.")],
    relation: Annotated[str, typer.Option(help="Neighbours: replace or add_remove.")] = "replace",
    unit: Annotated[str, typer.Option(help="Unit that is protected: row, or person with all rows.")] = "row",
    ledger: LedgerUrl = None,
    witness: Witness = None,
    as_json: AsJson = False,
) -> None:
    """Open an account with a budget that never changes."""
    from dpcvx.ledger import Ledger

    book = Ledger(ledger, witness=witness)
    account = book.create(name, epsilon=epsilon, delta=delta, relation=relation, unit=unit)
    _print(_record(account), as_json, _gauge(account))


@ledger_app.command()
def show(
    name: Annotated[str | None, typer.Argument(help="Name of the account. Default: all of them.")] = None,
    ledger: LedgerUrl = None,
    witness: Witness = None,
    as_json: AsJson = False,
) -> None:
    """Show the budget of each account, and the parts that are spent and left."""
    from dpcvx.errors import LedgerDamaged
    from dpcvx.ledger import Ledger

    book = Ledger(ledger, witness=witness)
    accounts = [book.account(each) for each in (book.accounts() if name is None else (name,))]
    record: dict[str, Any] = {"accounts": [_record(account) for account in accounts]}
    text = "\n\n".join(map(_gauge, accounts))
    if witness is not None:
        try:
            record["check"] = str(book.verify())
        except LedgerDamaged as damage:
            record["check"] = str(damage)
        text += f"\n\n{record['check']}"
    _print(record, as_json, text)


@ledger_app.command()
def history(
    name: Name,
    ledger: LedgerUrl = None,
    plot: Annotated[Path | None, typer.Option(help="PNG file to write: spending over time.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show every charge; --json prints the whole history as a statement."""
    from textwrap import wrap

    from dpcvx.ledger import Ledger
    from dpcvx.ledger.account_statement import event_words
    from dpcvx.words import align_columns

    account = Ledger(ledger).account(name)
    statement = account.statement()
    if plot is not None:
        _plot(account, plot)
        typer.echo(f"Plot written to {plot}", err=True)
    rows = [("entry", "time (UTC)", "used", "purpose and event")]
    rows += [
        (
            str(entry.sequence),
            entry.time[:19],
            f"{entry.used:.2%}",
            f"{entry.purpose}: {event_words(entry.event)}",
        )
        for entry in statement.history
    ]
    rows += [
        (str(start.sequence), start.time[:19], "", f"new witness: {start.reason}")
        for start in statement.witness_starts
    ]
    lines = [*wrap(statement.meaning, WIDTH), "", *align_columns(_wrapped(rows), left=(0, 1, 3))]
    _print(statement.to_dict(), as_json, "\n".join(lines))


def _wrapped(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return rows whose last cell is wrapped to the width of the terminal, as further rows."""
    from shutil import get_terminal_size
    from textwrap import wrap

    before = [max(len(row[j]) for row in rows) for j in range(len(rows[0]) - 1)]
    taken = 2 + sum(before) + 3 * len(before)
    width = max(NARROWEST, get_terminal_size((WIDTH, 24)).columns - taken)
    found = []
    for *others, last in rows:
        first, *rest = wrap(last, width) or [""]
        found += [(*others, first), *((*[""] * len(others), line) for line in rest)]
    return found


@ledger_app.command()
def verify(ledger: LedgerUrl = None, witness: Witness = None, as_json: AsJson = False) -> None:
    """Check every entry, hash and total, and with a witness that the ledger is no old copy."""
    from dataclasses import asdict

    from dpcvx.ledger import Ledger

    found = Ledger(ledger, witness=witness).verify()
    _print(asdict(found), as_json, str(found))


Reason = Annotated[str, typer.Option(help="Why; every statement repeats it.")]


@ledger_app.command()
def freeze(name: Name, reason: Reason, ledger: LedgerUrl = None, witness: Witness = None) -> None:
    """Refuse every charge to an account, and every new answer of a server, until it is thawed."""
    _account(name, ledger, witness).freeze(reason=reason)
    typer.echo(f"Account {name} is frozen.")


@ledger_app.command()
def thaw(name: Name, reason: Reason, ledger: LedgerUrl = None, witness: Witness = None) -> None:
    """Open a frozen account again."""
    _account(name, ledger, witness).thaw(reason=reason)
    typer.echo(f"Account {name} is open.")


@ledger_app.command()
def close(
    name: Name,
    reason: Reason,
    yes: Annotated[bool, typer.Option("--yes", help="Close without asking for confirmation.")] = False,
    ledger: LedgerUrl = None,
    witness: Witness = None,
) -> None:
    """Close an account for good; its history can still be read."""
    account = _account(name, ledger, witness)
    if not yes and not (account.states and account.states[-1].word == "closed"):
        typer.echo(
            f"Account {name} can never be opened again, and what is left of its budget cannot be used. To "
            f"stop it for a while, use  dpcvx ledger freeze {name}.  In scripts, add --yes.",
            err=True,
        )
        typer.confirm("Close it for good?", abort=True, err=True)
    account.close(reason=reason)
    typer.echo(f"Account {name} is closed.")


SigningKey = Annotated[
    Path | None, typer.Option("--key-file", help="File with the secret that signs; 16 bytes or more.")
]


@ledger_app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="File to write: .csv, or .json, which is signed.")],
    key_file: SigningKey = None,
    ledger: LedgerUrl = None,
    witness: Witness = None,
) -> None:
    """Write the history of an account as CSV, or its statement as signed JSON."""
    from dpcvx.errors import WrongValue
    from dpcvx.ledger.export import to_csv, to_signed_json

    account = _account(name, ledger, witness)
    found = account.ledger.verify()
    if out.suffix == ".csv":
        text = to_csv(account.statement())
    elif out.suffix == ".json" and key_file is not None:
        text = to_signed_json(account.statement(), found.head, _secret(key_file))
    else:
        raise WrongValue("--out must end in .csv, or in .json together with --key-file.")
    write(out, lambda file: file.write_bytes(text.encode()))
    typer.echo(f"{out}: account {name} up to entry {found.entries} of the ledger")


@ledger_app.command("check-export")
def check_export(
    file: Annotated[Path, typer.Argument(help="Signed JSON that dpcvx ledger export wrote.")],
    key_file: Annotated[Path, typer.Option(help="File with the secret that signed it.")],
) -> None:
    """Check the signature of an export."""
    from dpcvx.ledger.export import read_signed

    content = read_signed(_read(file).decode(errors="replace"), _secret(key_file))
    told = content["statement"]
    typer.echo(f"{file}: signed; account {told['account']}, {len(told['history'])} charge(s)")


@ledger_app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="File of the copy; it must not exist.")],
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Copy a ledger's file, also while a server uses it, without the secrets of open runs; check the copy."""
    from dataclasses import asdict

    from dpcvx.ledger import Ledger

    found = Ledger(ledger).backup(file)
    _print(asdict(found), as_json, f"{file}: {found}")


@ledger_app.command()
def witness(
    witness: Annotated[Path, typer.Option(help="File of the new witness.")],
    reason: Annotated[str, typer.Option(help="Why a new witness is needed; every statement repeats it.")],
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Begin a new witness for a ledger that has entries, after the old one was lost or if there was none.

    Only if no copy of the ledger was restored since then: the new witness takes this copy for the newest.
    """
    from dataclasses import asdict

    from dpcvx.ledger import Ledger

    book = Ledger(ledger, witness=witness)
    book.start_witness(reason=reason)
    found = book.verify()
    _print(asdict(found), as_json, str(found))


def _account(name: str, ledger: str | None, witness: Path | None) -> Account:
    from dpcvx.ledger import Ledger

    return Ledger(ledger, witness=witness).account(name)


def _secret(path: Path) -> bytes:
    return _read(path).strip()


def _read(path: Path) -> bytes:
    from dpcvx.errors import Unreadable

    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None


def _record(account: Account) -> dict[str, Any]:
    cap = account.budget
    return {
        "account": account.name,
        "epsilon": cap.epsilon,
        "delta": cap.delta,
        "relation": cap.relation_word,
        "unit": cap.unit,
        "used": account.used,
        "remaining": account.remaining(),
        "charges": len(account.history()),
        "state": account.states[-1].word if account.states else "open",
    }


def _gauge(account: Account) -> str:
    facts = _record(account)
    full = int(facts["used"] * GAUGE)
    cap = f"epsilon {facts['epsilon']:g}, delta {facts['delta']:.3g} ({facts['relation']})"
    left = f"one more Gaussian release could have epsilon {facts['remaining']:.4g}"
    if facts["state"] != "open":
        left = f"{facts['state']}: {account.states[-1].reason}"
    return (
        f"{facts['account']}: {cap}\n"
        f"  [{'#' * full}{'.' * (GAUGE - full)}] {facts['used']:.1%} used in {facts['charges']} charge(s)\n"
        f"  {left}"
    )


def _plot(account: Account, path: Path) -> None:
    from dpcvx.report.plots import spending_plot

    plot = spending_plot(account.name, account.budget, account.history())
    write(path, lambda file: file.write_bytes(plot))


def _print(record: dict[str, Any], as_json: bool, text: str) -> None:
    typer.echo(json.dumps(record, indent=2, ensure_ascii=False) if as_json else text)
