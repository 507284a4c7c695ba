"""Rounds of a gradient on a Dask cluster of two processes against one process with two threads; a kill."""

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

from dpcvx import Bounds, Budget, L2Ball, Ledger, Logistic, Problem, execute, plan
from dpcvx.data import GradientSum
from dpcvx.data.cluster import dask_source
from dpcvx.data.cluster.workers import Call
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent

FEATURES = 250
BOUNDS = Bounds(1.0)
ONE = ResidualBound(2**RESIDUAL_BITS, 2**RESIDUAL_BITS)
BARS = {0.2: 3.0, 2.0: 1.5}  # of a round's time, by gigabytes
PAUSE = 0.05
CALLS = 4  # in a row, as a solver makes them; the first one of a turn, after the pause, is not counted


class Vouched(SeededGenerator):
    """Noise that can be drawn again, so that bits can be compared; never use it for a release."""

    private = True


def alternate(rounds: int, **sides: Callable[[], object]) -> dict[str, float]:
    """Median milliseconds of a call of each side, the sides taking turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(PAUSE)
            side()
            for _ in range(CALLS - 1):
                start = time.perf_counter()
                side()
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def collections(n: int) -> tuple[da.Array, da.Array]:
    """Rows and labels that workers make themselves, in partitions of about 64 MB."""
    random = da.random.default_rng(0)
    X = random.uniform(-1, 1, size=(n, FEATURES), chunks=(min(-(-n // 4), 2**15), FEATURES))
    return X, da.sign(X[:, 0] + 0.3 * random.normal(size=n, chunks=(X.chunks[0],)))


def in_memory(X: da.Array, y: da.Array) -> Arrays:
    """The same records in this process, a partition at a time."""
    stored, start = np.empty(X.shape, dtype=np.int16), 0
    for block in X.partitions:
        stored[start : start + len(block)] = Quantiser(BOUNDS).quantise(block.compute()).values
        start += len(block)
    return Arrays(Dense(stored), y.compute()[:, None], bounds=BOUNDS, threads=2)


def rounds_table(size: float, unit: int, rounds: int) -> None:
    n = int(size * 1e9 / (unit * FEATURES))
    X, y = collections(n)
    theta = np.random.default_rng(1).normal(size=FEATURES) / np.sqrt(FEATURES)
    one, cluster = in_memory(X, y), dask_source(X, y, bounds=BOUNDS)
    same = (
        one.sum(GradientSum(Logistic(), theta, ONE)) == cluster.sum(GradientSum(Logistic(), theta, ONE))
    ).all()
    times = alternate(
        rounds,
        one=lambda: one.sum(GradientSum(Logistic(), theta, ONE)),
        cluster=lambda: cluster.sum(GradientSum(Logistic(), theta, ONE)),
        empty=lambda: [
            call.answer() for call in [Call(shard, ("", "describe")) for shard in cluster._shards]
        ],
    )
    cluster.close()
    ratio = times["cluster"] / times["one"]
    kind = {8: "float64", 2: "stored"}[unit]
    print(
        f"| {size:g} GB {kind} | {n} x {FEATURES} | {times['one']:.1f} ms | {times['cluster']:.1f} ms | "
        f"{times['empty']:.1f} ms | {ratio:.2f}x | {BARS.get(size, float('nan')):g}x | {bool(same)} |"
    )


@contextmanager
def timed(what: str):
    start = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - start:.2f} s")


def kill_table(client: Client, n: int) -> None:
    X, y = collections(n)
    problem = Problem(Logistic(), L2Ball(3.0), bounds=BOUNDS, d=FEATURES)
    chosen = plan(problem, n, Budget(1.0, 1e-8), (NoisyGradientDescent(n_iter=40),))
    expected = execute(chosen, in_memory(X, y), rng=Vouched(1)).theta
    source = dask_source(X, y, bounds=BOUNDS)
    with timed("40 rounds on the cluster"):
        undisturbed = execute(chosen, source, rng=Vouched(1)).theta

    def progress(done: int, total: int) -> None:
        if done == total // 2:
            pids = client.run(os.getpid)
            os.kill(pids[min(pids)], signal.SIGKILL)

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        account = ledger.create("people", epsilon=1.0, delta=1e-7)
        with timed("40 rounds, one worker killed by SIGKILL after 20"):
            disturbed = execute(
                chosen, source, rng=Vouched(1), ledger=ledger, account="people", progress=progress
            ).theta
        charges = len(account.history())
    source.close()
    print(f"same bits as in one process: {bool((undisturbed == expected).all())}")
    print(f"same bits after the kill: {bool((disturbed == expected).all())}; charges: {charges}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.2, 2.0], help="gigabytes")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
        print("| data | records | one process, 2 threads | 2 workers | empty round | ratio | bar | same |")
        print("|---|---|---|---|---|---|---|---|")
        for size in options.sizes:
            for unit in (8, 2):  # bytes of a cell: as the user has it, and as it is stored
                rounds_table(size, unit, options.rounds)
        print()
        kill_table(client, int(min(options.sizes) * 1e9 / (8 * FEATURES)))


if __name__ == "__main__":
    main()
