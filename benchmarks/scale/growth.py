"""What a step of private Frank-Wolfe over sparse records costs: python benchmarks/scale/growth.py [part ...]

features   time per iteration as p grows from 47 thousand to 20 million
records    time per iteration as n grows, entries in a row fixed
entries    time per iteration as the entries in a row grow
steps      time of a whole fit as T grows

Each at epsilon 1, where selections are close to uniform, and at epsilon 100, where they concentrate on
frequent features, beside SciPy's two products and Gumbel(2p) in the same run; SciPy's whole fits are
EXTRAPOLATED from the median of a few iterations. Cells 0 and 1, features Zipf-like, logistic loss, one
thread, CPU seconds of this process, the sides taking turns, medians. Time per iteration leaves out the first
one, which also makes the start.
"""

import argparse
import statistics
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from frank_wolfe import cpu, naive_step, plan_of, single
from threadpoolctl import threadpool_limits

import dpcvx as dp
import figures
from dpcvx.noise import SecureGenerator
from dpcvx.plans import Oracle

NAME = "sparse_frank_wolfe_growth"
NAIVE = 3  # iterations of SciPy in a round
EPSILONS = (1, 100)


@dataclass(frozen=True)
class Setting:
    """Records that are made up, and how often they are asked."""

    n: int = 20_000
    d: int = 47_000
    per_row: int = 73
    T: int = 4000


PARTS = {
    "features": ("d", (47_000, 1_600_000, 20_000_000), "features p"),
    "records": ("n", (2_500, 10_000, 40_000, 160_000), "records n"),
    "entries": ("per_row", (9, 26, 73, 219), "entries in a row, at most"),
    "steps": ("T", (250, 1000, 4000, 16_000), "iterations T"),
}


def zipf(setting, rng):
    """Rows with Zipf-like features, and labels that a few of them carry."""
    n, d, per_row = setting.n, setting.d, setting.per_row
    ranks = np.exp(rng.random((n, per_row)) * np.log(d)).astype(np.int64) % d
    mixed = (ranks * 0x9E3779B1 + 12345) % d  # frequent features lie anywhere
    X = sp.csr_matrix((np.ones(n * per_row), mixed.ravel(), np.arange(n + 1) * per_row), shape=(n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    signal = (ranks < 40).sum(axis=1) + rng.normal(size=n)
    return X, np.where(signal > np.median(signal), 1.0, -1.0)


def fitted(plan, records):
    """(seconds of each iteration, features chosen) of one fit."""
    oracle, spent, chosen = Oracle(plan, records, SecureGenerator()), [], []
    for t in range(plan.stages[0].n_calls):
        seconds, vertex = cpu(oracle.vertex)
        seconds += cpu(oracle.move, 2 / (t + 2), vertex)[0]
        spent.append(seconds)
        chosen.append(vertex.index)
    return spent, chosen


def measured(setting, rounds):
    """Seconds of an iteration and of a fit, of both sides, at each epsilon; entries of the rows touched."""
    X, y = zipf(setting, np.random.default_rng(1))
    bounds = dp.Bounds(1.0)
    records = single(X, y, bounds)
    columns, length = np.diff(X.tocsc().indptr), X.nnz / setting.n
    found = {}
    for epsilon in EPSILONS:
        plan = plan_of(dp.Logistic(), setting.n, setting.d, epsilon, setting.T, bounds)
        step = naive_step(X, y, plan.stages[0].mechanism.eta * setting.n / 4, np.random.default_rng(0))
        naive, each, whole, touched = [], [], [], []
        for _ in range(rounds):
            naive += [cpu(step)[0] for _ in range(NAIVE)]
            spent, chosen = fitted(plan, records)
            each.append(statistics.mean(spent[1:]))
            whole.append(sum(spent))
            touched.append(columns[chosen].mean() * length)
        found[epsilon] = tuple(statistics.median(values) for values in (naive, each, whole, touched))
    return found


def part(name, rounds):
    """Measure, print and return the numbers of one part: a mapping from the varied size to `measured`."""
    varied, sizes, label = PARTS[name]
    fixed = {key: value for key, value in vars(Setting()).items() if key != varied}
    print(f"\n-- {name}: {', '.join(f'{key} = {value:,}' for key, value in fixed.items())}")
    print(f"{label:>26s}  epsilon   us/step  entries touched     fit s   SciPy us/step   SciPy s   ratio")
    found = {}
    for size in sizes:
        setting = replace(Setting(), **{varied: size})
        found[size] = measured(setting, rounds)
        for epsilon, (naive, each, whole, touched) in found[size].items():
            print(
                f"{size:>26,d}  {epsilon:7d} {1e6 * each:9.1f} {touched:16.1f} {whole:9.3f} "
                f"{1e6 * naive:15.0f} {naive * setting.T:9.1f} {naive * setting.T / whole:7.0f}",
                flush=True,
            )
    return found


def numbers(name, found):
    """What is kept of a part: microseconds of an iteration of both sides, or seconds of a fit, and ratios."""
    kept = {}
    for size, sides in found.items():
        for epsilon, (naive, each, whole, touched) in sides.items():
            key = f"{name}_{size}_epsilon_{epsilon}"
            T = size if name == "steps" else Setting.T
            kept |= {f"{key}_us": 1e6 * each, f"{key}_scipy_us": 1e6 * naive, f"{key}_fit_s": whole}
            kept |= {f"{key}_touched": touched, f"{key}_ratio": naive * T / whole}
    return kept


def draw(results):
    """One panel for each part, both axes logarithmic."""
    figure, axes = figures.panels(len(results), across=2)
    for axis, (name, found) in zip(axes, results.items(), strict=False):
        sizes = list(found)
        whole = name == "steps"
        sides = {f"dpcvx, ε = {e}": [found[s][e][2 if whole else 1] for s in sizes] for e in EPSILONS}
        sides["SciPy products, Gumbel(2p)"] = [
            statistics.mean(found[s][e][0] for e in EPSILONS) * (s if whole else 1) for s in sizes
        ]
        for (side, values), style in zip(sides.items(), ("o-", "s-", "^--"), strict=True):
            axis.loglog(sizes, values, style, label=side)
        axis.set(xlabel=PARTS[name][2], ylabel="CPU seconds of a " + ("fit" if whole else "step"))
        axis.grid(alpha=0.3)
    axes[0].legend()
    figures.save_plot(figure, NAME)
    figure.savefig(figures.FOLDER.parent / "images" / f"{NAME}.png", dpi=80)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="by default all")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with threadpool_limits(1):
        results = {name: part(name, options.rounds) for name in options.parts or PARTS}
    if "features" in results:
        p = results["features"]
        growth = p[max(p)][1][1] / p[min(p)][1][1]
        print(f"\ntime per iteration at epsilon 1 from p = {min(p):,} to {max(p):,}: {growth:.2f}x, bar <= 5")
    draw(results)
    if list(results) == list(PARTS):
        kept = {key: value for name, found in results.items() for key, value in numbers(name, found).items()}
        figures.save(NAME, kept | {"growth": growth})


if __name__ == "__main__":
    main()
