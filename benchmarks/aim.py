"""AIM of McKenna, Mullins, Sheldon and Miklau (2022), and MST of McKenna, Miklau and Sheldon (2021).

For attributes of any number of levels; the model is that of graphical_model.py. Written for tables on which
those of other packages take hours; query_opponents.py runs them as "tree aim" and "tree mst".
"""

import itertools
import time

import numpy as np

from graphical_model import Measured, count_cells, fit


def aim(codes, sizes, rho, rng, *, order=2, cells=200_000, iterations=100, last=1000, report=print):
    """Fitted model; rho: zCDP for one record more or less.

    order: the workload is all tables of so many attributes; cells: most cells of the junction tree, of which
    a round may use the part of the budget that is spent (AIM's rule); iterations: of mirror descent after
    each round, and `last` of them at the end.
    """
    p, n = len(sizes), len(codes)
    workload = list(itertools.combinations(range(p), order))
    near = {
        table: float(sum(len({*table} & {*other}) for other in workload))
        for size in range(1, order + 1)
        for table in itertools.combinations(range(p), size)
    }
    heaviest = max(near.values())
    exact = {table: _count(codes, sizes, table) for table in near}
    rounds = 16 * p
    sigma, epsilon = np.sqrt(rounds / (2 * 0.9 * rho)), np.sqrt(8 * 0.1 * rho / rounds)
    measured, spent = Measured(), 0.0
    for j in range(p):
        _measure(measured, (j,), exact, sigma, rng)
        spent += 1 / (2 * sigma**2)
    model = fit(sizes, measured, n, iterations=iterations)
    done = False
    began = time.process_time()
    for step in itertools.count():
        if rho - spent < 2 * (1 / (2 * sigma**2) + epsilon**2 / 8):
            left = rho - spent
            sigma, epsilon, done = np.sqrt(1 / (2 * 0.9 * left)), np.sqrt(8 * 0.1 * left), True
        spent += 1 / (2 * sigma**2) + epsilon**2 / 8
        chosen = _select(
            model, measured, exact, near, n, sigma, epsilon / heaviest, cells * min(spent / rho, 1.0), rng
        )
        before = model.table(chosen)
        _measure(measured, chosen, exact, sigma, rng)
        model = fit(sizes, measured, n, model.potentials, last if done else iterations)
        moved = n * np.abs(model.table(chosen) - before).sum()
        report(
            f"round {step}: {chosen}, deviation {sigma:.0f}, {spent / rho:.3f} spent, "
            f"{sum(each.size for each in model.shares)} cells, {time.process_time() - began:.0f} s"
        )
        if done:
            return model
        if moved <= np.sqrt(2 / np.pi) * sigma * before.size:
            sigma, epsilon = sigma / 2, 2 * epsilon


def mst(codes, sizes, rho, rng, *, iterations=1000):
    """Fitted model; rho: zCDP for one record more or less, a third each for three parts.

    Single attributes are measured; a spanning tree of pairs is selected by the exponential mechanism, one
    edge at a time, by the l1 distance of each pair from independence; its pairs are measured.
    """
    p, n, third = len(sizes), len(codes), rho / 3
    pairs = list(itertools.combinations(range(p), 2))
    exact = {table: _count(codes, sizes, table) for table in [(j,) for j in range(p)] + pairs}
    measured = Measured()
    for j in range(p):
        _measure(measured, (j,), exact, np.sqrt(p / (2 * third)), rng)
    independent = fit(sizes, measured, n, iterations=iterations).pairs()
    errors = {pair: np.abs(exact[pair] - n * independent[pair]).sum() for pair in pairs}
    epsilon, part, chosen = np.sqrt(8 * third / (p - 1)), list(range(p)), []
    for _ in range(p - 1):
        free = [pair for pair in pairs if part[pair[0]] != part[pair[1]]]
        scores = np.array([epsilon / 2 * errors[pair] for pair in free])
        a, b = pair = free[int(np.argmax(scores + rng.gumbel(size=len(free))))]
        chosen.append(pair)
        part = [part[a] if each == part[b] else each for each in part]
    for pair in chosen:
        _measure(measured, pair, exact, np.sqrt((p - 1) / (2 * third)), rng)
    return fit(sizes, measured, n, iterations=iterations)


def _count(codes, sizes, table):
    shape = [sizes[j] for j in table]
    flat = np.ravel_multi_index([codes[:, j] for j in table], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def _measure(measured, table, exact, sigma, rng):
    measured.add(table, exact[table] + sigma * rng.normal(size=exact[table].shape), sigma)


def _select(model, measured, exact, near, n, sigma, scale, cells, rng):
    """Table of the largest noisy score among those that the junction tree can hold.

    The noise is Gumbel's, so the first table in order of noisy scores that fits is that of the exponential
    mechanism among all that fit. Tables whose noise would be larger than any error have no chance, and no
    score.
    """
    pairs, found = model.pairs(), []
    for table, weight in near.items():
        penalty = np.sqrt(2 / np.pi) * sigma * exact[table].size
        if penalty > 2 * n and len(table) > 1:
            continue
        shares = pairs[table] if len(table) == 2 else model.table(table)
        error = np.abs(exact[table] - n * shares).sum()
        found.append((scale / 2 * weight * (error - penalty) + rng.gumbel(), table))
    sizes = model.tree.sizes
    for _, table in sorted(found, reverse=True):
        held = model.tree.place(table) is not None
        if held or count_cells(sizes, [*measured.values, table]) <= cells:
            return table
    raise ValueError("no table fits")
