"""Multinomial regression: seven kinds of forest, where the data folder has them."""

import json

import numpy as np

from datasets import DECLARED, FOLDER, dense, divided
from leaderboard.objective import Problem

ROWS = 50_000


class Dataset:
    """40,000 of the records of covtype, 54 columns."""

    title = "multinomial: forests"
    kind = "multiclass"

    def get_data(self, seed):
        """Return a sample by the seed."""
        if not (FOLDER / "covtype.npz").exists():
            print("skipped: covtype.npz is not in the data folder. Set DPCVX_DATA to a folder that holds it.")
            return None
        stored = dense("covtype")
        chosen = np.random.default_rng(seed).permutation(len(stored["y"]))[:ROWS]
        X, y = stored["X"][chosen].astype(float), stored["y"][chosen].astype(float) - stored["y"].min()
        bounds = np.array(json.loads(DECLARED.read_text())["covtype"]["bounds"])
        return Problem(self.kind, *divided(X, y), bounds=bounds)
