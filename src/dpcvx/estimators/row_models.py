"""Models that are a logistic regression of several rows of each record, such as those of ordered levels.

`dpcvx.data.expanded_rows` makes the rows, and the record is the person that the fit protects (privacy page,
section 16). Everything released is in ``model_``, the logistic model of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.data.cells import native_array, without_column
from dpcvx.data.declarations import Declarations
from dpcvx.data.expanded_rows import ExpandedRows
from dpcvx.data.schema_columns import LevelColumn
from dpcvx.data.units import take_column
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.estimators.classifiers import PrivateLogisticRegression
from dpcvx.estimators.hypotheses import ModelTerms
from dpcvx.estimators.inference import ContrastTests, Summary, WaldTests
from dpcvx.estimators.opening import require_table
from dpcvx.estimators.planning import Parameters
from dpcvx.estimators.refusals import check_parameters, check_target
from dpcvx.plans import Checkpoint, Plan, Release
from dpcvx.plans.statement import PrivacyStatement

if TYPE_CHECKING:
    from dpcvx.estimators.data_check import DataCheck
    from dpcvx.estimators.formula import Formula
    from dpcvx.estimators.power import PowerForecast

__all__ = ["RowModel"]

SEVERAL_RECORDS = "a person who is in several records: no ids of persons were given"
REPLACED = ("family", "accuracy", "pseudo-R²")  # facts of the table about single rows, not records
SHARED = tuple(field.name for field in fields(Parameters))


class RowModel(Parameters, BaseEstimator):  # type: ignore[misc]
    """A logistic model of several rows of each record, which differ in one column."""

    model_: PrivateLogisticRegression  # of the rows

    _column: ClassVar[str]  # that tells the rows of a record apart
    _sign: ClassVar[float]  # of the released log-odds in the coefficients of that column
    _family: ClassVar[str]

    def _levels(self) -> tuple[str, ...]:
        """Return the levels of the column that tells the rows of a record apart."""
        raise NotImplementedError

    def _level_names(self) -> list[str]:
        """Return the names of these levels in the table of coefficients."""
        raise NotImplementedError

    def _rows(self, X: Any, y: Any) -> ExpandedRows:
        """Return the rows of records with their labels; `X`: without the target."""
        raise NotImplementedError

    def _new_rows(self, X: Any) -> Any:
        """Return the rows of new records."""
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
        X : pandas, polars or Arrow table, n rows
            One row per person, unless ``groups`` or ``person`` are given. Cells count as for
            `PrivateLogisticRegression`.
        y : array-like, shape (n,), optional
            Target; by default the column of X that the schema names. A record without one that can be used
            is left out.
        groups : array-like, shape (n,), optional
            Id of each record's person; all records of a person are then protected together, and share the
            weight of one.
        checkpoint : str, Path or Checkpoint, optional
            File in which the private answers are stored as they come.
        **metadata
            ``sample_weight``: array-like, shape (n,), or the name of a column of X: survey weights within
            ``weight_bounds``.

        Returns
        -------
        self
        """
        if self.persons is not None and groups is None and self.person is None:
            raise Incompatible("persons needs the ids of persons: set person, or give fit groups=ids.")
        check_target(self, X, y)
        reason = "each record becomes several rows, with a column that tells them apart"
        require_table(X, self.backend, type(self).__name__, reason)
        if self.schema is not None:
            target = self.schema.target
            if y is None and target is not None:
                X, y = take_column(X, target, "target")
            X, y = without_column(X, target), self.schema.read_target(y)
        if y is None:
            raise WrongValue(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        model, single = self.logistic(), groups is None and self.person is None
        if self.schema is None:  # messages name this estimator
            check_parameters(self, Declarations.of(self))
        rows = self._rows(X, y)
        if self.person is None:
            groups = rows.ids if groups is None else _of_each_row(groups, rows, "groups")
        elif groups is not None:
            raise Incompatible("groups and person both give the ids of persons: give one of them.")
        weight = metadata.get("sample_weight")
        if weight is not None and not isinstance(weight, str):
            metadata["sample_weight"] = _of_each_row(weight, rows, "sample_weight")
        try:
            model.fit(rows.table, rows.labels, groups=groups, checkpoint=checkpoint, **metadata)
        finally:  # a warning that is an error may come when the budget is spent
            if hasattr(model, "privacy_statement_"):
                model.privacy_statement_ = self._statement(model.privacy_statement_, single=single)
                self.model_ = model
        return self

    def plan(
        self, n: int, features: int | Sequence[str], *, assumed: Mapping[str, Any] | None = None
    ) -> Plan:
        """Plan a fit without data: what would be asked, with how much noise, at what cost.

        Parameters
        ----------
        n : int
            Number of records; of persons where ``person`` is given.
        features : int or sequence of str
            Number of columns, or their names where ``bounds`` or ``categories`` use names.
        assumed : mapping, optional
            Known facts of the records, by their keyword of `power`, for the note on hidden standard errors.

        Returns
        -------
        Plan
        """
        return self._of_persons(n).plan(n, self._features(features), assumed=assumed)

    def power(self, n: int, features: int | Sequence[str], **assumptions: Any) -> PowerForecast:
        """Predict standard errors and the smallest detectable effect, before anything is paid.

        Every simulated record has all its rows; one in ten is lost in each period of a hazard model.

        Parameters
        ----------
        n, features
            As for `plan`.
        **assumptions
            As for ``PrivateLogisticRegression.power``; ``share`` is that of answers above the middle level
            (by default 0.5), or of records at risk whose event comes in a period (0.15).

        Returns
        -------
        PowerForecast
        """
        return self._of_persons(n).power(n, self._features(features), **assumptions)

    def summary(self, level: float = 0.95, *, adjust: str | None = None) -> Summary:
        """Return the table of coefficients, with standard errors and tests where they were released.

        Parameters
        ----------
        level : float
            Probability with which an interval covers its coefficient.
        adjust : {None, "holm"}
            Adds p-values that are adjusted for the number of coefficients.

        Returns
        -------
        Summary
            ``exp(coef)`` of a feature is a ratio of odds.
        """
        check_is_fitted(self)
        found, matrix, terms = self.model_.summary(level, adjust=adjust), self._matrix(), self._terms()
        known = found.uncertainty
        (_, coef, intercept), *_ = found.estimates
        both = matrix @ np.append(coef, intercept)
        return replace(
            found,
            title=found.title.replace(type(self.model_).__name__, type(self).__name__),
            facts=(("family", self._family), *(each for each in found.facts if each[0] not in REPLACED)),
            terms=terms,
            estimates=(("", both[:-1], float(both[-1])),),
            uncertainty=None if known is None else known.mapped(lambda theta: matrix @ theta),
            ratio="exp(coef)",
            intercept=self._level_names()[0],
        )

    def t_test(self, hypotheses: Any, *, level: float = 0.95, adjust: str | None = None) -> ContrastTests:
        """Test linear combinations of the coefficients of ``model_`` one by one.

        Parameters
        ----------
        hypotheses, level, adjust
            As for ``PrivateLogisticRegression.t_test``.
        """
        check_is_fitted(self)
        return self.model_.t_test(hypotheses, level=level, adjust=adjust)

    def wald_test(self, hypotheses: Any) -> WaldTests:
        """Test several hypotheses about the coefficients of ``model_`` together, or a column.

        Parameters
        ----------
        hypotheses
            As for ``PrivateLogisticRegression.wald_test``.
        """
        check_is_fitted(self)
        return self.model_.wald_test(hypotheses)

    @property
    def coef_(self) -> Vector:
        """Coefficients of the features in your units, shape (d,)."""
        check_is_fitted(self)
        return self.model_.coef_[self._slopes]

    @property
    def coef_names_(self) -> NDArray[Any]:
        """Names of the coefficients."""
        check_is_fitted(self)
        names: NDArray[Any] = self.model_.coef_names_[self._slopes]
        return names

    @property
    def coef_debiased_(self) -> Vector:
        """Estimate of the coefficients without the bias of the fit, shape (d,)."""
        check_is_fitted(self)
        return self.model_.coef_debiased_[self._slopes]

    @property
    def coef_std_(self) -> Vector:
        """Standard errors of ``coef_debiased_``, privacy noise included, shape (d,)."""
        check_is_fitted(self)
        return self.model_.coef_std_[self._slopes]

    def coef_interval(self, level: float = 0.95) -> Vector:
        """Return an interval for each coefficient, shape (d, 2); the fit needs ``uncertainty``.

        Parameters
        ----------
        level : float
            Probability with which an interval covers its coefficient.
        """
        check_is_fitted(self)
        return self.model_.coef_interval(level)[self._slopes]

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Columns of X that are features."""
        check_is_fitted(self)
        names: NDArray[Any] = self.model_.feature_names_in_[:-1]
        return names

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X that are features."""
        return len(self.feature_names_in_)

    @property
    def levels_(self) -> dict[Any, tuple[Any, ...]]:
        """Declared levels of the columns that hold no numbers, by column."""
        check_is_fitted(self)
        return {name: levels for name, levels in self.model_.levels_.items() if name != self._column}

    @property
    def formula_(self) -> Formula:
        """The computation of the log-odds of a row: ``print`` it, or ``to_json()``."""
        check_is_fitted(self)
        return replace(self.model_.formula_, model=type(self).__name__)

    @property
    def check_(self) -> DataCheck | None:
        """Noisy counts of recognised cells, as a table: ``print`` it."""
        check_is_fitted(self)
        return self.model_.check_

    @property
    def plan_(self) -> Plan:
        """Everything that was fixed in advance, from public facts."""
        check_is_fitted(self)
        return self.model_.plan_

    @property
    def release_(self) -> Release:
        """The released parameter in scaled units, and its plan."""
        check_is_fitted(self)
        return self.model_.release_

    @property
    def privacy_statement_(self) -> PrivacyStatement:
        """Privacy statement: ``print`` it, or ``to_json()``."""
        check_is_fitted(self)
        return self.model_.privacy_statement_

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

    def file_parameters(self) -> dict[str, Any]:
        """Return the parameters for a model file."""
        found: dict[str, Any] = self.get_params(deep=False)
        return found

    def restored(self, model: PrivateLogisticRegression) -> Self:
        """Return this estimator as fitted; `model`: that of the rows, from a model file."""
        if {*model.classes_} != {0, 1} or model.levels_.get(self._column) != self._levels():
            raise WrongValue(
                f"{type(self).__name__} must have two classes, 0 and 1, and the column {self._column!r} with "
                "the levels of its parameters."
            )
        self.model_ = model
        if model.schema is not None:
            columns = {name: each for name, each in model.schema.columns.items() if name != self._column}
            self.schema = replace(model.schema, columns=columns)
        return self

    def logistic(self) -> PrivateLogisticRegression:
        """Return the logistic model of the rows, not fitted, with the parameters of this estimator."""
        name = type(self).__name__
        if self.max_rows is not None:
            raise Incompatible(f"{name} makes several rows of each record, and takes no max_rows.")
        if self.public is not None:
            raise Incompatible(f"{name} takes no public rows.")
        if self.fit_intercept is not True:
            raise Incompatible(f"{name} needs an intercept: leave fit_intercept out.")
        model = PrivateLogisticRegression(
            classes=(0, 1), **{parameter: getattr(self, parameter) for parameter in SHARED}
        )
        model._told_as, model._several_rows = name, self._column
        levels = self._levels()
        if self.schema is None:
            model.categories = {**(self.categories or {}), self._column: levels}
            return model
        if self.schema.formula is not None:
            raise Incompatible(f"{name} takes no formula: name the features.")
        if self._column in self.schema.columns:
            raise WrongValue(f"The table has a column {self._column!r} already: rename it.")
        # The target of the rows is another one, with missing codes of its own.
        columns = {name: each for name, each in self.schema.columns.items() if name not in self._roles()}
        model.schema = replace(
            self.schema,
            columns={**columns, self._column: LevelColumn(list(levels))},
            target=None,
            target_values=None,
        )
        return model

    def _of_persons(self, n: int) -> PrivateLogisticRegression:
        """Return the logistic model of the rows of n persons."""
        model = self.logistic()
        model.persons = n
        return model

    def _statement(self, statement: PrivacyStatement, *, single: bool) -> PrivacyStatement:
        """Return the statement of the fit to rows as that of this estimator.

        `single`: whether every record was taken for a person, as no ids were given.
        """
        rows = (
            f"each record is {len(self._levels())} rows, which differ in the column {self._column!r}, by "
            "public rules; all rows of a record are of one person"
        )
        bounds = {**statement.bounds, "records": rows}
        others = (*statement.not_covered, SEVERAL_RECORDS) if single else statement.not_covered
        return replace(statement, model=type(self).__name__, bounds=bounds, not_covered=others)

    def _roles(self) -> tuple[str | None, ...]:
        """Return the columns of a table that are no features, besides those of persons and weights."""
        return (self.schema.target,)

    def _features(self, features: int | Sequence[str]) -> list[str]:
        names = [f"x{j}" for j in range(features)] if isinstance(features, int) else list(features)
        return [*names, self._column]

    def _chances(self, X: Any) -> Vector:
        """Return the probability of label 1 for each row of new records, shape (n, levels)."""
        check_is_fitted(self)
        self.model_.extrapolation = self.extrapolation
        return self.model_.predict_proba(self._new_rows(X))[:, 1].reshape(-1, len(self._levels()))

    @property
    def _slopes(self) -> NDArray[np.bool_]:
        """Which coefficients of the rows are those of features."""
        own = {f"{self._column}={level}" for level in self._levels()}
        return np.array([name not in own for name in self.model_.coef_names_], dtype=bool)

    def _log_odds(self) -> Vector:
        """Return the coefficient of each level of the column of rows: its log-odds where features are 0."""
        check_is_fitted(self)
        both = np.append(self.model_.coef_, self.model_.intercept_)
        found: Vector = (self._matrix() @ both)[[-1, *range(len(self._levels()) - 1)]]
        return found

    def _matrix(self) -> Vector:
        """Return the map from the coefficients of ``model_``, the intercept last, to those of the table.

        Coefficients of all levels but the first come first, then slopes, then that of the first level.
        """
        names = [*map(str, self.model_.coef_names_)]
        axes = np.eye(len(names) + 1)
        by_name = dict(zip(names, axes, strict=False))
        zero = np.zeros(len(names) + 1)
        levels = [
            self._sign * (axes[-1] + by_name.get(f"{self._column}={level}", zero)) for level in self._levels()
        ]
        return np.array([*levels[1:], *axes[:-1][self._slopes], levels[0]])

    def _terms(self) -> ModelTerms:
        """Return the names of the coefficients of the table."""
        whole = self.model_.summary().terms
        names, moved = self._level_names()[1:], len(self._levels()) - 1
        kept = [name for name, slope in zip(whole.names, self._slopes, strict=True) if slope]
        place = {name: moved + j for j, name in enumerate(kept)}
        columns = [
            (label, [place[whole.names[j]] for j in features], baseline)
            for label, features, baseline in whole.columns
            if label != self._column
        ]
        return replace(whole, names=(*names, *kept), columns=((self._column, range(moved), ""), *columns))


def _of_each_row(cells: Any, rows: ExpandedRows, name: str) -> NDArray[Any]:
    """Return the entry of each row's record."""
    found = native_array(cells)
    if len(found) * len(rows.levels) != len(rows.labels):
        raise WrongValue(f"X and {name} must have the same number of rows.")
    each: NDArray[Any] = found[rows.ids]
    return each
