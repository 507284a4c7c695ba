"""Methods of estimators that need no data: the plan of a fit, and a forecast of its standard errors."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from dpcvx.accounting import REPLACE_ONE, WEIGHT, Neighbours
from dpcvx.data.dataset import Dataset, InMemory
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators.planning import FitDeclaration, Planning
from dpcvx.plans import Plan
from dpcvx.words import is_number, show

if TYPE_CHECKING:
    from dpcvx.estimators.assumptions import Assumptions
    from dpcvx.estimators.power import PowerForecast

__all__ = ["Forecasts"]


class Forecasts(Planning):
    """The part of an estimator that answers before there are data."""

    def _declare(self, dataset: Dataset, n: int) -> FitDeclaration:
        """Declare a fit to n such records, from public facts."""
        raise NotImplementedError

    def plan(
        self,
        n: int,
        features: int | Sequence[str],
        *,
        targets: int = 1,
        assumed: Mapping[str, Any] | None = None,
    ) -> Plan:
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
        assumed : mapping, optional
            Known facts of the records, by their keyword of `power`, such as ``{"share": 0.05}``. The note on
            standard errors that noise will hide uses them. They change nothing else.

        Returns
        -------
        Plan
            The plan that ``fit`` would make for such records; ``print`` it.
        """
        dataset = self._without_records(n, features, targets)
        made = self._declare(dataset, n * dataset.neighbours.rows)
        return self._with_notes(dataset, made, assumed or {}).plan

    def _with_notes(
        self, dataset: Dataset, made: FitDeclaration, assumed: Mapping[str, Any] = MappingProxyType({})
    ) -> FitDeclaration:
        """Return a declared fit whose plan says if noise will probably hide its standard errors.

        `assumed`: known facts of the records, as for `plan`.
        """
        share = made.plan.solver.hessian_share
        if share is None:
            return made
        from dpcvx.estimators.hidden_errors import with_hidden_note

        twin = clone(self).set_params(ledger=None, account=None, uncertainty=share)

        def again(n: int, epsilon: float) -> FitDeclaration:
            found: FitDeclaration = twin.set_params(epsilon=epsilon)._declare(dataset, n)
            return found

        return with_hidden_note(self, made, again, self._assumptions(**assumed))

    def power(
        self,
        n: int,
        features: int | Sequence[str],
        *,
        deviations: Mapping[Any, float] | None = None,
        shares: Mapping[Any, Any] | None = None,
        correlation: float | None = None,
        target_deviation: float | None = None,
        target_mean: float | None = None,
        r2: float = 0.3,
        share: float | None = None,
        mean_weight: float | None = None,
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
        shares : mapping from column to float or mapping, optional
            Share of ones of columns with bounds (0, 1), which are taken to be 0 or 1 (by default 0.15), share
            of the last of two levels, or a mapping from levels to shares.
        correlation : float, optional
            Of neighbouring columns, by default 0.5; that of others falls as its powers.
        target_deviation : float, optional
            Standard deviation of the target; a tenth of the width of ``y_bounds`` by default.
        target_mean : float, optional
            Mean of a count or an amount; 0.6 of its standard deviation by default.
        r2 : float
            Share of the target's variance that the features explain; for regressions.
        share : float, optional
            Share of the second class, for classifiers; by default 0.2.
        mean_weight : float, optional
            Mean of survey weights, in the units of ``weight_bounds``; by default a tenth of the largest.
        level, power : float
            Level of intervals and tests, and probability with which the smallest effect is found.

        Returns
        -------
        PowerForecast
            ``print`` it; ``std_err``, ``up_to`` (with cautious assumptions), ``multiple``,
            ``smallest_effect``, ``seen_with`` (records or epsilon at which noise hides nothing), and
            ``needed(width, name)``: the number of records, or the epsilon, for an interval of a wanted width.
        """
        from dpcvx.estimators.power import forecast

        if not self.uncertainty:
            raise Incompatible(
                "Standard errors need a share of the budget: give uncertainty=0.2 to predict them."
            )
        for name, value in (("level", level), ("power", power)):
            if not is_number(value, 0, 1):
                raise WrongValue(f"{name} must be between 0 and 1, got {show(value)}.")
        dataset = self._without_records(n, features, 1)
        twin = clone(self).set_params(ledger=None, account=None)
        twin._several_rows = self._several_rows

        def declare(records: int, epsilon: float) -> FitDeclaration:
            twin.set_params(epsilon=epsilon)
            made: FitDeclaration = twin._declare(dataset, records * dataset.neighbours.rows)
            return made

        assumed = self._assumptions(
            deviations, shares, correlation, target_deviation, target_mean, r2, share, mean_weight
        )
        return forecast(twin, declare, n, float(self.epsilon or 0), assumed, level=level, power=power)

    def _assumptions(
        self,
        deviations: Mapping[Any, float] | None = None,
        shares: Mapping[Any, Any] | None = None,
        correlation: float | None = None,
        target_deviation: float | None = None,
        target_mean: float | None = None,
        r2: float = 0.3,
        share: float | None = None,
        mean_weight: float | None = None,
    ) -> Assumptions:
        """Return the assumptions that the keywords of `power` stand for."""
        from dpcvx.estimators.assumptions import Assumptions

        given: dict[str, Any] = {
            "correlation": correlation,
            "target": target_deviation,
            "mean": target_mean,
            "share": share,
        }
        if mean_weight is not None:
            if self.weight_bounds is None:
                raise Incompatible("mean_weight needs weight_bounds: without them rows have no weights.")
            if not is_number(mean_weight, 0):
                raise WrongValue(f"mean_weight must be a positive number, got {show(mean_weight)}.")
            given["mean_weight"] = mean_weight / float(np.max(self.weight_bounds))
        known = {name: value for name, value in given.items() if value is not None}
        return Assumptions(deviations or {}, shares or {}, r2=r2, **known)

    def _without_records(self, n: int, features: int | Sequence[str], targets: int) -> InMemory:
        """Return a data set of one missing row, which has the columns of a plan's records."""
        if not (isinstance(n, numbers.Integral) and isinstance(targets, numbers.Integral)):
            raise WrongType(
                "A plan reads no records: give their number and that of the columns, or the columns' names, "
                "such as plan(len(X), X.shape[1])."
            )
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

    def _planned_neighbours(self) -> Neighbours:
        """Return the neighbouring relation of a plan without data, from the parameters."""
        if any(each is not None for each in (self.person, self.persons, self.max_rows)):
            return Neighbours("replace", "person", self.max_rows or 1, WEIGHT)
        return REPLACE_ONE if self.weight_bounds is None else Neighbours(weight=WEIGHT)
