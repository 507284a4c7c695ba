"""Submodular set functions that price supports, and the norms that they define.

F gives every set A of coordinates a price: F(empty) = 0, F grows with A, and what one more coordinate adds
shrinks as A grows (F is submodular). Its Lovász extension f is convex, and Omega(theta) = f(|theta|) is the
norm that charges the support of theta by F, [KD19] §2. Everything here is public: no records.

`SetFunction` asks for marginal gains along an order and nothing else: sorting and adding them up gives f, the
greedy point of the base polytope and Omega. The dual norm and the prox follow by `shrink`, which a function
with structure answers in closed form.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.domains.minimum_norm import pooled, shrink_by_minimum_norm
from dpcvx.errors import WrongType, WrongValue
from dpcvx.vouched import ITERATIVE_ERROR, vouched

__all__ = [
    "LARGEST_WEIGHT_RATIO",
    "Cardinality",
    "ConcaveOfCardinality",
    "DirectSum",
    "FromCallable",
    "GroupCover",
    "HasShrink",
    "Interval",
    "SetFunction",
    "check_set_function",
    "check_size",
    "densest_subset",
    "dual_norm",
    "greedy",
    "lovasz_extension",
    "norm",
    "prox",
    "tree_cover",
]

# Share of F(V) or of the magnitudes' sum that differences of rounded values may be wrong by.
ROUNDING = 1e-12
# Relative error of the prox of groups that overlap: a gap of 1e-15 leaves 4e-8, and a ball's search adds to
# it. Measured for weights up to this ratio; with 1e6 the gap may be 1e-8.
OVERLAP_ERROR, LARGEST_WEIGHT_RATIO = 1e-6, 1e3


@runtime_checkable
class SetFunction(Protocol):
    """A normalised, non-decreasing, submodular F with F({j}) > 0 for every j."""

    @property
    def size(self) -> int | None:
        """Number of coordinates F speaks of; None if it takes any number."""

    def __call__(self, subset: ArrayLike) -> float:
        """Return F(A), for A given as indices or as a boolean mask."""

    def __hash__(self) -> int: ...

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return F({j_1, ..., j_k}) - F({j_1, ..., j_(k-1)}), k = 1, 2, ..., along distinct j_1, j_2, ..."""


@runtime_checkable
class HasShrink(Protocol):
    """A set function with a faster prox than the minimum-norm point."""

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return argmin_{u >= 0} ||u - magnitudes||_2^2 / 2 + step f(u), for flat magnitudes >= 0."""


def members_of(subset: ArrayLike) -> IntVector:
    """Return a set's indices, from indices or a boolean mask."""
    given = np.asarray(subset)
    if given.dtype.kind in "UST":
        raise WrongType(
            f"A set is given by the positions of its coordinates, counted from 0, or by a boolean mask; got "
            f"{given.tolist()!r}. Coordinates have no names here: give the position of each column."
        )
    if given.dtype == np.bool_:
        return np.flatnonzero(given).astype(np.int64)
    order = given.astype(np.int64).ravel()
    if np.unique(order).size != order.size or (order < 0).any():
        raise WrongValue(f"A set needs distinct indices >= 0, or a boolean mask; got {order.tolist()}.")
    return order


@vouched("minimisers", prox_error=ITERATIVE_ERROR)
@dataclass(frozen=True)
class Cardinality:
    """The number of coordinates; its norm is l1.

    F(A) = |A|
    """

    size: ClassVar[int | None] = None

    def __call__(self, subset: ArrayLike) -> float:
        """Return |A|."""
        return float(members_of(subset).size)

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return ones."""
        return np.ones(order.size)

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return the soft threshold."""
        soft: Vector = np.maximum(magnitudes - step, 0.0)
        return soft


@vouched("minimisers", prox_error=ITERATIVE_ERROR)
@dataclass(frozen=True)
class ConcaveOfCardinality:
    """A concave function of the number of coordinates; min(k, 1) gives the linf norm.

    F(A) = g(|A|)

    Parameters
    ----------
    values : sequence of float, or callable
        g(1), ..., g(d), or g itself, which takes an array of numbers k >= 1. With g(0) = 0, g is concave and
        non-decreasing and g(1) > 0.
    """

    values: Sequence[float] | Callable[[Vector], Vector]

    def __post_init__(self) -> None:
        if not callable(self.values):
            # A tuple rather than an array, so that equal functions compare and hash alike.
            object.__setattr__(self, "values", tuple(np.asarray(self.values, dtype=np.float64).tolist()))
            self.marginal_gains(np.arange(len(self.values)))

    @property
    def size(self) -> int | None:
        """Number of values, or None for a callable."""
        return None if callable(self.values) else len(self.values)

    def __call__(self, subset: ArrayLike) -> float:
        """Return g(|A|)."""
        return float(self.marginal_gains(members_of(subset)).sum())

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return g(k) - g(k - 1)."""
        if callable(self.values):
            g = np.asarray(self.values(np.arange(1.0, order.size + 1)), dtype=np.float64)
        else:
            g = np.asarray(self.values[: order.size])
        gains: Vector = np.diff(g, prepend=0.0)
        slack = ROUNDING * np.abs(g).max(initial=0.0)
        valid = g.size == 0 or (g[0] > 0 and gains.min() >= -slack and np.diff(gains).max(initial=0) <= slack)
        if g.size != order.size or not (valid and np.isfinite(g).all()):
            raise WrongValue(
                "ConcaveOfCardinality needs g concave and non-decreasing, g(1) > 0, and a finite value "
                f"for each of {order.size} sizes; got {g[:6].tolist()}{' ...' if g.size > 6 else ''}."
            )
        return gains

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return the magnitudes less the gains, both in falling order, pooled until they fall."""
        # F does not tell coordinates apart, so the answer falls where the magnitudes do.
        order = np.argsort(-magnitudes, kind="stable")
        return pooled(magnitudes, step * self.marginal_gains(order), order)


@vouched("minimisers", prox_error=lambda cover: cover.prox_error)
@dataclass(frozen=True)
class GroupCover:
    """The weight of the groups that a set touches; the groups may overlap.

    F(A) = sum of weight_g over the groups g that meet A, so Omega(theta) = sum_g weight_g ||theta_g||_inf

    Parameters
    ----------
    groups : sequence of sequences of int
        Non-empty sets of indices that together cover 0, ..., d - 1.
    weights : sequence of float, optional
        Positive, one for each group; all 1 by default.

    Notes
    -----
    Groups that are nested or disjoint, such as a partition or the subtrees of a tree, have a prox in closed
    form: that of the linf norm of each group, from the smallest group to the largest. Others take a
    minimum-norm point.
    """

    groups: Sequence[Sequence[int]]
    weights: Sequence[float] | None = None
    _members: IntVector = field(init=False, repr=False, compare=False)
    _starts: IntVector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups = tuple(tuple(int(j) for j in np.sort(members_of(group))) for group in self.groups)
        weights = (1.0,) * len(groups) if self.weights is None else tuple(float(w) for w in self.weights)
        if not groups or not all(groups):
            raise WrongValue(f"GroupCover needs at least one group, and none empty; got {groups}.")
        if len(weights) != len(groups) or not all(0 < w < math.inf for w in weights):
            raise WrongValue(
                f"GroupCover needs a positive finite weight for each of {len(groups)} groups; got {weights}."
            )
        members = np.concatenate([np.asarray(group, dtype=np.int64) for group in groups])
        missing = np.setdiff1d(np.arange(members.max() + 1), members)
        if missing.size:
            raise WrongValue(
                f"GroupCover needs every index up to {members.max()} in some group; {missing[:6].tolist()} "
                "are in none. Put each in a group of its own."
            )
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        for name, value in (
            ("groups", groups),
            ("weights", weights),
            ("_members", members),
            ("_starts", starts),
        ):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int | None:
        """Number of coordinates covered."""
        return int(self._members.max()) + 1

    def __call__(self, subset: ArrayLike) -> float:
        """Return the weight of the groups that meet A."""
        return float(self.marginal_gains(members_of(subset)).sum())

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return the weight of the groups that are met first at each place."""
        place = np.full(self._members.max() + 1, order.size)
        place[order] = np.arange(order.size)
        first = np.minimum.reduceat(place[self._members], self._starts)
        gains = np.bincount(first, weights=self._weights(), minlength=order.size + 1)[: order.size]
        return gains.astype(np.float64)

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return the prox group by group if groups are nested or disjoint, else by a minimum-norm point."""
        if not self.nested:
            return shrink_by_minimum_norm(self.marginal_gains, magnitudes, step)
        u = magnitudes.copy()
        for g in self._by_size():
            group = self._members[self._starts[g] : self._starts[g] + len(self.groups[g])]
            u[group] = _capped(u[group], step * self._weights()[g])
        return u

    def _weights(self) -> Vector:
        return np.asarray(self.weights, dtype=np.float64)

    def _by_size(self) -> list[int]:
        return sorted(range(len(self.groups)), key=lambda g: len(self.groups[g]))

    @property
    def prox_error(self) -> float:
        """Relative error of `shrink`; inf where groups overlap and their weights differ by too much."""
        if self.nested:
            return ITERATIVE_ERROR
        weights = self._weights()
        return OVERLAP_ERROR if weights.max() <= LARGEST_WEIGHT_RATIO * weights.min() else math.inf

    @property
    def nested(self) -> bool:
        """Whether every two groups are nested or disjoint."""
        smallest = np.full(self._members.max() + 1, -1)  # the last, so smallest, group that holds each index
        for g in reversed(self._by_size()):
            group = np.asarray(self.groups[g])
            if (smallest[group] != smallest[group[0]]).any():
                return False
            smallest[group] = g
        return True


def tree_cover(parents: Sequence[int], weights: Sequence[float] | None = None) -> GroupCover:
    """Return the function that prices a set by all its ancestors: a coordinate wants its parent in first.

    F(A) = total weight of the nodes on the paths from A to the roots

    Parameters
    ----------
    parents : sequence of int
        The parent of each coordinate; -1 for a root.
    weights : sequence of float, optional
        Positive, one for each coordinate; all 1 by default.
    """
    d = len(parents)
    subtrees: list[list[int]] = [[] for _ in range(d)]
    for j in range(d):
        node, length = j, 0
        while node != -1:
            if not 0 <= node < d or length == d:
                raise WrongValue(
                    f"tree_cover needs parents in 0..{d - 1}, or -1 for a root, no cycles; got {parents}."
                )
            subtrees[node].append(j)
            node, length = int(parents[node]), length + 1
    return GroupCover(subtrees, weights)


@vouched("minimisers", prox_error=ITERATIVE_ERROR)
@dataclass(frozen=True)
class Interval:
    """The length of the shortest interval that holds a set; its norm favours contiguous supports.

    F(A) = max(A) - min(A) + 1 + offset for A not empty

    Parameters
    ----------
    size : int
        Number of coordinates, which stand in a sequence.
    offset : float
        At least size - 2, below which F is not submodular. A larger offset makes the norm more like linf.
    """

    size: int
    offset: float

    def __post_init__(self) -> None:
        least = max(self.size - 2, 0)
        if self.size < 1 or not least <= self.offset < math.inf:
            raise WrongValue(
                f"Interval needs size >= 1 and a finite offset >= {least}, to be submodular; "
                f"got size={self.size}, offset={self.offset}."
            )

    def __call__(self, subset: ArrayLike) -> float:
        """Return the length of the interval plus the offset."""
        return float(self.marginal_gains(members_of(subset)).sum())

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return how much each coordinate lengthens the interval; the first one pays the offset."""
        length = np.maximum.accumulate(order) - np.minimum.accumulate(order) + 1.0
        gains: Vector = np.diff(length, prepend=0.0)
        gains[:1] += self.offset
        return gains

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return the prox by halving chains of sets: each cut is one pass over the sequence.

        The level set {u > t} is the best set at price t per coordinate. Between two level sets, either u is
        constant, or the best set at that constant's price lies strictly between them.
        """
        u = np.zeros(magnitudes.size)
        slack = ROUNDING * float(magnitudes.sum() + step * self(range(self.size)))
        chains = [(np.zeros(u.size, dtype=np.bool_), self._best(magnitudes, step))]
        while chains:
            small, large = chains.pop()
            between = large & ~small
            count = np.count_nonzero(between)
            if not count:
                continue
            price = (magnitudes[between].sum() - step * (self(large) - self(small))) / count
            middle = (self._best(magnitudes - price, step) | small) & large
            added = middle & ~small
            excess = (magnitudes[added] - price).sum() - step * (self(middle) - self(small))
            if excess <= slack or not (large & ~middle).any():
                u[between] = max(float(price), 0.0)
            else:
                chains += [(small, middle), (middle, large)]
        return u

    def _best(self, scores: Vector, step: float) -> NDArray[np.bool_]:
        """Return argmax_A scores(A) - step F(A): the positive scores of the best interval, if it pays."""
        place = np.arange(self.size)
        positive = np.cumsum(np.maximum(scores, 0.0))
        before = np.append(0.0, positive[:-1]) - step * place  # what an interval that starts here leaves out
        value = positive - step * place - np.minimum.accumulate(before)
        end = int(value.argmax())
        start = int(before[: end + 1].argmin())
        pays = value[end] > step * (1 + self.offset)
        inside: NDArray[np.bool_] = (scores > 0) & (place >= start) & (place <= end)
        return inside & bool(pays)


@vouched("minimisers", prox_error=ITERATIVE_ERROR, parts=lambda total: total.parts)
@dataclass(frozen=True)
class DirectSum:
    """Set functions of consecutive blocks of coordinates, each priced on its own.

    F(A) = sum_k F_k(A within block k), so Omega(theta) = sum_k Omega_k(theta on block k)

    Parameters
    ----------
    parts : sequence of SetFunction
        F_1, F_2, ..., at least one.
    sizes : sequence of int
        Number of coordinates of each block, in order.
    """

    parts: Sequence[SetFunction]
    sizes: Sequence[int]

    def __post_init__(self) -> None:
        # Tuples, so that equal functions compare and hash alike.
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        if not self.parts or len(self.parts) != len(self.sizes) or min(self.sizes) < 1:
            raise WrongValue(
                f"DirectSum needs a block of at least one coordinate for each part; got {len(self.parts)} "
                f"part(s) and sizes={self.sizes}."
            )
        for part, size in zip(self.parts, self.sizes, strict=True):
            check_size(part, size)

    @property
    def size(self) -> int | None:
        """Number of coordinates of all blocks."""
        return sum(self.sizes)

    def __call__(self, subset: ArrayLike) -> float:
        """Return the sum of the parts' values."""
        members = members_of(subset)
        return sum(part(members[inside] - start) for part, start, inside in self._blocks(members))

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return what each coordinate adds to its own part."""
        gains = np.empty(order.size)
        for part, start, inside in self._blocks(order):
            gains[inside] = part.marginal_gains(order[inside] - start)
        return gains

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return the parts' own answers, side by side."""
        u = np.empty(magnitudes.size)
        for part, _, inside in self._blocks(np.arange(magnitudes.size)):
            u[inside] = prox(part, magnitudes[inside], step)
        return u

    def _blocks(self, members: IntVector) -> Iterator[tuple[SetFunction, int, IntVector]]:
        """Yield each part, the first index of its block, and the places of its members."""
        start = 0
        for part, size in zip(self.parts, self.sizes, strict=True):
            yield part, start, np.flatnonzero((members >= start) & (members < start + size))
            start += size


@dataclass(frozen=True)
class FromCallable:
    """A set function given by a Python function.

    F(A) = function(mask), mask the boolean array that is True on A

    Parameters
    ----------
    function : callable
        Normalised, non-decreasing, submodular and positive on single coordinates; `check_set_function` looks
        for a counterexample.
    size : int
        Number of coordinates.
    """

    function: Callable[[NDArray[np.bool_]], float]
    size: int

    def __post_init__(self) -> None:
        mask = np.zeros(self.size, dtype=np.bool_)
        given = (
            f"It is given a boolean mask of the {self.size} coordinates, all False for the empty set, for "
            "instance lambda mask: float(mask.sum())."
        )
        try:
            empty = float(self.function(mask))
        except Exception as error:
            raise WrongType(f"FromCallable's function fails on the empty set: {error}. {given}") from error
        if empty != 0:
            raise WrongValue(
                f"FromCallable needs a function that is 0 on the empty set; got {empty}. {given}"
            )

    def __call__(self, subset: ArrayLike) -> float:
        """Return function(mask of A)."""
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[members_of(subset)] = True
        return float(self.function(mask))

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return the differences of |order| calls."""
        mask = np.zeros(self.size, dtype=np.bool_)
        values = []
        for j in order:
            mask[j] = True
            values.append(float(self.function(mask.copy())))
        gains: Vector = np.diff(np.asarray(values), prepend=0.0)
        return gains


def check_set_function(F: SetFunction, d: int, *, trials: int = 1000, seed: int = 0) -> None:
    """Raise ValueError if random chains of sets show that F is not what a `SetFunction` promises.

    Each trial draws A inside B and j outside B, and asks F(A + j) - F(A) >= F(B + j) - F(B) >= 0. To pass is
    no proof; a function that fails does not give a norm, and every answer built on it would be wrong.
    """
    rng = np.random.default_rng(seed)
    least = min(F([j]) for j in range(d))
    if not least > 0:
        raise WrongValue(
            f"A set function needs a positive value on every single coordinate; one has {least}."
        )
    slack = 1e-9 * F(range(d))
    for _ in range(trials):
        order = rng.permutation(d)
        b = int(rng.integers(0, d))
        a = int(rng.integers(0, b + 1))
        A, B, j = order[:a], order[:b], order[b]
        early, late = F([*A, j]) - F(A), F([*B, j]) - F(B)
        if late < -slack:
            raise WrongValue(f"Not non-decreasing: adding {j} to {sorted(B.tolist())} adds {late}.")
        if late > early + slack:
            raise WrongValue(
                f"Not submodular: {j} adds {early} to {sorted(A.tolist())}, and {late} to the larger "
                f"{sorted(B.tolist())}."
            )


def check_size(F: SetFunction, size: int) -> None:
    """Raise ValueError unless F is a function of `size` coordinates."""
    if F.size is not None and F.size != size:
        raise WrongValue(
            f"{type(F).__name__} is a function of {F.size} coordinates; the parameter has {size} entries. "
            "Count the intercept, and every entry of a matrix."
        )


def greedy(F: SetFunction, w: Vector) -> Vector:
    """Return argmax <w, s> over the base polytope {s : s(A) <= F(A), s(V) = F(V)}, [KD19] equation (5).

    The maximiser gives the largest coordinate of w its marginal gain first, and so on down. For w >= 0 it is
    also a maximiser over the polyhedron {s : s(A) <= F(A)}.
    """
    flat = np.ravel(w)
    check_size(F, flat.size)
    order = np.argsort(-flat, kind="stable")
    s = np.empty(flat.size)
    s[order] = F.marginal_gains(order)
    return s.reshape(w.shape)


def lovasz_extension(F: SetFunction, w: Vector) -> float:
    """Return f(w) = sum_k w_(k) (F(S_k) - F(S_(k-1))), S_k the k largest entries of w."""
    return float((w * greedy(F, w)).sum())


def norm(F: SetFunction, theta: Vector) -> float:
    """Return Omega(theta) = f(|theta|)."""
    return lovasz_extension(F, np.abs(theta))


def densest_subset(F: SetFunction, weights: Vector) -> IntVector:
    """Return a set A, not empty, with the largest weights(A) / F(A), for flat weights >= 0.

    Discrete Newton: at the ratio t of the present set, a set with a larger ratio has weights(A) > t F(A), and
    the support of argmin_u ||u - weights||^2 / 2 + t f(u) has the largest weights(A) - t F(A).
    """
    order = np.argsort(-weights, kind="stable")
    ratios = np.cumsum(weights[order]) / np.cumsum(greedy(F, weights)[order])
    best = int(ratios.argmax())
    A, t = order[: best + 1], float(ratios[best])
    while True:  # t grows strictly and takes finitely many values
        u = _shrink(F, weights, t)
        order = np.argsort(-u, kind="stable")[: np.count_nonzero(u)]
        if not order.size:
            return np.sort(A)
        ratios = np.cumsum(weights[order]) / np.cumsum(F.marginal_gains(order))
        best = int(ratios.argmax())
        if not ratios[best] > t * (1 + 1e-14):  # not a number, too, ends here
            return np.sort(A)
        A, t = order[: best + 1], float(ratios[best])


def dual_norm(F: SetFunction, s: Vector) -> float:
    """Return Omega*(s) = max_A |s|(A) / F(A), over A not empty."""
    magnitudes = np.abs(np.ravel(s))
    A = densest_subset(F, magnitudes)
    return float(magnitudes[A].sum()) / F(A)


def prox(F: SetFunction, v: Vector, step: float) -> Vector:
    """Return argmin_theta ||theta - v||_2^2 / 2 + step Omega(theta)."""
    check_size(F, v.size)
    shrunk = _shrink(F, np.abs(np.ravel(v)), step)
    return np.copysign(shrunk.reshape(v.shape), v)


def _shrink(F: SetFunction, magnitudes: Vector, step: float) -> Vector:
    if isinstance(F, HasShrink):
        return F.shrink(magnitudes, step)
    return shrink_by_minimum_norm(F.marginal_gains, magnitudes, step)


def _capped(magnitudes: Vector, total: float) -> Vector:
    """Return the magnitudes cut at the height above which they sum to `total`: the prox of total * linf."""
    falling = np.sort(magnitudes)[::-1]
    height = float(((np.cumsum(falling) - total) / np.arange(1, falling.size + 1)).max())
    capped: Vector = np.minimum(magnitudes, max(height, 0.0))
    return capped
