"""What an analyst reads: units of errors, notes on coding, and whether an answer was checked."""

from __future__ import annotations

import re
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
        Attribute("sex", ("f", "m"), "m"),
        Attribute("region", ("north", "south", "west"), "west"),
        Binned("age", (0.0, 20.0, 40.0, 80.0), 30),
    )
)
ANSWER = Answer(
    query=Count({"sex": ["f"]}).to_json(),
    coefficients=(Coefficient("count", 10.0, 1.0, 8.0, 12.0, 2.0, 6.0, 14.0),),
    coded=(10.0,),
    branch="histogram",
    error=1.0,
    error_bound=2.0,
    confidence=0.95,
    covered_by="comparison",
    interval_by="prediction",
    typical=3.0,
    checked=True,
    remaining=0.5,
    private=True,
    comparable=True,
    people=100,
    unit="record",
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
    numbers = Mean("age", {"sex": ["f"]}).reading(SCHEMA, 1000).numbers
    assert numbers(off)[0] - numbers(best)[0] == pytest.approx(4.0)
    assert in_units(question, inverse, 1e9) == 80.0  # no mean is further off than its range


def test_errors_of_regressions_stay_excess_losses():
    question = Regression("sex", ("age",)).compile(SCHEMA, 1000)
    assert in_units(question, np.eye(2), 0.125) == 0.125


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (Mean("age"), ["the middle of its bin"]),
        (Mean("age", {"sex": ["f"]}), ["the middle of its bin"]),
        (Mean("sex"), ["share of m"]),
        (Count({"sex": ["f"]}), []),
        (Marginal(("sex",)), []),
        (
            Regression("sex", ("age", "region")),
            [
                "log odds of sex=m",
                "of age are for one unit more, with the middle of its bin",
                "region are differences",
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
    assert answer.note == reading_note(Mean("age"), engine.schema, bins_measured=True)
    assert "The interval does not include the error of binning." in str(
        replace(answer, note=reading_note(Mean("age"), SCHEMA))
    )
    assert Answer.from_json(answer.to_json()) == answer


def test_no_interval_leaves_the_range_of_what_is_asked(engine):
    *counts, total = engine.ask(Marginal(("region", "sex"))).coefficients
    assert min(count.low for count in counts) == 0.0  # nobody lives in the west
    assert all(0 <= count.low <= count.estimate <= count.high <= 500 for count in counts)
    assert (total.name, total.estimate, total.low) == ("region=total, sex=total", 500.0, None)
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
    assert "no: this engine makes no comparisons" in words
    assert "left for new measurements" not in words
    assert "no: the comparisons are used up" in str(replace(ANSWER, checked=False, remaining=0.0))
    assert "yes; epsilon 0.5 is left for new measurements" in str(ANSWER)


def test_the_text_names_the_unit_of_the_error():
    assert "Proved: error at most 2.000 with 95% confidence, by comparison with the records." in str(ANSWER)
    regression = replace(ANSWER, query=Regression("sex", ("age",)).to_json())
    assert "Proved: excess loss at most 2.000" in str(regression)


def test_an_answer_without_a_bound_says_so():
    bare = replace(ANSWER, error_bound=None, covered_by="none")
    assert "No bound on the error is proved" in str(bare)
    assert "confidence" not in str(bare)
    with pytest.raises(ValueError, match="if and only if an argument covers it"):
        Answer.from_json({**bare.to_json(), "covered_by": "noise"})


def test_the_length_on_the_wire_does_not_tell_which_argument_covers_an_answer():
    bare = replace(
        ANSWER,
        coefficients=(Coefficient("count", 10.0),),
        error=None,
        error_bound=None,
        covered_by="none",
        interval_by="none",
        typical=None,
    )
    kinds = [replace(ANSWER, covered_by=name) for name in ("noise", "comparison", "measurement")]
    assert len({len(pad(answer.body)) for answer in (bare, *kinds)}) == 1


def test_the_statement_of_a_seeded_engine_speaks_of_answers_and_seeds(engine):
    meaning = engine.statement().meaning
    assert "the answers as if they had been computed without privacy" in meaning
    assert "random_state" not in meaning


def test_a_table_has_margins_that_are_sums_of_its_cells(engine):
    answer = engine.ask(Marginal(("region", "age")))
    numbers = dict(zip(answer.names, answer.estimates, strict=True))
    ages = SCHEMA["age"].labels
    assert ages == ("[0, 20)", "[20, 40)", "[40, 80]")  # labels with commas
    for region in ("north", "south", "west"):
        cells = [numbers[f"region={region}, age={age}"] for age in ages]
        assert numbers[f"region={region}, age=total"] == pytest.approx(sum(cells))
    lines = str(answer).splitlines()
    head = next(line for line in lines if line.startswith("region "))
    assert head.split()[1:] == ["age=[0,", "20)", "age=[20,", "40)", "age=[40,", "80]", "age=total"]
    rows = [line for line in lines if "±" in line or ("[0, " in line and line is not head)]
    assert [line.split()[0] for line in rows] == ["north", "south", "west", "total"]
    long = answer.rows().to_csv().splitlines()
    assert long[0] == "region,age,people,std err,[0.025,0.975],share"
    assert long[1].startswith('north,"[0, 20)",')
    assert long[-1].startswith("total,total,500.0,,")
    narrow = {each.name: each.std_err for each in answer.coefficients}
    assert narrow["region=north, age=total"] < 1.9 * narrow["region=north, age=[0, 20)"]  # sqrt(3), not 3


def test_intervals_are_for_the_records_or_for_a_population_and_say_which():
    regression = replace(ANSWER, query=Regression("sex", ("age",)).to_json())
    assert "95% intervals for these records; predicted" in str(ANSWER)
    assert "sampling error included" in " ".join(str(regression).split())  # as in other tables
    cells = regression.summary().table().cells()
    assert cells[0] == ["", "coef", "std err", "z", "P>|z|", "[0.025", "0.975]", "noise share"]
    assert cells[1][1:] == ["10.00", "2.236", "4.472", "0.000", "6.000", "14.00", "20 %"]
    cells = regression.summary(population=False).table().cells()
    assert cells[0] == ["", "coef", "std err", "[0.025", "0.975]"]
    assert cells[1][1:] == ["10.00", "1.000", "8.000", "12.00"]
    assert "14" in str(ANSWER.summary(population=True))


def test_a_notebook_shows_the_same_cells_as_the_text(engine):
    answer = engine.ask(Regression("sex", ("age", "region")))
    page = answer._repr_html_()
    for row in answer.summary().table().cells():
        assert all(cell in str(answer) for cell in row)
        assert all(cell.replace("|", "|").replace(">", "&gt;") in page for cell in row)


def test_two_answers_are_compared_number_by_number():
    other = replace(ANSWER, coefficients=(Coefficient("count", 30.0, 1.0, 28.0, 32.0),))
    rows = ANSWER.compare(other).to_dict()["rows"]
    assert rows[0]["difference"] == 20.0
    assert rows[0]["intervals"] == "apart"
    assert ANSWER.compare(ANSWER).to_dict()["rows"][0]["intervals"] == "overlap"


def test_a_comparison_says_what_its_intervals_are_and_which_numbers_are_noise():
    """A coefficient without an interval looked as certain as the others."""
    numbers = (Coefficient("age", 1.0, 0.25, 0.5, 1.5), Coefficient("sex=m", 2.0))
    one = replace(ANSWER, query=Regression("sex", ("age",)).to_json(), coefficients=numbers)
    compared = one.compare(replace(one, coefficients=numbers[:1], interval_by="none"))
    said = " ".join(str(compared).split())
    assert "First: 95% intervals for these records" in said
    assert "Second: There are no intervals" in said
    assert "(2.000)" in said
    assert "Coefficients in brackets are mostly noise" in said
    assert compared.to_dict()["rows"][0]["intervals"] == "overlap"
    same = " ".join(str(ANSWER.compare(ANSWER)).split())
    assert same.count("95% intervals for these records") == 1
    assert "mostly noise" not in same


def test_an_interval_that_stops_at_nobody_is_shown_by_its_ends():
    """9 with the interval from 0 to 271 was shown as 9 ±135."""
    cells = {"f, age=low": (9.0, 0.0, 271.0), "f, age=high": (500.0, 450.0, 550.0)}
    numbers = tuple(
        Coefficient(f"sex={name}", each, 10.0, low, high) for name, (each, low, high) in cells.items()
    )
    answer = replace(ANSWER, query=Marginal(("sex", "age")).to_json(), coefficients=numbers)
    assert answer.summary().table().cells()[1] == ["f", "9 [0, 271]", "500 ±50"]


def test_a_regression_on_bins_says_what_its_intervals_leave_out():
    """Delays of flights: the slope was 1.02 on the numbers, and its interval on the bins [0.92, 0.99]."""
    words = "its intervals do not include this error of binning"
    assert words in reading_note(Regression("sex", ("age",)), SCHEMA)
    assert words in reading_note(Regression("age", ("region",), loss="squared"), SCHEMA)
    assert words not in reading_note(Regression("sex", ("region",)), SCHEMA)
    assert words not in reading_note(Regression("sex", ("age",)), SCHEMA, intervals=False)
    one_bin = Regression("sex", ("age", "region"), where={"age": ["[0, 20)"]})
    assert words not in reading_note(one_bin, SCHEMA)
    assert reading_note(Regression("sex", ("age",)), SCHEMA, shrunk=True).startswith("the radius of the set")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": "huber"}, "another loss"),
        ({"target": "other"}, "another target"),
        ({"kind": "mean", "of": "age"}, "another kind"),
    ],
)
def test_numbers_on_different_scales_have_no_difference(change, words):
    """A log odds beside a share would be said to be apart, whatever the records are."""
    other = replace(ANSWER, query={**ANSWER.query, **change})
    shown = ANSWER.compare(other).to_dict()
    assert {name for row in shown["rows"] for name in row} == {"", "answer", "estimate", "low", "high"}
    assert [row["answer"] for row in shown["rows"]] == ["first"] * len(ANSWER.names) + ["second"] * len(
        ANSWER.names
    )
    assert words in shown["notes"][0]
    assert "apart" not in str(ANSWER.compare(other))


def test_answers_of_earlier_versions_keep_their_bounds():
    old = ANSWER.to_json()
    for name in ("coded", "interval_by", "people", "unit"):
        del old[name]
    old["coefficients"] = [{"name": "count", "estimate": 10.0, "low": 8.0, "high": 12.0, "noise": 1.0}]
    answer = Answer.from_json(old)
    assert (answer.interval_by, answer.coefficients[0].std_err) == ("bound", 1.0)
    assert "95% intervals for these records; by the bound on the error." in str(answer)


def test_a_regression_at_the_edge_of_its_set_or_nearly_separated_says_so():
    query = Regression("sex", ("age",), radius=10.0).to_json()
    usual = replace(ANSWER, query=query, coded=(1.0, 2.0))
    assert "radius" not in str(usual)
    assert "Nearly all people at some levels have the same label" not in str(usual)
    assert "Nearly all people at some levels have the same label" in str(replace(usual, coded=(1.0, -5.0)))
    words = reading_note(Regression("sex", ("age",)), SCHEMA, shrunk=True)
    at_the_edge = " ".join(str(replace(usual, note=words, coded=(0.0, -9.95))).split())
    assert (
        "The radius of the set of coefficients is reached: they are shrunk towards 0, and their"
        in at_the_edge
    )
    assert "larger radius: radius=, --radius on the command line, or Advanced on the page." in at_the_edge
    assert "same label" not in at_the_edge
    assert "intervals" not in reading_note(Regression("sex", ("age",)), SCHEMA, shrunk=True, intervals=False)


def test_only_coefficients_that_the_set_shrinks_are_said_to_be_shrunk():
    """Coefficients of norm 2.986 at the radius 3, the same at the radius 20, were said to be shrunk."""
    rng, n = np.random.default_rng(0), 20_000
    table = {name: rng.choice(["u", "v", "w"], n) for name in ("d", "e", "f")}
    table["t"] = np.where(rng.random(n) < np.where(table["d"] == "u", 0.8, 0.3), "hi", "lo")
    levels = [Attribute(name, ("u", "v", "w"), "w") for name in ("d", "e", "f")]
    schema = Schema((*levels, Attribute("t", ("lo", "hi"), "lo")))
    engine = QueryEngine(schema, table, Budget(2.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    far = engine.ask(Regression("t", ("d", "e"), radius=20))
    for norm, order in (("l2", 2), ("l1", 1)):
        size = float(np.linalg.norm(far.coded, order))
        near = engine.ask(Regression("t", ("d", "e"), domain=norm, radius=1.005 * size))
        assert near.estimates == pytest.approx(far.estimates, abs=1e-3)
        assert float(np.linalg.norm(near.coded, order)) > 0.99 * 1.005 * size
        assert "shrunk" not in str(near)
        assert "shrunk" in str(engine.ask(Regression("t", ("d", "e"), domain=norm, radius=0.7 * size)))
    assert "shrunk" not in str(far)


def test_an_answer_about_a_target_that_many_lack_says_so():
    """It has no intervals either. The share is that of the first release; with few missing targets, or a
    single feature, there is no note."""
    rng, n = np.random.default_rng(0), 20_000
    table = {name: rng.choice(["u", "v", "w"], n) for name in ("d", "e")}
    wage = rng.normal(50, 10, n)
    table |= {"wage": np.where(rng.uniform(size=n) < 0.4, np.nan, wage), "age": rng.normal(50, 10, n)}
    levels = [Attribute(name, ("u", "v", "w"), "w") for name in ("d", "e")]
    schema = Schema((*levels, *(Binned(name, (0, 50, 99)) for name in ("wage", "age"))))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    answer = engine.ask(Regression("wage", ("d", "e", "age"), loss="squared"))  # no measured table has all
    assert re.search(r"about (39|40|41)% of the people have no wage", answer.note)
    assert answer.interval_by == "none"
    assert all(
        number.low is number.std_err is number.population_low is None for number in answer.coefficients
    )
    for few in (Regression("age", ("d", "e"), loss="squared"), Regression("wage", ("d",), loss="squared")):
        answer = engine.ask(few)
        assert "have no" not in answer.note
        assert answer.interval_by == "prediction"
        assert answer.coefficients[0].low is not None


def test_intervals_stay_where_a_measured_table_shows_who_lacks_the_target():
    rng, n = np.random.default_rng(0), 20_000
    table = {name: rng.choice(["0", "1"], n) for name in "abc"}
    table["t"] = np.where(rng.random(n) < 0.2, "", rng.choice(["lo", "hi"], n))
    levels = (Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1"))
    schema = Schema((*levels, Attribute("t", ("lo", "hi"), "missing"), Attribute("c", ("0", "1"), "1")))
    engine = QueryEngine(schema, table, Budget(8.0, 1e-8), method="warm", check=0, rng=SeededGenerator(0))
    released = [set(each.attributes) for each in engine._public_side._warm]
    assert {0, 1, 2} in released  # a table of three is in the start of this engine
    answer = engine.ask(Regression("t", ("a", "b")))
    assert "have no t" not in answer.note
    assert answer.interval_by != "none"


@pytest.mark.long
def test_noise_on_the_share_of_missing_targets_takes_no_intervals_away():
    rng, n = np.random.default_rng(0), 400
    table = {f"a{j}": rng.choice(["0", "1"], n) for j in range(22)}
    schema = Schema(
        (*(Attribute(name, ("0", "1"), "1") for name in table), Attribute("t", ("lo", "hi"), "missing"))
    )
    table["t"] = rng.choice(["lo", "hi"], n)
    for seed in range(4):
        engine = QueryEngine(
            schema, table, Budget(0.1, 1e-8), method="warm", check=0, rng=SeededGenerator(seed)
        )
        assert "have no t" not in engine.ask(Regression("t", ("a0", "a1"))).note


def test_levels_without_visible_people_are_named():
    """By the released shares alone: a level of few people, and cells of missing values that nobody has."""
    rng, n = np.random.default_rng(0), 20_000
    table = {name: rng.choice(["u", "v", "w"], n) for name in ("d", "e", "f")}
    table |= {"a": rng.choice(["x", "y", "z"], n, p=[0.5, 0.4995, 0.0005]), "b": rng.normal(50, 10, n)}
    table["g"] = rng.choice([1, 2, 5], n)
    levels = [Attribute(name, ("u", "v", "w"), "w") for name in ("d", "e")]
    levels.append(Attribute("g", (1, 2, 5), 1))
    schema = Schema((*levels, Attribute("a", ("x", "y", "z"), "z"), Binned("b", (0, 50, 99))))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    answer = engine.ask(Regression("b", ("a", "d"), loss="squared"))
    assert "too few people are visible at a=z: these coefficients are mostly noise" in answer.note
    assert "visible at b=missing" in engine.ask(Regression("g", ("b", "e"), loss="squared")).note
    assert "visible" not in engine.ask(Regression("b", ("d", "e"), loss="squared")).note


def test_a_test_that_contradicts_the_interval_is_not_shown():
    """The interval of a level of few people is longer than its standard error suggests."""
    query = Regression("sex", ("age",)).to_json()
    wide = Coefficient("a", 9.0, 4.0, -50.0, 50.0, 1.0, -55.0, 55.0)
    usual = Coefficient("b", 9.0, 4.0, 1.0, 17.0, 1.0, 0.9, 17.1)
    both = replace(ANSWER, query=query, coefficients=(wide, usual)).summary(True)
    assert "z and P>|z| are left out where a test by the standard error" in str(both)
    assert "left out" not in str(replace(ANSWER, query=query, coefficients=(usual,)).summary(True))
    rows = both.table().rows
    assert rows[0][3:5] == (None, None)
    assert rows[1][3] == pytest.approx(9 / 17**0.5)
    assert rows[1][4] == pytest.approx(0.029, abs=0.001)


def test_a_regression_without_sampling_errors_shows_the_intervals_of_the_records():
    """Those of regressions on many cells: the table was one of estimates alone."""
    query = Regression("sex", ("age",)).to_json()
    number = Coefficient("age", 1.0, 0.25, 0.5, 1.5)
    wide = replace(ANSWER, query=query, coefficients=(number,))
    words = " ".join(str(wide).split())
    assert "0.5000 1.500" in words
    assert "95% intervals for these records alone, since the sampling error of this regression" in words
    assert "no intervals for a population" in " ".join(str(wide.summary(population=True)).split())
    assert wide.compare(ANSWER).to_dict()["rows"][0]["low"] == 0.5
    usual = replace(
        wide, coefficients=(replace(number, sampling=0.1, population_low=0.4, population_high=1.6),)
    )
    assert "for a population of which these records are a random sample" in " ".join(str(usual).split())


NUMERIC = Schema(
    (
        Attribute("ideo", (1, 2, 3, 10)),
        Attribute("race", ("a", "b", "c"), "c"),
        Attribute("sex", ("f", "m"), "m"),
    )
)


def test_levels_that_are_numbers_count_in_their_units():
    """They counted as numbers from -1 to 1, evenly spaced, and their mean was refused."""
    rng, n = np.random.default_rng(0), 20_000
    sex = rng.choice(["f", "m"], n)
    ideo = np.where(sex == "m", rng.choice([2, 10], n), rng.choice([1, 3], n))
    table = {"ideo": ideo, "race": rng.choice(["a", "b", "c"], n), "sex": sex}
    engine = QueryEngine(NUMERIC, table, Budget(2.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    answer = engine.ask(Regression("ideo", ("sex",), loss="squared"))
    assert answer.estimates[0] == pytest.approx(2.0, abs=0.1)
    assert dict(zip(answer.names, answer.estimates, strict=True))["sex=m"] == pytest.approx(4.0, abs=0.1)
    assert "in units of ideo, whose levels are numbers" in answer.note
    mean = engine.ask(Mean("ideo", {"sex": ["m"]}))
    assert mean.coefficients[0].low <= ideo[sex == "m"].mean() <= mean.coefficients[0].high
    assert engine.ask(Mean("ideo")).estimates[0] == pytest.approx(ideo.mean(), abs=0.05)
    assert NUMERIC["ideo"].scaled.tolist() == pytest.approx([-1, -7 / 9, -5 / 9, 1, 0])


@pytest.mark.parametrize("loss", ["squared", "huber", "quantile"])
def test_levels_that_are_no_numbers_have_no_mean(loss):
    with pytest.raises(ValueError, match=r"3 levels that are no numbers.*table \(Marginal\) of 'race'"):
        Regression("race", ("sex",), loss=loss).compile(NUMERIC, 1000)
    with pytest.raises(ValueError, match="Use a table"):
        Regression("race", ("sex",)).compile(NUMERIC, 1000)
    with pytest.raises(ValueError, match="levels that are no numbers"):
        Mean("race").compile(NUMERIC, 1000)


@pytest.mark.parametrize(
    "levels",
    [(-1e308, 0.0, 1e308), (10**400, 1, 2), (0.0, 5e-324, 1e-323), (1e15, 1e15 + 0.125, 1e15 + 0.25)],
)
def test_extreme_levels_stay_between_the_ends(levels):
    scaled = Attribute("x", levels).scaled
    assert scaled.tolist()[:3] == pytest.approx([-1, 0, 1]) or sorted(scaled) == [-1, -1, 0, 1]
    assert np.isfinite(scaled).all()


def test_a_bound_above_the_loss_of_a_constant_is_left_out():
    """A logistic regression had "excess loss at most 0.7994", where a coin has a loss of 0.69."""
    rng, n = np.random.default_rng(0), 1_500
    table = {name: rng.choice(["u", "v"], n) for name in ("d", "e", "f", "t")}
    table["r"] = rng.choice(["no", "yes"], n, p=[0.97, 0.03])
    schema = Schema(
        (*(Attribute(name, ("u", "v"), "v") for name in "deft"), Attribute("r", ("no", "yes"), "no"))
    )
    engine = QueryEngine(schema, table, Budget(2.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    side = engine._public_side
    query = Regression("r", ("d",)).compile(schema, n)
    share = float(side.histogram.marginal(query.attributes).reshape(2, 2).sum(axis=1)[1])
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert side._constant_loss(query) == pytest.approx(entropy, rel=0.01)
    public = side.answer(query)[0]
    assert side.proved(public, 1.01 * entropy + 1e-3) is None
    assert side.proved(public, 0.5 * entropy).error == 0.5 * entropy
    squared = Regression("t", ("d",), loss="squared").compile(schema, n)
    assert side._constant_loss(squared) == pytest.approx(0.5, abs=0.02)  # of labels -1 and 1


def test_a_mean_of_nobody_has_a_standard_error_within_its_range():
    rng, n = np.random.default_rng(0), 20_000
    table = {"a": rng.choice(["x", "y"], n), "b": rng.choice(["u", "v"], n), "v": rng.uniform(0, 12, n)}
    schema = Schema(
        (
            Attribute("a", ("x", "y", "z"), "x"),
            Attribute("b", ("u", "v", "w"), "u"),
            Binned("v", (0, 3, 6, 9, 12), 3),
        )
    )
    engine = QueryEngine(schema, table, Budget(1.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    answer = engine.ask(Mean("v", {"a": ["z"], "b": ["w"]}))
    assert answer.coefficients[0].std_err <= 12
    assert answer.error <= 12
    assert "too few people with this condition are visible" in answer.note
    assert "visible" not in engine.ask(Mean("v", {"a": ["x"]})).note


def test_intervals_that_end_at_the_edge_of_the_set_are_named():
    rng, n = np.random.default_rng(0), 3_000
    table = {name: rng.choice(["u", "v"], n, p=[0.9, 0.1]) for name in ("d", "e")}
    table["t"] = np.where((table["d"] == "v") | (rng.random(n) < 0.5), "hi", "lo")
    schema = Schema(
        (*(Attribute(name, ("u", "v"), "v") for name in "de"), Attribute("t", ("lo", "hi"), "lo"))
    )
    engine = QueryEngine(schema, table, Budget(1.0, 1e-8), method="warm", check=0, rng=SeededGenerator(1))
    assert "end at the edge" in engine.ask(Regression("t", ("d", "e"), radius=4.0)).note
    assert "of d=v end at the edge" in engine.ask(Regression("t", ("d", "e"), radius=4.0)).note
    assert "end at the edge" not in engine.ask(Regression("e", ("d",), radius=10.0)).note


def test_an_answer_without_a_histogram_does_not_name_one():
    own = replace(ANSWER, note=reading_note(Count({"sex": ["f"]}), SCHEMA, own_fit=True))
    assert "the released tables, at no new cost" in str(own)
    assert "histogram" not in str(own)
    assert "the public histogram, at no new cost" in str(ANSWER)
