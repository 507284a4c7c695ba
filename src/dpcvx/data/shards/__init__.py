"""Records larger than memory: quantised once into files, mapped, and summed where they are."""

from dpcvx.data.shards.dataset import Shards, open_shards
from dpcvx.data.shards.source import ShardSource, open_source
from dpcvx.data.shards.writing import from_arrow, from_batches, from_csv, from_files, from_parquet

__all__ = [
    "ShardSource",
    "Shards",
    "from_arrow",
    "from_batches",
    "from_csv",
    "from_files",
    "from_parquet",
    "open_shards",
    "open_source",
]
