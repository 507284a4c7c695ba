"""Plots of scores, spending and predictions, from released and public values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from statistics import mean
from typing import TYPE_CHECKING, Any

from dpcvx.errors import Incompatible, NotAccountable, NotInstalled

if TYPE_CHECKING:
    from dpcvx.accounting import Budget
    from dpcvx.estimators.power import PowerForecast
    from dpcvx.ledger import Entry
    from dpcvx.planning.outlook import Planning
    from dpcvx.plans import Plan

__all__ = [
    "Comparison",
    "audit_plot",
    "effects_plot",
    "precision_plot",
    "prediction_plot",
    "privacy_utility_plot",
    "shapes_plot",
    "spending_plot",
]

PRIVATE, PLAIN, TRIVIAL = "#0b6e75", "#b4552d", "#8a8f98"  # of the lines of the three models
PRECISION_SPAN = 10.0  # expected standard errors are drawn from 1/10 to 10 times the planned value
SPAN, POINTS = 30.0, 13  # predictions are drawn from 1/30 to 30 times the planned value


@dataclass(frozen=True)
class Comparison:
    """Scores of private models at several epsilons beside the model without privacy and the trivial one."""

    title: str  # what is predicted, and for whom
    metric: str  # name of the score; larger is better
    epsilons: Sequence[float]  # budgets, ascending
    scores: Sequence[Sequence[float]]  # test scores of the runs at each epsilon
    not_private: float  # score of the model fitted without privacy
    trivial: float  # score of the best constant prediction


def privacy_utility_plot(comparisons: Sequence[Comparison]) -> bytes:
    """Draw test score against epsilon, one panel for each comparison.

    Returns a PNG picture.
    """
    figure = _figure(5.6 * len(comparisons))
    panels = figure.subplots(1, len(comparisons), squeeze=False)[0]
    for axes, comparison in zip(panels, comparisons, strict=True):
        _draw(axes, comparison)
    return _png(figure)


def spending_plot(account: str, budget: Budget, history: Sequence[Entry]) -> bytes:
    """Draw how much of an account's cap was spent over time.

    Returns a PNG picture.
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


def prediction_plot(plan: Plan, again: Planning) -> bytes:
    """Draw the predicted excess risk against epsilon and against the number of records.

    `plan`: the plan in the middle of both panels; `again`: plans the same fit for another number of records
    and epsilon. Returns a PNG picture.
    """
    from dpcvx.planning.outlook import predicted_risk, trivial_risk

    n, epsilon, trivial = plan.n, plan.budget.epsilon, trivial_risk(plan)
    figure = _figure(11.2)
    panels = figure.subplots(1, 2, sharey=True)
    sides: tuple[tuple[str, str, float, Callable[[float], Plan]], ...] = (
        (f"{n:,} records: which epsilon?", "epsilon", epsilon, lambda value: again(n, value)),
        (
            f"epsilon {epsilon:g}: how many people?",
            "number of records",
            n,
            lambda m: again(round(m), epsilon),
        ),
    )
    for axes, (title, name, here, make) in zip(panels, sides, strict=True):
        found: list[tuple[float, float]] = []
        for value in (here * SPAN ** (2 * i / (POINTS - 1) - 1) for i in range(POINTS)):
            try:
                found.append((value, sum(predicted_risk(make(max(value, 1.0) if here == n else value)))))
            except (Incompatible, NotAccountable):  # for instance an epsilon that finite noise cannot carry
                continue
        _draw_prediction(axes, found, (here, sum(predicted_risk(plan))), trivial)
        _label(axes, title, name, "predicted excess risk" if axes is panels[0] else "")
    panels[0].legend(loc="lower left", frameon=False, fontsize=9)
    return _png(figure)


def precision_plot(forecast: PowerForecast) -> bytes:
    """Draw expected standard errors against epsilon and against the number of records.

    Errors are those of a typical coefficient, over the one that a fit without privacy has for the number of
    records in the middle. Returns a PNG picture.
    """
    n, epsilon, unit = forecast.n, forecast.epsilon, forecast.typical_sampling
    if not math.isfinite(unit):
        raise Incompatible(
            "Standard errors cannot be drawn, since no number of records determines all coefficients. "
            "Declare a baseline level of each category."
        )
    figure = _figure(11.2)
    panels = figure.subplots(1, 2, sharey=True)
    sides: tuple[tuple[str, str, float, Callable[[float], PowerForecast]], ...] = (
        (f"{n:,} records: which epsilon?", "epsilon", epsilon, lambda value: forecast.again(n, value)),
        (
            f"epsilon {epsilon:g}: how many people?",
            "number of records",
            n,
            lambda m: forecast.again(round(m), epsilon),
        ),
    )
    for axes, (title, name, here, make) in zip(panels, sides, strict=True):
        found: list[tuple[float, float]] = []
        for value in (here * PRECISION_SPAN ** (2 * i / (POINTS - 1) - 1) for i in range(POINTS)):
            try:
                found.append((value, make(max(value, 1.0) if here == n else value).typical_error / unit))
            except (Incompatible, NotAccountable):  # for instance an epsilon that finite noise cannot carry
                continue
        values = [value for value, _ in found]
        axes.plot(values, [error for _, error in found], color=PRIVATE, linewidth=2.4, label="private fit")
        plain = [math.sqrt(n / value) if here == n else 1.0 for value in values]
        axes.plot(
            values, plain, color=TRIVIAL, linewidth=1.6, linestyle=(0, (2, 2)), label="fit without privacy"
        )
        point = forecast.typical_error / unit
        axes.plot(here, point, "o", color=PLAIN, markersize=8, markeredgecolor="white", label="this plan")
        _log_axes(axes)
        _label(axes, title, name, "standard error, multiple" if axes is panels[0] else "")
    panels[0].legend(loc="upper right", frameon=False, fontsize=9)
    return _png(figure)


def effects_plot(
    names: Sequence[str], effects: Sequence[float], intervals: Sequence[tuple[float, float]] | None
) -> bytes:
    """Draw effects of features, one line each, with their intervals where these were released.

    Returns a PNG picture.
    """
    figure = _figure(7.0)
    figure.set_figheight(1.3 + 0.28 * len(names))
    axes = figure.subplots()
    axes.axvline(0.0, color=TRIVIAL, linewidth=1.2)
    for place, effect in enumerate(effects):
        if intervals is not None:
            axes.plot(intervals[place], (place, place), color=PRIVATE, linewidth=2.2, alpha=0.45)
        axes.plot(effect, place, marker="o", markersize=6, color=PRIVATE, markeredgecolor="white")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _label(axes, "", "coefficient times the distance from the lowest to the highest value", "")
    axes.grid(axis="x", color="#e6e9ed", linewidth=0.8)
    return _png(figure)


def shapes_plot(model: Any) -> bytes:
    """Draw the shapes of an additive model, as a PNG picture."""
    return _png(model.plot())


def audit_plot(cases: Sequence[tuple[str, float, float, float]]) -> bytes:
    """Draw claimed, replayed and audited epsilon of some mechanisms, one bar for each.

    `cases`: name, claimed, replayed and audited epsilon. Returns a PNG picture.
    """
    figure = _figure(8.0)
    axes = figure.subplots()
    places = range(len(cases))
    claimed, replayed, audited = ([case[place] for case in cases] for place in (1, 2, 3))
    axes.barh(places, claimed, color=TRIVIAL, alpha=0.35, label="claimed")
    axes.barh(places, audited, height=0.45, color=PRIVATE, label="audited, from runs")
    axes.plot(replayed, places, "|", color=PLAIN, markersize=14, markeredgewidth=2, label="replayed, exact")
    axes.set_yticks(places, [case[0] for case in cases])
    axes.invert_yaxis()
    _label(axes, "Epsilon that an attacker can prove", "epsilon", "")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
    return _png(figure)


def _log_axes(axes: Any) -> None:
    """Give both axes a logarithmic scale with plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,g}" if tick < 1 else f"{tick:,.0f}"))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _draw_prediction(
    axes: Any, found: Sequence[tuple[float, float]], here: tuple[float, float], trivial: float | None
) -> None:
    """Draw one panel: the prediction, the risk of a constant, and the plan itself."""
    values, risks = [value for value, _ in found], [risk for _, risk in found]
    axes.plot(values, risks, color=PRIVATE, linewidth=2.4, label="private model")
    if trivial is not None:
        label = "the same answer for everybody"
        axes.axhline(trivial, color=TRIVIAL, linewidth=1.6, linestyle=(0, (2, 2)), label=label)
    axes.plot(*here, "o", color=PLAIN, markersize=8, markeredgecolor="white", label="this plan")
    _log_axes(axes)
    axes.set_ylim(min(risks) / 2, 1.6 * max([*risks, trivial or 0.0]))


def _figure(width: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise NotInstalled('Plots need matplotlib: run  pip install "dpcvx[plot]"') from missing

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
