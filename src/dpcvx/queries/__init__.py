"""Many questions on one budget: a public schema, its universe of cells, and histograms over it."""

from dpcvx.queries.histogram import Counts, Histogram
from dpcvx.queries.schema import Attribute, Binned, Schema
from dpcvx.queries.universe import Universe

__all__ = ["Attribute", "Binned", "Counts", "Histogram", "Schema", "Universe"]
