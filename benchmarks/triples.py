"""Should a warm start measure triples? Tables and regressions with pairs alone and with all triples.

    python benchmarks/triples.py [--seeds 1]
    python benchmarks/triples.py --local          # without a histogram: 25 attributes, 200,000 records
    python benchmarks/triples.py --people         # tables of people, attributes of up to nine levels

Adult (a9a and a9a_test together) and the synthetic records of queries.py, 12 and 16 binary attributes, two
thirds of the budget for the first release, as a warm start has. Shown are the noise of a triple (or pair) in
units of 1/sqrt(n), the largest error of a share as mean (and maximum) over all tables of 2 and 3 attributes
and 200 of 4, and the mean excess loss of 60 logistic regressions on six attributes. The limit `TRIPLE_NOISE`
was chosen on this table. With --local distributions are fitted to the attributes of each query; 150 tables of
3 and 60 of 4 attributes, and 25 regressions.

With --people, tables of people of answer_intervals.py at epsilon 1 and 4, if the noise of triples is below
1.75/sqrt(n). Compared are pairs alone ("pairs"), all triples ("all"), and a release of all triples of which
only some are fitted ("chosen"): those whose sum of squared differences from a model of the released pairs is
more than two standard deviations above its mean, up to 1,024 statistics. Shown are the noise of a triple, as
it is and divided by the size of its functions, the means of the largest errors of tables, and the mean excess
loss of logistic regressions as there.
"""

import argparse
import itertools
import math

import numpy as np

import answer_intervals
import queries
from dpcvx.accounting import gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Counts, NoisyMarginals, Regression, Universe, marginals
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.maximum_entropy import fit
from figures import update

SHARE = 2 / 3
CASES = [
    ("adult", 12, 1.0),
    ("adult", 12, 0.5),
    ("adult", 16, 1.0),
    ("adult", 16, 0.5),
    ("synthetic", 12, 0.5),
    ("synthetic", 16, 1.0),
]
LOCAL = [("adult", 25, 200_000), ("synthetic", 25, 200_000)]


def measure(name, bits, epsilon, seeds):
    schema, table = queries.adult(bits) if name == "adult" else queries.synthetic(bits, 50_000)
    universe = Universe(schema)
    counts = Counts.of(universe, table)
    n, rng = counts.n, np.random.default_rng(0)
    multiplier = 1 / (gaussian_mu(epsilon, 1 / n**2) * math.sqrt(SHARE))
    asked = []
    for _ in range(60):
        names = [schema.names[j] for j in rng.permutation(bits)[:7]]
        compiled = Regression(names[0], names[1:]).compile(schema, n)
        asked.append((compiled, counts.shares(compiled.attributes).ravel()))
    tables = {r: list(itertools.combinations(range(bits), r)) for r in (2, 3)}
    tables[4] = [tuple(sorted(rng.permutation(bits)[:4].tolist())) for _ in range(200)]
    row = {}
    for order in (2, 3):
        mechanism = NoisyMarginals(universe.shape, n, multiplier, order)
        errors, excess = {r: [] for r in tables}, []
        for seed in range(seeds):
            histogram = fit(universe, mechanism(counts, SeededGenerator(seed)))
            for r, subsets in tables.items():
                errors[r] += [float(np.abs(histogram.marginal(A) - counts.shares(A)).max()) for A in subsets]
            excess += [q.error(p, q.answer(histogram.marginal(q.attributes).ravel())) for q, p in asked]
        shown = ", ".join(f"{r}: {np.mean(e):.4f} ({max(e):.4f})" for r, e in errors.items())
        noise = mechanism.deviations[-1] * math.sqrt(n)
        print(
            f"{name} {bits} epsilon {epsilon:g}, order {order}: noise {noise:.2f}, tables {shown}, "
            f"excess {np.mean(excess):.2e}",
            flush=True,
        )
        row |= {f"order {order}, largest of {r}": max(e) for r, e in errors.items()}
        row |= {f"order {order}, excess": float(np.mean(excess)), f"order {order}, noise": noise}
    return {f"{name} {bits}, epsilon {epsilon:g}, {key}": value for key, value in row.items()}


def measure_local(name, bits, n):
    schema, table = queries.adult(bits, n) if name == "adult" else queries.synthetic(bits, n)
    universe = Universe(schema)
    counts = Counts.of(universe, table)
    multiplier = 1 / (gaussian_mu(1.0, 1 / n**2) * math.sqrt(0.8))
    rng = np.random.default_rng(0)
    tables = {
        r: [tuple(sorted(rng.permutation(bits)[:r].tolist())) for _ in range(count)]
        for r, count in ((3, 150), (4, 60))
    }
    asked = []
    for _ in range(25):
        names = [schema.names[j] for j in rng.permutation(bits)[:7]]
        asked.append(Regression(names[0], names[1:]).compile(schema, n))
    row = {}
    for order in (2, 3):
        mechanism = NoisyMarginals(universe.shape, n, multiplier, order)
        models = LocalModels(universe, mechanism(counts, SeededGenerator(0)))
        for r, subsets in tables.items():
            errors = [float(np.abs(models.marginal(A) - counts.shares(A)).max()) for A in subsets]
            row[f"order {order}, largest of {r}"] = max(errors)
        excess = [
            q.error(counts.shares(q.attributes).ravel(), q.answer(models.marginal(q.attributes).ravel()))
            for q in asked
        ]
        row[f"order {order}, excess"] = float(np.mean(excess))
        row[f"order {order}, noise"] = mechanism.deviations[-1] * math.sqrt(n)
    for key, value in row.items():
        print(f"local {name} {bits}, {n:,} records, {key}: {value:.4g}", flush=True)
    return {f"local {name} {bits}, {n} records, {key}": value for key, value in row.items()}


def standing_out(universe, released, most=marginals.MOST_TRIPLES):
    """Pairs, and the triples that a model of pairs misses by more than noise explains."""
    pairs = [m for m in released if len(m.attributes) < 3]
    histogram, found, left = fit(universe, pairs), [], most - sum(len(m.values) for m in pairs)
    for m in released:
        if len(m.attributes) == 3:
            k, off = len(m.values), m.values - m.means(histogram.marginal(m.attributes).ravel())
            found.append((float(((off / m.deviation) ** 2).sum() - k) / math.sqrt(2 * k), m.attributes, m))
    chosen = []
    for far, _, m in sorted(found, reverse=True, key=lambda each: each[:2]):
        if far > 2 and len(m.values) <= left:
            chosen.append(m)
            left -= len(m.values)
    return [*pairs, *chosen]


def measure_people(name, epsilon):
    schema, table = answer_intervals.people(name)
    universe = Universe(schema)
    counts = Counts.of(universe, table)
    n, d, sizes = counts.n, len(universe.shape), universe.shape
    multiplier = 1 / (gaussian_mu(epsilon, 1 / n**2) * math.sqrt(SHARE))
    if d < 3 or NoisyMarginals(sizes, n, multiplier, 2).deviations[1] > marginals.LARGEST_PAIR_NOISE:
        return {}
    noise = NoisyMarginals(sizes, n, multiplier, 3).deviations[2] * math.sqrt(n)
    if noise > marginals.TRIPLE_NOISE:
        return {}
    statistics = marginals.count_statistics(sizes, 3)
    functions = (statistics - marginals.count_statistics(sizes, 2)) / math.comb(d, 3)
    row = {"noise": noise, "relative noise": noise * math.sqrt(functions), "statistics": statistics}
    tables = {r: list(itertools.combinations(range(d), r)) for r in (2, 3)}
    asked = answer_intervals.queries(schema, np.random.default_rng(0), 20)
    asked = [query.compile(schema, n) for kind, query in asked if kind == "logistic"]
    for kind, order in (("pairs", 2), ("chosen", 3), ("all", 3)):
        released = NoisyMarginals(sizes, n, multiplier, order)(counts, SeededGenerator(1))
        histogram = fit(universe, standing_out(universe, released) if kind == "chosen" else released)
        for r, subsets in tables.items():
            errors = [float(np.abs(histogram.marginal(A) - counts.shares(A)).max()) for A in subsets]
            row[f"{kind}, tables of {r}"] = float(np.mean(errors))
        excess = [
            q.error(counts.shares(q.attributes).ravel(), q.answer(histogram.marginal(q.attributes).ravel()))
            for q in asked
        ]
        if excess:
            row[f"{kind}, excess"] = float(np.mean(excess))
    shown = ", ".join(f"{key} {value:.3g}" for key, value in row.items())
    print(f"{name}, {n:,} records, epsilon {epsilon:g}: {shown}", flush=True)
    return {f"{name}, epsilon {epsilon:g}, {key}": value for key, value in row.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--people", action="store_true")
    given = parser.parse_args()
    if given.people:
        for name, epsilon in itertools.product(answer_intervals.PEOPLE, (1.0, 4.0)):
            update("triples", measure_people(name, epsilon))
    else:
        for case in LOCAL if given.local else CASES:
            update("triples", measure_local(*case) if given.local else measure(*case, given.seeds))
