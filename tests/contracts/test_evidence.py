"""Fits with few coefficients return what they started at, and say so, where released gradients are noise."""

import warnings

import numpy as np
import pytest

import dpcvx
from dpcvx.accounting import Budget, Tight
from dpcvx.domains import GroupBall, L1Ball, Simplex
from dpcvx.losses import Squared
from dpcvx.noise import SeededGenerator
from dpcvx.planning.rehearsal import rehearse
from dpcvx.plans import Asking, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyCorrectiveFrankWolfe, NoisyGradientDescent, NoisyGroupSelection
from dpcvx.solvers.evidence import NOTHING_FOUND, Evidence
from dpcvx.solvers.typical_data import Harmonic

N, D, SEEDS = 2000, 40, 20
BOUNDS = Bounds(1.0)
CASES = {
    "corrective": (L1Ball(1.0), NoisyCorrectiveFrankWolfe()),
    "groups": (GroupBall(4, 1.0), NoisyGroupSelection()),
}


def records(strength, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (N, D))
    return dpcvx.source(X, strength * X[:, 3], bounds=BOUNDS)


def planned(case, epsilon=1.0):
    domain, solver = CASES[case]
    return solver.plan(Problem(Squared(), domain, bounds=BOUNDS, d=D), N, Budget(epsilon, 1e-6), Tight())


@pytest.fixture
def gullible(monkeypatch):
    """Switches the decision off."""

    def switch():
        monkeypatch.setattr(Evidence, "exceeds_noise", lambda self: True)

    return switch


@pytest.mark.parametrize("case", CASES)
def test_without_signal_most_fits_are_zero_and_say_so(case):
    data, zeros = records(0.0), 0
    for seed in range(SEEDS):
        release = execute(planned(case), data, rng=SeededGenerator(seed))
        assert (release.caution == NOTHING_FOUND) == (not release.theta.any())
        zeros += release.caution is not None
    assert zeros >= 0.7 * SEEDS


@pytest.mark.parametrize("case", CASES)
def test_a_clear_signal_is_fitted_as_before_to_the_last_bit(case, gullible):
    release = execute(planned(case, 4.0), records(0.8), rng=SeededGenerator(1))
    assert release.caution is None
    assert abs(release.theta[3]) > 0.2
    gullible()
    same = execute(planned(case, 4.0), records(0.8), rng=SeededGenerator(1))
    np.testing.assert_array_equal(release.theta, same.theta)


class Recorded(Asking):
    """Gives the answers of an earlier run; there are no records."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def ask(self, *public, question=None):
        return next(self.answers)

    def move(self, step, vertex):
        pass


def test_an_earlier_caution_stays_beside_that_of_zero_coefficients():
    ask = Recorded(())
    ask.announce(None, "The target is hidden.")
    assert ask.withdraw(np.ones(2), np.zeros(2), NOTHING_FOUND).tolist() == [0, 0]
    assert ask.caution == f"{NOTHING_FOUND} The target is hidden."


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strength", [0.0, 0.8])
def test_the_decision_follows_from_released_answers_alone(case, strength):
    plan, answers = planned(case), []
    release = execute(
        plan,
        records(strength),
        rng=SeededGenerator(2),
        observe=lambda mechanism, public, answer: answers.append(answer),
    )
    ask = Recorded(answers)
    np.testing.assert_array_equal(plan.solver.run(plan, ask), release.theta)
    assert ask.caution == release.caution


def test_a_set_without_zero_is_left_alone():
    problem = Problem(Squared(), Simplex(1.0), bounds=BOUNDS, d=D)
    plan = NoisyCorrectiveFrankWolfe().plan(problem, N, Budget(1.0, 1e-6), Tight())
    for seed in range(3):
        release = execute(plan, records(0.0), rng=SeededGenerator(seed))
        assert release.caution is None
        assert abs(release.theta.sum() - 1) < 1e-9


def test_descent_over_all_features_is_left_alone():
    plan = NoisyGradientDescent().plan(
        Problem(Squared(), L1Ball(1.0), bounds=BOUNDS, d=D), N, Budget(1.0, 1e-6), Tight()
    )
    release = execute(plan, records(0.0), rng=SeededGenerator(0))
    assert release.caution is None
    assert release.theta.any()


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_of_fits_that_find_something(case, gullible):
    expected = rehearse(planned(case, 0.3))
    gullible()
    assert rehearse(planned(case, 0.3)) == expected


def test_wherever_gradients_are_taken_their_mean_shows_the_gradient_at_the_origin():
    mechanism = planned("corrective").stages[1].mechanism
    curvature = Harmonic.of(mechanism.problem, 1.0).curvature
    strong = np.zeros(D)
    strong[5] = 8 * mechanism.noise / np.sqrt(60)
    silent = found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        nothing, something = Evidence(mechanism, np.zeros(D), 1.0), Evidence(mechanism, np.zeros(D), 1.0)
        theta = np.zeros(D)
        for _ in range(60):
            g = curvature * theta + mechanism.noise_at(theta) * rng.standard_normal(D)
            nothing.add(theta, g)
            something.add(theta, g + strong)
            theta = theta - 0.5 * g  # follows the noise, to where the objective bends
        silent += not nothing.exceeds_noise()
        found += something.exceeds_noise()
    assert silent >= 80
    assert found == 100


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_a_feature_along_which_the_objective_bends_more_than_usual_is_found(epsilon):
    """The descent converges: its late gradients are near 0."""
    rng = np.random.default_rng(0)
    X = np.zeros((2000, 300))
    X[:, 0] = rng.choice([-0.9, 0.9], 2000)
    X[np.arange(2000), 1 + rng.integers(299, size=2000)] = 0.3
    y = X[:, 0] + 0.1 * rng.standard_normal(2000)
    for seed in range(4):
        model = dpcvx.PrivateLasso(
            epsilon=epsilon,
            delta=1e-6,
            bounds=(-1, 1),
            y_bounds=(-2, 2),
            data_norm=1.0,
            solver="corrective_frank_wolfe",
            random_state=seed,
        ).fit(X, y)
        assert model.release_.caution is None
        assert model.coef_[0] > 0.5


@pytest.mark.parametrize("missing", [0, 300])
def test_an_estimator_that_selects_noise_predicts_a_constant_and_says_so(missing):
    rng = np.random.default_rng(0)
    X, y = rng.choice([-1.0, 1.0], (1000, 60)), np.zeros(1000)
    y[:missing] = np.nan
    zero = 0
    for seed in range(6):
        model = dpcvx.PrivateLasso(
            epsilon=2.0,
            delta=1e-6,
            bounds=(-1.0, 1.0),
            y_bounds=(-1.0, 1.0),
            solver="corrective_frank_wolfe",
            random_state=seed,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        warned = [str(each.message) for each in caught if each.category is dpcvx.UselessModelWarning]
        assert any(NOTHING_FOUND in each for each in warned) == (not model.coef_.any())
        if not model.coef_.any():
            assert np.ptp(model.predict(X)) == 0
            zero += 1
    assert zero >= 4
