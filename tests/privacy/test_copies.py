"""Copies of what counts private answers: each would answer as often as the original."""

import copy
import pickle

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.domains import L2Ball
from dpcvx.errors import BudgetExceeded, WrongType
from dpcvx.losses import Squared
from dpcvx.noise import SecureGenerator
from dpcvx.plans.oracle import Oracle
from dpcvx.problem import Bounds, Problem
from dpcvx.queries import Attribute, Count, QueryEngine, Schema
from dpcvx.queries.sparse_vector import AboveThreshold
from dpcvx.solvers import NoisyGradientDescent

DUPLICATES = (copy.copy, copy.deepcopy, pickle.dumps)
SCHEMA = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
TABLE = {"a": np.array(["0", "1"] * 50), "b": np.array(["1"] * 100)}


def engine():
    return QueryEngine(SCHEMA, TABLE, dp.Budget(1.0, 1e-6), method="composition", n_queries=2)


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_copy_of_an_engine_would_double_its_answers(duplicate):
    """copy.copy made a second engine with the whole budget: two answers for the price of one."""
    asked = engine()
    question = Count({"a": ["1"]})
    with pytest.raises(WrongType, match="QueryEngine cannot be copied"):
        duplicate(asked)
    asked.ask(question)
    asked.ask(question)
    with pytest.raises(BudgetExceeded):
        asked.ask(question)


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_copy_of_a_run_of_comparisons_would_use_its_threshold_twice(duplicate):
    run = AboveThreshold(1.0).start(SecureGenerator())
    with pytest.raises(WrongType, match="ComparisonRun cannot be copied"):
        duplicate(run)


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_copy_of_an_oracle_would_double_its_answers(duplicate):
    problem = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=2)
    plan = NoisyGradientDescent(n_iter=3).plan(problem, 100, dp.Budget(1.0, 1e-6), Tight())
    source = dp.source(np.zeros((100, 2)), np.zeros(100), bounds=problem.bounds)
    with pytest.raises(WrongType, match="Oracle cannot be copied"):
        duplicate(Oracle(plan, source, SecureGenerator()))
