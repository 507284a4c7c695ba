"""Methods of estimators that need no data: the plan of a fit, and a forecast of its standard errors."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
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
    from dpcvx.estimators.power import PowerForecast

__all__ = ["Forecasts"]


class Forecasts(Planning):
    """The part of an estimator that answers before there are data."""

    def _declare(self, dataset: Dataset, n: int) -> FitDeclaration:
        """Declare a fit to n such records, from public facts."""
        raise NotImplementedError

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
