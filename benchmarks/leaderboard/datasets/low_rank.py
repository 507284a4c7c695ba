"""Low rank regression: eight targets that depend on two combinations of thirty columns."""

import numpy as np

from datasets import divided
from leaderboard.objective import Problem


class Dataset:
    """16,000 records; the truth has an R^2 of 0.65."""

    title = "low rank: 2 of 8"
    kind = "several targets"

    def get_data(self, seed, n=20_000):
        """Draw records."""
        rng = np.random.default_rng([seed, 3])
        X = rng.uniform(0, 5, (n, 30))
        signal = (X - 2.5) @ rng.standard_normal((30, 2)) @ rng.standard_normal((2, 8))
        Y = signal / signal.std() + rng.standard_normal((n, 8)) * np.sqrt(1 / 0.65 - 1)
        return Problem(
            self.kind,
            *divided(X, Y),
            bounds=np.array([[0.0] * 30, [5.0] * 30]),
            y_bounds=np.array([-6.0, 6.0]),
        )
