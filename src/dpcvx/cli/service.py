"""Commands of the query service: ``dpcvx serve | ask | keys``."""

from __future__ import annotations

import json
import os
import re
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcvx.cli.options import (
    TABLE_HELP,
    AsJson,
    Decimal,
    Encoding,
    FormOptions,
    LedgerUrl,
    LineBreaks,
    Sep,
    Sheet,
)
from dpcvx.cli.output import write
from dpcvx.cli.show import ShowFormat
from dpcvx.errors import NotInstalled, WrongValue
from dpcvx.words import csv_cell

if TYPE_CHECKING:
    from dpcvx.queries import Schema
    from dpcvx.service.keys import ApiKey, Keys

__all__ = ["ask", "keys_app", "serve"]

KEY_VARIABLE = "DPCVX_KEY"
NAMES = re.compile(r"`([^`]+)`|(\S+)")  # in backquotes, or without blanks


class Log(StrEnum):
    """Contents of the log of a server."""

    PROBLEMS = "problems"
    JSON = "json"


class Scope(StrEnum):
    """Permissions of a key."""

    ASK = "ask"
    ADMIN = "admin"


Account = Annotated[str | None, typer.Option(help="Account of the data set. Default: the data file's name.")]
AccountName = Annotated[str, typer.Option("--account", help="Account of the data set.")]

keys_app = typer.Typer(help="API keys of the query service.", no_args_is_help=True, rich_markup_mode=None)


def serve(
    data: Annotated[Path | None, typer.Argument(help=TABLE_HELP)] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema file, TOML: levels and bins.")] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget of all queries together. An account that exists has one: leave it out then."
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: that of the account, min(1/n^2, 1e-5) of a new one.")
    ] = None,
    population: Annotated[
        str, typer.Option(help="Name of the population. Accounts of one name are batches of other people.")
    ] = "",
    spend: Annotated[
        float,
        typer.Option(
            help="Share of the account's epsilon for the server; the rest is left for fits.",
            min=0.001,
            max=1.0,
        ),
    ] = 1.0,
    person: Annotated[
        str | None,
        typer.Option(
            help="Column with the id of each row's person: all rows of a person are protected together. "
            "Default: the one that the schema file declares, if any."
        ),
    ] = None,
    persons: Annotated[
        int | None,
        typer.Option(
            help="Number of persons, if it is known beforehand. Default: the number of different ids, which "
            "is then public.",
            min=1,
        ),
    ] = None,
    ledger: LedgerUrl = None,
    witness: Annotated[
        str | None, typer.Option(help="File that records the state of the ledger, to detect an old copy.")
    ] = None,
    account: Account = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    slot: Annotated[
        float, typer.Option(help="Seconds. The time to an answer is a whole number of slots.", min=0.01)
    ] = 0.25,
    log: Annotated[
        Log, typer.Option(help="Log on standard error: problems, or json: every request as a line of JSON.")
    ] = Log.PROBLEMS,
    check: Annotated[
        float | None,
        typer.Option(
            help="Share of the budget for counts of recognised cells, which show wrong columns; 0 for none.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    choose_pairs: Annotated[
        bool,
        typer.Option(
            "--choose-pairs",
            help="Measure few pairs of columns, chosen with noise, in place of all pairs: for tables with "
            "very many columns and few people, where a few pairs depend strongly on each other.",
        ),
    ] = False,
    accept_warnings: Annotated[
        bool,
        typer.Option(
            "--accept-warnings", help="Charge a new account although the schema or its sizes cause warnings."
        ),
    ] = False,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    line_breaks: LineBreaks = False,
    demo: Annotated[bool, typer.Option("--demo", help="Serve census data with a temporary ledger.")] = False,
) -> None:
    """Answer queries about a table on one privacy budget, by HTTP and on a web page."""
    _require("fastapi", "uvicorn", "argon2", "pydantic")
    from dpcvx.queries import CHECK
    from dpcvx.service.start import ServiceSettings, demonstration, run

    if demo:
        demonstration(host=host, port=port, slot=slot)
        return
    if data is None or schema is None:
        raise WrongValue(
            "dpcvx serve needs a table, --schema and --epsilon (for a new account); or --demo. A schema to "
            f"fill in is written by  dpcvx declare {'TABLE' if data is None else data}."
        )
    run(
        ServiceSettings(
            data,
            schema,
            epsilon,
            delta=delta,
            ledger=ledger,
            witness=witness,
            account=account or data.stem,
            host=host,
            port=port,
            slot=slot,
            check=CHECK if check is None else check,
            log=log.value,
            spend=spend,
            population=population,
            person=person,
            persons=persons,
            choose_pairs=choose_pairs,
            accept_warnings=accept_warnings,
            form=partial(FormOptions(sep, decimal, encoding, line_breaks, sheet).form, data),
        )
    )


def ask(
    question: Annotated[
        str,
        typer.Argument(
            help='"income ~ age + sex", with "+ age:sex" for an interaction, "count", "mean age", '
            '"marginal age sex", or JSON.'
        ),
    ],
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
    key_file: Annotated[
        Path | None, typer.Option(help=f"File with the API key. Default: the variable {KEY_VARIABLE}.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Loss of a regression: logistic, squared or another one of the service. Default: logistic "
            "for a target of two levels, squared for others."
        ),
    ] = None,
    domain: Annotated[str, typer.Option("--set", help="Set of coefficients: l2 or l1, a ball.")] = "l2",
    radius: Annotated[float, typer.Option(help="Size of that set.")] = 3.0,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition of a count, mean or regression: sex=f, or bins of a number, "
            "age=[20, 30)|[30, 40). May be repeated for other attributes; all conditions hold together."
        ),
    ] = None,
    population: Annotated[
        bool | None,
        typer.Option(
            "--population/--records",
            help="Intervals for a population that the records are a sample of, or for the records. "
            "Default: a population for regressions, the records for counts, means and tables.",
        ),
    ] = None,
    form: Annotated[ShowFormat, typer.Option("--format", help="Format of the table.")] = ShowFormat.text,
    as_json: AsJson = False,
) -> None:
    """Ask a query service one query and print the answer."""
    from dpcvx.service.client import Client

    options = {"set": domain, "radius": radius} | ({"loss": loss} if loss else {})
    query = _question(question, options, where or [])
    with Client(url, _key(key_file)) as client:
        if "formula" in query and "loss" not in query:
            query["loss"] = _loss_of(query["formula"].partition("~")[0].strip(), client.schema())
        answer = client.ask(query)
    if as_json:
        typer.echo(json.dumps(answer.to_json(), indent=2))
        return
    data = form in (ShowFormat.csv, ShowFormat.json)
    table = answer.rows(population) if data else answer.summary(population)
    typer.echo(table.render(str(form)), nl=False)


@keys_app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Name of the holder.")],
    account: AccountName,
    ledger: LedgerUrl = None,
    scope: Annotated[list[Scope] | None, typer.Option(help="May be repeated. Default: ask.")] = None,
    per_minute: Annotated[int, typer.Option(help="Queries a minute.", min=1)] = 60,
    per_day: Annotated[int, typer.Option(help="Queries a day.", min=1)] = 5000,
    measurements: Annotated[
        int | None,
        typer.Option(help="New measurements that its queries may cause. Default: half of all.", min=0),
    ] = None,
    purpose: Annotated[str, typer.Option(help="Purpose of the queries, for the data owner.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it; its text is stored nowhere."""
    key, text = _keys(ledger, account).create(
        name,
        scopes=[one.value for one in scope or [Scope.ASK]],
        per_minute=per_minute,
        per_day=per_day,
        measurements=measurements,
        purpose=purpose,
    )
    if as_json:
        typer.echo(json.dumps({"key": _record(key), "text": text}, indent=2))
        return
    typer.echo(text)
    typer.echo(f"Key {key.id} of {name} may {' and '.join(key.scopes)}. It is not shown again.", err=True)


@keys_app.command("list")
def list_keys(account: AccountName, ledger: LedgerUrl = None, as_json: AsJson = False) -> None:
    """List the API keys of an account."""
    keys = _keys(ledger, account).list()
    if as_json:
        typer.echo(json.dumps({"keys": [_record(key) for key in keys]}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "name", "scopes", "a minute", "a day", "measurements", "purpose", "state")
    for key in keys:
        state = "revoked" if key.revoked else "live"
        share = "half" if key.measurements is None else str(key.measurements)
        limits = (str(key.per_minute), str(key.per_day), share)
        table.add_row(key.id, key.name, " ".join(key.scopes), *limits, key.purpose, state)
    Console().print(table)


@keys_app.command("queries")
def list_queries(
    account: AccountName,
    ledger: LedgerUrl = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write. Default: standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """List who asked what, when and for which purpose."""
    import csv
    import io
    from dataclasses import asdict, fields
    from datetime import UTC, datetime

    from dpcvx.service.history import AskedQuery, open_history

    asked = open_history(ledger, account).of_all()
    text = io.StringIO()
    if as_json:
        rows = [{**asdict(one), "query": json.loads(one.query)} for one in asked]
        text.write(json.dumps({"queries": rows}, indent=2, ensure_ascii=False) + "\n")
    else:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(AskedQuery)])
        for one in asked:
            when = datetime.fromtimestamp(one.asked, UTC).isoformat(timespec="seconds")
            row = (one.key, csv_cell(one.name), csv_cell(one.purpose), one.query, one.branch)
            writer.writerow([when, *row])
    if out is None:
        typer.echo(text.getvalue(), nl=False)
        return
    write(out, lambda path: path.write_text(text.getvalue(), encoding="utf-8"))
    typer.echo(f"{out}: {len(asked)} question(s)", err=True)


@keys_app.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="Its id, from dpcvx keys list.")],
    account: AccountName,
    ledger: LedgerUrl = None,
) -> None:
    """Revoke an API key; a running server refuses it at once."""
    try:
        key = _keys(ledger, account).revoke(id)
    except KeyError:
        raise WrongValue(f"Account {account!r} has no key {id!r}: see  dpcvx keys list.") from None
    typer.echo(f"Key {key.id} of {key.name} is revoked.")


def _keys(url: str | None, account: str) -> Keys:
    _require("argon2")
    from dpcvx.service.keys import open_keys

    return open_keys(url, account)


def _require(*packages: str) -> None:
    from importlib.util import find_spec

    if absent := [name for name in packages if find_spec(name) is None]:
        raise NotInstalled(f'The service needs {", ".join(absent)}: run  pip install "dpcvx[serve]"')


def _record(key: ApiKey) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(key)


def _key(path: Path | None) -> str:
    if path is not None:
        from dpcvx.errors import Unreadable

        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise Unreadable(f"{path} cannot be read as a key file.") from None
    if key := os.environ.get(KEY_VARIABLE, "").strip():
        return key
    raise WrongValue(f"Give the API key by --key-file, or in the variable {KEY_VARIABLE}.")


def _loss_of(target: str, schema: Schema) -> str:
    """Return the usual loss of a target; the service refuses a name that the schema does not have."""
    target = target.strip("`")
    labelled = target in schema.names and schema[target].known == 2
    return "logistic" if labelled else "squared"


def _question(text: str, options: dict[str, Any], conditions: list[str]) -> dict[str, Any]:
    """Return the JSON form of a query as it is typed."""
    if text.lstrip().startswith("{"):
        from dpcvx.queries import parse_query

        if conditions:
            raise WrongValue("A query in JSON has its conditions in its field where: leave --where out.")
        try:
            content: dict[str, Any] = parse_query(text)
        except WrongValue:
            raise
        except ValueError as error:
            raise WrongValue(f"The question is not valid JSON: {error}.") from None
        except RecursionError:
            raise WrongValue("The query is nested too deeply.") from None
        return content
    where = {}
    for condition in conditions:
        name, equals, levels = condition.partition("=")
        if not equals:
            raise WrongValue(
                f"--where {condition} must look like  sex=f  or  region=north|south;  numbers are given by "
                "their bins,  age=[20, 30)|[30, 40)."
            )
        if name.strip() in where:
            raise WrongValue(
                f"--where names {name.strip()!r} twice. Give all its levels in one condition, with | "
                "between them, which means any of them:  region=north|south."
            )
        where[name.strip()] = [level.strip() for level in levels.split("|")]
    if "~" in text:
        return {"kind": "regression", "formula": text, **options} | ({"where": where} if where else {})
    kind, *names = [quoted or word for quoted, word in NAMES.findall(text)] or [""]
    if kind == "count" and not names:
        if not where:
            raise WrongValue("A count needs a condition, for instance  dpcvx ask count --where sex=f.")
        return {"kind": "count", "where": where}
    if kind == "mean" and len(names) == 1:
        return {"kind": "mean", "of": names[0], "where": where}
    if kind == "marginal" and names and not where:
        return {"kind": "marginal", "attributes": names}
    raise WrongValue(
        f"{text!r} is no question: write  'income ~ age + sex',  'count --where sex=f',  'mean age'  or  "
        "'marginal age sex',  with names that have blanks in backquotes."
    )
