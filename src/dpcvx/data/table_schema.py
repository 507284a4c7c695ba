"""The declaration of a table, shared by Python, schema files, the command line, shards, Dask and queries."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dpcvx.data.cells import native_array
from dpcvx.data.files import USUAL, FileForm
from dpcvx.data.model_formula import ModelFormula, TargetTransform, read_formula
from dpcvx.data.proposals import propose_columns
from dpcvx.data.schema_columns import (
    BooleanColumn,
    IgnoredColumn,
    LevelColumn,
    NumberColumn,
    PersonColumn,
    WeightColumn,
    column_fields,
    read_column_fields,
)
from dpcvx.data.table_file import HEADER_HINT, read_toml
from dpcvx.data.variables import ASK, PRIVATE, Variable, blank, number_pair
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.words import is_number, nearest, show

__all__ = ["TableSchema", "fill_in_bounds"]

KEYS = (
    "confirmed",
    "formula",
    "default",
    "data_norm",
    "no_queries",
    "file",
    "target",
    "bounds",
    "categories",
    "columns",
    "groups",
)
TARGET_KEYS = {"column", "bounds", "classes", "missing_codes"}
NOT_NAMED = IgnoredColumn()
OPEN_BOUNDS = re.compile(r'^bounds *= *"\?".*$', re.MULTILINE)
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # that TOML takes without quotes


@dataclass(frozen=True)
class TableSchema:
    """Public declaration of the columns of a table.

    It may name more columns than a table has: one schema serves many tables. Columns of a table that it does
    not name are not used, unless there is a default.

    Parameters
    ----------
    columns : mapping from name to column
        `NumberColumn`, `LevelColumn`, `BooleanColumn`, `DateColumn`, `HashedColumn`, `IgnoredColumn`,
        `PersonColumn`, `WeightColumn`.
    target : str, optional
        Column to predict. It is not a feature; its declaration gives ``y_bounds`` or ``classes`` where the
        estimator has none.
    target_values : NumberColumn or LevelColumn, optional
        Declaration of the target in place of its entry among the columns.
    default : pair of float, or "private", optional
        Bounds of every column of the table that is not named here, which is then a number.
    groups : mapping from name to columns
        Columns that belong together, for the group lasso.
    data_norm : float, optional
        Largest l2 norm of a row.
    confirmed : bool
        False for a schema made from names alone: nothing is fitted before somebody has checked it.
    file : FileForm
        Form of the files that hold such tables: separator, decimal point and encoding of CSV files, sheet of
        workbooks. Tables in memory have none.
    formula : str, optional
        Which variables a model has, such as ``"log(wage) ~ age + C(region, ref='north') + age:sex"``; needs
        ``dpcvx[formula]``. Its left side gives the target. See the page "Formulas".
    no_queries : sequence of str
        Columns that are left out of queries, for instance numbers without bins. Fits use them.
    """

    columns: Mapping[str, Any]
    target: str | None = None
    target_values: Any = None
    default: Any = None
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    data_norm: float | None = None
    confirmed: bool = True
    file: FileForm = USUAL
    formula: str | None = None
    no_queries: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not all(
            isinstance(name, str) and hasattr(column, "variables") for name, column in self.columns.items()
        ):
            raise WrongType(
                "columns must be a mapping from name to a column such as NumberColumn((0, 100)) or "
                f"LevelColumn(['no', 'yes']), got {show(self.columns)}."
            )
        object.__setattr__(self, "columns", dict(self.columns))
        object.__setattr__(self, "groups", {name: tuple(group) for name, group in self.groups.items()})
        if not isinstance(self.no_queries, list | tuple) or not all(
            isinstance(name, str) for name in self.no_queries
        ):
            raise WrongValue(f"no_queries must be a list of columns, got {show(self.no_queries)}.")
        object.__setattr__(self, "no_queries", tuple(self.no_queries))
        if self.default not in (None, PRIVATE):
            object.__setattr__(self, "default", number_pair(self.default, "default"))
        if self.data_norm is not None and not is_number(self.data_norm, 0, math.inf):
            raise WrongValue(f"data_norm must be a positive number, got {show(self.data_norm)}.")
        numbers = [name for name in self._of_kind(NumberColumn.kind) if self.columns[name].bounds != PRIVATE]
        if self.default == PRIVATE and numbers:
            raise WrongValue(
                f'The schema declares bounds of {_listed(numbers)} beside default = "private": '
                "bounds of columns are all declared, or all released by the fit."
            )
        if self.formula is not None and (named := self._formula.target) is not None:
            object.__setattr__(self, "target", named)
        if len(persons := self._of_kind(PersonColumn.kind)) > 1:
            raise WrongValue(f"Only one column can hold the ids of persons, got {_listed(persons)}.")
        if len(weights := self._of_kind(WeightColumn.kind)) > 1:
            raise WrongValue(f"Only one column can hold survey weights, got {_listed(weights)}.")

    @classmethod
    def from_toml(cls, path: str | Path) -> TableSchema:
        """Read a schema file, as on the page "Declaring a table".

        Parameters
        ----------
        path : str or Path
            TOML file.
        """
        return cls.from_dict(read_toml(Path(path)), str(path))

    @classmethod
    def from_dict(cls, content: Any, where: str = "The schema") -> TableSchema:
        """Read what `to_dict` returns, or the content of a schema file.

        `where`: name of the file, for messages.
        """
        if not isinstance(content, Mapping):
            raise WrongValue(f"{where} must be a mapping.")
        if unknown := set(content) - set(KEYS):
            raise WrongValue(f"{where} has unknown entries {_listed(unknown)}; known are {_listed(KEYS)}.")
        bounds, levels, columns, groups, target = (
            _section(content, name, where) for name in ("bounds", "categories", "columns", "groups", "target")
        )
        declared: dict[str, Any] = {}
        home: dict[str, str] = {}  # section of each column
        for section, entries, make in (
            ("bounds", bounds, lambda value: {"kind": NumberColumn.kind, "bounds": value}),
            ("categories", levels, lambda value: {"kind": LevelColumn.kind, "levels": value}),
            ("columns", columns, lambda value: value),
        ):
            for name, value in entries.items():
                if home.setdefault(name, section) != section:
                    raise WrongValue(
                        f"{where} declares {name!r} under [{home[name]}] and under [{section}]; keep one."
                    )
                declared[name] = read_column_fields(make(value), f"[{section}] {name} in {where}")
        if unknown := set(target) - TARGET_KEYS:
            raise WrongValue(
                f"[target] in {where} has unknown entries {_listed(unknown)}; known are "
                f"{_listed(TARGET_KEYS)}."
            )
        values: Any = None
        codes = {name: value for name, value in target.items() if name == "missing_codes"}
        if codes and not {"bounds", "classes"} & set(target):
            raise WrongValue(
                f"[target] in {where} has missing_codes without bounds or classes: add these too, or declare "
                "missing_codes with the column."
            )
        if "bounds" in target:
            values = read_column_fields(
                {"kind": NumberColumn.kind, "bounds": target["bounds"], **codes},
                f"[target] bounds in {where}",
            )
        if "classes" in target:
            values = read_column_fields(
                {"kind": LevelColumn.kind, "levels": target["classes"], **codes},
                f"[target] classes in {where}",
            )
        if not isinstance(target.get("column", ""), str):
            raise WrongValue(f"[target] column in {where} must be the name of a column.")
        for name, group in groups.items():
            if not isinstance(group, list | tuple) or not all(isinstance(each, str) for each in group):
                raise WrongValue(f"[groups] {name} in {where} must be a list of columns, got {show(group)}.")
        try:
            file = FileForm.from_plain(_section(content, "file", where))
        except WrongValue as error:
            raise WrongValue(f"[file] in {where}: {error}") from None
        no_queries = content.get("no_queries", ())
        if "default" not in content and isinstance(no_queries, list):
            _require_declared(no_queries, [*declared, target.get("column")], f"no_queries in {where}")
        if not isinstance(content.get("confirmed", True), bool):
            raise WrongValue(f"confirmed in {where} must be true or false.")
        try:
            return cls(
                declared,
                target=target.get("column"),
                target_values=values,
                default=content.get("default"),
                groups=groups,
                data_norm=content.get("data_norm"),
                confirmed=content.get("confirmed", True),
                file=file,
                formula=content.get("formula"),
                no_queries=no_queries,
            )
        except WrongValue as error:
            raise WrongValue(f"{where}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain numbers, texts, lists and mappings."""
        content: dict[str, Any] = {}
        if not self.confirmed:
            content["confirmed"] = False
        for name in ("formula", "default", "data_norm"):
            if getattr(self, name) is not None:
                content[name] = _plain(getattr(self, name))
        if self.no_queries:
            content["no_queries"] = list(self.no_queries)
        target = {} if self.target is None else {"column": self.target}
        if self.target_values is not None:
            stated = column_fields(self.target_values)
            names = {"bounds": "bounds", "levels": "classes", "missing_codes": "missing_codes"}
            target |= {names[key]: _plain(value) for key, value in stated.items() if key in names}
        if form := self.file.to_plain():
            content["file"] = form
        content["columns"] = {name: _plain(column_fields(column)) for name, column in self.columns.items()}
        if target:
            content["target"] = target
        if self.groups:
            content["groups"] = _plain(self.groups)
        return content

    @classmethod
    def from_header(
        cls,
        names: Sequence[str],
        types: Mapping[str, str] | None = None,
        *,
        target: str | None = None,
        labels: Mapping[str, Sequence[str]] | None = None,
    ) -> TableSchema:
        """Propose a schema from the names of columns; nothing is fitted before somebody has confirmed it.

        Parameters
        ----------
        names : sequence of str
            Names of the table's columns.
        types : mapping from name to {"number", "text", "boolean", "date"}, optional
            Declared types, where they are known. The types in a file may have been inferred from its cells.
        target : str, optional
            Column to predict.
        labels : mapping from name to sequence of str, optional
            Names of a column's values, where a file declares them, as those of Stata do.
        """
        proposed = propose_columns(names, types or {}, labels or {}, target)
        columns = {name: each.column for name, each in proposed.items()}
        return cls(columns, target=target, confirmed=False)

    def to_toml(self, path: str | Path | None = None, *, notes: Mapping[str, str] | None = None) -> str:
        """Return the declaration as the text of a schema file, and write it where a path is given.

        `notes`: comments, by column.
        """
        content = self.to_dict()
        lines = [f"{key} = {_toml(value)}" for key, value in content.items() if not isinstance(value, dict)]
        if "file" in content:
            lines += ["", "[file]", *(f"{key} = {_toml(value)}" for key, value in content["file"].items())]
        for name, column in content["columns"].items():
            lines += ["", f"[columns.{_key(name)}]"]
            lines += [f"# {' '.join(note.split())}"] if (note := (notes or {}).get(name)) else []
            lines += [f"{key} = {_toml(value)}" for key, value in column.items()]
        for section in ("target", "groups"):
            if section in content:
                entries = content[section].items()
                lines += ["", f"[{section}]", *(f"{_key(key)} = {_toml(v)}" for key, v in entries)]
        text = "\n".join(lines).lstrip("\n") + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @property
    def person(self) -> str | None:
        """Column that says which person a row belongs to."""
        return next(iter(self._of_kind(PersonColumn.kind)), None)

    @property
    def weight(self) -> str | None:
        """Column with the survey weights of rows."""
        return next(iter(self._of_kind(WeightColumn.kind)), None)

    def target_parameters(self) -> dict[str, Any]:
        """Return the estimator's parameters of the target, as far as they are declared."""
        declared = self._target_values(self.target)
        if declared is None:
            return {}
        found: dict[str, Any] = declared.target("target" if self.target is None else self.target)
        if self.formula is not None and "y_bounds" in found:
            found["y_bounds"] = self._formula.target_bounds(found["y_bounds"])
        return found

    @property
    def target_levels(self) -> tuple[Any, ...] | None:
        """Levels or classes that are declared for the target; None for a target of numbers.

        If all levels are numbers and [target] has bounds, the target is a number too.
        """
        own = None if self.target is None else self.columns.get(self.target)
        for declared in (self.target_values, own):
            if declared is None or declared.kind not in (LevelColumn.kind, BooleanColumn.kind):
                continue
            levels = tuple(declared.target(self.target or "target")["classes"])
            has_bounds = getattr(self.target_values, "kind", None) == NumberColumn.kind
            return None if has_bounds and all(map(is_number, levels)) else levels
        return None

    @property
    def target_transform(self) -> TargetTransform | None:
        """Map of the target's numbers, where the formula's left side is not the column itself."""
        declared = self._target_values(self.target)
        bounds = getattr(declared, "bounds", None)
        if self.formula is None or not isinstance(bounds, tuple):
            return None
        return self._formula.target_transform(*bounds)

    @property
    def intercept(self) -> bool:
        """False where the formula has none."""
        return self.formula is None or self._formula.intercept

    def with_formula(self, formula: str) -> TableSchema:
        """Return the schema with a formula, which says which variables a model has and which is its target.

        Parameters
        ----------
        formula : str
            Such as ``"log(wage) ~ age + C(region, ref='north') + age:sex"``.
        """
        return replace(self, formula=formula)

    def _target_values(self, target: str | None) -> Any:
        """The declaration of a target: its own, or that of a column."""
        if self.target_values is not None:
            return self.target_values
        return None if target is None else self.columns.get(target)

    def read_target(self, y: Any) -> Any:
        """Return raw targets; those that are declared codes of missing ones are missing.

        `y`: array-like, shape (n,); anything of another shape, or without such codes, is returned as it is.
        """
        codes = getattr(self._target_values(self.target), "missing_codes", ())
        if not codes or y is None:
            return y
        cells = native_array(y)
        return blank(codes, cells) if cells.ndim == 1 else y

    def require_confirmed(self) -> None:
        """Refuse a schema that is incomplete or not confirmed."""
        open_ones = [
            f"{each.name} of {name!r}"
            for name, column in self.columns.items()
            for each in fields(column)
            if _is_open(getattr(column, each.name))
        ]
        if open_ones:
            raise WrongValue(
                f'The schema is not complete: "?" stands for {_listed(open_ones, quote=False)}. Fill it in '
                "from what is publicly known, never from the table, or declare the column as ignored."
            )
        if not self.confirmed:
            raise WrongValue(
                "The schema is not confirmed: it was made from the names of columns alone. Check every line, "
                "then delete the line  confirmed = false  (in Python: replace(schema, confirmed=True))."
            )

    def for_table(self, columns: Sequence[Any], target: str | None = None) -> TableSchema:
        """Return the schema for one table: the features that the table has, in its order, without a default.

        `columns`: names of the table's columns; `target`: the one to predict, by default the schema's.
        """
        self.require_confirmed()
        if self.person in columns:
            raise WrongValue(
                f"The schema says that column {self.person!r} holds the ids of persons: fit or read a table "
                f"with person={self.person!r}, and give a query engine the ids as groups, so that all rows "
                "of a person are protected together. If every row is a different person, declare the column "
                "as ignored."
            )
        if self.weight in columns:
            raise WrongValue(
                f"The schema says that column {self.weight!r} holds survey weights: give fit "
                f"sample_weight={self.weight!r} and the estimator weight_bounds=(0, V). If rows are not to "
                "be weighted, declare the column as ignored."
            )
        target = self.target if target is None else target
        read = [name for name in columns if name != target and self._column(name).variables(name)]
        if self.formula is not None:
            read = self._of_formula(read, target)
        if not read:
            raise WrongValue(
                f"The schema declares no feature among the columns of the table; {HEADER_HINT} The schema "
                f"declares {_listed(self.columns)}."
            )
        groups = {name: [each for each in group if each in read] for name, group in self.groups.items()}
        return replace(
            self,
            columns={name: self._column(name) for name in read},
            target=target,
            target_values=self.target_values if target is None else self._target_values(target),
            default=None,
            groups={name: group for name, group in groups.items() if group},
            no_queries=[name for name in self.no_queries if name in read],
        )

    def features_beside(self, other: TableSchema) -> list[str]:
        """Return the declared features, by their columns, that another schema does not have."""
        return [
            name
            for name, column in self.columns.items()
            if name not in other.columns and name != self.target and column.variables(name)
            if self.formula is None  # it chooses among them, and a column that it lacks is refused
        ]

    def variables(self) -> tuple[Variable, ...]:
        """Return the variables that a model reads, in the order of the columns."""
        self.require_confirmed()
        found = [each for name, column in self.columns.items() for each in column.variables(name)]
        if self.formula is not None:
            found = list(self._formula.variables({each.name: each for each in found}))
        names = [each.name for each in found]
        if len(set(names)) < len(names):
            raise WrongValue("Two columns give variables of the same name; rename a column of the table.")
        private = [each.name for each in found if each.bounds == PRIVATE]
        declared = [each.name for each in found if each.levels is None and each.bounds != PRIVATE]
        if private and declared:
            raise Incompatible(
                f"Bounds of {_listed(private)} are private and those of {_listed(declared)} are declared: "
                "bounds of columns are all declared, or all released by the fit."
            )
        return tuple(found)

    def features(self) -> list[str]:
        """Return the columns that are read as features."""
        return [name for name, column in self.columns.items() if column.variables(name)]

    def text_columns(self) -> list[str]:
        """Return the columns whose cells are read as text."""
        return [name for name, column in self.columns.items() if column.text]

    @property
    def _formula(self) -> ModelFormula:
        return read_formula(self.formula or "")

    def _of_formula(self, columns: Sequence[str], target: str | None) -> list[str]:
        """The columns among those of a table that the formula reads, or a refusal."""
        if target != self._formula.target and self._formula.target is not None:
            raise WrongValue(
                f"The left side of the formula {self.formula!r} gives the target: leave out {target!r}."
            )
        wanted = set(self._formula.names)
        own = {name: {each.name for each in self._column(name).variables(name)} for name in columns}
        if absent := wanted - set().union(*own.values()):
            raise WrongValue(
                f"The formula names {_listed(absent)}{nearest(min(absent), self.columns)}, which is not a "
                "declared feature of the table: see "
                f"that it is declared, and spelt as in the table's header; {HEADER_HINT}"
            )
        return [name for name in columns if own[name] & wanted]

    def _column(self, name: Any) -> Any:
        if name in self.columns:
            return self.columns[name]
        return NOT_NAMED if self.default is None else NumberColumn(self.default)

    def _of_kind(self, kind: str) -> list[str]:
        return [name for name, column in self.columns.items() if column.kind == kind]


def fill_in_bounds(content: str, column: str, lines: str) -> str:
    """Return the text of a schema file with the open bounds of a column replaced, and all else as it is.

    `column`: its name, of a section [columns.NAME] with a line  bounds = "?"; `lines`: to put in its place.
    """
    head = f"[columns.{_key(column)}]"
    before, found, after = content.partition(head)
    section, brackets, rest = after.partition("\n[")
    filled = OPEN_BOUNDS.sub(lambda _: lines, section, count=1)
    if not found or filled == section:
        raise WrongValue(f'The schema file has no section {head} with a line  bounds = "?".')
    return f"{before}{found}{filled}{brackets}{rest}"


def _require_declared(names: Iterable[Any], declared: Sequence[Any], where: str) -> None:
    if unknown := {name for name in names if isinstance(name, str) and name not in declared}:
        known = [name for name in declared if isinstance(name, str)]
        raise WrongValue(
            f"{where} names {_listed(unknown)}{nearest(min(unknown), known)}, which is not declared. Correct "
            "the name, or leave it out."
        )


def _is_open(value: Any) -> bool:
    return value == ASK or (isinstance(value, list | tuple) and ASK in value)


def _section(content: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise WrongValue(f"{name} in {where} must be a section: [{name}] followed by its entries.")
    return section


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # inf and nan are the same words in TOML
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


def _listed(names: Iterable[Any], *, quote: bool = True) -> str:
    names = sorted(names) if isinstance(names, set | frozenset) else list(names)
    shown = ", ".join(repr(name) if quote else str(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
