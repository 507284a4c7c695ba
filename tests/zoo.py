"""One of everything: contract tests run over these lists, so a new thing is tested by being listed."""

import numpy as np

from dpcvx.arrays import Shape
from dpcvx.domains import Box, Domain, L1Ball, L2Ball, LinfBall, Simplex, VertexHull
from dpcvx.losses import Huber, Logistic, Loss, Quantile, Sigmoid, SmoothHinge, Softmax, Squared, Welsch

BINARY_LOSSES: list[Loss] = [Logistic(), SmoothHinge(), SmoothHinge(width=3.0), Sigmoid()]
REGRESSION_LOSSES: list[Loss] = [
    Squared(),
    Squared(y_range=(-0.5, 3.0)),
    Huber(threshold=0.5),
    Huber(threshold=100.0),
    Quantile(quantile=0.5),
    Quantile(quantile=0.9),
    Welsch(scale=0.7),
    Welsch(scale=20.0),
]
SCALAR_LOSSES: list[Loss] = BINARY_LOSSES + REGRESSION_LOSSES
ALL_LOSSES: list[Loss] = [*SCALAR_LOSSES, Softmax()]

_angles = np.linspace(0.0, 2 * np.pi, 40, endpoint=False)
_random = np.random.default_rng(5)

# A set stores no dimension, so each comes with the shape of a parameter.
AROUND_ZERO: list[tuple[Domain, Shape]] = [
    (L2Ball(2.0), 5),
    (L2Ball(0.5), (3, 2)),
    (L1Ball(3.0), 6),
    (L1Ball(0.25), (2, 3)),
    (L1Ball(1.0), 1),
    (LinfBall(0.5), 4),
    (LinfBall(2.0), (2, 2)),
    (Box(-1.0, 2.0), 4),
    (Box([-1.0, -2.0, -0.5, -3.0], 1.0), (2, 2)),
    (VertexHull(np.vstack([np.eye(4), -np.ones((1, 4))])), 4),
    (VertexHull(3.0 * np.column_stack([np.cos(_angles), np.sin(_angles)])), 2),
    (VertexHull(np.vstack([_random.normal(size=(12, 4)), np.eye(4), -np.eye(4)])), (2, 2)),
]
OFF_ZERO: list[tuple[Domain, Shape]] = [
    (Box([1.0, -1.0, 2.0], [2.0, 1.0, 5.0]), 3),
    (Box(0.0, 1.0), 3),
    (Simplex(), 5),
    (Simplex(3.0), (2, 2)),
    (VertexHull([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]), 3),
    (VertexHull(4.0 + _random.normal(size=(7, 3))), 3),
]
ALL_DOMAINS: list[tuple[Domain, Shape]] = AROUND_ZERO + OFF_ZERO
