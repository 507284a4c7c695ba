"""Data of ``dpcvx serve --demo``: the mothers of ``dpcvx demo``, as a table to ask about."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcvx.demo import load
from dpcvx.queries import Attribute, Binned, Schema

__all__ = ["people"]

# From public knowledge about mothers, never from the data.
SCHEMA = Schema(
    (
        Attribute("worked", ("no", "yes"), "yes"),
        Binned("schooling", (0, 9, 12, 13, 16, 20), 12.5),
        Binned("age", (15, 20, 25, 30, 35, 50), 27.5),
        Binned("age_at_first_birth", (10, 18, 21, 25, 50), 19.5),
        Attribute("children", ("two", "three", "more"), "more"),
        Binned("other_income", (0, 15, 30, 45, 150), 22.5),
        Attribute("group", ("Hispanic", "Black"), "Black"),
        Attribute("eldest", ("girl", "boy"), "boy"),
    )
)


def people() -> tuple[Schema, Any]:
    """Return the schema and the table of 31,857 mothers of two children or more."""
    import pyarrow as pa

    table = load("labsup")
    kids = table["kids"].to_numpy()
    columns = {
        "worked": np.where(table["worked"] == 1, "yes", "no"),
        "schooling": table["educ"].to_numpy(),
        "age": table["age"].to_numpy(),
        "age_at_first_birth": table["agefstm"].to_numpy(),
        "children": np.select([kids <= 2, kids == 3], ["two", "three"], "more"),
        "other_income": table["nonmomi"].to_numpy(),
        "group": np.where(table["black"] == 1, "Black", "Hispanic"),
        "eldest": np.where(table["boy1st"] == 1, "boy", "girl"),
    }
    return SCHEMA, pa.table(columns)
