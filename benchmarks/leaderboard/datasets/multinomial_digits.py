"""Multinomial regression: handwritten digits that come with scikit-learn."""

import numpy as np

from datasets import divided
from leaderboard.objective import Problem


class Dataset:
    """1,437 images of 8 x 8 pixels, ten classes."""

    title = "multinomial: digits"
    kind = "multiclass"

    def get_data(self, seed):
        """Return a split; the seed orders the images."""
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(y))
        return Problem(
            self.kind, *divided(X[order], y[order].astype(float)), bounds=np.array([[0.0] * 64, [16.0] * 64])
        )
