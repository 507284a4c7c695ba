"""Measured numbers for the documentation: each benchmark writes its own, small, file."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
OUTPUT = Path(__file__).resolve().parent / "output"


def stored(name):
    """Return the numbers of docs/figures/name.json; none where it is absent."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def update(name, numbers):
    """Write the numbers to docs/figures/name.json beside those that are there under other names."""
    save(name, {**stored(name), **numbers})


def replace_cell(name, cell, numbers):
    """Write the numbers of a cell, under "cell:key", in the place of all that were there for it."""
    others = {key: value for key, value in stored(name).items() if key.partition(":")[0] != cell}
    save(name, {**others, **{f"{cell}:{key}": value for key, value in numbers.items()}})


def read_cell(figures, cell):
    """Return the numbers of a cell, which are stored under "cell:key", by key."""
    parts = ((key.partition(":"), value) for key, value in figures.items())
    return {key: value for (name, _, key), value in parts if name == cell}


def write_part(page, mark, lines):
    """Write lines into a page of docs, between the comments "mark: begin" and "mark: end"."""
    path, start, end = FOLDER.parent / page, f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, rest = path.read_text(encoding="utf-8").split(start)
    content = "\n".join(lines)
    path.write_text(f"{before}{start}\n{content}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def save(name, numbers):
    """Write the numbers, all but integers rounded to four digits, to docs/figures/name.json."""
    FOLDER.mkdir(exist_ok=True)
    rounded = {
        key: value if isinstance(value, int) else float(f"{value:.4g}")
        for key, value in sorted(numbers.items())
    }
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(rounded, indent=1) + "\n")
    print(f"figures: docs/figures/{path.name}")


def panels(count, across=None):
    """(figure, axes) of plots in a row, or so many across, drawn without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    across = across or count
    down = -(-count // across)
    figure, axes = plt.subplots(down, across, figsize=(4.6 * across, 4 * down), squeeze=False)
    return figure, axes.ravel()


def save_plot(figure, name):
    """Write the plot to benchmarks/output."""
    OUTPUT.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(OUTPUT / f"{name}.png", dpi=150)
    print(f"plot: {OUTPUT.parent.name}/{OUTPUT.name}/{name}.png")


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.json")):
        print(path.name, json.loads(path.read_text()))
