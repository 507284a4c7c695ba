"""Pairs of attributes that are chosen and measured one by one, where all pairs together are mostly noise.

As in AIM, the exponential mechanism selects the pairs whose tables are farthest from the present model; they
are measured, and the model is fitted again. Here neighbours differ by replacement, and stages are few.
The model is the distribution of largest entropy on a junction tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Exponential
from dpcvx.noise import exponential
from dpcvx.queries.junction_tree import JunctionTree, TreeModel, count_cells
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.marginals import Measurement, NoisyMarginals
from dpcvx.solvers.defaults import default

if TYPE_CHECKING:
    from dpcvx.noise import Generator
    from dpcvx.queries.histogram import Counts
    from dpcvx.queries.universe import Universe

__all__ = ["ChosenPairs", "FarthestPair", "estimate_pairs"]

Pair = tuple[int, int]
STAGES: int = default("queries.chosen_pairs.STAGES")
COST: float = default("queries.chosen_pairs.COST")
UNSEEN: float = default("queries.chosen_pairs.UNSEEN")
LARGEST_TREE = 2**16  # cells of the cliques of a model
SCORE_BITS = 16  # resolution of an estimated number of records
EACH = 3  # measurements of a chosen pair: of its two attributes, and of both together


@dataclass(frozen=True, eq=False)
class FarthestPair:
    """The pair of attributes whose counts are farthest from an estimate, by the exponential mechanism.

    Question: u_A(D) = ||N_A - E_A||_1 / 2 for each pair A, N_A the counts of its cells and E_A a public
    estimate of them in steps of 2^-16; P(A) is proportional to exp(eta (u_A - c_A) / 2), c_A a public cost,
    over the pairs that are allowed.
    Sensitivity (replace-one, each score): 1, since a record leaves one cell and enters another
    (PRIVACY_MATH §9.6).
    Event: Exponential(eta). The draw is exact; rounding of log-weights is paid out of eta (PRIVACY_MATH §11).
    """

    n: int  # number of records
    eta: float  # bounded range of the selection
    estimate: Vector  # shares of the cells of all pairs, in the order of `Counts.pairs`
    costs: Vector  # c_A of each pair
    allowed: NDArray[np.bool_]  # whether a pair may be selected

    neighbours: ClassVar[Neighbours] = REPLACE_ONE
    sensitivity: ClassVar[float] = 1.0

    @property
    def event(self) -> Event:
        """Exponential(eta)."""
        return Exponential(self.eta)

    def scores(self, data: Counts) -> Vector:
        """Return u_A of all pairs; private. They are exact multiples of 2^-17."""
        counts, starts = data.pairs
        apart = np.add.reduceat(np.abs((counts << SCORE_BITS) - self._expected), starts)
        found: Vector = apart * 2.0 ** -(SCORE_BITS + 1)
        return found

    @cached_property
    def _expected(self) -> IntVector:
        """E_A of all pairs, in steps of 2^-16."""
        steps = np.clip(self.estimate, 0.0, 1.0) * (self.n * 2.0**SCORE_BITS)
        rounded: IntVector = np.rint(steps).astype(np.int64)
        return rounded

    def __call__(self, data: Counts, rng: Generator) -> int:
        """Return the place of the selected pair."""
        if data.n != self.n:
            raise Incompatible(f"The choice is planned for n={self.n} records, there are {data.n}.")
        # The counts of a pair add up to n, and its estimate to a public number.
        most = float(np.add.reduceat(self._expected, data.pairs[1]).max()) * 2.0**-SCORE_BITS
        largest = (self.n + most) / 2 + float(self.costs.max())
        eta = max(0.0, self.eta - exponential.log_weight_error(self.eta * largest / 2))
        places = np.flatnonzero(self.allowed)
        utilities = (self.scores(data) - self.costs)[places]
        return int(places[exponential.select(utilities * (eta / 2), rng)])


@dataclass(frozen=True)
class ChosenPairs:
    """Chooses pairs of attributes in stages and measures them, where single attributes were measured before.

    Question: in each stage, one after another, the farthest pair (`FarthestPair`) from the model of all that
    was measured before the stage, among the pairs that share no attribute with one of the same stage and were
    not chosen before. Each is measured once: `NoisyMarginals` of order 2 on its two attributes.
    Sensitivity (replace-one): that of `FarthestPair` and of `NoisyMarginals`.
    Event: Exponential(eta) and Gaussian(noise_multiplier), as many times as there are rounds; the composition
    is adaptive and sequential.
    """

    sizes: tuple[int, ...]  # number of cells of each attribute
    n: int  # public normaliser: the number of records
    rounds: int  # pairs that are chosen and measured
    eta: float  # bounded range of one choice
    noise_multiplier: float  # of one measurement: standard deviation of the noise over the sensitivity

    def measurement(self, pair: Pair) -> NoisyMarginals:
        """Return the mechanism that measures a pair."""
        sizes = tuple(self.sizes[a] for a in pair)
        return NoisyMarginals(sizes, self.n, self.noise_multiplier, 2, attributes=pair)

    @property
    def least_noise(self) -> float:
        """Standard deviation of the noise on the means of a pair, for the pair with the least."""
        pairs = {tuple(sorted(self.sizes[a] for a in pair)): pair for pair in all_pairs(len(self.sizes))}
        return min(self.measurement(pair).deviations[1] for pair in pairs.values())

    @property
    def failure(self) -> float:
        """Total variation between the noise that is drawn and the noise that is accounted for, at most."""
        first, second = np.argsort(self.sizes)[-2:].tolist()
        return self.rounds * self.measurement((first, second)).failure

    @property
    def stages(self) -> tuple[int, ...]:
        """Number of choices in each stage; a stage has at most half as many as there are attributes."""
        number = max(STAGES, math.ceil(self.rounds / (len(self.sizes) // 2)))
        return tuple(len(part) for part in np.array_split(np.arange(self.rounds), number) if len(part))

    def release(
        self,
        ask: Callable[[Any], Any],
        universe: Universe,
        singles: Sequence[Measurement],
        done: Sequence[tuple[Measurement, ...]] = (),
    ) -> Iterator[tuple[Measurement, ...]]:
        """Yield the released means of each stage: of every chosen pair and of its two attributes.

        The work of a stage depends on the releases of the stages before it. A caller that writes
        a stage down before it asks for the next one, and continues from there, makes no choice a second time.

        `ask`: gives the answer of a mechanism on the records; `singles`: released means of single attributes;
        `done`: stages that were released before.
        """
        pairs = all_pairs(len(self.sizes))
        members = np.array(pairs)
        costs = COST * np.array([self._noise_on_counts(pair) for pair in pairs])
        released = [m for stage in done for m in stage]
        measured = {m.attributes for m in released}
        left = np.array([pair not in measured for pair in pairs])
        for choices in self.stages[len(done) :]:
            begin = len(released)
            tables = _fit(universe, singles, released).pairs
            estimate = np.concatenate([tables[pair].ravel() for pair in pairs])
            allowed = left.copy()
            for _ in range(choices):
                if not allowed.any():  # few attributes: their pairs have all been chosen
                    break
                place = ask(FarthestPair(self.n, self.eta, estimate, costs, allowed))
                released += ask(self.measurement(pairs[place]))
                left[place] = False
                allowed = allowed & ~np.isin(members, pairs[place]).any(axis=1)
            yield tuple(released[begin:])

    def read(self, pairs: NDArray[Any], values: Vector) -> tuple[Measurement, ...]:
        """Return what `release` yielded for a stage, given its pairs, (number, 2), and all of its means."""
        found, begin = list[Measurement](), 0
        for a, b in pairs.tolist():
            end = begin + self.sizes[a] * self.sizes[b] - 1
            found += self.measurement((a, b)).read(values[begin:end])
            begin = end
        return tuple(found)

    def _noise_on_counts(self, pair: Pair) -> float:
        """Expected value of half the l1 norm of the noise on the counts of a measured pair."""
        first, second = (self.sizes[a] for a in pair)
        one, two = self.measurement(pair).deviations
        a, b = (first - 1) ** 2, (second - 1) ** 2
        of_a_cell = (one**2 * (a + b) + two**2 * a * b) / (first * second) ** 2  # its variance
        return self.n * first * second * math.sqrt(of_a_cell / (2 * math.pi))


def all_pairs(d: int) -> list[Pair]:
    """Return all pairs of d attributes, in the order of `Counts.pairs`."""
    return list(combinations(range(d), 2))


def estimate_pairs(
    universe: Universe, n: int, singles: Sequence[Measurement], chosen: Sequence[Measurement]
) -> tuple[Measurement, ...]:
    """Return the means of contrasts of all single attributes and pairs, by the model of a release.

    The standard deviation of a single attribute includes its noise and the change of its means by the fit.
    That of a measured pair is that of its noise. For another pair four variances are added. The first is
    `UNSEEN` times the mean square, beyond noise, of the differences between the last half of the chosen pairs
    and the model before them, times the root of the number of functions. The second is that of a sample of n
    records. The others are those of the errors of the two attributes.

    `n`: number of records; `singles`, `chosen`: what `ChosenPairs` was given and what it returned.
    """
    model, contrasts = _fit(universe, singles, chosen), {m.attributes[0]: m.features[0] for m in singles}
    measured = {m.attributes: m for m in chosen if len(m.attributes) == 2}
    unseen = UNSEEN * _rest(universe, singles, chosen)
    found = []
    for m in _averaged([*singles, *chosen]):
        values = model.table(m.attributes) @ m.features[0]
        taken = float(np.mean((values - m.values) ** 2))  # change of the measured means by the fit
        found.append(replace(m, values=values, deviation=math.sqrt(m.deviation**2 + taken)))
    alone = {m.attributes[0]: (float(np.mean(m.values**2)), m.deviation**2) for m in found}
    for (a, b), shares in model.pairs.items():
        known = measured.get((a, b))
        if known is not None and model.tree.place((a, b)) is None:
            found.append(known)
            continue
        values = (contrasts[a].T @ shares @ contrasts[b]).ravel()
        (first, error), (second, other) = alone[a], alone[b]
        # Of the dependence, as if it were in few of the functions; and of the product of means.
        variance = unseen * math.sqrt(values.size) + 1 / n + first * other + second * error
        deviation = math.sqrt(variance) if known is None else known.deviation
        found.append(Measurement((a, b), (contrasts[a], contrasts[b]), values, deviation))
    return tuple(found)


def _fit(universe: Universe, singles: Sequence[Measurement], chosen: Sequence[Measurement]) -> TreeModel:
    """Return the model of what was measured; a pair that makes it too large is left out, the latest first."""
    sizes = universe.shape
    pairs: dict[Pair, Measurement] = {}
    for m in chosen:
        if len(m.attributes) == 2:
            pair = (m.attributes[0], m.attributes[1])
            if count_cells(sizes, [*pairs, pair]) <= LARGEST_TREE:
                pairs[pair] = m
    local = LocalModels(universe, [*_averaged([*singles, *chosen]), *pairs.values()])
    shares = [local.shares(a) for a in range(len(sizes))]
    return TreeModel(JunctionTree(sizes, pairs), shares, {pair: local.pair(*pair) for pair in pairs})


def _averaged(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the means of single attributes, those of the same attribute averaged by their variances."""
    found: dict[tuple[int, ...], Measurement] = {}
    for m in measurements:
        if len(m.attributes) != 1:
            continue
        before = found.get(m.attributes)
        if before is not None:
            one, other = before.deviation**-2, m.deviation**-2
            values = (one * before.values + other * m.values) / (one + other)
            m = replace(before, values=values, deviation=(one + other) ** -0.5)
        found[m.attributes] = m
    return list(found.values())


def _rest(universe: Universe, singles: Sequence[Measurement], chosen: Sequence[Measurement]) -> float:
    """Return the mean square beyond noise by which the last chosen pairs differed from the model before them.

    Raised by its own standard error.
    """
    first = EACH * (len(chosen) // EACH // 2)
    before = _fit(universe, singles, chosen[:first])
    squares, noise, count = 0.0, 0.0, 0
    for m in chosen[first:]:
        if len(m.attributes) == 2:
            a, b = m.attributes
            off = m.values - m.means(before.pairs[a, b].ravel())
            squares += float((off**2).sum()) - len(off) * m.deviation**2
            noise += 2 * len(off) * m.deviation**4  # variance of the sum of squares
            count += len(off)
    return (max(squares, 0.0) + math.sqrt(noise)) / max(count, 1)
