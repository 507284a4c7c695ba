"""Distributions of a few attributes at a time, fitted to the released means about them; post-processing.

A universe of very many cells has no histogram. Each query gets a distribution of its own attributes instead,
from the released means of single attributes, pairs and triples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible
from dpcvx.queries.attribute_codes import has_mean
from dpcvx.queries.histogram import Histogram
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.multiplicative_weights import agree
from dpcvx.queries.schema import Schema
from dpcvx.queries.universe import Universe

if TYPE_CHECKING:
    from dpcvx.noise import Generator

__all__ = ["LocalModels", "fit_cells"]

MOST_FUNCTIONS, MOST_CELLS = 256, 2**12  # up to which all means are fitted together by Newton's method
LARGEST_LOCAL = 2**16  # cells of a distribution
NEWTON_STEPS, SWEEPS, RAKINGS = 200, 30, 5
ENOUGH = 1e-10  # decrease of the objective at which Newton's method stops
FARTHEST = 5.0  # change of a log-weight in one step of Newton's method
TINY = 1e-9  # penalty of means that are taken as they are
LEAST_RATIO = 1e-3  # of a pair's shares to those of independent attributes
# Variance of the coefficients of a pair before anything is known about it: that of all pairs, between the
# first two numbers, or what the pair itself shows, up to the third.
LEAST_VARIANCE, USUAL_VARIANCE, MOST_VARIANCE = 1e-3, 0.05, 100.0
POOLED = 1000  # pairs by which the variance of all coefficients is estimated
CERTAIN = 3.0  # standard deviations by which a pair must exceed its noise to have a variance of its own
RAISED, LEAST_NOISE = 1.2, 0.8  # of estimated errors, and of the release, in intervals
KEPT = 64  # distributions that are kept for the next query about the same attributes
SMALLEST = 1e-12  # probability of a cell at least, before normalisation


@dataclass(frozen=True, eq=False)
class _Single:
    """One attribute: its shares, and centred contrasts with the eigenvectors of their covariance."""

    shares: Vector  # (k,)
    centred: Vector  # contrasts minus their means, times the eigenvectors of their covariance; (k, m)
    spread: Vector  # eigenvalues, (m,)
    turn: Vector  # eigenvectors, (m, m)
    means: Vector  # of the contrasts, (m,)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Released dependence of two attributes, in directions that are uncorrelated if they are independent.

    values = spread * c + noise; a direction with the coefficient c adds c times its product to the ratio of
    the shares to those of independent attributes.
    """

    first: int
    second: int
    values: Vector  # means of centred products, (m_first, m_second)
    spread: Vector  # variance of each product under independence
    noise: float  # variance of the noise over that of a coefficient
    variance: float  # of a coefficient, before the release is read

    @property
    def coefficients(self) -> Vector:
        """Posterior means of the coefficients: spread values / (spread^2 + noise)."""
        found: Vector = self.spread * self.values / (self.spread**2 + self.noise)
        return found


@dataclass(frozen=True, eq=False)
class _Number:
    """The number of each cell of an attribute, of mean 0 and variance 1; and its weights on contrasts."""

    cells: Vector
    weights: Vector

    @property
    def length(self) -> float:
        """Square norm of the weights, by which noise on contrasts is multiplied."""
        return float(self.weights @ self.weights)


@dataclass(frozen=True, eq=False)
class _Triple:
    """Released dependence of three attributes beyond that of their pairs; fields as in `_Pair`."""

    places: tuple[int, int, int]
    values: Vector
    spread: Vector
    noise: float


class LocalModels:
    """Distributions of few attributes, each fitted on its own to the released means inside it.

    Two distributions that share attributes agree about them up to noise, not exactly.

    Parameters
    ----------
    universe : Universe
    measurements : sequence of Measurement
        Released means of single attributes, of pairs and, if there are any, of triples, as `NoisyMarginals`
        returns them. Triples are fitted where all means of a distribution are fitted together.
    corrections : sequence of tuple of Measurement
        Groups of later measurements, each about the same attributes. One counts in every distribution that
        has two of its attributes, where both together have at most 2^16 cells.
    released : sequence of Measurement, optional
        The release itself, if ``measurements`` are estimates by `shrink_together`. Predicted errors are
        computed from its noise; those of distributions from a part of its noise.
    estimated : bool
        Whether ``released`` holds estimates, whose deviations include all of their error.
    """

    def __init__(
        self,
        universe: Universe,
        measurements: Sequence[Measurement],
        corrections: Sequence[tuple[Measurement, ...]] = (),
        *,
        released: Sequence[Measurement] | None = None,
        estimated: bool = False,
    ) -> None:
        self.universe = universe
        self._estimated = estimated
        self._released = {m.attributes: m for m in measurements}
        self._as_released = self._released if released is None else {m.attributes: m for m in released}
        self._order = max(map(len, self._released), default=1)
        self._corrections = [group for group in corrections if group]
        self._tables: dict[tuple[int, ...], Vector] = {}
        self._singles: dict[int, _Single] = {}
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def corrected(self, corrections: Sequence[tuple[Measurement, ...]]) -> LocalModels:
        """Return the same models with other corrections."""
        released, used = tuple(self._as_released.values()), tuple(self._released.values())
        return LocalModels(self.universe, used, corrections, released=released, estimated=self._estimated)

    def inside(self, attributes: Iterable[int]) -> list[Measurement]:
        """Return the released means about single attributes, pairs and triples among some.

        If the models use estimates of these means, the estimates are returned. Their standard deviations are
        then larger, for intervals: the raised estimated errors, and at least a part of the release's noise.
        """
        places = sorted(set(attributes))
        keys = (key for r in range(1, self._order + 1) for key in combinations(places, r))
        return [self._for_intervals(key) for key in keys if key in self._as_released]

    def _for_intervals(self, key: tuple[int, ...]) -> Measurement:
        used, released = self._released[key], self._as_released[key]
        if used is released:
            return released
        part = 1.0 if self._estimated else LEAST_NOISE
        return replace(used, deviation=max(RAISED * used.deviation, part * released.deviation))

    def marginal(self, attributes: tuple[int, ...]) -> Vector:
        """Return the distribution of some attributes, one axis for each, in the order they are given in."""
        key = tuple(sorted(self.universe.axes(attributes)))
        if key not in self._tables:
            while len(self._tables) >= KEPT:
                del self._tables[next(iter(self._tables))]
            self._tables[key] = self._fit(key)
        return np.ascontiguousarray(self._tables[key].transpose([key.index(a) for a in attributes]))

    def _fit(self, key: tuple[int, ...]) -> Vector:
        shape = self.universe.shape
        known = set(key)
        groups = []
        for group in self._corrections:
            both = known.union(group[0].attributes)
            shared = min(2, len(group[0].attributes))
            near = len(set(key).intersection(group[0].attributes)) >= shared
            if near and math.prod(shape[a] for a in both) <= LARGEST_LOCAL:
                known = both
                groups.append(group)
        places = tuple(sorted(known))
        sizes = tuple(shape[a] for a in places)
        if math.prod(sizes) > LARGEST_LOCAL:
            raise Incompatible(
                f"These attributes have {math.prod(sizes)} cells together, more than {LARGEST_LOCAL}: ask "
                "about fewer of them."
            )
        table = self._uncorrected(places, sizes)
        if groups:
            local = Universe(Schema(tuple(self.universe.schema.attributes[a] for a in places)))
            moved = [
                tuple(replace(m, attributes=tuple(places.index(a) for a in m.attributes)) for m in group)
                for group in groups
            ]
            table = agree(Histogram(local, table.ravel()), moved).weights.reshape(sizes)
        others = tuple(i for i, a in enumerate(places) if a not in key)
        return np.asarray(table.sum(axis=others), dtype=np.float64)

    def _uncorrected(self, places: tuple[int, ...], sizes: tuple[int, ...]) -> Vector:
        if len(places) == 1:
            return self._single(places[0]).shares
        pairs = [(a, b) for a in places for b in places if a < b]
        functions = sum((self.universe.shape[a] - 1) * (self.universe.shape[b] - 1) for a, b in pairs)
        if functions > MOST_FUNCTIONS or math.prod(sizes) > MOST_CELLS:
            return self._raked(places, sizes)
        triples = [each for each in combinations(places, 3) if each in self._released]
        functions += sum(len(self._released[each].values) for each in triples)
        return self._joint(
            places,
            sizes,
            [self._dependence(a, b) for a, b in pairs],
            [self._triple(*each) for each in triples] if functions <= MOST_FUNCTIONS else [],
        )

    def _joint(
        self, places: tuple[int, ...], sizes: tuple[int, ...], pairs: list[_Pair], triples: list[_Triple]
    ) -> Vector:
        """Maximum entropy relative to independent attributes, given their shares, all pairs and triples."""
        digits = np.unravel_index(np.arange(math.prod(sizes)), sizes)
        at = {a: (self._single(a), digits[i]) for i, a in enumerate(places)}
        F = np.concatenate(
            [one.centred[i] for one, i in at.values()]
            + [
                (first.centred[i][:, :, None] * second.centred[j][:, None, :]).reshape(len(i), -1)
                for (first, i), (second, j) in ((at[each.first], at[each.second]) for each in pairs)
            ]
            + [_products_of_three(*(at[a][0].centred[at[a][1]] for a in each.places)) for each in triples],
            axis=1,
        )
        base = np.sum([np.log(np.maximum(one.shares, SMALLEST))[i] for one, i in at.values()], axis=0)
        known = sum(one.centred.shape[1] for one, _ in at.values())
        released: list[_Pair | _Triple] = [*pairs, *triples]
        values = np.concatenate([np.zeros(known), *(each.values.ravel() for each in released)])
        penalties = [(each.noise / np.maximum(each.spread, 1e-9)).ravel() for each in released]
        penalty = np.concatenate([np.full(known, TINY), *penalties])
        return fit_cells(F, values, penalty, base).reshape(sizes)

    def _raked(self, places: tuple[int, ...], sizes: tuple[int, ...]) -> Vector:
        """Iterative proportional fitting to the tables of all pairs."""
        table: Vector = np.ones(sizes)
        for axis, a in enumerate(places):
            shape = [1] * len(sizes)
            shape[axis] = sizes[axis]
            table = table * np.maximum(self._single(a).shares, SMALLEST).reshape(shape)
        pairs = [
            (i, j, self.pair(places[i], places[j]))
            for i in range(len(places))
            for j in range(i + 1, len(places))
        ]
        for _ in range(1 if len(places) == 2 else SWEEPS):
            for i, j, wanted in pairs:
                others = tuple(k for k in range(len(sizes)) if k not in (i, j))
                shape = [sizes[k] if k in (i, j) else 1 for k in range(len(sizes))]
                table *= (wanted / np.maximum(table.sum(axis=others), 1e-300)).reshape(shape)
        return _with_shares(table, [self._single(a).shares for a in places])

    def _single(self, a: int) -> _Single:
        if a not in self._singles:
            size = self.universe.shape[a]
            measured = self._released.get((a,))
            shares = np.full(size, 1 / size)
            contrasts = np.zeros((size, 0))
            if measured is not None:
                contrasts = measured.features[0]
                sigma = measured.deviation
                penalty = np.maximum(sigma * np.sqrt((contrasts**2).mean(axis=0)), sigma**2)
                shares = fit_cells(contrasts, measured.values, penalty, np.zeros(size))
            means = shares @ contrasts
            centred = contrasts - means
            spread, turn = np.linalg.eigh((centred * shares[:, None]).T @ centred)
            self._singles[a] = _Single(shares, centred @ turn, np.maximum(spread, 0.0), turn, means)
        return self._singles[a]

    def shares(self, a: int) -> Vector:
        """Return the distribution of one attribute."""
        return self._single(a).shares

    def _dependence(self, a: int, b: int) -> _Pair:
        """Return what the release says about the dependence of two attributes, a < b."""
        if (a, b) not in self._pairs:
            first, second = self._single(a), self._single(b)
            spread = np.outer(first.spread, second.spread)
            measured = self._released.get((a, b))
            if measured is None:
                self._pairs[a, b] = _Pair(a, b, np.zeros_like(spread), spread, 1.0, 1.0)
            else:
                turned, noise = self._turned(measured)
                usual = self._pooled_variance
                chance = noise * turned.size
                if usual < USUAL_VARIANCE:  # weak dependences: noise must not pass for a strong one
                    chance += noise * CERTAIN * math.sqrt(2 * turned.size)
                signal = (float((turned**2).sum()) - chance) / max(float((spread**2).sum()), 1e-12)
                variance = min(max(signal, usual), MOST_VARIANCE)
                self._pairs[a, b] = _Pair(a, b, turned, spread, noise / variance, variance)
        return self._pairs[a, b]

    def _turned(self, measured: Measurement) -> tuple[Vector, float]:
        """Means of the centred products of a pair, in uncorrelated directions, and the variance of noise."""
        first, second = (self._single(a) for a in measured.attributes)
        values = measured.values.reshape(len(first.means), -1) - np.outer(first.means, second.means)
        return first.turn.T @ values @ second.turn, measured.deviation**2

    @cached_property
    def _pooled_variance(self) -> float:
        """Variance of the coefficients of all pairs together, estimated without the noise."""
        pairs = [m for m in self._released.values() if len(m.attributes) == 2]
        squares = spreads = 0.0
        for measured in pairs[:: len(pairs) // POOLED + 1]:
            turned, noise = self._turned(measured)
            one, other = (self._single(a).spread for a in measured.attributes)
            squares += float((turned**2).sum()) - turned.size * noise
            spreads += float((np.outer(one, other) ** 2).sum())
        return min(max(squares / max(spreads, 1e-12), LEAST_VARIANCE), USUAL_VARIANCE)

    def _triple(self, a: int, b: int, c: int) -> _Triple:
        """Return the released dependence of three attributes beyond that of their pairs."""
        turned, spread, noise = self._turned_triple((a, b, c))
        signal = float((turned**2).sum()) - noise * turned.size
        signal /= max(float((spread**2).sum()), 1e-12)
        variance = min(max(signal, self._pooled_triples), MOST_VARIANCE)
        return _Triple((a, b, c), turned, spread, noise / variance)

    def _turned_triple(self, places: tuple[int, int, int]) -> tuple[Vector, Vector, float]:
        """Means of the centred products of three attributes, as in `_turned`, their spread and noise."""
        singles = [self._single(a) for a in places]
        x, y, z = (one.means for one in singles)
        measured = self._released[places]
        values = measured.values.reshape(len(x), len(y), len(z))
        for pair, letters in (((1, 2), "i,jk"), ((0, 2), "j,ik"), ((0, 1), "k,ij")):
            alone = (x, y, z)[3 - sum(pair)]
            both = self._released[places[pair[0]], places[pair[1]]].values
            both = both.reshape(len(singles[pair[0]].means), -1)
            values = values - np.einsum(f"{letters}->ijk", alone, both)
        values = values + 2 * np.einsum("i,j,k->ijk", x, y, z)
        turned = np.einsum("ijk,ia,jb,kc->abc", values, *(one.turn for one in singles))
        spread = np.einsum("i,j,k->ijk", *(one.spread for one in singles))
        return turned, spread, measured.deviation**2

    @cached_property
    def _pooled_triples(self) -> float:
        """Variance of the coefficients of all triples together, as `_pooled_variance` of pairs."""
        triples = [key for key in self._released if len(key) == 3]
        squares = spreads = 0.0
        for a, b, c in triples[:: len(triples) // POOLED + 1]:
            turned, spread, noise = self._turned_triple((a, b, c))
            squares += float((turned**2).sum()) - turned.size * noise
            spreads += float((spread**2).sum())
        return min(max(squares / max(spreads, 1e-12), LEAST_VARIANCE), USUAL_VARIANCE)

    def ratio(self, a: int, b: int) -> Vector:
        """Return the ratio of a pair's shares to those of independent attributes, minus 1, in one step.

        Every row and column has the mean 0; the ratio may be below -1.
        """
        pair = self._dependence(min(a, b), max(a, b))
        one, other = self._single(pair.first), self._single(pair.second)
        found: Vector = one.centred @ pair.coefficients @ other.centred.T
        return found if a < b else found.T

    def products(self, a: int, f: Vector, b: int, g: Vector) -> Vector:
        """Return E f(x_a) g(x_b) for columns of functions of two different attributes, (columns, columns)."""
        p, q = self._single(a).shares, self._single(b).shares
        found: Vector = (f * p[:, None]).T @ (1 + self.ratio(a, b)) @ (g * q[:, None])
        return found

    def product_variances(self, a: int, f: Vector, b: int, g: Vector) -> Vector:
        """Return the variance of the error in each entry of `products`, by noise and by shrinkage.

        That of a coefficient of the dependence is its posterior variance, v noise / (spread^2 v + noise), v
        its variance before the release is read, and the noise as intervals count it. Two numbers depend on
        each other more than other functions of their bins: their correlation has a variance of its own.
        """
        pair = self._dependence(min(a, b), max(a, b))
        if (pair.first, pair.second) not in self._as_released:
            return np.zeros((f.shape[1], g.shape[1]))
        one, other = self._single(a), self._single(b)
        left = ((f * one.shares[:, None]).T @ one.centred) ** 2
        right = ((g * other.shares[:, None]).T @ other.centred) ** 2
        noise = self._for_intervals((pair.first, pair.second)).deviation ** 2
        before = math.inf if self._estimated else max(pair.variance, self._raised_variance)
        posterior = noise / np.maximum(pair.spread**2 + noise / before, SMALLEST)
        posterior = posterior if a < b else posterior.T
        found: Vector = left @ posterior @ right.T
        if self._estimated or a not in self._numbers or b not in self._numbers:
            return found
        u, w = self._numbers[a], self._numbers[b]
        left, right = (one.shares * u.cells) @ one.centred, (other.shares * w.cells) @ other.centred
        known = float(left**2 @ posterior @ right**2)
        both, usual = noise * u.length * w.length, self._correlation_variance
        more = max(usual * both / (usual + both) - known, 0.0)
        along = np.outer((f * one.shares[:, None]).T @ u.cells, (g * other.shares[:, None]).T @ w.cells)
        return found + more * along**2

    @cached_property
    def _raised_variance(self) -> float:
        """Variance of the coefficients of all pairs by the release itself, raised by its standard error.

        For intervals. The estimate without it may be near 0 by noise alone, in about one release of six where
        noise hides most pairs, and all intervals would then be too short.
        """
        squares = errors = spreads = 0.0
        pairs = [m for m in self._as_released.values() if len(m.attributes) == 2]
        for m in pairs[:: len(pairs) // POOLED + 1]:
            turned, noise = self._turned(m)
            one, other = (self._single(a).spread for a in m.attributes)
            squares += float((turned**2).sum()) - turned.size * noise
            errors += 2 * turned.size * noise**2
            spreads += float((np.outer(one, other) ** 2).sum())
        return max((squares + math.sqrt(errors)) / max(spreads, SMALLEST), LEAST_VARIANCE)

    @cached_property
    def _numbers(self) -> dict[int, _Number]:
        """The attributes that are numbers, by place."""
        found = {}
        for a, attribute in enumerate(self.universe.schema.attributes):
            if not has_mean(attribute) or (a,) not in self._as_released or attribute.known < 3:
                continue
            single, contrasts = self._single(a), self._as_released[a,].features[0]
            known = np.arange(attribute.size) < attribute.known
            values = np.where(known, np.asarray(attribute.scaled), 0.0)
            mean = float(single.shares[known] @ values[known]) / max(float(single.shares[known].sum()), TINY)
            cells = np.where(known, values - mean, 0.0)
            size = math.sqrt(float(single.shares @ cells**2))
            if size > TINY:
                functions = np.column_stack([np.ones(len(cells)), contrasts])
                weights = np.asarray(np.linalg.lstsq(functions, cells / size, rcond=None)[0], np.float64)
                found[a] = _Number(cells / size, weights[1:])
        return found

    @cached_property
    def _correlation_variance(self) -> float:
        """Mean square of the correlations of pairs of numbers beyond noise, raised by its standard error."""
        squares, errors, count = 0.0, 0.0, 0
        pairs = [m for m in self._as_released.values() if len(m.attributes) == 2]
        pairs = [m for m in pairs if set(m.attributes) <= self._numbers.keys()]
        for m in pairs[:: len(pairs) // POOLED + 1]:
            a, b = m.attributes
            u, w = self._numbers[a], self._numbers[b]
            means = [self._as_released[each,].values for each in (a, b)]
            dependence = m.values.reshape(len(means[0]), -1) - np.outer(*means)
            noise = m.deviation**2 * u.length * w.length
            squares += float(u.weights @ dependence @ w.weights) ** 2 - noise
            errors += 2 * noise**2
            count += 1
        return max((squares + math.sqrt(errors)) / max(count, 1), LEAST_VARIANCE)

    def pair(self, a: int, b: int) -> Vector:
        """Return the distribution of two attributes: none negative, with the shares of each."""
        p, q = self._single(a).shares, self._single(b).shares
        return _with_shares(np.outer(p, q) * np.maximum(1 + self.ratio(a, b), LEAST_RATIO), [p, q])

    def _strength(self, a: int, b: int) -> float:
        """Mean square of the ratio of a pair, what noise adds to it taken off."""
        pair = self._dependence(min(a, b), max(a, b))
        shrunk = pair.spread / (pair.spread**2 + pair.noise) ** 2 * pair.spread**2
        measured = self._released.get((pair.first, pair.second))
        sigma = 0.0 if measured is None else measured.deviation
        return float(((pair.values**2 - sigma**2) * shrunk).sum())

    def tree(self, attributes: Sequence[int]) -> list[tuple[int, int | None]]:
        """Return the attributes in an order in which each follows the one that it depends on, if any.

        The spanning tree of the largest sum of dependences (Chow and Liu), by Prim's algorithm.
        """
        left = list(attributes)
        order: list[tuple[int, int | None]] = [(left.pop(0), None)]
        best = {a: (self._strength(order[0][0], a), order[0][0]) for a in left}
        while left:
            a = max(left, key=lambda each: best[each][0])
            left.remove(a)
            order.append((a, best[a][1]))
            for each in left:
                strength = self._strength(a, each)
                if strength > best[each][0]:
                    best[each] = (strength, a)
        return order

    def draw(self, attributes: Sequence[int], uniform: Vector) -> dict[int, IntVector]:
        """Return codes of records drawn from the tree of some attributes.

        `uniform`: one row of numbers in [0, 1) for each attribute, (attributes, records).
        """
        codes: dict[int, IntVector] = {}
        for (a, parent), u in zip(self.tree(attributes), uniform, strict=True):
            if parent is None:
                cumulative = np.cumsum(self._single(a).shares)[None, :]
                place = np.zeros(len(u), dtype=np.int64)
            else:
                cumulative = np.cumsum(self.pair(parent, a), axis=1)
                place = codes[parent]
            cumulative = cumulative / np.maximum(cumulative[:, -1:], 1e-300)
            codes[a] = np.minimum(
                (cumulative[place] <= u[:, None]).sum(axis=1), cumulative.shape[1] - 1
            ).astype(np.int64)
        return codes

    def sample(self, n: int, rng: Generator) -> IntVector:
        """Return the codes of n records drawn independently from the tree of all attributes, (d, n)."""
        d = len(self.universe.shape)
        words = (rng.words(n * d) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        codes = self.draw(range(d), words.reshape(d, n))
        return np.stack([codes[a] for a in range(d)])


def _products_of_three(first: Vector, second: Vector, third: Vector) -> Vector:
    """Return all products of columns, one of each matrix, (cells, columns)."""
    found: Vector = np.einsum("xi,xj,xk->xijk", first, second, third).reshape(len(first), -1)
    return found


def fit_cells(F: Vector, values: Vector, penalty: Vector, base: Vector) -> Vector:
    """Return the log-linear model of noisy means over few cells, by Newton's method.

    p ~ exp(base + F c), c = argmin log Z(c) - <c, values> + sum_j (penalty_j/2) c_j^2

    `F`: the functions at every cell, (cells, functions); `base`: log-weights without them.
    """

    def model(c: Vector) -> tuple[float, Vector]:
        potential = base + F @ c
        top = potential.max()
        weights = np.exp(potential - top)
        total = weights.sum()
        return float(top + math.log(total) - c @ values + 0.5 * penalty @ c**2), weights / total

    c = np.zeros(len(values))
    value, p = model(c)
    for _ in range(NEWTON_STEPS):
        mean = p @ F
        gradient = mean - values + penalty * c
        H = (F * p[:, None]).T @ F - np.outer(mean, mean) + np.diag(penalty + 1e-12)
        direction = -np.linalg.solve(H, gradient)
        decrease = float(-gradient @ direction)
        if decrease < ENOUGH:
            break
        # Where nearly all weight is in one cell, H is nearly 0 and a step would be without limit.
        step = 2 * min(1.0, FARTHEST / max(float(np.abs(F @ direction).max()), 1e-300))
        shortest, new_value, new_p = step * 1e-6, math.inf, p
        while step > shortest and new_value > value - 0.1 * step * decrease:
            step /= 2
            new_value, new_p = model(c + step * direction)
        if new_value > value:
            break
        c, value, p = c + step * direction, new_value, new_p
    return p


def _with_shares(table: Vector, shares: Sequence[Vector]) -> Vector:
    """Return a table with the given shares of each attribute, by iterative proportional fitting."""
    table = table.copy()
    for _ in range(RAKINGS):
        for axis, wanted in enumerate(shares):
            others = tuple(k for k in range(table.ndim) if k != axis)
            shape = [1] * table.ndim
            shape[axis] = len(wanted)
            table *= (wanted / np.maximum(table.sum(axis=others), 1e-300)).reshape(shape)
    total: Vector = table / table.sum()
    return total
