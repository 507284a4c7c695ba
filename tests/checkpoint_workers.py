"""Fits that are killed at random moments and continued; a script, so that it forks without threads.

checkpoint_workers.py LEDGER-OR-"seeded" FOLDER FITS SEED

It prints, of every fit, how often it was killed, its coefficients and those of an unbroken fit.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from dpcvx import Ledger, PrivateLasso, PrivateLogisticRegression
from dpcvx.plans import execution

execution.PAUSE = 0.002  # many parts in a short fit
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2000, 30))
Y = X @ RNG.normal(size=30)
MOST_KILLS = 4


def model(number, paid):
    settings = {"epsilon": 0.5, "delta": 1e-7, "bounds": (-1, 1), **paid}
    if number % 2:
        return PrivateLasso(y_bounds=(-5, 5), solver="frank_wolfe", n_iter=150, **settings), Y
    chosen = {"classes": (-1, 1), "solver": "gradient_descent", "n_iter": 150}
    return PrivateLogisticRegression(**chosen, **settings), np.sign(Y)


def in_child(number, paid, out, checkpoint):
    """Fork a child that fits and writes its coefficients; return its process number."""
    child = os.fork()
    if child == 0:
        estimator, y = model(number, paid)
        estimator.fit(X, y, checkpoint=checkpoint)
        part = f"{out}.part"
        Path(part).write_text(json.dumps(estimator.coef_.ravel().tolist()))
        os.replace(part, out)
        os._exit(0)
    return child


def fit(number, paid, folder, draw, lasts):
    """Fit, be killed, continue, until a fit is done; `lasts`: seconds that an unbroken fit takes."""
    out, checkpoint = folder / f"{number}.json", folder / f"{number}.checkpoint"
    for kills in range(MOST_KILLS + 1):
        child = in_child(number, paid(number), out, checkpoint)
        if kills < MOST_KILLS:
            time.sleep(draw.uniform(0.0, 0.6 * lasts))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if status == 0 or out.exists():
            break
        assert os.WIFSIGNALED(status), "the fit failed by itself"
    again = folder / f"{number}.again.json"  # of the finished checkpoint; without one, of an unbroken fit
    seeded = "random_state" in paid(number)
    other = folder / f"{number}.unbroken" if seeded else checkpoint
    os.waitpid(in_child(number, paid(number), again, other), 0)
    return kills, *(json.loads(path.read_text()) for path in (out, again))


def main(ledger, folder, fits, seed):
    def paid(number):
        if ledger == "seeded":
            return {"random_state": number}
        return {"ledger": Ledger(ledger), "account": f"people {number}"}

    for number in range(2):  # compiles, and loads every driver
        estimator, y = model(number, {"random_state": 0})
        estimator.fit(X, y)
    draw, place, lasts = random.Random(seed), Path(folder), []
    for number in range(2):
        began = time.monotonic()
        files = (place / f"timed.{number}.json", place / f"timed.{number}.checkpoint")
        os.waitpid(in_child(number, {"random_state": 0}, *files), 0)
        lasts.append(time.monotonic() - began)
    print(json.dumps([fit(number, paid, place, draw, lasts[number % 2]) for number in range(fits)]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
