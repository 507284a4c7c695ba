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
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from dpcvx.accounting import Accountant, Budget
from dpcvx.arrays import Vector
from dpcvx.backends import Dataset, closing, declared, open_dataset
from dpcvx.cells import declared_kinds, native_array
from dpcvx.domains import Domain, L1Ball, L2Ball
from dpcvx.errors import Incompatible, PrivacyLeakWarning
from dpcvx.estimators.columns import Columns, Table
from dpcvx.estimators.released_bounds import (
    RELEASED,
    ask_for_bounds,
    is_private,
    plan_after_quantiles,
    to_come,
)
from dpcvx.estimators.uncertainty import Intervals
from dpcvx.execution import Plan, Release, Solver, charge, execute
from dpcvx.grid import FEATURE_BITS, Door
from dpcvx.losses import Loss
from dpcvx.noise import Generator, SecureGenerator, SeededGenerator
from dpcvx.planner import automatic, default_radius, made, plan, residual_clip, standardisation_pays
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisyStronglyConvexMirrorDescent,
    ObjectivePerturbation,
    Standardised,
    SufficientStatistics,
)
from dpcvx.solvers.one_step import with_uncertainty
from dpcvx.statement import PrivacyStatement
from dpcvx.usefulness import warn_if_useless

__all__ = ["LinearModel", "Target", "parameters"]

DOMAINS: dict[str, type[Any]] = {"l1": L1Ball, "l2": L2Ball}
SOLVERS: dict[str, type[Any]] = {
    "gradient_descent": NoisyGradientDescent,
    "mirror_descent": NoisyMirrorDescent,
    "frank_wolfe": NoisyFrankWolfe,
    "corrective_frank_wolfe": NoisyCorrectiveFrankWolfe,
    "general_frank_wolfe": NoisyGeneralFrankWolfe,
    "accelerated_mirror_descent": NoisyAcceleratedMirrorDescent,
    "strongly_convex_mirror_descent": NoisyStronglyConvexMirrorDescent,
    "objective_perturbation": ObjectivePerturbation,
    "sufficient_statistics": SufficientStatistics,
}

INTERCEPT = 1.0
LEAST_CELL = 2.0**-FEATURE_BITS  # of the grid that features are stored on
# Beside rows of norm 1 a constant feature of value 1 adds 41 % to the norm, and so to the noise; one of value
# 0.5 adds 12 %. In an l2 ball its coefficient has room to be twice as large; the intercept is their product.
INTERCEPT_BESIDE_UNIT_ROWS = 0.5

LARGEST_DELTA = 1e-5

LEAK_WARNING = (
    "score is the plain metric of the rows it is given. On private rows its value is a release that the "
    "privacy statement does not cover; use rows that may be published."
)

REFUSED = {
    "sample_weight": "a weight changes how far one person can move the model, and weights are private too",
    "class_weight": "a class's weight changes how far one person can move the model",
    "groups": "one row is one person here; rows that share a person are not protected together",
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Public part of the target: the loss of scaled scores, and the map back to the user's units.

    Parameters
    ----------
    loss : Loss
        In scaled units.
    shape : tuple of int
        Shape of a row's scores: () for one, (K,) for several.
    center, scale : float or Vector
        A score z stands for center + scale * z in the user's units.
    facts : dict
        What the statement says of it.
    classes : ndarray, optional
        Labels of a classifier, in the order of their codes.
    """

    loss: Loss
    shape: tuple[int, ...] = ()
    center: float | Vector = 0.0
    scale: float | Vector = 1.0
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    classes: Any = None

    @property
    def outputs(self) -> int:
        """Number of scores of a row."""
        return math.prod(self.shape)


Model = TypeVar("Model")


@dataclass_transform(kw_only_default=True, eq_default=False)
def parameters(cls: type[Model]) -> type[Model]:
    """Make the annotated defaults of a class, and those it inherits, its keyword-only parameters.

    scikit-learn reads an estimator's parameters from the signature of its constructor.
    """
    return dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)


@parameters
class Settings:
    """Parameters that every estimator has."""

    epsilon: float | None = None
    delta: float | None = None
    bounds: Any = None
    data_norm: float | None = None
    categories: dict[Any, Any] | None = None
    fit_intercept: bool = True
    radius: float | None = None
    l2: float | None = 0
    standardize: Any = "auto"
    uncertainty: float = 0
    solver: Any = "auto"
    n_iter: int | None = None
    ledger: Any = None
    account: Any = None
    random_state: Any = None
    backend: str = "auto"
    verbose: int = 0


class LinearModel(Settings, Intervals, BaseEstimator):  # type: ignore[misc]
    """A linear model fitted through a plan; see the estimators for parameters and attributes."""

    _geometry: ClassVar[str] = "l2"  # the estimator's own set, where the user may not choose one

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
            return self._fit(dataset)

    def _fit(self, dataset: Dataset) -> Self:
        columns, target, chosen, intercept = self._declare(dataset, dataset.n)
        rng = self._generator()
        validate_data(self, dataset.table.header(), skip_check_array=True)
        again = partial(self._plan_again, columns, target, _can_standardize(dataset))
        rule = type(self), self.delta, self.n_iter, self.standardize
        warn_if_useless(chosen, again, rule, stacklevel=3)
        purpose = f"fit of {type(self).__name__} to {dataset.n} records"
        receipt = charge(chosen, self.ledger, self.account, private=rng.private, purpose=purpose)

        if chosen.before:
            columns, target = ask_for_bounds(self, dataset, chosen, columns, rng)
        # Standardisation makes the intercept's feature itself, after the rows have been centred.
        stored = 0.0 if isinstance(chosen.solver, Standardised) else intercept
        door = Door(chosen.problem.bounds, columns.center, columns.scale, stored)
        # Of a model without parameters: workers elsewhere get the class, and no ledger.
        encode = partial(type(self)()._encoded, target=target)
        records = dataset.source(columns, door, encode, chosen.layout)
        with closing(records) as source, _progress(self.verbose, type(self).__name__) as progress:
            release = execute(chosen, source, rng=rng, progress=progress)
        release = dataclasses.replace(release, receipt=receipt)
        self._publish(release, columns, target, intercept)
        return self

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

    def _plan_fit(
        self, n: int, columns: Columns, target: Target, *, dense: bool = True
    ) -> tuple[Plan, float]:
        """Plan of a fit to n records, and the value of the intercept's feature, from public facts alone."""
        domain = self._domain_of(target, columns)
        intercept = self._intercept(domain)
        problem = Problem(
            target.loss,
            domain,
            bounds=self._record_bounds(columns, intercept),
            d=columns.width + (intercept != 0),
            outputs=target.outputs,
            l2=self._ridge(domain),
        )
        delta = min(1 / n**2, LARGEST_DELTA) if self.delta is None else float(self.delta)
        budget = Budget(float(self.epsilon or 0), delta)
        plain = dataclasses.replace(problem, d=columns.width, bounds=self._record_bounds(columns, 0.0))
        standardize = self._standardizes(plain, n, budget, dense)
        make = partial(self._plan, problem, n, budget)
        if standardize:
            make, intercept = (
                partial(self._plan, plain, n, budget, standardize=True),
                float(self.fit_intercept),
            )
        return plan_after_quantiles(self, columns, target, (n, budget), make), intercept

    def _plan_again(self, columns: Columns, target: Target, dense: bool, n: int, epsilon: float) -> Plan:
        """Plan of the same fit for another number of records and epsilon."""
        other = type(self)(**{**self.get_params(deep=False), "epsilon": epsilon})
        return other._plan_fit(n, columns, target, dense=dense)[0]

    def _standardizes(self, problem: Problem, n: int, budget: Budget, dense: bool) -> bool:
        """Whether the fit standardises: as the user says, or where public facts say that it pays."""
        if self.standardize not in (True, False, "auto"):
            raise ValueError(f'standardize must be True, False or "auto", got {self.standardize!r}.')
        if self.standardize is True and not dense:
            raise Incompatible(
                "Only dense records can be standardised, these are compressed or sparse: give "
                'standardize=False, or "auto".'
            )
        if self.standardize != "auto":
            return bool(self.standardize)
        # Whoever gives a set or a solver has a scale in mind. Sufficient statistics are of squared loss,
        # which standardisation clips.
        free = self.radius is None and all(
            isinstance(each, str) for each in (self.solver, getattr(self, "domain", ""))
        )
        wanted = dense and free and self.solver != "sufficient_statistics"
        return wanted and standardisation_pays(problem, n, budget)

    def save(self, path: str | Path) -> None:
        """Write the fitted model and its privacy statement as JSON; `dpcvx.load` reads it back.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        from dpcvx.estimators.persistence import save

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
            raise ValueError(f"delta must be below 1, got {self.delta!r}; less than 1/n is meaningful.")
        if self.bounds is None:
            raise ValueError(
                f"{name} needs bounds of the features, from public knowledge and not from these records: "
                "a pair (low, high) in your units, a pair of arrays with one entry per column, or a mapping "
                'from column to pair; "private" spends a share of the budget on noisy quantiles instead.'
            )
        if self.n_iter is not None and not (_is_integer(self.n_iter) and self.n_iter >= 1):
            raise ValueError(f"n_iter must be a positive integer or None, got {self.n_iter!r}.")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise TypeError(f"fit_intercept must be True or False, got {self.fit_intercept!r}.")

    def _check_number(self, parameter: str, value: Any, wanted: str = "a positive finite number") -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < math.inf:
            raise ValueError(f"{parameter} must be {wanted}, got {value!r}.")

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
            raise ValueError(f"X has {n} rows but y has {values.shape[0]}; they must agree.")
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

    def _ridge(self, domain: Domain) -> float:
        """Weight of the ridge in scaled units."""
        if self.l2 is None:
            raise ValueError(f"{type(self).__name__} needs l2, the ridge: 0 for none, or a positive number.")
        return float(self.l2)

    def _radius(self, loss: Loss, ball: str = "", outputs: int = 1) -> float:
        return default_radius(loss, ball, outputs) if self.radius is None else float(self.radius)

    def _domain_of(self, target: Target, columns: Columns) -> Domain:
        """Return the set of the parameter, the intercept's coefficient last."""
        chosen = getattr(self, "domain", self._geometry)
        if isinstance(chosen, str):
            if chosen not in DOMAINS:
                raise ValueError(
                    f'domain must be "l2", "l1" or a Domain such as dpcvx.L2Ball(10.0), got {chosen!r}.'
                )
            domain: Domain = DOMAINS[chosen](self._radius(target.loss, chosen, target.outputs))
            return domain
        if not isinstance(chosen, Domain):
            raise TypeError(f'domain must be "l2", "l1" or a Domain object, got {type(chosen).__name__}.')
        if self.radius is not None:
            raise ValueError(
                f"radius={self.radius!r} and domain={chosen!r} both fix the size of the set; "
                "leave radius None."
            )
        return chosen

    def _intercept(self, domain: Domain) -> float:
        """Value of the constant feature in scaled units, 0 for none."""
        if not self.fit_intercept:
            return 0.0
        return (
            INTERCEPT_BESIDE_UNIT_ROWS
            if self.data_norm is not None and isinstance(domain, L2Ball)
            else INTERCEPT
        )

    def _record_bounds(self, columns: Columns, intercept: float) -> Bounds:
        """Bounds of a stored row, the intercept's feature included."""
        if self.data_norm is not None:
            largest = float(np.max(np.maximum(abs(columns.low), abs(columns.high)) / columns.scale))
            x_inf = 1.0 if intercept else min(1.0, max(LEAST_CELL, math.nextafter(largest, math.inf)))
            return Bounds(x_inf, math.sqrt(1 + intercept**2))
        if all(levels is None for levels in columns.levels):
            return Bounds(1.0)
        # One level of a column at a time: rows are much shorter than the number of features suggests.
        return Bounds(1.0, math.nextafter(math.hypot(columns.row_norm(), intercept), math.inf))

    def _plan(
        self, problem: Problem, n: int, budget: Budget, accountant: Accountant, *, standardize: bool = False
    ) -> Plan:
        wrapper = Standardised(NoisyGradientDescent(), bool(self.fit_intercept))
        candidates = self._candidates(wrapper.inner(problem) if standardize else problem)
        if standardize:
            candidates = tuple(dataclasses.replace(wrapper, solver=solver) for solver in candidates)
        if self.uncertainty:
            candidates = tuple(with_uncertainty(each, float(self.uncertainty)) for each in candidates)
        return plan(problem, n, budget, candidates, accountant)

    def _candidates(self, problem: Problem) -> tuple[Solver, ...]:
        """Solvers to weigh: those of the planner, or the one that the user names."""
        settings: dict[str, Any] = {"n_iter": None if self.n_iter is None else int(self.n_iter)}
        clip = residual_clip(problem)
        if self.solver == "auto":
            kinds = automatic(problem)
            if self.n_iter is not None:
                kinds = tuple(kind for kind in kinds if hasattr(kind, "n_iter"))
            return tuple(made(kind, clip=clip, **settings) for kind in kinds)
        if isinstance(self.solver, str):
            if self.solver not in SOLVERS:
                known = ", ".join(map(repr, ["auto", *SOLVERS]))
                raise ValueError(f"solver must be one of {known} or a Solver object, got {self.solver!r}.")
            kind = SOLVERS[self.solver]
            if self.n_iter is not None and not hasattr(kind, "n_iter"):
                raise ValueError(f"{kind.__name__} has no iterations: leave n_iter None.")
            return (made(kind, clip=clip, **settings),)
        if not hasattr(self.solver, "plan") or isinstance(self.solver, type):
            raise TypeError(f"solver must be a name or a Solver object, got {self.solver!r}.")
        solver: Any = self.solver
        return (solver if self.n_iter is None else dataclasses.replace(solver, **settings),)

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
                f"random_state must be None or a non-negative integer, got {self.random_state!r}."
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
