"""Junction trees, against the table of all cells."""

import itertools
import math

import numpy as np
import pytest

from dpcvx.queries.junction_tree import JunctionTree, TreeModel, count_cells

SIZES = (2, 3, 2, 4, 3)
GRAPHS = {
    "path": [(0, 1), (1, 2), (2, 3), (3, 4)],
    "star": [(0, 2), (1, 2), (2, 3), (2, 4)],
    "cycle": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "two parts": [(0, 1), (2, 3)],
    "nothing": [],
    "complete": list(itertools.combinations(range(5), 2)),
}


def pair_of(joint, pair):
    return joint.sum(axis=tuple(a for a in range(joint.ndim) if a not in pair))


def wanted(seed=0):
    """Shares of single attributes and of pairs of a distribution, so that they agree with each other."""
    joint = np.random.default_rng(seed).dirichlet(np.full(math.prod(SIZES), 0.7)).reshape(SIZES)
    singles = [joint.sum(axis=tuple(b for b in range(5) if b != a)) for a in range(5)]
    return singles, {pair: pair_of(joint, pair) for pair in itertools.combinations(range(5), 2)}


def fitted_on_all_cells(singles, pairs, sweeps=4000):
    """The same distribution by proportional fitting of the whole table."""
    joint = np.ones(SIZES)
    for a, shares in enumerate(singles):
        joint = joint * shares.reshape([-1 if b == a else 1 for b in range(5)])
    for _ in range(sweeps if pairs else 0):
        for pair, shares in pairs.items():
            ratio = shares / pair_of(joint, pair)
            joint = joint * ratio.reshape([SIZES[a] if a in pair else 1 for a in range(5)])
    return joint


@pytest.mark.parametrize("name", GRAPHS)
def test_the_model_is_the_distribution_of_largest_entropy(name, monkeypatch):
    monkeypatch.setattr("dpcvx.queries.junction_tree.SWEEPS", 2000)
    singles, tables = wanted()
    pairs = {pair: tables[pair] for pair in GRAPHS[name]}
    model = TreeModel(JunctionTree(SIZES, pairs), singles, pairs)
    joint = fitted_on_all_cells(singles, pairs)
    assert set(model.pairs) == set(tables)
    for pair, shares in model.pairs.items():
        assert shares == pytest.approx(pair_of(joint, pair), abs=1e-7)
    for a in range(5):
        assert model.table((a,)) == pytest.approx(singles[a], abs=1e-9)


def test_few_sweeps_are_enough_where_pairs_have_no_cycles():
    singles, tables = wanted(1)
    pairs = {pair: tables[pair] for pair in GRAPHS["path"]}
    model = TreeModel(JunctionTree(SIZES, pairs), singles, pairs)
    for pair in pairs:
        assert model.table(pair) == pytest.approx(tables[pair], abs=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_cliques_hold_every_pair_and_overlap_along_the_tree(name):
    tree = JunctionTree(SIZES, GRAPHS[name])
    assert all(tree.place(pair) is not None for pair in GRAPHS[name])
    assert all(tree.place((a,)) is not None for a in range(5))
    for a in range(5):  # the cliques of an attribute are connected
        holding = {i for i, clique in enumerate(tree.cliques) if a in clique}
        tops = [i for i in holding if tree.parent[i] not in holding]
        assert len(tops) == 1
    walk = tree.walk()
    assert {i for _, i in walk} == set(range(len(tree.cliques)))
    assert walk[-1][1] == 0
    near = {(tree.parent[i], i) for i in tree.order[1:]}
    assert all(before is None or (before, i) in near or (i, before) in near for before, i in walk)


def test_cells_are_those_of_the_cliques():
    assert count_cells(SIZES, []) == sum(SIZES)
    assert count_cells(SIZES, GRAPHS["path"]) == 6 + 6 + 8 + 12
    assert count_cells(SIZES, GRAPHS["complete"]) == math.prod(SIZES)


def test_what_the_tree_does_not_hold_is_refused():
    singles, tables = wanted()
    tree = JunctionTree(SIZES, [(0, 1)])
    with pytest.raises(ValueError, match="does not hold a pair"):
        TreeModel(tree, singles, {(1, 2): tables[1, 2]})
    with pytest.raises(ValueError, match="No clique holds"):
        TreeModel(tree, singles, {}).table((1, 2))
