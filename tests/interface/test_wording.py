"""Messages count as people do: 1 record, 2 records."""

import dataclasses
import re

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.planning.outlook import doubt
from dpcvx.solvers import NoisyGradientDescent
from dpcvx.words import describe, quantity


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (quantity(0, "record"), "0 records"),
        (quantity(1, "record"), "1 record"),
        (quantity(2000, "record"), "2,000 records"),
        (quantity(1, "class", "classes"), "1 class"),
        (quantity(0, "class", "classes"), "0 classes"),
        (describe({1}), "set of 1 entry"),
        (describe({1, 2}), "set of 2 entries"),
    ],
)
def test_numbers_agree_with_what_they_count(said, words):
    assert said == words


def test_a_plan_for_one_record_says_so():
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0), d=1)
    plan = dp.plan(problem, 1, dp.Budget(1.0, 1e-6), (NoisyGradientDescent(),))
    found = str(dataclasses.replace(doubt(plan), records=1, epsilon=30.0))
    assert found.startswith("With 1 record, 1 coefficient and epsilon 1 ")
    assert "About 1 record at epsilon 1 or about epsilon 30 with 1 record would be enough" in found
    assert "from 1 record." in plan.explain()


def model(classes=(0, 1)):
    return dp.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=classes)


@pytest.mark.parametrize(("classes", "words"), [((), "got 0 classes."), ((3,), "got 1 class.")])
def test_too_few_classes_are_counted(classes, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        model(classes).fit(np.zeros((4, 2)), np.zeros(4))


def test_one_row_against_several_targets():
    with pytest.raises(ValueError, match="X has 1 row but y has 2"):
        model().fit(np.zeros((1, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="X has 1 row but y has 2"):
        dp.source(np.zeros((1, 2)), np.zeros(2), bounds=dp.Bounds(1.0))


def test_one_label_for_two_columns():
    lasso = dp.PrivateGroupLasso(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), groups=["a"])
    with pytest.raises(ValueError, match="groups has 1 label for 2 columns"):
        lasso.fit(np.zeros((4, 2)), np.zeros(4))
