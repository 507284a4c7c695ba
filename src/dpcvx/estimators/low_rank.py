"""Private regression of several targets at once, by a matrix of low rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dpcvx.data.cells import native_array
from dpcvx.data.columns import Columns
from dpcvx.domains import Domain, NuclearBall
from dpcvx.estimators.documentation import documented
from dpcvx.estimators.planning import Target, parameters
from dpcvx.estimators.regressors import SquaredRegressor

__all__ = ["PrivateLowRankRegression"]


@documented
@parameters
class PrivateLowRankRegression(SquaredRegressor):
    """Least squares of K targets over a nuclear ball: few combinations of the features explain all targets.

    minimise (1/n) sum_i ||theta^T x_i - y_i||_2^2 / 2 + (l2/2) ||theta||_F^2 over matrices (d, K) whose
    singular values sum to at most radius, all in scaled units

    Each target is mapped to [-1, 1] by its own pair of ``y_bounds``, two numbers or two arrays of K, so all
    count alike. One person's K targets are covered together: what is clipped, and priced, is the Euclidean
    norm of the K residuals. The intercepts are a row of the matrix, in scaled units, where they are 0 for
    targets in the middle of their bounds; the ball counts that row like every other.

    ``radius=None`` is 3 sqrt(K): one combination of features can then explain every target as well as the
    default of a single target can. y may have shape (n,) too, and counts as one target.
    """

    def _target_cells(self, y: Any) -> NDArray[Any]:
        if hasattr(y, "tocsr"):
            raise TypeError("y must be dense; a sparse matrix of targets is not taken.")
        values = native_array(y, ndim=2)
        if values.ndim == 1 and isinstance(y, Sequence) and any(isinstance(row, list | tuple) for row in y):
            # One odd row must not decide how many targets a list has.
            raise ValueError("The rows of a list must all have the same number of cells.")
        if values.ndim not in (1, 2) or values.size == 0:
            raise ValueError(f"y must have shape (n, K) or (n,), got an array of shape {values.shape}.")
        return values

    def _domain_of(self, target: Target, columns: Columns) -> Domain:
        radius = self._radius(target.loss)
        radius = radius if self.radius is not None else radius * math.sqrt(target.outputs)
        return NuclearBall(radius, backend="torch" if self.backend == "torch" else "auto")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
