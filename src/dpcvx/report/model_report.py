"""A report of released models for a publication or a lawyer: question, data, table, guarantee, provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcvx.errors import WrongValue
from dpcvx.report.html import Section, html_report
from dpcvx.whole_files import replace_file
from dpcvx.words import quantity

if TYPE_CHECKING:
    from dpcvx.ledger.accounts import Account

__all__ = ["ReportedModel", "model_report", "write_report"]

MOST_ROWS = 60  # declared features that are listed one by one
HISTOGRAMS = ("NoisyBinCounts", "NoisyPooledCounts")  # questions that maps of columns follow from

GLOSSARY = [
    ("word", "meaning"),
    (
        "epsilon",
        "How much one record or person can change the chance of any conclusion: by a factor of at most "
        "e^epsilon. Smaller is more private.",
    ),
    ("delta", "An extra probability beyond that factor. It should be far below 1 in the number of people."),
    ("record, person", "The unit that is protected: one row, or all rows of a person together."),
    ("noise", "Random numbers that are part of every answer computed from the records."),
    ("declared bounds", "Limits from public knowledge. Values outside are clipped to them."),
    (
        "coefficient",
        "Change of the model's score for one unit of the feature: of the target where the link is the "
        "identity, of its log-odds where it is the logit.",
    ),
    ("baseline", "Level of a category that the other levels are compared with."),
    ("standard error", "Spread of the estimate over repeated samples and over repeated noise."),
    ("interval", "Range that covers the coefficient with the stated probability."),
    ("noise share", "Part of the variance that comes from privacy noise; the rest is sampling error."),
    ("account", "Entry of a ledger that adds up everything released about the same people, up to a cap."),
]


@dataclass(frozen=True)
class ReportedModel:
    """A released model with the facts of its file.

    `name`: for people; `model`: fitted estimator; `digest`: SHA-256 of the model file, where there is one.
    """

    name: str
    model: Any
    digest: str | None = None

    @classmethod
    def open(cls, path: Path) -> ReportedModel:
        """Read a model file."""
        from dpcvx.estimators import load

        model = load(path)
        return cls(path.stem, model, hashlib.sha256(path.read_bytes()).hexdigest())


def write_report(
    models: Sequence[ReportedModel],
    path: str | Path,
    *,
    title: str = "Report of a private analysis",
    question: str = "",
    account: Account | None = None,
) -> None:
    """Write a report of one model, or of several about the same people, as HTML or PDF.

    Parameters
    ----------
    models : sequence of ReportedModel
        Released models.
    path : str or Path
        File to write; its ending, ``.html`` or ``.pdf``, is the format. PDF needs ``dpcvx[report]``.
    title, question : str
        Title, and the question of the analysis in your words.
    account : Account, optional
        Account that paid: its charges and its cap are listed.
    """
    path = Path(path)
    if path.suffix not in (".html", ".pdf"):
        raise WrongValue(f"A report is written as .html or .pdf, got {path.name!r}.")
    summary, sections = model_report(models, question=question, account=account)
    if path.suffix == ".html":
        page = html_report(title, summary, sections)
        replace_file(path, lambda part: part.write_text(page, encoding="utf-8"))
        return
    from dpcvx.report.pdf import pdf_report

    content = pdf_report(title, summary, sections)
    replace_file(path, lambda part: part.write_bytes(content))


def model_report(
    models: Sequence[ReportedModel], *, question: str = "", account: Account | None = None
) -> tuple[str, list[Section]]:
    """Return the main result in a sentence, and the sections of the report.

    `models`: at least one; `question`: of the analysis; `account`: that paid, with all its charges.
    """
    if not models:
        raise WrongValue("A report needs at least one model.")
    statements = [each.model.privacy_statement_ for each in models]
    sections = [Section("Question", _question(models, question))]
    for each in models:
        head = f"{each.name}: " if len(models) > 1 else ""
        sections += _sections(each, head)
    if len(models) > 1 or account is not None:
        sections.append(_together(models, account))
    sections.append(_verification(models))
    sections.append(Section("Glossary", rows=GLOSSARY))
    if not all(statement.private for statement in statements):
        return "NOT PRIVATE: the noise of a model came from a seed. Do not publish it.", sections
    spent = "; ".join(f"epsilon {s.epsilon:g}, delta {s.delta:.3g}" for s in statements)
    return f"{quantity(len(models), 'model')} released with differential privacy: {spent}.", sections


def _question(models: Sequence[ReportedModel], question: str) -> str:
    parts = [question] if question else []
    for each in models:
        statement, row_map = each.model.privacy_statement_, each.model.formula_.row_map
        schema = row_map.schema
        target = "the target" if schema is None or schema.target is None else schema.target
        target = statement.bounds.get("y", target)
        how = "" if schema is None or schema.formula is None else f" Formula: {schema.formula}."
        size = _size(statement)
        prefix = f"{each.name}: " if len(models) > 1 else ""
        names = getattr(each.model, "feature_names_in_", None)
        count = quantity(each.model.n_features_in_ if names is None else len(names), "column")
        parts.append(f"{prefix}{statement.model} of {target} on {count}, from {size}.{how}")
    return "\n\n".join(parts)


def _size(statement: Any) -> str:
    if "persons" in statement.public:
        return quantity(statement.public["persons"], "person")
    return quantity(statement.public["n"], "record")


def _sections(each: ReportedModel, head: str) -> list[Section]:
    """Table, picture, declared data and guarantee of one model."""
    model, statement = each.model, each.model.privacy_statement_
    table = model.summary().table()
    cells, notes = table.short_cells()
    found = [Section(f"{head}Model", rows=[("fact", "value"), *table.facts])]
    found.append(Section(f"{head}Coefficients", "\n\n".join(notes), rows=cells))
    if (effects := _effects(model)) is not None:
        from dpcvx.report.plots import effects_plot

        caption = (
            "Coefficient of each feature times the distance between its lowest and its highest value in the "
            "table below: the change of the score, all others fixed, if no row is clipped on the way."
            + ("" if effects[2] is None else " Lines are 95 % intervals.")
        )
        found.append(Section(f"{head}Effects", png=effects_plot(*effects), caption=caption))
    if (shapes := getattr(model, "shapes_", None)) is not None:
        from dpcvx.report.plots import shapes_plot

        caption = "Contribution of each column to the score, 0 at the released mean of a number." + (
            " Bands are 95 % intervals." if any(each.std is not None for each in shapes.values()) else ""
        )
        found.append(Section(f"{head}Shapes", png=shapes_plot(model), caption=caption))
    found.append(_declaration(statement, head))
    found.append(Section(f"{head}Guarantee", statement.meaning, rows=_questions(statement)))
    found.append(Section(f"{head}Statement", verbatim=str(statement)))
    return found


def _declaration(statement: Any, head: str) -> Section:
    """Table of declared bounds, and the rules that enforce them."""
    bounds, names = statement.bounds, statement.public["features"]
    low, high = bounds["bounds"]["low"], bounds["bounds"]["high"]
    rows = [("feature", "lowest", "highest")]
    listed = list(zip(names, low, high, strict=False))
    baselines = {f"{column}={level}" for column, level in bounds.get("baselines", {}).items()}
    for name, a, b in listed[:MOST_ROWS]:
        mark = " (baseline, without a coefficient)" if str(name) in baselines else ""
        rows.append((f"{name}{mark}", f"{a:g}", f"{b:g}"))
    left = f" {len(listed) - MOST_ROWS} more are in the model file." if len(listed) > MOST_ROWS else ""
    origin = bounds.get("bounds_are", "declared, from public knowledge")
    mapped = ""
    if "maps" in bounds:
        mapped = " For a column with a map the bounds are those of the mapped values"
        if any(part["question"] in HISTOGRAMS for part in statement.mechanisms):
            mapped += "; the fit first released noisy histograms, from which maps follow"
        mapped += "."
    text = f"Bounds are {origin}.{mapped} In the fit {bounds['enforced']}.{left}"
    if "y_bounds" in bounds:
        lowest, highest = (f"{end:g}" if isinstance(end, float) else str(end) for end in bounds["y_bounds"])
        origin = bounds.get("y_bounds_are", "declared")
        text += f"\n\nTarget: from {lowest} to {highest}, {origin}; {bounds['y_enforced']}."
    elif "classes" in bounds:
        classes = ", ".join(map(str, bounds["classes"]))
        text += f"\n\nTarget: one of {classes}, {bounds['classes_are']}; {bounds['labels']}."
    return Section(f"{head}Declared data", text, rows=rows)


def _questions(statement: Any) -> list[tuple[str, ...]]:
    """Table of the private questions."""
    rows: list[tuple[str, ...]] = [("question to the records", "times", "sensitivity", "noise scale")]
    for part in statement.mechanisms:
        for one in part.get("answers") or [part]:
            sizes = [
                f"{one[key]:.4g}" if isinstance(one[key], int | float) else str(one[key])
                for key in ("sensitivity", "noise")
            ]
            name = f"{part['question']}, {one['answer']}" if "answer" in one else part["question"]
            rows.append((name, str(part["count"]), *sizes))
    return rows


def _effects(model: Any) -> tuple[list[str], list[float], list[tuple[float, float]] | None] | None:
    """Effects of features over their bounds, for linear models of one output."""
    statement = model.privacy_statement_
    bounds = statement.bounds["bounds"]
    widths = {
        name: high - low
        for name, low, high in zip(statement.public["features"], bounds["low"], bounds["high"], strict=False)
    }
    rows = model.summary().table()
    places = {column.name: place for place, column in enumerate(rows.columns)}
    if "coef" not in places or "output" in places:  # shapes, or several outputs
        return None
    ends = [place for name, place in places.items() if name.startswith("[") or name.endswith("]")]
    names, effects, intervals = [], [], []
    for row in rows.rows:
        if row[0] not in widths or row[places["coef"]] is None:
            continue
        width = widths[row[0]]
        names.append(row[0])
        effects.append(width * row[places["coef"]])
        if len(ends) == 2:
            intervals.append((width * row[ends[0]], width * row[ends[1]]))
    if not names or len(names) > MOST_ROWS:
        return None
    return names, effects, intervals or None


def _together(models: Sequence[ReportedModel], account: Account | None) -> Section:
    """Statement of everything that was released about the same people."""
    statements = [each.model.privacy_statement_ for each in models]
    if not all(statement.private for statement in statements):
        return Section("Together", "A model has no guarantee, so that all of them together have none.")
    if account is None:
        if len({(statement.unit, statement.relation) for statement in statements}) > 1:
            return Section(
                "Together",
                "The models protect different units (a row, or all rows of a person) or have different "
                "neighbours: their epsilons do not add up to one guarantee. Read each of them.",
            )
        epsilon, delta = sum(s.epsilon for s in statements), sum(s.delta for s in statements)
        return Section(
            "Together",
            f"If the models are about the same people, epsilons and deltas add up: epsilon {epsilon:g}, "
            f"delta {delta:.3g}. Name the account that paid, if there is one, to see everything that was "
            "charged to it.",
        )
    from dpcvx.report.plots import spending_plot

    budget, history = account.budget, account.history()
    rows = [("entry", "time", "purpose")]
    rows += [(str(entry.sequence), str(entry.time), entry.purpose) for entry in history]
    text = (
        f"Everything charged to account {account.name!r} together has at most epsilon {budget.epsilon:g} and "
        f"delta {budget.delta:.3g}. There were {quantity(len(history), 'charge')} when this was written."
    )
    charged = f"account {account.name!r}"
    if others := [each.name for each in models if charged not in each.model.privacy_statement_.ledger]:
        text += f" Not charged to it, and no part of that: {', '.join(others)}."
    picture = spending_plot(account.name, budget, history) if history else b""
    return Section("Together", text, rows=rows, png=picture, caption="Spending of the account over time.")


def _verification(models: Sequence[ReportedModel]) -> Section:
    """Provenance, and what a reader can check."""
    rows = [("model", "fact", "value")]
    for each in models:
        statement = each.model.privacy_statement_
        facts = [
            ("version of dpcvx", statement.version),
            ("noise", statement.randomness),
            ("ledger", statement.ledger),
            ("SHA-256 of the file", each.digest or "not read from a file"),
        ]
        rows += [(each.name, *fact) for fact in facts]
    text = (
        "A model file holds the coefficients, the table and the statement with every private question, its "
        "sensitivity and its noise. dpcvx show FILE prints this table again; dpcvx verify FILE computes the "
        "guarantee anew from the noise that the statement names, by code that shares nothing with the "
        "accountant; sha256sum FILE gives the digest below.\n\n"
        "This report was computed from released and declared numbers alone: it adds nothing to what the "
        "models reveal."
    )
    return Section("Provenance and how to verify", text, rows=rows)
