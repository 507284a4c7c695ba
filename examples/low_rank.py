"""Several targets that depend on a few linear combinations of the features."""

import numpy as np

import dpcvx

rng = np.random.default_rng(0)
answers = rng.uniform(0, 5, (20_000, 30))  # 30 questions about a person
traits = (answers - 2.5) @ rng.normal(size=(30, 2))  # the tests depend on two traits
scores = (
    50 + 1.5 * traits @ rng.normal(size=(2, 8)) + rng.normal(0, 3, (20_000, 8))
)  # 8 tests, about 0 to 100

model = dpcvx.PrivateLowRankRegression(epsilon=2.0, bounds=(0, 5), y_bounds=(0, 100)).fit(answers, scores)

print("coefficients", model.coef_.shape, "predictions", model.predict(answers[:3]).shape)
singular = np.linalg.svd(model.coef_, compute_uv=False)
print("share of the two largest singular values:", (singular[:2].sum() / singular.sum()).round(2))
error = np.sqrt(((model.predict(answers) - scores) ** 2).mean())
print(f"root mean squared error {error:.1f}; of the mean {scores.std(axis=0).mean():.1f}")
