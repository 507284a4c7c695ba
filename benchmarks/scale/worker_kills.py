"""Fits on a Dask cluster whose workers are killed again and again: same bits, one charge?

python benchmarks/scale/worker_kills.py --kills 50 --seed 0 [--out FILE]

The coefficients are compared with those of a fit in memory that draws the same noise. Results are appended to
the file as lines of JSON, so that several runs add up.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import suppress
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
    """Kills a random worker at a random moment of a fit, again and again."""

    def __init__(self, cluster: distributed.LocalCluster, kills: int, seconds: float, seed: int) -> None:
        self._cluster, self._left, self._random = cluster, kills, random.Random(seed)
        self.done, self._coming, self._until = 0, False, time.monotonic() + seconds

    def strike(self) -> None:
        """Kill a worker soon, if there are kills left."""
        if self._left and not self._coming and time.monotonic() < self._until:
            self._coming = True
            threading.Timer(self._random.uniform(0, 0.05), self._kill).start()

    def _kill(self) -> None:
        # A nanny gives up a worker that dies while it starts, which is no matter of a fit.
        processes = [nanny.process for nanny in self._cluster.workers.values()]
        alive = [each.pid for each in processes if each is not None and each.status.name == "running"]
        if alive:
            with suppress(ProcessLookupError):
                os.kill(self._random.choice(alive), signal.SIGKILL)
                self.done, self._left = self.done + 1, self._left - 1
        self._coming = False


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
    cluster = distributed.LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster), tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        account = ledger.create("people", epsilon=1.0, delta=1e-5)
        rows, labels = da.from_array(X, chunks=(500, D)), da.from_array(y, chunks=500)
        killer = Killer(cluster, options.kills, options.seconds, options.seed)
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
    print(json.dumps(found))
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
