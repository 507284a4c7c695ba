"""The documentation against the code."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dpcvx import cli
from dpcvx.data.table_schema import TableSchema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KEY = re.compile(r"\[([A-Z][A-Za-z]*\d{2})\]")
STATEMENT = r"(?:Algorithm|Theorem|Corollary) (?:\d+\.)*\d+"
# Read from the texts of the papers by docs/paper_statements.py.
NUMBERED = json.loads((DOCS / "paper_statements.json").read_text())
INCLUDED_PART = r"literalinclude\} (\S+)\n(?::language.*\n)?:(pyobject|start-at): (.*)"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def keys_of_source():
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for key in KEY.findall(path.read_text()):
            found.setdefault(key, path.name)
    return found


def rows():
    """The rows of the table in paper_to_code.md, as dicts by column."""
    lines = [line for line in (DOCS / "paper_to_code.md").read_text().splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in body]


def test_every_citation_of_the_code_has_a_row_and_an_entry():
    cited = keys_of_source()
    assert {"TTZ14", "TTZ15", "WYX17"} <= set(cited)
    entries = set(re.findall(r"^@\w+\{(\w+),", (DOCS / "references.bib").read_text(), re.MULTILINE))
    mapped = {row["paper"] for row in rows()}
    for key, where in cited.items():
        assert key in mapped, f"[{key}] of {where} has no row in paper_to_code.md"
        assert key in entries, f"[{key}] of {where} has no entry in references.bib"
    assert mapped <= entries


def single_statements(name):
    """The statements that a row names: "Claims 3.2 and 3.3" and "Theorems 4.1 to 4.6" are several."""
    kind, *numbers = re.split(r" and |, | to | ", name)
    if " to " in name:
        (chapter, first), (_, last) = (number.split(".") for number in numbers)
        numbers = [f"{chapter}.{each}" for each in range(int(first), int(last) + 1)]
    return {f"{kind.removesuffix('s')} {number}" for number in numbers}


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_statement_of_a_paper_has_a_row(paper):
    named = [row["statement"] for row in rows() if row["paper"] == paper]
    numbered = [name for name in named if re.match(r"[A-Z]\w+ (?:[A-Z]\.)?\d[^,]*$", name)]
    known = set.union(*map(single_statements, numbered))
    assert not set(NUMBERED[paper]) - known
    assert not {name for name in known - set(NUMBERED[paper]) if not name.startswith(("Figure", "Equation"))}


def test_the_list_of_statements_is_that_of_the_texts():
    spec = importlib.util.spec_from_file_location("paper_statements", DOCS / "paper_statements.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.statements("By [KEY, Theorem 7] and Theorem 1 of [18], *Remark* 2 and Fact A.3.") == [
        "Fact A.3",
        "Remark 2",
    ]
    for paper, found in module.read().items():  # the texts are not part of the repository
        assert found == NUMBERED[paper]


def test_the_list_of_statements_says_which_texts_it_needs(tmp_path):
    command = [sys.executable, str(DOCS / "paper_statements.py"), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert str(tmp_path) in run.stderr
    assert "ullman-pmw-beyond-linear-queries.txt (U15)" in run.stderr
    assert "Nothing was written." in run.stderr


def test_every_statement_cited_by_a_solver_has_a_row():
    known = {(row["paper"], row["statement"]) for row in rows()}
    for path in sorted((ROOT / "src" / "dpcvx" / "solvers").glob("*.py")):
        words = " ".join(path.read_text().split())
        for key, statements in re.findall(rf"\[(\w+)\] ({STATEMENT}(?: and {STATEMENT})*)", words):
            for statement in statements.split(" and "):
                assert (key, statement) in known, f"[{key}] {statement} of {path.name} has no row"


def text_of(path):
    """The text of a file, or nothing where there is none."""
    return path.read_text() if path.is_file() else ""


def wrong_with(row):
    """What is wrong with a row of the table, in words."""
    code, (path, name) = row["code"].strip("`"), row["test"].strip("`").split("::")
    yield from (f"no {column}" for column in row if not row[column])
    if f"[{row['paper']}]" not in text_of(ROOT / code):
        yield f"{code} does not cite it"
    if f"\ndef {name}(" not in text_of(ROOT / path):
        yield f"{path} has no {name}"


def test_code_and_test_of_every_row_exist_and_belong_together():
    assert len(rows()) > 80
    assert set(rows()[0]) == {"paper", "statement", "what it says", "code", "test", "deviation"}
    wrong = [f"{row['paper']} {row['statement']}: {what}" for row in rows() for what in wrong_with(row)]
    assert not wrong


def test_links_and_includes_lead_somewhere():
    found, lost = 0, []
    for page in PAGES:
        text = page.read_text()
        targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
        targets += re.findall(r"literalinclude\} (\S+)", text)
        found += len(targets)
        lost += [f"{page.name}: {target}" for target in targets if not (page.parent / target).exists()]
        for file, option, part in re.findall(INCLUDED_PART, text):
            part = rf"class {part}\b" if option == "pyobject" else re.escape(part)
            if not re.search(part, (page.parent / file).read_text()):
                lost.append(f"{page.name}: {part} in {file}")
    lost = [each for each in lost if not each.endswith(" gallery/index.rst")]  # written by sphinx-gallery
    assert found > 50
    assert not lost


def entries(text):
    """Pages that the tables of contents of a page list, without titles."""
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    return [re.sub(r".*<(.*)>", r"\1", line) for line in lines]


def test_every_page_is_in_one_section_of_the_contents():
    first = entries((DOCS / "index.md").read_text())
    sections = [name for name in first if (DOCS / f"{name}.md").exists()]
    assert sections == ["start", "guide", "trust", "reference", "extend"]
    assert [name for name in first if name not in sections] == ["gallery/index"]
    listed = [name for section in sections for name in entries((DOCS / f"{section}.md").read_text())]
    assert sorted(listed) == sorted({page.stem for page in DOCS.glob("*.md")} - {"index", *sections})


NOT_A_NAME = {"dpcvx.db", "dpcvx.R", "dpcvx.privacy_statement"}  # files, and a key of Parquet's metadata


def exists(name):
    """Whether a dotted name is a module of the package, or something that one has."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for part in parts[i:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_names_and_files_on_the_pages_exist():
    wrong = []
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        text = re.sub(r"\S*(?:your_|Your)\S*", "", page.read_text())  # names of the reader's own things
        names = set(re.findall(r"\bdpcvx(?:\.[A-Za-z_]\w*)+", text)) - NOT_A_NAME
        files = set(re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[\w/]+\.\w+)", text))
        wrong += [f"{page.name}: {name}" for name in names if not exists(name)]
        wrong += [f"{page.name}: {file}" for file in files if not (ROOT / file).exists()]
    assert not wrong, "\n".join(sorted(wrong))


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_about_epsilon_are_what_their_script_writes():
    figures = script("epsilon_figures")
    assert figures.PAGE.read_text() == figures.page(), "run: python docs/epsilon_figures.py"


def test_the_numbers_about_epsilon_that_sentences_repeat():
    page, figures = (DOCS / "how_much_epsilon.md").read_text(), script("epsilon_figures")
    assert "almost half of the people" in page
    assert "| 8 | 2,981 times | 100.0 % | 97 % | 45 % |" in figures.attacker_table()
    assert "about epsilon 1 after ten years" in page
    assert "| 10 | 1.03 | 3.0 | 0.291 |" in figures.years_table()


def test_every_picture_is_drawn_by_a_script_that_is_here():
    """A picture is the work of a script of docs or benchmarks, a command, or a browser."""
    shown = {
        name for page in PAGES for name in re.findall(r"\]\((?:docs/)?images/([\w.]+)\)", page.read_text())
    }
    assert len(shown) > 8
    assert not {name for name in shown if not (DOCS / "images" / name).exists()}
    scripts = [*DOCS.glob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    text = "".join(path.read_text() for path in scripts)
    commands = {"plan.png", "precision.png", "report.png"}  # dpcvx plan --plot, dpcvx report
    browser = {"service_answer.png", "service_phone.png"}
    assert {
        name for name in shown if f'"{name}"' not in text and f'"{name[:-4]}"' not in text
    } <= commands | browser


def test_the_layout_in_contributing_is_what_its_generator_writes():
    table = script("layout_table")
    assert table.PAGE.read_text() == table.page(), "run: python docs/layout_table.py"


def test_the_example_bounds_file_is_valid():
    schema = TableSchema.from_toml(ROOT / "examples" / "bounds.toml")
    assert [schema.columns[name].bounds for name in ("age", "hours")] == [(17.0, 90.0), (0.0, 80.0)]
    assert schema.columns["sex"].levels == ("Female", "Male")
    assert schema.target_parameters() == {"y_bounds": (0.0, 100000.0)}
    schema = TableSchema.from_toml(ROOT / "examples" / "people.toml")
    schema.require_confirmed()
    assert schema.target_parameters() == {"y_bounds": (0.0, 100000.0)}


GROUPS = ("ledger", "keys")  # commands that have commands of their own


@pytest.mark.long
def test_the_five_commands_of_the_first_page_run(tmp_path, monkeypatch, capsys):
    """Declare, plan, account, fit, show, predict: as the page says, with the file that it shows."""
    page = (DOCS / "quickstart.md").read_text()
    part = page.split("## With my own CSV file")[1].split("## Let others ask")[0]
    header = "wage,education,experience,ethnicity,smsa,region,parttime\n"
    rows = (
        "354.9,7,45,cauc,yes,northeast,no\n123.4,12,1,afam,yes,south,yes\n370.1,9,9,cauc,no,west,no\n" * 700
    )
    monkeypatch.chdir(tmp_path)
    Path("wages.csv").write_text(header + rows)
    commands = re.findall(r"^\$ dpcvx (.+)$", part, re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        *("declare", "plan", "ledger", "fit", "show", "predict", "ledger")
    ]
    for command in commands:
        monkeypatch.setattr("sys.argv", ["dpcvx", *shlex.split(command)])
        try:
            cli.main()
        except SystemExit as stop:
            assert stop.code == 0, f"{command}: {capsys.readouterr().err}"  # noqa: PT017 - the code is tested
        if command.startswith("declare"):
            assert "confirmed = false" in Path("wages.toml").read_text()
            Path("wages.toml").write_text(re.search(r"```toml\n(.*?)```", part, re.DOTALL)[1])
    assert len(Path("predictions.csv").read_text().splitlines()) == 2101
    assert "in 1 charge(s)" in capsys.readouterr().out


SHOWN = re.compile(r"^\$ dpcvx (.+?)(?:\s+#.*)?$", re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SHOWN.search(page.read_text())], ids=lambda page: page.stem
)
def test_commands_shown_exist_with_their_options(page, monkeypatch, capsys):
    shown = SHOWN.findall(page.read_text())
    for command in shown:
        name, *words = command.split()
        if name == "--version":
            continue
        group = words[:1] if name in GROUPS else []
        monkeypatch.setattr("sys.argv", ["dpcvx", name, *group, "--help"])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        options = capsys.readouterr().out
        assert stop.value.code == 0
        for word in words:
            assert not word.startswith("--") or f" {word} " in options, f"{word} in {page.name}"


def test_exit_codes_are_documented():
    table = (DOCS / "cli.md").read_text()
    for code in (0, cli.UNEXPECTED, cli.REFUSED, cli.FILE_PROBLEM, 130):
        assert f"\n| {code} |" in table


def test_decorators_on_the_pages_for_extenders_exist():
    named = {name for page in DOCS.glob("add_a_*.md") for name in re.findall(r"`@(\w+)", page.read_text())}
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert named
    assert not {name for name in named if f"def {name}(" not in source}


def test_figures_of_a_cell_that_is_measured_anew_take_the_place_of_all_old_ones(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    figures = importlib.import_module("figures")
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    figures.save("some", {"a_e1:covered": 90.0, "a_e1:fits": 10, "a_e10:fits": 5})
    figures.replace_cell("some", "a_e1", {"fits": 20})
    assert figures.stored("some") == {"a_e1:fits": 20, "a_e10:fits": 5}
