"""Records larger than memory: quantised once into files, mapped, and summed where they are."""

from dpcvx.shards.source import ShardSource, open_source

__all__ = ["ShardSource", "open_source"]
