"""Group LASSO: the levels of a text column enter or leave the model together."""

import numpy as np
import pyarrow as pa

import dpcvx

rng = np.random.default_rng(0)
n = 20_000
regions, jobs = [f"region {i}" for i in range(8)], [f"job {i}" for i in range(20)]
region, job = rng.integers(8, size=n), rng.integers(20, size=n)
age, height = rng.uniform(18, 90, n), rng.uniform(150, 200, n)
income = 30_000 + 300 * age + 2_000 * (region - 4) + rng.normal(0, 8_000, n)  # jobs and height do not matter
people = pa.table(
    {"age": age, "height": height, "region": np.take(regions, region), "job": np.take(jobs, job)}
)

model = dpcvx.PrivateGroupLasso(
    epsilon=1.0,
    bounds={"age": (18, 90), "height": (150, 200)},
    categories={"region": regions, "job": jobs},  # each column is a group, with all of its levels
    y_bounds=(0, 100_000),
    radius=0.6,  # bound on the sum of the group norms, in scaled units; a small one leaves groups out
).fit(people, income)

# In scaled units the norms of the groups can be compared: the ball bounds their sum. The fit has a feature
# for every level; the published coefficients are differences from the first.
start = 0
for group in model.privacy_statement_.public["groups"][:-1]:
    size = np.linalg.norm(model.release_.theta[start : start + len(group)])
    print(f"{group[0].split('=')[0]:7s} {len(group):2d} feature(s), norm {size:.2f}")
    start += len(group)
