"""Files of Stata, SAS, SPSS and Excel, written from the texts of a CSV file as programs would."""

import math

import pandas as pd

from readers import pandas, texts


def _plain(content):
    """Columns of numbers where all cells are numbers, as pandas infers, and of text otherwise."""
    frame = pandas(content).replace([math.inf, -math.inf], math.nan)  # Stata has no infinity
    for name in frame:
        if frame[name].dtype == object or frame[name].dtype == bool:
            frame[name] = frame[name].map(lambda cell: "" if cell != cell else str(cell))
        elif isinstance(frame[name].dtype, pd.StringDtype):
            frame[name] = frame[name].fillna("").astype(object)
    return frame


def _labelled(content):
    """Columns of text are codes with value labels, made from the cells as ``encode`` of Stata does."""
    frame = _plain(content)
    for name in frame:
        if frame[name].dtype == object and frame[name].str.strip().ne("").all():
            frame[name] = frame[name].astype("category")
    return frame


def stata(content, path):
    _plain(content).to_stata(path, write_index=False, version=118)


def stata_labels(content, path):
    _labelled(content).to_stata(path, write_index=False, version=118)


def spss(content, path):
    import pyreadstat

    pyreadstat.write_sav(_plain(content), str(path))


def sas_transport(content, path):
    import pyreadstat

    pyreadstat.write_xport(_plain(content), str(path), file_format_version=8)


def excel(content, path):
    import openpyxl

    book = openpyxl.Workbook()
    rows = texts(content)
    book.active.append(list(rows))
    for cells in zip(*rows.values(), strict=True):
        book.active.append([_typed(cell) for cell in cells])
    book.save(path)


def _typed(text):
    """A number as a number, an empty cell as none, anything else as text."""
    try:
        return float(text) if abs(float(text)) < 1e300 else text
    except ValueError:
        return text or None


WRITERS = {
    "Stata": (stata, ".dta"),
    "Stata with value labels": (stata_labels, ".dta"),
    "SPSS": (spss, ".sav"),
    "SAS transport": (sas_transport, ".xpt"),
    "Excel": (excel, ".xlsx"),
}
