"""What private models are compared with: the model without privacy, and AdaSSP for regressions.

Run alone, it writes the scores and risks of the models without privacy to docs/figures/references.json.
"""

import argparse
import math
import warnings

import numpy as np
import scipy.sparse as sp

from datasets import SPLITS, Task, load
from dpcvx.accounting import gaussian_mu
from figures import stored, update

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3)  # ridges on the mean loss, rows standardised or of norm 1
FAILURE = 0.05  # AdaSSP's probability that its ridge is too small, as in Wang 2018


class Line:
    """A linear regression in the user's units."""

    def __init__(self, weights, offset):
        self.weights, self.offset = weights, offset

    def predict(self, X):
        return X @ self.weights + self.offset


def reference(task: Task) -> tuple[float, float]:
    """(score, risk) of `best_plain`, computed once and kept."""
    kept = stored("references")
    if f"{task.name}_score" not in kept:
        score, risk = best_plain(task)
        update("references", {f"{task.name}_score": score, f"{task.name}_risk": risk})
        return score, risk
    return kept[f"{task.name}_score"], kept[f"{task.name}_risk"]


def best_plain(task: Task) -> tuple[float, float]:
    """(score, risk) of the model without privacy with the smallest risk on the records to test on.

    Minimisers of the same loss with one of four small ridges, on standardised columns (sparse records and
    those with a norm as they are).
    """
    return min((task.measured(model) for model in _plain_models(task)), key=lambda pair: pair[1])


def trivial(task: Task) -> tuple[float, float]:
    """(score, risk) of the best constant prediction on the training records."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    kind = DummyClassifier(strategy="prior") if task.classifies else DummyRegressor()
    return task.measured(kind.fit(np.zeros((len(task.y), 1)), task.y))


def _plain_models(task: Task):
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    as_they_are = "data_norm" in task.declared or sp.issparse(task.X)
    for penalty in PENALTIES:
        strength = penalty * len(task.y)
        model = (
            LogisticRegression(C=1 / strength, max_iter=300)
            if task.classifies
            else Ridge(alpha=strength, solver="cholesky")
        )
        yield make_pipeline(MaxAbsScaler() if as_they_are else StandardScaler(), model).fit(task.X, task.y)


def adassp(task: Task, epsilon: float, seed: int) -> Line:
    """AdaSSP (Wang 2018, Algorithm 2) on the declared bounds, every noise calibrated exactly.

    Columns and target are mapped to [-1, 1], a constant column is added, so rows have norm B = sqrt(d + 1)
    at most. Three Gaussian releases with a third of mu^2 each, replace-one: the smallest eigenvalue of X'X
    (sensitivity B^2), X'X (Frobenius norm of a change at most sqrt(2) B^2, each pair of entries carries one
    noise), X'y (2 B).
    """
    rng = np.random.default_rng(seed)
    low, high = (np.broadcast_to(side, task.X.shape[1]).astype(float) for side in task.declared["bounds"])
    center, half = (low + high) / 2, (high - low) / 2
    y_low, y_high = task.declared["y_bounds"]
    rows = np.column_stack([(np.clip(task.X, low, high) - center) / half, np.ones(len(task.y))])
    y = (np.clip(task.y, y_low, y_high) - (y_low + y_high) / 2) / ((y_high - y_low) / 2)
    n = len(y)
    theta = adassp_fit(rows, y, gaussian_mu(epsilon, 1 / n**2), 1 / n**2, rng)[0]
    weights = theta[:-1] * ((y_high - y_low) / 2) / half
    return Line(weights, (y_low + y_high) / 2 + theta[-1] * (y_high - y_low) / 2 - center @ weights)


def adassp_fit(rows, y, mu, delta, rng):
    """Coefficients of AdaSSP, the regularised Gram matrix behind them, and mu of each of three releases."""
    d = rows.shape[1]
    B2, mu = float(d), mu / math.sqrt(3)
    gram = rows.T @ rows
    smallest = np.linalg.eigvalsh(gram)[0] + B2 / mu * rng.standard_normal()
    # With probability 1 - delta/3 the released value, lowered so, is below the true one.
    smallest = max(smallest - B2 / mu * math.sqrt(2 * math.log(6 / delta)), 0.0)
    # The norm counts an entry off the diagonal twice, so its noise is 1/sqrt(2) of sqrt(2) B^2/mu.
    sigma = B2 / mu
    noise = sigma * rng.standard_normal((d, d))
    gram += np.triu(noise, 1) + np.triu(noise, 1).T + math.sqrt(2) * np.diag(np.diag(noise))
    moment = rows.T @ y + 2 * math.sqrt(B2) / mu * rng.standard_normal(d)
    ridge = max(0.0, sigma * math.sqrt(d * math.log(2 * d**2 / FAILURE)) - smallest)
    gram += ridge * np.eye(d)
    return np.linalg.solve(gram, moment), gram, mu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(SPLITS))
    warnings.simplefilter("ignore")
    for name in parser.parse_args().tasks:
        task = load(name)
        (score, risk), (least, most) = reference(task), trivial(task)
        print(f"{name}: score {score:.4f}, risk {risk:.5f}; constant: {least:.4f}, {most:.5f}", flush=True)


if __name__ == "__main__":
    main()
