"""Records chosen to break bounds, and sources made of them."""

import numpy as np
from scipy.sparse import csr_array

from dpcvx.data.memory import Arrays, source
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

LARGEST, SMALLEST = 1.7e308, 5e-324
CELLS = [0.0, 1.0, -1.0, 0.3, -0.7, LARGEST, -LARGEST, SMALLEST, -SMALLEST, np.nan, np.inf, -np.inf]


def row(kind: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """One row: extreme cells, a signed axis, a corner of the cube, zero, any length, or length one."""
    kind %= 7
    if kind == 0:
        return rng.choice(CELLS, size=d)
    if kind == 1:
        return rng.choice([-1.0, 1.0]) * np.eye(d)[rng.integers(d)]
    if kind == 2:
        return rng.choice([-1.0, 1.0], size=d)
    if kind == 3:
        return rng.normal(size=d)
    if kind == 4:
        return np.zeros(d)
    if kind == 5:
        return rng.normal(size=d) * 10.0 ** rng.integers(-320, 308)
    direction = rng.normal(size=d)
    return direction / np.linalg.norm(direction)


def target(loss: Loss, outputs: int, rng: np.random.Generator) -> float:
    """A label: usual, at the ends of its range, or absurd."""
    if loss.joint:
        return rng.choice([*range(outputs), -1.0, outputs, 0.5, LARGEST, np.nan, -np.inf])
    return rng.choice(
        [-1.0, 1.0, *loss.y_range, 0.0, 0.5, -0.495, LARGEST, -LARGEST, SMALLEST, np.nan, np.inf]
    )


def records(loss: Loss, shape: tuple[int, int], outputs: int, rng: np.random.Generator):
    """(X, y) with n rows of every kind."""
    n, d = shape
    X = np.array([row(int(rng.integers(7)), d, rng) for _ in range(n)])
    width = 1 if loss.joint else outputs
    y = np.array([[target(loss, outputs, rng) for _ in range(width)] for _ in range(n)])
    return X, y if width > 1 else y[:, 0]


def neighbour(X, y, loss: Loss, outputs: int, relation: str, rng: np.random.Generator):
    """(X, y) with one record replaced (by an adversarial or its antipodal one), or with one taken away."""
    i = int(rng.integers(len(X)))
    if relation == "add_remove":
        return np.delete(X, i, axis=0), np.delete(y, i, axis=0)
    new_X, new_y = X.copy(), y.copy()
    if rng.random() < 0.4:
        new_X[i] = -X[i]
    else:
        other_X, other_y = records(loss, (1, X.shape[1]), outputs, rng)
        new_X[i], new_y[i] = other_X[0], other_y[0]
    return new_X, new_y


def stored(X, y, bounds: Bounds, storage: str) -> Arrays:
    """A source of the records, dense or compressed."""
    return source(csr_array(X) if storage == "csr" else X, y, bounds=bounds)
