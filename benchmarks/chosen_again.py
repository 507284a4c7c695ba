"""Does it help to measure the strongest pairs again, where pairs are mostly noise?

    python benchmarks/chosen_again.py [--tables causaldata/nhefs openintro/labor_market_discrimination]

Tables, regressions and marginals of joint_pairs.py, epsilon 1. "all" is the method of the engine: one release
of all pairs, estimated together. "again": 70 % of that budget pays for such a release. The pairs that are
strongest by its estimates, three for each attribute, are measured again with the rest of the budget, and both
measurements are averaged by their variances; no private selection is needed. Mean of two seeds, errors as in
joint_pairs.py. Writes docs/figures/chosen_again.json.
"""

import argparse
import math
import warnings
from collections import defaultdict
from dataclasses import replace

import numpy as np

from dpcvx.accounting import gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.queries import NoisyMarginals
from dpcvx.queries.joint_shrinkage import shrink_together
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.wide_regression import WideRegression
from figures import update
from joint_pairs import SEEDS, SHARE, TABLES, Case

FIRST, CHOSEN = 0.7, 3  # share of the first stage; pairs for each attribute
ASKED = 30  # regressions, and tables of each kind


def mechanism(case, share, order=2):
    mu = math.sqrt(share * SHARE) * gaussian_mu(1.0, 1 / case.n**2)
    return NoisyMarginals(tuple(case.sizes), case.n, 1 / mu, order)


def strongest(case, measurements):
    """The pairs whose covariances are largest."""
    by = {m.attributes: m.values for m in measurements}
    size = {
        key: float(((values - np.outer(by[key[:1]], by[key[1:]]).ravel()) ** 2).sum())
        for key, values in by.items()
        if len(key) == 2
    }
    return sorted(size, key=lambda key: -size[key])[: CHOSEN * len(case.sizes)]


def measured(case, exact, pairs, share, rng):
    """Products of some pairs; a record moves those of a pair by at most twice (1 + the least product)."""
    squared = sum(2 * (1 + max(1 / (case.sizes[a] - 1) for a in pair)) for pair in pairs)
    deviation = math.sqrt(squared / (share * SHARE)) / (case.n * gaussian_mu(1.0, 1 / case.n**2))
    return {
        m.attributes: replace(
            m, values=m.values + deviation * rng.normal(size=len(m.values)), deviation=deviation
        )
        for m in exact
        if m.attributes in pairs
    }


def averaged(first, second):
    if second is None:
        return first
    one, other = first.deviation**-2, second.deviation**-2
    values = (one * first.values + other * second.values) / (one + other)
    return replace(first, values=values, deviation=(one + other) ** -0.5)


def releases(case, exact, seed):
    sizes, rng = tuple(case.sizes), np.random.default_rng(seed)
    yield "all", shrink_together(mechanism(case, 1.0)(case.counted, SeededGenerator(seed)), sizes)
    first = shrink_together(mechanism(case, FIRST)(case.counted, SeededGenerator(seed)), sizes)
    second = measured(case, exact, set(strongest(case, first)), 1 - FIRST, rng)
    yield "again", tuple(averaged(m, second.get(m.attributes)) for m in first)


def errors(case):
    exact = NoisyMarginals(tuple(case.sizes), case.n, 1e-3, 2)(case.counted, SeededGenerator(0))
    found = defaultdict(list)
    for seed in SEEDS:
        for kind, used in releases(case, exact, seed):
            models = LocalModels(case.counted.universe, used)
            excess = []
            for query in case.regressions[:ASKED]:
                compiled = query.compile(case.schema, case.n)
                if isinstance(compiled, WideRegression):
                    theta, _ = compiled.fit(models)
                else:
                    theta = compiled.answer(models.marginal(compiled.attributes).ravel())
                excess.append(case.excess(case.schema, query, theta))
            found[f"{kind}, regressions"].append(np.mean(excess))
            for order, tables in case.tables.items():
                off = [
                    np.abs(models.marginal(t).ravel() - case.shares(case.codes, t)).max()
                    for t in tables[:ASKED]
                ]
                found[f"{kind}, tables of {order}"].append(np.mean(off))
    return {key: float(np.mean(values)) for key, values in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=TABLES)
    warnings.simplefilter("ignore")
    for name in parser.parse_args().tables:
        row = errors(Case(name))
        print(name, *(f"{key} {value:.2g};" for key, value in row.items()), flush=True)
        update("chosen_again", {f"{name}, {key}": value for key, value in row.items()})
