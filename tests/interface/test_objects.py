"""Losses, sets and solvers say what they are: nobody outside their rooms asks for their class."""

import ast
from functools import cache
from pathlib import Path

import pytest

import dpcvx
from dpcvx.domains import SETS
from dpcvx.losses import LOSSES
from dpcvx.solvers import SOLVERS, ConstantModel, OneStep, ScaledTarget, SpectralShrinkage, Standardised

ROOT = Path(dpcvx.__file__).parent
ROOMS = {
    "losses": LOSSES,
    "domains": SETS,
    "solvers": (*SOLVERS, ConstantModel, OneStep, ScaledTarget, SpectralShrinkage, Standardised),
}


@cache
def asked(text):
    """(class name, line) of every isinstance, issubclass, `type(...) is/in` and class pattern."""
    found = []
    for node in ast.walk(ast.parse(text)):
        where = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            where = node.args[1:]
        if isinstance(node, ast.Compare) and "type(" in ast.unparse(node.left):
            where = node.comparators
        if isinstance(node, ast.MatchClass):
            where = [node.cls]
        for part in where:
            for name in ast.walk(part):
                if isinstance(name, ast.Name | ast.Attribute):
                    found.append((getattr(name, "id", getattr(name, "attr", "")), node.lineno))
    return found


def sites(room, kinds, source):
    names = {kind.__name__ for kind in kinds}
    return [
        f"{path}:{line} asks for {name}"
        for path, text in source.items()
        if path.parts[0] != room
        for name, line in asked(text)
        if name in names
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_outside_its_room_asks_for_the_class_of_an_object(room):
    source = {path.relative_to(ROOT): path.read_text() for path in ROOT.rglob("*.py")}
    assert not sites(room, ROOMS[room], source)


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(loss, Squared)",
        "type(loss) in (Huber, Squared)",
        "match loss:\n    case Squared():\n        pass",
    ],
)
def test_such_a_place_is_found(text):
    assert sites("losses", LOSSES, {Path("planning/planner.py"): text})
