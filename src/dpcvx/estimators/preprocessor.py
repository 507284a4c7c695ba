"""Private preprocessing of tables: scikit-learn's transformers, by declared numbers or released ones."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpcvx.accounting import Budget, Tight, default_delta, gaussian_mu, spendable, warn_of_delta
from dpcvx.arrays import Vector
from dpcvx.data.bins import COARSE, FINE, CellsInBins, quantiles_of
from dpcvx.data.column_maps import IDENTITY, ColumnMap, MapRequest, each_map
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import DeclaredRows, InMemory
from dpcvx.data.declarations import AUTO, Declarations, check_schema, is_map_of_columns
from dpcvx.data.levels import DECLARED
from dpcvx.data.row_map import RowMap
from dpcvx.data.table import Table
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.estimators.new_rows import open_new_rows
from dpcvx.estimators.private_maps import TailRule
from dpcvx.ledger import Ledger
from dpcvx.mechanisms import NoisyBinCounts
from dpcvx.noise import generator_of
from dpcvx.plans import Stage
from dpcvx.plans.execution import charge
from dpcvx.plans.price import Price
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.words import is_number, show

__all__ = ["PrivatePreprocessor"]

QUARTILES = (0.25, 0.5, 0.75)
NORMAL_QUARTILES = 1.3489795003921634  # distance of the quartiles of a normal law, in standard deviations


class PrivatePreprocessor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scaling, logarithms, quantile maps, ramps, imputation, one-hot and hashing inside a privacy guarantee.

    Without ``epsilon`` it is a step of a ``Pipeline`` directly before a private estimator: it passes rows and
    declarations on, and the fit of the estimator covers both, with one plan, one budget and one statement.

    With ``epsilon`` it is a private transformer of its own. One noisy histogram of each column of numbers
    gives the numbers of its map, the median that missing cells take, and the quartiles that it is scaled by.
    ``epsilon=0`` releases nothing and uses declarations alone. The transformed rows are as private as the
    rows themselves.

    Parameters
    ----------
    bounds : pair, pair of arrays or mapping from column to pair
        Bounds of the columns of numbers, from public knowledge.
    categories : mapping from column to levels, optional
        Declared levels; each becomes a 0/1 feature.
    schema : TableSchema, optional
        Declaration of the table, in place of bounds and categories: hashed text, dates, missing values too.
    maps : mapping from column to map, one map for all columns of numbers, "auto" or None
        As for the estimators; "auto" maps columns with long tails.
    epsilon : float, optional
        None for a step of a pipeline; 0 for declarations alone; otherwise the privacy loss of this release.
    delta : float, optional
        By default min(1/n^2, 1e-5).
    ledger, account : optional
        Where the release is charged, before a record is read.
    random_state : None or int
        None draws noise cryptographically. Anything else is for tests: the statement is stamped NOT PRIVATE.

    Attributes
    ----------
    bounds_ : pair of arrays
        Lowest and highest value of each feature, for ``bounds`` of an estimator; where there is an epsilon.
    privacy_statement_ : PrivacyStatement
        Statement of the release; where epsilon is positive.
    """

    def __init__(
        self,
        *,
        bounds: Any = None,
        categories: Mapping[Any, Sequence[Any]] | None = None,
        schema: Any = None,
        maps: Any = AUTO,
        epsilon: float | None = None,
        delta: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.bounds = bounds
        self.categories = categories
        self.schema = schema
        self.maps = maps
        self.epsilon = epsilon
        self.delta = delta
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the numbers of the maps, or check the columns where nothing is released.

        Parameters
        ----------
        X : array-like or pandas / polars / Arrow table, shape (n, d)
            One row per person.
        y : ignored
        """
        check_schema(self.schema)
        self.transforms_ = self.epsilon is not None
        if self.epsilon is None:
            validate_data(self, Table(X).header(), skip_check_array=True)
            return self
        dataset = InMemory(X, np.zeros(0), self.schema)
        validate_data(self, dataset.table.header(), skip_check_array=True)
        if self.epsilon != 0 and not is_number(self.epsilon, 0, math.inf):
            raise WrongValue(f"epsilon must be None, 0 or a positive number, got {show(self.epsilon)}.")
        stated = Declarations.of(self).resolved(dataset.table.schema, DECLARED)
        if stated.bounds is None or isinstance(stated.bounds, str) or dataset.table.sparse:
            raise WrongValue(
                "PrivatePreprocessor needs dense rows and bounds of the columns of numbers, from public "
                "knowledge: a pair (low, high), a pair of arrays, or a mapping from column to pair."
            )
        plain = Columns.declare(dataset.table, stated.bounds, stated.categories, None, stated.missing)
        maps = stated.map_of_each(dataset.table)
        numbers = [j for j, levels in enumerate(plain.levels) if levels is None]
        quartiles: dict[int, Vector] = {}
        if self.epsilon == 0 or not numbers:
            if private := [plain.labels()[j] for j, each in maps.items() if isinstance(each, MapRequest)]:
                raise Incompatible(
                    f"Maps of {', '.join(private)} need an epsilon: their numbers are released."
                )
        else:
            if self.maps == AUTO or is_map_of_columns(self.maps):
                maps = {**dict.fromkeys(numbers, TailRule()), **maps}
            maps, quartiles = self._release(dataset, plain, maps, numbers)
        given = {j: each for j, each in maps.items() if each != IDENTITY}
        firsts = [span[0] for span in plain.spans()]
        columns = Columns.declare(
            dataset.table,
            (plain.low[firsts], plain.high[firsts]),
            stated.categories,
            None,
            stated.missing,
            given,
        )
        self._publish(columns, stated, quartiles)
        return self

    def _release(
        self, dataset: InMemory, plain: Columns, maps: Mapping[int, Any], numbers: list[int]
    ) -> tuple[dict[int, ColumnMap], dict[int, Vector]]:
        """Pay for a histogram of each column of numbers; return maps and quartiles by position."""
        price, stage = self._price(dataset.n, len(numbers))
        rng = generator_of(self.random_state)
        warn_of_delta(price.budget.delta, dataset.n, stacklevel=3)
        receipt = charge(
            price,
            self.ledger,
            self.account,
            private=rng.private,
            purpose=f"{type(self).__name__} of {dataset.n} rows",
        )
        mechanism: Any = stage.mechanism
        binning = COARSE if mechanism.levels[0] == COARSE.edges + 2 else FINE
        firsts = [plain.spans()[j][0] for j in numbers]
        ends = {j: (float(plain.low[k]), float(plain.high[k])) for j, k in zip(numbers, firsts, strict=True)}
        edges = tuple(binning.between(*ends[j]) for j in numbers)
        counts = mechanism(CellsInBins(dataset.n, tuple(numbers), edges), dataset, rng)
        found, quartiles = dict(maps), {}
        for j, each, own in zip(numbers, np.split(counts, len(numbers)), edges, strict=True):
            low, high = ends[j]
            quartiles[j] = quantiles_of(each, own, high, QUARTILES)
            if isinstance(maps.get(j), MapRequest):
                request = maps[j]
                found[j] = request.released(quantiles_of(each, own, high, request.ranks), low, high)
        self.privacy_statement_ = PrivacyStatement.of(
            price,
            model=type(self).__name__,
            private=rng.private,
            bounds={
                "bounds": {"low": [ends[j][0] for j in numbers], "high": [ends[j][1] for j in numbers]},
                "enforced": "cells are counted in public bins between their bounds, one bin for cells that "
                "are no numbers",
            },
            public={"n": dataset.n, "released": "numbers of the maps, medians and quartiles"},
            receipt=receipt,
        )
        return found, quartiles

    def plan(self, n: int, numbers: int) -> Price:
        """Return the price of a release, without data.

        Parameters
        ----------
        n : int
            Number of records.
        numbers : int
            Number of columns of numbers.
        """
        return self._price(n, numbers)[0]

    def _price(self, n: int, numbers: int) -> tuple[Price, Stage]:
        from dpcvx.estimators.private_maps import FINE_NOISE

        delta = default_delta(n) if self.delta is None else float(self.delta)
        budget = Budget(float(self.epsilon or 0), delta)
        paid = spendable(budget)
        multiplier = 1 / gaussian_mu(paid.epsilon, paid.delta)
        coarse, fine = (
            NoisyBinCounts(n, 0, (each.edges + 2,) * numbers, multiplier) for each in (COARSE, FINE)
        )
        stage = Stage(fine if fine.noise <= FINE_NOISE * n else coarse, 1)
        mechanism = stage.mechanism
        price = Price(mechanism.event, (stage.description,), mechanism.failure, budget, Tight())
        price.check_samplers()
        price.check_budget()
        return price, stage

    def _publish(self, columns: Columns, stated: Declarations, quartiles: Mapping[int, Vector]) -> None:
        """Set the fitted map: features, then (v - center) / scale of single ones."""
        center, scale, fill = np.zeros(columns.width), np.ones(columns.width), columns.fill.copy()
        maps, spans = each_map(columns.maps, len(columns.levels)), columns.spans()
        for j, levels in enumerate(columns.levels):
            if levels is not None:
                continue
            own = spans[j]
            if j in quartiles and columns.names[own[0]] not in stated.missing:
                fill[own] = maps[j](quartiles[j][1:2])[0]
            if len(own) == 1:  # ramps are between 0 and 1 already
                first, middle, third = (
                    maps[j](quartiles[j])[:, 0] if j in quartiles else (columns.low[own[0]], 0.0, 0.0)
                )
                spread = (third - first) / NORMAL_QUARTILES if j in quartiles else 0.0
                center[own] = middle if spread > 0 else columns.center[own]
                scale[own] = spread if spread > 0 else columns.scale[own]
        self._center, self._scale = center, scale
        self._row_map = RowMap(
            columns.levels,
            columns.maps,
            columns.names,
            fill,
            (columns.low, columns.high),
            None,
            stated.schema,
        )
        self.bounds_ = (columns.low - center) / scale, (columns.high - center) / scale

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and return the features; without ``epsilon`` the rows with what is declared of them."""
        self.fit(X, y)
        if self.epsilon is not None:
            return self.transform(X)
        declared = {
            name: getattr(self, name)
            for name in ("bounds", "categories", "schema", "maps")
            if getattr(self, name) is not None
        }
        return DeclaredRows(X, declared)

    def transform(self, X: Any) -> Any:
        """Return the features of rows, shape (n, features); without ``epsilon`` the rows as they are."""
        check_is_fitted(self)
        if not self.transforms_:
            return X
        features: Vector = self._row_map.features(open_new_rows(self, X, self._row_map.schema))
        return (features - self._center) / self._scale

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features; without ``epsilon`` the names of the columns."""
        check_is_fitted(self)
        if self.transforms_:
            return np.array(self._row_map.names, dtype=object)
        names = getattr(self, "feature_names_in_", None)
        return np.array(
            [f"x{j}" for j in range(self.n_features_in_)] if names is None else names, dtype=object
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags
