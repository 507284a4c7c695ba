"""Many questions on one budget: a public schema, its universe of cells, and histograms over it."""

from dpcvx.queries.answers import Answer
from dpcvx.queries.engine import QueryEngine
from dpcvx.queries.histogram import Counts, Histogram
from dpcvx.queries.query import Count, Marginal, Mean, Query, Regression, query_from_json
from dpcvx.queries.marginals import Measurement, NoisyMarginals
from dpcvx.queries.schema import Attribute, Binned, Schema
from dpcvx.queries.universe import Universe

__all__ = [
    "Attribute",
    "Binned",
    "Counts",
    "Histogram",
    "Measurement",
    "NoisyMarginals",
    "Schema",
    "Universe",
]
