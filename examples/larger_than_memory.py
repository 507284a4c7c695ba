"""Fit a file larger than memory: its records are quantised once into shards on disk."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpcvx

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
with pq.ParquetWriter(
    folder / "people.parquet",
    pa.schema([("age", pa.float64()), ("town", pa.string()), ("income", pa.float64())]),
) as file:
    for _ in range(20):  # a file may be larger than memory; it is read in small batches
        age = rng.uniform(18, 90, 10_000)
        town = rng.choice(["Delft", "Gouda", "elsewhere"], 10_000)
        income = 20 + 0.5 * age + 10 * (town == "Delft") + rng.normal(0, 5, 10_000)
        file.write_table(pa.table({"age": age, "town": town, "income": income}))

people = dpcvx.from_parquet(
    folder / "people.parquet",
    target="income",
    bounds={"age": (18, 90)},
    categories={"town": ["Delft", "Gouda", "elsewhere"]},
    y_bounds=(0, 100),
)
model = dpcvx.PrivateLinearRegression(epsilon=1.0).fit(people)  # y and all declarations belong to the shards
print(dict(zip(model.coef_names_, model.coef_.round(2), strict=True)), round(model.intercept_, 1))

lasso = dpcvx.PrivateLasso(epsilon=1.0).fit(dpcvx.open_shards(people.folder))  # at any later time
print(lasso.privacy_statement_)
