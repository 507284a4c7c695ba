"""The fitting path of all linear estimators: declare, plan, quantise, execute, return to the user's units.

Estimators hold no mathematics. Everything before quantisation uses parameters, names and shapes alone, so no
record can cause an error, or change what is published other than through the noised answers.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dpcvx.accounting import warn_of_delta
from dpcvx.arrays import Vector
from dpcvx.data import DataSource, Quantiser
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import Dataset, InMemory, open_dataset
from dpcvx.data.declarations import AUTO, Declarations, is_map_of_columns
from dpcvx.data.levels import COMPARED, WHOLE
from dpcvx.data.public_rows import split_public
from dpcvx.data.target import Target, open_target, read_one
from dpcvx.data.units import Units
from dpcvx.errors import (
    Interrupted,
    PrivacyLeakWarning,
    UnrecognisedDataWarning,
    UselessModelWarning,
    WrongValue,
)
from dpcvx.estimators.comparison import compare_levels
from dpcvx.estimators.data_check import DataCheck, release_check
from dpcvx.estimators.fit_facts import bounds_facts, public_facts, share_facts
from dpcvx.estimators.forecasts import Forecasts
from dpcvx.estimators.intervals import Intervals
from dpcvx.estimators.opening import map_columns, open_fit_data, plain_columns
from dpcvx.estimators.planning import AUTOMATIC, MAY_HIDE, SAY_NOTHING, FitDeclaration
from dpcvx.estimators.private_bounds import (
    RELEASED,
    is_private,
    private_columns,
    release_declarations,
    with_placeholders,
)
from dpcvx.estimators.private_maps import automatic_maps, is_histogram, paid_maps, place_maps, release_maps
from dpcvx.estimators.progress import ProgressReport
from dpcvx.estimators.public_rows import UNUSED, public_columns, release_columns
from dpcvx.estimators.refusals import check_parameters, check_target, check_units, refuse_metadata
from dpcvx.noise import Generator, generator_of
from dpcvx.planning.outlook import warn_if_useless
from dpcvx.plans import Answers, Checkpoint, Plan, Release, execute
from dpcvx.plans.statement import PrivacyStatement, doubts_about_data

__all__ = ["LinearModel", "check_records", "declare_fit", "fit_silently"]

VALIDATION_WARNING = (
    "A cross-validation or search of scikit-learn scores this fit by plain metrics of the rows it is given, "
    "and hands groups to its splitter alone. On private rows the scores, and a choice that follows them, are "
    "releases that no privacy statement covers; use PrivateSearchCV or private_score, or rows that may be "
    "published."
)


class LinearModel(Forecasts, Intervals, BaseEstimator):  # type: ignore[misc]
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
            not numbers count as the released mean of their column in standardised fits, and as the middle of
            their bounds in others (sparse records, and with ``data_norm``: as 0); cells beyond the bounds are
            clipped.
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
        check_target(self, X, y)
        with ProgressReport(self._told_as or type(self).__name__, shown=bool(self.verbose)) as progress:
            progress.step("planning")
            dataset = self._open_data(X, y, groups, sample_weight)
            made = self._with_notes(dataset, self._declare(dataset, dataset.n))
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
        for found in doubts_about_data(self.privacy_statement_.bounds):
            warnings.warn(found, UnrecognisedDataWarning, stacklevel=2)
        if _is_validated():
            self._leak_warned = True  # score would say the same
            warnings.warn(VALIDATION_WARNING, PrivacyLeakWarning, stacklevel=2)
        return self

    _told_as: str = ""  # name of the estimator in the history of the ledger, if it is another one

    def _open_data(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Dataset:
        """Open the data of a fit."""
        return open_fit_data(self, X, y, groups, sample_weight)

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
            if made.public is not None:
                public, columns = release_columns(plan.before, made.public, dataset, made.columns, answers)
                made = dataclasses.replace(made, public=public, columns=columns)
            if private_columns(made.stated, made.plain, made.target):
                made = self._with_released_bounds(dataset, made, answers)
            if any(map(is_histogram, plan.before)):
                maps = release_maps(plan.before, made.maps, dataset, made.plain, made.target, answers)
                columns = map_columns(dataset.table, made.stated, made.plain, maps)
                made = dataclasses.replace(made, maps=maps, columns=columns)
            # Standardisation makes the intercept's feature itself, after the rows have been centred.
            stored = 0.0 if plan.solver.standardises else made.intercept
            quantiser = Quantiser(plan.problem.bounds, made.columns.center, made.columns.scale, stored)
            return dataset.source(made.columns, quantiser, made.target, plan.layout)

        described = _describe(checkpoint, self, made)
        name, unit = self._told_as or type(self).__name__, plan.budget.neighbours.noun
        release = execute(
            plan,
            records,
            rng=rng,
            ledger=self.ledger,
            account=self.account,
            purpose=f"fit of {name} to {dataset.n} {unit}s",
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
        plain = plain_columns(table, found)
        columns = map_columns(table, found, plain, place_maps(made.maps, plain))
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
        neighbours = plan.budget.neighbours
        warn_of_delta(plan.budget.delta, plan.n // neighbours.rows, neighbours.noun, stacklevel=3)
        for note in plan.notes:
            if note.startswith(UNUSED):
                warnings.warn(f"{note[0].upper()}{note[1:]}.", UserWarning, stacklevel=3)

        def again(n: int, epsilon: float) -> Plan:
            return self._plan_fit(n, facts, epsilon, dataset, made.maps)[0]

        rule = type(self), self.delta, self.n_iter, self.standardize, plan.budget.neighbours
        unbounded = dataset.table.sparse and made.stated.data_norm is None
        warn_if_useless(plan, again, rule, sparse=unbounded, stacklevel=3)
        for note in plan.notes:
            if SAY_NOTHING in note or note.startswith(MAY_HIDE):
                warnings.warn(f"{note[0].upper()}{note[1:]}.", UselessModelWarning, stacklevel=3)

    def _declare(self, dataset: Dataset, n: int) -> FitDeclaration:
        """Declare a fit to n such records, from public facts."""
        stated = Declarations.of(self).with_data(dataset.declarations, self)
        stated = stated.resolved(dataset.table.schema, self._encoding(dataset))
        check_parameters(self, stated)
        table = dataset.table
        placed = with_placeholders(stated, dataset, getattr(self, "threshold", None))
        values = self._open_target(dataset.target, table.n)
        plain = plain_columns(table, placed)
        maps = self._requested_maps(n, stated, plain, dataset)
        columns = map_columns(table, placed, plain, place_maps(maps, plain))
        if not getattr(dataset, "marks_missing", True):
            columns = columns.unmarked()
        if isinstance(stated.classes, str):  # "from_y": their set is public
            values = self._read_target(dataset.labels())
        target = self._declare_target(placed, values)
        if self.uncertainty:
            check_units(columns, target)
        facts = stated, columns, target
        plan, intercept = self._plan_fit(n, facts, float(self.epsilon or 0), dataset, maps)
        maps = paid_maps(plan.before, maps)
        units = getattr(dataset, "units", None)
        stored = {} if units is None else units.facts
        stored = {**stored, **getattr(dataset, "facts", {})}
        public = public_columns(plan.before, self.public, stated.data_norm, dataset, columns)
        return FitDeclaration(
            stated, plain, columns, target, plan, intercept, maps=maps, public=public, stored=stored
        )

    def _plan_fit(
        self,
        n: int,
        fit: tuple[Declarations, Columns, Target],
        epsilon: float,
        dataset: Dataset,
        maps: Mapping[int, Any],
    ) -> tuple[Plan, float]:
        if not self._chooses_share:
            return super()._plan_fit(n, fit, epsilon, dataset, maps)
        from dpcvx.estimators.hidden_errors import plan_with_best_share

        return plan_with_best_share(self, *_simulation(n, fit, epsilon, dataset, maps))

    @property
    def _chooses_share(self) -> bool:
        """Whether the share of the budget for standard errors is left to the planner."""
        return self.uncertainty is True or self.uncertainty == AUTOMATIC

    def _requested_maps(
        self, n: int, stated: Declarations, columns: Columns, dataset: Dataset
    ) -> dict[int, Any]:
        """Return the maps of numbers by position, and requests for maps that the fit is to release.

        `n`: number of records; `columns`: declared without maps; `dataset`: only its kind is used.
        """
        maps = stated.map_of_each(dataset.table)
        # Standard errors are of coefficients of the columns as they are.
        free = self.maps == AUTO or is_map_of_columns(self.maps)
        fixed = not free or is_private(stated.bounds) or stated.data_norm is not None
        fixed = fixed or (stated.schema is not None and stated.schema.formula is not None)
        # A score fitted to public rows is one of columns as they are.
        fixed = fixed or split_public(self.public)[1] is not None
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

    def _units(self, release: Release, target: Target) -> tuple[Any, Any, dict[str, Any]]:
        """Centre and scale of scores in the user's units, and entries of the statement about the target."""
        return target.center, target.scale, target.facts

    def _variance_unit(self, release: Release, target: Target, spread: Any) -> float:
        """One unit of the released dispersion in the user's units; `spread`: of scores."""
        return float(spread) ** 2

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
            bounds=(columns.low, columns.high) if made.releases_bounds else None,
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
                lambda theta: np.append(*in_units(theta)), self._variance_unit(release, target, spread)
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
                **bounds_facts(made),
                **({"pooled": [columns.names[j] for j in pooled]} if len(pooled) else {}),
                **share_facts(made, release.region),
                **facts,
                **made.stored,
            },
            public=self._public_facts(release.plan, columns, intercept),
            receipt=release.receipt,
        )

    def _public_facts(self, chosen: Plan, columns: Columns, intercept: float) -> dict[str, Any]:
        return public_facts(chosen, columns, intercept, n_iter=self.n_iter_, delta=self.delta)

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


def _simulation(
    n: int,
    fit: tuple[Declarations, Columns, Target],
    epsilon: float,
    dataset: Dataset,
    maps: Mapping[int, Any],
) -> tuple[Any, Any]:
    """Return how a simulated fit is declared, and planned for another share of the budget."""

    def declared(plan: Plan, intercept: float) -> FitDeclaration:
        return FitDeclaration(fit[0], fit[1], fit[1], fit[2], plan, intercept, maps=maps)

    return declared, lambda model: model._plan_fit(n, fit, epsilon, dataset, maps)


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
    if made.public is not None:
        about += (made.public.columns,)
    if made.stated.schema is not None:  # how cells are read
        about += (made.stated.schema.to_toml(),)
    return dataclasses.replace(checkpoint, about=about)
