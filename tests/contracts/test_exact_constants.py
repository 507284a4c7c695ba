"""Constants against their derivation, and refusals that no other test meets: changes that no run shows."""

import math

import numpy as np
import pytest

from dpcvx.accounting import REPLACE_ONE, WEIGHT, Tight
from dpcvx.data import AdditiveBasis, Dense, Quantiser, integer_bounds
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.units import persons
from dpcvx.domains import L1Ball, L2Ball, VertexHull
from dpcvx.errors import Incompatible, Unreadable
from dpcvx.events import Gaussian
from dpcvx.ledger import Ledger
from dpcvx.ledger.backup import copy_ledger
from dpcvx.ledger.chain import canonical
from dpcvx.ledger.filters import BasicFilter
from dpcvx.losses import Huber, Logistic, Squared
from dpcvx.mechanisms import NoisyMoments, NoisyQuantile, NoisyVertex, PerturbedMinimiser
from dpcvx.mechanisms.mechanism import residual_bound
from dpcvx.mechanisms.minimise import BLOCK_ROWS, SLOPE_ROUNDINGS, RidgeFacts, _accelerated
from dpcvx.noise import SeededGenerator, exponential, exponential_kernels, generator_of
from dpcvx.problem import Bounds, Problem

PERSONS = persons(["a", "b", "b"]).neighbours
U = 2.0**-53
FREE = Problem(Logistic(), None, bounds=Bounds(1.0, 1.0), d=3, l2=0.1)


def test_a_generator_of_numpy_gives_a_seed_of_31_bits():
    for seed in range(5):
        for make, draw in ((np.random.default_rng, "integers"), (np.random.RandomState, "randint")):
            wanted = SeededGenerator(int(getattr(make(seed), draw)(2**31))).words(4)
            np.testing.assert_array_equal(generator_of(make(seed)).words(4), wanted)


@pytest.mark.parametrize("outputs", [2, 3])
def test_objective_perturbation_refuses_several_outputs_of_any_loss(outputs):
    """Its proof needs a curvature of rank one."""
    problem = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=3, outputs=outputs, l2=0.1)
    with pytest.raises(Incompatible, match="one score per record"):
        PerturbedMinimiser(problem, 100, 1.0, 10.0, 100.0)


@pytest.mark.parametrize("neighbours", [REPLACE_ONE, PERSONS], ids=["rows", "persons"])
@pytest.mark.parametrize("order", [1, 2])
def test_sums_of_as_many_records_as_are_let_in_fit_into_62_bits(neighbours, order):
    """Each record adds at most its weight times the largest cell to the given power; half is for noise."""
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=3)
    moments = NoisyMoments(problem, 100, order, 1.0, neighbours)
    k_inf, _ = integer_bounds(problem.bounds, 3)
    weight = neighbours.weight if order == 1 else 1
    assert moments.capacity * weight * k_inf**order <= 2**62
    assert moments.capacity * weight * k_inf**order > 2**58  # and not much less


def test_a_quantile_pays_for_one_rounding_of_counts_and_two_of_weighted_ranks():
    n, eta = 10**6, 0.5
    rows, weighted = (NoisyQuantile(n, n // 2, eta, who) for who in (REPLACE_ONE, PERSONS))
    assert PERSONS.weight == WEIGHT
    assert rows._temperature == eta - exponential.log_weight_error(eta * n / 2)
    assert weighted._temperature == eta - exponential.log_weight_error(eta * n)
    assert weighted._temperature < rows._temperature < eta


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)])
def test_the_allowance_for_rounding_is_that_of_its_derivation(loss):
    """PRIVACY_MATH §4: margins of d products, residuals, slopes, blocks of rows and the sum of blocks."""
    d, n, ridge = 3, 100, 5.0
    facts = RidgeFacts(Problem(loss, None, bounds=Bounds(1.0, 1.0), d=d, l2=0.05), n, n, ridge)
    margin = (d + 8) * facts.row * facts.reach
    residual = 8 * (1 + max(map(abs, loss.y_range)))
    slope = (BLOCK_ROWS + 64 + SLOPE_ROUNDINGS + 1) * facts.slope + facts.bend * (margin + residual)
    terms = 8 * (facts.pull + ridge * facts.reach)
    assert facts.rounding / U == pytest.approx(n * facts.row * slope + terms, rel=1e-12)
    many = RidgeFacts(facts.problem, 10**7, 10**7, ridge)
    assert many.rounding >= 10**14 * U * many.slope * many.row


@pytest.mark.parametrize("tolerance", [1e-1, 1e-4, 1e-8])
@pytest.mark.parametrize("ridge", [1.0, 100.0])
def test_the_public_number_of_steps_is_enough_by_theory(tolerance, ridge):
    """4 M times the distance sqrt(18 kappa) R (1 - kappa^-1/2)^(k/2) is at most half of the tolerance."""
    facts = RidgeFacts(FREE, 1000, 1000, ridge)
    M, R = facts.smoothness, facts.radius
    kappa = M / ridge
    k = facts.steps(tolerance) - 1  # the first is a step without momentum
    distance = math.sqrt(18 * kappa) * R * (1 - 1 / math.sqrt(kappa)) ** (k / 2)
    assert 4 * M * distance <= tolerance / 2


def test_there_are_at_least_two_steps():
    assert RidgeFacts(FREE, 1000, 1000, 100.0).steps(1e12) == 2


def test_momentum_reaches_the_minimum_of_a_badly_scaled_quadratic():
    """Gradient steps alone need as many steps as the condition number, 10^4."""
    curvature, target = np.array([1.0, 1e-4]), np.array([1.0, -2.0])
    root = math.sqrt(1e4)
    found = _accelerated(
        np.zeros(2),
        lambda theta: theta - curvature * (theta - target),
        lambda theta: theta,
        momentum=(root - 1) / (root + 1),
        steps=2000,
        done=lambda theta, previous: False,
    )
    np.testing.assert_allclose(found, target, atol=1e-6)


@pytest.mark.parametrize(
    ("domain", "terms"), [(L1Ball(1.5), 2), (VertexHull(np.vstack([np.eye(3), -np.eye(3)])), 5)]
)
def test_a_selection_pays_for_the_rounding_of_every_product_in_a_score(domain, terms):
    """Two roundings where a score is one sum of the records, d + 2 where it is a product of d numbers."""
    n, eta = 10**6, 0.5
    question = NoisyVertex(Problem(Logistic(), domain, bounds=Bounds(1.0), d=3), n, eta, 20)
    rounding = exponential.log_weight_error(terms * eta * n / 2)
    assert question._temperature(residual_bound(question.problem, None, None)) == eta - rounding


def test_lazy_scores_are_exact_after_a_sixteenth_of_the_width_of_the_loss():
    """A chord over a drift of L / (16 beta) is off by at most L / 64."""
    problem = Problem(Logistic(), L1Ball(1.5), bounds=Bounds(1.0), d=3)
    terms = NoisyVertex(problem, 1000, 0.5, 20)._terms_without_power(1000)
    slope, beta = problem.slope(math.inf), problem.loss.smoothness(problem.z_max)
    assert terms.drift == slope / (16 * beta)
    assert beta * terms.drift / 4 <= slope / 64


def test_a_basis_without_knots_has_no_ramps():
    basis = AdditiveBasis(3, (0, 1), (), 0.7, ((0, 1),), 0.5, 3.0)
    assert basis.ramps == 0
    assert basis.width == 4


@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_unit_rows_are_centred_scaled_and_of_norm_one(intercept):
    bounds = Bounds(1.0, 1.0)
    center, scale = np.array([100.0, -300.0]), np.array([200.0, 400.0])
    rows = Dense(np.random.default_rng(0).integers(-500, 500, (50, 2)).astype(np.int16))
    units, divisors, _ = Quantiser(bounds, center=center, scale=scale, intercept=intercept).unit_rows(rows)
    cells = (rows.values - center) / scale
    if intercept:
        cells = np.column_stack([cells, np.full(50, intercept)])
    np.testing.assert_allclose(units.values * 2.0**-FEATURE_BITS * divisors[:, None], cells, atol=1e-3)
    assert (np.linalg.norm(units.values * 2.0**-FEATURE_BITS, axis=1) <= 1).all()


def test_a_backup_of_a_damaged_ledger_fails_and_leaves_nothing(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).create("people", epsilon=1.0, delta=1e-6)
    content = bytearray(path.read_bytes())
    content[100:] = b"x" * (len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(Unreadable, match="could not be copied"):
        copy_ledger(f"sqlite:///{path}", tmp_path / "copy.db")
    assert [each.name for each in tmp_path.glob("copy*")] == []


def test_no_entry_of_a_ledger_holds_what_json_cannot():
    with pytest.raises(ValueError, match="JSON"):
        canonical({"spent": math.nan})


def test_a_charge_takes_the_part_of_delta_that_it_takes_of_epsilon():
    """Any part is private; this one lets most charges in."""
    charge, epsilon, delta = Gaussian(10.0), 4.0, 1e-6
    share = Tight().epsilon(charge, delta) / epsilon
    assert 0 < share < 0.2
    assert BasicFilter(epsilon, delta, 1.0)._part(charge) == share
    assert BasicFilter(epsilon, delta, 1.0)._part(Gaussian(0.01)) == 1.0


def test_items_of_a_level_include_those_that_are_not_listed():
    start = np.array([0, 2, 3], dtype=np.int64)
    assert [exponential_kernels.items_on(start, (1, 5), at) for at in (0, 1)] == [2, 6]
    assert exponential_kernels.total_weight(start, (1, 5)) == 0.5 * 2 + 6


def test_a_place_at_the_edge_of_two_levels_is_left_to_exact_numbers():
    """Two items of half the weight of a third: the upper level has exactly half of the words."""
    start, half = np.array([0, 2, 3], dtype=np.int64), 2**63
    total = exponential_kernels.total_weight(start, (-1, 0))
    found = [
        exponential_kernels.level_of(start, (-1, 0), total, np.uint64(half + away))
        for away in (-(2**20), 0, 2**20)
    ]
    assert found == [1, -1, 0]
