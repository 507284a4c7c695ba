"""One small change of the source at a time: operators, constants, conditions, statements.

`sites` lists all changes of a file, `sample` draws some of each room with a fixed seed. Left out are
annotations, documentation, lists of names, words of errors and text: a change there breaks no computation.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/dpcvx"
ROOMS = {
    "accounting": ("accounting/*.py",),
    "noise": ("noise/*.py",),
    "mechanisms": ("mechanisms/*.py",),
    "quantisation": (
        "data/quantise.py",
        "data/kernels/quantise.py",
        "data/kernels/additive.py",
        "data/lattice.py",
        "data/additive_basis.py",
        "data/public_score.py",
        "data/rows.py",
    ),
    "ledger": ("ledger/*.py",),
}
BOUNDARY = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
OPPOSITE = {
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
ARITHMETIC = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.Pow: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "&",
    ast.MatMult: "*",
}
EXCHANGED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
    "minimum": "maximum",
    "maximum": "minimum",
    "sorted": "list",
    "isqrt": "sqrt",
    "log1p": "log",
    "expm1": "exp",
    "argmin": "argmax",
    "argmax": "argmin",
}
NUMBERS = ("int", "float")


@dataclass(frozen=True)
class Mutant:
    """A change of one place of one file."""

    room: str
    file: str  # in src/dpcvx
    function: str  # qualified name; "" at the level of the module
    line: int
    kind: str
    old: str
    new: str
    start: int  # place in the text, in characters
    stop: int

    @property
    def name(self) -> str:
        """File, function, change: what stays the same if lines above are added."""
        return f"{self.file}:{self.function or 'module'}: {self.old} -> {self.new}"

    def apply(self, text: str) -> str:
        """Return the changed text of the file."""
        if text[self.start : self.stop] != self.old:
            raise ValueError(f"{self.name}: the file has changed.")
        return text[: self.start] + self.new + text[self.stop :]


def files(room: str) -> list[Path]:
    """Return the files of a room."""
    return sorted(place for pattern in ROOMS[room] for place in SOURCE.glob(pattern))


def sites(room: str, place: Path) -> list[list[Mutant]]:
    """Return the changes of a file, those of one place and kind together."""
    text = place.read_text()
    visitor = _Visitor(room, place.relative_to(SOURCE).as_posix(), text)
    visitor.visit(ast.parse(text))
    together: dict[tuple[int, int, str], list[Mutant]] = defaultdict(list)
    for mutant in visitor.found:
        together[mutant.start, mutant.stop, mutant.kind].append(mutant)
    return list(together.values())


def sample(each: int, seed: int) -> list[Mutant]:
    """Draw changes, `each` of every room, over its files in proportion to their places."""
    drawn = []
    for room in ROOMS:
        rng = random.Random(f"{room} {seed}")
        of_files = [sites(room, place) for place in files(room)]
        total = sum(map(len, of_files))
        for found in of_files:
            count = len(found) * each / total
            count = int(count) + (rng.random() < count % 1)
            drawn += [rng.choice(changes) for changes in rng.sample(found, min(count, len(found)))]
    return drawn


class _Visitor(ast.NodeVisitor):
    def __init__(self, room: str, file: str, text: str) -> None:
        self._room, self._file, self._text = room, file, text
        lengths = [len(line.encode()) for line in text.splitlines(keepends=True)]
        self._starts = [sum(lengths[:i]) for i in range(len(lengths))]
        self._bytes = text.encode()
        self._scope: list[str] = []
        self._returns: list[str] = []
        self.found: list[Mutant] = []

    def _place(self, line: int, column: int) -> int:
        return len(self._bytes[: self._starts[line - 1] + column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._place(node.lineno, node.col_offset)
        return start, self._place(node.end_lineno, node.end_col_offset)

    def _add(self, kind: str, node: ast.AST, *news: str) -> None:
        start, stop = self._span(node)
        old, function = self._text[start:stop], ".".join(self._scope)
        for new in news:
            if new != old:
                where = (self._room, self._file, function, node.lineno)
                self.found.append(Mutant(*where, kind, old, new, start, stop))

    def _segment(self, node: ast.AST) -> str:
        return self._text[slice(*self._span(node))]

    def _enter(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self._scope.append(node.name)
        for child in node.body:
            self.visit(child)
        self._scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._returns.append(ast.unparse(node.returns) if node.returns else "")
        self._enter(node)
        self._returns.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        named = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__all__" in named or self._is_alias(node.value):
            return
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add("statement", node, "pass")
        self.generic_visit(node)

    def _is_alias(self, value: ast.AST) -> bool:
        """Whether an assignment names a type."""
        return (
            not self._scope and isinstance(value, ast.BinOp | ast.Subscript) and "[" in self._segment(value)
        )

    def visit_If(self, node: ast.If) -> None:
        if self._segment(node.test) != "TYPE_CHECKING":
            self._condition(node)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node)
        self.generic_visit(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, ast.Constant):
            self._add("condition", node.test, f"(not ({self._segment(node.test)}))")

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add("statement", node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Break(self, node: ast.Break) -> None:
        self._add("statement", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("statement", node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("statement", node, "pass")
        new = ARITHMETIC[type(node.op)]
        target, value = self._segment(node.target), self._segment(node.value)
        self._add("arithmetic", node, f"{target} {new}= {value}")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self._returns and not isinstance(node.value, ast.Constant):
            returns = self._returns[-1]
            if returns in NUMBERS:
                self._add("returned constant", node, "return 0", "return 1")
            elif returns == "bool":
                self._add("returned constant", node, "return True", "return False")
            elif returns.endswith("| None"):
                self._add("returned constant", node, "return None")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        parts = [node.left, *node.comparators]
        for i, op in enumerate(node.ops):
            for kind, table in (("boundary", BOUNDARY), ("comparison", OPPOSITE)):
                if type(op) in table:
                    self._between(kind, parts[i], parts[i + 1], table[type(op)])
        self.generic_visit(node)

    def _between(self, kind: str, left: ast.expr, right: ast.expr, new: str) -> None:
        """Change the operator between two operands, brackets around them kept."""
        start = self._place(left.end_lineno, left.end_col_offset)
        stop = self._place(right.lineno, right.col_offset)
        text = self._text[start:stop]
        old = text.strip(" ()\n")
        at = start + text.index(old)
        function = ".".join(self._scope)
        where = (self._room, self._file, function, left.end_lineno)
        self.found.append(Mutant(*where, kind, old, new, at, at + len(old)))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.Constant | ast.JoinedStr) and isinstance(
            getattr(node.left, "value", ""), str
        )
        if not text:
            self._between("arithmetic", node.left, node.right, ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        new = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("boolean", left, right, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self._add("sign or not", node, f"({self._segment(node.operand)})")
        self.visit(node.operand)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add("constant", node, str(not value))
        elif isinstance(value, int):
            self._add("constant", node, *(str(v) for v in {value + 1, abs(value - 1), 2 * value, value // 2}))
        elif isinstance(value, float):
            self._add("constant", node, *(repr(v) for v in {value + 1, 2 * value, value / 2}))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_Call(self, node: ast.Call) -> None:
        at = node.func
        name = at.attr if isinstance(at, ast.Attribute) else getattr(at, "id", "")
        if name in EXCHANGED:
            segment = self._segment(at)
            self._add("function", at, segment.removesuffix(name) + EXCHANGED[name])
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "inf":
            self._add("constant", node, f"(-{self._segment(node)})")
        self.generic_visit(node)


def every() -> Iterator[Mutant]:
    """Return all changes of all rooms."""
    for room in ROOMS:
        for place in files(room):
            for changes in sites(room, place):
                yield from changes
