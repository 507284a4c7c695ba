"""The generated table of algorithms against its generator, the code and the measured numbers."""

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("algorithms_table", DOCS / "algorithms_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = generator()
ROWS = TABLE.ROWS + TABLE.BEYOND


def test_the_page_is_what_its_generator_writes():
    assert (DOCS / "algorithms.md").read_text() == TABLE.page(), "run: python docs/algorithms_table.py"


def test_there_is_one_line_for_each_algorithm():
    lines = re.findall(r"^\| (\d+) \|", (DOCS / "algorithms.md").read_text(), re.MULTILINE)
    assert [int(number) for number in lines] == list(range(1, len(ROWS) + 1))
    assert len(TABLE.ROWS) == 16


def test_code_and_test_of_every_line_exist():
    lost = [row.code for row in ROWS if not (ROOT / row.code).is_file()]
    for row in ROWS:
        path, name = row.test.split("::")
        if not (ROOT / path).is_file() or f"\ndef {name}(" not in (ROOT / path).read_text():
            lost.append(row.test)
    assert not lost


def test_every_figure_is_a_measured_number():
    unknown = []
    for row in ROWS:
        names = set(re.findall(r"\{(\w+)", row.figure))
        measured = json.loads((DOCS / "figures" / f"{row.measured}.json").read_text())
        if not names or not names <= set(measured):
            unknown.append((row.algorithm, names - set(measured)))
    assert not unknown


def test_every_file_of_numbers_is_used():
    """In the table of algorithms, or on a page that names it."""
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    used = {row.measured for row in ROWS} | set(re.findall(r"figures/(\w+)\.json", pages))
    assert {path.stem for path in (DOCS / "figures").glob("*.json")} <= used
