"""What an analyst reads: units of errors, notes on coding, and whether an answer was checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Count, Marginal, Mean, QueryEngine, Regression, Schema
from dpcvx.queries.answer import Answer, Coefficient, reading_note
from dpcvx.queries.error_bars import in_units, inverse_hessian
from dpcvx.service.analysts import pad

SCHEMA = Schema(
    (
        Attribute("sex", ("f", "m")),
        Attribute("region", ("north", "south", "west")),
        Binned("age", (0.0, 20.0, 40.0, 80.0)),
    )
)
ANSWER = Answer(
    query=Count({"sex": ["f"]}).to_json(),
    coefficients=(Coefficient("count", 10.0, 8.0, 12.0),),
    branch="histogram",
    error=1.0,
    error_bound=2.0,
    confidence=0.95,
    covered_by="comparison",
    typical=3.0,
    checked=True,
    remaining=0.5,
    private=True,
    comparable=True,
    note="",
)


@pytest.fixture(scope="module")
def engine():
    rng = np.random.default_rng(0)
    table = {
        "sex": rng.choice(["f", "m"], 500),
        "region": rng.choice(["north", "south"], 500),
        "age": rng.uniform(0, 80, 500),
    }
    return QueryEngine(SCHEMA, table, Budget(1.0, 1e-6), method="histogram", rng=SeededGenerator(1))


def test_errors_of_a_conditional_mean_are_deviations_of_the_mean():
    question = Mean("age", {"sex": ["f"]}).compile(SCHEMA, 1000)
    weights = np.full(6, 0.25 / 3)
    weights[1::2] = 0.25  # the order of the cells is age, sex: a quarter are f
    weights /= weights.sum()
    best = question.answer(weights)
    off = best + 0.1  # of [-1, 1], so 4 of the 80 years
    inverse = inverse_hessian(question, weights, off)
    shown = in_units(question, inverse, question.error(weights, off))
    assert shown == pytest.approx(4.0, rel=0.02)
    assert question.reported(off)[0] - question.reported(best)[0] == pytest.approx(4.0)
    assert in_units(question, inverse, 1e9) == 80.0  # no mean is further off than its range


def test_errors_of_regressions_stay_excess_losses():
    question = Regression("sex", ("age",)).compile(SCHEMA, 1000)
    assert in_units(question, np.eye(2), 0.125) == 0.125


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (Mean("age"), ["by bin midpoints"]),
        (Mean("age", {"sex": ["f"]}), ["by bin midpoints"]),
        (Mean("sex"), ["share of m"]),
        (Count({"sex": ["f"]}), []),
        (Marginal(("sex",)), []),
        (
            Regression("sex", ("age", "region")),
            [
                "sex: f = -1, m = +1",
                "age: bin midpoints, [0, 80] scaled to [-1, 1]",
                "0/1 column",
                "3 levels",
            ],
        ),
    ],
    ids=["mean", "conditional mean", "share", "count", "marginal", "regression"],
)
def test_the_note_says_how_attributes_enter(query, parts):
    words = reading_note(query, SCHEMA)
    assert all(part in words for part in parts)
    assert bool(words) == bool(parts)
    assert "\n" not in words


def test_an_answer_carries_its_note_and_goes_through_json(engine):
    answer = engine.ask(Mean("age"))
    assert answer.note == reading_note(Mean("age"), engine.schema)
    assert answer.note in str(answer)
    assert Answer.from_json(answer.to_json()) == answer


def test_no_interval_leaves_the_range_of_what_is_asked(engine):
    shares = engine.ask(Marginal(("region", "sex"))).coefficients
    assert min(share.low for share in shares) == 0.0  # nobody lives in the west
    assert all(0 <= share.low <= share.estimate <= share.high <= 1 for share in shares)
    mean = engine.ask(Mean("age")).coefficients[0]
    assert 0 <= mean.low <= mean.estimate <= mean.high <= 80


@pytest.mark.parametrize("query", ["sex ~ age", {"kind": "mean", "of": "age"}], ids=["text", "dict"])
def test_what_is_no_query_is_refused_by_name(engine, query):
    with pytest.raises(TypeError, match=r"Regression, Count, Mean or Marginal.*query_from_json"):
        engine.ask(query)
    with pytest.raises(TypeError, match="query_from_json"):
        engine.ask_many([query])


def test_an_answer_says_why_it_was_not_checked(engine):
    assert engine.comparisons == (0, 0)
    words = str(engine.ask(Count({"sex": ["f"]})))
    assert "this engine makes no comparisons" in words
    assert "left for new measurements" not in words
    spent = str(replace(ANSWER, checked=False, remaining=0.0))
    assert "not checked: the comparisons are used up" in spent
    assert "epsilon 0 left" in spent
    assert "not checked" not in str(ANSWER)


def test_the_text_names_the_unit_of_the_error():
    assert "; error of about 1 by noise alone" in str(ANSWER)
    assert "\nerror at most 2 with 95% confidence, by comparison with the records" in str(ANSWER)
    regression = replace(ANSWER, query=Regression("sex", ("age",)).to_json())
    assert "; excess loss of about 1" in str(regression)
    assert "\nexcess loss at most 2" in str(regression)


def test_an_answer_without_a_bound_says_so():
    bare = replace(ANSWER, error_bound=None, covered_by="none")
    assert "no bound on the error is proved" in str(bare)
    assert "confidence" not in str(bare)
    with pytest.raises(ValueError, match="if and only if an argument covers it"):
        Answer.from_json({**bare.to_json(), "covered_by": "noise"})


def test_the_length_on_the_wire_does_not_tell_which_argument_covers_an_answer():
    bare = replace(
        ANSWER,
        coefficients=(Coefficient("count", 10.0, None, None, None),),
        error=None,
        error_bound=None,
        covered_by="none",
        typical=None,
    )
    kinds = [replace(ANSWER, covered_by=name) for name in ("noise", "comparison", "measurement")]
    assert len({len(pad(answer.body)) for answer in (bare, *kinds)}) == 1


def test_the_statement_of_a_seeded_engine_speaks_of_answers_and_seeds(engine):
    meaning = engine.statement().meaning
    assert "the answers as if they had been computed without privacy" in meaning
    assert "random_state" not in meaning
