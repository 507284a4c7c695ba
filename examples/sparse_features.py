"""Private Frank-Wolfe over a million sparse features: a step takes time in proportion to what it touches."""

import numpy as np
from scipy.sparse import csr_array

import dpcvx as dp
from dpcvx.solvers import NoisyFrankWolfe

rng = np.random.default_rng(0)
n, d, words = 20_000, 1_000_000, 30
y = rng.choice([-1.0, 1.0], n)
columns = rng.integers(8, d, (n, words))
columns[:, 0] = rng.integers(0, 4, n) + 4 * (y > 0)  # eight informative words
X = csr_array((np.ones(n * words), columns.ravel(), np.arange(n + 1) * words), shape=(n, d))

problem = dp.Problem(dp.Logistic(), dp.L1Ball(20.0), bounds=dp.Bounds(x_inf=1.0), d=d)
budget = dp.Budget(epsilon=8.0, delta=1e-6)
plan = dp.plan(problem, n=n, budget=budget, candidates=(NoisyFrankWolfe(n_iter=40),))
release = dp.execute(plan, dp.source(X, y, bounds=problem.bounds, layout=plan.layout))
print("heaviest words", np.sort(np.argsort(-abs(release.theta))[:8]))
