"""Files of Stata, SAS, SPSS and Excel: a cell reaches no other record, and no cell stops a reader."""

import datetime

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.data.files import FileForm, open_table, read_header
from dpcvx.errors import NotInstalled, Unreadable, WrongValue
from foreign_files import WRITERS
from readers import CELLS, csv_bytes

pyreadstat = pytest.importorskip("pyreadstat")
openpyxl = pytest.importorskip("openpyxl")

ROWS = [[f"{i / 4:g}", "fm"[i % 2], f"2020-01-0{1 + i % 2}"] for i in range(6)]
HEADER = ["amount", "sex", "day"]


def cells(path):
    X, _ = open_table(path).read(HEADER, ["sex", "day"])
    return [X[name].to_pylist() for name in HEADER]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_cell_reaches_no_other_record(kind, tmp_path):
    write, ending = WRITERS[kind]
    path = tmp_path / f"people{ending}"
    write(csv_bytes(HEADER, ROWS), path)
    before = cells(path)
    # A column of text cells becomes one of codes where labels are made from cells: the label is the cell.
    assert before == [[float(a) for a, _, _ in ROWS], [b for _, b, _ in ROWS], [c for _, _, c in ROWS]]
    for hostile in [*CELLS[:6], *CELLS[28:33], "NA", "True", "2020-01-01 00:00:00", "1" * 300]:
        write(csv_bytes(HEADER, [*ROWS[:3], [hostile] * 3, *ROWS[4:]]), path)
        for old, new in zip(before, cells(path), strict=True):
            assert len(new) == 6, hostile
            assert [*old[:3], *old[4:]] == [*new[:3], *new[4:]], hostile


@pytest.mark.parametrize("ending", [".dta", ".sav", ".xpt"])
def test_bytes_that_are_no_text_change_their_own_cell_alone(ending, tmp_path):
    path = tmp_path / f"people{ending}"
    frame = pd.DataFrame({"amount": [1.0, 2.0], "sex": ["Qqq", "café"]})
    {".dta": pyreadstat.write_dta, ".sav": pyreadstat.write_sav, ".xpt": pyreadstat.write_xport}[ending](
        frame, str(path)
    )
    path.write_bytes(path.read_bytes().replace(b"Qqq", b"\xff\xfe\xfd"))
    X, _ = open_table(path).read(["amount", "sex"], ["sex"])
    assert X["sex"].to_pylist()[1] == "café"
    assert X["amount"].to_pylist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("ending", "format_", "number"),
    [
        (".dta", "%td", 22281),
        (".dta", "%tdD_m_Y", 22281),
        (".dta", "%tc", 22281 * 86_400_000),
        (".dta", "%tm", 732),
        (".sav", "DATE11", (22281 + 137775) * 86_400),
        (".xpt", "DATE9.", 22281),
        (".xpt", "DATETIME20.", 22281 * 86_400),
    ],
)
def test_dates_follow_the_format_and_one_out_of_range_is_missing(ending, format_, number, tmp_path):
    path = tmp_path / f"people{ending}"
    write = {".dta": pyreadstat.write_dta, ".sav": pyreadstat.write_sav, ".xpt": pyreadstat.write_xport}[
        ending
    ]
    frame = pd.DataFrame({"day": [float(number), 1e15, np.nan]})
    write(frame, str(path), variable_format={"day": format_})
    X, _ = open_table(path).read(["day"], ["day"])
    assert X["day"].to_pylist() == ["2021-01-01", None, None]
    assert open_table(path).read(["day"], [])[0]["day"].to_pylist()[0] == number
    assert read_header(path).types == {"day": "date"}


def test_value_labels_are_levels_and_missing_codes_are_missing(tmp_path):
    path = tmp_path / "people.dta"
    frame = pd.DataFrame({"sex": [1, 2, 1, 7, "a"], "wage": [1.5, 2.5, "z", 3.0, 4.0]})
    labels = {"sex": {1: "woman", 2: "man", "a": "refused"}}
    pyreadstat.write_dta(
        frame, str(path), variable_value_labels=labels, missing_user_values={"sex": ["a"], "wage": ["z"]}
    )
    X, _ = open_table(path).read(["sex", "wage"], ["sex"])
    assert X["sex"].to_pylist() == ["woman", "man", "woman", "7.0", None]
    np.testing.assert_array_equal(X["wage"].to_pylist(), [1.5, 2.5, np.nan, 3.0, 4.0])
    codes = open_table(path).read(["sex"], [])[0]["sex"].to_pylist()
    np.testing.assert_array_equal(codes, [1.0, 2.0, 1.0, 7.0, np.nan])
    header = read_header(path)
    assert header.labels == {"sex": ("woman", "man")}
    schema = dp.TableSchema.from_header(header.names, header.types, labels=header.labels)
    assert schema.columns["sex"].levels == ("woman", "man")


@pytest.mark.parametrize(
    ("ending", "place", "size"), [(".sav", 80, 4), (".dta", None, 8)], ids=["SPSS", "Stata"]
)
def test_rows_that_a_file_has_no_room_for_are_not_allocated(ending, place, size, tmp_path, monkeypatch):
    """Files of 800 bytes that declare 500 million rows took all of the memory: the fuzzer was killed."""
    path = tmp_path / f"people{ending}"
    write = pyreadstat.write_sav if ending == ".sav" else pyreadstat.write_dta
    write(pd.DataFrame({"age": [1.0, 2.0], "wage": [3.0, 4.0]}), str(path))
    content = bytearray(path.read_bytes())
    place = content.index(b"<N>") + 3 if place is None else place
    content[place : place + size] = (2**29).to_bytes(size, "little")
    path.write_bytes(content)
    reader = "read_sav" if ending == ".sav" else "read_dta"
    read = getattr(pyreadstat, reader)
    assert read(path, metadataonly=True)[1].number_rows == 2**29

    def only_header(*given, **named):
        assert named.get("metadataonly"), "the rows are allocated"
        return read(*given, **named)

    monkeypatch.setattr(pyreadstat, reader, only_header)
    for open_ in (open_table, read_header):
        with pytest.raises(Unreadable, match="damaged"):
            open_(path)


def test_many_rows_in_few_bytes_are_read(tmp_path):
    path = tmp_path / "people.zsav"
    pyreadstat.write_sav(pd.DataFrame({"wage": np.full(50_000, 3.0)}), str(path), compress=True)
    assert path.stat().st_size < 5_000
    assert open_table(path).read(["wage"], [])[0]["wage"].to_pylist() == [3.0] * 50_000


def test_a_column_of_a_name_that_is_taken_is_refused_and_one_that_ends_so_is_read(tmp_path):
    path = tmp_path / "people.sav"
    pyreadstat.write_sav(pd.DataFrame({"age": [1.0], "bge": [2.0]}), str(path))
    path.write_bytes(path.read_bytes().replace(b"bge", b"age"))
    for open_ in (open_table, read_header):
        with pytest.raises(WrongValue, match="more than once"):
            open_(path)
    pyreadstat.write_sav(pd.DataFrame({"age": [1.0], "age_duplicated1": [2.0]}), str(path))
    assert open_table(path).read(["age_duplicated1"], [])[0]["age_duplicated1"].to_pylist() == [2.0]


def test_values_that_spss_declares_as_missing_are_no_levels(tmp_path):
    path = tmp_path / "people.sav"
    frame = pd.DataFrame({"sex": [1.0, 2.0, 9.0]})
    pyreadstat.write_sav(
        frame,
        str(path),
        variable_value_labels={"sex": {1.0: "woman", 2.0: "man", 9.0: "no answer"}},
        missing_ranges={"sex": [9]},
    )
    assert read_header(path).labels == {"sex": ("woman", "man")}
    assert open_table(path).read(["sex"], ["sex"])[0]["sex"].to_pylist() == ["woman", "man", None]


def test_a_sheet_is_read_cell_by_cell(tmp_path):
    path = tmp_path / "people.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["day", "wage", "sex"])
    sheet.append([datetime.datetime(2020, 1, 2), 1.5, "f"])
    sheet.append(["2020-01-03", "2.5", True])
    sheet.append([])
    sheet.append([datetime.date(2020, 1, 4), "#DIV/0!", None, "a note beside the table"])
    sheet.append([None, None, None, "another one"])
    sheet["A9"].number_format = "yyyy-mm-dd"
    sheet["A3"].number_format = "yyyy-mm-dd"
    book.create_sheet("notes").append(["x"])
    book.save(path)
    X, _ = open_table(path).read(["day", "wage", "sex"], ["day", "sex"])
    assert X["day"].to_pylist() == ["2020-01-02", "2020-01-03", None, "2020-01-04"]
    np.testing.assert_array_equal(X["wage"].to_pylist(), [1.5, 2.5, np.nan, np.nan])
    assert X["sex"].to_pylist() == ["f", "1.0", None, None]


def test_a_sheet_is_chosen_by_name_and_names_of_others_are_not_shown(tmp_path):
    path, book = tmp_path / "people.xlsx", openpyxl.Workbook()
    book.active.append(["title"])
    book.create_sheet("people").append(["wage"])
    book["people"].append([1.5])
    book.create_sheet("secret").append(["x"])
    book.save(path)
    assert open_table(path, FileForm(sheet="people")).read(["wage"], [])[0]["wage"].to_pylist() == [1.5]
    assert read_header(path, FileForm(sheet="people")).names == ["wage"]
    with pytest.raises(WrongValue, match="no sheet 'People'") as caught:
        open_table(path, FileForm(sheet="People"))
    assert "secret" not in str(caught.value)
    with pytest.raises(WrongValue, match="workbooks"):
        open_table(tmp_path / "people.csv", FileForm(sheet="people"))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.long
def test_shards_of_files_have_the_numbers_of_memory_and_persons_are_one(kind, tmp_path):
    write, ending = WRITERS[kind]
    folder = tmp_path / "files"
    folder.mkdir()
    rows = [[f"{i / 8:g}", "fm"[i % 2], f"{i % 3}", f"{i % 7}"] for i in range(40)]
    names = ["amount", "sex", "age", "person"]
    for part in (0, 1):
        write(csv_bytes(names, rows[part * 20 : part * 20 + 20]), folder / f"{part}{ending}")
    schema = dp.TableSchema(
        {
            "amount": dp.NumberColumn((0, 5)),
            "sex": dp.LevelColumn(["f", "m"]),
            "age": dp.NumberColumn((0, 9)),
        },
        target="age",
    )
    frame = pd.DataFrame(rows, columns=names)
    shards = dp.from_files(
        folder, target="age", schema=schema, person="person", store=tmp_path / "s", verbose=0
    )
    assert shards.n == 7
    settings = {"epsilon": 5.0, "random_state": 0, "check": 0}
    ours = dp.PrivateLinearRegression(**settings).fit(shards)
    theirs = dp.PrivateLinearRegression(**settings, schema=schema, person="person", maps=None).fit(frame)
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    assert dp.from_files(folder, target="age", schema=schema, person="person", store=tmp_path / "s").n == 7
    with pytest.raises(WrongValue, match="from_parquet"):
        dp.from_files(tmp_path / "people.csv", target="age", schema=schema)


@pytest.mark.parametrize("first", [[1.5, "a"], ["a", None, "b"], ["a", "a"], []])
def test_a_sheet_without_names_is_refused_without_its_cells(first, tmp_path):
    path = tmp_path / "people.xlsx"
    book = openpyxl.Workbook()
    book.active.append(first)
    book.active.append([1, 2])
    book.save(path)
    with pytest.raises((Unreadable, WrongValue), match=r"no header|more than once|is empty") as caught:
        open_table(path)
    assert "1.5" not in str(caught.value)


@pytest.mark.parametrize("ending", [".dta", ".sas7bdat", ".xpt", ".sav", ".xlsx"])
def test_damaged_files_and_absent_readers_are_one_sentence(ending, tmp_path, monkeypatch):
    path = tmp_path / f"people{ending}"
    path.write_bytes(b"PK\x03\x04 secret of somebody" * 50)
    with pytest.raises(Unreadable, match="damaged") as caught:
        open_table(path)
    assert "secret" not in str(caught.value)
    monkeypatch.setitem(__import__("sys").modules, "openpyxl" if ending == ".xlsx" else "pyreadstat", None)
    with pytest.raises(NotInstalled, match=r"dpcvx\[files\]"):
        open_table(path)


# -- a record whose stored bytes are anything at all

N = 6
STORED = pd.DataFrame(
    {
        "amount": [1.5 * i for i in range(N)],
        "name": [f"ab{i}c" for i in range(N)],
        "day": [22000.0 + i for i in range(N)],
        "sex": [float(1 + i % 2) for i in range(N)],
        "week": [732.0] * N,
    }
)
LABELS = {"sex": {1.0: "woman", 2.0: "man"}}
STORE = {
    ".dta": lambda path: pyreadstat.write_dta(
        STORED, str(path), variable_format={"day": "%td", "week": "%tw"}, variable_value_labels=LABELS
    ),
    ".sav": lambda path: pyreadstat.write_sav(
        STORED, str(path), variable_format={"day": "DATE11"}, variable_value_labels=LABELS
    ),
    ".xpt": lambda path: pyreadstat.write_xport(
        STORED, str(path), variable_format={"day": "DATE9."}, file_format_version=8
    ),
}


def public_facts(path, changed):
    """Everything about a file but the cells of one record: header, types, shapes, and the other cells."""
    header, table = read_header(path), open_table(path)
    facts = [header.names, header.types, header.labels, table.columns]
    for words in ([], ["name", "day", "sex"], [*STORED]):
        X, _ = table.read([*STORED], words)
        others = X.take([i for i in range(X.num_rows) if i != changed])
        facts += [X.schema.to_string(), X.num_rows, repr(others.to_pydict())]
    return facts


@pytest.mark.long
@pytest.mark.parametrize("ending", STORE)
def test_any_bytes_of_a_record_leave_header_types_shape_and_other_records_alone(ending, tmp_path):
    path = tmp_path / f"people{ending}"
    STORE[ending](path)
    content = path.read_bytes()
    starts = [content.find(f"ab{i}c".encode()) - 8 for i in range(N)]  # the amount is before the name
    width, generator = starts[1] - starts[0], np.random.default_rng(5)
    assert starts == [starts[0] + i * width for i in range(N)]
    for changed in (0, 2, N - 1):
        path.write_bytes(content)
        before = public_facts(path, changed)
        old = content[starts[changed] :][:width]
        fills = [bytes([byte]) * width for byte in (0, 0x20, 0x2E, 0x80, 0xFF)]
        fills += [generator.bytes(width) for _ in range(6)]
        fills += [bytes(b if generator.random() < 0.8 else 255 - b for b in old) for _ in range(4)]
        for fill in fills:
            path.write_bytes(content[: starts[changed]] + fill + content[starts[changed] + width :])
            assert public_facts(path, changed) == before, fill


@pytest.mark.parametrize("ending", [".dta", ".sav"])
def test_a_label_that_is_no_text_changes_itself_alone(ending, tmp_path):
    """Programs make labels from cells, so that a label may be one person's text."""
    path = tmp_path / f"people{ending}"
    write = {".dta": pyreadstat.write_dta, ".sav": pyreadstat.write_sav}[ending]
    frame = pd.DataFrame({"town": [1.0, 2.0, 3.0]})
    write(frame, str(path), variable_value_labels={"town": {1.0: "Qqqq", 2.0: "Łódź", 3.0: "Lyon"}})
    X, _ = open_table(path).read(["town"], ["town"])
    assert X["town"].to_pylist() == ["Qqqq", "Łódź", "Lyon"]
    path.write_bytes(path.read_bytes().replace(b"Qqqq", b"\xff\xfe\xfd\xc5"))
    X, _ = open_table(path).read(["town"], ["town"])
    assert X["town"].to_pylist()[1:] == ["Łódź", "Lyon"]
    assert len(read_header(path).labels["town"]) == 3


@pytest.mark.parametrize("order", ["little", "big"])
def test_no_cell_declares_the_encoding_of_a_file(order, tmp_path):
    """Where labels are in no known encoding, the bytes before the records are searched, and no others."""
    from dpcvx.data import foreign_files

    class Package:
        class ReadstatError(Exception):
            pass

    def refuse(*_, **__):
        raise Package.ReadstatError

    def numbers(*values):
        return b"".join(value.to_bytes(4, order) for value in values)

    declared, end = numbers(7, 20, 1, 6) + b"cp1252", numbers(999, 0)
    for content, found in ((declared + end, "cp1252"), (b"$FL2" + end + declared, None)):
        path = tmp_path / "people.sav"
        path.write_bytes(content)
        assert foreign_files._encoding(Package, refuse, path) == found
