"""Plain technical English (STYLE §12), and messages that count as people do: 1 record, 2 records."""

import ast
import dataclasses
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.planning.outlook import doubt
from dpcvx.solvers import NoisyGradientDescent
from dpcvx.words import quantity, show

SOURCE = Path(dp.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
DIALECT = re.compile(r"\b(doors?|trim|trimmed|heard|desk|gate|colours|do not compare)\b", re.IGNORECASE)
RELATIVE = re.compile(r"(^|[.:;] |\n\s*)(What|Those|Who) (?![^.]*\?)")
PARTICIPLES = (
    *("made", "heard", "kept", "asked", "found", "said", "told", "shown", "counted"),
    *("opened", "rehearsed", "computed", "connected", "sharded", "noted"),
)
STORED = {("estimators/model_file.py", "trim")}  # a field of model files since version 0.1


@cache
def nodes(path):
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def texts(path):
    """Docstrings, comments and strings of a module, with their lines."""
    strings = (node for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    comments = (token for token in tokens if token.type == tokenize.COMMENT)
    return [(node.lineno, node.value) for node in strings] + [
        (token.start[0], token.string.lstrip("#: ")) for token in comments
    ]


def modules():
    return {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}


def test_code_and_messages_use_the_words_of_the_field():
    found = [
        f"{name}:{line}: {match[0]}"
        for name, path in modules().items()
        for line, text in texts(path)
        for match in DIALECT.finditer(text)
        if (name, match[0]) not in STORED
    ]
    assert not found, "Use quantise, clip, region, query, ... instead:\n" + "\n".join(found)


def test_no_sentence_of_the_code_starts_with_a_relative_pronoun():
    found = [
        f"{name}:{line}: {text[:60]!r}"
        for name, path in modules().items()
        for line, text in texts(path)
        if RELATIVE.search(text)
    ]
    assert not found, "Start with the noun that is meant:\n" + "\n".join(found)


def test_no_function_or_class_is_named_by_a_participle():
    found = [
        f"{name}:{node.lineno}: {node.name}"
        for name, path in modules().items()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.strip("_").lower() in PARTICIPLES
    ]
    assert not found, "Functions are verbs, classes are nouns:\n" + "\n".join(found)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_no_sentence_of_a_page_starts_with_a_relative_pronoun(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = [prose[max(match.start() - 20, 0) : match.end() + 60] for match in RELATIVE.finditer(prose)]
    assert not found, "Start with the noun that is meant"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_pages_use_the_words_of_the_field(page):
    found = [line for line in page.read_text().splitlines() if DIALECT.search(line)]
    assert not found


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (quantity(0, "record"), "0 records"),
        (quantity(1, "record"), "1 record"),
        (quantity(2000, "record"), "2,000 records"),
        (quantity(1, "class", "classes"), "1 class"),
        (quantity(0, "class", "classes"), "0 classes"),
        (show({1}), "set of 1 entry"),
        (show({1, 2}), "set of 2 entries"),
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
