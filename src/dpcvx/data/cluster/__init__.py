"""Records on the workers of a Dask cluster: shards that stay there, and exact sums that come back."""

from dpcvx.data.cluster.dataset import DaskDataset, from_dask, open_dask
from dpcvx.data.cluster.source import Distributed, dask_source

__all__ = ["DaskDataset", "Distributed", "dask_source", "from_dask", "open_dask"]
