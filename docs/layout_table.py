"""Write the layout of src/dpcvx into CONTRIBUTING.md: the order of imports, and the first line of every room.

The order is the one that tests/interface/test_imports.py checks; nothing about a room is typed here.

    python docs/layout_table.py
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- layout: written by docs/layout_table.py -->\n", "<!-- end of layout -->\n"


def order() -> str:
    """Return the order of imports, from the test that checks it."""
    tree = ast.parse((ROOT / "tests" / "interface" / "test_imports.py").read_text())
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER"
    )
    return str(ast.literal_eval(value))


def first_line(room: Path) -> str:
    """Return the first docstring line of a module or package as markdown, without its full stop."""
    source = room / "__init__.py" if room.is_dir() else room
    line = (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n")[0]
    return line.removesuffix(".").replace("``", "`").replace("<", "\\<")


def layout() -> str:
    """Return the order of imports and the table of rooms as markdown."""
    lines = [f"`{order()}`\n", "| in `src/dpcvx` | what lives there |", "|---|---|"]
    for name in order().replace(" -> ", " ").split():
        folder, file = ROOT / "src" / "dpcvx" / name, ROOT / "src" / "dpcvx" / f"{name}.py"
        for room, shown in ((folder, f"{name}/"), (file, f"{name}.py")):
            if (room / "__init__.py").exists() or room.is_file():
                lines.append(f"| `{shown}` | {first_line(room)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return CONTRIBUTING.md with the layout of today."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + "\n" + layout() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
    print("wrote CONTRIBUTING.md")
