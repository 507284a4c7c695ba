"""The fitting path of all linear estimators: declare, plan, quantise, execute, return to the user's units.

Estimators hold no mathematics. Everything before quantisation uses parameters, names and shapes alone, so no
record can cause an error, or change what is published other than through the noised answers.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dpcvx.accounting import REPLACE_ONE, WEIGHT, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import DataSource, Quantiser
from dpcvx.data.column_maps import IDENTITY
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import Dataset, DeclaredRows, InMemory, open_dataset
from dpcvx.data.declarations import AUTO, Declarations
from dpcvx.data.levels import COMPARED, WHOLE
from dpcvx.data.row_map import RowMap
from dpcvx.data.table import Table
from dpcvx.data.target import Target, open_target, read_one
from dpcvx.data.units import (
    PersonColumnRule,
    Units,
    person_column,
    persons,
    survey_weights,
    take_column,
    weighted_persons,
)
from dpcvx.errors import (
    Incompatible,
    Interrupted,
    PrivacyLeakWarning,
    UnrecognisedDataWarning,
    UselessModelWarning,
    WrongType,
    WrongValue,
)
from dpcvx.estimators.comparison import compare_levels
from dpcvx.estimators.data_check import DataCheck, release_check
from dpcvx.estimators.intervals import Intervals
from dpcvx.estimators.new_rows import open_new_rows
from dpcvx.estimators.planning import AUTOMATIC, FitDeclaration, Planning
from dpcvx.estimators.private_bounds import (
    RELEASED,
    is_private,
    private_columns,
    release_declarations,
    with_placeholders,
)
from dpcvx.estimators.private_maps import TailRule, automatic_maps, is_histogram, place_maps, release_maps
from dpcvx.estimators.progress import ProgressReport
from dpcvx.noise import Generator, generator_of
from dpcvx.planning.outlook import warn_if_useless
from dpcvx.plans import Answers, Checkpoint, Plan, Release, execute
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.words import is_number, show

if TYPE_CHECKING:
    from dpcvx.estimators.formula import Formula
    from dpcvx.estimators.power import PowerForecast

__all__ = ["LinearModel", "check_records", "declare_fit", "fit_silently", "open_new_rows", "refuse_metadata"]

EXTRAPOLATIONS = ("clip", "linear")


LEAK_WARNING = (
    "score is the plain metric of the rows it is given. On private rows its value is a release that the "
    "privacy statement does not cover; use rows that may be published."
)

VALIDATION_WARNING = (
    "A cross-validation or search of scikit-learn scores this fit by plain metrics of the rows it is given, "
    "and hands groups to its splitter alone. On private rows the scores, and a choice that follows them, are "
    "releases that no privacy statement covers; use PrivateSearchCV or private_score, or rows that may be "
    "published."
)

REFUSED = {
    "sample_weight": "a weight changes how far one person can move the result, and weights are private too",
    "class_weight": "a class's weight changes how far one person can move the model; "
    "PrivateLogisticRegression(class_weight={label: weight}) moves scores after the fit instead",
    "groups": "one row is one person here; rows that share a person are not protected together",
}


class LinearModel(Planning, Intervals, BaseEstimator):  # type: ignore[misc]
    """A linear model fitted through a plan; see the estimators for parameters and attributes."""

    classes_: NDArray[Any]
    coef_: Vector
    intercept_: Any
    n_iter_: int
    coef_names_: NDArray[Any]
    check_: DataCheck | None
    plan_: Plan
    release_: Release
    privacy_statement_: PrivacyStatement

    def _read_target(self, y: Any) -> NDArray[Any]:
        """Raw targets, one for each row."""
        return read_one(y)

    def _declare_target(self, stated: Declarations, y: NDArray[Any]) -> Target:
        """Target as declared; its labels are those of y where the user states that their set is public."""
        raise NotImplementedError

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        checkpoint: str | Path | Checkpoint | None = None,
        **metadata: Any,
    ) -> Self:
        """Fit the model privately.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, pandas / polars / Arrow table, shape (n, d); or a Dataset
            One row per person, unless ``groups`` or ``person`` are given. Cells that are missing, infinite or
            not numbers count as the middle of their bounds (sparse records, and with ``data_norm``: as 0);
            cells beyond the bounds are clipped.
        y : array-like, shape (n,); (n, K) for several targets
            Targets; a Dataset has its own, and so has a table whose schema names the target. No cell is
            refused, and no type: the type of a column can depend on other people's cells, see
            `dpcvx.data.canonical`.
        groups : array-like, shape (n,), optional
            Id of each row's person: text, or numbers below 2^53. All rows of a person are protected together,
            and share the weight of one row (see ``max_rows``); rows without an id are left out. The number of
            rows is then private.
        checkpoint : str, Path or Checkpoint, optional
            File in which the private answers are stored as they come. A fit that was killed is called again
            with the same parameters and the same file: it continues where it stopped, with fresh noise and
            without a second charge. Delete the file once the model is saved; with the file of a finished fit
            the same model is returned. Without a ledger keep only one copy: an old copy would be accepted
            too, and release more than was paid for.
        **metadata
            ``sample_weight``: array-like, shape (n,), or the name of a column of a table, which is then no
            feature: survey weights within ``weight_bounds``; a missing or negative one is 0. Class
            weights are refused with the reason.

        Returns
        -------
        self
        """
        # Not in the signature: scikit-learn would assume that weights work without bounds.
        sample_weight = metadata.pop("sample_weight", None)
        refuse_metadata(self, metadata)
        with ProgressReport(type(self).__name__, shown=bool(self.verbose)) as progress:
            progress.step("planning")
            dataset = self._open(X, y, groups, sample_weight)
            made = self._declare(dataset, dataset.n)
            rng = generator_of(self.random_state)
            self._warn(made, dataset)
            progress.step("preparing the records")
            self._run(dataset, made, rng, progress=progress, checkpoint=checkpoint)
        if self.release_.caution is not None:  # last: nothing is lost to those who make warnings errors
            warnings.warn(self.release_.caution, UselessModelWarning, stacklevel=2)
        if self.check_ is not None and (found := self.check_.warning):
            warnings.warn(
                f"{found} print(model.check_) shows all counts.", UnrecognisedDataWarning, stacklevel=2
            )
        if _is_validated():
            self._leak_warned = True  # score would say the same
            warnings.warn(VALIDATION_WARNING, PrivacyLeakWarning, stacklevel=2)
        return self

    def _open(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Dataset:
        """Return the data set of a fit, with persons or survey weights if they are given."""
        if groups is not None and self.person is not None:
            raise Incompatible("groups and person both give the ids of persons: give one of them.")
        if groups is None and self.person is None and not (self.persons is None and self.max_rows is None):
            raise Incompatible(
                "persons and max_rows need the ids of persons: set person, or give fit groups=ids."
            )
        if isinstance(sample_weight, str):
            if isinstance(X, DeclaredRows):
                rows, sample_weight = take_column(X.rows, sample_weight, "sample_weight")
                X = dataclasses.replace(X, rows=rows)
            else:
                X, sample_weight = take_column(X, sample_weight, "sample_weight")
        dataset = open_dataset(X, y, self.backend, self.schema, self._people())
        if groups is None and sample_weight is None:
            return dataset
        if not isinstance(dataset, InMemory):
            given = "sample_weight" if groups is None else "groups"
            raise Incompatible(
                f"fit takes {given} with arrays and tables in memory only, not with "
                f"{type(dataset).__name__}. Name a column of persons, person=, where the data are opened, or "
                "load the records into memory."
            )
        units = dataset.units
        if groups is not None:
            units = persons(groups, declared=self.persons, max_rows=self.max_rows)
        if sample_weight is not None:
            weights = survey_weights(sample_weight, self.weight_bounds)
            units = weights if units is None else weighted_persons(units, weights)
        if units is not None:
            dataset.weigh_by(units)
        return dataset

    def _people(self) -> PersonColumnRule | None:
        """Return the column of persons, where one is named."""
        if self.person is None:
            return None
        return person_column(self.person, self.persons, self.max_rows)

    def _planned_neighbours(self) -> Neighbours:
        """Return the neighbouring relation of a plan without data, from the parameters."""
        if any(each is not None for each in (self.person, self.persons, self.max_rows)):
            return Neighbours("replace", "person", self.max_rows or 1, WEIGHT)
        return REPLACE_ONE if self.weight_bounds is None else Neighbours(weight=WEIGHT)

    def plan(self, n: int, features: int | Sequence[str], *, targets: int = 1) -> Plan:
        """Plan a fit without data: what would be asked, with how much noise, at what cost.

        Parameters
        ----------
        n : int
            Number of records; of persons where ``person`` is given.
        features : int or sequence of str
            Number of columns without that of persons, or their names where ``bounds`` or ``categories`` use
            names.
        targets : int
            Number of targets, for estimators that take several.

        Returns
        -------
        Plan
            The plan that ``fit`` would make for such records; ``print`` it.
        """
        dataset = self._without_records(n, features, targets)
        return self._declare(dataset, n * dataset.neighbours.rows).plan

    def power(
        self,
        n: int,
        features: int | Sequence[str],
        *,
        deviations: Mapping[Any, float] | None = None,
        target_deviation: float | None = None,
        r2: float = 0.3,
        correlation: float = 0.0,
        share: float = 0.5,
        level: float = 0.95,
        power: float = 0.8,
    ) -> PowerForecast:
        """Predict standard errors and the smallest detectable effect, before anything is paid.

        The fit is simulated on records drawn from the assumptions, with the noise of its plan. No data are
        needed. The model needs ``uncertainty``.

        Parameters
        ----------
        n, features
            As for `plan`.
        deviations : mapping from column to float, optional
            Standard deviations of columns of numbers in your units, from public knowledge; of others a sixth
            of the width of their bounds. Columns are named, or numbered from 0.
        target_deviation : float, optional
            That of the target; a sixth of the width of ``y_bounds`` by default.
        r2 : float
            Share of the target's variance that the features explain; for regressions.
        correlation : float
            Of every pair of numbers.
        share : float
            Share of the second class, for classifiers.
        level, power : float
            Level of intervals and tests, and probability with which the smallest effect is found.

        Returns
        -------
        PowerForecast
            ``print`` it; ``std_err``, ``multiple``, ``smallest_effect``, and ``needed(width, name)``: the
            number of records, or the epsilon, for an interval of a wanted width.
        """
        from dpcvx.estimators.power import Assumptions, forecast

        if not self.uncertainty:
            raise Incompatible(
                "Standard errors need a share of the budget: give uncertainty=0.2 to predict them."
            )
        for name, value in (("level", level), ("power", power)):
            if not is_number(value, 0, 1):
                raise WrongValue(f"{name} must be between 0 and 1, got {show(value)}.")
        dataset = self._without_records(n, features, 1)
        twin = clone(self).set_params(ledger=None, account=None)

        def declare(records: int, epsilon: float) -> FitDeclaration:
            twin.set_params(epsilon=epsilon)
            made: FitDeclaration = twin._declare(dataset, records * dataset.neighbours.rows)
            return made

        assumed = Assumptions(deviations or {}, target_deviation, r2, correlation, share)
        return forecast(twin, declare, n, float(self.epsilon or 0), assumed, level=level, power=power)

    def _without_records(self, n: int, features: int | Sequence[str], targets: int) -> InMemory:
        """Return a data set of one missing row, which has the columns of a plan's records."""
        if min(n, targets, features if isinstance(features, int) else len(features)) < 1:
            raise WrongValue("n, features and targets must be at least 1.")
        X: Any
        if isinstance(features, int):
            X = np.zeros((1, features))
        else:
            import pyarrow as pa

            levels = self.categories or {}
            X = pa.table(
                {name: pa.nulls(1, pa.string() if name in levels else pa.float64()) for name in features}
            )
        y = np.zeros(1 if targets == 1 else (1, targets), dtype=object)
        dataset = InMemory(X, y, self.schema)
        dataset.neighbours = self._planned_neighbours()
        return dataset

    def _run(
        self,
        dataset: Dataset,
        made: FitDeclaration,
        rng: Generator,
        *,
        progress: ProgressReport | None = None,
        checkpoint: str | Path | Checkpoint | None = None,
    ) -> None:
        """Run a declared fit and publish what it releases; a record is read once the plan is paid for."""
        plan = made.plan
        validate_data(self, dataset.table.header(), skip_check_array=True)

        def records(answers: Answers) -> DataSource:
            nonlocal made
            check = release_check(plan.before, dataset, made.columns, made.target, answers)
            made = dataclasses.replace(made, check=check)
            if private_columns(made.stated, made.plain, made.target):
                made = self._with_released_bounds(dataset, made, answers)
            if any(map(is_histogram, plan.before)):
                maps = release_maps(plan.before, made.maps, dataset, made.plain, answers)
                columns = _map_columns(dataset.table, made.stated, made.plain, maps)
                made = dataclasses.replace(made, maps=maps, columns=columns)
            # Standardisation makes the intercept's feature itself, after the rows have been centred.
            stored = 0.0 if plan.solver.standardises else made.intercept
            quantiser = Quantiser(plan.problem.bounds, made.columns.center, made.columns.scale, stored)
            return dataset.source(made.columns, quantiser, made.target, plan.layout)

        described = _describe(checkpoint, self, made)
        release = execute(
            plan,
            records,
            rng=rng,
            ledger=self.ledger,
            account=self.account,
            purpose=f"fit of {type(self).__name__} to {dataset.n} {plan.budget.neighbours.noun}s",
            progress=None if progress is None else progress.count,
            checkpoint=described,
        )
        try:
            self._publish(release, made)
        except KeyboardInterrupt:
            path = None if described is None else described.path
            raise Interrupted(release.receipt, path, plan.n_calls) from None

    def _with_released_bounds(
        self, dataset: Dataset, made: FitDeclaration, answers: Answers
    ) -> FitDeclaration:
        """Release the private bounds of a paid plan; declare columns and target again with them."""
        table, y = dataset.table, self._read_target(dataset.target)
        units = getattr(dataset, "units", None)
        weights = None if units is None else units.shares
        found = release_declarations(made.stated, table, y, made.plain, made.plan, answers, weights)
        plain = _plain_columns(table, found)
        columns = _map_columns(table, found, plain, place_maps(made.maps, plain))
        target = self._declare_target(found, y)
        if is_private(made.stated.y_bounds):
            target = dataclasses.replace(target, origin=RELEASED)
        return dataclasses.replace(made, plain=plain, columns=columns, target=target)

    def _warn(self, made: FitDeclaration, dataset: Dataset) -> None:
        """Warn, from public facts, of declared columns that the table lacks, and of a useless plan."""
        own = dataset.table.schema
        if self.schema is not None and own is not None and (absent := self.schema.features_beside(own)):
            warnings.warn(
                f"The table lacks columns that the schema declares, and the model does without them: "
                f"{', '.join(map(repr, absent))}. See whether both spell the names alike.",
                UnrecognisedDataWarning,
                stacklevel=3,
            )
        plan, facts = made.plan, (made.stated, made.columns, made.target)

        def again(n: int, epsilon: float) -> Plan:
            return self._plan_fit(n, facts, epsilon, dataset, made.maps)[0]

        rule = type(self), self.delta, self.n_iter, self.standardize, plan.budget.neighbours
        unbounded = dataset.table.sparse and made.stated.data_norm is None
        warn_if_useless(plan, again, rule, sparse=unbounded, stacklevel=3)

    def _declare(self, dataset: Dataset, n: int) -> FitDeclaration:
        """Declare a fit to n such records, from public facts."""
        stated = Declarations.of(self).with_data(dataset.declarations, self)
        stated = stated.resolved(dataset.table.schema, self._encoding(dataset))
        self._check_parameters(stated)
        table = dataset.table
        placed = with_placeholders(stated, dataset, getattr(self, "threshold", None))
        values = self._open_target(dataset.target, table.n)
        plain = _plain_columns(table, placed)
        maps = self._requested_maps(n, stated, plain, dataset)
        columns = _map_columns(table, placed, plain, place_maps(maps, plain))
        if isinstance(stated.classes, str):  # "from_y": their set is public
            values = self._read_target(dataset.labels())
        target = self._declare_target(placed, values)
        facts = stated, columns, target
        plan, intercept = self._plan_fit(n, facts, float(self.epsilon or 0), dataset, maps)
        if not any(map(is_histogram, plan.before)):  # nothing is released for the rule to go by
            maps = {j: each for j, each in maps.items() if not isinstance(each, TailRule)}
        units = getattr(dataset, "units", None)
        stored = {} if units is None else units.facts
        stored = {**stored, **getattr(dataset, "facts", {})}
        return FitDeclaration(stated, plain, columns, target, plan, intercept, maps=maps, stored=stored)

    def _plan_fit(
        self,
        n: int,
        fit: tuple[Declarations, Columns, Target],
        epsilon: float,
        dataset: Dataset,
        maps: Mapping[int, Any],
    ) -> tuple[Plan, float]:
        if self.uncertainty is not True and self.uncertainty != AUTOMATIC:
            return super()._plan_fit(n, fit, epsilon, dataset, maps)
        from dpcvx.estimators.power import plan_with_best_share

        return plan_with_best_share(
            self,
            lambda made, value: FitDeclaration(fit[0], fit[1], fit[1], fit[2], made, value, maps=maps),
            lambda model: model._plan_fit(n, fit, epsilon, dataset, maps),
        )

    def _requested_maps(
        self, n: int, stated: Declarations, columns: Columns, dataset: Dataset
    ) -> dict[int, Any]:
        """Return the maps of numbers by position, and requests for maps that the fit is to release.

        `n`: number of records; `columns`: declared without maps; `dataset`: only its kind is used.
        """
        maps = stated.map_of_each(dataset.table)
        # Standard errors are of coefficients of the columns as they are.
        fixed = self.maps != AUTO or is_private(stated.bounds) or stated.data_norm is not None
        if fixed or self.uncertainty or dataset.table.sparse:
            return maps
        return {**automatic_maps(columns, maps), **maps}

    def _encoding(self, dataset: Dataset) -> str:
        """Return the encoding of levels: they are compared if there is an intercept; or as stored."""
        return str(getattr(dataset, "encoding", COMPARED if self.fit_intercept else WHOLE))

    def _open_target(self, y: Any, n: int) -> NDArray[Any]:
        """Raw targets of n records, of a shape that fits."""
        if y is None:
            raise WrongValue(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        return open_target(y, n, self._read_target, stacklevel=5)

    @property
    def levels_(self) -> dict[Any, tuple[Any, ...]]:
        """Declared levels of the columns that hold no numbers, by column name or position."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        levels = zip(names, self._row_map.levels, strict=True)
        return {name: declared.values for name, declared in levels if declared is not None}

    @property
    def formula_(self) -> Formula:
        """The computation of ``predict``, as text and as JSON: ``print`` it, or ``to_json()``."""
        from dpcvx.estimators.formula import Formula

        check_is_fitted(self)
        return Formula.of(self)

    def to_sklearn(self) -> Any:
        """Return a scikit-learn pipeline that predicts the same bits, without plan, ledger and fit.

        Its first step, "features", maps rows as the fit did and has ``transform``; its last step, "model",
        has ``coef_``, ``intercept_`` and the methods of this estimator. It can be pickled; whoever opens it
        needs dpcvx, which reads the cells.

        Returns
        -------
        sklearn.pipeline.Pipeline
        """
        from dpcvx.estimators.export import pipeline_of

        check_is_fitted(self)
        return pipeline_of(self)

    def to_onnx(self) -> Any:
        """Return the formula as an ONNX model in double precision; needs ``dpcvx[onnx]``.

        Without categories it has one input "X" of shape (n, d). With categories every column is an input of
        shape (n, 1) under its own name: numbers, and text for levels of text. NaN is a missing number, "" a
        missing level. Outputs are "prediction" of a regressor; "label", "scores" and, of a logistic model,
        "probabilities" of a classifier.

        Returns
        -------
        onnx.ModelProto
            The runtime adds terms in an order of its own: scores differ from those of this model by up to
            d 2^-49 times the sum of the absolute values of their d terms.
        """
        from dpcvx.estimators.onnx_graph import onnx_model

        check_is_fitted(self)
        return onnx_model(self.formula_)

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

    def _check_parameters(self, stated: Declarations) -> None:
        name = type(self).__name__
        if self.epsilon is None:
            raise WrongValue(f"{name} needs epsilon, the privacy loss you allow: for instance epsilon=1.0.")
        for parameter in ("epsilon", "delta", "radius"):
            self._check_number(parameter, getattr(self, parameter))
        self._check_number("data_norm", stated.data_norm)
        if self.uncertainty is not True and self.uncertainty not in (0, AUTOMATIC):
            wanted = '"auto", 0, or a share of the budget below 1'
            self._check_number("uncertainty", self.uncertainty, wanted)
        if self.check != 0 and not is_number(self.check, 0, 1):
            raise WrongValue(f"check must be 0, or a share of the budget below 1, got {show(self.check)}.")
        if self.l2 != 0:
            self._check_number("l2", self.l2, "0 or a positive finite number")
        if self.delta is not None and self.delta >= 1:
            raise WrongValue(f"delta must be below 1, got {show(self.delta)}; less than 1/n is meaningful.")
        if stated.bounds is None:
            raise WrongValue(
                f"{name} needs bounds of the features, from public knowledge and not from these records: "
                "a pair (low, high) in your units, a pair of arrays with one entry per column, or a mapping "
                'from column to pair; "private" spends a share of the budget on noisy quantiles instead.'
            )
        if self.n_iter is not None and not (_is_integer(self.n_iter) and self.n_iter >= 1):
            raise WrongValue(f"n_iter must be a positive integer or None, got {show(self.n_iter)}.")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise WrongType(f"fit_intercept must be True or False, got {show(self.fit_intercept)}.")
        self._check_extrapolation()

    def _check_extrapolation(self) -> None:
        if not isinstance(self.extrapolation, str) or self.extrapolation not in EXTRAPOLATIONS:
            raise WrongValue(
                f'extrapolation must be "clip" or "linear", got {show(self.extrapolation)}: "clip" predicts '
                'rows outside the region of the fit as if they were on its edge, "linear" is X @ coef_ + '
                "intercept_ for every row."
            )

    def _check_number(self, parameter: str, value: Any, wanted: str = "a positive finite number") -> None:
        if value is None:
            return
        if not is_number(value, 0, math.inf):
            raise WrongValue(f"{parameter} must be {wanted}, got {show(value)}.")

    def _units(self, release: Release, target: Target) -> tuple[Any, Any, dict[str, Any]]:
        """Centre and scale of scores in the user's units, and entries of the statement about the target."""
        return target.center, target.scale, target.facts

    def _publish(self, release: Release, made: FitDeclaration) -> None:
        """Set the fitted attributes: the released parameter in the user's units."""
        columns, target, intercept = made.columns, made.target, made.intercept
        center, spread, facts = self._units(release, target)
        theta = release.theta.reshape(-1, *target.shape)
        of_columns = release.region is None or release.region.basis is None  # a basis has no units
        absent = [] if made.check is None or not of_columns else made.check.absent()
        pooled = np.flatnonzero(np.isin(columns.names, absent))
        rows = compare_levels(columns, release.region, pooled, intercept=bool(intercept))
        row_map = dataclasses.replace(
            rows.row_map,
            bounds=(columns.low, columns.high) if is_private(made.stated.bounds) else None,
            schema=made.stated.schema,
        )

        def in_units(theta: Vector) -> tuple[Vector, Any]:
            if of_columns:
                scale = columns.scale.reshape(-1, *[1] * (theta.ndim - 1))
                weights = theta[: columns.width] * (spread / scale)
                offset = center - columns.center @ weights
            else:
                weights, offset = spread * theta[: len(theta) - (intercept != 0)], center
            return rows.published(weights, offset + spread * intercept * theta[-1] if intercept else offset)

        weights, offset = in_units(theta)
        self.coef_ = weights.T.copy()
        self.intercept_ = float(offset) if theta.ndim == 1 else np.asarray(offset)
        self._link = release.plan.problem.loss.link
        self._row_map = row_map
        self._uncertainty = None
        if release.uncertainty is not None:
            self._uncertainty = release.uncertainty.mapped(
                lambda theta: np.append(*in_units(theta)), float(spread) ** 2
            )
        self.n_iter_ = release.n_iter
        self.coef_names_ = np.array(row_map.feature_names, dtype=object)
        self.check_, self.plan_, self.release_ = made.check, release.plan, release
        self._leak_warned = False
        self.privacy_statement_ = PrivacyStatement.of(
            release.plan.price,
            model=type(self).__name__,
            private=release.private,
            bounds={
                **_bounds_facts(made),
                **({"pooled": [columns.names[j] for j in pooled]} if len(pooled) else {}),
                **facts,
                **made.stored,
            },
            public=self._public_facts(release.plan, columns, intercept),
            receipt=release.receipt,
        )

    def _public_facts(self, chosen: Plan, columns: Columns, intercept: float) -> dict[str, Any]:
        problem = chosen.problem
        return {
            **_size_facts(chosen),
            "features": list(columns.names),
            "loss": _setting(problem.loss),
            "domain": _setting(problem.domain),
            "l2": problem.l2,
            "solver": _setting(chosen.solver),
            "standardized": chosen.solver.standardises,
            "n_iter": self.n_iter_,
            "intercept": intercept,
            "delta_rule": "given" if self.delta is not None else _delta_rule(chosen),
            "x_inf": problem.bounds.x_inf,
            "x_2": problem.row_norm,
        }

    def _scores(self, X: Any) -> Vector:
        """Linear scores of new rows, shape (n,) or (n, K): the score of ``formula_``."""
        check_is_fitted(self)
        return self._linear(self._new_rows(X), self.coef_.T, self.intercept_)

    def _linear(self, table: Table, coef: Vector, intercept: Any) -> Vector:
        return self._prediction_map().scores(table, coef, intercept)

    def _prediction_map(self) -> RowMap:
        """The map from new rows to features, without clipping where the user extrapolates."""
        self._check_extrapolation()
        clips = self.extrapolation == "clip"
        return self._row_map if clips else self._row_map.without_clipping()

    def _new_rows(self, X: Any) -> Table:
        return open_new_rows(self, X, self._row_map.schema)

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


def fit_silently(model: LinearModel, X: Any, y: Any, people: Units | None = None) -> None:
    """Fit a model without a warning, which would tell of a run that is not released.

    `X`, `y`: as for its ``fit``, in memory, without a column of persons; `people`: whose rows they are.
    """
    dataset = open_dataset(X, y, model.backend, model.schema)
    if people is not None and isinstance(dataset, InMemory):
        dataset.weigh_by(people)
    model._run(dataset, model._declare(dataset, dataset.n), generator_of(model.random_state))


def declare_fit(model: LinearModel, dataset: Dataset, n: int) -> FitDeclaration:
    """Return a model's fit to n such records as it would be fixed before a record is read.

    `model`: it is not changed; `dataset`: its columns are read, and no record; `n`: number of records; of
    persons, times the rows kept of each, where the data set has persons.
    """
    return model._declare(dataset, n)


def check_records(model: LinearModel, X: Any, y: Any) -> int:
    """Check that rows and targets have the columns and shapes of a model's fit; return their number.

    `model`: fitted; `X`, `y`: private rows and targets, of which only names and shapes are used.
    """
    table = model._new_rows(X)
    model._open_target(y, table.n)
    return table.n


def refuse_metadata(model: object, metadata: dict[str, Any]) -> None:
    """Refuse keyword arguments of ``fit`` that are not taken, with the reason."""
    name = type(model).__name__
    for keyword, value in metadata.items():
        if keyword not in REFUSED:
            raise WrongType(f"{name}.fit() got an unexpected keyword argument {keyword!r}.")
        if value is not None:
            raise WrongType(f"{name} does not take {keyword}: {REFUSED[keyword]}.")


def _plain_columns(table: Table, stated: Declarations) -> Columns:
    """Columns of a table without maps of numbers."""
    return Columns.declare(table, stated.bounds, stated.categories, stated.data_norm, stated.missing)


def _map_columns(table: Table, stated: Declarations, plain: Columns, maps: Mapping[int, Any]) -> Columns:
    """Columns of a table with maps, by position; bounds are those of the columns without maps."""
    if not maps:
        return plain
    firsts = [span[0] for span in plain.spans()]
    bounds = plain.low[firsts], plain.high[firsts]
    return Columns.declare(table, bounds, stated.categories, stated.data_norm, stated.missing, maps)


def _size_facts(plan: Plan) -> dict[str, Any]:
    """The public number of units."""
    neighbours = plan.budget.neighbours
    return {"n": plan.n} if neighbours.unit == "row" else {"persons": plan.n // neighbours.rows}


def _delta_rule(plan: Plan) -> str:
    return f"min(1/{'n' if plan.budget.unit == 'row' else 'persons'}^2, 1e-5)"


def _bounds_facts(made: FitDeclaration) -> dict[str, Any]:
    columns, stated = made.columns, made.stated
    bounds: dict[str, Any] = {
        "bounds": {"low": columns.low.tolist(), "high": columns.high.tolist()},
        "enforced": "cells are clipped to their bounds; a missing, infinite or non-numeric one counts as "
        + ("0" if not columns.center.any() else "the middle of its bounds"),
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
            shares = "released" if made.plan.solver.standardises else "equal"
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
        bounds["enforced"] += "; numbers with a map are mapped first, and a missing one has the features "
        bounds["enforced"] += "of the map's middle"
    if is_private(stated.bounds):
        bounds["bounds_are"] = RELEASED
    if stated.data_norm is not None:
        bounds["data_norm"] = float(stated.data_norm)
        bounds["enforced"] += "; rows are shrunk to l2 norm data_norm"
    if made.check is not None or made.plan.notes:
        bounds["check"] = "; ".join(made.plan.notes) if made.check is None else made.check.summary
    return bounds


def _is_validated() -> bool:
    """Whether scikit-learn's model selection calls this fit: its named scorers call only `predict`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection."):
            return True
        frame = frame.f_back
    return False


def _describe(
    given: str | Path | Checkpoint | None, model: LinearModel, made: FitDeclaration
) -> Checkpoint | None:
    """Return the checkpoint of a fit, with the user's units, which the plan does not contain."""
    if given is None:
        return None
    checkpoint = given if isinstance(given, Checkpoint) else Checkpoint(Path(given))
    about: tuple[Any, ...] = (type(model).__name__, made.columns, made.target, made.intercept)
    if made.stated.schema is not None:  # how cells are read
        about += (made.stated.schema.to_toml(),)
    return dataclasses.replace(checkpoint, about=about)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _setting(thing: Any) -> str:
    """Public object in one line; of a long one the middle is left out."""
    text = " ".join(repr(thing).split())
    return text if len(text) <= 200 else f"{text[:150]} ... {text[-45:]}"
