"""The formula of a fitted model: every step of a prediction, in words and as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data import AdditiveBasis, Region
from dpcvx.data.column_maps import IDENTITY, each_map, map_fields
from dpcvx.data.row_map import RowMap
from dpcvx.words import align_columns

__all__ = ["Formula"]

FEW_FEATURES = 40  # a text lists so many features; JSON has all


@dataclass(frozen=True, eq=False)
class Formula:
    """All steps of a prediction, in double precision, with terms added in the order of the features.

    `model`: class of the model. `columns`: names of the columns of X, or their number where they have none.
    `row_map`: from cells to features. `extrapolation`: "linear" leaves the clipping steps of the map out.
    `coef`: shape (d,) or (K, d); `intercept`: one number, or K. `link`: meaning of a score, "identity",
    "log", "sign" or "logit". `classes`: labels of a classifier.
    """

    model: str
    columns: tuple[str, ...] | int
    row_map: RowMap
    extrapolation: str
    coef: Vector
    intercept: Any
    link: str
    classes: NDArray[Any] | None

    @classmethod
    def of(cls, model: Any) -> Formula:
        """Return the formula of a fitted model."""
        names = getattr(model, "feature_names_in_", None)
        return cls(
            type(model).__name__,
            int(model.n_features_in_) if names is None else tuple(names),
            model._row_map,
            model.extrapolation,
            model.coef_,
            model.intercept_,
            model._link,
            getattr(model, "classes_", None),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the formula as plain JSON; the page "What predict computes" says how to evaluate it.

        A vector whose entries are all equal is one number, and coefficients that are mostly zero are
        {"shape", "places", "values"}, places counted row by row.
        """
        rows, classes = self.row_map, self.classes
        return {
            "columns": self.columns if isinstance(self.columns, int) else list(self.columns),
            "levels": {str(j): list(levels) for j, levels in enumerate(rows.levels) if levels is not None},
            "baselines": {
                str(j): levels.baseline
                for j, levels in enumerate(rows.levels)
                if levels is not None and levels.baseline is not None
            },
            "omitted": {
                str(j): levels.omitted
                for j, levels in enumerate(rows.levels)
                if levels is not None and levels.omitted is not None
            },
            "maps": {str(j): map_fields(each) for j, each in enumerate(rows.maps or ()) if each != IDENTITY},
            "fill": _short(rows.fill),
            "bounds": None if rows.bounds is None else [_short(bound) for bound in rows.bounds],
            "region": None if rows.region is None else _region(rows.region),
            "schema": None if rows.schema is None else rows.schema.to_dict(),
            "extrapolation": self.extrapolation,
            "coef": _sparse(self.coef),
            "intercept": np.asarray(self.intercept).tolist(),
            "link": self.link,
            "classes": None if classes is None else {"kind": classes.dtype.kind, "labels": classes.tolist()},
        }

    def to_json(self) -> str:
        """Return the formula as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    def __str__(self) -> str:
        steps = [*self._reading(), *self._clipping(), *self._comparing(), self._score(), self._output()]
        numbered = [f"{place}. {step}" for place, step in enumerate(steps, 1)]
        return "\n".join([f"Prediction of {self.model} for one row:", *numbered, "", *self._table()])

    def _reading(self) -> list[str]:
        levels = self.row_map.levels
        steps = self._derived()
        if any(declared is None for declared in levels):
            steps.append(
                'Read. A cell that is no finite number takes the value "missing" of its column. Each number '
                "is a feature x_j."
            )
        if self.row_map.maps is not None:
            maps = [(name, each) for name, each in self._each_map() if each != IDENTITY]
            shown = "".join(f"\n   {name}: {each.formula()}" for name, each in maps[:FEW_FEATURES])
            left = len(maps) - FEW_FEATURES
            steps.append(
                "Map. Numbers x of these columns become features x_j; for a cell that is no finite number "
                f'they are the values "missing" of the features.{shown}'
                + (f"\n   and {left} more, in to_json()" if left > 0 else "")
            )
        if any(declared is not None for declared in levels):
            steps.append(
                "Encode. Each declared level of a column is a feature x_j: 1 where the cell is this level, 0 "
                'where it is not. Cells are compared by value: 1, 1.0, "1" and true are one, text has no '
                'white space around it. For a missing cell or another level x_j is "missing", the share of '
                "the level."
            )
        if omitted := self._omitted():
            steps.append(f"Compare. The baseline of a column has no feature: {_listed(omitted)}.")
        return steps

    def _names(self) -> Sequence[str]:
        """Name of each column."""
        return [f"x{j}" for j in range(self.columns)] if isinstance(self.columns, int) else self.columns

    def _each_map(self) -> list[tuple[str, Any]]:
        """Name and map of each column."""
        columns = self._names()
        return list(zip(columns, each_map(self.row_map.maps, len(columns)), strict=True))

    def _comparing(self) -> list[str]:
        """The step that leaves out the features of baselines."""
        found = self._baselines()
        return [f"Compare. The features of these baselines are left out: {_listed(found)}."] if found else []

    def _baselines(self) -> list[str]:
        """Baselines that have a feature, until it is left out."""
        pairs = zip(self._names(), self.row_map.levels, strict=True)
        return [
            f"{name}={each[each.baseline]}"
            for name, each in pairs
            if each and each.baseline is not None and each.is_compared
        ]

    def _omitted(self) -> list[str]:
        """Baselines that have no feature."""
        pairs = zip(self._names(), self.row_map.levels, strict=True)
        return [f"{name}={each[each.omitted]}" for name, each in pairs if each and each.omitted is not None]

    def _derived(self) -> list[str]:
        """The step that makes variables of columns, where some are not the columns themselves."""
        names = (
            []
            if self.row_map.schema is None
            else [each.name for each in self.row_map.schema.variables() if each.derived]
        )
        return (
            [f"Derive {_listed(names)} from their columns, as the schema in to_json() says."] if names else []
        )

    def _clipping(self) -> list[str]:
        rows = self.row_map
        basis = None if rows.region is None else rows.region.basis
        if self.extrapolation != "clip":
            return [] if rows.region is None or basis is None else [_STANDARDISE, *_expanding(basis)]
        steps = []
        if rows.bounds is not None:
            steps.append("Clip to the private bounds. x_j is clipped to [low_j, high_j].")
        if rows.region is not None and basis is not None:
            reach, length = rows.region.reach, rows.region.length
            steps += [
                f"{_STANDARDISE} It is clipped to [-{reach!r}, {reach!r}].",
                *_expanding(basis),
                f"Clip to the region of the fit. All x_j are multiplied by {length!r} / max({length!r}, "
                "sqrt(x_1^2 + x_2^2 + ...)).",
            ]
        elif rows.region is not None:
            reach, length = rows.region.reach, rows.region.length
            steps.append(
                f"Clip to the region of the fit. u_j = (x_j - center_j) / scale_j, clipped to [-{reach!r}, "
                f"{reach!r}]. All u_j are multiplied by {length!r} / max({length!r}, "
                "sqrt(u_1^2 + u_2^2 + ...)). Then x_j = center_j + scale_j u_j."
            )
        return steps

    def _score(self) -> str:
        if self.coef.ndim == 1:
            return f"Score. z = ((0 + coef_1 x_1) + coef_2 x_2) + ... + {float(self.intercept)!r}."
        return "Score. z_k = ((0 + coef_k1 x_1) + coef_k2 x_2) + ... + intercept_k for each output k."

    def _output(self) -> str:
        if self.classes is None:
            means = {"log": "exp(z)", "logit": "1 / (1 + exp(-z))"}
            return f"Predict. {means.get(self.link, 'z')}."
        labels, proba = self.classes.tolist(), ""
        if self.coef.ndim == 1:
            if self.link == "logit":
                proba = f" The probability of {labels[1]!r} is 1 / (1 + exp(-z))."
            return f"Predict. {labels[1]!r} if z > 0, otherwise {labels[0]!r}.{proba}"
        if self.link == "logit":
            proba = " The probability of class k is exp(z_k) / sum_m exp(z_m)."
        return f"Predict. The class with the largest z_k, the first of equal ones.{proba}"

    def _table(self) -> list[str]:
        rows = self.row_map
        clips = self.extrapolation == "clip"
        parts: dict[str, Any] = {"missing": rows.fill}
        if clips and rows.bounds is not None:
            parts |= dict(zip(("low", "high"), rows.bounds, strict=True))
        if rows.region is not None and (clips or rows.region.basis is not None):
            parts |= {"center": rows.region.center, "scale": rows.region.scale}
        names = rows.clipped_names
        coef = np.zeros((*self.coef.shape[:-1], len(names)))
        coef[..., rows.compared] = self.coef
        if coef.ndim == 1:
            parts["coef"] = coef
        else:
            labels = range(len(coef)) if self.classes is None else self.classes.tolist()
            parts |= {f"coef of {label}": row for label, row in zip(labels, coef, strict=True)}
        shown = range(min(len(names), FEW_FEATURES))
        lines = [["feature", *parts]]
        lines += [
            [names[j], *(repr(float(part[j])) if j < len(part) else "" for part in parts.values())]
            for j in shown
        ]
        if self.coef.ndim > 1:
            blanks = [""] * (len(parts) - len(self.coef))
            lines.append(["intercept", *blanks, *(repr(float(value)) for value in self.intercept)])
        table = align_columns(lines)
        left = len(names) - len(shown)
        return [*table, f"  ... and {left} more: to_json() has them all."] if left else table


def _listed(names: Sequence[str]) -> str:
    """The first few names."""
    return ", ".join(names[:FEW_FEATURES]) + (" and others" if len(names) > FEW_FEATURES else "")


_STANDARDISE = "Standardise. u_j = (x_j - center_j) / scale_j."


def _expanding(basis: AdditiveBasis) -> list[str]:
    """The step that makes features of standardised cells."""
    ramps = ""
    if basis.ramps:
        first = sum(high <= 0 for high in basis.knots[1:])
        ramps = (
            f" Then come the ramps {basis.ramp_weight!r} clip((u_j - t_k) / (t_(k+1) - t_k), 0, 1) of each "
            f"number, named column[k], for the knots t = {', '.join(map(repr, basis.knots))}; of the first "
            f"{first} the weight {basis.ramp_weight!r} is subtracted."
        )
        if basis.flat:
            ramps += f" Those of the columns at places {', '.join(map(str, basis.flat))} (from 0) are 0."
    pairs = ""
    if basis.pairs:
        pairs = (
            f" Then come products {basis.pair_weight!r} clip(u_i u_j, -{basis.reach!r}, {basis.reach!r}), "
            "named column*column."
        )
    dropped = ""
    if basis.dropped:
        places = ", ".join(map(str, basis.dropped))
        dropped = f" Set u_j = 0 first for the columns at places {places} (from 0), which were not selected."
    return [f"Expand.{dropped} The first features x_j are the u_j.{ramps}{pairs}"]


def _basis(basis: AdditiveBasis) -> dict[str, Any]:
    return {
        "numbers": list(basis.numbers),
        "knots": list(basis.knots),
        "ramp_weight": basis.ramp_weight,
        "pairs": [list(pair) for pair in basis.pairs],
        "pair_weight": basis.pair_weight,
        "flat": list(basis.flat),
        **({"dropped": list(basis.dropped)} if basis.dropped else {}),
    }


def _region(region: Region) -> dict[str, Any]:
    basis = {} if region.basis is None else {"basis": _basis(region.basis)}
    return basis | {
        "center": _short(region.center),
        "scale": _short(region.scale),
        "reach": region.reach,
        "length": region.length,
    }


def _short(vector: Vector) -> Any:
    """Numbers as JSON; one number where all are equal, signs of zeros included."""
    same = len(vector) > 1 and np.unique(vector.view(np.int64)).size == 1
    return float(vector[0]) if same else vector.tolist()


def _sparse(array: Vector) -> Any:
    """Numbers as JSON; those that are not 0, with their places, where that is shorter."""
    flat = array.ravel()
    places = np.flatnonzero(flat)
    if 3 * len(places) > flat.size:
        return array.tolist()
    return {"shape": list(array.shape), "places": places.tolist(), "values": flat[places].tolist()}
