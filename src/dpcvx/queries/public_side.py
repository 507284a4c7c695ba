"""The public side of the engine: released numbers, and the answers and error bounds that follow from them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible
from dpcvx.queries.answer_intervals import standard_errors
from dpcvx.queries.attribute_codes import allowed_cells, has_mean, missing_cells
from dpcvx.queries.chosen_pairs import estimate_pairs
from dpcvx.queries.compiled import CompiledMeans, CompiledQuery, CompiledRegression
from dpcvx.queries.engine_plan import EnginePlan
from dpcvx.queries.error_bars import (
    Bound,
    PropagatedNoise,
    curvature_and_sampling,
    least_errors,
    mean_bound,
    propagate,
    reach,
    released_table,
    table_estimate,
)
from dpcvx.queries.histogram import Histogram
from dpcvx.queries.joint_shrinkage import shrink_together, worth_shrinking
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.marginals import Measurement, NoisyMarginals
from dpcvx.queries.mean_errors import interaction_variance
from dpcvx.queries.measuring import MeasuredAnswer
from dpcvx.queries.mechanisms import NoisyHistogram, PublicAnswer
from dpcvx.queries.multiplicative_weights import agree, listed_functions, log_factor, step_size
from dpcvx.queries.number_errors import BinErrors, MeanOfBins
from dpcvx.queries.query import Count, Mean
from dpcvx.queries.readings import Reading
from dpcvx.queries.regression import Regression
from dpcvx.queries.schema import Binned, Column
from dpcvx.queries.transcript import arrays, measurements, pack, pack_measurements
from dpcvx.queries.wide_check import WideAnswer
from dpcvx.queries.wide_regression import WideRegression
from dpcvx.solvers.defaults import default

if TYPE_CHECKING:
    from dpcvx.queries.passes import Passes

__all__ = ["PublicSide"]

MANY_MISSING: float = default("queries.public_side.MANY_MISSING")
CONSTANTS = np.linspace(-6.0, 6.0, 241)  # scores among which the best constant is looked for
SEEN = 2.0  # people of a level are visible if its noisy share is above this many standard deviations
EXACT = 1e-4  # standard deviation of a mean that is not shrunk
SIGNIFICANT = 3.0  # standard deviations of a sum of squares above its mean
MEANS = b"means"  # begins a lesson that consists of measured means
WIDE = b"wide"  # begins a lesson that is the measured answer to a regression on very many cells


class PublicSide:
    """Holds what was released: the histogram, what it learnt, and how much noise there is in it.

    `plan`: of the engine; `passes`: over the cells of the histogram; `start`: the first release as written
    down; `chosen`: the released means of chosen pairs, if pairs are chosen. Everything here is computed from
    released numbers.
    """

    def __init__(
        self, plan: EnginePlan, passes: Passes, start: bytes, chosen: Sequence[Measurement] = ()
    ) -> None:
        self._plan, self._passes = plan, passes
        self.updates = 0  # lessons so far, with those that changed nothing
        self._certificates = 0  # lessons that are certificates of an error
        self._measured: list[tuple[Measurement, ...]] = []
        self._measured_wide: dict[str, tuple[Vector, float]] = {}  # coefficients and expected error, by query
        self._shares: Vector | None = None  # as the first release gave them, before the projection
        self._base, self._warm = self._read_start(start, chosen)
        # most attributes in one statistic of the first release; 0 if there are no statistics
        self._order = max((len(m.attributes) for m in self._warm), default=0)
        self.histogram: Histogram | LocalModels = self._base
        self.bin_errors: dict[str, BinErrors] = {}  # of the numbers that stand for bins, by attribute
        self._local = self._base if isinstance(self._base, LocalModels) else None
        if self._local is None and any(len(m.attributes) > 1 for m in self._warm):
            self._local = LocalModels(plan.universe, self._warm)

    def marginal(self, compiled: CompiledQuery) -> Vector:
        """Return the shares of the cells that a query is about."""
        return self.histogram.marginal(compiled.attributes).ravel()

    def answer(self, compiled: CompiledQuery) -> tuple[PublicAnswer, PropagatedNoise]:
        """Answer from the histogram, and propagate the noise of all measurements to the answer."""
        if isinstance(compiled, WideRegression):
            return self._answer_wide(compiled)
        weights, deviation = self.marginal(compiled), 0.0
        if isinstance(self._plan.start, NoisyHistogram):
            deviation = self._plan.start.noise * math.sqrt(self._plan.universe.n_cells / len(weights))
        theta = compiled.answer(weights)
        public = PublicAnswer(compiled, theta)
        if self._plan.start is None or self._certificates:  # their errors are not propagated
            return public, PropagatedNoise(None, None)
        inside = self._local.inside(compiled.attributes) if self._local is not None else self._warm
        released = inside if not self._measured else self._warm, self._measured
        n, order = self._plan.n, self._order
        variance = interaction_variance(n, order) if order else 0.0  # a noisy histogram measures all cells
        noise = propagate(
            compiled, self.histogram, theta, *released, n=n, interactions=variance, cell_noise=deviation
        )
        if isinstance(compiled, CompiledMeans) and not self._is_corrected(compiled.attributes):
            noise = replace(noise, least=least_errors(compiled, inside))
        return public, noise

    def _is_corrected(self, attributes: Collection[int]) -> bool:
        """Whether a measurement after the first release contains all of some attributes."""
        return any(set(attributes) <= set(m.attributes) for each in self._measured for m in each)

    def mean_of_bins(self, compiled: CompiledQuery) -> MeanOfBins | None:
        """Return the errors of a mean due to binning; None for other queries."""
        return MeanOfBins.of(compiled, self._plan.universe.schema, self.bin_errors)

    def with_bin_errors(self, compiled: CompiledQuery, noise: PropagatedNoise) -> PropagatedNoise:
        """Add the errors due to binning to those of a mean.

        The error is not known if a single number, which was not measured, stands for all people.
        """
        found = self.mean_of_bins(compiled)
        if found is None:
            return noise
        if found.single:
            return PropagatedNoise(None, None)
        everyone = self.histogram.marginal(compiled.attributes[:1]).ravel()
        return replace(noise, bins=found.variances(self.marginal(compiled), everyone, self._plan.n))

    def unmeasured(self, compiled: CompiledQuery) -> tuple[str, ...]:
        """Return the interactions of a regression whose table with the target was not measured.

        A model of pairs shows almost no such interaction, even if the records have one.
        """
        query = compiled.description
        if not isinstance(query, Regression) or not isinstance(self._plan.start, NoisyMarginals):
            return ()
        names = self._plan.universe.schema.names
        found = []
        for pair in query.interactions:
            triple = {names.index(name) for name in (query.target, *pair)}
            if not self._is_measured(triple):
                found.append(":".join(pair))
        return tuple(found)

    def is_independent(self, compiled: CompiledQuery) -> bool:
        """Return whether a query has several attributes, of which no measured table contains two."""
        known = set(compiled.attributes)
        if self._order != 1 or len(known) < 2:
            return False
        return not any(len(known.intersection(m.attributes)) > 1 for each in self._measured for m in each)

    def is_blurred(self, compiled: CompiledQuery) -> bool:
        """Return whether a regression uses pairs that are estimated together, because noise hides many."""
        start = self._plan.start
        shrunk = isinstance(start, NoisyMarginals) and self._plan.choice is None and worth_shrinking(start)
        return isinstance(compiled, WideRegression) and shrunk

    def measured_pairs(self, compiled: CompiledQuery) -> tuple[int, int, int]:
        """Return how many pairs a query's attributes have, how many were measured, how many are independent.

        A pair is taken as independent if it was not measured and no chain of chosen pairs joins it. (0, 0, 0)
        unless the release chose the pairs that it measured.
        """
        if self._plan.choice is None:
            return 0, 0, 0
        pairs = list(combinations(sorted(set(compiled.attributes)), 2))
        others = [pair for pair in pairs if not self._is_measured(pair)]
        apart = sum(self._joined[a] != self._joined[b] for a, b in others)
        return len(pairs), len(pairs) - len(others), apart

    @cached_property
    def _joined(self) -> list[int]:
        """A number for each attribute; two have the same if a chain of chosen pairs joins them."""
        found = list(range(len(self._plan.universe.shape)))
        for m in self._warm:
            if len(m.attributes) == 2:
                a, b = (found[place] for place in m.attributes)
                found = [a if each == b else each for each in found]
        return found

    def _is_measured(self, attributes: Collection[int]) -> bool:
        """Whether a released or later measured table contains all of some attributes."""
        tables = (*self._warm, *(m for each in self._measured for m in each))
        return any(set(attributes) <= set(m.attributes) for m in tables)

    def hidden_levels(self, compiled: CompiledQuery) -> tuple[tuple[str, str], ...]:
        """Return the levels of a regression's features, as (attribute, label), at which nobody is visible.

        Without a condition by the first release: the noisy share of the level is below `SEEN` standard
        deviations of its noise. With a condition by the released number of people at the level who satisfy it
        and the predicted standard error of that number.
        """
        query, schema = compiled.description, self._plan.universe.schema
        if not isinstance(query, Regression) or self._plan.start is None:
            return ()
        found = []
        for name in query.features:
            attribute = schema[name]
            cells = [k for k in allowed_cells(attribute, query.where) if not self._is_bin(attribute, k)]
            labels = [attribute.labels[cell] for cell in cells]
            if query.where or not isinstance(self._plan.start, NoisyMarginals):
                seen = self._are_visible(name, [[each] for each in labels], query.where) if labels else []
            else:
                shares, noise = self._released_shares(name)
                seen = [float(shares[cell]) >= SEEN * noise for cell in cells]
            found += [(name, label) for label, visible in zip(labels, seen, strict=True) if not visible]
        return tuple(found)

    def hides_mean(self, compiled: CompiledQuery) -> bool:
        """Return whether too few people are visible who satisfy the condition of a mean."""
        query = compiled.description
        if not isinstance(query, Mean) or not query.where or self._plan.start is None:
            return False
        (name, labels), *others = query.where.items()
        return not self._are_visible(name, [labels], dict(others))[0]

    @staticmethod
    def _is_bin(attribute: Column, cell: int) -> bool:
        return isinstance(attribute, Binned) and cell not in missing_cells(attribute)

    def _are_visible(
        self, name: str, parts: Sequence[Sequence[str]], where: Mapping[str, Sequence[str]]
    ) -> list[bool]:
        """Whether numbers of people are above `SEEN` of their predicted errors, if these are known.

        `parts`: levels of the attribute for each number; `where`: a condition on other attributes.
        """
        schema, n = self._plan.universe.schema, self._plan.n
        counts = [Count({**where, name: part}).compile(schema, n) for part in parts]
        values = np.concatenate([each.gradients(np.zeros(1)) for each in counts], axis=1)
        first, k = counts[0], len(parts)
        names = tuple(map(str, range(k)))
        query = CompiledMeans(first.attributes, first.sizes, names, values, first.description)
        public, noise = self.answer(query)
        errors = standard_errors(Reading(names, np.eye(k), np.zeros(k)), noise)
        return [True] * k if errors is None else (public.theta >= SEEN * errors).tolist()

    def missing_targets(self, compiled: CompiledQuery) -> float:
        """Return the noisy share of people without a regression's target, or 0 if intervals hold anyway.

        Pairs of attributes do not show which combinations of features these people have. The result is 0 if
        noise of two standard deviations may be why their share, by the first release, is above
        `MANY_MISSING`, or if a measured table contains all attributes of the regression, as the pair of a
        single feature and the target does.
        """
        query = compiled.description
        if not isinstance(query, Regression) or not isinstance(self._plan.start, NoisyMarginals):
            return 0.0
        if len(compiled.attributes) < 3 or self._is_measured(compiled.attributes):
            return 0.0
        return self._share_without(query.target)

    @property
    def often_missing(self) -> dict[str, float]:
        """Noisy share of people without an attribute, where it is large enough to take intervals away.

        These are the attributes for which `missing_targets` is not 0 in regressions with so many features
        that no measured table contains all of them.
        """
        if not isinstance(self._plan.start, NoisyMarginals):
            return {}
        targets = filter(has_mean, self._plan.universe.schema.attributes)  # others are refused as targets
        shares = {each.name: self._share_without(each.name) for each in targets}
        return {name: share for name, share in shares.items() if share}

    def _share_without(self, name: str) -> float:
        """Return the noisy share of people without an attribute, 0 if noise may be why it is large."""
        shares, noise = self._released_shares(name)
        cells = missing_cells(self._plan.universe.schema[name])
        share = float(sum(shares[cell] for cell in cells))
        return share if share - 2 * noise * math.sqrt(len(cells)) > MANY_MISSING else 0.0

    def _released_shares(self, name: str) -> tuple[Vector, float]:
        """Return the noisy shares of an attribute's levels, and the standard deviation of their noise."""
        schema = self._plan.universe.schema
        position, size = schema.position(name), schema[name].size
        m = next(each for each in self._warm if tuple(each.attributes) == (position,))
        # Rows q of the contrasts have <q_i, q_j> = -1/(size - 1): their mean v has the shares below.
        shares: Vector = (1 + (size - 1) * (m.features[0] @ m.values)) / size
        return shares, m.deviation * (size - 1) / size

    def _answer_wide(self, compiled: WideRegression) -> tuple[PublicAnswer, PropagatedNoise]:
        """Answer a regression on very many cells from the released pairs."""
        if self._local is None:
            raise Incompatible(
                f"These attributes have {math.prod(compiled.sizes)} cells together, which is answered from "
                "released pairs only, and this engine has none: ask about fewer attributes."
            )
        theta, noise = compiled.fit(self._local)
        return PublicAnswer(compiled, theta), noise

    def measured_wide(self, compiled: CompiledQuery) -> MeasuredAnswer | None:
        """Return what was measured for the same regression on very many cells, if anything was."""
        found = self._measured_wide.get(_text(compiled))
        return None if found is None else MeasuredAnswer(found[0], (), found[1], None, None)

    def curvature_and_sampling(
        self, compiled: CompiledQuery, theta: Vector
    ) -> tuple[Vector | None, Vector | None]:
        """As in `error_bars`, at a measured answer; not known where cells are too many to list."""
        if isinstance(compiled, WideRegression):
            return None, None
        return curvature_and_sampling(compiled, self.marginal(compiled), theta, self._plan.n)

    def near(self, public: PublicAnswer, noise: PropagatedNoise) -> tuple[PublicAnswer, float]:
        """Return the answer over the neighbourhood in which its error is measured.

        The number is a lower bound on the error there over the error over the whole set.
        """
        query, theta = public.query, public.theta
        if isinstance(query, WideRegression):
            part = reach(query.problem, noise)
            return WideAnswer(query, theta, part), part
        if not isinstance(query, CompiledRegression) or not isinstance(self._plan.start, NoisyMarginals):
            return public, 1.0
        part = reach(query.problem, noise)
        return PublicAnswer(query.near(theta, part), theta), part

    def proved(self, public: PublicAnswer, below: float) -> Bound | None:
        """Return the smallest bound on the error of a histogram answer that some argument proves, if any.

        Comparisons prove that the error, as an excess loss, is at most ``below``. For a mean over a condition
        that says nothing: its excess loss is weighted by the share of the condition among the records, which
        is not known.
        """
        query, found = public.query, []
        by_bins = self.mean_of_bins(query)
        table = table_estimate(query, self._warm)
        if self._shares is not None and isinstance(self._plan.start, NoisyHistogram):
            table = released_table(query, self._shares, self._plan.universe.shape, self._plan.start.noise)
        if isinstance(query, CompiledRegression) and query.units is not None:
            if table is None:
                return None
            distances = None if by_bins is None else by_bins.distances
            error = mean_bound(query, table, self.marginal(query), public.theta, distances)
            return Bound("noise", np.array([error])) if error < 2 else None  # 2 is the whole range
        if isinstance(query, CompiledMeans):
            farthest = 0.0 if by_bins is None else float(by_bins.distances.max())
            if table is not None:
                found.append(Bound("noise", table.bound(query, public.theta) + farthest))
            found.append(Bound("comparison", np.full(len(query.names), below) + farthest))
        elif isinstance(query, CompiledRegression | WideRegression):
            found.append(Bound("comparison", np.array([below]), is_excess=True))
        most = query.scale
        if isinstance(query, CompiledRegression | WideRegression):
            most = min(most, self._constant_loss(query))
        return min((each for each in found if each.error < most), key=lambda b: b.error, default=None)

    def _constant_loss(self, query: CompiledRegression | WideRegression) -> float:
        """Return the loss of the best constant prediction by the histogram.

        A bound on an excess loss that is above it says nothing: a constant has no more excess.
        """
        if isinstance(query, WideRegression):
            shares = self.histogram.marginal(query.attributes[:1]).ravel()
            weights, y, loss = shares * query.present, query.target, query.problem.loss
        else:
            weights, y, loss = self.marginal(query) * query.X.any(axis=1), query.y, query.rounded_loss
        values = np.unique(y)
        parts = np.array([weights[y == value].sum() for value in values])
        return min(float(parts @ loss.value(np.full(len(values), c), values)) for c in CONSTANTS)

    def shows_error(self, measured: MeasuredAnswer) -> bool:
        """Return whether measured means differ from the histogram by more than noise explains.

        Otherwise the histogram would be fitted to the noise of the means.
        """
        square, freedom = 0.0, 0
        for m in measured.group:
            found = self.histogram.marginal(m.attributes).ravel() @ listed_functions(m)
            square += float((((found - m.values) / m.deviation) ** 2).sum())
            freedom += len(m.values)
        return not freedom or square > freedom + SIGNIFICANT * math.sqrt(2 * freedom)

    def lesson(self, compiled: CompiledQuery, theta: Vector, measured: MeasuredAnswer) -> bytes:
        """Encode an update of the histogram: all measured means, or the certificate if there are none."""
        if isinstance(compiled, WideRegression):
            query = np.frombuffer(_text(compiled).encode(), dtype=np.uint8).astype(np.float64)
            return WIDE + pack(query=query, theta=measured.theta, error=np.array(measured.error))
        if measured.group and self._plan.split.method != "multiplicative_weights":
            return MEANS + pack_measurements(measured.group)
        step = step_size(self._plan.universe.n_cells, self._plan.split.updates)
        factor = log_factor(compiled, theta, measured.theta, step=step)
        return pack(attributes=np.array(compiled.attributes), factor=factor)

    def learn(self, lesson: bytes) -> None:
        """Update the histogram by a lesson; an empty one counts as an update alone."""
        self.updates += 1
        if lesson.startswith(MEANS):
            self._measured.append(measurements(lesson[len(MEANS) :]))
            if isinstance(self._base, LocalModels):
                self.histogram = self._base.corrected(self._measured)
            else:
                self.histogram = agree(self._base, self._measured)
        elif lesson.startswith(WIDE):
            stored = arrays(lesson[len(WIDE) :])
            query = stored["query"].astype(np.uint8).tobytes().decode()
            self._measured_wide[query] = stored["theta"], float(stored["error"])
        elif lesson:
            self._certificates += 1
            stored = arrays(lesson)
            where = tuple(stored["attributes"].tolist())
            if isinstance(self.histogram, Histogram):
                self.histogram = self.histogram.reweight(where, stored["factor"])

    def _read_start(
        self, content: bytes, chosen: Sequence[Measurement]
    ) -> tuple[Histogram | LocalModels, tuple[Measurement, ...]]:
        if self._plan.start is None:
            if not self._plan.universe.listed:
                return LocalModels(self._plan.universe, ()), ()
            return Histogram(self._plan.universe, passes=self._passes), ()
        if isinstance(self._plan.start, NoisyHistogram):
            from dpcvx.domains import Simplex

            self._shares = arrays(content)["shares"]
            nearest = Simplex().project(self._shares)
            return Histogram(self._plan.universe, np.maximum(nearest, 0.0), passes=self._passes), ()
        from dpcvx.queries.maximum_entropy import fit

        if not self._plan.universe.listed:
            universe, released = self._plan.universe, released_start(self._plan, content)
            if self._plan.choice is not None:
                estimated = estimate_pairs(universe, self._plan.n, released, chosen)
                fixed = [replace(m, deviation=EXACT) for m in estimated]  # not shrunk a second time
                return LocalModels(universe, fixed, released=estimated, estimated=True), (*released, *chosen)
            # Another version may have measured another order than this one plans.
            start = replace(self._plan.start, order=max(len(m.attributes) for m in released))
            used = shrink_together(released, start.sizes) if worth_shrinking(start) else released
            return LocalModels(universe, used, released=released), released
        released = measurements(content)
        return fit(self._plan.universe, released, passes=self._passes), released


def released_start(plan: EnginePlan, content: bytes) -> tuple[Measurement, ...]:
    """Return the means of the first release in a universe that is not listed."""
    start, means = plan.start, arrays(content)["means"]
    if not isinstance(start, NoisyMarginals):
        raise Incompatible("The first release has no means.")
    for order in range(1, min(3, len(start.sizes)) + 1):  # another version may have measured another order
        if (released := replace(start, order=order)).n_draws == len(means):
            return released.read(means)
    raise Incompatible(f"The first release has {len(means)} means, but marginals of no order have that many.")


def _text(compiled: CompiledQuery) -> str:
    """A query as text; the same for the same query."""
    return json.dumps(compiled.description.to_json(), sort_keys=True)
