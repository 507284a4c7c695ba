"""The one fitting path of the linear estimators: declarations, plan, door, execute, back to the user's units.

Estimators hold no mathematics. Everything up to the door uses parameters, schema, shapes and types alone, so
no record can cause an error, or change what is published other than through the noised answers.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from dpcvx.arrays import Vector
from dpcvx.data import Quantiser
from dpcvx.data.cells import declared_kinds, native_array
from dpcvx.data.columns import Columns, Table
from dpcvx.data.dataset import (
    Dataset,
    closing,
    declared,
    open_dataset,
)
from dpcvx.errors import (
    PrivacyLeakWarning,
    UselessModelWarning,
    counted,
    shown,
)
from dpcvx.estimators.intervals import Intervals
from dpcvx.estimators.planning import Planning, Target
from dpcvx.estimators.released_bounds import (
    RELEASED,
    ask_for_bounds,
    is_private,
    to_come,
)
from dpcvx.noise.samplers import Generator, SecureGenerator, SeededGenerator
from dpcvx.planning.outlook import warn_if_useless
from dpcvx.plans.execution import (
    Plan,
    Release,
    charge,
    execute,
)
from dpcvx.plans.running_time import warn_if_long
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.solvers import Standardised

__all__ = ["LinearModel"]

LEAK_WARNING = (
    "score is the plain metric of the rows it is given. On private rows its value is a release that the "
    "privacy statement does not cover; use rows that may be published."
)

REFUSED = {
    "sample_weight": "a weight changes how far one person can move the model, and weights are private too",
    "class_weight": "a class's weight changes how far one person can move the model",
    "groups": "one row is one person here; rows that share a person are not protected together",
}


class LinearModel(Planning, Intervals, BaseEstimator):  # type: ignore[misc]
    """A linear model fitted through a plan; see the estimators for parameters and attributes."""

    classes_: NDArray[Any]
    coef_: Vector
    intercept_: Any
    n_iter_: int
    coef_names_: NDArray[Any]
    plan_: Plan
    release_: Release
    privacy_statement_: PrivacyStatement

    def _declare_target(self, y: NDArray[Any]) -> Target:
        """Public part of the target, from parameters (and from y where its label set is declared public)."""
        raise NotImplementedError

    def _encode_target(self, y: NDArray[Any], target: Target) -> Vector:
        """Target of every row in scaled units, shape (n, K); nothing here may raise because of a cell."""
        raise NotImplementedError

    def _encoded(self, y: Any, target: Target) -> Vector:
        """Raw targets of some rows in scaled units."""
        return self._encode_target(self._target_cells(y), target)

    def fit(self, X: Any, y: Any = None, **metadata: Any) -> Self:
        """Fit the model privately.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, pandas / polars / Arrow table, shape (n, d); or a Dataset
            One row per person. Cells that are missing, infinite or no numbers count as the middle of their
            bounds (sparse records, and with ``data_norm``: as 0); cells beyond the bounds are clipped.
        y : array-like, shape (n,); (n, K) for several targets
            Targets; a Dataset has its own. A declared type that cannot hold them, such as text for a
            regressor, is refused; a cell that is no target never is.
        **metadata
            None is accepted: weights and groups are refused with the reason.

        Returns
        -------
        self
        """
        self._refuse(metadata)
        dataset = open_dataset(X, y, self.backend)
        with declared(self, dataset):
            self._fit(dataset)
        if self.release_.caution is not None:  # last: nothing is lost to those who make warnings errors
            warnings.warn(self.release_.caution, UselessModelWarning, stacklevel=2)
        return self

    def _fit_quietly(self, X: Any, y: Any) -> None:
        """Fit without a warning, which would tell of a run that is not released."""
        dataset = open_dataset(X, y, self.backend)
        with declared(self, dataset):
            self._fit(dataset, aloud=False)

    def _fit(self, dataset: Dataset, *, aloud: bool = True) -> None:
        columns, target, chosen, intercept = self._declare(dataset, dataset.n)
        rng = self._generator()
        validate_data(self, dataset.table.header(), skip_check_array=True)
        if aloud:
            self._warn(chosen, dataset, partial(self._plan_again, columns, target, _can_standardize(dataset)))
        purpose = f"fit of {type(self).__name__} to {dataset.n} records"
        receipt = charge(chosen, self.ledger, self.account, private=rng.private, purpose=purpose)

        if chosen.before:
            columns, target = ask_for_bounds(self, dataset, chosen, columns, rng)
        # Standardisation makes the intercept's feature itself, after the rows have been centred.
        stored = 0.0 if isinstance(chosen.solver, Standardised) else intercept
        door = Quantiser(chosen.problem.bounds, columns.center, columns.scale, stored)
        # Of a model without parameters: workers elsewhere get the class, and no ledger.
        encode = partial(type(self)()._encoded, target=target)
        records = dataset.source(columns, door, encode, chosen.layout)
        with closing(records) as source, _progress(self.verbose, type(self).__name__) as progress:
            release = execute(chosen, source, rng=rng, progress=progress)
        release = dataclasses.replace(release, receipt=receipt)
        self._publish(release, columns, target, intercept)

    def _warn(self, chosen: Plan, dataset: Dataset, again: Any) -> None:
        """Warn, from public facts, of a plan that promises nothing or takes very long."""
        rule = type(self), self.delta, self.n_iter, self.standardize
        unbounded = dataset.table.sparse and self.data_norm is None
        warn_if_useless(chosen, again, rule, sparse=unbounded, stacklevel=4)
        # How many cells a compressed table stores is not public; none are assumed.
        steps = getattr(self.solver, "n_iter", None) if self.n_iter is None else int(self.n_iter)
        warn_if_long(chosen, steps, density=float(not dataset.table.sparse), stacklevel=4)

    def _declare(self, dataset: Dataset, n: int) -> tuple[Columns, Target, Plan, float]:
        """Columns, target, plan and intercept's feature of a fit to n such records, from public facts."""
        self._check_parameters()
        table, stated = dataset.table, to_come(self, dataset)
        values = self._open_target(dataset.target, table.n)
        columns = Columns.declare(table, stated.bounds, self.categories, self.data_norm)
        if isinstance(getattr(self, "classes", None), str):  # "from_y": their set is public
            values = self._target_cells(dataset.labels())
        target = stated._declare_target(values)
        return columns, target, *self._plan_fit(n, columns, target, dense=_can_standardize(dataset))

    def _plan_again(self, columns: Columns, target: Target, dense: bool, n: int, epsilon: float) -> Plan:
        """Plan of the same fit for another number of records and epsilon."""
        other = type(self)(**{**self.get_params(deep=False), "epsilon": epsilon})
        return other._plan_fit(n, columns, target, dense=dense)[0]

    def save(self, path: str | Path) -> None:
        """Write the fitted model and its privacy statement as JSON; `dpcvx.load` reads it back.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        from dpcvx.estimators.model_file import save

        check_is_fitted(self)
        save(self, path)

    def _refuse(self, metadata: dict[str, Any]) -> None:
        for name, value in metadata.items():
            if name not in REFUSED:
                raise TypeError(f"{type(self).__name__}.fit() got an unexpected keyword argument {name!r}.")
            if value is not None:
                raise TypeError(f"{type(self).__name__} does not take {name}: {REFUSED[name]}.")

    def _check_parameters(self) -> None:
        name = type(self).__name__
        if self.epsilon is None:
            raise ValueError(f"{name} needs epsilon, the privacy loss you allow: for instance epsilon=1.0.")
        for parameter in ("epsilon", "delta", "data_norm", "radius"):
            self._check_number(parameter, getattr(self, parameter))
        if self.uncertainty != 0:
            self._check_number("uncertainty", self.uncertainty, "0, or a share of the budget below 1")
        if self.l2 != 0:
            self._check_number("l2", self.l2, "0 or a positive finite number")
        if self.delta is not None and self.delta >= 1:
            raise ValueError(f"delta must be below 1, got {shown(self.delta)}; less than 1/n is meaningful.")
        if self.bounds is None:
            raise ValueError(
                f"{name} needs bounds of the features, from public knowledge and not from these records: "
                "a pair (low, high) in your units, a pair of arrays with one entry per column, or a mapping "
                'from column to pair; "private" spends a share of the budget on noisy quantiles instead.'
            )
        if self.n_iter is not None and not (_is_integer(self.n_iter) and self.n_iter >= 1):
            raise ValueError(f"n_iter must be a positive integer or None, got {shown(self.n_iter)}.")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise TypeError(f"fit_intercept must be True or False, got {shown(self.fit_intercept)}.")

    def _check_number(self, parameter: str, value: Any, wanted: str = "a positive finite number") -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < math.inf:
            raise ValueError(f"{parameter} must be {wanted}, got {shown(value)}.")

    def _open_target(self, y: Any, n: int) -> NDArray[Any]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        values = self._target_cells(y)
        if values.ndim == 1 and len(getattr(y, "shape", ())) == 2:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Use y.ravel().",
                DataConversionWarning,
                stacklevel=5,
            )
        if values.dtype.kind in "cmMV":
            raise TypeError(f"y has dtype {values.dtype}; numbers or labels are needed.")
        self._check_target_kinds(declared_kinds(y))
        if values.shape[0] != n:
            raise ValueError(f"X has {counted(n, 'row')} but y has {values.shape[0]}; they must agree.")
        return values

    def _check_target_kinds(self, kinds: frozenset[str]) -> None:
        """Refuse targets that by their declared type cannot be what is fitted."""
        raise NotImplementedError

    def _target_cells(self, y: Any) -> NDArray[Any]:
        """Raw targets, one for each row."""
        values = native_array(y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"y should be a 1d array, got an array of shape {values.shape} instead.")
        return values

    def _generator(self) -> Generator:
        state = self.random_state
        if state is None:
            return SecureGenerator()
        if isinstance(state, np.random.RandomState):
            state = state.randint(2**31)
        elif isinstance(state, np.random.Generator):
            state = state.integers(2**31)
        if not _is_integer(state) or state < 0:
            raise ValueError(
                f"random_state must be None or a non-negative integer, got {shown(self.random_state)}."
            )
        return SeededGenerator(int(state))

    def _publish(self, release: Release, columns: Columns, target: Target, intercept: float) -> None:
        """Set the fitted attributes: the released parameter in the user's units."""
        theta = release.theta.reshape(-1, *target.shape)

        def in_units(theta: Vector) -> tuple[Vector, Any]:
            scale = columns.scale.reshape(-1, *[1] * (theta.ndim - 1))
            weights = theta[: columns.width] * (target.scale / scale)
            offset = target.center - columns.center @ weights
            return weights, offset + target.scale * intercept * theta[-1] if intercept else offset

        weights, offset = in_units(theta)
        self.coef_ = weights.T.copy()
        self.intercept_ = float(offset) if theta.ndim == 1 else np.asarray(offset)
        self._trim = None
        if release.trim is not None:
            self._trim = release.trim.in_units(columns.center, columns.scale)
        self._uncertainty = None
        if release.uncertainty is not None:
            self._uncertainty = release.uncertainty.mapped(
                lambda theta: np.append(*in_units(theta)), float(target.scale) ** 2
            )
        self.n_iter_ = release.n_iter
        self.coef_names_ = np.array(columns.names, dtype=object)
        self.plan_, self.release_ = release.plan, release
        self._columns, self._leak_warned = columns, False
        self.privacy_statement_ = PrivacyStatement.of(
            release.plan,
            model=type(self).__name__,
            private=release.private,
            bounds=self._bounds_facts(columns, target),
            public=self._public_facts(release.plan, columns, target, intercept),
            receipt=release.receipt,
        )

    def _bounds_facts(self, columns: Columns, target: Target) -> dict[str, Any]:
        bounds: dict[str, Any] = {
            "bounds": {"low": columns.low.tolist(), "high": columns.high.tolist()},
            "enforced": "cells are clipped to their bounds; a missing, infinite or non-numeric one counts as "
            + ("0" if not columns.center.any() else "the middle of its bounds"),
        }
        if is_private(self.bounds):
            bounds["bounds_are"] = RELEASED
        if self.data_norm is not None:
            bounds["data_norm"] = float(self.data_norm)
            bounds["enforced"] += "; rows are shrunk to l2 norm data_norm"
        return {**bounds, **target.facts}

    def _public_facts(
        self, chosen: Plan, columns: Columns, target: Target, intercept: float
    ) -> dict[str, Any]:
        problem = chosen.problem
        return {
            "n": chosen.n,
            "features": list(columns.names),
            "loss": _setting(problem.loss),
            "domain": _setting(problem.domain),
            "l2": problem.l2,
            "solver": _setting(chosen.solver),
            "standardized": isinstance(chosen.solver, Standardised),
            "n_iter": self.n_iter_,
            "intercept": intercept,
            "delta_rule": "given" if self.delta is not None else "min(1/n^2, 1e-5)",
            "x_inf": problem.bounds.x_inf,
            "x_2": problem.row_norm,
        }

    def _scores(self, X: Any) -> Vector:
        """Linear scores of new rows, shape (n,) or (n, K).

        New rows are public here and are not clipped, unless the fit cut the ends of columns off by itself; a
        standardised model brings them into the region that it was fitted on.
        """
        check_is_fitted(self)
        return self._linear(self._new_rows(X), self.coef_.T, self.intercept_)

    def _linear(self, table: Table, coef: Vector, intercept: Any) -> Vector:
        clip = is_private(self.bounds)
        return self._columns.scores(table, coef, intercept, clip=clip, trim=self._trim)

    def _new_rows(self, X: Any) -> Table:
        """Open new rows, which must have the columns of the fit."""
        table = Table(X)
        validate_data(self, table.header(), reset=False, skip_check_array=True)
        if self._columns.levels and table.untyped:
            declared = {j for j, levels in enumerate(self._columns.levels) if levels is not None}
            wrong = [table.label(j) for j in sorted(table.untyped - declared)]
            if wrong:
                raise TypeError(
                    f"Column(s) {', '.join(wrong)} held numbers in the fit and hold other types now."
                )
        return table

    def _warn_of_leak(self) -> None:
        """Warn once per fitted model, at the line that asked for a score."""
        if not getattr(self, "_leak_warned", False):
            self._leak_warned = True
            warnings.warn(LEAK_WARNING, PrivacyLeakWarning, stacklevel=3)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags


def _can_standardize(dataset: Dataset) -> bool:
    """Whether the records can be centred: by the kind of their storage, which is public."""
    return getattr(dataset, "standardizes", False) and not dataset.table.sparse


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _setting(thing: Any) -> str:
    """Public object in one line; of a long one the middle is left out."""
    text = " ".join(repr(thing).split())
    return text if len(text) <= 200 else f"{text[:150]} ... {text[-45:]}"


@contextmanager
def _progress(verbose: int, name: str) -> Iterator[Callable[[int, int], None] | None]:
    """Bar of the answers so far, a public count, on the error stream."""
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
