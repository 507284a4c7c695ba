"""Queries that cannot be answered, or would take too much, are refused before anything is spent."""

import numpy as np
import pytest

from dpcvx import Budget
from dpcvx.domains import GroupBall
from dpcvx.losses import Huber
from dpcvx.queries import Attribute, QueryEngine, Regression, Schema

SCHEMA = Schema(
    (Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1"), Attribute("c", ("0", "1"), "1"))
)


class OwnLoss(Huber):
    """A convex loss of the caller's, which no file can name."""


@pytest.mark.parametrize(
    "query",
    [
        Regression("a", ("b", "c"), domain=GroupBall((1, 2), 1.0)),
        Regression("a", ("b", "c"), loss=OwnLoss(0.5)),
    ],
    ids=["set", "loss"],
)
def test_a_query_without_a_json_form_spends_nothing(query):
    """The answer could not be written, after its measurement had been made."""
    table = {name: np.array(["0", "1"] * 50) for name in "abc"}
    engine = QueryEngine(SCHEMA, table, Budget(1.0, 1e-6), method="composition", n_queries=2)
    before = engine.remaining
    with pytest.raises(ValueError, match=r"no JSON form|declares"):
        engine.ask(query)
    assert engine.n_updates == 0
    assert engine.remaining == before


def test_the_size_of_a_regression_is_limited_before_it_is_made():
    """Two features of 180 levels made a matrix of 23 million numbers."""
    wide = Schema(
        (
            Attribute("y", ("0", "1"), "1"),
            Attribute("left", tuple(map(str, range(180))), "179"),
            Attribute("right", tuple(map(str, range(180))), "179"),
        )
    )
    with pytest.raises(ValueError, match="361 coefficients, more than 256"):
        Regression("y", ("left", "right")).compile(wide, 1000)
    assert Regression("y", ("left",)).compile(wide, 1000).problem.d == 181
