"""Group LASSO: two of twenty groups of columns matter."""

import numpy as np

from datasets import divided
from leaderboard.objective import Problem

GROUPS, SIZE = 20, 10


class Dataset:
    """10,000 records, 200 columns in groups of ten; the truth has an R^2 of 0.65."""

    title = "groups: 2 of 20"
    kind = "grouped"

    def get_data(self, seed, n=12_500):
        """Draw records."""
        rng = np.random.default_rng([seed, 2])
        X = np.clip(rng.standard_normal((n, GROUPS * SIZE)), -4, 4)
        theta = np.zeros((GROUPS, SIZE))
        theta[rng.choice(GROUPS, 2, replace=False)] = rng.standard_normal((2, SIZE))
        signal = X @ theta.ravel()
        y = signal / signal.std() + rng.standard_normal(n) * np.sqrt(1 / 0.65 - 1)
        return Problem(
            self.kind,
            *divided(X, y),
            bounds=np.full((2, GROUPS * SIZE), [[-4.0], [4.0]]),
            y_bounds=np.array([-6.0, 6.0]),
            groups=np.repeat(np.arange(GROUPS), SIZE),
        )
