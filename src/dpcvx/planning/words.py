"""Plans in words and tables, and pages to look at. Everything here is made from public facts."""

from __future__ import annotations

import dataclasses
import html
import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from dpcvx.errors import counted
from dpcvx.events import Compose
from dpcvx.mechanisms import NoisyMoments
from dpcvx.planning.outlook import doubt
from dpcvx.plans.execution import Candidate, Plan
from dpcvx.plans.running_time import in_words, running_time

__all__ = [
    "Section",
    "aligned",
    "explain_plan",
    "html_report",
    "plan_record",
    "plan_table",
]


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
        ("time", _time(plan)),
    ]
    for stage in plan.questions:
        mechanism: Any = stage.mechanism
        facts.append(("question", f"{stage.n_calls} x {_question(mechanism)}, {_price(mechanism)}"))
        facts.append(("", f"sensitivity {mechanism.sensitivity:.4g}, noise {mechanism.noise:.4g}"))
    lines = ["Plan, fixed before a record is read", *(f"  {name:<10} {value}" for name, value in facts)]
    if plan.candidates:
        lines += ["", *aligned(_candidate_rows(plan))]
    if note := _smaller_predictions(plan):
        lines += ["", fill(note, 100, initial_indent="  ", subsequent_indent="  ")]
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
        "stages": [_stage_record(stage.mechanism, stage.n_calls) for stage in plan.questions],
        "candidates": [
            {
                "solver": type(candidate.solver).__name__,
                "n_iter": getattr(candidate.solver, "n_iter", None),
                "optimisation": candidate.optimisation,
                "privacy": candidate.privacy,
                "predicted": candidate.predicted,
                "basis": candidate.basis,
                "weighed": candidate.weighed,
                "chosen": candidate is _chosen(plan),
                "answers": candidate.answers,
                "noise": list(candidate.noise),
                "gradient_evaluations": candidate.gradient_evaluations,
                "memory": candidate.memory,
                "seconds": candidate.seconds,
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
        (
            "candidate",
            "answers",
            "noise",
            "gradients",
            "memory",
            "basis",
            "optimisation",
            "privacy",
            "predicted",
        )
    ]
    chosen = _chosen(plan)
    for candidate in plan.candidates:
        mark = " (chosen)" if candidate is chosen else "" if candidate.weighed else " (not weighed)"
        risks = (candidate.optimisation, candidate.privacy, candidate.predicted)
        rows.append(
            (
                _name(candidate.solver) + mark,
                f"{candidate.answers:,}",
                ", ".join(f"{noise:.2g}" for noise in candidate.noise),
                f"{candidate.gradient_evaluations:.2g}",
                _bytes(candidate.memory),
                candidate.basis,
                *(f"{risk:.3g}" for risk in risks),
            )
        )
    return rows


def _chosen(plan: Plan) -> Candidate | None:
    """The candidate that runs; None for a plan that was not chosen from any."""
    return next((candidate for candidate in plan.candidates if candidate.solver == plan.solver), None)


def _time(plan: Plan) -> str:
    """How long the plan takes, in words; from its row of the table, which knows the records' density."""
    chosen = _chosen(plan)
    seconds = running_time(plan) if chosen is None else chosen.seconds
    return f"{in_words(plan, seconds)} on one core of an ordinary machine"


def _bytes(count: float) -> str:
    """A number of bytes to two digits, in the unit that fits."""
    power = min(max(0, math.floor(math.log(max(count, 1.0) * 1.0005, 1000))), len(UNITS) - 1)
    amount = count / 1000**power
    return f"{amount:.2g} {UNITS[power]}" if amount < 99.5 else f"{amount:.0f} {UNITS[power]}"


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


UNITS = ("B", "kB", "MB", "GB", "TB")
WORST_CASE = (
    "The prediction is the solver's theory at the worst data within the bounds; practice is usually better."
)
TYPICAL = (
    "The prediction comes from rehearsing the run on public synthetic problems of this shape, the worst of a "
    "few, not from your data: it shows what more records or a larger epsilon would bring."
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
    loss, budget = plan.problem.loss.name, plan.budget
    sentences = [
        f"The fit minimises the {loss} loss over {_set(plan.problem.domain)} ({_shape(plan)}) "
        f"from {counted(plan.n, 'record')}."
    ]
    chosen = _chosen(plan)
    sentences += _choice(plan, chosen)
    for stage in plan.questions:
        mechanism: Any = stage.mechanism
        sentences.append(
            f"It asks {_question(mechanism)} {_often(stage.n_calls)}. One person can change the exact "
            f"answer by at most {mechanism.sensitivity:.3g}; the noise has scale {mechanism.noise:.3g}."
        )
    sentences.append(
        f"All answers together are (epsilon = {budget.epsilon:g}, delta = {budget.delta:.3g})-differentially "
        f"private, where {_neighbours(plan)}; the accountant certifies epsilon = {plan.epsilon:.6g}."
    )
    sentences.append(
        f"Once the records are loaded this takes {_time(plan)}, and less on more cores or with compressed "
        "records."
    )
    if chosen is not None:
        larger = "stopping early" if chosen.optimisation > chosen.privacy else "the noise"
        sentences.append(
            f"Of the predicted excess risk, {chosen.optimisation:.3g} comes from stopping early and "
            f"{chosen.privacy:.3g} from the noise, so {larger} dominates. "
            + (TYPICAL if chosen.basis == "typical" else WORST_CASE)
        )
        if (found := doubt(plan)) is not None:
            sentences.append(str(found))
    return " ".join(sentences)


def _choice(plan: Plan, chosen: Candidate | None) -> list[str]:
    """Why this solver runs, and why others do not."""
    weighed = [candidate for candidate in plan.candidates if candidate.weighed]
    if chosen is None or len(plan.candidates) == 1:
        return []
    name = _name(plan.solver)
    sentences = []
    if len(weighed) > 1:
        second = next(candidate for candidate in weighed if candidate is not chosen)
        sentences.append(
            f"{name} was chosen from {len(weighed)} solvers: its predicted excess risk is "
            f"{chosen.predicted:.3g} for {chosen.gradient_evaluations:.2g} gradients of single records; "
            f"{_name(second.solver)} has {second.predicted:.3g} for {second.gradient_evaluations:.2g}."
        )
    if listed := [candidate for candidate in plan.candidates if not candidate.weighed]:
        names = ", ".join(f"{_name(each.solver)} {each.predicted:.3g}" for each in listed)
        sentences.append(f"Others that fit are listed and can be asked for by name: {names}.")
    return [*sentences, *filter(None, [_smaller_predictions(plan)])]


def _smaller_predictions(plan: Plan) -> str:
    """Why rows of the table may have smaller predictions than the chosen one; empty where none has."""
    chosen = _chosen(plan)
    if chosen is None:
        return ""
    smaller = [each for each in plan.candidates if each.predicted < chosen.predicted]
    reasons = []
    if any(each.basis != chosen.basis for each in smaller):
        reasons.append(
            "a bound is for the worst data and a typical risk was rehearsed, so they do not compare"
        )
    if any(each.weighed for each in smaller):
        reasons.append(
            "the choice was made by the solvers' own formulas and a price for work, before any rehearsal"
        )
    if any(not each.weighed for each in smaller):
        reasons.append(
            "solvers that are not weighed are left out because measured risks contradicted such predictions"
            if sum(each.weighed for each in plan.candidates) > 1
            else "no solver but the chosen one was weighed"
        )
    if not reasons:
        return ""
    return f"Some predictions are smaller than that of the chosen {_name(plan.solver)}: {'; '.join(reasons)}."


def _question(mechanism: Any) -> str:
    """Name of a private question; moments are asked for twice, and say which they are."""
    if not isinstance(mechanism, NoisyMoments):
        return type(mechanism).__name__
    return f"NoisyMoments ({'means' if mechanism.order == 1 else 'mean squares'})"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"


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
    inner = getattr(solver, "solver", solver)
    settings = _numbers(inner, skip=("n_iter",))
    return _name(solver) + (f" ({settings})" if settings else "")


def _name(solver: object) -> str:
    """Class of a solver; one that works around another names both."""
    inner = getattr(solver, "solver", None)
    return type(solver).__name__ + ("" if inner is None else f"({_name(inner)})")


def _numbers(thing: object, skip: Sequence[str]) -> str:
    """The fields of a dataclass that are single numbers or words."""
    values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.name not in skip}  # type: ignore[arg-type]
    shown = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    return ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items())


def _price(mechanism: Any) -> str:
    event = mechanism.event
    parts = event.events if isinstance(event, Compose) else (event,)
    return " and ".join(f"{type(part).__name__}({_numbers(part, skip=())})" for part in parts)


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
