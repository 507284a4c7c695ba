"""Choose settings on private rows and score the chosen model, within a privacy budget."""

import numpy as np

import dpcvx

rng = np.random.default_rng(0)
X = rng.normal([170, 30_000, 0], [10, 12_000, 1], (20_000, 3))
y = ((X[:, 0] - 170) / 10 + X[:, 2] + rng.normal(size=20_000) > 0).astype(int)
X_held_out, y_held_out = X[:4_000], y[:4_000]

model = dpcvx.PrivateLogisticRegression(epsilon=2, bounds="private", classes=(0, 1), standardize=True)
search = dpcvx.PrivateSearchCV(model, {"radius": [3, 30], "l2": [0, 0.01]}, n_trials=4)
search.fit(X[4_000:], y[4_000:])

print(search.best_params_, f"noisy score {search.best_score_:.2f}")
print(dpcvx.private_score(search, X_held_out, y_held_out, epsilon=0.5))
print(search.privacy_statement_)
