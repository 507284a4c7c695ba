"""Fits on a Dask cluster whose workers are killed again and again: same bits, one charge?

python benchmarks/scale/worker_kills.py --kills 50 --seed 0 [--out FILE]

The coefficients are compared with those of a fit in memory that draws the same noise. Results are appended to
the file as lines of JSON, so that several runs add up.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import dask.array as da
import distributed
import numpy as np

from dpcvx import Ledger, PrivateLogisticRegression
from dpcvx.estimators import linear_model
from dpcvx.estimators.progress import ProgressReport
from dpcvx.noise import SeededGenerator

N, D, WORKERS = 3000, 8, 2
ROUNDS = 10  # for each kill


class Vouched(SeededGenerator):
    """Noise that can be drawn again, and that a ledger takes for private."""

    private = True


class Killer:
    """Workers of a cluster; a random one is killed at a random moment, again and again, and replaced.

    They are processes of their own, because a nanny gives up a worker that dies while it starts.
    """

    def __init__(self, address: str, kills: int, seconds: float, seed: int) -> None:
        self._address, self._left, self._random = address, kills, random.Random(seed)
        self.done, self._coming, self._until = 0, False, time.monotonic() + seconds
        self._workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        words = ["-m", "distributed.cli.dask_worker", self._address, "--no-nanny", "--nthreads", "1"]
        return subprocess.Popen([sys.executable, *words, "--no-dashboard"], stderr=subprocess.DEVNULL)

    def strike(self) -> None:
        """Kill a worker soon, if there are kills left."""
        if self._left and not self._coming and time.monotonic() < self._until:
            self._coming = True
            threading.Timer(self._random.uniform(0, 0.05), self._kill).start()

    def _kill(self) -> None:
        place = self._random.randrange(WORKERS)
        self._workers[place].send_signal(signal.SIGKILL)
        self._workers[place].wait()
        self._workers[place] = self._start()
        self.done, self._left, self._coming = self.done + 1, self._left - 1, False

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()
            worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=480.0, help="no more kills after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    X = rng.uniform(-1, 1, (N, D))
    y = (X[:, 0] > 0).astype(int)
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1), "domain": "l1"}
    settings |= {"solver": "frank_wolfe", "n_iter": ROUNDS * options.kills}
    linear_model.generator_of = lambda state: Vouched(options.seed)
    expected = PrivateLogisticRegression(**settings).fit(X, y).coef_
    cluster = distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50)
    killer = Killer(cluster.scheduler_address, options.kills, options.seconds, options.seed)
    with cluster, distributed.Client(cluster) as client, tempfile.TemporaryDirectory() as folder:
        client.wait_for_workers(WORKERS)
        ledger = Ledger(Path(folder) / "ledger.db")
        account = ledger.create("people", epsilon=1.0, delta=1e-5)
        rows, labels = da.from_array(X, chunks=(500, D)), da.from_array(y, chunks=500)
        ProgressReport.count = lambda report, done, total: killer.strike()  # told of every round
        began = time.monotonic()
        model = PrivateLogisticRegression(backend="dask", ledger=ledger, account="people", **settings)
        model.fit(rows, labels)
        found = {
            "seed": options.seed,
            "rounds": ROUNDS * options.kills,
            "kills": killer.done,
            "same bits": bool(np.array_equal(model.coef_, expected)),
            "charges": len(account.history()),
            "seconds": round(time.monotonic() - began, 1),
        }
        killer.close()
    print(json.dumps(found))
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
