"""What the papers' own constants are worth, in numbers; PRIVACY_MATH §13.9 and the passages it collects."""

import dataclasses
import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from adversary import stored
from dpcvx import papers
from dpcvx.accounting import Budget, Tight, gaussian_delta, gaussian_epsilon, gaussian_mu
from dpcvx.domains import L1Ball, L2Ball
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian, Repeat
from dpcvx.losses import Huber, Logistic
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.problem import Bounds, Problem

DELTA = 1e-6
ROOT = Path(__file__).parents[2]
EVERY = [item for epsilon in (0.1, 1.0, 8.0) for item in papers.every(Budget(epsilon, DELTA))]
PROBLEM = Problem(Huber(1.0), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=3)


def claim(epsilon):
    return Budget(epsilon, DELTA)


# -- the five of §13.9


@pytest.mark.parametrize(
    ("epsilon", "least_delta", "least_epsilon"),
    [(1.0, 8.263e-4, 1.67), (8.0, 8.5e-2, 18.5), (0.1, 5.349e-5, 0.141)],
)
def test_objective_perturbation_of_the_paper_is_not_private(epsilon, least_delta, least_epsilon):
    """[TTZ14] Algorithm 2: at claimed (1, 1e-6) and a linear loss delta is 8.263e-4."""
    item = papers.ttz14_algorithm_2(claim(epsilon))
    assert item.least[1] == pytest.approx(least_delta, rel=6e-3)
    assert item.least[0] == pytest.approx(least_epsilon, rel=5e-3)
    assert item.verdict == "false"
    assert item.least[0] < item.epsilon < 1.5 * item.least[0]  # and what is proved is not far from it
    # The linear loss itself: theta is an affine image of sum L z_i + b, so two laws are 2 L apart.
    sigma = math.sqrt(2 * math.log(1 / DELTA)) / epsilon
    cut = epsilon * sigma**2 / 2  # where the likelihood ratio of N(2, sigma^2) to N(0, sigma^2) is e^epsilon
    one, two = (stats.norm.sf(cut + 1, loc, sigma) for loc in (2.0, 0.0))
    assert one - math.exp(epsilon) * two == pytest.approx(item.least[1], rel=1e-9)


@pytest.mark.parametrize(
    ("T", "epsilon", "argued", "proved", "least"),
    [
        (10, 1.0, 2.15, 1.083, 0.805),
        (10, 8.0, 31.6, 8.66, 7.93),
        (100, 1.0, 2.15, 1.631, 0.831),
        (100, 8.0, 26.8, 17.66, 8.4489),
        (1000, 1.0, 2.15, 1.668, 0.817),
        (1000, 8.0, 25.7, 18.41, 8.241),
    ],
)
def test_laplace_selections_cost_more_than_claimed(T, epsilon, argued, proved, least):
    """[TTZ14] Algorithm 4 and [TTZ15] Algorithm 2; the last column of the table is a weaker instance's."""
    for make in (papers.ttz14_algorithm_4, papers.ttz15_algorithm_2):
        item = make(claim(epsilon), T)
        assert item.epsilon == pytest.approx(proved, rel=1e-3)
        assert item.argued == pytest.approx(argued, rel=3e-3)
        assert least <= item.least[0] <= 1.1 * least
        assert item.verdict == ("false" if epsilon == 8.0 else "not proved")


def test_laplace_selections_in_simulation():
    """The chances behind the lower bound, from drawn noise: one vertex against three, at T = 100."""
    from dpcvx.papers.instances import _chance_of_selection

    move = math.sqrt(2) * 8.0 / math.sqrt(100 * math.log(1 / DELTA)) / 2
    noise = np.random.default_rng(0).laplace(size=(200_000, 4))
    for lead in (0.25 + move, 0.25 - move):
        chosen = noise[:, 0] < lead + noise[:, 1:].min(axis=1)
        assert chosen.mean() == pytest.approx(_chance_of_selection(lead, 3), abs=0.004)


@pytest.mark.parametrize("B", [1.0, 10.0, 1000.0])
def test_output_perturbation_of_the_paper_meets_a_minimiser_that_jumps(B):
    """[KD19] Section 4.1: the l1-regularised median of 11 records, weight 0.5, goes from 0 to B."""
    n, weight = 11, 0.5

    def minimiser(k):
        corners = np.array([0.0, B])  # the objective is piecewise linear with corners at the records
        values = [k * abs(s - B) + (n - k) * abs(s) + weight * abs(s) for s in corners]
        return corners[np.argmin(values)]

    assert (minimiser(5), minimiser(6)) == (0.0, B)
    assert papers.kd19_output_perturbation(claim(1.0)).least == (math.inf, 1.0)


def test_accelerated_descent_of_the_paper_returns_the_same_point_in_every_run():
    """[WYX17] Algorithm 3 with T = 1: y_1 has no noise, and tells neighbours apart with certainty."""
    C, L = L2Ball(1.0), 1.0

    def paper(records, seed):
        rng = np.random.default_rng(seed)
        y_point = z = x = np.zeros(2)
        for k in range(1):
            alpha, r = (k + 2) / (4 * L), 2 / (k + 2)
            x = r * z + (1 - r) * y_point
            gradient = x - records.mean(axis=0)  # of squared distances
            y_point = C.project(x - gradient / L)
            z = C.project(z - alpha * (gradient + 0.7 * rng.normal(size=2)))
        return y_point, z

    records = np.random.default_rng(1).uniform(-0.5, 0.5, (20, 2))
    other = np.vstack([records[1:], -records[:1]])
    (one, noisy), (again, noisy_too) = paper(records, 1), paper(records, 2)
    assert np.array_equal(one, again)
    assert not np.array_equal(noisy, noisy_too)
    assert not np.array_equal(one, paper(other, 1)[0])
    assert papers.wyx17_algorithm_3(claim(1.0)).least == (math.inf, 1.0)


def first_above(scores, e1, e2, factor):
    """Laws of the place of the first noisy score above a noisy threshold 0, the last entry for none.

    Threshold noise Lap(1/e1), query noise Lap(factor/e2), by Gauss-Legendre between the kinks: exact.
    """
    nodes, weights = np.polynomial.legendre.leggauss(80)
    scale, law = factor / e2, np.zeros(len(scores) + 1)
    edges = np.unique(np.r_[-60 / e1, -20 / e1, 0.0, scores, 20 / e1, 60 / e1])
    for a, b in itertools.pairwise(edges):
        rho = (a + b) / 2 + (b - a) / 2 * nodes
        left = (b - a) / 2 * weights * stats.laplace.pdf(rho, scale=1 / e1)
        for i, score in enumerate(scores):
            below = stats.laplace.cdf(rho - score, scale=scale)
            law[i] += (left * (1 - below)).sum()
            left = left * below
        law[-1] += left.sum()
    return law


@pytest.mark.long
@pytest.mark.parametrize(("total", "halved"), [(0.5, 0.737), (1.0, 1.506), (2.0, 3.082)])
def test_sparse_vector_with_half_of_its_query_noise_is_not_private(total, halved):
    """Lap(Delta/e2) serves monotone queries only: four queries at the threshold, every pattern of shifts."""
    e1 = total / (1 + 2 ** (2 / 3))
    worst = {}
    for factor in (1, 2):
        base = first_above(np.zeros(4), e1, total - e1, factor)
        assert base.sum() == pytest.approx(1.0, abs=1e-9)
        worst[factor] = max(
            np.abs(np.log(first_above(np.array(shift), e1, total - e1, factor) / base)).max()
            for shift in itertools.product((-1.0, 0.0, 1.0), repeat=4)
        )
    assert worst[1] == pytest.approx(halved, abs=1e-3)
    assert worst[1] > total >= worst[2]


# -- the other numbers


@pytest.mark.parametrize(
    ("T", "epsilon", "sigma", "true"),
    [
        (10, 0.1, 2883.3, 0.0065),
        (10, 1.0, 288.33, 0.078),
        (10, 8.0, 36.04, 0.725),
        (100, 0.1, 10420, 0.0056),
        (100, 1.0, 1042.0, 0.068),
        (100, 8.0, 130.25, 0.628),
        (1000, 0.1, 37071, 0.0049),
        (1000, 1.0, 3707.1, 0.060),
        (1000, 8.0, 463.39, 0.554),
    ],
)
def test_mirror_descent_of_the_paper_is_private_many_times_over(T, epsilon, sigma, true):
    """The table of PRIVACY_MATH §1; sigma in units of L/n."""
    item = papers.ttz14_algorithm_1(claim(epsilon), T)
    assert 2 * item.event.event.noise_multiplier == pytest.approx(sigma, rel=1e-4)
    assert item.epsilon == pytest.approx(true, rel=0.02, abs=5e-4)
    assert item.epsilon == pytest.approx(item.least[0])
    assert item.verdict == "holds"


def test_general_frank_wolfe_of_the_paper_breaks_where_the_formula_says():
    """L to the first power: false once L > 8 log^2(n/delta) mu^2/eps^2, 238 at n = 1e4, (1, 1e-6)."""
    n, T = 10_000, 10_000  # many steps, so that T - 1 releases are as good as T
    limit = 8 * math.log(n / DELTA) ** 2 * gaussian_mu(1.0, DELTA) ** 2
    assert limit == pytest.approx(238, abs=1)
    below, above = (
        papers.ttz14_algorithm_5(claim(1.0), T, n=n, lipschitz=factor * limit) for factor in (0.99, 1.01)
    )
    assert (below.verdict, above.verdict) == ("holds", "false")
    assert above.least[1] > DELTA


@pytest.mark.parametrize(("epsilon", "constant"), [(0.1, 3.816), (1.0, 5.167), (8.0, 7.900)])
def test_the_constant_that_descent_leaves_open(epsilon, constant):
    """[WYX17] Theorem 6.1: "some constant c" is another one for every epsilon, and the same for every T."""
    enough = papers.sufficient_constant(claim(epsilon))
    assert enough == pytest.approx(constant, rel=2e-4)
    for T in (1, 100):
        assert papers.wyx17_algorithm_4(claim(epsilon), T, constant=enough * (1 + 1e-6)).verdict == "holds"
        assert papers.wyx17_algorithm_4(claim(epsilon), T, constant=enough * (1 - 1e-6)).verdict == "false"


def test_one_sampled_record_a_step_is_seen_in_the_result():
    """[WYX17] Algorithm 1, one epoch: the bound against draws, and the remark that would repair it."""
    n, m, epsilon = 1000, 100, 1.0
    item = papers.wyx17_algorithm_1(claim(epsilon), m, n=n)
    assert (item.verdict, item.event) == ("false", None)
    sigma = math.sqrt(m * math.log(1 / DELTA)) / (n * epsilon)
    rng, runs = np.random.default_rng(2), 50_000

    def result(odd):
        """Mean of an epoch in units of a step of length L; the odd record turns within 24 steps."""
        theta = total = np.zeros(runs)
        for _ in range(m):
            turned = np.clip(theta / 12, -2.0, 0.0) * odd  # its gradient less that at the anchor
            drawn = rng.random(runs) < 1 / n
            theta = theta - (1 + drawn * turned + sigma * rng.normal(size=runs))
            total = total + theta
        return total / m

    with_odd, without = (result(odd) + (m + 1) / 2 for odd in (1, 0))
    found = [(with_odd > cut).mean() - math.e * (without > cut).mean() for cut in np.linspace(0.2, 1.5, 27)]
    # The bound leaves out draws before the turn, which move the mean most, and those more than once.
    assert 0.95 * item.least[1] < max(found) < 2.5 * item.least[1]
    assert item.least[1] > 1000 * DELTA
    # Remark 4.1: more noise, by a factor log(1/delta), and no condition on epsilon.
    inflated = papers.wyx17_algorithm_1(claim(epsilon), m, n=10 * n, constant=math.log(1 / DELTA) ** 2)
    assert inflated.verdict == "false"
    assert papers.wyx17_algorithm_2(claim(epsilon), m, n=n).verdict == "false"


@pytest.mark.parametrize(("epsilon", "ratio"), [(1.0, 1.0164), (4.0, 1.066)])
def test_composition_in_figure_3(epsilon, ratio):
    """[U15]: its own theorem gives a little more than claimed; optimal composition gives less."""
    for T in (10, 100, 1000):
        item = papers.u15_figure_3(claim(epsilon), T)
        assert item.argued / epsilon == pytest.approx(ratio, abs=5e-4)
        assert item.verdict == "holds"
        assert 0.5 * epsilon < item.epsilon < epsilon
        # Theorem 3.10 with its own numbers.
        epsilon0 = epsilon / math.sqrt(8 * T * math.log(4 / DELTA))
        answers = math.sqrt(2 * T * math.log(4 / DELTA)) * epsilon0 + 2 * T * epsilon0**2
        assert epsilon / 2 + answers == pytest.approx(item.argued)


def test_the_sensitivity_of_an_error_is_two_and_not_three():
    """[U15] Theorem 3.9 has 3 S/n; losses S x theta on [0, 1] attain 2 S/n and random ones stay below."""
    n, S, rng = 5, 1.0, np.random.default_rng(3)

    def error(x):
        """Of theta^ = 1; the best theta is 0 or 1."""
        return S * max(0.0, x.mean())

    assert n * abs(error(np.ones(n)) - error(np.r_[-1.0, np.ones(n - 1)])) == pytest.approx(2 * S)
    largest = 0.0
    for _ in range(300):  # convex piecewise-linear losses on a grid, ranges at most S, one record replaced
        grid = np.linspace(0, 1, 21)
        kinks = rng.uniform(0, 1, (n + 1, 1))
        losses = np.abs(grid - kinks) / np.maximum(kinks, 1 - kinks) * S
        place = rng.integers(21)
        one, two = losses[:n].mean(axis=0), losses[1:].mean(axis=0)
        largest = max(largest, abs((one[place] - one.min()) - (two[place] - two.min())))
    assert 0 < n * largest <= 2 * S


def test_a_random_term_in_the_objective_is_not_noise_on_the_dual():
    """[KD19] Proposition 2 is false: in one dimension, a quadratic loss and the norm |theta|.

    The dual of theta^2/2 - a theta + |theta| + b theta is the point of [-1, 1] nearest to a - b; the
    proposition adds b to the point nearest to a.
    """
    a, b = 3.0, 0.5
    right, claimed = np.clip(a - b, -1, 1), np.clip(a, -1, 1) - b
    assert (right, claimed) == (1.0, 0.5)
    theta = np.linspace(-1, 4, 50_001)
    best = theta[np.argmin(theta**2 / 2 - a * theta + abs(theta) + b * theta)]
    assert best == pytest.approx(a - b - right, abs=1e-4)
    assert best != pytest.approx(a - b - claimed, abs=0.1)


# -- the objects themselves


@pytest.mark.parametrize(
    "item", EVERY, ids=lambda item: f"{item.paper}-{item.algorithm}-{item.claimed.epsilon:g}"
)
def test_bounds_from_both_sides_agree(item):
    assert 0 <= item.least[0] <= item.epsilon * (1 + 1e-9)
    assert 0 <= item.least[1] <= item.delta * (1 + 1e-9)
    # A claim is refuted in epsilon exactly where it is refuted in delta, and so for proofs.
    assert (item.least[0] > item.claimed.epsilon) == (item.least[1] > item.claimed.delta)
    assert (item.epsilon <= item.claimed.epsilon) == (item.delta <= item.claimed.delta)
    assert item.verdict in str(item)
    assert item.why in str(item)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (papers.ttz14_algorithm_1(claim(1.0), 20), Problem(Logistic(), L1Ball(1.0), bounds=Bounds(1.0), d=3)),
        (papers.ttz14_algorithm_5(claim(1.0), 20, n=500, lipschitz=1.0), PROBLEM),
        (papers.wyx17_algorithm_4(claim(1.0), 20), PROBLEM),
        (papers.ttz14_algorithm_2(claim(1.0)), PROBLEM),
    ],
    ids=lambda thing: getattr(thing, "algorithm", ""),
)
def test_a_run_states_what_holds_and_not_what_is_claimed(item, problem):
    plan = item.plan(problem, 500)
    assert plan.budget.epsilon == pytest.approx(item.epsilon, rel=0.02)
    assert plan.budget.epsilon >= item.epsilon
    assert plan.budget.delta == DELTA
    assert abs(plan.budget.epsilon - 1.0) > 0.5
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-0.5, 0.5, (500, 3)), rng.choice([-1.0, 1.0], 500)
    data = stored(X, y, problem.bounds, "dense")
    release = execute(plan, data, rng=SeededGenerator(0))
    assert problem.domain.contains(release.theta)
    statement = PrivacyStatement.of(plan.price, model=item.algorithm, private=True, bounds={}, public={})
    stated = json.loads(statement.to_json())
    assert stated["epsilon"] == plan.budget.epsilon
    assert f"e^{plan.budget.epsilon:g}" in statement.meaning
    assert item.paper in plan.solver.source
    assert plan.solver.claimed == item.claimed
    assert "AsPrinted" in str(plan)
    # The noise is the printed one, whatever the budget says.
    (stage,) = plan.stages
    if isinstance(item.event, Repeat):
        assert item.event == Repeat(Gaussian(stage.mechanism.noise_multiplier), stage.n_calls)
    else:
        sigma = math.sqrt(2 * math.log(1 / DELTA))
        assert stage.mechanism.noise_multiplier == pytest.approx(sigma)
        assert stage.mechanism.event.events[0].jacobian == pytest.approx(math.log(1.5), rel=1e-3)
    assert plan.solver.predict(problem, 500, plan.budget) == plan.solver.solver.predict(
        problem, 500, plan.budget
    )


def test_what_has_no_guarantee_or_no_sampler_is_not_run():
    for item in EVERY:
        if item.event is None:
            with pytest.raises(Incompatible, match="has no guarantee"):
                item.plan(PROBLEM, 100)
        elif item.solver is None:
            with pytest.raises(Incompatible, match="no sampler"):
                item.plan(PROBLEM, 100)
    item = papers.ttz14_algorithm_5(claim(1.0), 20, n=500, lipschitz=1.0)
    for problem, n in ((PROBLEM, 501), (dataclasses.replace(PROBLEM, bounds=Bounds(1.0, 1.5)), 500)):
        with pytest.raises(Incompatible, match="compute it again"):
            item.plan(problem, n)
    plan = papers.ttz14_algorithm_1(claim(1.0), 20).plan(PROBLEM, 500)
    with pytest.raises(Incompatible, match="not what a budget needs"):
        plan.solver.plan(PROBLEM, 500, claim(1.0), Tight())


def test_claims_are_about_replaced_records_and_positive_delta():
    for claimed in (Budget(1.0, DELTA, "add_remove"), Budget(1.0, 0.0)):
        with pytest.raises(ValueError, match="replaced record"):
            papers.kd19_output_perturbation(claimed)


def test_nothing_in_the_library_uses_the_papers_constants():
    public = "from dpcvx.papers.hard_instances import PaddedTardos"  # records, no constants of a paper
    for path in (ROOT / "src" / "dpcvx").rglob("*.py"):
        if path.parent.name != "papers":
            text = path.read_text().replace(public, "")
            assert not re.search(r"import papers|dpcvx\.papers", text), path.name


def test_the_page_has_the_tables_as_computed():
    page = (ROOT / "docs" / "papers.md").read_text()
    for key in ("TTZ14", "TTZ15", "WYX17", "KD19", "U15"):
        rows = [item for epsilon in (1.0, 8.0) for item in papers.every(claim(epsilon)) if item.paper == key]
        assert papers.table(rows) in page


def test_gaussian_bounds_are_those_of_the_accountant():
    item = papers.wyx17_algorithm_4(claim(1.0), 50)
    mu = math.sqrt(50) / item.event.event.noise_multiplier
    assert item.least == (gaussian_epsilon(mu, DELTA), gaussian_delta(1.0, mu))


NO_CLAIMS = {
    "AsPrinted",
    "PaddedTardos",
    "Reproduction",
    "SampleSize",
    "analyse_adaptively",
    "overfitting",
    "table",
}


@pytest.mark.parametrize("name", sorted(set(papers.__all__) - NO_CLAIMS))
def test_a_claim_is_a_budget(name):
    with pytest.raises(TypeError, match=r"claimed must be a Budget.*got \(1, 1e-06\)"):
        getattr(papers, name)((1, 1e-6))
