"""Two rooms never use one name for two things."""

import ast
from collections import defaultdict
from pathlib import Path

import dpcvx

ROOT = Path(dpcvx.__file__).parent


def public_classes():
    """Rooms that define each public class."""
    rooms = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].add(room)
    return rooms


def test_no_two_rooms_have_a_class_of_the_same_name():
    twins = {name: sorted(rooms) for name, rooms in public_classes().items() if len(rooms) > 1}
    assert not twins
