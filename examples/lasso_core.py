"""Private LASSO with the core objects: problem, plan, source, execute."""

import numpy as np

import dpcvx as dp

rng = np.random.default_rng(0)
X = rng.choice([-1.0, 1.0], size=(20_000, 50))
y = np.clip(0.5 * X[:, 3] - 0.3 * X[:, 17] + 0.1 * rng.normal(size=20_000), -1, 1)

problem = dp.Problem(dp.Squared(), dp.L1Ball(1.0), bounds=dp.Bounds(x_inf=1.0, y=1.0), d=50)
plan = dp.plan(problem, n=len(X), budget=dp.Budget(epsilon=1.0, delta=1e-8))
release = dp.execute(plan, dp.source(X, y, bounds=problem.bounds, layout=plan.layout))
largest = np.argsort(-abs(release.theta))[:2]
print(f"{type(plan.solver).__name__}: columns {largest}, coefficients {release.theta[largest].round(2)}")
