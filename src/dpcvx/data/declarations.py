"""Public facts that a user declares about records, with the estimator or with the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from dpcvx.errors import Incompatible

__all__ = ["Declarations"]


@dataclass(frozen=True, eq=False)
class Declarations:
    """Bounds, levels and labels of records, as the user writes them; None where nothing is declared."""

    # pair, pair of arrays, mapping from column to pair, or "private": bounds of the columns
    bounds: Any = None
    categories: Mapping[Any, Sequence[Any]] | None = None  # levels of columns that hold no numbers
    data_norm: float | None = None  # bound on the l2 norm of a row
    classes: Any = None  # sequence or "from_y": labels of the target
    y_bounds: Any = None  # pair or "private": bounds of the target

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
            if getattr(self, name) is not None:
                raise Incompatible(
                    f"{name} is declared with the data and with the estimator: declare it once."
                )
        return replace(self, **declared)
