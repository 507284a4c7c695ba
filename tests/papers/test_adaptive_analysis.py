"""[U15] section 1.3: private answers keep an adaptive analyst from overfitting."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import dpcvx
from dpcvx.papers import analyse_adaptively, overfitting

N, D, ROUNDS = 1_000, 2_000, 3

pytestmark = pytest.mark.long


def draw(rng, n, signal):
    X = rng.choice([-1.0, 1.0], (n, D))
    return X, (rng.random(n) < 1 / (1 + np.exp(-X[:, :10].sum(axis=1) * signal))).astype(int)


def plain(X, y):
    return LogisticRegression(C=100.0, max_iter=300).fit(X, y).coef_[0]


def private(X, y):
    """One of three models on one budget of epsilon 1.5: each has epsilon 0.5."""
    model = dpcvx.PrivateLogisticRegression(epsilon=0.5, bounds=(-1, 1), classes=(0, 1), delta=1e-7)
    return model.fit(X, y).coef_


@pytest.mark.parametrize("signal", [0.0, 0.6])
def test_an_analyst_who_overfits_by_thirty_points_is_held_to_five(signal):
    rng = np.random.default_rng(7)
    records, population = draw(rng, N, signal), draw(rng, 20_000, signal)
    gaps = {
        fit.__name__: [
            overfitting(analyse_adaptively(fit, *records, ROUNDS), records, population) for _ in range(tries)
        ]
        for fit, tries in ((plain, 1), (private, 3))
    }
    assert gaps["plain"][0] >= 0.30
    assert np.mean(gaps["private"]) <= 0.05
