"""Distributions of very many attributes that are products over small overlapping groups of them.

The groups, the cliques of a junction tree, hold every pair of attributes whose shares are known. Shares of
any other pair follow along the tree. Everything here is post-processing of released shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible

__all__ = ["JunctionTree", "TreeModel", "count_cells"]

Attributes = tuple[int, ...]
SMALLEST = 1e-250  # least share that a wanted share is divided by
SWEEPS = 10  # walks through the tree in one fit


def cliques_of(sizes: Sequence[int], tables: Iterable[Attributes]) -> list[Attributes]:
    """Return the cliques of a triangulated graph of attributes; each table is inside one of them.

    The attribute whose neighbours have the fewest cells together is removed first.
    """
    near: list[set[int]] = [set() for _ in sizes]
    for table in tables:
        for a in table:
            near[a].update(table)
    for a, others in enumerate(near):
        others.discard(a)

    def cells(a: int) -> int:
        return math.prod(sizes[b] for b in (a, *near[a]))

    cost = {a: cells(a) for a in range(len(sizes))}
    cliques: list[set[int]] = []
    while cost:
        a = min(cost, key=lambda each: cost[each])
        del cost[a]
        clique = {a, *near[a]}
        if not any(clique <= other for other in cliques):
            cliques.append(clique)
        for b in near[a]:
            near[b] |= near[a]
            near[b] -= {a, b}
        for b in near[a]:
            cost[b] = cells(b)
    return [tuple(sorted(clique)) for clique in cliques]


def count_cells(sizes: Sequence[int], tables: Iterable[Attributes]) -> int:
    """Return the number of cells of all cliques together."""
    return sum(math.prod(sizes[a] for a in clique) for clique in cliques_of(sizes, tables))


class JunctionTree:
    """A tree of cliques; the first is the root, and each has the attributes that it shares with its parent.

    `sizes`: number of cells of each attribute; `tables`: groups of attributes that a clique has to hold.
    """

    def __init__(self, sizes: Sequence[int], tables: Iterable[Attributes]) -> None:
        self.sizes = tuple(sizes)
        self.cliques = cliques_of(sizes, [*tables, *((a,) for a in range(len(sizes)))])
        sets = [set(clique) for clique in self.cliques]
        self.parent = [-1] * len(sets)
        self.order = [0]  # every clique after its parent
        best = {i: (len(sets[i] & sets[0]), 0) for i in range(1, len(sets))}
        while best:  # the spanning tree with the largest overlaps
            i = max(best, key=lambda each: best[each][0])
            self.parent[i] = best.pop(i)[1]
            self.order.append(i)
            for k in best:
                if (shared := len(sets[k] & sets[i])) > best[k][0]:
                    best[k] = (shared, i)
        self.separator = [
            () if p < 0 else tuple(sorted(sets[i] & sets[p])) for i, p in enumerate(self.parent)
        ]
        self._home: dict[Attributes, int | None] = {}

    def place(self, table: Attributes) -> int | None:
        """Return the number of the smallest clique that holds a table; None if none does."""
        if table not in self._home:
            inside = [i for i, clique in enumerate(self.cliques) if set(table) <= set(clique)]
            cells = [math.prod(self.sizes[a] for a in self.cliques[i]) for i in inside]
            self._home[table] = inside[int(np.argmin(cells))] if inside else None
        return self._home[table]

    def walk(self) -> list[tuple[int | None, int]]:
        """Return a walk along the edges that visits every clique and ends at the root: (from, to)."""
        children: list[list[int]] = [[] for _ in self.cliques]
        for i in self.order[1:]:
            children[self.parent[i]].append(i)
        found: list[tuple[int | None, int]] = [(None, 0)]
        waiting = [iter(children[0])]
        path = [0]
        while waiting:
            following = next(waiting[-1], None)
            if following is None:
                waiting.pop()
                done = path.pop()
                if path:
                    found.append((done, path[-1]))
                continue
            found.append((path[-1], following))
            path.append(following)
            waiting.append(iter(children[following]))
        return found

    def shape(self, attributes: Attributes, clique: Attributes) -> list[int]:
        """Return the shape in which a table of some attributes of a clique multiplies one of the clique."""
        return [self.sizes[a] if a in attributes else 1 for a in clique]


def sum_to(table: Vector, clique: Attributes, attributes: Iterable[int]) -> Vector:
    """Sum a table of a clique to some of its attributes, in the clique's order."""
    kept = set(attributes)
    found: Vector = table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in kept))
    return found


class TreeModel:
    """The distribution of largest entropy, given shares of single attributes and of some pairs.

    Iterative proportional fitting on a junction tree: a walk through the tree multiplies each clique by
    the wanted over the present shares of its pairs. The next clique then gets the shares of the attributes
    that both have.

    `tree`: holds every pair; `singles`: shares of each attribute; `pairs`: wanted shares of some pairs
    (a, b), a < b, with the same shares of single attributes.
    """

    def __init__(
        self, tree: JunctionTree, singles: Sequence[Vector], pairs: Mapping[tuple[int, int], Vector]
    ) -> None:
        self.tree = tree
        self.shares = [reduce(np.multiply.outer, [singles[a] for a in clique]) for clique in tree.cliques]
        at: list[list[tuple[int, int]]] = [[] for _ in tree.cliques]
        for pair in pairs:
            home = tree.place(pair)
            if home is None:
                raise Incompatible("The tree does not hold a pair.")
            at[home].append(pair)
        walk = tree.walk()
        for _ in range(SWEEPS):
            for before, i in walk:
                if before is not None:
                    shared = tree.separator[i if tree.parent[i] == before else before]
                    self._agree(i, shared, sum_to(self.shares[before], tree.cliques[before], shared))
                for pair in at[i]:
                    self._agree(i, pair, pairs[pair])

    def _agree(self, i: int, attributes: Attributes, wanted: Vector) -> None:
        """Give attributes of a clique the wanted shares."""
        clique = self.tree.cliques[i]
        ratio = wanted / np.maximum(sum_to(self.shares[i], clique, attributes), SMALLEST)
        self.shares[i] = self.shares[i] * ratio.reshape(self.tree.shape(attributes, clique))

    def table(self, attributes: Attributes) -> Vector:
        """Return the shares of attributes, which increase, that are in a clique together."""
        home = self.tree.place(attributes)
        if home is None:
            raise Incompatible("No clique holds these attributes.")
        return sum_to(self.shares[home], self.tree.cliques[home], attributes)

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Vector]:
        """Shares of all pairs of attributes (a, b), a < b.

        Where no clique holds both, a is independent of the next clique, given the attributes that this clique
        shares with the clique before it.
        """
        tree, found = self.tree, dict[tuple[int, int], Vector]()
        near: list[list[tuple[int, Attributes]]] = [[] for _ in tree.cliques]
        for i in tree.order[1:]:
            near[i].append((tree.parent[i], tree.separator[i]))
            near[tree.parent[i]].append((i, tree.separator[i]))
        for a in range(len(tree.sizes)):
            start = tree.place((a,))
            # a clique, the one before, and the table of a and the clique, a in front
            waiting: list[tuple[int, int, Vector | None]] = [(start or 0, -1, None)]
            while waiting:
                i, before, joint = waiting.pop()
                clique = tree.cliques[i]
                for b in clique:
                    if b > a and (a, b) not in found:
                        if joint is None:
                            found[a, b] = sum_to(self.shares[i], clique, (a, b))
                        else:
                            found[a, b] = joint.sum(axis=tuple(1 + k for k, c in enumerate(clique) if c != b))
                for k, between in near[i]:
                    if k == before:
                        continue
                    if a in tree.cliques[k]:
                        waiting.append((k, i, None))
                        continue
                    if joint is None:
                        kept = sum_to(self.shares[i], clique, (a, *between))
                        kept = np.moveaxis(kept, sorted((a, *between)).index(a), 0)
                    else:
                        kept = joint.sum(axis=tuple(1 + j for j, c in enumerate(clique) if c not in between))
                    total = kept.sum(axis=0)
                    given = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
                    shape = [-1, *tree.shape(between, tree.cliques[k])]
                    waiting.append((k, i, given.reshape(shape) * self.shares[k]))
        return found
