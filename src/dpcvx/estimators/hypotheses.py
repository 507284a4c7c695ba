"""Linear hypotheses about coefficients, from text such as "age - hours = 0.5" or from matrices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.column_maps import Maps, each_map
from dpcvx.data.table import Levels, feature_counts
from dpcvx.errors import WrongValue
from dpcvx.words import LARGEST_SHOWN, show

__all__ = ["INTERCEPT", "Hypotheses", "ModelTerms"]

INTERCEPT = "Intercept"
NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
QUOTED = re.compile(r"`([^`]*)`|\"([^\"]*)\"|'([^']*)'")
SIGNS = {"+": "sum", "-": "sum", "*": "product", "/": "product", "=": "equals", ",": "comma"}
GRAMMAR = 'Write for instance "age = 0", "age - 2 * hours = 0.5" or "age = 0, hours = 0".'


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """The hypotheses matrix @ coefficients = values."""

    names: tuple[str, ...]  # of each hypothesis, for people
    matrix: Vector  # shape (q, d + 1): features in their order, the intercept last
    values: Vector  # shape (q,)


@dataclass(frozen=True)
class ModelTerms:
    """The coefficients of a model by name: those of features, of columns with levels, and the intercept."""

    names: tuple[str, ...]  # of features
    # column, its features, and name of its baseline level or ""
    columns: tuple[tuple[str, Sequence[int], str], ...]
    unseen: frozenset[str] = frozenset()  # features of levels without visible people, whose effect is fixed

    @classmethod
    def of(cls, names: Sequence[str], levels: Levels, maps: Maps = None) -> ModelTerms:
        """Return the terms of columns with these levels and maps of numbers.

        `names`: of features, those of baselines included.
        """
        found: list[tuple[str, range, str]] = []
        kept: list[str] = []
        start = 0
        counts, each_one = feature_counts(levels, maps), each_map(maps, len(levels))
        for declared, each, size in zip(levels, each_one, counts, strict=True):
            label, baseline = names[start], ""
            if declared is None:
                label = label.removesuffix(each.suffixes[0])
            else:
                label = label.removesuffix(f"={declared[declared.coded[0]]}")
                if declared.baseline is not None:
                    baseline = f"{label}={declared[declared.baseline]}"
            own = [name for name in names[start : start + size] if name != baseline]
            found.append((label, range(len(kept), len(kept) + len(own)), baseline))
            kept += own
            start += size
        return cls(tuple(kept), tuple(found))

    def without_baseline(self) -> list[str]:
        """Return the columns in which every level or bucket has a coefficient of its own."""
        return [
            label
            for label, places, baseline in self.columns
            if len(places) > 1 and not baseline and self.names[places[0]].startswith(f"{label}=")
        ]

    def hypotheses(self, given: Any) -> Hypotheses:
        """Return hypotheses that were given as text, as a list of texts, or as a matrix."""
        if isinstance(given, str):
            return self._parse(given)
        if isinstance(given, Sequence) and given and all(isinstance(each, str) for each in given):
            parts = [self._parse(each) for each in given]
            return Hypotheses(
                tuple(name for part in parts for name in part.names),
                np.vstack([part.matrix for part in parts]),
                np.concatenate([part.values for part in parts]),
            )
        return self._from_matrix(given)

    def _from_matrix(self, given: Any) -> Hypotheses:
        values = 0.0
        if isinstance(given, tuple) and len(given) == 2:
            given, values = given
        try:
            matrix = np.atleast_2d(np.asarray(given, dtype=np.float64))
            targets = np.broadcast_to(np.asarray(values, dtype=np.float64), len(matrix)).copy()
        except (TypeError, ValueError):
            matrix, targets = np.empty((0, 0)), np.empty(0)
        d = len(self.names)
        if matrix.ndim != 2 or matrix.shape[1] not in (d, d + 1) or not len(matrix):
            raise WrongValue(
                f"A matrix of hypotheses has a row for each of them and {d} columns, one for each of "
                f"coef_names_, or {d + 1}, the intercept first; a pair (matrix, values) gives what they are "
                f"equal to. Got {show(given)}. {GRAMMAR}"
            )
        if not (np.isfinite(matrix).all() and np.isfinite(targets).all()):
            raise WrongValue("A matrix of hypotheses must hold finite numbers.")
        free = matrix[:, 0] if matrix.shape[1] > d else np.zeros(len(matrix))
        matrix = np.column_stack([matrix[:, -d:], free])
        pairs = zip(matrix, targets, strict=True)
        return Hypotheses(tuple(self._describe(row, value) for row, value in pairs), matrix, targets)

    def _describe(self, row: Vector, value: float) -> str:
        """Return a row of a matrix in words."""
        names = [*self.names, INTERCEPT]
        parts = [f"{row[j]:+g} * {names[j]}" for j in np.flatnonzero(row)[: LARGEST_SHOWN + 1]]
        if len(parts) > LARGEST_SHOWN:
            parts[-1] = "..."
        text = " ".join(parts).replace("+1 * ", "+ ").replace("-1 * ", "- ").removeprefix("+ ")
        return f"{text or '0'} = {value:g}"

    def whole_column(self, name: str) -> Hypotheses | None:
        """Return the hypothesis that a column has no effect; None if there is no such column, or no effect.

        Of a column with levels: all have the same coefficient, which is 0 where one is the baseline.
        """
        inside = re.fullmatch(r"C\((.*)\)", name.strip())
        wanted = (inside[1] if inside else name).strip()
        found = [each for each in self.columns if each[0] == wanted]
        if not found:
            return None
        label, features, baseline = found[0]
        features = [j for j in features if self.names[j] not in self.unseen]
        if baseline in self.unseen:  # effects are differences from their mean: the last follows from others
            features = features[:-1]
        if not features:
            return None
        zeros = np.zeros((len(features), len(self.names) + 1))
        zeros[np.arange(len(features)), list(features)] = 1.0
        names = [self.names[j] for j in features]
        if baseline or not names[0].startswith(f"{label}="):
            return Hypotheses(tuple(f"{each} = 0" for each in names), zeros, np.zeros(len(zeros)))
        if len(features) < 2:
            raise WrongValue(
                f"The column {label!r} has one level and no baseline: there is nothing to compare."
            )
        differ = zeros[1:] - zeros[0]
        return Hypotheses(tuple(f"{each} = {names[0]}" for each in names[1:]), differ, np.zeros(len(differ)))

    def _parse(self, text: str) -> Hypotheses:
        rows: list[tuple[str, Vector, float]] = []
        for part in _split(self._tokens(text), "comma"):
            sides = _split(part, "equals")
            if not all(sides):
                raise WrongValue(f"{text!r} is no list of hypotheses. {GRAMMAR}")
            linear = [self._linear(side, text) for side in sides]
            linear += [np.zeros(len(self.names) + 2)] * (len(linear) == 1)
            said = [" ".join(token.text for token in side) for side in sides] + ["0"] * (len(sides) == 1)
            for first, second in itertools.pairwise(linear):
                row = first - second
                if not row[:-1].any():
                    raise WrongValue(f"{text!r} is about no coefficient. {GRAMMAR}")
                rows.append((" = ".join(said), row[:-1], -row[-1]))
        names, matrix, values = zip(*rows, strict=True)
        return Hypotheses(names, np.array(matrix), np.array(values) + 0.0)  # no -0

    def _tokens(self, text: str) -> list[_Token]:
        known = sorted(self._places(), key=len, reverse=True)
        tokens: list[_Token] = []
        place = 0
        while place < len(text):
            if text[place].isspace():
                place += 1
                continue
            if quoted := QUOTED.match(text, place):
                found = _Token("name", next(each for each in quoted.groups() if each is not None))
                if found.text not in self._places():
                    raise WrongValue(f"{found.text!r} is no coefficient. Coefficients: {self._listed()}.")
                tokens.append(found)
                place = quoted.end()
                continue
            digits = NUMBER.match(text, place)
            name = next((each for each in known if _begins(text, place, each)), None)
            if name is not None and not (digits and digits.end() - place >= len(name)):
                tokens.append(_Token("name", name))
            elif digits:
                tokens.append(_Token("number", digits[0]))
            elif text[place] in SIGNS:
                tokens.append(_Token(SIGNS[text[place]], text[place]))
            else:
                raise WrongValue(
                    f"{text!r} has a word at {text[place : place + 20]!r} that is no coefficient. "
                    f"Coefficients: {self._listed()}. {GRAMMAR}"
                )
            place += len(tokens[-1].text)
        return tokens

    def _listed(self) -> str:
        names = list(self._places())
        return ", ".join(names[:LARGEST_SHOWN]) + (", ..." if len(names) > LARGEST_SHOWN else "")

    def _places(self) -> dict[str, int | None]:
        """Place of each name among the coefficients; None for baselines, whose coefficient is 0."""
        places: dict[str, int | None] = {name: j for j, name in enumerate(self.names)}
        places |= {baseline: None for _, _, baseline in self.columns if baseline}
        return {**places, INTERCEPT: len(self.names)}

    def _linear(self, tokens: Sequence[_Token], text: str) -> Vector:
        """Return a sum of terms as coefficients, the intercept's among them, and a constant at the end."""
        total, places = np.zeros(len(self.names) + 2), self._places()
        for sign, factors in _terms(tokens, text):
            size, where = sign, len(self.names) + 1
            names = [factor for factor in factors if factor[1].kind == "name"]
            if len(names) > 1 or any(divides for divides, _ in names):
                raise WrongValue(f"{text!r} is not linear in the coefficients. {GRAMMAR}")
            for divides, token in factors:
                if token.kind == "number":
                    value = float(token.text)
                    if divides and value == 0:
                        raise WrongValue(f"{text!r} divides by 0.")
                    size = size / value if divides else size * value
            if names:
                found = places[names[0][1].text]
                if found is None:
                    continue
                where = found
            total[where] += size
        return total


class _Token(NamedTuple):
    """A word of a hypothesis."""

    kind: str  # name, number, sum, product, equals or comma
    text: str


def _split(tokens: Sequence[_Token], kind: str) -> list[list[_Token]]:
    """Return the parts between separators."""
    parts: list[list[_Token]] = [[]]
    for token in tokens:
        if token.kind == kind:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _terms(tokens: Sequence[_Token], text: str) -> list[tuple[float, list[tuple[bool, _Token]]]]:
    """Return the terms of a sum: a sign, and factors with whether each divides."""
    terms: list[tuple[float, list[tuple[bool, _Token]]]] = []
    sign, factors, operator = 1.0, list[tuple[bool, _Token]](), ""
    waits = True  # for a value
    for token in tokens:
        if token.kind == "sum" and (not waits or not factors):
            if not waits:
                terms.append((sign, factors))
                sign, factors = 1.0, []
            sign, operator, waits = (-sign if token.text == "-" else sign), "", True
        elif token.kind == "product" and not waits:
            operator, waits = token.text, True
        elif token.kind in ("name", "number") and waits:
            factors.append((operator == "/", token))
            waits = False
        else:
            break
    else:
        if not waits:
            return [*terms, (sign, factors)]
    raise WrongValue(f"{text!r} is no sum of coefficients and numbers. {GRAMMAR}")


def _begins(text: str, place: int, name: str) -> bool:
    """Whether a name stands at a place of a text, as a whole word."""
    if not text.startswith(name, place):
        return False
    following = text[place + len(name) : place + len(name) + 1]
    return not (following.isalnum() or following == "_") or not (name[-1].isalnum() or name[-1] == "_")
