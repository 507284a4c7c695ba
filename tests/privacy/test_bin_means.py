"""Means inside bins: exact sums, their sensitivity by brute force, a test vector, and what answers gain."""

import itertools
import math
import warnings

import numpy as np
import pytest

from dpcvx.accounting import REPLACE_ONE, WEIGHT, Budget, Neighbours
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Count, Mean, QueryEngine, Regression, Schema, Universe
from dpcvx.queries.bin_means import OFFSET_BITS, NoisyBinSums, bin_sums_of, with_bin_means, worth_measuring
from dpcvx.queries.budget_split import split_budget

PERSON = Neighbours("replace", "person", 1, WEIGHT)
NAN = float("nan")
ONE = Schema((Binned("v", (0, 2, 6, 10), "none"), Attribute("a", ("x", "y"), "y")))
TWO = Schema(
    (Binned("v", (0, 2, 6, 10), "none"), Binned("w", (-1, 0, 1), 0.5), Attribute("a", ("x", "y"), "y"))
)
CELLS = [NAN, -5.0, 0.0, 0.5, 2.0, 4.0, 6.0, 9.9, 1e300, math.inf]


def exact(schema, *rows, weights=None):
    table = {a.name: [row[i] for row in rows] for i, a in enumerate(schema.attributes)}
    return Universe(schema).read(table, weights).bins


def test_exact_sums_of_a_table_by_hand():
    sums = exact(ONE, (0.0, "x"), (1.5, "x"), (4.0, "y"), (NAN, "x"), (math.inf, "y"), (-3.0, "y"))
    steps = sums / 2.0**OFFSET_BITS
    assert steps.tolist() == [3, 1, 1, -1.5, 0, 1]


@pytest.mark.parametrize("neighbours", [REPLACE_ONE, PERSON], ids=["rows", "persons"])
def test_no_replaced_unit_moves_the_sums_by_more_than_the_sensitivity(neighbours):
    weight = neighbours.weight
    mechanism = bin_sums_of(TWO, 4, 1.0, neighbours)
    points = [
        exact(TWO, (v, w, "x"), weights=np.full(1, weight)) for v in CELLS for w in (0.25, NAN, 0.0, 1.0)
    ]
    largest = max(float(np.linalg.norm(a - b)) for a, b in itertools.product(points, repeat=2))
    unit = mechanism.gaussians[0].unit
    assert largest * unit <= mechanism.sensitivity
    assert largest * unit > 0.9 * mechanism.sensitivity


def test_persons_without_rows_are_within_the_sensitivity():
    mechanism = bin_sums_of(TWO, 4, 1.0, PERSON)
    for v in CELLS:
        moved = exact(TWO, (v, 1.0, "x"), weights=np.full(1, WEIGHT))
        assert np.linalg.norm(moved) * mechanism.gaussians[0].unit <= mechanism.sensitivity


def test_a_bin_too_narrow_to_be_halved_has_no_offsets():
    """0/0 became the smallest integer: one record moved a sum by 2^63."""
    schema = Schema((Binned("v", (0, 5e-324, 1), 0), Attribute("a", ("x", "y"), "y")))
    assert exact(schema, (0.0, "x")).tolist() == [2**OFFSET_BITS, 0, 0, 0]


@pytest.mark.parametrize(("bins", "expected"), [((3,), 2.0), ((3, 2), 8**0.5), ((9,) * 6, 24**0.5)])
def test_vector_of_sensitivities(bins, expected):
    mechanism = NoisyBinSums(bins, 1000, 5.0)
    assert mechanism.sensitivity == pytest.approx(expected, rel=1e-6)
    assert mechanism.noise == pytest.approx(5 * expected, rel=1e-6)
    assert mechanism.n_draws == 2 * sum(bins)


def test_released_means_are_inside_their_bins_and_shrink_to_the_middle_where_noise_is_large():
    released = np.array([500.0, -20.0, 800.0, -450.0, 90.0, 790.0])
    v = with_bin_means(ONE, released, 10.0)["v"]
    low, middle, high = v.values
    assert 0 <= low < 0.15
    assert middle == 4.0
    assert 9.9 < high <= 10
    wide = with_bin_means(ONE, released, 1e6)["v"]
    assert wide.values == pytest.approx(wide.midpoints.tolist(), abs=1e-3)
    assert with_bin_means(ONE, released, 10.0)["a"] == ONE["a"]


def skewed(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    income = np.minimum(rng.exponential(0.35, n) * 10, 39.9)
    return {"v": income, "a": np.where(rng.random(n) < 1 / (1 + np.exp(2 - income / 3)), "y", "x")}


INCOME = Schema((Binned("v", (0, 10, 20, 40), 5.0), Attribute("a", ("x", "y"), "x")))


def engine(schema=INCOME, table=None, **options):
    table = skewed() if table is None else table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rng = SeededGenerator(3) if "ledger" not in options else None
        return QueryEngine(schema, table, Budget(1.0, 1e-9), method="warm", rng=rng, **options)


@pytest.mark.long
def test_means_of_skewed_numbers_are_means_of_the_numbers():
    truth = skewed()["v"].mean()
    with_means, without = engine(), engine(bin_means=0)
    assert with_means.ask(Mean("v")).estimates[0] == pytest.approx(truth, abs=0.15)
    assert abs(without.ask(Mean("v")).estimates[0] - truth) > 1.5
    assert "the value of its bin" in with_means.ask(Mean("v")).note
    assert "the middle of its bin" in without.ask(Mean("v")).note
    assert with_means.ask(Count({"v": ["[0, 10)"]})).coefficients[0].name == "count"
    assert "NoisyBinSums" in str(with_means.statement().to_json())
    drawn, values = (
        with_means.synthetic(200, SeededGenerator(0))["v"],
        np.array(with_means.schema["v"].values),
    )
    assert np.abs(drawn[:, None] - values).min(axis=1).max() <= 0.05  # rounded to a hundredth of a bin


@pytest.mark.long
def test_declared_values_cost_nothing_and_are_used():
    declared = Schema((Binned("v", (0, 10, 20, 40), 5.0, (3.0, 13.0, 24.0)), INCOME["a"]))
    made = engine(declared)
    assert made.budget_split.means == 0
    assert made.schema == declared
    assert declared["v"].scaled.tolist() == pytest.approx([-0.85, -0.35, 0.2])
    assert Regression("a", ("v",)).compile(made.schema, 20_000).X[0, 1] == pytest.approx(-0.85)
    with pytest.raises(ValueError, match="one within each bin"):
        Binned("v", (0, 10, 20), None, (11.0, 12.0))
    assert Schema.from_json(declared.to_json()) == declared


def test_nothing_is_measured_where_noise_would_hide_it():
    assert worth_measuring(INCOME, 20_000, Budget(1.0, 1e-9), 0.1)
    assert not worth_measuring(INCOME, 100, Budget(1.0, 1e-9), 0.1)
    assert not worth_measuring(INCOME, 20_000, Budget(1.0, 1e-9), 0.0)


@pytest.mark.long
def test_a_restarted_engine_has_the_same_means(tmp_path):
    from dpcvx import Ledger

    path = str(tmp_path / "l.db")
    Ledger(path).create("people", epsilon=1.0, delta=1e-9)
    first = engine(ledger=path, account="people")
    again = engine(ledger=path, account="people")
    assert again.schema == first.schema
    assert first.schema["v"].values is not None


def test_bin_means_have_their_share_of_the_budget():
    """Shares are of 1/noise^2: a tenth for the means, the rest for the histogram."""
    split = split_budget("histogram", Universe(ONE), 20_000, 10, Budget(1.0, 1e-6), bin_means=0.1)
    assert 0.9 / split.means**2 == pytest.approx(0.1 / split.start**2)
