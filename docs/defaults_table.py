"""Write the table of tuned numbers into how_to_choose.md, from `dpcvx.solvers.defaults`.

python docs/defaults_table.py
"""

from pathlib import Path

from dpcvx.solvers.defaults import defaults_table

PAGE = Path(__file__).resolve().parent / "how_to_choose.md"
START, END = "<!-- defaults -->\n", "\n<!-- end of defaults -->"


def page() -> str:
    """Return the page with today's numbers in it."""
    text = PAGE.read_text()
    before, rest = text.split(START)
    return before + START + defaults_table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
