"""Public facts that a user declares about records, with the estimator or with the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dpcvx.data.column_maps import read_map
from dpcvx.data.levels import DECLARED, DeclaredLevels
from dpcvx.errors import Incompatible, WrongType
from dpcvx.words import show

if TYPE_CHECKING:
    from dpcvx.data.model_formula import TargetTransform
    from dpcvx.data.table import Table
    from dpcvx.data.table_schema import TableSchema

__all__ = ["AUTO", "Declarations", "check_schema", "is_map_of_columns"]

AUTO, NO_MAPS = "auto", "none"  # words in the place of maps


@dataclass(frozen=True, eq=False)
class Declarations:
    """Bounds, levels and labels of records, as the user writes them; None where nothing is declared."""

    # pair, pair of arrays, mapping from column to pair, or "private": bounds of the columns
    bounds: Any = None
    categories: Mapping[Any, Any] | None = None  # levels of columns that hold no numbers
    data_norm: float | None = None  # bound on the l2 norm of a row
    classes: Any = None  # sequence or "from_y": labels of the target
    y_bounds: Any = None  # pair or "private": bounds of the target
    schema: TableSchema | None = None  # in place of bounds and categories, and perhaps of the others
    # mapping from column to column map or request, one for all numbers, or "auto": by rule of the estimator
    maps: Any = None

    def map_of_each(self, table: Table) -> dict[int, Any]:
        """Return the map that is declared for each number, or the request for one, by position.

        A declared identity is included.
        """
        if self.maps in (None, AUTO, NO_MAPS):
            return {}
        if is_map_of_columns(self.maps):
            given = {table.position(key, "maps"): each for key, each in self.maps.items()}
        else:
            with_levels = {table.position(key, "categories") for key in self.categories or {}}
            given = {j: self.maps for j in range(table.d) if j not in with_levels}
        return {j: read_map(each, f"maps[{table.label(j)!r}]") for j, each in given.items()}

    @property
    def missing(self) -> dict[str, float]:
        """Numbers that missing cells count as, by variable of a resolved schema."""
        variables = () if self.schema is None else self.schema.variables()
        return {each.name: each.missing for each in variables if each.missing is not None}

    @property
    def target_transform(self) -> TargetTransform | None:
        """Map of the target's numbers, by the left side of a schema's formula."""
        return None if self.schema is None else self.schema.target_transform

    @classmethod
    def of(cls, model: Any) -> Declarations:
        """Return the declarations among an estimator's parameters."""
        return cls(**{field.name: getattr(model, field.name, None) for field in fields(cls)})

    def by_name(self) -> dict[str, Any]:
        """Return the declarations that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def with_data(self, declared: Mapping[str, Any], model: Any) -> Declarations:
        """Return an estimator's declarations together with those of its data; nothing may be declared twice.

        `declared`: declarations of a data set, by name; `model`: whose declarations these are; it is not
        changed.
        """
        for name in declared:
            if not hasattr(model, name):
                raise Incompatible(f"The data declare {name}, which {type(model).__name__} does not have.")
            own = getattr(self, name)
            if own is not None and not (isinstance(own, str) and own == AUTO):
                raise Incompatible(
                    f"{name} is declared with the data and with the estimator: declare it once."
                )
        return replace(self, **declared)

    def resolved(self, schema: TableSchema | None, encoding: str) -> Declarations:
        """Return the declarations that follow from a schema; without one, these. Levels have their baselines.

        `schema`: of one table, see `TableSchema.for_table`. Declarations beside it take the place of its
        target and of its data_norm. `encoding`: of levels, see `DeclaredLevels.with_baseline`.
        """
        if schema is None:
            if not isinstance(self.categories, Mapping):
                return self
            declared = {
                key: DeclaredLevels.declare(levels, f"categories[{key!r}]").with_baseline(None, encoding)
                for key, levels in self.categories.items()
            }
            return replace(self, categories=declared)
        for name in ("bounds", "categories"):
            if getattr(self, name) is not None:
                raise Incompatible(f"schema declares the columns, and {name} is given too: give one of them.")
        variables = schema.variables()
        bounds = {each.name: each.bounds for each in variables if each.levels is None}
        values = {"data_norm": schema.data_norm, **schema.target_parameters()}
        given: dict[str, Any] = {"schema": schema}
        given["bounds"] = "private" if "private" in bounds.values() else bounds
        given["categories"] = {
            each.name: DeclaredLevels(each.levels).with_baseline(
                each.baseline, encoding if each.is_compared else DECLARED
            )
            for each in variables
            if each.levels is not None
        }
        given |= {name: value for name, value in values.items() if getattr(self, name) is None}
        own = {each.name: each.map for each in variables if each.map is not None}
        if own and self.maps not in (None, AUTO, NO_MAPS):
            raise Incompatible("schema declares maps of columns, and maps is given too: give one of them.")
        given |= {"maps": own} if own else {}
        return replace(self, **given)


def is_map_of_columns(maps: Any) -> bool:
    """Say whether maps are given by column: a mapping that is not one map written as a mapping."""
    return isinstance(maps, Mapping) and "kind" not in maps


def check_schema(schema: Any) -> None:
    """Refuse a parameter ``schema`` that is no schema."""
    if schema is not None and not hasattr(schema, "for_table"):
        raise WrongType(
            f"schema must be a TableSchema, such as TableSchema.from_toml(path), got {show(schema)}."
        )
