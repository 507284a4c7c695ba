"""Text: topics of newswire documents, where the data folder has them."""

import numpy as np

from datasets import FOLDER, sparse
from leaderboard.objective import Problem

TRAIN = 16_000


class Dataset:
    """rcv1, 16,000 documents to fit, 47,236 words, rows of norm 1."""

    title = "text: rcv1"
    kind = "text"

    def get_data(self, seed):
        """Return a split by the seed."""
        if not (FOLDER / "rcv1_binary_subset.npz").exists():
            print("skipped: rcv1_binary_subset.npz is not in the data folder. Set DPCVX_DATA.")
            return None
        X, y = sparse("rcv1_binary_subset")
        order = np.random.default_rng(seed).permutation(len(y))
        fit, test = order[:TRAIN], order[TRAIN:]
        labels = (y > 0).astype(float)
        p = X.shape[1]
        return Problem(
            self.kind,
            X[fit],
            labels[fit],
            X[test],
            labels[test],
            bounds=np.array([np.zeros(p), np.ones(p)]),
            data_norm=1.0,
        )
