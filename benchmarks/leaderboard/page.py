"""Tables, picture and page of the leaderboard, from results.jsonl alone."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leaderboard.objective import EPSILONS, SEEDS
from leaderboard.runner import metric, parts, stored

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "leaderboard.md", DOCS / "images" / "leaderboard.png"
TEXT = Path(__file__).resolve().parent / "page.md"  # the words around the tables
OURS, GROWTH = "dpcvx_default", "growth"
LARGE = 100_000  # records from which time to a peer's accuracy is compared


@dataclass(frozen=True)
class Cell:
    """A task and an epsilon: the best setting of each private method, by its mean score."""

    task: str
    epsilon: float
    best: dict[str, dict[str, Any]]

    @property
    def peer(self) -> str:
        """The other method with the best mean score."""
        return max((name for name in self.best if name != OURS), key=lambda name: mean(self.best[name]))

    @property
    def lead(self) -> tuple[float, float]:
        """Mean over the seeds of our score less the peer's, and its standard error."""
        apart = np.array(self.best[OURS]["scores"]) - np.array(self.best[self.peer]["scores"])
        return float(apart.mean()), float(apart.std(ddof=1) / len(apart) ** 0.5)

    @property
    def behind(self) -> bool:
        """Whether we are more than one standard error behind."""
        return self.lead[0] < -self.lead[1]


def mean(result: dict[str, Any]) -> float:
    """Mean score of a result."""
    return float(np.mean(result["scores"]))


def best_settings(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the result with the best mean of each method."""
    best: dict[str, dict[str, Any]] = {}
    for result in results:
        if "scores" in result:
            best[result["method"]] = max(best.get(result["method"], result), result, key=mean)
    return best


def board(results: list[dict[str, Any]]) -> list[Cell]:
    """Return all cells that we and a peer have a score in."""
    cells = []
    for task in sorted({result["task"] for result in results if result["task"] != GROWTH}):
        for epsilon in EPSILONS:
            found = [each for each in results if (each["task"], each["epsilon"]) == (task, epsilon)]
            best = best_settings(found)
            if OURS in best and len(best) > 1:
                cells.append(Cell(task, epsilon, best))
    return cells


def lines_without_privacy(results: list[dict[str, Any]], task: str) -> dict[str, float]:
    """Return the scores of methods without privacy."""
    found = [each for each in results if each["task"] == task and each["epsilon"] is None]
    return {name: mean(result) for name, result in best_settings(found).items()}


def shown(result: dict[str, Any]) -> str:
    """Mean and standard error; no digits far below a constant."""
    value, error = mean(result), np.std(result["scores"], ddof=1) / len(result["scores"]) ** 0.5
    if value < -1:
        return "below −1"
    return f"{value:.3f} ± {error:.3f}"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def task_tables(results: list[dict[str, Any]], cells: list[Cell]) -> str:
    """Return a table for each task: methods by epsilon, the best and those tied with it in bold."""
    tasks, solvers, text = parts("datasets"), parts("solvers"), []
    for task in dict.fromkeys(cell.task for cell in cells):
        mine = [cell for cell in cells if cell.task == task]
        facts = mine[0].best[OURS]
        methods = dict.fromkeys(name for cell in mine for name in cell.best)
        rows = []
        for name in sorted(methods, key=lambda name: (name != OURS, solvers[name].title)):
            row = [solvers[name].title]
            for cell in mine:
                words = shown(cell.best[name]) if name in cell.best else "failed"
                first = name == OURS if not cell.behind and cell.lead[0] >= 0 else name == cell.peer
                tied = name == OURS and not cell.behind
                row.append(f"**{words}**" if first or tied else words)
            rows.append(row)
        for name, value in lines_without_privacy(results, task).items():
            rows.append([f"*{solvers[name].title}*", *[f"{value:.3f}"] * len(mine)])
        for line in facts.get("lines", {}):
            rows.append([f"*{line}*", *(f"{cell.best[OURS]['lines'][line]:.3f}" for cell in mine)])
        about = first_paragraph(tasks[task]).rstrip(".")
        heads = [metric(tasks[task]), *(f"ε = {cell.epsilon:g}" for cell in mine)]
        text.append(
            f"### {tasks[task].title}\n\n{about}; n = {facts['n']:,}, p = {facts['p']:,}.\n\n"
            + table(heads, rows)
        )
    return "\n\n".join(text)


def first_paragraph(part: Any) -> str:
    """Return the first paragraph of the description of a task."""
    return " ".join(type(part).__doc__.split("\n\n")[0].split())


def lost_cells(cells: list[Cell]) -> str:
    """Return the cells in which a peer is ahead by more than a standard error."""
    tasks, solvers = parts("datasets"), parts("solvers")
    rows = [
        [
            tasks[cell.task].title,
            f"{cell.epsilon:g}",
            shown(cell.best[OURS]),
            f"{solvers[cell.peer].title} {shown(cell.best[cell.peer])}",
        ]
        for cell in cells
        if cell.behind
    ]
    return table(["task", "ε", "dpcvx", "first"], rows) if rows else "There is none."


def headline(results: list[dict[str, Any]], cells: list[Cell]) -> str:
    """Return the count of cells, and how often we are below a constant."""
    good = sum(not cell.behind for cell in cells)
    below = sum(
        mean(cell.best[OURS]) < lines_without_privacy(results, cell.task).get("constant", -np.inf)
        for cell in cells
    )
    share = 100 * good / len(cells)
    return (
        f"dpcvx with its defaults is first or tied in **{good} of {len(cells)} cells "
        f"({share:.0f} %)**; the aim of 90 % is {'met' if share >= 90 else 'missed'}. In {below} cells it is "
        "below the best constant, which is computed without privacy."
    )


def standings(cells: list[Cell]) -> str:
    """Return for each method the cells it takes part in, those it is first in, and median costs."""
    solvers, rows = parts("solvers"), []
    for name in dict.fromkeys(name for cell in cells for name in cell.best):
        mine = [cell for cell in cells if name in cell.best]
        first = sum(max(cell.best, key=lambda each: mean(cell.best[each])) == name for cell in mine)
        seconds, memory = (
            statistics.median(cell.best[name][cost] for cell in mine) for cost in ("processor", "memory")
        )
        rows.append(
            [
                solvers[name].title,
                solvers[name].guarantee,
                str(len(mine)),
                str(first),
                f"{seconds:.2g} s",
                f"{memory:.0f} MiB",
            ]
        )
    rows.sort(key=lambda row: -int(row[3]))
    heads = ["method", "guarantee", "cells", "first in", "processor time", "memory"]
    return table(heads, rows)


def growth_table(results: list[dict[str, Any]]) -> str:
    """Return processor time and memory of fits by size."""
    solvers, found = parts("solvers"), [each for each in results if each["task"] == GROWTH]
    sizes = sorted({(each["n"], each["p"]) for each in found})
    rows = []
    for name in dict.fromkeys(each["method"] for each in found):
        row = [solvers[name].title]
        for size in sizes:
            best = best_settings([each for each in found if (each["n"], each["p"]) == size]).get(name)
            row.append(f"{best['processor']:.2g} s, {best['memory']:.0f} MiB" if best else "–")
        rows.append(row)
    return table(["method", *(f"n = {n:,}, p = {p}" for n, p in sizes)], rows)


def time_to_accuracy(results: list[dict[str, Any]]) -> str:
    """Return processor time to a peer's best score at the largest n, over ours where we reach that score."""
    solvers, found = parts("solvers"), [each for each in results if each["task"] == GROWTH]
    large = [each for each in found if each["n"] >= LARGE]
    if OURS not in best_settings(large):
        return "Not measured."
    best = best_settings(large)
    ours, rows = best.pop(OURS), []
    rows.append([solvers[OURS].title, shown(ours), f"{ours['processor']:.2g} s", ""])
    for name, result in best.items():
        apart = np.array(ours["scores"]) - np.array(result["scores"])
        reached = apart.mean() >= -apart.std(ddof=1) / len(apart) ** 0.5
        ratio = f"{result['processor'] / ours['processor']:.1f}x" if reached else "not reached"
        rows.append([solvers[name].title, shown(result), f"{result['processor']:.2g} s", ratio])
    n, p = large[0]["n"], large[0]["p"]
    heads = [f"n = {n:,}, p = {p}, ε = 1", "AUC", "processor time of a fit", "time over that of dpcvx"]
    return table(heads, rows)


def time_by_epsilon(cells: list[Cell]) -> str:
    """Return the median processor time over tasks by epsilon."""
    solvers, rows = parts("solvers"), []
    for name in dict.fromkeys(name for cell in cells for name in cell.best):
        row = [solvers[name].title]
        for epsilon in EPSILONS:
            times = [c.best[name]["processor"] for c in cells if c.epsilon == epsilon and name in c.best]
            row.append(f"{statistics.median(times):.2g} s" if times else "–")
        rows.append(row)
    return table(["method", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)], rows)


def render(results: list[dict[str, Any]]) -> str:
    """Return the page."""
    cells = board(results)
    filled = {
        "headline": headline(results, cells),
        "lost": lost_cells(cells),
        "standings": standings(cells),
        "tasks": task_tables(results, cells),
        "growth": growth_table(results),
        "time to accuracy": time_to_accuracy(results),
        "time by epsilon": time_by_epsilon(cells),
        "seeds": str(SEEDS),
    }
    text = TEXT.read_text()
    for name, value in filled.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def draw(results: list[dict[str, Any]]) -> None:
    """Draw the scores of each task by epsilon, between a constant and the model without privacy."""
    from figures import panels

    cells, tasks, solvers = board(results), parts("datasets"), parts("solvers")
    names = list(dict.fromkeys(cell.task for cell in cells))
    methods = sorted({name for cell in cells for name in cell.best}, key=lambda name: (name == OURS, name))
    colours = {name: f"C{place}" for place, name in enumerate(m for m in methods if m != OURS)} | {OURS: "k"}
    figure, axes = panels(len(names) + 1, across=4)
    figure.set_size_inches(14, 2.9 * -(-(len(names) + 1) // 4))
    for axis, task in zip(axes, names, strict=False):
        mine = [cell for cell in cells if cell.task == task]
        plain = lines_without_privacy(results, task)
        low, high = plain.get("constant", 0.0), plain.get("scikit_learn", 1.0)
        for name in methods:
            points = [(cell.epsilon, mean(cell.best[name])) for cell in mine if name in cell.best]
            wide = (
                {"linewidth": 2.6, "marker": "o", "zorder": 3}
                if name == OURS
                else {"marker": ".", "zorder": 2}
            )
            if points:
                axis.plot(*zip(*points, strict=True), color=colours[name], **wide)
        axis.axhline(high, color="gray", ls="--", lw=1)
        axis.axhline(low, color="gray", ls=":", lw=1)
        for line in mine[0].best[OURS].get("lines", {}):
            limits = [(cell.epsilon, cell.best[OURS]["lines"][line]) for cell in mine]
            axis.plot(*zip(*limits, strict=True), color="crimson", ls="-.", lw=1)
        top = max([high, *(mean(cell.best[OURS]) for cell in mine)])
        axis.set(xscale="log", xticks=EPSILONS, xticklabels=[f"{e:g}" for e in EPSILONS], xlim=(0.085, 4.7))
        axis.minorticks_off()
        axis.set_ylim(low - 0.25 * (top - low), top + 0.08 * (top - low))
        axis.set_title(f"{tasks[task].title} ({metric(tasks[task]).split(' ')[0]})", fontsize=9)
    for axis in axes[len(names) :]:
        axis.axis("off")
    legend = axes[len(names)]
    for name in reversed(methods):
        legend.plot(
            [], [], color=colours[name], marker="o" if name == OURS else ".", label=solvers[name].title
        )
    legend.plot([], [], color="gray", ls="--", label="without privacy")
    legend.plot([], [], color="gray", ls=":", label="constant")
    legend.plot([], [], color="crimson", ls="-.", label="proved bound on every private method")
    legend.legend(loc="center", fontsize=8, frameon=False)
    figure.supxlabel("epsilon", fontsize=9)
    figure.tight_layout()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=80)


def write_page() -> None:
    """Write docs/leaderboard.md and its picture."""
    results = stored()
    if not board(results):
        print("no cell has results of dpcvx and of a peer yet: no page is written")
        return
    PAGE.write_text(render(results))
    draw(results)
    print(headline(results, board(results)).replace("*", ""))
