"""The mutator makes the changes that it promises, and the child that runs tests sees them."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "planted"))
sys.path.insert(0, str(Path(__file__).parent))
from live import Change
from mutants import ROOMS, SOURCE, files, sample, sites

TEXT = '''
"""Words 1."""
from __future__ import annotations
import math
__all__ = ["f"]
LIMIT: int = 4


def f(x: float, y: int | None = None) -> float:
    """Words 2."""
    if x < 3 and not y:
        raise ValueError(f"{x} is below {3}")
    x += max(x, 1)
    print(x)
    return math.ceil(-x) * 2.0
'''


def changes(tmp_path, monkeypatch):
    place = tmp_path / "f.py"
    place.write_text(TEXT)
    monkeypatch.setattr("mutants.SOURCE", tmp_path)
    return place, [mutant for together in sites("accounting", place) for mutant in together]


def test_every_operator_has_its_changes(tmp_path, monkeypatch):
    _, found = changes(tmp_path, monkeypatch)
    seen = {(mutant.kind, mutant.old, mutant.new) for mutant in found}
    assert seen >= {
        ("constant", "4", "5"),
        ("constant", "4", "8"),
        ("condition", "x < 3 and not y", "(not (x < 3 and not y))"),
        ("boundary", "<", "<="),
        ("comparison", "<", ">="),
        ("boolean", "and", "or"),
        ("sign or not", "not y", "(y)"),
        ("statement", 'raise ValueError(f"{x} is below {3}")', "pass"),
        ("statement", "print(x)", "pass"),
        ("statement", "x += max(x, 1)", "pass"),
        ("arithmetic", "x += max(x, 1)", "x -= max(x, 1)"),
        ("function", "max", "min"),
        ("function", "math.ceil", "math.floor"),
        ("sign or not", "-x", "(x)"),
        ("arithmetic", "*", "/"),
        ("constant", "2.0", "1.0"),
        ("returned constant", "return math.ceil(-x) * 2.0", "return 0"),
    }
    # Words, annotations and lists of names stay.
    assert not any(mutant.line in (2, 3, 5) or mutant.old in ("int", "|") for mutant in found)


def test_a_change_is_the_whole_of_it_and_its_code_is_found(tmp_path, monkeypatch):
    place, found = changes(tmp_path, monkeypatch)
    for mutant in found:
        text = mutant.apply(TEXT)
        assert text != TEXT
        ast.parse(text)
        code = Change(mutant.name, place, text, ()).code
        assert (code is None) == (not mutant.function or (mutant.kind == "constant" and mutant.line == 8))
        if code is not None:
            assert code.co_name == "f"


def test_the_sample_is_the_same_each_time_and_of_all_rooms():
    drawn = sample(20, seed=3)
    assert drawn == sample(20, seed=3) != sample(20, seed=4)
    for room in ROOMS:
        assert 10 <= sum(mutant.room == room for mutant in drawn) <= 30
    for mutant in drawn:
        ast.parse(mutant.apply((SOURCE / mutant.file).read_text()))


def test_every_room_has_files():
    assert all(files(room) for room in ROOMS)
