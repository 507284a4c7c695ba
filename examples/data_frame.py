"""A data frame with a text column, bounds by column name, and a model file."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import dpcvx

rng = np.random.default_rng(0)
age = rng.uniform(18, 90, 10_000)
region = rng.choice(["north", "south", "west"], 10_000)
income = 20_000 + 500 * age + 9_000 * (region == "north") + rng.normal(0, 8_000, 10_000)
people = pa.table({"age": age, "region": region})  # pandas and polars frames work the same way

model = dpcvx.PrivateLinearRegression(
    epsilon=1.0,
    bounds={"age": (18, 90)},
    categories={"region": ["north", "south", "west"]},
    y_bounds=(0, 100_000),
).fit(people, income)
print(dict(zip(model.coef_names_, model.coef_.round(), strict=True)))

path = Path(tempfile.mkdtemp()) / "model.json"
model.save(path)
print(dpcvx.load(path).predict(people[:3]))
