"""Expressions of a formula: functions of one record's numbers, with the bounds that follow for their values.

An expression is computed for each record alone from its clipped numbers, so that nobody's value depends on
another person's record. Functions that learn from a whole column, such as ``scale`` or ``poly``, are refused.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue

__all__ = ["Expression", "Interval", "parse_quoted", "products"]

Interval = tuple[float, float]

# Functions that never fall as their argument grows, so that bounds map to bounds.
RISING: dict[str, Callable[[Any], Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "floor": np.floor,
    "sign": np.sign,
}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# functions that learn from all cells of a column
LEARNING = ("bs", "cc", "cr", "cs", "te", "poly", "scale", "center", "standardize", "hashed", "lag")
QUOTED = re.compile(r"`([^`]*)`")


@dataclass(frozen=True)
class Expression:
    """A formula's expression of numbers, such as ``log(wage)`` or ``I(age ** 2)``.

    `text`: Python notation; names in backquotes may have any characters.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> tuple[str, ...]:
        """Variables that it reads, in the order of their first appearance."""
        found: dict[str, None] = {}
        with np.errstate(all="ignore"):
            self._walk(lambda name: found.setdefault(name) or 0.0, _numbers)
        return tuple(found)

    def bounds(self, known: Mapping[str, Interval]) -> Interval:
        """Return bounds of its value, from those of its variables; refuse if it is not finite within them."""
        low, high = self._walk(lambda name: known[name], _intervals)
        return float(low), float(high)

    def values(self, known: Mapping[str, Vector]) -> Vector:
        """Return its value for every record, NaN where a number is missing.

        `known`: for each variable its numbers, within their bounds.
        """
        with np.errstate(all="ignore"):
            return np.asarray(self._walk(lambda name: known[name], _numbers), dtype=float)

    def _walk(self, read: Callable[[str], Any], kind: _Arithmetic) -> Any:
        """Compute the expression; `read`: value of a variable by its name; `kind`: of the values."""
        tree, name_of = parse_quoted(self.text)

        def compute(node: ast.expr) -> Any:
            match node:
                case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                    return kind.constant(float(value))
                case ast.Name() | ast.Attribute():
                    return read(name_of(node))
                case ast.UnaryOp(op=ast.USub(), operand=operand):
                    return kind.product(kind.constant(-1.0), compute(operand))
                case ast.BinOp(left=left, op=ast.Add(), right=right):
                    return kind.total(compute(left), compute(right))
                case ast.BinOp(left=left, op=ast.Sub(), right=right):
                    return kind.total(compute(left), kind.product(kind.constant(-1.0), compute(right)))
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    return kind.product(compute(left), compute(right))
                case ast.BinOp(left=left, op=ast.Div(), right=right):
                    return kind.product(compute(left), kind.inverse(compute(right), self.text))
                case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power >= 1:
                    return kind.power(compute(left), power, self.text)
                case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in COMPARISONS:
                    return kind.compared(compute(left), COMPARISONS[type(sign)], compute(right))
                case ast.Call(func=function, args=[argument], keywords=[]):
                    name = ast.unparse(function).removeprefix("np.").removeprefix("numpy.")
                    if name == "I":
                        return compute(argument)
                    if name == "abs":
                        return kind.size(compute(argument))
                    if name in RISING:
                        return kind.rising(compute(argument), name, self.text)
            raise WrongValue(self._refusal(node))

        try:
            return compute(tree)
        except (OverflowError, RecursionError):  # by the text alone: computing with cells raises neither
            raise WrongValue(
                f"{self.text!r} in the formula has a number that is too large, or too many parts."
            ) from None

    def _refusal(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[0]
            if name in LEARNING:
                return (
                    f"{self.text!r} in the formula learns from all cells of a column, which would be a "
                    "release that nothing pays for. Use a function of one cell, such as log(x) or I(x ** 2), "
                    "a map of the schema such as ramps, or PrivateAdditiveRegressor."
                )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            return f"{ast.unparse(node)!r} in the formula: write ** for a power, such as I(age ** 2)."
        known = ", ".join(RISING)
        return (
            f"{ast.unparse(node)!r} in the formula is not supported. Numbers, names, + - * / < <= > >=, "
            f"whole powers, I(...), abs and {known} are."
        )


def parse_quoted(text: str) -> tuple[ast.expr, Callable[[ast.expr], str]]:
    """Return the tree of an expression, and a function that gives the text of a part of it.

    Names in backquotes may have any characters; the function gives them without backquotes.
    """
    names: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        return names.setdefault(match[1], f"quoted_{len(names)}")

    try:
        tree = ast.parse(QUOTED.sub(place, text), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise WrongValue(f"{text!r} cannot be read as an expression.") from None
    original = {placed: name for name, placed in names.items()}
    return tree, lambda node: original.get(written := ast.unparse(node), written)


@dataclass(frozen=True)
class _Arithmetic:
    """Operations on the values of an expression: numbers of records, or intervals."""

    constant: Callable[[float], Any]
    total: Callable[[Any, Any], Any]
    product: Callable[[Any, Any], Any]
    inverse: Callable[[Any, str], Any]
    power: Callable[[Any, int, str], Any]
    compared: Callable[[Any, Callable[[Any, Any], Any], Any], Any]
    size: Callable[[Any], Any]
    rising: Callable[[Any, str, str], Any]


def products(first: Interval, second: Interval) -> Interval:
    """Return bounds of the product of numbers within two intervals."""
    found = [a * b for a in first for b in second]
    return min(found), max(found)


def _finite(low: Any, high: Any, name: str, text: str, at: Interval) -> Interval:
    if not (math.isfinite(low) and math.isfinite(high)):
        advice = "declare a lowest value above 0, or write log1p" if name.startswith("log") else "narrow them"
        raise WrongValue(
            f"{text!r} in the formula is not finite for all values within the declared bounds: {name} of "
            f"numbers from {at[0]:g} to {at[1]:g}; {advice}."
        )
    return float(low), float(high)


def _rising(at: Interval, name: str, text: str) -> Interval:
    with np.errstate(all="ignore"):
        return _finite(RISING[name](at[0]), RISING[name](at[1]), name, text, at)


def _inverse(at: Interval, text: str) -> Interval:
    if at[0] <= 0 <= at[1]:
        raise WrongValue(
            f"{text!r} in the formula divides by a number that may be 0 within the declared bounds, "
            f"{at[0]:g} to {at[1]:g}: declare bounds without 0."
        )
    return 1 / at[1], 1 / at[0]


def _power(at: Interval, power: int, text: str) -> Interval:
    try:
        ends = [float(end) ** power for end in at]
    except OverflowError:
        ends = [math.inf, math.inf]
    low = 0.0 if power % 2 == 0 and at[0] <= 0 <= at[1] else min(ends)
    return _finite(low, max(ends), f"power {power}", text, at)


def _compared(left: Any, sign: Callable[[Any, Any], Any], right: Any) -> Any:
    known = ~(np.isnan(left) | np.isnan(right))
    return np.where(known, sign(left, right), np.nan)


_numbers = _Arithmetic(
    constant=float,
    total=operator.add,
    product=operator.mul,
    inverse=lambda values, _: 1.0 / np.asarray(values),
    power=lambda values, power, _: values**power,
    compared=_compared,
    size=abs,
    rising=lambda values, name, _: RISING[name](values),
)
_intervals = _Arithmetic(
    constant=lambda value: (value, value),
    total=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    product=products,
    inverse=_inverse,
    power=_power,
    compared=lambda *_: (0.0, 1.0),
    size=lambda at: (0.0 if at[0] <= 0 <= at[1] else min(map(abs, at)), max(map(abs, at))),
    rising=_rising,
)
