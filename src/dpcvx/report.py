"""Plans in words and tables, and reports to look at. Everything here is made from public facts."""

from __future__ import annotations

import dataclasses
import html
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from statistics import mean
from typing import TYPE_CHECKING, Any

from dpcvx.events import Compose
from dpcvx.execution import Plan
from dpcvx.typical import Typical, is_round

if TYPE_CHECKING:
    from dpcvx.accounting import Budget
    from dpcvx.ledger import Entry

__all__ = [
    "Comparison",
    "Section",
    "aligned",
    "explain_plan",
    "html_report",
    "plan_record",
    "plan_table",
    "privacy_utility_plot",
    "spending_plot",
]

PRIVATE, PLAIN, TRIVIAL = "#0b6e75", "#b4552d", "#8a8f98"  # colours of the three models compared


@dataclass(frozen=True)
class Comparison:
    """Scores of private models at several epsilons beside the model without privacy and the trivial one.

    Parameters
    ----------
    title : str
        What is predicted, and for whom.
    metric : str
        Name of the score; larger is better.
    epsilons : sequence of float
        Budgets, ascending.
    scores : sequence of sequences of float
        Test scores of the runs at each epsilon.
    not_private : float
        Score of the model fitted without privacy.
    trivial : float
        Score of the best constant prediction.
    """

    title: str
    metric: str
    epsilons: Sequence[float]
    scores: Sequence[Sequence[float]]
    not_private: float
    trivial: float


@dataclass(frozen=True)
class Section:
    """One part of an HTML report; what is empty is left out.

    Parameters
    ----------
    title : str
    text : str
        Paragraphs, separated by blank lines.
    rows : sequence of rows
        A table; the first row is its header.
    png : bytes
        A picture.
    caption : str
        Says what the picture shows, to those who see it and those who do not.
    verbatim : str
        Text in its own layout, such as a plan's table.
    """

    title: str
    text: str = ""
    rows: Sequence[Sequence[str]] = ()
    png: bytes = b""
    caption: str = ""
    verbatim: str = ""


def plan_table(plan: Plan) -> str:
    """Return the plan as aligned text: problem, budget, solver, questions, and the candidates weighed.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        What ``str(plan)`` shows.
    """
    facts = [
        ("problem", f"{plan.problem.loss.name} loss over {_set(plan.problem.domain)}, {_shape(plan)}"),
        ("records", f"n = {plan.n:,}, {_neighbours(plan)}"),
        ("budget", f"epsilon = {plan.budget.epsilon:g}, delta = {plan.budget.delta:.3g}"),
        ("certified", f"epsilon {plan.epsilon:.6g} at that delta, by {type(plan.accountant).__name__}"),
        ("solver", _solver(plan.solver)),
    ]
    for stage in plan.stages:
        mechanism: Any = stage.mechanism
        facts.append(("question", f"{stage.n_calls} x {type(mechanism).__name__}, {_price(mechanism)}"))
        facts.append(("", f"sensitivity {mechanism.sensitivity:.4g}, noise {mechanism.noise:.4g}"))
    lines = ["Plan, fixed before a record is read", *(f"  {name:<10} {value}" for name, value in facts)]
    if plan.candidates:
        lines += ["", *aligned(_candidate_rows(plan))]
    return "\n".join(lines)


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain types that JSON can hold.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    dict
    """
    return {
        "loss": plan.problem.loss.name,
        "domain": _set(plan.problem.domain),
        "d": plan.problem.d,
        "outputs": plan.problem.outputs,
        "n": plan.n,
        "relation": plan.budget.relation,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "certified_epsilon": plan.epsilon,
        "solver": type(plan.solver).__name__,
        "stages": [_stage_record(stage.mechanism, stage.n_calls) for stage in plan.stages],
        "candidates": [
            {
                "solver": type(candidate.solver).__name__,
                "n_iter": getattr(candidate.solver, "n_iter", None),
                "optimisation": candidate.optimisation,
                "privacy": candidate.privacy,
                "predicted": candidate.predicted,
            }
            for candidate in plan.candidates
        ],
    }


def _stage_record(mechanism: Any, count: int) -> dict[str, Any]:
    return {
        "question": type(mechanism).__name__,
        "count": count,
        "event": type(mechanism.event).__name__,
        **dataclasses.asdict(mechanism.event),
        "sensitivity": mechanism.sensitivity,
        "noise": mechanism.noise,
    }


def _candidate_rows(plan: Plan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("candidate", "answers", "optimisation", "privacy", "predicted excess risk")
    ]
    for place, candidate in enumerate(plan.candidates):
        name = type(candidate.solver).__name__ + (" (chosen)" if place == 0 else "")
        answers = getattr(candidate.solver, "n_iter", None)
        risks = (candidate.optimisation, candidate.privacy, candidate.predicted)
        rows.append((name, "-" if answers is None else f"{answers}", *(f"{risk:.3g}" for risk in risks)))
    return rows


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return columns of text under a ruled header; those in ``left`` to the left, others to the right."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    lines = [
        "  "
        + "   ".join(
            f"{cell:<{w}}" if j in left else f"{cell:>{w}}"
            for j, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return [
        lines[0].rstrip(),
        "  " + "-" * (sum(widths) + 3 * len(widths) - 3),
        *(line.rstrip() for line in lines[1:]),
    ]


WORST_CASE = (
    "The prediction is the solver's theory at the worst data within the bounds: it ranks solvers, and "
    "practice is usually better."
)
TYPICAL = (
    "The prediction is for a public model of typical data of this shape, not for yours: it shows what more "
    "records or a larger epsilon would bring."
)


def explain_plan(plan: Plan) -> str:
    """Say in words what will run, what it costs and what it is expected to give.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        A few sentences, with the numbers.
    """
    name, loss, budget = type(plan.solver).__name__, plan.problem.loss.name, plan.budget
    sentences = [
        f"The fit minimises the {loss} loss over {_set(plan.problem.domain)} ({_shape(plan)}) "
        f"from {plan.n:,} records."
    ]
    if len(plan.candidates) > 1:
        best, second = plan.candidates[:2]
        sentences.append(
            f"{name} was chosen from {len(plan.candidates)} solvers: its predicted excess risk, "
            f"{best.predicted:.3g}, is the smallest; {type(second.solver).__name__} follows "
            f"with {second.predicted:.3g}."
        )
    for stage in plan.stages:
        mechanism: Any = stage.mechanism
        sentences.append(
            f"It asks {type(mechanism).__name__} {stage.n_calls} times. One person can change the exact "
            f"answer by at most {mechanism.sensitivity:.3g}; the noise has scale {mechanism.noise:.3g}."
        )
    sentences.append(
        f"All answers together are (epsilon = {budget.epsilon:g}, delta = {budget.delta:.3g})-differentially "
        f"private, where {_neighbours(plan)}; the accountant certifies epsilon = {plan.epsilon:.6g}."
    )
    if plan.candidates:
        best = plan.candidates[0]
        larger = "stopping early" if best.optimisation > best.privacy else "the noise"
        sentences.append(
            f"Of the predicted excess risk, {best.optimisation:.3g} comes from stopping early and "
            f"{best.privacy:.3g} from the noise, so {larger} dominates. "
            + (TYPICAL if is_round(plan.problem) else WORST_CASE)
        )
        if best.predicted > (start := _to_learn(plan)):
            sentences.append(
                f"As it exceeds {start:.3g}, what a model that always answers 0 has to learn, the prediction "
                "does not promise use; more records, a larger epsilon or fewer features would strengthen it."
            )
    return " ".join(sentences)


def _to_learn(plan: Plan) -> float:
    """Excess risk of theta = 0: typical in an l2 ball, the largest elsewhere."""
    largest = plan.problem.loss_at_zero
    return min(largest, Typical.of(plan.problem).at_zero) if is_round(plan.problem) else largest


def _shape(plan: Plan) -> str:
    return f"d = {plan.problem.d:,}" + (f" x {plan.problem.outputs}" if plan.problem.outputs > 1 else "")


def _neighbours(plan: Plan) -> str:
    if plan.budget.relation == "replace":
        return "neighbours differ by replacing one record"
    return "neighbours differ by adding or removing one record"


def _set(domain: object) -> str:
    if domain is None:
        return "the whole space"
    return f"{type(domain).__name__}({_numbers(domain, skip=())})"


def _solver(solver: object) -> str:
    settings = _numbers(solver, skip=("n_iter",))
    return type(solver).__name__ + (f" ({settings})" if settings else "")


def _numbers(thing: object, skip: Sequence[str]) -> str:
    """The fields of a dataclass that are single numbers or words."""
    values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.name not in skip}  # type: ignore[arg-type]
    shown = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    return ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items())


def _price(mechanism: Any) -> str:
    event = mechanism.event
    parts = event.events if isinstance(event, Compose) else (event,)
    return " and ".join(f"{type(part).__name__}({_numbers(part, skip=())})" for part in parts)


def privacy_utility_plot(comparisons: Sequence[Comparison]) -> bytes:
    """Draw test score against epsilon, one panel for each comparison.

    Parameters
    ----------
    comparisons : sequence of Comparison

    Returns
    -------
    bytes
        A PNG picture.
    """
    figure = _figure(5.6 * len(comparisons))
    panels = figure.subplots(1, len(comparisons), squeeze=False)[0]
    for axes, comparison in zip(panels, comparisons, strict=True):
        _draw(axes, comparison)
    return _png(figure)


def spending_plot(account: str, budget: Budget, history: Sequence[Entry]) -> bytes:
    """Draw how much of an account's cap was spent over time.

    Parameters
    ----------
    account : str
    budget : Budget
    history : sequence of Entry

    Returns
    -------
    bytes
        A PNG picture.
    """
    figure = _figure(7.0)
    from matplotlib.dates import ConciseDateFormatter

    short: Any = ConciseDateFormatter  # it has no annotations
    axes = figure.subplots()
    times = [datetime.fromisoformat(entry.time) for entry in history]
    used = [100 * entry.used for entry in history]
    axes.axhline(100, color=PLAIN, linewidth=1.6, linestyle=(0, (6, 3)))
    if times:
        axes.step(times, used, where="post", color=PRIVATE, linewidth=2.4)
        axes.plot(times, used, "o", color=PRIVATE, markersize=5, markeredgecolor="white")
        axes.fill_between(times, used, step="post", color=PRIVATE, alpha=0.16, linewidth=0)
    axes.set_ylim(0, 112)
    cap = f"cap: epsilon {budget.epsilon:g}, delta {budget.delta:.3g}"
    axes.text(0.01, 102, cap, color=PLAIN, ha="left", va="bottom", transform=axes.get_yaxis_transform())
    _label(axes, f"Account {account}: {len(history)} charge(s)", "time (UTC)", "spent, % of the cap")
    axes.xaxis.set_major_formatter(short(axes.xaxis.get_major_locator()))
    return _png(figure)


def _figure(width: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError('Plots need matplotlib: run  pip install "dpcvx[plot]"') from missing

    figure: Any = Figure(figsize=(width, 4.2), dpi=160, layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    return figure


def _png(figure: Any) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    picture = BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(picture, metadata={"Software": None})
    return picture.getvalue()


def _draw(axes: Any, comparison: Comparison) -> None:
    epsilons = list(comparison.epsilons)
    means = [mean(runs) for runs in comparison.scores]
    low, high = [min(runs) for runs in comparison.scores], [max(runs) for runs in comparison.scores]
    axes.axhline(comparison.not_private, color=PLAIN, linewidth=1.6, linestyle=(0, (6, 3)))
    axes.axhline(comparison.trivial, color=TRIVIAL, linewidth=1.6, linestyle=(0, (2, 2)))
    axes.fill_between(epsilons, low, high, color=PRIVATE, alpha=0.16, linewidth=0)
    axes.plot(
        epsilons, means, color=PRIVATE, linewidth=2.4, marker="o", markersize=7, markeredgecolor="white"
    )
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    # Room for the names of the lines; a run far below the constant is cut off, the table has it.
    top, floor = max(comparison.not_private, *high), comparison.trivial
    bottom = min(floor, max(min(low), floor - (top - floor) / 2))
    room = 0.16 * (top - bottom)
    axes.set_ylim(bottom - room, top + room)
    right = epsilons[-1]
    axes.text(
        right, comparison.not_private + room / 5, "without privacy", color=PLAIN, ha="right", va="bottom"
    )
    axes.text(right, comparison.trivial - room / 5, "best constant", color=TRIVIAL, ha="right", va="top")
    middle = len(epsilons) // 2
    axes.annotate(
        "private",
        (epsilons[middle], means[middle]),
        xytext=(8, -16),
        textcoords="offset points",
        color=PRIVATE,
        fontweight="bold",
    )
    _label(axes, comparison.title, "epsilon   (more privacy  ←  →  less privacy)", comparison.metric)


def _label(axes: Any, title: str, x: str, y: str) -> None:
    """Titles and the light grid that all plots share."""
    axes.set_title(title, loc="left", fontsize=11.5, fontweight="bold", color="#1d2733")
    axes.set_xlabel(x, color="#4a5563")
    axes.set_ylabel(y, color="#4a5563")
    axes.grid(axis="y", color="#e6e9ed", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#c4cad2")
    axes.tick_params(length=0, colors="#4a5563")


STYLE = """
:root{--ink:#1d2733;--soft:#5a6675;--line:#e1e6eb;--page:#f4f6f8;--card:#fff;--mark:#0b6e75;--tint:#e8f3f3}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header{background:linear-gradient(120deg,#0b4a5c,#0b6e75 60%,#16897d);color:#fff;padding:3rem 1.25rem 4.5rem}
header div,main,footer{max-width:58rem;margin:0 auto}
h1{font-size:clamp(1.6rem,5vw,2.4rem);line-height:1.2;margin:0 0 .6rem;letter-spacing:-.01em}
header p{margin:0;max-width:44rem;opacity:.92;font-size:1.08rem}
main{padding:0 1rem;margin-top:-2.5rem}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:1.4rem 1.5rem;
margin:0 0 1.2rem;box-shadow:0 1px 3px rgba(20,40,60,.06)}
h2{font-size:1.2rem;margin:0 0 .7rem}
p{margin:.5rem 0}
figure{margin:1rem 0}
img{width:100%;max-width:44rem;height:auto;display:block;margin:0 auto;border-radius:8px}
figcaption{color:var(--soft);font-size:.9rem;margin-top:.5rem}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.5rem .75rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600;font-size:.85rem}th,td:first-child{white-space:normal}
th:first-child,td:first-child{text-align:left}
tr:last-child td{border-bottom:0}
tbody tr:hover{background:var(--tint)}
pre{background:#f7f9fa;border:1px solid var(--line);border-radius:8px;padding:1rem;margin:1rem 0 0;
overflow-x:auto;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{color:var(--soft);font-size:.88rem;padding:.5rem 1.2rem 3rem}
@media(max-width:600px){section{padding:1.1rem 1rem;border-radius:10px}header{padding:2rem 1.1rem 4rem}
pre{font-size:11px}th,td{padding:.4rem .35rem;font-size:.88rem}}
@media print{header{background:none;color:#000;padding:0 0 1rem}main{margin:0}
section{break-inside:avoid;box-shadow:none}}
"""


def html_report(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return one self-contained HTML page: style and pictures are inside, nothing is fetched.

    Parameters
    ----------
    title : str
    summary : str
        What the reader should take away, in a sentence or two.
    sections : sequence of Section

    Returns
    -------
    str
        The page.
    """
    from dpcvx import __version__

    body = "\n".join(_section(section) for section in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><div><h1>{html.escape(title)}</h1><p>{html.escape(summary)}</p></div></header>
<main>
{body}
</main>
<footer>Made by dpcvx {__version__}. This page holds released and public values only.</footer>
</body>
</html>
"""


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph]
    if section.png:
        caption = html.escape(section.caption)
        image = f'<img alt="{caption}" src="data:image/png;base64,{b64encode(section.png).decode()}">'
        parts.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    if section.rows:
        head, *rows = section.rows
        top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        lines = "".join(f"<tr>{row}</tr>" for row in cells)
        table = f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
        parts.append(f'<div class="scroll">{table}</div>')
    if section.verbatim:
        parts.append(f"<pre>{html.escape(section.verbatim)}</pre>")
    return "<section>" + "\n".join(parts) + "</section>"
