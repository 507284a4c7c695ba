"""[TTZ14] section 5.3: records on which every private LASSO has an excess risk of order n^(-2/3)."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.data.memory import source
from dpcvx.domains import L1Ball
from dpcvx.losses import Squared
from dpcvx.noise import SeededGenerator
from dpcvx.papers.hard_instances import PaddedTardos
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyCorrectiveFrankWolfe, NoisyFrankWolfe

SMALL = PaddedTardos(600, 100, users=5, share=0.3)


def test_users_agree_in_padding_columns_and_nowhere_else_by_design():
    """[TTZ14] Theorem 5.9: consensus columns whoever is left out, of either sign, and a code beside them."""
    instance = PaddedTardos(200_000, 30_000, users=9, share=0.2)
    users, biases = instance.draw_users(np.random.default_rng(0))
    padding = np.abs(biases) == 1
    assert (users[:, padding] == biases[padding]).all()
    assert abs(padding.mean() - 0.8) < 0.01
    assert abs(biases[padding].mean()) < 0.03
    code = users[:, ~padding]
    split = np.abs(code.sum(axis=0)) < 9
    # All nine agree with probability 2 E((1 + m)/2)^9, moments of the arcsine law on [0, 1].
    assert split.mean() == pytest.approx(1 - 2 * math.comb(18, 9) / 4**9, abs=0.02)


def test_biases_of_the_code_have_the_arcsine_law_and_signs_follow_them():
    instance = PaddedTardos(200_000, 32_768, users=40, share=0.1)
    signs, biases = instance.draw_users(np.random.default_rng(1))
    code = np.abs(biases) < 1
    assert kstest(biases[code], lambda m: 0.5 + np.arcsin(m) / np.pi).pvalue > 1e-3
    scores = (signs[:, code] - biases[code]) / np.sqrt(1 - biases[code] ** 2)
    assert abs(scores.mean()) < 5 / math.sqrt(scores.size)
    assert (scores**2).mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("n", "p"), [(600, 100), (1030, 128), (131, 128), (9, 1)])
def test_anchor_rows_have_orthogonal_columns_of_signs_and_the_rest_is_zero(n, p):
    instance = PaddedTardos(n, p, users=3, share=0.2)
    X, y, _ = instance.draw(np.random.default_rng(2))
    k = instance.anchors
    assert X.shape == (n, p)
    assert y.shape == (n,)
    assert set(np.unique(X[: 3 + k])) == {-1, 1}
    anchors = X[3 : 3 + k].astype(int)
    np.testing.assert_array_equal(anchors.T @ anchors, k * np.eye(p, dtype=int))
    assert not X[3 + k :].any()
    assert n - 3 - k < 2 * p  # no room for one more block
    assert y[:3].tolist() == [1.0] * 3
    assert not y[3:].any()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_follows_consensus_betrays_users_of_the_code(seed):
    """Step (i): E sum_j f g_j = (f(all 1) - f(all -1))/pi under the arcsine law, for every f."""
    w, values = 3, np.random.default_rng(seed).uniform(-1, 1, 8)
    columns = list(itertools.product([-1, 1], repeat=w))

    def integrand(angle):
        m = math.sin(angle)  # the arcsine law is that of a uniform angle
        total = 0.0
        for column, f in zip(columns, values, strict=True):
            chance = math.prod((1 + x * m) / 2 for x in column)
            total += chance * f * sum((x - m) / math.cos(angle) for x in column)
        return total / math.pi

    integral = quad(integrand, -math.pi / 2, math.pi / 2)[0]
    assert integral == pytest.approx((values[-1] - values[0]) / math.pi, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_private_answers_agree_with_padding_no_more_than_the_bound(epsilon):
    """Step (ii), against noised sums of signs; without noise they agree with all of it."""
    instance, delta = PaddedTardos(70_000, 2048, users=4, share=0.2), 1e-6
    bound = instance.agreement(epsilon, delta)
    rng = np.random.default_rng(3)
    noise = 2 * math.sqrt(2048) / gaussian_mu(epsilon, delta)  # replacing a user moves the sums by 2 sqrt(p)
    private, plain = [], []
    for _ in range(20):
        signs, biases = instance.draw_users(rng)
        sums, marks = signs.sum(axis=0), np.where(np.abs(biases) == 1, biases, 0.0)
        private.append(np.sign(sums + noise * rng.normal(size=2048)) @ marks / 2048)
        plain.append(np.sign(sums) @ marks / 2048)
    assert 0.05 * bound < np.mean(private) < bound
    assert np.mean(plain) == pytest.approx(1 - instance.share, abs=0.02)
    assert bound < 0.7 * np.mean(plain)


def risk(records, theta):
    return float(((records.X @ theta - records.y) ** 2).sum()) / (2 * len(records.y))


def best(instance, records):
    """The minimiser: of the normal equations, when it is in the l1 ball."""
    users = records.X[: instance.users].astype(float)
    theta = np.linalg.solve(
        users.T @ users + instance.anchors * np.eye(instance.p), users.T @ np.ones(instance.users)
    )
    assert np.abs(theta).sum() <= 1
    return theta


@pytest.mark.parametrize("b", [0.1, 0.5, 2.0])
def test_low_risk_needs_agreement_with_padding(b):
    """Step (iii), for points that agree, that do not, that are sparse or spread."""
    records = SMALL.draw(np.random.default_rng(4))
    rng, p, w, k = np.random.default_rng(5), 100, SMALL.users, SMALL.anchors
    padding = np.abs(records.biases) == 1
    marks = np.where(padding, records.biases, 0.0)
    points = [best(SMALL, records), *(size * marks / padding.sum() for size in (0.2, 0.5, 1.0))]
    for size in (0.1, 0.6, 1.0):
        spread = (
            rng.normal(size=(40, p)) * rng.choice([0.0, 1.0], (40, p)) + rng.uniform(0, 1, (40, 1)) * marks
        )
        points.extend(size * v / np.abs(v).sum() for v in spread)
    close = []
    for theta in points:
        a = np.clip(p * theta / b, -1, 1) @ marks / p
        q = p * theta**2
        reach = 1 - b * a - q[padding].sum() / (4 * b) - math.sqrt((~padding).mean() * q[~padding].sum())
        least = w * max(reach, 0) ** 2 + k * (theta**2).sum()
        value = 2 * SMALL.n * risk(records, theta)
        assert least <= value * (1 + 1e-12)
        close.append(least / value)
    assert max(close) > 0.8  # not vacuous


@pytest.mark.parametrize(("kappa", "share", "a"), [(0.5, 0.1, 0.3), (0.2, 0.15, 0.05), (1.5, 0.3, 0.6)])
def test_the_least_value_of_the_lemma_is_as_stated(kappa, share, a):
    """Minimum over the squared lengths of both parts, by a grid, against w A^2 kappa/(kappa + s)."""
    A = 1 / (1 + a / (2 * (kappa + share)))
    b = A / (2 * (kappa + share))
    padding, code = np.meshgrid(np.linspace(0, 4, 800), np.linspace(0, 4, 800) ** 2)
    reach = np.maximum(1 - b * a - padding / (4 * b) - np.sqrt(share * code), 0)
    least = (reach**2 + kappa * (padding + code)).min()
    assert least == pytest.approx(A**2 * kappa / (kappa + share), rel=1e-3)


def test_the_risk_of_the_point_that_knows_the_padding_is_as_stated():
    """Step (iv), on average over draws."""
    s, o, w, p = SMALL.share, 1 - SMALL.share, SMALL.users, SMALL.p
    kappa = SMALL.anchors / (w * p)
    rng, values = np.random.default_rng(6), []
    for _ in range(100):
        records = SMALL.draw(rng)
        theta = np.where(np.abs(records.biases) == 1, records.biases, 0.0) / (p * (kappa + o))
        assert np.abs(theta).sum() <= 1
        values.append(2 * SMALL.n * risk(records, theta))
    assert risk(records, best(SMALL, records)) <= risk(records, theta)
    stated = w * (kappa / (kappa + o) + s * o / (p * (kappa + o) ** 2))
    assert np.mean(values) == pytest.approx(stated, abs=4 * np.std(values) / math.sqrt(100))


def hardest(n, epsilon=0.1):
    """The hardest of all p that are powers of 2."""
    sizes = [2**i for i in range(3, 19) if 2 * 2**i <= n]
    candidates = [PaddedTardos.hardest(n, p, epsilon=epsilon, delta=1 / n**2) for p in sizes]
    return max(candidates, key=lambda instance: instance.lower_bound(epsilon, 1 / n**2))


@pytest.mark.long
def test_the_lower_bound_falls_like_n_to_minus_two_thirds():
    """[TTZ14] Theorem 5.8: above its curve 1/(n log n)^(2/3) times a quarter, at every n."""
    sizes = [10**3, 10**4, 10**5, 10**6]
    bounds = [hardest(n).lower_bound(0.1, 1 / n**2) for n in sizes]
    assert -0.7 < np.polyfit(np.log(sizes), np.log(bounds), 1)[0] < -0.6
    for n, bound in zip(sizes, bounds, strict=True):
        assert bound > 0.25 / (n * math.log(n)) ** (2 / 3)
    assert hardest(10**4, 1.0).lower_bound(1.0, 1e-8) > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "solver", [NoisyFrankWolfe(), NoisyCorrectiveFrankWolfe()], ids=lambda s: type(s).__name__
)
def test_the_private_lasso_is_above_the_lower_bound_and_the_plain_one_below(solver):
    epsilon, n = 0.1, 3000
    instance = hardest(n, epsilon)
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=instance.p)
    plan = solver.plan(problem, n, Budget(epsilon, 1 / n**2), Tight())
    excesses = []
    for seed in range(3):
        records = instance.draw(np.random.default_rng(seed))
        optimum = risk(records, best(instance, records))
        data = source(records.X, records.y, bounds=problem.bounds)
        theta = execute(plan, data, rng=SeededGenerator(seed)).theta
        excesses.append(risk(records, theta) - optimum)
        # Knowing the padding, without privacy, is better than any private algorithm can be.
        known = np.where(np.abs(records.biases) == 1, records.biases, 0.0)
        known /= instance.p * (instance.anchors / (instance.users * instance.p) + 1 - instance.share)
        assert risk(records, known) - optimum < 0.3 * instance.lower_bound(epsilon, 1 / n**2)
    assert np.mean(excesses) > instance.lower_bound(epsilon, 1 / n**2)


def test_more_privacy_is_a_higher_bound_and_little_privacy_none():
    bounds = [SMALL.lower_bound(epsilon, 1e-9) for epsilon in (0.01, 0.03, 0.1, 0.3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 0 > SMALL.lower_bound(5.0, 1e-9)
    assert SMALL.lower_bound(0.1, 1e-2) < SMALL.lower_bound(0.1, 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((600, 0, 5, 0.3), "p and users must be at least 1"),
        ((600, 100, 0, 0.3), "p and users must be at least 1"),
        ((130, 100, 5, 0.3), "use n at least 133"),
        ((600, 100, 5, 0.0), "share must be positive"),
        ((600, 100, 5, 1.1), "share must be positive and at most 1,"),
        ((4000, 100, 3200, 0.5), "at most 0.0024"),
    ],
)
def test_sizes_that_make_no_instance_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PaddedTardos(*arguments)
    with pytest.raises(ValueError, match="need n at least 129"):
        PaddedTardos.hardest(128, 100, epsilon=1.0, delta=1e-6)
