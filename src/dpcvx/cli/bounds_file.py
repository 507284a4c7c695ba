"""The bounds file: what a user declares about the columns of a table, for ``dpcvx fit``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpcvx.data.files import HEADER_HINT, read_bytes
from dpcvx.errors import WrongValue
from dpcvx.words import is_number

__all__ = ["BoundsFile"]

Level = str | int | float
Pair = tuple[float, float]

KEYS = {"bounds", "default", "categories", "groups", "target", "data_norm"}
PRIVATE = "private"  # in the place of bounds that the fit is to release
TARGET_KEYS = {"bounds", "classes"}


@dataclass(frozen=True)
class BoundsFile:
    """Declarations about a table, in the user's units."""

    bounds: dict[str, Pair] = field(default_factory=dict)  # lowest and highest value of numeric columns
    # pair of float, or "private": bounds of every column that is not declared otherwise; without it such
    # columns are not used. "private" has the fit release noisy bounds of all columns that have no levels.
    default: Pair | str | None = None
    categories: dict[str, tuple[Level, ...]] = field(default_factory=dict)  # levels of text columns
    # columns that belong together, by the name of their group
    groups: dict[str, tuple[Level, ...]] = field(default_factory=dict)
    # pair of float, or "private": lowest and highest target, for regression
    target_bounds: Pair | str | None = None
    classes: tuple[Level, ...] | None = None  # labels, for classification
    data_norm: float | None = None  # largest l2 norm of a row

    @classmethod
    def all_private(cls) -> BoundsFile:
        """Declare that every column is a number, and that the fit releases bounds of columns and target."""
        return cls(default=PRIVATE, target_bounds=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> BoundsFile:
        """Read a bounds file: TOML, as in the page on bounds.toml."""
        try:
            content = tomllib.loads(read_bytes(path).decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise WrongValue(f"{path} is not valid TOML: {error}") from None
        if unknown := set(content) - KEYS:
            raise WrongValue(f"{path} has unknown entries {_listed(unknown)}; known are {_listed(KEYS)}.")
        bounds, categories, groups, target = (
            _section(content, name, path) for name in ("bounds", "categories", "groups", "target")
        )
        if unknown := set(target) - TARGET_KEYS:
            raise WrongValue(
                f"[target] in {path} has unknown entries {_listed(unknown)}; known are bounds, classes."
            )
        if twice := set(bounds) & set(categories):
            raise WrongValue(
                f"{path} declares {_listed(twice)} under [bounds] and under [categories]; keep one."
            )
        norm = content.get("data_norm")
        if norm is not None and not is_number(norm, 0, math.inf):
            raise WrongValue(f"data_norm in {path} must be a positive number, got {norm!r}.")
        labels, default = (
            target.get("classes"),
            _pair_or_private(content.get("default"), f"default in {path}"),
        )
        if default == PRIVATE and bounds:
            raise WrongValue(
                f'{path} declares bounds of {_listed(bounds)} beside default = "private": bounds of columns '
                "are all declared, or all released by the fit."
            )
        return cls(
            bounds={name: _pair(pair, f"[bounds] {name} in {path}") for name, pair in bounds.items()},
            default=default,
            categories={
                name: _levels(levels, f"[categories] {name} in {path}") for name, levels in categories.items()
            },
            groups={name: _levels(columns, f"[groups] {name} in {path}") for name, columns in groups.items()},
            target_bounds=_pair_or_private(target.get("bounds"), f"[target] bounds in {path}"),
            classes=None if labels is None else _levels(labels, f"[target] classes in {path}"),
            data_norm=norm,
        )

    def features(self, columns: Sequence[str], target: str, chosen: Sequence[str] = ()) -> list[str]:
        """Return the names of the features, in the table's order.

        `columns`: columns of the table; `target`: the column to predict; `chosen`: columns to use; all
        declared ones by default.
        """
        _require_columns([target], columns, "The table's header lacks the target")
        declared = [*self.bounds, *self.categories]
        _require_columns(declared, columns, "The bounds file declares columns that the table's header lacks:")
        grouped = [name for group in self.groups.values() for name in group]
        _require_columns(grouped, columns, "The bounds file groups columns that the table's header lacks:")
        _require_columns(chosen, columns, "--features names columns that the table's header lacks:")
        if target in declared or target in chosen:
            raise WrongValue(
                f"{target!r} is the target and a feature at once; declare it under [target] only."
            )
        if chosen and self.default is None and (undeclared := [c for c in chosen if c not in declared]):
            raise WrongValue(
                f"Nothing is declared for {_listed(undeclared)}: add each to [bounds] or [categories], "
                "or give a default."
            )
        wanted = set(chosen) or (set(declared) if self.default is None else set(columns) - {target})
        if not wanted:
            raise WrongValue("The bounds file declares no feature: add columns to [bounds] or [categories].")
        return [name for name in columns if name in wanted]

    def column_bounds(self, features: Sequence[str]) -> dict[str, Any] | str:
        """Return the bounds of the numeric features, by name, or "private"."""
        if self.default == PRIVATE:
            return PRIVATE
        numeric = [name for name in features if name not in self.categories]
        return {name: self.bounds.get(name, self.default) for name in numeric}

    def column_groups(self, features: Sequence[str]) -> dict[str, list[Level]]:
        """Return what the groups hold of the features; the others are groups of their own."""
        held = {group: [name for name in names if name in features] for group, names in self.groups.items()}
        return {group: names for group, names in held.items() if names}


def _section(content: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise WrongValue(
            f"{name} in {path} must be a section: [{name}] followed by one line for each column."
        )
    return section


def _pair(value: Any, where: str) -> Pair:
    if not (
        isinstance(value, list) and len(value) == 2 and all(map(is_number, value)) and value[0] < value[1]
    ):
        raise WrongValue(f"{where} must be a pair [lowest, highest] of numbers, got {value!r}.")
    return float(value[0]), float(value[1])


def _pair_or_private(value: Any, where: str) -> Pair | str | None:
    return value if value is None or value == PRIVATE else _pair(value, where)


def _levels(value: Any, where: str) -> tuple[Level, ...]:
    alike = isinstance(value, list) and (all(isinstance(v, str) for v in value) or all(map(is_number, value)))
    if not alike or not value or len(set(value)) < len(value):
        raise WrongValue(
            f"{where} must be a list of different texts, or of different numbers; got {value!r}."
        )
    return tuple(value)


def _require_columns(names: Sequence[Level], columns: Sequence[str], complaint: str) -> None:
    if absent := [name for name in names if name not in columns]:
        raise WrongValue(f"{complaint} {_listed(absent)}; {HEADER_HINT}")


def _listed(names: Any) -> str:
    names = sorted(names) if isinstance(names, set) else list(names)
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
