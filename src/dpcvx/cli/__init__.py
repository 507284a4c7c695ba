"""Command line: ``dpcvx declare``, ``fit``, ``show``, ``predict``, ``export``, ``plan``, ``serve`` and more.

Only typer and the standard library are imported here, so that ``dpcvx --help`` answers at once.
"""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dpcvx.cli.audit import audit
from dpcvx.cli.declare import declare
from dpcvx.cli.export import export
from dpcvx.cli.fit import BOUNDS_EXAMPLE, fit
from dpcvx.cli.ledger import ledger_app
from dpcvx.cli.options import RUN, in_options, usual_meaning, with_parameters
from dpcvx.cli.output import Stopped, print_json, write_folder
from dpcvx.cli.plan import plan
from dpcvx.cli.predict import predict
from dpcvx.cli.report import report
from dpcvx.cli.score import score
from dpcvx.cli.service import ask, keys_app, serve
from dpcvx.cli.show import show as show_model
from dpcvx.cli.verify import verify

__all__ = ["main"]

# Exit codes; 2 is also the one of a wrong command line, and typer turns an interrupt into 130.
UNEXPECTED, REFUSED, FILE_PROBLEM, INTERRUPTED = 1, 2, 3, 130

HELP = """Fit models on data about people with a proved differential privacy guarantee.

Exit codes: 0 done; 1 unexpected error; 2 wrong option, schema file or column; 3 a file is missing, empty,
unreadable or not writable, or a package is not installed; 4 a statement or an audit does not hold; 130
interrupted.
"""

app = typer.Typer(
    name="dpcvx", help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Show the version."""
    if show:
        from dpcvx import __version__

        typer.echo(f"dpcvx {__version__}")
        raise typer.Exit


app.command()(declare)
app.command(epilog=BOUNDS_EXAMPLE)(with_parameters(fit))
app.command()(predict)
app.command("show")(show_model)
app.command()(report)
app.command()(verify)
app.command()(audit)
app.command()(export)
app.command()(score)
app.command()(with_parameters(plan, without=RUN))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot and the report.")] = Path("demo_output"),
) -> None:
    """Fit private models on real data about people, at several budgets; write a plot and a report."""
    from dpcvx.demo import run

    write_folder(out, run)


app.command()(serve)
app.command()(ask)
app.add_typer(keys_app, name="keys")


app.add_typer(ledger_app, name="ledger")


def main() -> None:
    """Run the command line; every error a person can mend is one sentence and an exit code."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say
            code = app(prog_name="dpcvx", standalone_mode=False)
    except Exception as error:
        message, code = _explained(error)
        if "--json" in sys.argv:
            print_json({"error": {"message": message, "exit_code": code}})
        else:
            typer.echo(message if message.startswith("Usage:") else f"dpcvx: {message}", err=True)
    finally:
        signal.signal(signal.SIGINT, before)
    sys.exit(code if isinstance(code, int) else 0)


def _interrupt(*_: Any) -> None:
    """Let the first Ctrl-C end the command in order; a second one ends it at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one sentence, without the line of code that gave it, on a clean line."""
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    typer.echo(f"{clear}dpcvx: {in_options(str(message))}", err=True)


def _explained(error: Exception) -> tuple[str, int]:
    """Message and exit code of an error; text that could hold data is withheld."""
    from dpcvx.errors import DpcvxError, LedgerUnavailable, NotInstalled, Unreadable

    if hasattr(error, "format_message"):  # of typer: the command line itself is wrong
        message = str(error.format_message())
        context: Any = getattr(error, "ctx", None)
        usage = "" if context is None else " ".join(context.get_usage().split())
        return f"{message}{usual_meaning(message, usage)}", REFUSED
    if isinstance(error, Unreadable | LedgerUnavailable | NotInstalled):
        return in_options(str(error)), FILE_PROBLEM
    if isinstance(error, Stopped):
        return str(error), INTERRUPTED
    if isinstance(error, DpcvxError):
        return in_options(str(error)), REFUSED
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return (
        f"unexpected {type(error).__name__} in {where}; its text is withheld, as it could hold data.",
        UNEXPECTED,
    )
