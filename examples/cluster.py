"""Fit records on a Dask cluster; here its two workers are threads of this process."""

import dask.array as da
from dask.distributed import Client, LocalCluster

from dpcvx import PrivateLogisticRegression, from_dask

with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
    client = Client(cluster)  # elsewhere: Client("tcp://scheduler:8786")
    random = da.random.default_rng(0)
    X = random.uniform(0, 1, size=(20_000, 5), chunks=(2_500, 5))
    y = (X[:, 0] + X[:, 1] > 1).astype(int)

    people = from_dask(X, y, bounds=(0, 1), classes=(0, 1))
    model = PrivateLogisticRegression(epsilon=1.0).fit(people)
    client.close()

print("coefficients", model.coef_.round(1))
print(model.privacy_statement_)
