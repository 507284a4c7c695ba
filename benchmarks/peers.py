"""Time of one private logistic fit on a9a, against diffprivlib 0.6.6 in an environment of its own, in turn.

diffprivlib needs scikit-learn 1.6; the environment is made under benchmarks/output by pip when it is missing.
Both fit the same dense rows, divided by sqrt(14), at epsilon 1 (C = 1 and data_norm = 1 there).
"""

import argparse
import statistics
import subprocess
import sys
import time
import venv

import numpy as np

from datasets import FOLDER, OUTPUT, sparse
from dpcvx import PrivateLogisticRegression

PEER = OUTPUT / "venv-diffprivlib"
PAUSE = 0.3  # seconds; BLAS threads spin for a while after a call and would disturb the next side
# Reads a line, fits once, prints the seconds: one fit at a time, so that the two sides can take turns.
PEER_SCRIPT = """
import sys, time, warnings
import numpy as np, scipy.sparse as sp
warnings.simplefilter("ignore")
from diffprivlib.models import LogisticRegression
X = sp.load_npz(sys.argv[1]).toarray().astype(float) / 14**0.5
y = np.load(sys.argv[1])["y"].astype(float)
for seed, _ in enumerate(sys.stdin):
    start = time.perf_counter()
    model = LogisticRegression(epsilon=1.0, data_norm=1.0, C=1.0, random_state=seed).fit(X, y)
    print(time.perf_counter() - start, np.mean(model.predict(X) == y), flush=True)
"""


def environment() -> str:
    python = PEER / "bin" / "python"
    if not python.exists():
        print("making an environment for diffprivlib 0.6.6 (once)")
        venv.create(PEER, with_pip=True)
        wanted = ["diffprivlib==0.6.6", "scikit-learn==1.6.*"]
        quiet = ["--quiet", "--disable-pip-version-check"]
        if subprocess.run([str(python), "-m", "pip", "install", *quiet, *wanted], check=False).returncode:
            print("skipped: diffprivlib could not be installed here.")
            sys.exit(0)
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    X, y = sparse("a9a")
    dense = X.toarray() / np.sqrt(14)

    def ours(records, seed):
        time.sleep(PAUSE)
        start = time.perf_counter()
        model = PrivateLogisticRegression(
            epsilon=1.0,
            delta=1 / len(y) ** 2,
            bounds=(0, 1),
            data_norm=1.0,
            classes=(-1, 1),
            random_state=seed,
        ).fit(records, y)
        return time.perf_counter() - start, np.mean(model.predict(records) == y)

    peer = subprocess.Popen(
        [environment(), "-c", PEER_SCRIPT, str(FOLDER / "a9a.npz")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def theirs():
        time.sleep(PAUSE)
        peer.stdin.write("fit\n")
        peer.stdin.flush()
        return tuple(map(float, peer.stdout.readline().split()))

    results: dict[str, list[tuple[float, float]]] = {
        "dpcvx, dense": [],
        "dpcvx, sparse": [],
        "diffprivlib": [],
    }
    for round_ in range(rounds + 1):
        results["dpcvx, dense"].append(ours(dense, round_))
        results["dpcvx, sparse"].append(ours(X / np.sqrt(14), round_))
        results["diffprivlib"].append(theirs())
    peer.stdin.close()
    peer.wait()
    medians = {name: statistics.median(t for t, _ in values[1:]) for name, values in results.items()}
    for name, values in results.items():
        accuracy = np.mean([a for _, a in values])
        ratio = medians["diffprivlib"] / medians[name]
        print(f"{name:<14} {1e3 * medians[name]:8.1f} ms   accuracy on them {accuracy:.4f}   {ratio:.1f}x")


if __name__ == "__main__":
    main()
