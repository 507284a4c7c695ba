"""The query engine: many queries on one budget, answered from a histogram over a public schema."""

from dpcvx.queries.answer import ARGUMENTS, BRANCHES, INTERVALS, Answer
from dpcvx.queries.budget_split import CHECK, check_choice
from dpcvx.queries.comparison_runs import Asker
from dpcvx.queries.engine import QueryEngine
from dpcvx.queries.engine_plan import DECLARED, DIFFERENT_IDS, objection_to_sizes, usual_facts
from dpcvx.queries.histogram import Counts, Histogram, check_units
from dpcvx.queries.marginals import Measurement, NoisyMarginals
from dpcvx.queries.payment import differences_from_paid
from dpcvx.queries.query import (
    LONGEST_FORMULA,
    Count,
    Marginal,
    Mean,
    Query,
    Regression,
    parse_query,
    query_from_json,
)
from dpcvx.queries.query_fields import LARGEST_RADIUS, QUERY_LOSSES
from dpcvx.queries.schema import Attribute, Binned, Schema, columns_left_out, words_about_left_out
from dpcvx.queries.synthetic import statement_path, write_synthetic
from dpcvx.queries.units import number_of_units
from dpcvx.queries.universe import Universe

__all__ = [
    "ARGUMENTS",
    "BRANCHES",
    "CHECK",
    "DECLARED",
    "DIFFERENT_IDS",
    "INTERVALS",
    "LARGEST_RADIUS",
    "LONGEST_FORMULA",
    "QUERY_LOSSES",
    "Answer",
    "Asker",
    "Attribute",
    "Binned",
    "Count",
    "Counts",
    "Histogram",
    "Marginal",
    "Mean",
    "Measurement",
    "NoisyMarginals",
    "Query",
    "QueryEngine",
    "Regression",
    "Schema",
    "Universe",
    "check_choice",
    "check_units",
    "columns_left_out",
    "differences_from_paid",
    "number_of_units",
    "objection_to_sizes",
    "parse_query",
    "query_from_json",
    "statement_path",
    "usual_facts",
    "words_about_left_out",
    "write_synthetic",
]
