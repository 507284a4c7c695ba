"""Would choosing pairs help where they are many? Regressions with all pairs, and with the strongest alone.

    python benchmarks/chosen_pairs.py [--attributes 120] [--records 5000 48842] [--queries 40]

Binary attributes of natural.factor_table. A warm start measures all pairs, 7,140 of 120 attributes. Here the
m strongest dependences are chosen instead, from the records themselves, without noise and for nothing: a
private choice can only be worse. All means are measured with a tenth of the budget, the m products with the
rest, at the noise of m numbers in [-1, 1], 2 sqrt(m)/(n mu). "none" has means alone. Logistic regressions of
one attribute on six others, epsilon 1; mean excess loss on the records. Queries "random" are on random
attributes; "near" on a target and the six attributes that depend on it most.
"""

import argparse
import math

import numpy as np

from dpcvx.accounting import gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Counts, Measurement, NoisyMarginals, Regression, Schema, Universe
from dpcvx.queries.local_models import LocalModels
from figures import save
from natural import factor_table

SHARE = 0.75  # of the budget for the first release, as a warm start has
SIGNS = np.array([[-1.0], [1.0]])


def measure(n, d, count):
    schema = Schema(tuple(Attribute(f"a{j}", (0, 1), 0) for j in range(d)))
    table = factor_table(n, d)
    universe = Universe(schema)
    counts = Counts.of(universe, table)
    signs = 2.0 * np.stack([table[f"a{j}"] for j in range(d)], axis=1) - 1
    means, products = signs.mean(axis=0), signs.T @ signs / n
    dependence = np.abs(products - np.outer(means, means))
    mu = gaussian_mu(1.0, 1 / n**2) * math.sqrt(SHARE)
    rng = np.random.default_rng(1)
    random = [rng.permutation(d)[:7] for _ in range(count)]
    near = []
    for target in rng.permutation(d)[:count]:
        strongest = np.argsort(-np.where(np.arange(d) == target, 0, dependence[target]))[:6]
        near.append(np.append(target, strongest))
    pairs = [(a, b) for a in range(d) for b in range(a + 1, d)]
    pairs.sort(key=lambda pair: -dependence[pair])
    noise = np.random.default_rng(2)

    def chosen(m):
        first = math.sqrt(d) * 2 / (n * mu * math.sqrt(0.1))
        found = [
            Measurement((a,), (SIGNS,), np.array([means[a] + first * noise.normal()]), first)
            for a in range(d)
        ]
        second = 2 * math.sqrt(m) / (n * mu * math.sqrt(0.9)) if m else 1.0
        for a, b in pairs[:m]:
            value = products[a, b] + second * noise.normal()
            found.append(Measurement((a, b), (SIGNS, SIGNS), np.array([value]), second))
        return found

    row = {}
    sizes = (0, d // 2, 2 * d, 8 * d)
    every = NoisyMarginals(universe.shape, n, 1 / mu, 2)(counts, SeededGenerator(0))
    for name, released in (("all", every), *((str(m) if m else "none", chosen(m)) for m in sizes)):
        models = LocalModels(universe, released)
        for kind, queries in (("random", random), ("near", near)):
            excess = []
            for places in queries:
                names = [f"a{j}" for j in places]
                compiled = Regression(names[0], names[1:]).compile(schema, n)
                theta = compiled.answer(models.marginal(compiled.attributes).ravel())
                excess.append(compiled.error(counts.shares(compiled.attributes).ravel(), theta))
            row[f"{kind}, {name}"] = float(np.mean(excess))
            print(f"n = {n:,}: {kind} regressions, pairs {name}: {row[f'{kind}, {name}']:.2e}", flush=True)
    return {f"{n}, {key}": value for key, value in row.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attributes", type=int, default=120)
    parser.add_argument("--records", type=int, nargs="+", default=[5_000, 48_842])
    parser.add_argument("--queries", type=int, default=40)
    given = parser.parse_args()
    found = {}
    for n in given.records:
        found |= measure(n, given.attributes, given.queries)
        save("chosen_pairs", found)
