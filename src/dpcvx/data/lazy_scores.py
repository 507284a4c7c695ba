"""Scores of Frank-Wolfe's vertices over compressed records, at the cost of what a move touches.

The iterate is theta = scale * v with a public scale that only falls, so a margin is scale * m with an integer
m that changes only where a selected feature is present. Each row's residual is held as a line in the scale;
the sums over rows are integers A and B, and a score is A + share * B. A row gets a new line when its margin
is touched and when the scale passes the row's own edge of a calendar; both are tests on that row and public
numbers, so the sums keep the sensitivity of fresh residuals (PRIVACY_MATH §2.4). The vertex is drawn without
a pass over the features, exactly (`dpcvx.noise.exponential`).

A feature whose score cannot leave a low level, whatever the residuals, is rare: it shares that level with all
others of its kind for the whole run, and its sums are added up only when it is proposed.

How many rows and features a step touches depends on the records: nothing here reports it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.lattice import LARGEST_SUM, ResidualBound
from dpcvx.data.rows import Sparse
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss
from dpcvx.noise.exponential import Levels, settle

if TYPE_CHECKING:
    from dpcvx.noise import Generator, Words

__all__ = ["HasLazyScores", "Lazy", "LazyScores", "Terms"]

SMALLEST_SCALE_BITS = 40  # weights of a point are made for scales down to 2^-38
LARGEST_WEIGHT = 2**31  # of a feature, times the scale
MARGIN = 2  # residual units between the ends of a line and the bound: what rounding of a and b may add
RARE_LEVEL = 3  # a rare feature is kept once in 2^3 proposals; a proposal costs far less than keeping sums


@dataclass(frozen=True)
class Terms:
    """Public numbers that lazy scores are kept by, fixed for a whole run."""

    bound: ResidualBound  # of every residual, whatever the iterate
    largest: int  # largest absolute stored feature, K_inf
    records: int  # most records that there may be
    unit: float  # score <x, theta> of a followed margin of 1 at scale 1
    power: float  # log2-weight of the vertex +e_j for a sum of 1; that of -e_j is its negative
    # change of a margin, by the falling scale alone, after which a row gets a new line; infinite where the
    # residual is affine in the margin
    drift: float
    # bound on |b| * share of a line, in residual units: how much of a residual may fall with the scale
    steepness: int
    ridge: float = 0.0  # what a weight of 1 adds to the sum of its feature at scale 1

    @property
    def most(self) -> int:
        """Bound on |A| and on |share * B| of a feature."""
        public = math.ceil(self.ridge * LARGEST_WEIGHT)
        return self.records * (self.bound.linf + self.steepness) * self.largest + public

    @property
    def octaves(self) -> int:
        """Halvings of the scale for which sums stay inside 62 bits in the same units; below 1: too few."""
        return (LARGEST_SUM // max(1, self.most)).bit_length() - 1

    @property
    def slack(self) -> float:
        """Distance kept between a log2-weight and its level, for rounding: far more than it needs."""
        return 1e-6 + 2.0**-46 * abs(self.power) * self.most


@runtime_checkable
class HasLazyScores(Protocol):
    """A source of compressed records that also gives lazy scores; others are read in full at each step."""

    @property
    def sparse(self) -> bool:
        """Whether rows are compressed: a fact about the kind of storage, not about records."""

    def follow_lazily(self, loss: Loss, terms: Terms) -> Lazy:
        """Return scores that are kept at the cost of what a move touches."""


class Lazy(Protocol):
    """Scores of signed coordinates, drawn from where the records are."""

    def reset(self) -> None:
        """Set w = 0."""

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount."""

    def advance(self, scale: float) -> None:
        """Bring residuals up to this scale of the iterate, as `draw` does first."""

    def draw(self, scale: float, rng: Generator) -> tuple[int, int]:
        """Draw a coordinate and a sign by the exponential mechanism at this scale of the iterate."""

    def scores(self, scale: float) -> list[Fraction]:
        """Return the exact sums that `draw` would use, for audits."""


class LazyScores:
    """Margins and lines of compressed records, sums and levels of their frequent features.

    `rows`, `columns`: the same stored integers, by rows and by columns; `y`: ndarray of float64, shape (1,
    n), targets.
    """

    def __init__(self, rows: Sparse, columns: Sparse, y: Vector, loss: Loss, terms: Terms) -> None:
        from dpcvx.data import lazy_kernels

        self._kernels, self._terms, self._targets = lazy_kernels, terms, y[0]
        self._start_lines, self._advance = lazy_kernels.kernels_of(loss.slope)
        self._columns = (columns.indptr, columns.indices, columns.values)
        self._name_features(rows)
        (n, _), frequent = rows.shape, self._frequent
        limit = max(0, min(terms.bound.l2, terms.bound.linf) - MARGIN)
        self._numbers = (terms.unit, float(loss.parameter), limit, terms.drift, float(terms.steepness))
        self._slack = terms.slack
        self._lowest = 2.0**-terms.octaves  # share below which sums need new units
        per_octave = lazy_kernels.EDGES_PER_OCTAVE
        self._edges = 2.0 ** -(np.arange(SMALLEST_SCALE_BITS * per_octave + 1) / per_octave)

        self._margins: NDArray[np.int64] = np.zeros(n, dtype=np.int64)
        self._lines: NDArray[np.int64] = np.zeros((n, 2), dtype=np.int64)
        self._dues: NDArray[np.int32] = np.empty(n, dtype=np.int32)
        self._row_links: NDArray[np.int32] = np.empty((n, 2), dtype=np.int32)
        self._row_marks: NDArray[np.int32] = np.zeros(n, dtype=np.int32)
        self._batch: NDArray[np.int32] = np.empty(n, dtype=np.int32)
        self._work = (
            np.empty(n),
            np.empty(2 * n, dtype=np.int64),
            np.empty(2 * n),
            np.empty(2 * n, dtype=np.int32),
        )
        self._sums: NDArray[np.int64] = np.zeros((frequent, 2), dtype=np.int64)
        self._facts: NDArray[np.int32] = np.zeros((frequent, 4), dtype=np.int32)
        self._links: NDArray[np.int32] = np.empty((frequent, 2), dtype=np.int32)
        self._touched: NDArray[np.int32] = np.empty(frequent, dtype=np.int32)
        self._order: NDArray[np.int32] = np.empty(frequent, dtype=np.int32)
        self._weights: dict[int, int] = {}
        self._mark = 0
        self._start()

    def _name_features(self, rows: Sparse) -> None:
        """Frequent features first; the rows once more with these features alone.

        |sum_i r_i k_ij| <= R sum_i |k_ij| whatever the residuals. With a ridge every feature is frequent.
        """
        terms, d = self._terms, rows.shape[1]
        weights = np.empty(d, dtype=np.int64)
        self._kernels.column_weights(self._columns[0], self._columns[2], weights)
        heights = abs(terms.power) * terms.bound.linf * weights.astype(np.float64)
        rare = (heights <= RARE_LEVEL - terms.slack) & (terms.ridge == 0)
        # A line may lie outside the bound beyond its edge: levels go up to what |a| and a ridge allow.
        largest = (terms.bound.linf + terms.steepness) * int(weights.max()) + terms.ridge * LARGEST_WEIGHT
        self._highest = max(math.ceil(abs(terms.power) * largest), RARE_LEVEL) + 4
        self._names = np.argsort(rare, kind="stable").astype(np.int32)
        self._frequent = d - int(rare.sum())
        rank = np.empty(d, dtype=np.int32)
        rank[self._names] = np.arange(d, dtype=np.int32)
        whole, starts = (rows.indptr, rows.indices, rows.values), np.empty_like(rows.indptr)
        count = int(np.diff(self._columns[0])[~rare].sum())
        features, parts = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int16)
        self._kernels.frequent_part(*whole, rank, self._frequent, starts, features, parts)
        self._rank, self._rows = rank, (starts, features, parts)

    def _start(self) -> None:
        """Lines at theta = 0, levels of the features, empty calendars."""
        from dpcvx.noise.exponential_kernels import arrange

        terms, sums, facts, never = self._terms, self._sums, self._facts, self._kernels.NEVER
        self._scale = self._base = 1.0
        self._now, self._noted, self._changed = 0, 0, 0
        self._mark += 1
        self._margins[:] = 0
        self._dues[:] = never
        heads = [np.full(self._edges.size, never, dtype=np.int32) for _ in range(2)]
        self._row_calendar = (self._edges, heads[0], self._row_links, self._dues)
        self._calendar = (heads[1], self._links)
        self._start_lines(self._numbers, self._rows, self._targets, self._lines, self._work, sums)
        levels = np.empty(len(sums), dtype=np.int32)
        start, lowest = arrange(abs(terms.power * sums[:, 0]) + terms.slack, True, levels, self._order)
        self._first = np.full(self._highest + 2, len(sums), dtype=np.int64)
        self._first[:lowest] = 0
        self._first[lowest : lowest + start.size] = start
        self._top = lowest + start.size - 2
        facts[:, self._kernels.LEVEL], facts[:, self._kernels.DUE] = levels, never
        facts[self._order, self._kernels.PLACE] = np.arange(len(sums), dtype=np.int32)

    def reset(self) -> None:
        """Set w = 0."""
        if self._weights or self._scale < 1:
            self._weights.clear()
            self._start()

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount."""
        if not 0 <= index < self._names.size:
            raise IndexError(f"index must be in 0..{self._names.size - 1}, got {index}.")
        before = self._weights.get(index, 0)
        self._weights[index] = before + amount
        if self._terms.ridge:
            j, mark = self._rank[index], self._kernels.MARK
            self._sums[j, 1] += self._ridge(before + amount) - self._ridge(before)
            if self._facts[j, mark] != self._mark:
                self._facts[j, mark], self._touched[self._changed] = self._mark, j
                self._changed += 1
        rest = (self._margins, self._row_marks, self._mark, self._batch, self._noted)
        self._noted = self._kernels.touch(*self._columns, index, amount, *rest)

    def draw(self, scale: float, rng: Generator) -> tuple[int, int]:
        """Draw a feature j and a sign s with probability proportional to 2^(s power S_j) at this scale."""
        self.advance(scale)
        factor, share = line = (self._terms.power, scale / self._base)
        held = (self._columns, self._names, self._lines, self._sums)
        levels = self._levels()

        def draw(words: Words, position: int) -> tuple[int, int, int, int]:
            found: tuple[int, int, int, int] = self._kernels.draw(
                line, *held, levels.order, levels.start, levels.loose, words, position
            )
            return found

        def log_weight(item: int) -> float:
            A, B = self._kernels.sums_of(item, *held)
            return factor * (float(A) + share * float(B))

        item, sign = settle(draw, log_weight, levels, rng)
        return int(self._names[item]), sign

    def scores(self, scale: float) -> list[Fraction]:
        """Return sum_i r_i k_ij of every feature in residual units, exactly; for audits, of few features."""
        self.advance(scale)
        share = Fraction(scale) / Fraction(self._base)
        held = (self._columns, self._names, self._lines, self._sums)
        sums = (self._kernels.sums_of(int(item), *held) for item in self._rank)
        return [int(A) + share * int(B) for A, B in sums]

    def _levels(self) -> Levels:
        rare = self._names.size - self._frequent
        top = max(self._top, RARE_LEVEL) if rare else self._top
        return Levels(self._order, self._first[: top + 2], True, loose=(RARE_LEVEL, rare))

    def _ridge(self, weight: int) -> int:
        """Part of the ridge in the B of a feature: public, so that its rounding costs nothing."""
        return round(self._terms.ridge * weight * self._base)

    def advance(self, scale: float) -> None:
        """New lines for the rows that are touched or due at this scale, and levels for their features."""
        if not 0 < scale <= self._scale:
            raise WrongValue(f"A scale falls from 1 towards 0; {scale!r} does not follow {self._scale!r}.")
        everything = scale < self._base * self._lowest
        if everything:
            self._rebase(scale)
        self._scale, power = scale, self._terms.power
        self._now, self._top = self._advance(
            self._numbers,
            self._rows,
            self._targets,
            (self._margins, self._lines),
            self._row_calendar,
            (self._row_marks, self._batch, self._noted),
            self._work,
            (self._sums, self._facts),
            self._calendar,
            (self._order, self._first),
            (self._touched, self._changed),
            (scale, self._base, power, self._slack, self._mark, self._now, self._top, everything),
        )
        self._mark, self._noted, self._changed = self._mark + 1, 0, 0

    def _rebase(self, scale: float) -> None:
        """Hold the lines' slants for scales from the power of two above this one."""
        base = 2.0 ** math.ceil(math.log2(scale))
        self._kernels.rebase(base / self._base, self._rows, self._lines, self._sums)
        self._base = base
        for index, weight in self._weights.items():
            if self._terms.ridge:
                self._sums[self._rank[index], 1] += self._ridge(weight)
