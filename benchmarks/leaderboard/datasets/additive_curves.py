"""Additive model: a sum of curves of ten columns, of which five matter."""

import numpy as np

from datasets import divided
from leaderboard.objective import Problem


class Dataset:
    """20,000 records; a line, a parabola, a wave, a step and a kink, and noise of half their variance."""

    title = "additive: curves"
    kind = "additive"

    def get_data(self, seed, n=25_000):
        """Draw records."""
        rng = np.random.default_rng([seed, 1])
        X = rng.uniform(-1, 1, (n, 10))
        curves = [X[:, 0], 2 * X[:, 1] ** 2, np.sin(4 * X[:, 2]), X[:, 3] > 0.3, np.abs(X[:, 4])]
        signal = sum((curve - np.mean(curve)) / np.std(curve) for curve in curves)
        y = signal + rng.standard_normal(n) * np.sqrt(np.var(signal) / 2)
        return Problem(
            self.kind,
            *divided(X, y),
            bounds=np.array([-np.ones(10), np.ones(10)]),
            y_bounds=np.array([-10.0, 10.0]),
        )
