"""Graphical models of tables by message passing on a junction tree, for AIM and MST in query_opponents.py.

A model is exp(sum of one potential for each measured table), over attributes of any number of levels. Needs
numpy alone, so that it runs in the environments of other packages too: their own fits compile a program for
every new set of tables.
"""

import numpy as np


def eliminate(sizes, tables):
    """Cliques of a triangulated graph of the tables, the attribute of the smallest one removed first."""
    near = [set() for _ in sizes]
    for table in tables:
        for j in table:
            near[j].update(table)
    for j, each in enumerate(near):
        each.discard(j)
    cost = {j: sizes[j] * float(np.prod([sizes[k] for k in near[j]])) for j in range(len(sizes))}
    cliques = []
    while cost:
        j = min(cost, key=cost.get)
        del cost[j]
        clique = {j, *near[j]}
        if not any(clique <= other for other in cliques):
            cliques.append(clique)
        for k in near[j]:
            near[k] |= near[j]
            near[k] -= {j, k}
        for k in near[j]:
            cost[k] = sizes[k] * float(np.prod([sizes[m] for m in near[k]]))
    return [tuple(sorted(clique)) for clique in cliques]


def count_cells(sizes, tables):
    """Number of cells of all cliques of the junction tree."""
    return sum(float(np.prod([sizes[j] for j in clique])) for clique in eliminate(sizes, tables))


class Tree:
    """Junction tree: cliques, the first of which is the root, the parent of each, and their separators."""

    def __init__(self, sizes, tables):
        self.sizes = sizes
        self.cliques = eliminate(sizes, tables)
        sets = [set(clique) for clique in self.cliques]
        count = len(sets)
        self.parent, order, best = [-1] * count, [0], {}
        for i in range(1, count):
            best[i] = (len(sets[i] & sets[0]), 0)
        while best:
            i = max(best, key=lambda k: best[k][0])
            self.parent[i] = best.pop(i)[1]
            order.append(i)
            for k in best:
                if (shared := len(sets[k] & sets[i])) > best[k][0]:
                    best[k] = (shared, i)
        self.order = order
        self.separator = [
            () if p < 0 else tuple(sorted(sets[i] & sets[p])) for i, p in enumerate(self.parent)
        ]
        self.home = {}

    def place(self, table):
        """Number of a clique that holds a table, or None."""
        if table not in self.home:
            inside = [i for i, clique in enumerate(self.cliques) if set(table) <= set(clique)]
            self.home[table] = min(
                inside, key=lambda i: np.prod([self.sizes[j] for j in self.cliques[i]]), default=None
            )
        return self.home[table]

    def shape(self, attributes, clique):
        """Shape that makes an array of some attributes of a clique fit the whole clique."""
        return [self.sizes[j] if j in attributes else 1 for j in clique]


def sum_to(array, clique, attributes):
    """Sum an array over a clique to some of its attributes, in the clique's order."""
    return array.sum(axis=tuple(a for a, j in enumerate(clique) if j not in attributes))


class Model:
    """A calibrated distribution: shares of every clique of the tree."""

    def __init__(self, tree, potentials):
        self.tree, self.potentials = tree, potentials
        scores = [np.zeros([tree.sizes[j] for j in clique]) for clique in tree.cliques]
        for table, potential in potentials.items():
            i = tree.place(table)
            scores[i] += potential.reshape(tree.shape(table, tree.cliques[i]))
        weights = [np.exp(score - score.max()) for score in scores]
        sent = [None] * len(weights)
        for i in reversed(tree.order[1:]):
            p, between = tree.parent[i], tree.separator[i]
            sent[i] = sum_to(weights[i], tree.cliques[i], between)
            sent[i] = np.maximum(sent[i] / sent[i].max(), 1e-250)
            weights[p] = weights[p] * sent[i].reshape(tree.shape(between, tree.cliques[p]))
            weights[p] /= weights[p].max()
        self.shares, self.between = [None] * len(weights), [None] * len(weights)
        for i in tree.order:
            clique, p, between = tree.cliques[i], tree.parent[i], tree.separator[i]
            if p >= 0:
                self.between[i] = sum_to(self.shares[p], tree.cliques[p], between)
                weights[i] = weights[i] * (self.between[i] / sent[i]).reshape(tree.shape(between, clique))
            self.shares[i] = weights[i] / weights[i].sum()

    def table(self, attributes):
        """Shares of a table, in the order of its attributes."""
        wanted = tuple(sorted(attributes))
        home = self.tree.place(wanted)
        if home is None:
            found = self._across(wanted)
        else:
            found = sum_to(self.shares[home], self.tree.cliques[home], wanted)
        return found.transpose([wanted.index(j) for j in attributes])

    def _across(self, wanted):
        """Shares of attributes of several cliques: conditional tables are multiplied along the tree."""
        tree, carried = self.tree, {}
        for i in reversed(tree.order):
            clique = tree.cliques[i]
            inside = [carried.pop(k) for k in list(carried) if tree.parent[k] == i]
            own = set(wanted) & (set(clique) - set(tree.separator[i]))
            if not inside and not own:
                continue
            if tree.parent[i] >= 0:
                below = self.between[i].reshape(tree.shape(tree.separator[i], clique))
                factor = np.divide(self.shares[i], below, out=np.zeros_like(self.shares[i]), where=below > 0)
            else:
                factor = self.shares[i]
            names, parts = set(clique), [(clique, factor)]
            for attributes, array in inside:
                names |= set(attributes)
                parts.append((attributes, array))
            keep = tuple(sorted((names & set(wanted)) | set(tree.separator[i])))
            number = {j: k for k, j in enumerate(sorted(names))}
            operands = []
            for attributes, array in parts:
                operands += [array, [number[j] for j in attributes]]
            result = np.einsum(*operands, [number[j] for j in keep], optimize="greedy")
            carried[i] = (keep, result)
        ((attributes, array),) = carried.values()
        return array

    def pairs(self):
        """Shares of the tables of all pairs of attributes."""
        tree, found = self.tree, {}
        children = [[] for _ in tree.cliques]
        for i, p in enumerate(tree.parent):
            if p >= 0:
                children[p].append(i)
        for a in range(len(tree.sizes)):
            start = tree.place((a,))
            stack = [(start, -1, None)]
            while stack:
                i, came, given = stack.pop()
                clique = tree.cliques[i]
                if a in clique:
                    joint = None
                else:
                    # given: shares of (a, separator); over the separator, times the clique
                    between, array = given
                    below = array.sum(axis=0)
                    ratio = np.divide(array, below, out=np.zeros_like(array), where=below > 0)
                    shape = tree.shape(between, clique)
                    joint = ratio.reshape([-1, *shape]) * self.shares[i]
                for b in clique:
                    if b > a and (a, b) not in found:
                        if joint is None:
                            found[a, b] = sum_to(self.shares[i], clique, (a, b))
                        else:
                            axes = tuple(1 + k for k, j in enumerate(clique) if j != b)
                            found[a, b] = joint.sum(axis=axes)
                for k in (*children[i], tree.parent[i]):
                    if k in (came, -1):
                        continue
                    between = tree.separator[k] if k != tree.parent[i] else tree.separator[i]
                    if a in tree.cliques[k]:
                        stack.append((k, i, None))
                    elif joint is None:
                        shared = tuple(sorted({a, *between}))
                        array = sum_to(self.shares[i], clique, shared)
                        stack.append((k, i, (between, np.moveaxis(array, shared.index(a), 0))))
                    else:
                        axes = tuple(1 + m for m, j in enumerate(clique) if j not in between)
                        stack.append((k, i, (between, joint.sum(axis=axes))))
        return found

    def draw(self, rows, rng):
        """Codes of records that follow the model, (rows, attributes)."""
        tree = self.tree
        codes = np.full((rows, len(tree.sizes)), -1, dtype=np.int16)
        for i in tree.order:
            clique, between = tree.cliques[i], tree.separator[i]
            new = [j for j in clique if j not in between]
            shape = [tree.sizes[j] for j in between]
            axes = [clique.index(j) for j in (*between, *new)]
            shares = self.shares[i].transpose(axes).reshape(int(np.prod(shape)), -1)
            total = np.cumsum(shares, axis=1)
            empty = total[:, -1] <= 0
            total[empty] = np.arange(1, total.shape[1] + 1)
            total /= total[:, -1:]
            group = np.zeros(rows, dtype=np.int64)
            for j, size in zip(between, shape, strict=True):
                group = group * size + codes[:, j]
            flat = (total + np.arange(len(total))[:, None]).ravel()
            found = np.searchsorted(flat, group + rng.random(rows), side="right")
            found = np.minimum(found - group * total.shape[1], total.shape[1] - 1)
            for j, code in zip(new, np.unravel_index(found, [tree.sizes[j] for j in new]), strict=True):
                codes[:, j] = code
        return codes


class Measured:
    """Noisy tables, those of the same attributes joined by their weights."""

    def __init__(self):
        self.values, self.weights = {}, {}

    def add(self, table, values, deviation):
        """Add a noisy table of counts; the attributes of `table` increase."""
        weight = 1 / deviation**2
        before = self.weights.get(table, 0.0)
        self.values[table] = (before * self.values.get(table, 0.0) + weight * values) / (before + weight)
        self.weights[table] = before + weight

    def total(self):
        """Number of records, of least variance among sums of the tables."""
        weights = {table: self.weights[table] / value.size for table, value in self.values.items()}
        mean = sum(w * self.values[table].sum() for table, w in weights.items()) / sum(weights.values())
        return max(mean, 1.0)


def fit(sizes, measured, n=None, start=None, iterations=1000):
    """Model of least weighted squares on the noisy tables, by mirror descent with a line search.

    As in McKenna, Sheldon and Miklau (2019), Algorithm 1: potentials move against the gradient of
    their tables.
    """
    n = measured.total() if n is None else n
    singles = [(j,) for j in range(len(sizes))]
    tree = Tree(sizes, [*measured.values, *singles])
    tables = list(measured.values)
    start = start or {}
    potentials = {
        table: start[table].copy() if table in start else np.zeros(measured.values[table].shape)
        for table in tables
    }
    goal = {table: measured.values[table] / n for table in tables}
    weight = {table: measured.weights[table] for table in tables}
    most = max(weight.values())
    weight = {table: w / most for table, w in weight.items()}

    def loss(model):
        gap = {table: model.table(table) - goal[table] for table in tables}
        return sum(w * float((gap[table] ** 2).sum()) for table, w in weight.items()) / 2, gap

    model = Model(tree, potentials)
    value, gap = loss(model)
    alpha = 2.0 / len(tables)
    for _ in range(iterations):
        moved = {table: potentials[table] - alpha * weight[table] * gap[table] for table in tables}
        tried = Model(tree, moved)
        below, other = loss(tried)
        slope = sum(
            weight[table] * float((gap[table] * (gap[table] - other[table])).sum()) for table in tables
        )
        if value - below >= 0.5 * slope:
            potentials, model, value, gap = moved, tried, below, other
            alpha *= 1.5
        else:
            alpha *= 0.5
            if alpha < 1e-12:
                break
    return model
