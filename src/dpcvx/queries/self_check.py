"""Public families of queries by which the engine measures its own error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.queries.compiled import CompiledQuery
from dpcvx.queries.query import Marginal, Query, Regression
from dpcvx.queries.schema import Binned, Schema
from dpcvx.solvers.defaults import default

__all__ = ["FAMILIES", "RANK", "Check", "check_queries"]

FAMILIES = ("regressions", "shares")
SIZE: int = default("queries.self_check.SIZE")
RANK = 195  # the 97.5 % quantile
FEATURES: int = default("queries.self_check.FEATURES")
LARGEST = {"regressions": 2**10, "shares": 2**7}  # cells of a query, so that checking takes seconds
NORMAL_97_5 = 1.959963984540054  # standard normal quantile of 0.975


@dataclass(frozen=True)
class Check:
    """A released order statistic of errors over their sensitivities, and the scale of its noise."""

    value: float
    noise: float

    @property
    def bound(self) -> float:
        """Upper bound, with 97.5 % confidence, on the errors of `RANK` of the `SIZE` queries of the family.

        It says nothing certain about any other query: the family is random, and queries of analysts are not.
        """
        return max(self.value, 0.0) + NORMAL_97_5 * self.noise


def check_queries(name: str, schema: Schema, n: int) -> list[CompiledQuery]:
    """Return a public random family of queries, the same for the same schema.

    "regressions": one attribute on up to six others, logistic where it is binary and squared elsewhere, over
    the l2 ball of radius 3. "shares": the cells of up to three attributes.

    `name`: one of `FAMILIES`; `n`: number of records.
    """
    return [query.compile(schema, n) for query in _queries(name, schema)]


def _queries(name: str, schema: Schema) -> tuple[Query, ...]:
    rng = np.random.default_rng(0)
    found: list[Query] = []
    for _ in range(SIZE):
        order = [schema.attributes[k] for k in rng.permutation(len(schema.attributes))]
        wanted = 1 + FEATURES if name == "regressions" else 3
        chosen = order[:1]
        for attribute in order[1:]:
            if len(chosen) < wanted and math.prod(a.size for a in (*chosen, attribute)) <= LARGEST[name]:
                chosen.append(attribute)
        names = tuple(attribute.name for attribute in chosen)
        if name == "shares":
            found.append(Marginal(names))
        else:
            labelled = chosen[0].known == 2 and not isinstance(chosen[0], Binned)
            found.append(Regression(names[0], names[1:], loss="logistic" if labelled else "squared"))
    return tuple(found)
