"""Entries of a fit's privacy statement: public facts, and declarations with how they are enforced."""

from __future__ import annotations

from typing import Any

from dpcvx.data import Region
from dpcvx.data.column_maps import IDENTITY
from dpcvx.data.columns import Columns
from dpcvx.estimators.comparison import faint_levels
from dpcvx.estimators.planning import FitDeclaration
from dpcvx.estimators.private_bounds import RELEASED, is_private
from dpcvx.estimators.public_rows import PUBLIC, UNUSED, USED
from dpcvx.plans import Plan

__all__ = ["bounds_facts", "public_facts", "share_facts"]


def public_facts(
    chosen: Plan, columns: Columns, intercept: float, *, n_iter: int, delta: float | None
) -> dict[str, Any]:
    """Return the public facts of a fit: sizes, loss, set and solver; `delta`: as given by the user."""
    problem = chosen.problem
    return {
        **_size_facts(chosen),
        "features": list(columns.names),
        "loss": _setting(problem.loss),
        "domain": _setting(problem.domain),
        "l2": problem.l2,
        "solver": _setting(chosen.solver),
        "standardized": chosen.solver.standardises,
        "n_iter": n_iter,
        "intercept": intercept,
        "delta_rule": "given" if delta is not None else _delta_rule(chosen),
        "x_inf": problem.bounds.x_inf,
        "x_2": problem.row_norm,
    }


def share_facts(made: FitDeclaration, region: Region | None) -> dict[str, Any]:
    """Return doubtful columns and levels, by released numbers.

    Levels and columns that may be empty are named if the fit has no check, which counts them.

    `region`: released, in scaled units; None for a fit that releases none.
    """
    if region is None or not made.intercept:
        return {}
    spans = list(zip(made.columns.labels(), made.columns.spans(), strict=True))
    # Bounds that the fit finds itself cannot be in a wrong unit, and booleans have no unit.
    measured = [each for j, each in enumerate(spans) if j not in made.columns.flags]
    measured = [] if is_private(made.stated.bounds) else measured
    found: dict[str, Any] = {}
    for name, places in (("at_end", region.at_end), ("flat", region.flat)):
        if named := [label for label, span in measured if set(span).issubset(places)]:
            found[name] = named
    if made.check is not None:
        return found
    if faint := faint_levels(made.columns, region):
        found |= {"faint": faint, "share_noise": region.share_noise}
    if empty := [label for label, span in spans if set(span).intersection(region.empty)]:
        found |= {"empty": empty, "cell_noise": region.cell_noise}
    return found


def _size_facts(plan: Plan) -> dict[str, Any]:
    """The public number of units."""
    neighbours = plan.budget.neighbours
    return {"n": plan.n} if neighbours.unit == "row" else {"persons": plan.n // neighbours.rows}


def _delta_rule(plan: Plan) -> str:
    return f"min(1/{'n' if plan.budget.unit == 'row' else 'persons'}^2, 1e-5)"


def bounds_facts(made: FitDeclaration) -> dict[str, Any]:
    """Return the declarations of columns, and how they are enforced."""
    columns, stated = made.columns, made.stated
    centred = made.plan.solver.standardises and bool(made.intercept)
    narrows = made.public is not None and made.public.narrows
    middle = "0" if not columns.center.any() else "the middle of its bounds"
    if narrows:
        middle = "the mean of the public rows, or the middle of its bounds if it does not vary among them"
    bounds: dict[str, Any] = {
        "bounds": {"low": columns.low.tolist(), "high": columns.high.tolist()},
        "enforced": "cells are clipped to their bounds; a missing, infinite or non-numeric one counts as "
        + ("the released mean of its column" if centred and columns.marked.any() else middle),
    }
    if stated.missing:
        bounds["enforced"] += ", or as the number that is declared for it"
        bounds["missing"] = dict(stated.missing)
    if any(levels is not None for levels in columns.levels):
        bounds["enforced"] += "; one that is none of the levels of its column counts as 0 for each of them"
        compared = {
            label: levels[levels.baseline]
            for label, levels in zip(columns.labels(), columns.levels, strict=True)
            if levels is not None
            and levels.baseline is not None
            and (made.intercept or not levels.is_compared)
        }
        if compared and made.intercept:
            shares = "released" if centred else "equal"
            bounds["enforced"] += f", or takes {shares} shares of them where one is the baseline"
        shared = [
            label
            for label, levels in zip(columns.labels(), columns.levels, strict=True)
            if levels is not None and levels.share and not made.intercept
        ]
        if shared:
            bounds["enforced"] += ", or takes equal shares of them in the columns listed as shared"
            bounds["shared"] = shared
        if compared:
            bounds["baselines"] = compared
    if columns.maps is not None:
        mapped = zip(columns.labels(), columns.maps, strict=True)
        bounds["maps"] = {label: each.formula() for label, each in mapped if each != IDENTITY}
        plain, spans = made.plain, made.plain.spans()
        bounds["bounds_before_maps"] = {
            label: [float(side[span[0]]) for side in (plain.low, plain.high)]
            for label, span, each in zip(columns.labels(), spans, columns.maps, strict=True)
            if each != IDENTITY
        }
        bounds["enforced"] += "; numbers with a map are mapped first"
        if any(len(each.suffixes) > 1 for each in columns.maps):
            bounds["enforced"] += "; a missing one has the features of the middle of a map that gives several"
    if is_private(stated.bounds):
        bounds["bounds_are"] = RELEASED
    elif narrows:
        bounds["bounds_are"] = PUBLIC
        bounds["declared_bounds"] = {"low": made.plain.low.tolist(), "high": made.plain.high.tolist()}
    if stated.data_norm is not None:
        bounds["data_norm"] = float(stated.data_norm)
        bounds["enforced"] += "; rows are shrunk to l2 norm data_norm"
    elif not made.plan.solver.standardises:
        norm, longest = made.plan.problem.row_norm, columns.row_bounds(None, made.intercept)
        if norm < longest.row_norm(made.plan.problem.d):
            bounds["enforced"] += f"; scaled rows are shrunk to l2 norm {norm:.4g} with the constant feature"
    said = [note for note in made.plan.notes if note.startswith((UNUSED, USED))]
    if made.public is not None or said:
        bounds["public_rows"] = said[0] if made.public is None else made.public.fact
    others = [note for note in made.plan.notes if note not in said]
    if made.check is not None or others:
        bounds["check"] = "; ".join(others) if made.check is None else made.check.summary
    return bounds


def _setting(thing: Any) -> str:
    """Public object in one line; of a long one the middle is left out."""
    text = " ".join(repr(thing).split())
    return text if len(text) <= 200 else f"{text[:150]} ... {text[-45:]}"
