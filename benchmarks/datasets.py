"""Real data for the benchmarks, found outside the repository; prints where they are looked for when run."""

import os
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

FOLDER = Path(os.environ.get("DPCVX_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
OUTPUT = Path(__file__).resolve().parent / "output"


def sparse(name: str) -> tuple[sp.csr_matrix, np.ndarray]:
    """(X, y) of a compressed set; ends the script with a message where the file is absent."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        print(f"skipped: {path.name} is not in {FOLDER.name}/. Set DPCVX_DATA to a folder that holds it.")
        sys.exit(0)
    with np.load(path) as stored:
        y = stored["y"].astype(np.float64)
    return sp.csr_matrix(sp.load_npz(path).astype(np.float64)), y


def rcv1() -> tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix, np.ndarray]:
    """(X, y, X_test, y_test): 16,000 documents to train on, the rest to test on."""
    X, y = sparse("rcv1_binary_subset")
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:16_000], order[16_000:]
    return X[train], y[train], X[test], y[test]


if __name__ == "__main__":
    found = sorted(path.name for path in FOLDER.glob("*.npz")) if FOLDER.exists() else []
    print(f"data folder: {FOLDER.name}/, sets found: {', '.join(found) or 'none'}")
