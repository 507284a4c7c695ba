"""Coverage of intervals of regressions, by the share of the people who lack the target.

    python benchmarks/missing_targets.py [--seeds 2] [--shares 0 0.05 0.1 0.2 0.4]

Tables of the development part of answer_intervals.py with at least 4,000 people and no missing cells in the
target. The target of a squared-loss regression on up to four attributes is removed for a share of the people.
Four fifths of these people (if there are so many) have a level of the upper half in both of two random
features ("both"), or in both or neither ("equal"); the others are random. Pairs show how the missing cells
depend on each feature, not on both at once.

The engine has these attributes alone and the warm start (pairs; triples are not measured), epsilon 4 and
delta 1/n^2, and answers without comparisons. The truth is least squares on the records. A number is "far" if
its error is above three times the half-width of its interval. Writes docs/figures/missing_targets.json.
"""

import argparse
import itertools
from functools import cache

import numpy as np

from answer_intervals import PARTS, described, people
from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Counts, QueryEngine, Regression, Schema, Universe, engine_plan
from dpcvx.queries.answer_intervals import coefficients
from dpcvx.queries.attribute_codes import has_mean, missing_cells
from dpcvx.queries.readings import INTERCEPT
from dpcvx.queries.transcript import pack
from figures import save

PATTERNS = ("both", "equal")
FAR = 3.0
FEWEST = 4_000  # people of a table
TARGETS = 3  # of each table


def with_missing(attribute):
    """The attribute with a level, or a cell, of its own for missing values."""
    kind = type(attribute)
    if hasattr(attribute, "edges"):
        return kind(attribute.name, attribute.edges)
    return kind(attribute.name, attribute.levels)


tables = cache(people)


def measure(name, pattern, share, seed, found):
    schema, table = tables(name)
    n = len(next(iter(table.values())))
    if n < FEWEST or len(schema.names) < 4:
        return
    rng = np.random.default_rng(seed)
    codes = Counts.of(Universe(schema), table)
    whole = [a.name for a in schema.attributes if not missing_cells(a) and has_mean(a)]
    for target in rng.permutation(whole)[:TARGETS].tolist():
        others = [each for each in schema.names if each != target]
        features = rng.permutation(others)[: min(4, len(others))].tolist()
        places = [schema.names.index(each) for each in features[:2]]
        levels = [codes.codes((place,))[0] for place in places]
        one, other = (own >= max(np.median(own), 1) for own in levels)
        both = one & other if pattern == "both" else one == other
        inside = min(1.0, 0.8 * share * n / max(both.sum(), 1))
        outside = (share * n - inside * both.sum()) / max((~both).sum(), 1)
        absent = rng.random(n) < np.where(both, inside, max(outside, 0.0))
        column = table[target].copy()
        column[absent] = None if column.dtype == object else np.nan
        attributes = (with_missing(schema[target]), *(schema[each] for each in features))
        answer(Schema(attributes), {**table, target: column}, n, seed, target, features, found)


def answer(schema, table, n, seed, target, features, found):
    counts = Counts.of(Universe(schema), table)
    options = {"method": "warm", "check": 0, "bin_means": 0, "rng": SeededGenerator(seed)}
    asked = QueryEngine(schema, table, Budget(4.0, 1 / n**2), **options)
    query = Regression(target, features, loss="squared", radius=10.0)
    compiled = query.compile(asked.schema, n)
    public, noise = asked._public_side.answer(compiled)
    best = compiled.answer(counts.marginal(compiled.attributes).ravel() / n)
    reading = query.reading(asked.schema, n)
    numbers = coefficients(reading, public.theta, noise, None, n)
    for number, truth in zip(numbers, reading.numbers(best), strict=True):
        if number.low is not None and number.name != INTERCEPT:
            found.append(tuple(x - truth for x in (number.estimate, number.low, number.high)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.05, 0.1, 0.2, 0.4])
    given = parser.parse_args()
    QueryEngine._release_checks = lambda engine: pack(values=np.zeros(len(engine.budget_split.checks)))
    engine_plan.marginal_order = lambda *_, **__: 2
    figures = {}
    for pattern, share in itertools.product(PATTERNS, given.shares):
        found = []
        for name in PARTS["development"]:
            for seed in range(given.seeds):
                measure(name, pattern, share, seed, found)
        count, covered, _ = described(found)
        error, low, high = np.array(found).T
        far = float(100 * np.mean(np.abs(error) > FAR * np.maximum(high - low, 1e-12) / 2))
        key = f"{pattern}, {share}"
        print(f"{key}: {count} numbers, {covered:.1f} % covered, {far:.1f} % far", flush=True)
        figures |= {f"{key}, numbers": count, f"{key}, covered": covered, f"{key}, far": far}
    save("missing_targets", figures)


if __name__ == "__main__":
    main()
