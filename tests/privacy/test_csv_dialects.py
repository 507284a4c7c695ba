"""CSV dialects: declared, never found out; a person's cell reaches no other record."""

import csv
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.data.files import CsvDialect, FileForm, open_table
from dpcvx.errors import StoreUnavailable, WrongValue

HOSTILE = [
    "plain",
    "",
    '"',
    '""',
    'a"b',
    "line\nbreak",
    "line\r\nbreak",
    '"\n"',
    "\n\n\n",
    "1;5",
    "1,5",
    "\t",
    "é",
    '"' * 5,
    '\n",\n"',
]


def written(rows, dialect, end):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=dialect.sep, lineterminator=end).writerows([["a", "b"], *rows])
    return text.getvalue().encode(dialect.encoding)


def parsed(path, dialect):
    X, _ = open_table(path, FileForm(dialect)).read(["b", "a"], ["b"])
    return X["b"].to_pylist(), X["a"].to_pylist()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
def test_quoted_line_breaks_give_back_the_records_so_neighbours_stay_neighbours(tmp_path, end, sep, encoding):
    dialect = CsvDialect(sep, encoding=encoding, line_breaks=True)
    rng, path = np.random.default_rng(0), tmp_path / "people.csv"
    rows = [[str(k), HOSTILE[j]] for k, j in enumerate(rng.integers(len(HOSTILE), size=12))]
    path.write_bytes(written(rows, dialect, end))
    words, numbers = parsed(path, dialect)
    assert words == [row[1] for row in rows]
    assert numbers == [float(row[0]) for row in rows]
    for place in (0, 5, 11):
        for cell in HOSTILE:
            other = [*rows[:place], ["7", cell], *rows[place + 1 :]]
            path.write_bytes(written(other, dialect, end))
            changed, _ = parsed(path, dialect)
            assert changed == [*words[:place], cell, *words[place + 1 :]]


@pytest.mark.parametrize("size", [3, 2**22])  # bytes that are read at once
def test_shards_of_a_dialect_hold_the_records_of_the_table(tmp_path, size, monkeypatch):
    monkeypatch.setattr("dpcvx.data.shards.readers.BYTES_AT_ONCE", size)
    lines = ["größe;wort;ziel", "1,5;é;0", '2,25;"a;""\nb";1', "x;c;1", "3;é;0"]
    (tmp_path / "people.csv").write_bytes("\r\n".join(lines).encode("latin-1"))
    dialect = dp.CsvDialect(";", ",", "latin-1", line_breaks=True)
    declared = {"bounds": {"größe": (0, 4)}, "categories": {"wort": ["é", 'a;"\nb']}, "y_bounds": (0, 1)}
    made = dp.from_csv(
        tmp_path / "people.csv", target="ziel", **declared, dialect=dialect, store=tmp_path / "a", verbose=0
    )
    frame = pd.DataFrame({"größe": [1.5, 2.25, None, 3], "wort": ["é", 'a;"\nb', "c", "é"]})
    other = dp.from_batches([(frame, [0, 1, 1, 0])], **declared, store=tmp_path / "b", verbose=0)
    for one in sorted((tmp_path / "b").glob("*.npy")):
        np.testing.assert_array_equal(np.load(one), np.load(tmp_path / "a" / one.name))
    assert made.n == other.n == 4
    again = {"dialect": replace(dialect, decimal="."), "store": tmp_path / "a", "verbose": 0}
    with pytest.raises(StoreUnavailable):
        dp.from_csv(tmp_path / "people.csv", target="ziel", **declared, **again)


@pytest.mark.parametrize("cell", [cell for cell in HOSTILE if "\n" not in cell])
def test_without_them_a_line_is_a_record_whatever_quotes_it_holds(tmp_path, cell):
    path = tmp_path / "people.csv"
    path.write_text(f"a,b\n1,x\n2,{cell}\n3,y\n", newline="")
    words, numbers = parsed(path, CsvDialect())
    assert (len(words), words[0], words[2]) == (3, "x", "y")
    assert (numbers[0], numbers[2]) == (1.0, 3.0)


def test_decimal_commas(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("a;b\n1,5;x\n-2,25e1;y\n3.5;z\n1.234,5;w\n4;v\n")
    _, numbers = parsed(path, CsvDialect(";", ","))
    np.testing.assert_array_equal(numbers, [1.5, -22.5, np.nan, np.nan, 4.0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sep": ";;"}, "sep must be one character"),
        ({"sep": '"'}, "sep must be one character"),
        ({"sep": "5"}, "sep must be one character"),
        ({"decimal": ","}, "sep and decimal are both"),
        ({"encoding": "nobody"}, "encoding 'nobody' is not known"),
        ({"encoding": "utf-16"}, "save the file as UTF-8"),
    ],
)
def test_a_dialect_that_cannot_be_is_refused(given, words):
    with pytest.raises(WrongValue, match=words):
        CsvDialect(**given)


def test_parquet_files_have_no_dialect(tmp_path):
    with pytest.raises(WrongValue, match="are declared for CSV files"):
        open_table(tmp_path / "people.parquet", FileForm(CsvDialect(";")))


def test_an_encoding_in_which_other_characters_have_the_byte_of_a_quote_has_no_quoted_line_breaks():
    """In ISO-2022-JP one person's character joined all records after hers."""
    assert b'"' in "あ".encode("iso2022_jp")
    for encoding in ("iso2022_jp", "hz", "iso2022_kr"):
        CsvDialect(encoding=encoding)
        with pytest.raises(ValueError, match="uses the byte of a quote"):
            CsvDialect(encoding=encoding, line_breaks=True)
    for encoding in ("utf-8", "latin-1", "cp1252", "shift_jis", "gb18030", "big5"):
        CsvDialect(encoding=encoding, line_breaks=True)


@pytest.mark.parametrize(("encoding", "half"), [("utf-7", b"+2AA-"), ("raw_unicode_escape", rb"\ud800")])
def test_half_a_character_stops_no_file(tmp_path, encoding, half):
    """Some decoders give lone surrogates, which Arrow refuses: one cell would have stopped the fit."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,x\n2," + half + b"\n" + half + b",z\n")
    X, _ = open_table(path, FileForm(CsvDialect(encoding=encoding))).read(["a", "b"], ["b"])
    assert X["b"].to_pylist() == ["x", "?", "z"]
    np.testing.assert_array_equal(X["a"], [1.0, 2.0, np.nan])


def test_an_encoding_that_cannot_replace_wrong_bytes_is_refused():
    with pytest.raises(WrongValue, match="is not known"):
        CsvDialect(encoding="idna")
