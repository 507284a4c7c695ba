"""Start of the query service: public settings are checked before the first measurement is paid for."""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dpcvx.accounting import Budget, default_delta, sampler_delta
from dpcvx.data.files import USUAL, FileForm, open_table
from dpcvx.data.table import read_variables
from dpcvx.data.table_file import HEADER_HINT, TableFile, read_toml
from dpcvx.data.table_schema import TableSchema
from dpcvx.errors import (
    AccountNotOpen,
    BudgetExceeded,
    LedgerUnavailable,
    Unreadable,
    UnrecognisedDataWarning,
    WrongValue,
)
from dpcvx.ledger import Account, Declared, Ledger
from dpcvx.queries import (
    CHECK,
    DECLARED,
    DIFFERENT_IDS,
    QueryEngine,
    Schema,
    Universe,
    check_choice,
    check_units,
    columns_left_out,
    differences_from_paid,
    number_of_units,
    objection_to_sizes,
    usual_facts,
    words_about_left_out,
)
from dpcvx.service.analysts import Analysts
from dpcvx.service.application import application
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.logs import write_json_lines
from dpcvx.words import list_absent, quantity

__all__ = ["ServiceSettings", "demonstration", "run"]

LOCAL = ("127.0.0.1", "localhost", "::1")
ENGINE = "query engine"  # begins the purpose of the charge of a query engine


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a server: data, budget, ledger and address."""

    data: Path  # data, schema: the table, and the public declaration of its columns
    schema: Path
    epsilon: float | None  # cap of the account; None: that of an account that exists
    delta: float | None  # None: that of the account, min(1/n^2, 1e-5) of a new one
    ledger: str | None  # file or URL; None is the user's own file
    witness: str | None  # file that records the state of the ledger too
    account: str  # name of the account
    host: str  # host, port: address to listen on
    port: int
    slot: float  # seconds. The time from a query to its answer is a whole number of slots.
    check: float = CHECK  # share of the budget for counts of recognised cells
    person: str | None = None  # column with the id of each row's person; None: the schema's, or none
    persons: int | None = None  # number of persons; None: the number of different ids
    population: str = ""  # the owner's name of the population; accounts of one name are its batches
    spend: float = 1.0  # share of the account's epsilon
    log: str = "problems"  # "problems": on standard error; "json": every request too, as JSON lines
    choose_pairs: bool = False  # measure chosen pairs of attributes in place of all
    accept_warnings: bool = False  # charge a new account although public facts suggest to change something
    # form of the data file, by its schema, where options state it; None: the schema's own
    form: Callable[[TableSchema | None], FileForm] | None = None

    @property
    def method(self) -> str:
        """Method of the query engine."""
        return "chosen_pairs" if self.choose_pairs else "auto"


@dataclass(frozen=True)
class ServedTable:
    """A table that is opened and not yet read."""

    schema: Schema
    person: str | None  # column with the id of each row's person
    read: Callable[[], Any]  # reads the attributes, and the ids of persons
    left_out: tuple[str, ...] = ()  # columns of the table that no query can use, with the reason
    warnings: tuple[str, ...] = ()  # what to change in the schema before an account pays for it
    absent: tuple[str, ...] = ()  # columns that the schema declares for queries and the table lacks


def run(settings: ServiceSettings) -> None:
    """Serve until told to stop."""
    known = _known_account(settings)
    if settings.epsilon is not None:
        Budget(settings.epsilon, settings.delta or 0.0)
    elif known is None:
        raise WrongValue(
            f"Account {settings.account!r} does not exist yet: give --epsilon, the privacy budget of all "
            "queries together, or the --account and --ledger of an account that exists."
        )
    table = (_open_declared if _declares_table(settings.schema) else _open)(settings)
    if settings.persons is not None and table.person is None:
        raise WrongValue("--persons needs the ids of persons: give --person, the name of their column.")
    universe, persons = Universe(table.schema), table.person is not None
    if settings.choose_pairs:
        check_choice(universe, persons)
    check_units(universe, persons)  # both refuse before an account is opened
    with _listen(settings.host, settings.port) as listening:
        _serve(table, settings, listening)


def _open(settings: ServiceSettings) -> ServedTable:
    """Schema of attributes, and the reading of its columns."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UnrecognisedDataWarning)
        schema = _read_schema(settings.schema)
    Universe(schema)  # refuses what is too large
    table = open_table(settings.data, _form(settings, None))
    if absent := [name for name in schema.names if name not in table.columns]:
        others = [name for name in table.columns if name not in schema.names]
        raise WrongValue(
            f"{settings.schema} declares columns that {settings.data} lacks: {list_absent(absent, others)}; "
            f"{HEADER_HINT}"
        )
    ids = _person_column(settings.person, table, schema)
    return ServedTable(
        schema,
        settings.person,
        lambda: table.read([*schema.names, *ids], [*schema.levels, *ids])[0],
        _not_declared(table.columns, {*schema.names, *ids}),
        tuple(str(each.message) for each in found),
    )


def _not_declared(columns: Iterable[str], known: Container[str]) -> tuple[str, ...]:
    """Return the columns of the table's header that the schema does not name, as one text or none."""
    names = [name for name in columns if name not in known]
    listed = ", ".join(map(repr, names))
    return (f"{quantity(len(names), 'column')} that the schema does not declare: {listed}",) if names else ()


def _form(settings: ServiceSettings, schema: TableSchema | None) -> FileForm:
    """Form of the data file."""
    if settings.form is not None:
        return settings.form(schema)
    return (USUAL if schema is None else schema.file).of(settings.data)


def _person_column(person: str | None, table: TableFile, schema: Schema) -> list[str]:
    """The column of persons, if there is one; refuse one that the table lacks or that is an attribute."""
    if person is None:
        return []
    if person not in table.columns:
        raise WrongValue(
            f"The table's header lacks {person!r}, the column with the ids of persons; {HEADER_HINT}"
        )
    if person in schema.names:
        raise WrongValue(
            f"{person!r} holds the ids of persons and is an attribute of the schema: leave it out there."
        )
    return [person]


def _declares_table(path: Path) -> bool:
    """Whether a file is the declaration of a table, as for fits, and not of attributes; errors come later."""
    try:
        return "attributes" not in read_toml(path)
    except WrongValue:
        return False


def _open_declared(settings: ServiceSettings) -> ServedTable:
    """Attributes of the declaration of a table: levels, and numbers that have bins."""
    declared = TableSchema.from_toml(settings.schema)
    table = open_table(settings.data, _form(settings, declared))
    person = settings.person or declared.person
    others = [name for name in table.columns if name not in (person, declared.weight)]
    own = replace(declared, target=None, target_values=None).for_table(others)
    schema = Schema.usable(own)
    Universe(schema)  # refuses what is too large
    ids = _person_column(person, table, schema)

    def read() -> Any:
        rows = table.read([*own.features(), *ids], [*own.text_columns(), *ids])[0]
        variables = read_variables(rows.drop_columns(ids), own)
        return variables if person is None else variables.append_column(person, rows[person])

    absent = [name for name in declared.columns if name not in table.columns]
    unread = [name for name in absent if not _is_asked(declared, name)]
    absent = [name for name in absent if name not in unread]
    unnamed = [name for name in others if name not in declared.columns]
    words = [words_about_left_out(own)]
    if absent:
        words.insert(
            0,
            f"{settings.schema} declares {quantity(len(absent), 'column')} that {settings.data} lacks, "
            f"so that queries could not use them: {list_absent(absent, unnamed)}. Is it the right table? "
            "Correct the names, in the schema or in the table, or leave these columns out of the schema.",
        )
    weighted = declared.weight is not None and declared.weight in table.columns
    if weighted and declared.weight not in declared.no_queries:
        words.append(
            f"The schema says that column {declared.weight!r} holds survey weights, which queries do not "
            "use: all people count alike, so that answers are about these records and not about the "
            "population that the weights stand for. To serve the table without them, write  "
            f'no_queries = ["{declared.weight}"]  before the first section of the schema.'
        )
    left_out = (
        *columns_left_out(own),
        *([f"{declared.weight!r} (survey weights: all people count alike)"] if weighted else ()),
        *(f"{name!r}, which the table lacks and the schema leaves out" for name in unread),
        *_not_declared(others, declared.columns),
    )
    return ServedTable(schema, person, read, left_out, tuple(filter(None, words)), tuple(absent))


def _is_asked(declared: TableSchema, name: str) -> bool:
    """Whether queries could use a declared column if the table had it."""
    return name not in declared.no_queries and bool(declared.columns[name].variables(name))


def demonstration(*, host: str, port: int, slot: float) -> None:
    """Serve the census data of ``dpcvx demo`` until told to stop, with a temporary ledger."""
    from dpcvx.service.demonstration import people

    schema, columns = people()
    with _listen(host, port) as listening, tempfile.TemporaryDirectory(prefix="dpcvx-") as folder:
        settings = ServiceSettings(
            Path("demo"),
            Path("demo"),
            2.0,
            delta=None,
            ledger=str(Path(folder) / "demo.db"),
            witness=None,
            account="demo",
            host=host,
            port=port,
            slot=slot,
        )
        _serve(
            ServedTable(schema, None, lambda: columns),
            settings,
            listening,
            _show_key,
            "stopped; the demonstration and its ledger are deleted",
        )


def _serve(
    table: ServedTable,
    settings: ServiceSettings,
    listening: socket.socket,
    ready: Callable[[Analysts], None] | None = None,
    closing: str = "stopped; the ledger records what was spent, and the next start continues from there",
) -> None:
    import uvicorn

    from dpcvx.service.connections import server_config

    console = Console(stderr=True, highlight=False)
    columns = table.read()
    n = number_of_units(columns, table.person, settings.persons)
    unit = "row" if table.person is None else "person"
    known = _known_account(settings)
    if known is not None:
        _require_same(known, settings, unit)
    _check_before_paying(table, settings, n, known)
    account = _account(settings, n, unit)
    database = ServiceDatabase(settings.ledger, settings.account)
    with database.alone():
        started = "pairs that are chosen" if settings.choose_pairs else "warm start"
        console.print(f"{started}: {quantity(len(table.schema.names), 'attribute')} of {n:,} people")
        for words in table.warnings:
            console.print(f"warning: {words}", markup=False, soft_wrap=True)
        for column in table.left_out:
            console.print(f"no queries about {column}", markup=False, soft_wrap=True)
        with console.status("measuring privately, or reading earlier measurements"):
            budget = _share(account.budget, settings.spend)
            engine = _engine(
                table.schema,
                columns,
                account,
                budget,
                settings.check,
                person=table.person,
                persons=settings.persons,
                method=settings.method,
            )
        if words := _witness_forgotten(account, settings):
            console.print(f"warning: {words}", markup=False, soft_wrap=True)
        for words in _recognise(account, table, columns, settings):
            console.print(f"your data: {words}", markup=False, soft_wrap=True)
        analysts = Analysts(engine, database, account.ledger)
        if ready is not None:
            ready(analysts)
        console.print(_opening(settings, account, analysts, table.absent), markup=False, soft_wrap=True)
        if settings.log == "json":
            write_json_lines()
        config = server_config(application(analysts, slot=settings.slot))
        # The server finishes open requests when told to stop, and passes the signal on afterwards.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
        console.print(closing, soft_wrap=True)


def _check_before_paying(
    table: ServedTable, settings: ServiceSettings, n: int, account: Account | None
) -> None:
    """Stop a start that would charge an account for something that its owner may want to change first.

    Whether it stops depends on public facts alone: settings, schema, number of people and budget. An account
    that has paid for this server continues. If it has paid for another, the error names what differs, because
    a second server would be charged to the budget that is left.
    """
    if settings.accept_warnings:
        return
    cap = _new_cap(settings, n) if account is None else account.budget
    budget = _share(cap, settings.spend)
    if account is not None and any(each.purpose.startswith(ENGINE) for each in account.history()):
        persons = None if table.person is None else DIFFERENT_IDS if settings.persons is None else DECLARED
        facts = usual_facts(
            table.schema, n, budget, check=settings.check, persons=persons, method=settings.method
        )
        if words := differences_from_paid(account, facts):
            lacking = "".join(f" {each}" for each in table.warnings if table.absent)
            raise WrongValue(
                f"Account {settings.account!r} has paid for a server with another {words}.{lacking} Nothing "
                "was charged. Start with the table, the schema and the options (--spend, --check, --persons, "
                "--choose-pairs) that it was opened for, or with another --account. To charge what is left "
                "of this one for a second server, add --accept-warnings."
            )
        return
    sizes = objection_to_sizes(table.schema, n, budget, settings.check, settings.method)
    if found := [*table.warnings, *([sizes] if sizes else [])]:
        raise WrongValue(
            " ".join(found)
            + " Nothing was charged; what an account has paid for cannot be changed later. To "
            "start as it is, add --accept-warnings."
        )


def _known_account(settings: ServiceSettings) -> Account | None:
    """Return the account if it exists."""
    ledger = Ledger(settings.ledger)
    try:
        return ledger.account(settings.account) if settings.account in ledger.accounts() else None
    except LedgerUnavailable:
        return None  # no ledger yet; if the address is wrong, creating one reports it


def _new_cap(settings: ServiceSettings, n: int) -> Budget:
    """Return the cap of a new account."""
    if settings.epsilon is None:
        raise WrongValue("A new account needs --epsilon.")
    return Budget(settings.epsilon, default_delta(n) if settings.delta is None else settings.delta)


WITNESSED = "witnessed"  # key of the note of an account that was served with a witness


def _witness_forgotten(account: Account, settings: ServiceSettings) -> str:
    """Say that an earlier start had a witness and this one has none; note one that has."""
    known = account.read_note(WITNESSED) is not None
    if settings.witness is not None:
        if not known:
            with suppress(AccountNotOpen):  # a frozen one takes no entries
                account.note(WITNESSED, b"")
        return ""
    if not known and not account.statement().witness_starts:
        return ""
    return (
        "this ledger has a witness, and this start was not told where it is: an old copy of the ledger would "
        "not be noticed, and the witness misses new entries. Stop, and start with --witness FILE."
    )


def _recognise(
    account: Account, table: ServedTable, columns: Any, settings: ServiceSettings
) -> tuple[str, ...]:
    """Return what the owner should know of these people: changes, and the same people in other accounts.

    It is computed from records without noise: it goes to this console, and nothing else depends on it.
    """
    names = table.schema.names if table.person is None else (table.person,)
    cells = [columns[name] for name in names]
    listed = [each.to_pylist() if hasattr(each, "to_pylist") else list(each) for each in cells]
    people: Iterable[str] = ("\x1f".join(map(str, row)) for row in zip(*listed, strict=True))
    if table.person is not None:
        people = sorted(set(people))
    schema = hashlib.sha256(json.dumps(table.schema.identity(), sort_keys=True).encode()).hexdigest()
    declared = Declared(account.budget.unit, schema, settings.population)
    try:
        return account.ledger.recognise_people(account.name, people, declared)
    except Exception as error:  # no record may stop the server
        return (f"not compared with earlier tables ({type(error).__name__})",)


def _share(cap: Budget, part: float) -> Budget:
    """Return a part of a cap, in epsilon and in the failures of samplers that the account allows.

    (1 + e^epsilon) times their total variation is taken from delta (PRIVACY_MATH §11), so that an equal part
    of delta at a smaller epsilon would allow more failures than the account does.
    """
    epsilon = part * cap.epsilon
    smaller = sampler_delta(epsilon, 1.0) / sampler_delta(cap.epsilon, 1.0)
    return replace(cap, epsilon=epsilon, delta=part * smaller * cap.delta)


def _engine(
    schema: Schema,
    columns: Any,
    account: Account,
    budget: Budget,
    check: float,
    *,
    person: str | None = None,
    persons: int | None = None,
    method: str = "auto",
) -> QueryEngine:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnrecognisedDataWarning)  # shown by `_check`
            return QueryEngine(
                schema,
                columns,
                budget,
                person=person,
                persons=persons,
                check=check,
                method=method,
                ledger=account.ledger,
                account=account.name,
            )
    except BudgetExceeded as refused:
        reason = refused.reason or "Other releases were charged to it."
        raise WrongValue(
            f"Account {account.name!r} has paid for something else. {reason} Start with the schema and the "
            "table that it was opened for, or with another --account for other people."
        ) from None


def _read_schema(path: Path) -> Schema:
    try:
        return Schema.from_toml(path)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None


def _listen(host: str, port: int) -> socket.socket:
    """Open the port before any budget is spent, which would be lost if the server could not listen."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise Unreadable(
            f"Cannot listen on {host} port {port}: {error.strerror}. Try another --port."
        ) from None
    listening.set_inheritable(True)
    return listening


def _account(settings: ServiceSettings, n: int, unit: str) -> Account:
    """Open the account, or create it; its budget and its unit never change."""
    ledger = Ledger(settings.ledger, witness=settings.witness)
    if _known_account(settings) is None:
        cap = _new_cap(settings, n)
        return ledger.create(settings.account, epsilon=cap.epsilon, delta=cap.delta, unit=unit)
    ledger.verify()  # refuses an edited ledger, and an old copy if there is a witness
    return ledger.account(settings.account)


def _require_same(account: Account, settings: ServiceSettings, unit: str) -> None:
    """Refuse an account that is closed, or has another unit or cap than the server is started with."""
    cap = account.budget
    if account.states and account.states[-1].word == "closed":
        raise WrongValue(f"Account {settings.account!r} is closed: {account.states[-1].reason}")
    if cap.unit != unit:
        raise WrongValue(
            f"Account {settings.account!r} protects {_protected(cap.unit)}, which cannot be changed, and "
            f"this table protects {_protected(unit)}. {_other_unit(unit)}"
        )
    given = settings.epsilon not in (None, cap.epsilon) or settings.delta not in (None, cap.delta)
    if given:
        raise WrongValue(
            f"Account {settings.account!r} has the cap epsilon {cap.epsilon:g}, delta {cap.delta:g}, which "
            "cannot be changed: leave --epsilon and --delta out, or start with another --account for other "
            "people."
        )


def _protected(unit: str) -> str:
    return "all rows of a person together" if unit == "person" else "each row by itself"


def _other_unit(unit: str) -> str:
    """Say what to do where the table has this unit and the account has the other one.

    Protection is never lowered to fit the account: an account of rows is replaced by one of persons.
    """
    if unit == "row":
        return "Give --person, the column of ids, or start with another --account for other people."
    return (
        "Start with an --account that does not exist yet, which is then opened for persons, or open one by  "
        "dpcvx ledger create NAME --unit person --epsilon E --delta D."
    )


def _opening(
    settings: ServiceSettings, account: Account, analysts: Analysts, absent: Sequence[str] = ()
) -> str:
    cap, share = analysts.engine.budget, ""
    if settings.spend < 1:
        share = f", {settings.spend:.3g} of the account's; a fit could have epsilon {account.remaining():.3g}"
    lines = [
        f"serving {settings.data} at http://{settings.host}:{settings.port}  (stop with Ctrl-C)",
        _unit(analysts.engine),
        f"account {settings.account}: epsilon {cap.epsilon:g}, delta {cap.delta:.3g} for all queries "
        f"together{share}; {analysts.engine.remaining:.3g} left for new measurements",
        _comparisons(*analysts.engine.comparisons, witnessed=settings.witness is not None),
        _check(analysts.engine, absent),
        *_often_missing(analysts.engine),
    ]
    if settings.host not in LOCAL:
        lines.append("keys travel unencrypted on this address: put a reverse proxy with TLS in front")
    if not analysts.keys.list():
        where = "" if settings.ledger is None else f" --ledger {_public_place(settings.ledger)}"
        lines.append(f"nobody has a key yet:  dpcvx keys create NAME --account {settings.account}{where}")
    return "\n".join(lines)


def _public_place(ledger: str) -> str:
    """Return where a ledger is, as typed; a URL may hold a password."""
    return "(as here)" if "://" in ledger else shlex.quote(ledger)


def _unit(engine: QueryEngine) -> str:
    if engine.budget.unit == "row":
        return f"unit: one row, {engine.n:,} of them; a person in several rows is protected for each row only"
    return f"unit: one person with all of their rows, {engine.n:,} of them; the number of rows is private"


def _comparisons(left: int, total: int, *, witnessed: bool) -> str:
    if not total:
        return "this engine makes no comparisons: its budget went to other measurements"
    words = f"comparisons: {left} of {total} runs left"
    if not left:
        return f"{words}: answers are no longer checked, and there are no new measurements"
    if witnessed:
        return f"{words}; a stop loses none"
    return f"{words}; without --witness a stop loses the current one"


def _check(engine: QueryEngine, absent: Sequence[str] = ()) -> str:
    """Say what the check of the data found; all counts are shown if something looks wrong.

    `absent`: declared columns that the table lacks, which no count can show.
    """
    check = engine.data_check
    if check is None:
        return engine.check_summary.replace("check=", "--check ")  # as the command line has it
    if not check.findings:
        summary = check.summary
        if absent:
            counts, lacking = summary.rpartition(": ")[0], ", ".join(map(repr, absent))
            summary = f"{counts}: nothing else looks wrong, but the table lacks {lacking}"
        return f"check of the data: {summary}"
    return f"warning: {check.warning}\n{check}"


def _often_missing(engine: QueryEngine) -> tuple[str, ...]:
    """Name the attributes whose regressions will have no intervals, by noisy shares, which are public."""
    shares = engine.often_missing
    if not shares:
        return ()
    listed = ", ".join(f"{name} (about {share:.0%} lack it)" for name, share in shares.items())
    return (
        f"no intervals for regressions of {listed} on several attributes: no release shows how the people "
        "who lack the target differ from the others",
    )


def _show_key(analysts: Analysts) -> None:
    _, text = analysts.keys.create("demo", scopes=("ask", "admin"))
    print(f"key for this demonstration: {text}", file=sys.stderr, flush=True)
