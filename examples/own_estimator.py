"""An estimator of your own: regression with Welsch's loss, which ignores records far from the line."""

from typing import Any

import numpy as np

import dpcvx as dp
from dpcvx.data.target import Target
from dpcvx.estimators import LinearRegressor, parameters


@parameters
class PrivateWelschRegressor(LinearRegressor):
    """Linear regression with Welsch's loss over an l2 ball.

    minimise (1/n) sum_i (scale^2 / 2) (1 - exp(-(<x_i, theta> - y_i)^2 / scale^2)), all in scaled units

    Parameters
    ----------
    scale : float
        Residual, in the units of y, beyond which a record loses its influence.
    """

    domain: Any = "l2"
    scale: float = 10.0

    def _loss(self, target: Target) -> dp.Welsch:
        return dp.Welsch(self.scale / target.scale)  # losses are in scaled units, parameters in those of y


rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(20_000, 2))
y = 30 + X @ [2.0, -1.0] + rng.normal(size=20_000)
y[:4_000] = 95  # one record in five is wrong

for model in (PrivateWelschRegressor(epsilon=1.0), dp.PrivateLinearRegression(epsilon=1.0)):
    model.set_params(bounds=(0, 10), y_bounds=(0, 100)).fit(X, y)
    print(type(model).__name__, model.coef_.round(1), round(float(model.intercept_), 1))
