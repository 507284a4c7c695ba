"""Mapped shards: the same integers against arrays in memory, and 10^8 records fitted in little memory.

Part 1 alternates the two sides in one process, pages warm: medians and their ratio. Part 2 streams synthetic
records into shards, fits them, and watches the process's anonymous memory (RssAnon) all the while.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import dpcvx
import figures
from dpcvx.data import DifferenceSum, GradientSum
from dpcvx.data.columns import Columns
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser
from dpcvx.data.table import Table
from dpcvx.losses import Logistic
from dpcvx.problem import Bounds

ONE = 2**RESIDUAL_BITS
GIB = 2**30
BATCH = 2**18


def alternate(rounds, **sides):
    """Median seconds of a call of each side, the sides taking turns."""
    times = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def batches(kind, n, d, rng):
    """Pairs (X, y) of one kind of records, all made beforehand."""
    made = []
    for start in range(0, n, BATCH):
        rows = min(BATCH, n - start)
        if kind == "sparse":
            places = rng.integers(0, d, size=(rows, 30))  # equal ones are summed when they are quantised
            X = sp.csr_array(
                (rng.random(30 * rows), places.ravel(), np.arange(0, 30 * rows + 1, 30)), (rows, d)
            )
        elif kind == "binary":
            X = pa.table({f"x{j}": rng.random(rows) < 0.5 for j in range(d)})
        else:
            X = rng.uniform(-1, 1, size=(rows, d))
        made.append((X, np.where(rng.random(rows) < 0.5, -1, 1)))
    return made


def compare(kind, n, d, rounds, folder):
    """Seconds of each question over shards and over arrays with the same integers."""
    rng = np.random.default_rng(0)
    bounds = (0, 1) if kind == "binary" else (-1, 1)
    pairs = batches(kind, n, d, rng)
    declared = {"bounds": bounds, "classes": (-1, 1), "store": folder / kind, "verbose": 0}
    if kind == "binary":
        tables = (X.append_column("y", pa.array(y)).to_batches()[0] for X, y in pairs)
        shards = dpcvx.from_arrow(tables, target="y", **declared)
        whole = pa.concat_tables([X for X, _ in pairs])
    else:
        shards = dpcvx.from_batches(pairs, **declared)
        whole = (
            sp.vstack([X for X, _ in pairs]) if kind == "sparse" else np.concatenate([X for X, _ in pairs])
        )
    table = Table(whole)
    columns = Columns.declare(table, bounds, None, None)
    quantiser = Quantiser(Bounds(1.0), columns.center, columns.scale, 1.0)
    y = np.concatenate([y for _, y in pairs]).astype(float)
    del pairs
    memory = Arrays(columns.rows(table, quantiser), y[:, None], bounds=quantiser.bounds)
    mapped = shards.source(columns, quantiser, lambda raw: _signs(raw), "rows")
    theta = rng.normal(size=mapped.d) / np.sqrt(mapped.d)
    loss, bound = Logistic(), ResidualBound(ONE, ONE)
    batch = np.flatnonzero(rng.random(n) < 0.05)
    followed = [source.follow(loss, 1) for source in (memory, mapped)]

    def step(margins):
        margins.add(3, 2**20)
        return margins.scores(2.0**-44, bound)

    asked = {
        "gradient": lambda source, _: source.sum(GradientSum(loss, theta, bound)),
        "difference": lambda source, _: source.sum(
            DifferenceSum(loss, (theta, 0 * theta), batch, bound, bound)
        ),
        "Frank-Wolfe step": lambda _, margins: step(margins),
    }
    results = {}
    for name, ask in asked.items():
        sides = {"memory": (memory, followed[0]), "mapped": (mapped, followed[1])}
        assert np.array_equal(*(ask(*side) for side in sides.values()))
        results[name] = alternate(
            rounds, **{side: lambda ask=ask, given=given: ask(*given) for side, given in sides.items()}
        )
    return results


def _signs(raw):
    return np.array([[0.0 if label is None else float(label)] for label in raw])


class Watch:
    """Largest RssAnon of this process while a block runs, in bytes."""

    def __enter__(self):
        self.largest, self._done = anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._done.wait(0.02):
            self.largest = max(self.largest, anonymous())

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        self.largest = max(self.largest, anonymous())


def anonymous():
    """RssAnon of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def people(n, d):
    """Record batches of d yes/no columns and a label that some of them explain."""
    rng = np.random.default_rng(1)
    names = [*(f"x{j}" for j in range(d)), "label"]
    for start in range(0, n, BATCH):
        rows = min(BATCH, n - start)
        bits = [rng.bytes(BATCH // 8) for _ in range(d)]
        score = sum(
            np.unpackbits(np.frombuffer(b, np.uint8), bitorder="little").astype(np.int8) for b in bits[:5]
        )
        label = (score + rng.integers(-2, 3, BATCH) > 2)[:rows]
        columns = [pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(b)]) for b in bits]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(label)], names=names)


def large(n, d, folder):
    """Make shards of n x d records and fit two models to them."""
    numbers = {"n": n, "d": d}
    with Watch() as watch:
        start = time.perf_counter()
        shards = dpcvx.from_arrow(
            people(n, d), target="label", bounds=(0, 1), classes=(False, True), store=folder / "large"
        )
        numbers["make_s"] = time.perf_counter() - start
    numbers["make_anonymous_gib"] = watch.largest / GIB
    numbers["disk_gib"] = sum(path.stat().st_size for path in (folder / "large").iterdir()) / GIB
    models = {
        "gradients": dpcvx.PrivateLogisticRegression(epsilon=1.0, n_iter=20),
        "frank_wolfe": dpcvx.PrivateLogisticRegression(
            epsilon=1.0, domain="l1", solver="frank_wolfe", n_iter=20
        ),
    }
    for name, model in models.items():
        with Watch() as watch:
            start = time.perf_counter()
            model.fit(shards)
            numbers[f"{name}_s"] = time.perf_counter() - start
        numbers[f"{name}_anonymous_gib"] = watch.largest / GIB
        numbers[f"{name}_answers"] = int(model.n_iter_)
        print(f"{name}: {model.n_iter_} answers, coefficients {np.round(model.coef_[:8], 2)}", flush=True)
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10**8, help="records of part 2")
    parser.add_argument("--d", type=int, default=20, help="columns of part 2")
    parser.add_argument("--cells", type=int, default=10**8, help="stored cells of each kind in part 1")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="on a disk with about 30 bytes for each record of part 2")
    parser.add_argument("--part", choices=("1", "2", "both"), default="both")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, numbers = Path(name), {}
        if options.part != "2":
            print("records         question              memory ms   mapped ms   ratio   (bar <= 1.15)")
            for kind, d in (("dense", 100), ("binary", 50), ("sparse", 50_000)):
                n = options.cells // (30 if kind == "sparse" else d)
                for question, times in compare(kind, n, d, options.rounds, folder).items():
                    ratio = times["mapped"] / times["memory"]
                    numbers[f"{kind} {question} ratio"] = ratio
                    memory, mapped = (1e3 * times[side] for side in ("memory", "mapped"))
                    print(
                        f"{kind:14s}  {question:20s} {memory:9.1f}  {mapped:10.1f}  {ratio:6.2f}", flush=True
                    )
        if options.part != "1":
            found = large(options.n, options.d, folder)
            numbers |= found
            print(f"{found['n']:,} x {found['d']} records, {found['disk_gib']:.2f} GiB on disk")
            for what in ("make", "gradients", "frank_wolfe"):
                used = found[f"{what}_anonymous_gib"]
                print(f"{what:12s} {found[f'{what}_s']:8.1f} s, anonymous {used:.2f} GiB (bar < 2)")
    figures.update("shards", numbers)


if __name__ == "__main__":
    main()
