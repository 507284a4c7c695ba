"""Private regressors whose features belong together: groups, and supports that a set function prices."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpcvx.data.columns import Columns
from dpcvx.domains import Domain, GroupBall, SubmodularBall
from dpcvx.domains.set_functions import Cardinality, DirectSum, GroupCover, SetFunction, check_set_function
from dpcvx.errors import WrongType, WrongValue
from dpcvx.estimators.documentation import document
from dpcvx.estimators.planning import parameters
from dpcvx.estimators.regressors import SquaredRegressor
from dpcvx.losses import Loss
from dpcvx.planning.planner import default_radius
from dpcvx.plans import Plan
from dpcvx.problem import Problem
from dpcvx.solvers import NoisyGradientDescent, NoisyGroupSelection
from dpcvx.words import quantity

__all__ = ["PrivateGroupLasso", "PrivateStructuredLasso"]


@document
@parameters
class PrivateGroupLasso(SquaredRegressor):
    """Least squares over a group ball: few groups of features matter, each as a whole.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over sum_g ||theta_g||_2 <= radius,
    all in scaled units

    The features that the levels of one column become stay together, and the intercept is a group of its own.
    """

    groups: Any = None

    def _domain_of(self, loss: Loss, outputs: int, columns: Columns) -> Domain:
        owners = _column_groups(self.groups, columns.labels())
        labels = [owner for owner, span in zip(owners, columns.spans(), strict=True) for _ in span]
        intercept = [-1] if self.fit_intercept else []
        return GroupBall.of_labels(labels + intercept, self._radius(loss))

    def _automatic(self, problem: Problem) -> tuple[type[Any], ...]:
        # Groups are selected only if the user names them: in usual tables many columns matter a little. The
        # target must be centred, or else the intercept dominates the gradient at theta = 0.
        if self.groups is None or problem.loss.target_deviation is None:
            return super()._automatic(problem)
        return NoisyGradientDescent, NoisyGroupSelection

    def _public_facts(self, chosen: Plan, columns: Columns, intercept: float) -> dict[str, Any]:
        names = [*columns.names, "intercept"]
        groups = [[names[j] for j in group] for group in chosen.problem.C.groups]
        return {**super()._public_facts(chosen, columns, intercept), "groups": groups}


@document
@parameters
class PrivateStructuredLasso(SquaredRegressor):
    """Least squares over the ball of a submodular norm: supports that a set function prices low come first.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over Omega(theta) <= radius, all in
    scaled units; Omega is the norm of F, that is ``set_function`` for the features, plus the price of the
    cheapest of them for the intercept

    ``radius=None`` is 3 times the price of the cheapest feature, so that no coefficient can exceed 3.
    """

    set_function: Any = None

    def _domain_of(self, loss: Loss, outputs: int, columns: Columns) -> Domain:
        F = _column_prices(columns) if self.set_function is None else self.set_function
        _check_prices(F, columns)
        least = min(F([j]) for j in range(columns.width))
        radius = default_radius(loss) * least if self.radius is None else float(self.radius)
        if self.fit_intercept:
            F = DirectSum([F, GroupCover([[0]], [least])], [columns.width, 1])
        return SubmodularBall(F, radius)


def _column_prices(columns: Columns) -> SetFunction:
    """Return the number of columns that a set of features touches."""
    # The same function where a column is a feature, with a prox in closed form.
    return GroupCover(columns.spans()) if any(columns.levels) else Cardinality()


def _check_prices(F: Any, columns: Columns) -> None:
    """Refuse what is no set function of the features."""
    if isinstance(F, type) or not isinstance(F, SetFunction):
        raise WrongType(
            f"set_function must be a set function such as dpcvx.GroupCover([[0, 1], [2]]), got {F!r}."
        )
    if F.size not in (None, columns.width):
        raise WrongValue(
            f"set_function is of {F.size} coordinates; there are {columns.width} features, where each level "
            "of a category is one. The intercept is not among them: it has a share of its own."
        )
    check_set_function(F, columns.width, trials=100)


def _column_groups(groups: Any, columns: Sequence[str]) -> list[int]:
    """Return the number of each column's group; a column that no group names is a group of its own."""
    owners = list(range(len(columns)))
    if groups is None:
        return owners
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise WrongType(
            "groups must be a mapping from name to columns, a list of lists of columns, or one label for "
            f"each column; got {groups!r}."
        )
    entries = list(groups.values()) if isinstance(groups, Mapping) else list(groups)
    lists = [isinstance(entry, Iterable) and not isinstance(entry, str) for entry in entries]
    if not any(lists) and not isinstance(groups, Mapping):
        return _numbered(entries, columns)
    if not all(lists):
        raise WrongValue(f"Each of the groups must be a list of columns, got {groups!r}.")
    taken: set[int] = set()
    for number, entry in enumerate(entries, start=len(columns)):
        members = [_position(key, columns) for key in entry]
        if not members:
            raise WrongValue(f"Each of the groups must name at least one column, got {groups!r}.")
        for j in members:
            if j in taken:
                raise WrongValue(
                    f"groups name column {columns[j]!r} twice. Groups that overlap are for "
                    "PrivateStructuredLasso, with set_function=dpcvx.GroupCover(...)."
                )
            taken.add(j)
            owners[j] = number
    return owners


def _numbered(labels: list[Any], columns: Sequence[str]) -> list[int]:
    """Return the number of each column's label, in order of appearance."""
    if len(labels) != len(columns):
        raise WrongValue(
            f"groups has {quantity(len(labels), 'label')} for {quantity(len(columns), 'column')}: give one "
            "for each column of X, or lists of columns."
        )
    known: dict[Any, int] = {}
    return [known.setdefault(label, len(known)) for label in labels]


def _position(key: Any, columns: Sequence[str]) -> int:
    """Return the position of a column that is named, or numbered from 0."""
    if str(key) in columns:
        return columns.index(str(key))
    if isinstance(key, numbers.Integral) and 0 <= int(key) < len(columns):
        return int(key)
    raise WrongValue(
        f"groups name a column {key!r} that X does not have. Columns of X: {', '.join(columns)}."
    )
