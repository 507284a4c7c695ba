"""Print the cost and the predicted risk of a fit without any data."""

import dpcvx as dp

problem = dp.Problem(dp.Logistic(), dp.L1Ball(10.0), bounds=dp.Bounds(x_inf=1.0), d=200)
for n in (1_000, 10_000, 100_000):
    plan = dp.plan(problem, n=n, budget=dp.Budget(epsilon=1.0, delta=1e-8))
    print(plan, end="\n\n")
print(plan.explain())
