"""[TTZ15] and [TTZ14] section 5: private LASSO by Frank-Wolfe, and the two step rules without noise."""

import math

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.memory import Arrays
from dpcvx.data.rows import Dense
from dpcvx.domains import L1Ball
from dpcvx.losses import Logistic, Squared
from dpcvx.mechanisms import Vertex
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe
from exact import solve_exactly


class SignedLasso:
    """Signs as features; harmonic coefficients of total 1, over all features, make the targets.

    A vector of l1 norm 1 cannot have more entries above every size than these, so that at every n some of
    them are just too small to be found: the case that the rate n^(-2/3) is about.
    """

    def __init__(self, n, p, seed):
        rng = np.random.default_rng(seed)
        X = 2 * rng.integers(0, 2, size=(n, p), dtype=np.int16) - 1
        coefficients = rng.choice([-1.0, 1.0], p) / np.arange(1, p + 1)
        coefficients /= abs(coefficients).sum()
        floats = X.astype(np.float32)  # sums of signs are exact in it
        y = np.clip(floats @ coefficients.astype(np.float32) + rng.uniform(-0.2, 0.2, n), -1, 1)
        self.n, self.p, self.seed = n, p, seed
        self._data = Arrays(Dense(X * np.int16(2**FEATURE_BITS)), y[:, None], layout="columns")
        self._G = (floats.T @ floats).astype(np.float64) / n
        self._b = floats.T.astype(np.float64) @ y / n

    def excess(self):
        """Excess risk of the private LASSO at epsilon 1, everything else by default."""
        problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=self.p)
        plan = NoisyFrankWolfe().plan(problem, self.n, Budget(1.0, 1 / self.n**2), Tight())
        theta = execute(plan, self._data, rng=SeededGenerator(self.seed)).theta
        return self._risk(theta) - self._optimum()

    def _risk(self, theta):
        return 0.5 * theta @ self._G @ theta - self._b @ theta

    def _optimum(self):
        """Value at the optimum over the l1 ball by accelerated descent, certified by the duality gap."""
        ball, theta, t = L1Ball(1.0), np.zeros(self.p), 1.0
        y, step = theta, 1 / np.linalg.eigvalsh(self._G)[-1]
        for _ in range(5000):
            new, after = ball.project(y - step * (self._G @ y - self._b)), (1 + math.sqrt(1 + 4 * t * t)) / 2
            theta, y, t = new, new + (t - 1) / after * (new - theta), after
            g = self._G @ theta - self._b
            if g @ theta + abs(g).max() < 1e-7:
                return self._risk(theta)
        raise AssertionError("the optimum was not reached")


def mean_excess(n, p, seeds):
    return np.mean([SignedLasso(n, p, seed).excess() for seed in range(seeds)])


@pytest.mark.long
def test_excess_risk_of_private_lasso_falls_with_n():
    """[TTZ15] Corollary 2.7: like n^(-2/3) up to logarithms; benchmarks/lasso_rates.py has the full plot."""
    sizes = [5_000, 15_000, 45_000]
    slope = np.polyfit(np.log(sizes), np.log([mean_excess(n, 300, 2) for n in sizes]), 1)[0]
    assert -0.85 < slope < -0.5


@pytest.mark.long
def test_excess_risk_of_private_lasso_grows_at_most_like_log_p():
    assert mean_excess(2_000, 500, 5) / mean_excess(2_000, 25, 5) < math.log(2 * 500) / math.log(2 * 25)


def test_the_default_number_of_steps_grows_like_n_to_two_thirds():
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=100)
    counts = [
        NoisyFrankWolfe().plan(problem, n, Budget(1.0, 1e-9), Tight()).n_calls for n in (10_000, 80_000)
    ]
    assert counts[1] / counts[0] == pytest.approx(4.0, rel=0.03)


class Scripted:
    """An oracle that answers with one new vertex after the other."""

    def __init__(self):
        self._next = 0

    def vertex(self):
        self._next += 1
        return Vertex(self._next - 1)

    def move(self, step, vertex):
        pass


def test_decaying_steps_are_two_over_t_plus_two():
    """[TTZ15] Algorithm 2: the t-th of T vertices ends with the weight 2 t / (T (T + 1))."""
    T = 8
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=T)
    plan = NoisyFrankWolfe(T).plan(problem, 100, Budget(1.0, 1e-6), Tight())
    weights = plan.solver.run(plan, Scripted())
    np.testing.assert_allclose(weights, 2 * np.arange(1, T + 1) / (T * (T + 1)), rtol=1e-6)


def excess_without_noise(steps, T, loss, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (300, 6))
    y = np.where(X @ [0.9, -0.6, 0.3, 0, 0, 0] + 0.2 * rng.normal(size=300) > 0, 1.0, -1.0)
    problem = Problem(loss, L1Ball(0.8), bounds=Bounds(1.0), d=6)
    theta, oracle = solve_exactly(NoisyFrankWolfe(T, steps), problem, X, y, Budget(1.0, 1e-6), Tight())
    reference, _ = solve_exactly(NoisyFrankWolfe(9000), problem, X, y, Budget(1.0, 1e-6), Tight())
    start = oracle.objective(np.zeros(6)) - oracle.objective(reference)
    return oracle.objective(theta) - oracle.objective(reference), start, problem.curvature


@pytest.mark.long
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
@pytest.mark.parametrize("steps", ["decaying", "constant"])
def test_both_step_rules_converge(steps, loss):
    """Without noise the excess falls below a hundredth of what it was at the start."""
    excess, start, curvature = excess_without_noise(steps, 1000, loss)
    assert excess < start / 100
    bound = 2 * curvature / 1002 if steps == "decaying" else start / 1001 + curvature * math.log(1001) / 1001
    assert excess <= bound
