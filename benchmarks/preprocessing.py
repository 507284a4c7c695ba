"""Column maps: fits of skewed columns and of bounds that are too wide, with and without the rule for maps.

    python benchmarks/preprocessing.py [seeds]

Columns: score without maps, with the default rule, and the non-private fit of standardised columns; R^2, or
AUC for classes. "cost" is what the rule loses on columns without tails, with its standard error over seeds.
"""

import sys
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from datasets import load
from dpcvx import PrivateLinearRegression, PrivateLogisticRegression

SEEDS = 10


def skewed(make, d=5, n=2000, test=20_000):
    """A target that is linear in normal scores, with R^2 2/3; columns are a function of these."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(n + test, d))
    weights = np.array([1.0, -1.0, 0.5, 0.5, 1.0])[:d]
    y = scores @ weights + rng.normal(size=n + test) * np.linalg.norm(weights) / np.sqrt(2)
    X = make(scores)
    bounds = X[:n].min(axis=0), X[:n].max(axis=0)
    return X[:n], y[:n], X[n:], y[n:], {"bounds": bounds, "y_bounds": (y[:n].min(), y[:n].max())}


def cauchy(scores):
    from scipy.stats import cauchy, norm

    return cauchy.ppf(norm.cdf(scores))


MADE = {
    "normal": lambda: skewed(lambda z: z),
    "uniform": lambda: skewed(lambda z: np.tanh(z)),
    "exponential": lambda: skewed(lambda z: -np.log(0.5 * (1 - np.tanh(0.8 * z)))),
    "log-normal": lambda: skewed(np.exp),
    "log-normal, sigma 2": lambda: skewed(lambda z: np.exp(2 * z)),
    "Cauchy": lambda: skewed(cauchy),
    "normal, bounds 30 times too wide": lambda: widened(skewed(lambda z: z), 30),
}


def widened(task, factor):
    *rows, declared = task
    low, high = declared["bounds"]
    middle, half = (low + high) / 2, factor * (high - low) / 2
    return (*rows, {**declared, "bounds": (middle - half, middle + half)})


def split(X, y, declared, seed=0):
    order = np.random.default_rng(seed).permutation(len(y))
    fit, test = order[: int(0.7 * len(y))], order[int(0.7 * len(y)) :]
    return X[fit], y[fit], X[test], y[test], declared


def breast_cancer(bounds=None):
    X, y = load_breast_cancer(return_X_y=True)
    return split(X, y, {"bounds": bounds or (X.min(axis=0), X.max(axis=0)), "classes": (0, 1)})


def wine():
    X, y = load_wine(return_X_y=True)
    return split(X, (y > 0).astype(int), {"bounds": (X.min(axis=0), X.max(axis=0)), "classes": (0, 1)})


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return split(X, y, {"bounds": (X.min(axis=0), X.max(axis=0)), "y_bounds": (0, 400)})


def real(name, bounds=None):
    task = load(name)
    declared = dict(task.declared) | ({} if bounds is None else {"bounds": bounds})
    return task.X, task.y, task.X_test, task.y_test, declared


FOUND = {
    "breast_cancer": breast_cancer,
    "breast_cancer, bounds (0, 5000)": lambda: breast_cancer((0, 5000)),
    "wine": wine,
    "diabetes": diabetes,
    "california": lambda: real("california_housing"),
    "california, bounds (-200, 40000)": lambda: real("california_housing", (-200, 40_000)),
    "adult": lambda: real("adult_complete104"),
    "a9a": lambda: real("a9a"),
    "communities": lambda: real("communities_crime"),
}


def score(model, X, y, classifies):
    if classifies:
        return roc_auc_score(y, model.decision_function(X))
    return r2_score(y, model.predict(X))


def measure(task, epsilon, seeds, **settings):
    X, y, X_test, y_test, declared = task
    classifies = "classes" in declared
    kind = PrivateLogisticRegression if classifies else PrivateLinearRegression
    found = []
    for seed in range(seeds):
        model = kind(epsilon=epsilon, delta=1 / len(y) ** 2, random_state=seed, **declared, **settings)
        found.append(score(model.fit(X, y), X_test, y_test, classifies))
    return np.array(found)


def reference(task):
    X, y, X_test, y_test, declared = task
    classifies = "classes" in declared
    model = make_pipeline(
        StandardScaler(with_mean=not hasattr(X, "tocsr")),
        LogisticRegression(max_iter=1000) if classifies else LinearRegression(),
    )
    return score(model.fit(X, y), X_test, y_test, classifies)


def main():
    warnings.simplefilter("ignore")
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    wanted = sys.argv[2:]
    print(f"{'data':36} epsilon  without  default     gain   s.e. non-private")
    for name, make in {**MADE, **FOUND}.items():
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            task = make()
        except (FileNotFoundError, KeyError) as missing:
            print(f"{name:36} not found: {missing}")
            continue
        for epsilon in (1.0, 4.0):
            without, default = (measure(task, epsilon, seeds, maps=maps) for maps in (None, "auto"))
            gain = default - without
            error = gain.std(ddof=1) / np.sqrt(seeds)
            print(
                f"{name:36} {epsilon:7g} {without.mean():8.3f} {default.mean():8.3f} {gain.mean():+8.3f} "
                f"{error:6.3f} {reference(task):11.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
