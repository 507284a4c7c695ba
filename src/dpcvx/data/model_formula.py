"""Model formulas: "log(wage) ~ age + C(region, ref='north') + age:sex" as variables of a declared table.

The operators are those of the library formulaic, which parses the text. The variables that follow are
functions of one record, of declared bounds and of declared levels alone.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.expressions import Expression, Interval, parse_quoted, products
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.variables import PRIVATE, Variable
from dpcvx.errors import Incompatible, NotInstalled, WrongType, WrongValue
from dpcvx.words import show

__all__ = ["ModelFormula", "TargetTransform", "read_formula"]

MOST_VARIABLES = 2000  # of one interaction
MOST_PRODUCTS = 20_000  # of terms, which the operators of one formula multiply out to
MOST_POWER = 12  # of a sum of terms


@dataclass(frozen=True)
class Category:
    """A factor of a term: a column of levels, with the level that others are compared with."""

    name: str
    baseline: Any = None  # None for the declared one


Factor = Expression | Category


@dataclass(frozen=True)
class TargetTransform:
    """The left side of a formula: an expression of the target's number, clipped to its bounds first."""

    expression: Expression
    low: float
    high: float

    def __call__(self, numbers: Vector) -> Vector:
        """Return the transformed numbers, NaN where there is none."""
        clipped = np.where(np.isfinite(numbers), np.clip(numbers, self.low, self.high), np.nan)
        return self.expression.values({self.expression.names[0]: clipped})


@dataclass(frozen=True)
class ModelFormula:
    """A parsed formula.

    `text`: as written: a left side with the target, ``~``, and terms.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise WrongType(f"formula must be text such as 'wage ~ age + sex', got {show(self.text)}.")
        _ = self._sides  # a wrong formula is refused at once

    @cached_property
    def _sides(self) -> tuple[Factor | None, list[tuple[Any, ...]], bool]:
        """The target, the terms, each with its factors as formulaic gives them, and whether 1 is a term."""
        parsed = _parse(self.text)
        left, right = list(getattr(parsed, "lhs", [])), list(getattr(parsed, "rhs", parsed))
        if not all(hasattr(term, "factors") for term in (*left, *right)):
            raise WrongValue(f"The formula {self.text!r} has several parts: leave out | and what follows.")
        if len(left) > 1 or (left and len(left[0].factors) > 1):
            raise WrongValue(f"The left side of {self.text!r} must be one target, such as wage or log(wage).")
        target = _factor(left[0].factors[0]) if left else None
        intercept = any(_is_one(term) for term in right)
        terms = [tuple(term.factors) for term in right if not _is_one(term)]
        return target, terms, intercept

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept: not with "+ 0" or "- 1"."""
        return self._sides[2]

    @property
    def target(self) -> str | None:
        """Column that the left side reads."""
        side = self._sides[0]
        if side is None:
            return None
        if isinstance(side, Category):
            return side.name
        if len(side.names) != 1:
            raise WrongValue(f"The left side of {self.text!r} must be an expression of one column.")
        return side.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Variables that the terms read."""
        found: dict[str, None] = {}
        for term in self._sides[1]:
            for each in map(_factor, term):
                found |= dict.fromkeys((each.name,) if isinstance(each, Category) else each.names)
        return tuple(found)

    def attributes(self) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return target, features and pairwise products of a query's formula, which has names only."""
        target, terms, _ = self._sides
        factors = [[_factor(each) for each in term] for term in terms]
        sides = [each for each in (target, *(each for term in factors for each in term)) if each]
        names = {each: each.name if isinstance(each, Category) else each.text.strip("`") for each in sides}
        plain = {self.target, *self.names}
        compared = [each for each in sides if isinstance(each, Category) and each.baseline is not None]
        functions = {*names.values()} != plain or compared
        if target is None or functions or any(len(term) > 2 for term in terms):
            raise WrongValue(
                "A query's formula lists attributes and products of two, such as 'worked ~ age + group + "
                f"age:group', got {self.text!r}: functions and baselines are for fits."
            )
        features = tuple(dict.fromkeys(names[term[0]] for term in factors if len(term) == 1))
        return (
            names[target],
            features,
            tuple((names[term[0]], names[term[1]]) for term in factors if len(term) == 2),
        )

    def target_transform(self, low: float, high: float) -> TargetTransform | None:
        """Return the map of the target's numbers; None where the left side is the column itself.

        `low`, `high`: declared bounds of the column.
        """
        side = self._sides[0]
        if side is None or isinstance(side, Category) or side.text.strip("`") == self.target:
            return None
        return TargetTransform(side, low, high)

    def target_bounds(self, bounds: Any) -> Any:
        """Return bounds of the left side, from those of its column."""
        side = self._sides[0]
        if side is None or isinstance(side, Category) or side.text.strip("`") == self.target:
            return bounds
        if bounds == PRIVATE:
            raise Incompatible(
                f"The bounds of {side} follow from declared bounds of {self.target}: declare them, or put "
                "the column itself on the left side."
            )
        return side.bounds({side.names[0]: bounds})

    def variables(self, known: Mapping[str, Variable]) -> tuple[Variable, ...]:
        """Return the variables of all terms.

        `known`: the table's declared variables, by name.
        """
        terms = [tuple(_known_factor(each, known, self.text) for each in term) for term in self._sides[1]]
        if not terms:
            raise WrongValue(f"The formula {self.text!r} has no feature.")
        present = {frozenset(map(str, term)) for term in terms}
        if self.intercept:
            present.add(frozenset())
        found = [each for term in terms for each in _variables(term, present, known)]
        return tuple({each.name: each for each in found}.values())


ALL_COLUMNS = "`.` operator"  # in the parser's words


@lru_cache(maxsize=100)
def read_formula(text: str) -> ModelFormula:
    """Return a parsed formula; a schema asks for its own often."""
    return ModelFormula(text)


MISPLACED = re.compile(r"Operator `(.+?)` has insuf\w+ arguments")  # of formulaic, misspelt there


def _parse(text: str) -> Any:
    try:
        from formulaic.errors import FormulaicError
        from formulaic.parser import DefaultFormulaParser
    except ModuleNotFoundError:
        raise NotInstalled('Formulas need formulaic: pip install "dpcvx[formula]".') from None
    parser = DefaultFormulaParser()
    try:
        tree = parser.get_ast(text)
        terms = parser.get_terms(text) if _products(tree) <= MOST_PRODUCTS else None
    except WrongValue:
        raise
    except (AttributeError, LookupError, TypeError, ValueError):  # formulaic, at brackets that do not match
        raise WrongValue(
            f"The formula {show(text)} cannot be read: look at its brackets and operators."
        ) from None
    except (FormulaicError, SyntaxError, RecursionError) as error:
        if ALL_COLUMNS in str(error):
            raise WrongValue(
                f"The formula {text!r} has '.' for all columns: name the columns. Without a formula, and "
                "with the target named instead, a fit has all declared columns."
            ) from None
        reason = " ".join(str(error).split("\n\n")[0].split())
        if (found := MISPLACED.search(reason)) is not None:
            reason = f"the operator {found[1]} needs a name on both sides"
        raise WrongValue(
            f"The formula {text!r} cannot be read: {reason.rstrip('.')}. Names with blanks or signs stand in "
            "backquotes, such as `hours a week`."
        ) from None
    if terms is None:
        raise WrongValue(
            f"The formula {show(text)} multiplies out to more than {MOST_PRODUCTS:,} products of "
            "columns: name the interactions that are wanted, such as a:b."
        )
    return terms


def _products(node: Any) -> int:
    """Most products of columns that are multiplied out below a node of a parsed formula."""
    if not hasattr(node, "operator"):
        return 1
    symbol = node.operator.symbol
    if symbol in ("**", "^"):
        power = str(node.args[1].token) if hasattr(node.args[1], "token") else ""
        if not power.isdecimal() or not 1 <= int(power[:9]) <= MOST_POWER:
            raise WrongValue(
                f"The power of a sum must be a number from 1 to {MOST_POWER}, such as (a + b)**2."
            )
        if not hasattr(node.args[0], "operator") and int(power) > 1:
            raise WrongValue(
                f"'{node.args[0]} {symbol} {power}' in a formula is '{node.args[0]}' itself, as in R: a "
                f"power there stands for interactions. For the power of a number write I(age ** {power})."
            )
        return int(math.prod([_products(node.args[0])] * int(power)))
    sizes = [_products(each) for each in node.args]
    if symbol in ("*", ":", "/", "in"):
        return math.prod(1 + size for size in sizes)
    return sum(sizes)


def _is_one(term: Any) -> bool:
    return [factor.expr for factor in term.factors] == ["1"]


def _factor(factor: Any) -> Factor:
    """Return a factor of formulaic's as an expression, or as a category where it is written C(...)."""
    text = factor.expr
    if factor.eval_method.value == "lookup":
        return Expression(f"`{text}`")
    if not text.startswith("C("):
        return Expression(text)
    node, name_of = parse_quoted(text)
    match node:
        case ast.Call(args=[name], keywords=[]):
            return Category(name_of(name))
        case ast.Call(args=[name], keywords=[ast.keyword(arg="ref", value=ast.Constant(value=level))]):
            return Category(name_of(name), level)
        case ast.Call(args=[name, ast.Call(args=[ast.Constant(value=level)], keywords=[])]):
            return Category(name_of(name), level)  # Treatment("north"), contr.treatment("north")
        case ast.Call(
            args=[name, ast.Call(args=[], keywords=[ast.keyword(value=ast.Constant(value=level))])]
        ):
            return Category(name_of(name), level)
    raise WrongValue(f"{text!r}: write C(column) or C(column, ref='level').")


def _known_factor(factor: Any, known: Mapping[str, Variable], text: str) -> Factor:
    """Return a factor whose variables are declared, as a category where these are levels."""
    found = _factor(factor)
    names = (found.name,) if isinstance(found, Category) else found.names
    if absent := [name for name in names if name not in known]:
        raise WrongValue(
            f"The formula {text!r} names {', '.join(map(repr, absent))}, which is not declared as a feature. "
            f"Declared are {', '.join(known)}."
        )
    if not names:
        raise WrongValue(f"{str(found)!r} in the formula {text!r} reads no column.")
    if isinstance(found, Category):
        if known[found.name].levels is None:
            raise WrongValue(f"C({found.name}) in the formula: declare {found.name!r} with its levels.")
        return found
    with_levels = [name for name in names if known[name].levels is not None]
    if not with_levels:
        return found
    if found.text.strip("`") != with_levels[0]:
        raise WrongValue(f"{found} in the formula computes with {with_levels[0]!r}, which has levels.")
    return Category(with_levels[0])


def _variables(
    term: tuple[Factor, ...], present: set[frozenset[str]], known: Mapping[str, Variable]
) -> list[Variable]:
    """Return the variables of one term.

    A category has no variable for its baseline if the formula has the term without it, as in R.
    """
    categories = [each for each in term if isinstance(each, Category)]
    expressions = [each for each in term if isinstance(each, Expression)]
    if len(categories) == 1 and not expressions:
        return [_of_levels(categories[0], known)]
    if len(expressions) == 1 and not categories and expressions[0].text.strip("`") in known:
        return [known[expressions[0].text.strip("`")]]
    levels = []
    for category in categories:
        declared = _levels(category, known)
        rest = frozenset(str(each) for each in term if each is not category)
        skipped = declared.baseline if rest in present else None
        places = [place for place in range(len(declared)) if place != skipped]
        levels.append([(category, place) for place in places])
    if math.prod(map(len, levels)) > MOST_VARIABLES:
        raise WrongValue(
            f"The interaction {':'.join(map(_label, term))} has {math.prod(map(len, levels)):,} variables, "
            f"more than {MOST_VARIABLES:,}: declare fewer levels."
        )
    chosen = list(itertools.product(*levels))
    full = all(len(each) == len(_levels(each[0][0], known)) for each in levels)
    if full and not expressions and frozenset() in present:  # all together are 1, as the intercept is
        chosen = chosen[1:]
    return [_product(term, expressions, each, known) for each in chosen]


def _levels(category: Category, known: Mapping[str, Variable]) -> DeclaredLevels:
    variable = known[category.name]
    declared = DeclaredLevels(variable.levels or ())
    place = variable.baseline or 0
    if category.baseline is not None:
        place = int(declared.codes(np.array([category.baseline], dtype=object))[0])
        if place < 0:
            raise WrongValue(
                f"C({category.name}, ref={category.baseline!r}): {category.baseline!r} is none of the "
                f"declared levels {', '.join(map(str, declared.values))}."
            )
    return DeclaredLevels(declared.values, place if len(declared) > 1 else None)


def _of_levels(category: Category, known: Mapping[str, Variable]) -> Variable:
    variable = known[category.name]
    if category.baseline is None:
        return variable
    return replace(variable, baseline=_levels(category, known).baseline)


def _label(factor: Factor) -> str:
    return factor.name if isinstance(factor, Category) else factor.text.strip("`")


@dataclass(frozen=True)
class _Product:
    """Reads the product of expressions and of indicators of levels from the cells of several columns."""

    expressions: tuple[Expression, ...]
    indicators: tuple[tuple[str, DeclaredLevels, int], ...]  # variable, its levels, the level's place
    sources: tuple[Variable, ...]

    def __call__(self, *cells: Any) -> Vector:
        """Return the product for each record, NaN where a factor is missing."""
        read = {each.name: each.read(part) for each, part in zip(self.sources, cells, strict=True)}
        numbers = {
            each.name: _clipped(read_numbers(read[each.name]), each)
            for each in self.sources
            if each.levels is None
        }
        found: Any = 1.0
        for expression in self.expressions:
            found = found * expression.values(numbers)
        for name, levels, place in self.indicators:
            codes = levels.codes(read[name])
            found = found * np.where(codes < 0, np.nan, codes == place)
        return np.asarray(found, dtype=float)


def _clipped(numbers: Vector, variable: Variable) -> Vector:
    missing = math.nan if variable.missing is None else variable.missing
    found: Vector = np.clip(np.where(np.isfinite(numbers), numbers, missing), *variable.bounds)
    return found


def _product(
    term: Sequence[Factor],
    expressions: Sequence[Expression],
    chosen: Sequence[tuple[Category, int]],
    known: Mapping[str, Variable],
) -> Variable:
    places = dict(chosen)
    names, bounds = [], (1.0, 1.0)
    indicators = []
    for factor in term:
        if isinstance(factor, Category):
            declared = _levels(factor, known)
            names.append(f"{factor.name}={declared[places[factor]]}")
            indicators.append((factor.name, declared, places[factor]))
            bounds = products(bounds, (0.0, 1.0))
        else:
            names.append(_label(factor))
            bounds = products(bounds, factor.bounds({name: _bounds(known[name]) for name in factor.names}))
    read = dict.fromkeys(
        [*(name for each in expressions for name in each.names), *(i[0] for i in indicators)]
    )
    sources = tuple(known[name] for name in read)
    if not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1]:
        raise WrongValue(f"{':'.join(names)} in the formula is a constant, or not finite, within its bounds.")
    columns = tuple(each.column for each in sources)
    read_all = _Product(tuple(expressions), tuple(indicators), sources)
    return Variable(":".join(names), columns[0], read_all, bounds, also=columns[1:])


def _bounds(variable: Variable) -> Interval:
    if variable.bounds == PRIVATE:
        raise Incompatible(
            f"The formula computes with {variable.name!r}, whose bounds are private: declare them."
        )
    low, high = variable.bounds
    return float(low), float(high)
