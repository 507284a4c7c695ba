"""Means of binned numbers: intervals include the noise of released bin means, bounds the width of bins."""

import itertools
import warnings

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Mean, QueryEngine, Schema

EDGES = (0, 10, 20, 40)
SCHEMA = Schema((Binned("v", EDGES), Attribute("a", ("x", "y"), "y")))
N = 4_000


def people(seed):
    rng = np.random.default_rng(seed)
    v = np.minimum(rng.exponential(0.9, N) * 10, 39.9)
    v[:50] = np.nan
    return {"v": v, "a": np.where(rng.random(N) < 0.1, "x", "y")}


def engine(seed, schema=SCHEMA, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return QueryEngine(
            schema,
            people(seed),
            dp.Budget(1.0, 1e-9),
            method="warm",
            check=0,
            rng=SeededGenerator(seed),
            **options,
        )


def test_a_mean_inside_one_bin_has_the_noise_of_that_bin():
    """The interval was [estimate, estimate], with the proof of an error of 0."""
    inside, errors, widths = [], [], []
    for seed in range(12):
        v = people(seed)["v"]
        made = engine(seed)
        for low, high in itertools.pairwise(EDGES):
            end = "]" if high == EDGES[-1] else ")"
            answer = made.ask(Mean("v", {"v": [f"[{low}, {high}{end}"]}))
            (number,) = answer.coefficients
            truth = v[(v >= low) & (v < high)].mean()
            inside.append(number.low <= truth <= number.high)
            errors.append(number.estimate - truth)
            widths.append(number.std_err)
            assert answer.error_bound is None or abs(number.estimate - truth) <= answer.error_bound
            assert number.sampling > 0
    assert np.mean(inside) > 0.85
    assert 0.5 < np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(widths))) < 2
    assert "noisy mean of its bin, whose noise the interval includes" in answer.note


def test_a_mean_of_all_people_includes_the_noise_of_bin_means():
    inside = []
    for seed in range(12):
        number = engine(seed).ask(Mean("v")).coefficients[0]
        truth = np.nanmean(people(seed)["v"])
        inside.append(number.low <= truth <= number.high)
    assert sum(inside) >= 9


def test_a_mean_over_a_condition_allows_for_other_people_in_the_bin():
    made = engine(0)
    answer = made.ask(Mean("v", {"a": ["x"]}))
    assert "not how people with this condition differ" in answer.note
    assert answer.error_bound is None or answer.error_bound > 5  # half of a bin of most people
    table = people(0)
    truth = np.nanmean(table["v"][table["a"] == "x"])
    assert answer.coefficients[0].low <= truth <= answer.coefficients[0].high


@pytest.mark.parametrize("values", [None, (4.0, 14.0, 26.0)], ids=["middles", "declared"])
def test_a_value_that_nobody_measured_has_no_error_of_its_own(values):
    schema = Schema((Binned("v", EDGES, None, values), SCHEMA["a"]))
    answer = engine(0, schema, bin_means=0).ask(Mean("v", {"v": ["[0, 10)"]}))
    (number,) = answer.coefficients
    assert (number.std_err, answer.error) == (None, None)
    assert answer.error_bound == pytest.approx(5.0 if values is None else 6.0)
    assert (number.low, number.high) == (0.0, pytest.approx(10.0))
    assert answer.interval_by == "bound"
    assert "does not include the error of binning" in answer.note


def test_a_condition_that_leaves_no_value_is_refused():
    with pytest.raises(ValueError, match=r"leaves nobody with a value of 'v'.*ask for a count"):
        engine(0).ask(Mean("v", {"v": ["missing"]}))
