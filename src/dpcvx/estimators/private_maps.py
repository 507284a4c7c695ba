"""Private column maps: a histogram of each column, released before the fit, gives the numbers of their maps.

Columns with long tails, and columns whose bounds are far too wide, are found in the same histograms. Fits of
many columns that do not standardise release one histogram of all cells, and clip all columns to one range.
All of it is post-processing of one Gaussian release, whose price is part of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import Dataset
from dpcvx.data.bins import COARSE, FINE, POOLED, CellsInBins, PooledCells, quantiles_of
from dpcvx.data.column_maps import IDENTITY, Clip, ColumnMap, MapRequest, QuantileMap
from dpcvx.data.columns import Columns
from dpcvx.data.target import Amounts, Numbers, Target
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import NoisyBinCounts, NoisyCounts, NoisyPooledCounts, as_counts
from dpcvx.plans import Answers, Stage
from dpcvx.solvers.defaults import default

__all__ = [
    "TailRule",
    "automatic_maps",
    "histogram_stages",
    "is_histogram",
    "paid_maps",
    "place_maps",
    "pooled_stages",
    "release_maps",
]

OF_EACH, OF_ALL = NoisyBinCounts.traits.question, NoisyPooledCounts.traits.question
SHARE: float = default("estimators.private_maps.SHARE")
REQUESTED_SHARE: float = default("estimators.private_maps.REQUESTED_SHARE")
LARGEST_NOISE: float = default("estimators.private_maps.LARGEST_NOISE")
FINE_NOISE: float = default("estimators.private_maps.FINE_NOISE")
WIDE: float = default("estimators.private_maps.WIDE")
BENT: float = default("estimators.private_maps.BENT")
TARGET_BENT: float = default("estimators.private_maps.TARGET_BENT")
REACH: float = default("estimators.private_maps.REACH")
TAIL_REACH: tuple[float, float, float] = default("estimators.private_maps.TAIL_REACH")
RANKS: tuple[float, ...] = default("estimators.private_maps.RANKS")
POOLED_SHARE: float = default("estimators.private_maps.POOLED_SHARE")
POOLED_NOISE: float = default("estimators.private_maps.POOLED_NOISE")
POOLED_FROM: int = default("estimators.private_maps.POOLED_FROM")
POOLED_RANKS: tuple[float, float] = default("estimators.private_maps.POOLED_RANKS")
POOLED_WIDTH: float = default("estimators.private_maps.POOLED_WIDTH")
UNIT_BOUNDS = ((0.0, 1.0), (-1.0, 1.0))  # of flags, and of columns that somebody has scaled


@dataclass(frozen=True)
class TailRule:
    """Request for the map of a column without a declared map: the identity if its bounds fit.

    Where the bounds are many times as wide as the middle nine tenths of the cells, the column is clipped to a
    wide interval around these; or, where the quantiles bend away from those of a normal law, mapped by them
    to normal scores.
    """

    kind: ClassVar[str] = "auto"

    @property
    def ranks(self) -> tuple[float, ...]:
        """Shares from 5 % to 95 %."""
        return RANKS

    def placeholder(self, low: float, high: float) -> ColumnMap:
        """Return the identity."""
        return IDENTITY

    def released(self, quantiles: Vector, low: float, high: float) -> ColumnMap:
        """Return the map that the quantiles ask for."""
        from scipy.special import ndtri

        width = float(quantiles[-1] - quantiles[0])
        if not width > 0 or high - low <= WIDE * width:
            return IDENTITY
        scores, slopes = ndtri(np.array(RANKS)), _slopes(quantiles)
        below, above = _ends_at(REACH, quantiles, low, high)
        if slopes.max() <= BENT * slopes.min():
            return Clip(below, above)
        knots = [min(below, quantiles[0]), *quantiles.tolist(), max(above, quantiles[-1])]
        return QuantileMap(knots, [-REACH, *scores.tolist(), REACH])


def automatic_maps(columns: Columns, stated: Mapping[int, Any]) -> dict[int, Any]:
    """Return the rule for every column of numbers that no map is declared of, and that bounds do not settle.

    `columns`: declared without maps; `stated`: maps by position.
    """
    spans = columns.spans()
    return {
        j: TailRule()
        for j, levels in enumerate(columns.levels)
        if levels is None
        and j not in stated
        and (columns.low[spans[j][0]], columns.high[spans[j][0]]) not in UNIT_BOUNDS
    }


def place_maps(maps: Mapping[int, Any], columns: Columns) -> dict[int, ColumnMap]:
    """Return maps with placeholders for those that the fit will release; the identity is left out.

    `columns`: declared without maps.
    """
    found = {
        j: each.placeholder(*_ends(columns, j)) if isinstance(each, MapRequest) else each
        for j, each in maps.items()
    }
    return {j: each for j, each in found.items() if each != IDENTITY}


def histogram_stages(
    n: int, maps: Mapping[int, Any], dataset: Dataset, budget: Budget, target: Target
) -> tuple[Stage, ...]:
    """Return the stage that asks for histograms, if there is one.

    `n`: number of records, public; `maps`: by position; `dataset`: only its kind is used, no record;
    `budget`: of the whole fit; `target`: counted too for the rule, if it is a number. Maps that the user asks
    for are refused where the histograms would be too noisy; the rule for other columns is then not applied.
    """
    asked = {j: each for j, each in maps.items() if isinstance(each, MapRequest)}
    if not asked:
        return ()
    by_request = {j: each for j, each in asked.items() if not isinstance(each, TailRule)}
    by_rule = not by_request
    objection = _objection(dataset, budget)
    if not objection:
        share = SHARE if by_rule else REQUESTED_SHARE
        paid = spendable(budget)
        mu = math.sqrt(share) * gaussian_mu(paid.epsilon, paid.delta)
        counted = len(asked) + (_counted_target(asked, target) is not None)
        sizes = ((each.edges + 2,) * counted for each in (COARSE, FINE))
        coarse, fine = (NoisyBinCounts(n, 0, size, 1 / mu, budget.neighbours) for size in sizes)
        histogram = fine if fine.noise <= FINE_NOISE * n else coarse
        if histogram.noise <= LARGEST_NOISE * n:
            return (Stage(histogram, 1),)
        objection = (
            f"with {share:g} of the budget the noise on a count has standard deviation "
            f"{histogram.noise:.3g}, above {LARGEST_NOISE:g} of {n} records"
        )
    if by_rule:
        return ()
    if len(by_request) < len(asked):
        return histogram_stages(n, by_request, dataset, budget, target)
    raise Incompatible(
        f"Private maps of {len(asked)} column(s) cannot be released: {objection}. Declare their numbers, use "
        "a larger epsilon, or fewer columns."
    )


def pooled_stages(n: int, maps: Mapping[int, Any], dataset: Dataset, budget: Budget) -> tuple[Stage, ...]:
    """Return the stage that asks for one histogram of the cells of all columns without a map, if it pays.

    It is for fits that do not standardise: a range of all cells, each in its place between the bounds of its
    column, costs little however many columns there are. Arguments as in `histogram_stages`.
    """
    asked = [j for j, each in maps.items() if isinstance(each, TailRule)]
    if len(asked) < POOLED_FROM or _objection(dataset, budget):
        return ()
    paid = spendable(budget)
    mu = math.sqrt(POOLED_SHARE) * gaussian_mu(paid.epsilon, paid.delta)
    bins = len(POOLED) + 2
    histogram = NoisyPooledCounts(n, 0, (bins,), 1 / mu, budget.neighbours, cells=len(asked))
    return (Stage(histogram, 1),) if histogram.noise <= POOLED_NOISE * n * len(asked) else ()


def paid_maps(stages: tuple[Stage, ...], maps: Mapping[int, Any]) -> dict[int, Any]:
    """Return the maps, without the rule for other columns where the stages do not count their cells."""
    histograms = [as_counts(stage.mechanism) for stage in stages if is_histogram(stage)]
    if any(each.traits.question == OF_ALL for each in histograms):
        return dict(maps)
    counted = sum(len(each.levels) for each in histograms)  # the target may be among them, beside the rule
    if counted >= sum(isinstance(each, MapRequest) for each in maps.values()):
        return dict(maps)
    return {j: each for j, each in maps.items() if not isinstance(each, TailRule)}


def is_histogram(stage: Stage) -> bool:
    """Say whether a stage asks for histograms of columns, or for one of all cells."""
    return stage.mechanism.traits.question in (OF_EACH, OF_ALL)


def release_maps(
    stages: tuple[Stage, ...],
    maps: Mapping[int, Any],
    dataset: Dataset,
    columns: Columns,
    target: Target,
    answers: Answers,
) -> dict[int, ColumnMap]:
    """Release the histograms that were paid for; return all maps with their numbers.

    Where the target has a long tail itself, the rule does not map columns with a tail on the same side by
    their quantiles, but clips them far out: these tails then predict the tail of the target. If the target
    would be mapped itself, this holds for all columns.

    `stages`: of the plan; `maps`: by position; `dataset`: raw records; private; `columns`: declared without
    maps; `target`: as declared or released; `answers`: of the run.
    """
    asked = {j: each for j, each in maps.items() if isinstance(each, MapRequest)}
    mechanism = as_counts(next(stage.mechanism for stage in stages if is_histogram(stage)))
    if mechanism.traits.question == OF_ALL:
        found = {**maps, **_pooled_maps(mechanism, tuple(asked), dataset, columns, answers)}
        return {j: each for j, each in found.items() if each != IDENTITY}
    binning = COARSE if mechanism.levels[0] == COARSE.edges + 2 else FINE
    number, ends = _counted_target(asked, target), [_ends(columns, j) for j in asked]
    requests = list(asked.values())
    if number is not None:
        ends.append((float(number.low), float(number.high)))
        requests.append(TailRule())
    question = CellsInBins(mechanism.n, tuple(asked), tuple(binning.between(*each) for each in ends), number)
    released = answers.give(("maps",), lambda rng: mechanism(question, dataset, rng))
    parts = np.split(np.asarray(released), np.cumsum(question.levels)[:-1])
    quantiles = [
        quantiles_of(counts, edges, high, request.ranks)
        for request, counts, edges, (_, high) in zip(requests, parts, question.edges, ends, strict=True)
    ]
    made = [each.released(found, *end) for each, found, end in zip(requests, quantiles, ends, strict=True)]
    found = {**maps, **dict(zip(asked, made, strict=False))}
    if number is not None:
        tail, wide = _tail(quantiles[-1]), isinstance(made[-1], QuantileMap)
        reach = _tail_reach(mechanism)
        for j, each, end in zip(asked, quantiles, ends, strict=False):
            bent = isinstance(asked[j], TailRule) and isinstance(found[j], QuantileMap)
            if bent and (wide or (abs(tail) > TARGET_BENT and tail * _tail(each) > 0)):
                found[j] = Clip(*_ends_at(reach, each, *end))
    return {j: each for j, each in found.items() if each != IDENTITY}


def _tail_reach(mechanism: NoisyCounts) -> float:
    """Return the normal scores at which columns are clipped if their tails predict that of the target.

    It grows with the number of records: a few cells far out say little about the dependence there, and many
    are evidence that it continues.
    """
    least, most, few = TAIL_REACH
    return min(max(least * mechanism.n / mechanism.noise_multiplier / few, least), most)


def _slopes(quantiles: Vector) -> Vector:
    """Slopes between the quantiles of a column, at `RANKS`, against those of a normal law."""
    from scipy.special import ndtri

    slopes: Vector = np.diff(quantiles) / np.diff(ndtri(np.array(RANKS)))
    return slopes


def _ends_at(score: float, quantiles: Vector, low: float, high: float) -> tuple[float, float]:
    """Cells that have these normal scores below and above if the outer slopes go on, within the bounds."""
    from scipy.special import ndtri

    slopes, outer = _slopes(quantiles), score - float(ndtri(RANKS[-1]))
    below, above = quantiles[0] - slopes[0] * outer, quantiles[-1] + slopes[-1] * outer
    return max(float(below), low), min(float(above), high)


def _tail(quantiles: Vector) -> float:
    """Largest over smallest slope of quantiles, with a minus sign if the tail is below the middle."""
    slopes = _slopes(quantiles)
    bent = float(slopes.max() / slopes.min()) if slopes.min() > 0 else math.inf
    return math.copysign(bent, slopes[-1] - slopes[0])


def _pooled_maps(
    mechanism: NoisyCounts, asked: tuple[int, ...], dataset: Dataset, columns: Columns, answers: Answers
) -> dict[int, ColumnMap]:
    """Clip the cells of all columns to one range, which is relative to their bounds."""

    def place(j: int, share: Any) -> Any:
        """Return the cell at a share of the bounds of a column; -1 is the lower and 1 the upper one."""
        low, high = _ends(columns, j)
        return np.minimum(low + (share + 1) / 2 * (high - low), high)

    question = PooledCells(mechanism.n, asked, tuple(place(j, POOLED) for j in asked))
    released = answers.give(("maps",), lambda rng: mechanism(question, dataset, rng))
    low, high = quantiles_of(np.asarray(released), POOLED, 1.0, POOLED_RANKS)
    if not 0 < high - low <= 2 * POOLED_WIDTH:
        return dict.fromkeys(asked, IDENTITY)
    return {j: Clip(float(place(j, low)), float(place(j, high))) for j in asked}


def _ends(columns: Columns, j: int) -> tuple[float, float]:
    """Bounds of a number's column."""
    place = columns.spans()[j][0]
    return float(columns.low[place]), float(columns.high[place])


def _counted_target(asked: Mapping[int, Any], target: Target) -> Numbers | None:
    """Return the target if it is one number and there is a column for the rule.

    Amounts have a model of their logarithm, which needs no long tails of columns.
    """
    ruled = any(isinstance(each, TailRule) for each in asked.values())
    number = isinstance(target, Numbers) and not isinstance(target, Amounts) and target.shape == ()
    return cast("Numbers", target) if ruled and number else None


def _objection(dataset: Dataset, budget: Budget) -> str:
    """Say why histograms of these records cannot be released; empty if they can."""
    if not getattr(dataset, "has_raw_cells", False) or dataset.table.sparse:
        return "histograms are counted in raw records in memory or on a cluster, not in sparse or stored ones"
    if budget.delta == 0:
        return "their noise is Gaussian, which needs delta > 0"
    if not budget.neighbours.replaces or budget.neighbours.rows > 1:
        return "histograms need relation='replace', and one row of each person"
    return ""
