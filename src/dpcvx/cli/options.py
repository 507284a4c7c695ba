"""Options of commands: those of estimators' parameters are made from the one text that describes each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dpcvx.errors import WrongValue
from dpcvx.estimators.documentation import PARAMETERS
from dpcvx.estimators.registry import COMMANDS, estimator_class

__all__ = [
    "TABLE_HELP",
    "AsJson",
    "DataFile",
    "Decimal",
    "Encoding",
    "Extrapolation",
    "FormOptions",
    "LedgerUrl",
    "LineBreaks",
    "Sep",
    "Sheet",
    "Witness",
    "has_own_bounds",
    "in_options",
    "make_estimator",
    "needs_bounds",
    "needs_classes",
    "read_numbers",
    "show_plan",
    "usual_meaning",
    "with_parameters",
]

TABLE_HELP = (
    "Table: .csv, .parquet, .xlsx, .dta (Stata), .sas7bdat, .xpt (SAS) or .sav (SPSS); one row is one person."
)
DataFile = Annotated[Path, typer.Argument(help=TABLE_HELP)]
LedgerUrl = Annotated[
    str | None, typer.Option("--ledger", help="File or URL of the ledger. Default: the user's own file.")
]
Witness = Annotated[
    Path | None,
    typer.Option(help="File that is told of every entry of the ledger, so that an old copy is noticed."),
]
Sep = Annotated[
    str | None,
    typer.Option(
        help="Character between the cells of a CSV file; or the word tab. This and the next four default to "
        "the section [file] of the schema file, or of the schema in a model."
    ),
]
Decimal = Annotated[str | None, typer.Option(help="Decimal point of numbers in a CSV file.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a CSV file, such as latin-1.")]
Sheet = Annotated[str | None, typer.Option(help="Sheet of an Excel workbook. Default: the first.")]
LineBreaks = Annotated[
    bool,
    typer.Option(
        "--quoted-line-breaks",
        help="Cells of the CSV file may hold line breaks, inside quotes; quotes inside cells are doubled. "
        "Without it every line is one record.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, errors too.")]
Extrapolation = Annotated[
    str | None,
    typer.Option(help="clip or linear, instead of the model's own; linear is coefficients alone, unclipped."),
]

# names of other programs for models, and options that have another form here
MODELS_ELSEWHERE = {
    **dict.fromkeys(("logit", "binomial", "classifier"), "logistic"),
    **dict.fromkeys(("ols", "lm", "gaussian", "ridge", "regression"), "linear"),
    **dict.fromkeys(("svm", "linear-svc"), "svc"),
    **dict.fromkeys(("count", "counts", "glm-poisson", "negbin"), "poisson"),
    **dict.fromkeys(("cox", "survival", "cloglog"), "hazard"),
    **dict.fromkeys(("ordered", "ologit", "polr"), "ordinal"),
    **dict.fromkeys(("gam", "ebm"), "additive"),
}
WEIGHTS_ELSEWHERE = ("--weights", "--weight", "--sample-weight", "--weight-bounds")
NAMES = {"random_state": "seed"}  # of parameters whose option is called otherwise
REQUIRED = ("epsilon",)
# where the schema file declares what Python has a parameter for
IN_FILE = {
    "bounds": "default",
    "y_bounds": "[target] bounds",
    "classes": "[target] classes",
    "categories": "[categories]",
    "groups": "[groups]",
}
NOTES = {"check=": "--check ", "uncertainty=": "--uncertainty "}  # parameters named in notes of plans
PHRASES = NOTES | {
    " or None": "",
    "None or a ": "a ",
    "--check ...": "--check",
    " or a Solver object": "",
    "True or False": "true or false",
}  # of Python alone
OWN_FORM = ("ledger",)  # the command line has a default of its own
WORDS = {"true": True, "false": False}
RUN = ("account", "backend", "extrapolation", "random_state")  # of a run or its model, not of its plan


def with_parameters(command: Callable[..., None], *, without: tuple[str, ...] = ()) -> Callable[..., None]:
    """Return a command with an option for each parameter of estimators that can be one.

    `command`: its parameter ``model`` receives a name of `COMMANDS`. Its parameter ``given`` receives the
    options that the user gave, as parameters of an estimator; they are listed in its place. `without`:
    parameters that the command has no use for.
    """
    chosen = [
        name
        for name, entry in PARAMETERS.items()
        if entry.option is not None and name not in (*without, *OWN_FORM)
    ]
    hints = get_type_hints(command, include_extras=True)
    listed: list[inspect.Parameter] = []
    for own in inspect.signature(command).parameters.values():
        if own.name == "given":
            listed += [_option(name) for name in chosen]
        elif own.name == "model":
            listed.append(_parameter("model", tuple(COMMANDS), "--model", "Model to fit.", required=True))
        else:
            listed.append(own.replace(annotation=hints[own.name], kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in chosen}
        command(
            **arguments,
            given={name: _value(name, value) for name, value in given.items() if value is not None},
        )

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in listed}
    vars(run)["__signature__"] = inspect.Signature(listed)
    return run


@dataclass(frozen=True)
class FormOptions:
    """The options of a command about the form of a file; None where an option is not given."""

    sep: str | None
    decimal: str | None
    encoding: str | None
    line_breaks: bool
    sheet: str | None

    def form(self, path: Path, schema: Any = None) -> Any:
        """Return the form of a file: these options, and the form that the schema declares for the rest."""
        from dpcvx.data.files import USUAL, CsvDialect

        declared = (USUAL if schema is None else schema.file).of(path)
        given = {
            "sep": None if self.sep is None else {"tab": "\t", "\\t": "\t"}.get(self.sep, self.sep),
            "decimal": self.decimal,
            "encoding": self.encoding,
            "line_breaks": self.line_breaks or None,
        }
        stated = {name: value for name, value in given.items() if value is not None}
        try:
            dialect = CsvDialect(**{**asdict(declared.dialect), **stated})
        except WrongValue as error:
            raise WrongValue(f"--{error}") from None
        return replace(declared, dialect=dialect, sheet=self.sheet or declared.sheet)


def usual_meaning(message: str, usage: str = "") -> str:
    """Return a hint for a message about an unknown model, option or argument; empty if there is none.

    `usage`: line that says which arguments the command has, and in which order.
    """
    model = re.match(r"Invalid value for '--model': .*?'([^']*)' is not one of", message)
    if model and (known := MODELS_ELSEWHERE.get(model[1].lower())):
        return f" Use --model {known}."
    option = re.match(r"No such option: (--[\w-]+)", message)
    if option and option[1] in WEIGHTS_ELSEWHERE:
        return (
            ' Declare the column of survey weights in the schema file, with kind = "weight" and bounds = [0, '
            "largest weight]."
        )
    about_arguments = re.match(r"No such option|Missing argument|Got unexpected extra argument", message)
    if about_arguments and usage:
        return f"{'' if message.endswith('.') else '.'} {usage}"
    return ""


def in_options(message: str) -> str:
    """Return a message about parameters of estimators in the words of the command line.

    A parameter is recognised by its underscore, by a value that is assigned to it, or at the start of the
    message; models and solvers by the names of their classes.
    """
    from dpcvx.solvers import NAMED_SOLVERS

    for name, entry in PARAMETERS.items():
        word = _spelled(name) if entry.option is not None else IN_FILE.get(name, name)
        assign = partial(_assigned, word, switch=entry.option is bool)
        message = re.sub(rf"\bleave {name} None\b", f"leave {word} out", message)
        message = re.sub(rf"(?<![\w.]){name}=(\"\w+\"|'\w+'|\([^)]*\)|True|False|\.\.\.)", assign, message)
        if entry.option is not None or "_" in name:
            start = r"(?<![\w./'\"-])" if "_" in name else "^"
            message = re.sub(rf"{start}{name}\b(?! *[(=./]| in )", word, message)
    classes = {kind: f"--model {command}" for command, kind in COMMANDS.items()}
    classes |= {kind.__name__: f"--solver {name}" for name, kind in NAMED_SOLVERS.items()}
    for kind, word in classes.items():
        message = re.sub(rf"\b{kind}\b", word, message)
    for python, word in PHRASES.items():
        message = message.replace(python, word)
    return message


def show_plan(plan: Any) -> str:
    """Return a plan, or a paragraph about one, for people; its notes name options."""
    shown = str(plan)
    for python, option in NOTES.items():
        shown = shown.replace(python, option)
    return shown


def _assigned(word: str, found: re.Match[str], *, switch: bool) -> str:
    """Write an assignment of Python as an option with its value, or as an entry of the schema file."""
    value = found[1].strip("\"'")
    if switch:
        return word if value == "True" else f"--no-{word[2:]}"
    if not word.startswith("--"):
        return f"{word} = {found[1].replace('(', '[').replace(')', ']')}"
    return f"{word} {value.lower() if value in ('True', 'False') else value}"


def _spelled(name: str) -> str:
    """Return the option of a parameter."""
    return "--" + NAMES.get(name, name).replace("_", "-")


def _option(name: str) -> inspect.Parameter:
    entry = PARAMETERS[name]
    spelled = _spelled(name)
    text = entry.text.replace("``", "").replace('"', "")
    return _parameter(name, entry.option, spelled, text, required=name in REQUIRED)


def _parameter(name: str, kind: Any, spelled: str, text: str, *, required: bool) -> inspect.Parameter:
    if isinstance(kind, tuple):
        choices: Any = StrEnum
        kind = choices(name, {word: word for word in kind})
    if kind is bool:
        spelled = f"{spelled}/--no-{spelled[2:]}"
    if kind is dict:
        kind, text = str, f"{text} Write {spelled} COLUMN=NUMBER,COLUMN=NUMBER."
    kind = kind if required else kind | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[kind, typer.Option(spelled, help=text)],
    )


def read_numbers(text: str, option: str) -> dict[str, float]:
    """Read pairs such as age=12,hours=8."""
    found = {}
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            name = ""
        if not name.strip():
            raise WrongValue(f"{option} must be pairs such as age=12,hours=8, got {text!r}.")
    return found


def _value(name: str, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if PARAMETERS[name].option is dict:
        return read_numbers(given, _spelled(name))
    if PARAMETERS[name].kind.startswith("float"):  # or a word
        try:
            return float(given)
        except ValueError:
            return given
    return WORDS.get(given, str(given))


def make_estimator(model: str, parameters: dict[str, Any]) -> Any:
    """Return the estimator of a ``--model``, after the checks that need no data.

    `model`: name on the command line; `parameters`: those of the estimator that were given.
    """
    from dpcvx.accounting import Budget

    Budget(parameters["epsilon"], parameters.get("delta", 0.0))  # refuses what is no budget
    kind = estimator_class(COMMANDS[model])
    for name in parameters:
        if not hasattr(kind, name):
            owners = [other for other, each in COMMANDS.items() if hasattr(estimator_class(each), name)]
            raise WrongValue(
                f"--{name.replace('_', '-')} belongs to --model {', '.join(owners)}, not to --model {model}."
            )
    return kind(**parameters)


def has_own_bounds(model: str) -> bool:
    """Say whether the targets of a ``--model`` have bounds that are those of its kind, such as shares."""
    return getattr(estimator_class(COMMANDS[model]), "y_bounds", None) is not None


def needs_bounds(model: str) -> bool:
    """Say whether a ``--model`` has bounds of the target."""
    return hasattr(estimator_class(COMMANDS[model]), "y_bounds")


def needs_classes(model: str) -> bool:
    """Say whether a ``--model`` predicts labels."""
    return hasattr(estimator_class(COMMANDS[model]), "classes")
