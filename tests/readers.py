"""Readers of tables, and texts of a cell that make them infer other types."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv

# Texts of one cell: numbers, flags, dates, marks of missing cells, and what looks like one of them.
CELLS = (
    *(
        "",
        " ",
        "abc",
        "é",
        "yes",
        "-",
        "1",
        "0",
        " 1",
        "1 ",
        "+1",
        "-1",
        "01",
        "1.0",
        "1.",
        ".5",
        "1e0",
        "2.5",
    ),
    *(
        "-0",
        "1e400",
        "5e-324",
        "inf",
        "-Infinity",
        "1_000",
        "0x10",
        "0xFFFFFFFFFFFFFFFF",
        "-0x1",
        "1e5x",
        "1j",
    ),
    *(
        "9007199254740993",
        "9223372036854775808",
        "99999999999999999999999",
        "0.30000000000000004",
        "1%",
        "1 2",
    ),
    *("nan", "NaN", "NAN", "+nan", "nan(1)", "NA", " NA", "None", "none", "null", "<NA>", "#N/A", "NaT"),
    *("True", "true", "TRUE", "tRuE", " true", "False", "f", "T"),
    *("2020-01-01", " 2020-01-02", "2020-01-01 00:00:00", "2020-01-01T00:00", "2020-01-02 12:30:15.125"),
    *("2020-01-01T00:00:00Z", "2020-01-01 00:00:00+01:00", "2020-02-30", "0001-01-01", "9999-12-31", "12:34"),
    *("12:34:56", "24:00:00", "20200101", "1,000", 'say "hi"', "P1D"),
)


def csv_bytes(header, rows):
    """A CSV file of rows of texts."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def texts(content):
    """Columns of a CSV file as lists of texts, by name."""
    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def arrow(content, **options):
    return pa.csv.read_csv(io.BytesIO(content), convert_options=pa.csv.ConvertOptions(**options))


def pandas(content, **options):
    return pd.read_csv(io.BytesIO(content), **options)


def polars(content, **options):
    # By default polars infers types from 100 rows, and raises at a later cell of another one.
    return pl.read_csv(content, infer_schema_length=None, **options)


def parquet(table):
    """A table after it was written as Parquet and read again."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(file)


READERS = {
    "pandas": pandas,
    "pandas, Python engine": lambda content: pandas(content, engine="python"),
    "pandas, Arrow engine": lambda content: pandas(content, engine="pyarrow"),
    "pandas on Arrow": lambda content: pandas(content, dtype_backend="pyarrow"),
    "pandas, Arrow throughout": lambda content: pandas(content, engine="pyarrow", dtype_backend="pyarrow"),
    "pandas nullable": lambda content: pandas(content, dtype_backend="numpy_nullable"),
    "pandas without missing marks": lambda content: pandas(content, keep_default_na=False),
    "pandas text": lambda content: pandas(content, dtype=str),
    "pandas categories": lambda content: pandas(content, dtype="category"),
    "polars": polars,
    "polars with missing marks": lambda content: polars(content, null_values=["NA", "nan", ""]),
    "polars text": lambda content: polars(content, infer_schema=False),
    "Arrow": arrow,
    "Arrow with missing text": lambda content: arrow(content, strings_can_be_null=True),
    "Arrow dictionaries": lambda content: arrow(content, auto_dict_encode=True),
    "Arrow through Parquet": lambda content: parquet(arrow(content)),
    "lists of text": lambda content: pd.DataFrame(
        {k: pd.Series(v, dtype=object) for k, v in texts(content).items()}
    ),
    "NumPy text": lambda content: pd.DataFrame(
        {name: pd.Series(np.array(cells), dtype=object) for name, cells in texts(content).items()}
    ),
}
