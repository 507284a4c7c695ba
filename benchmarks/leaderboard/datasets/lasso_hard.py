"""LASSO on a padded Tardos code, for which every private method has a proved least excess risk."""

import numpy as np

from hard_instances import hardest, optimum, risk
from leaderboard.objective import EPSILONS, Problem


class Dataset:
    """The hardest instance of 5,000 records at epsilon 0.1, radius 1; the excess is that on the records.

    The gain is 1 - excess loss over that of zero coefficients.
    """

    title = "LASSO: hard instance"
    kind = "sparse"
    metric = "gain (1 - excess loss over that of zero)"

    def get_data(self, seed, n=5_000):
        """Draw a code."""
        instance = hardest(n, 0.1)
        records = instance.draw(np.random.default_rng(seed))
        X, y = records.X.astype(float), np.asarray(records.y, dtype=float)
        least = optimum(instance, records)
        excess = risk(instance, records, np.zeros(instance.p)) - least
        bounds = {each: instance.lower_bound(each, 1 / n**2) for each in EPSILONS}
        return Problem(
            self.kind,
            X,
            y,
            X,
            y,
            bounds=np.array([-np.ones(instance.p), np.ones(instance.p)]),
            y_bounds=np.array([-1.0, 1.0]),
            radius=1.0,
            least=2 * least,
            lines={
                "no private method can be above": {e: min(1.0, 1 - b / excess) for e, b in bounds.items()}
            },
        )
