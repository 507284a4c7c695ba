"""`dpcvx audit`: it finds nothing in honest code, finds planted faults, and says when it read records."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
from scipy import stats

import dpcvx as dp
import dpcvx.mechanisms.gradient
import dpcvx.mechanisms.lattice_gaussian
import dpcvx.queries.budget_split
import dpcvx.queries.mechanisms
import dpcvx.queries.private_side
import dpcvx.tuning.score
from dpcvx.audit import CASES, FitData, audit, audit_case, hostile_neighbours, replay_fit
from dpcvx.audit.audit_report import AuditedFit, AuditReport, audit_model
from dpcvx.audit.densities import density_tests
from dpcvx.audit.distinguish import (
    ErrorRates,
    best_rates,
    epsilon_of_mu,
    lower_epsilon,
    lower_mu,
    lower_range,
)
from dpcvx.audit.examples import METHODS, example_engines, example_fits, example_solvers
from dpcvx.audit.fits import replay_release, warm_up
from dpcvx.audit.laws import law_tests
from dpcvx.audit.one_run import _p_value, audit_one_run, one_run_epsilon
from dpcvx.audit.times import time_test
from dpcvx.audit.worst_cases import sparse_vector_epsilon
from dpcvx.errors import WrongValue
from dpcvx.estimators.registry import ESTIMATORS, ROW_ESTIMATORS
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import SOLVERS

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (120, 2))
DATA = FitData(X, (X[:, 0] > 0).astype(int))


def make():
    settings = {
        "epsilon": 4.0,
        "bounds": (-1, 1),
        "classes": (0, 1),
        "n_iter": 3,
        "solver": "gradient_descent",
    }
    return dp.PrivateLogisticRegression(**settings)


@pytest.mark.parametrize(
    "name",
    [
        "gradient",
        "selection",
        "group",
        "pair",
        "moments",
        "target",
        "quantile",
        "regression of an engine",
        "regression about persons",
        "private score",
    ],
)
def test_the_worst_pair_of_a_mechanism_uses_up_its_claim_and_no_more(name):
    """Signal over noise in the transcript, exactly: 0.99 of the claim at least, all of it at most."""
    found = audit_case(CASES[name](), 4, 0.05)
    assert 0.99 * found.claimed <= found.replayed <= found.claimed * (1 + 1e-6)
    assert found.holds


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_paths_of_several_mechanisms_use_up_most_of_their_claim(name):
    found = audit_case(CASES[name](), 4, 0.05)
    assert 0.9 * found.claimed <= found.replayed <= found.claimed * (1 + 1e-6)


def test_half_of_the_noise_is_found_and_the_same_data_are_not():
    case = CASES["gradient"]()
    assert not audit_case(case, 4, 0.05, factor=0.5).holds
    same = dp.audit.WorstCase("", "", case.event, lambda side, answers: case.run(0, answers))
    assert audit_case(same, 30, 0.05).audited == 0


@pytest.mark.long
def test_runs_prove_most_of_the_claim():
    found = audit_case(CASES["gradient"](), 400, 0.05)
    assert 0.6 <= found.share <= 1


def test_bounds_on_known_gaussians():
    rng, mu = np.random.default_rng(1), 1.6
    rates = best_rates(rng.normal(mu, 1, 4000), rng.normal(0, 1, 4000), 0.01)
    assert 0.85 * mu < lower_mu(rates) < mu
    assert 0 < lower_epsilon(rates, 1e-5) < epsilon_of_mu(mu, 1e-5)
    assert lower_mu(best_rates(rng.normal(0, 1, 400), rng.normal(0, 1, 400), 0.01)) == 0
    assert lower_range(ErrorRates(0.1, 0.1)) == pytest.approx(2 * np.log(9))
    assert lower_mu(ErrorRates(1.0, 0.1)) == 0


def test_a_run_of_comparisons_uses_up_its_epsilon_and_no_more():
    """PRIVACY_MATH §9.2: by quadrature, for an event of ten scores below and one above."""
    assert 1.99 < sparse_vector_epsilon(2.0, 10) <= 2.0 * (1 + 1e-6)


def test_replays_of_an_honest_fit_find_nothing():
    every = dict(hostile_neighbours(DATA, np.random.default_rng(2)))
    for kind, other in ((kind, every[kind]) for kind in ("turned around", "missing", "text", "permuted")):
        found = replay_fit(make, DATA, other, kind)
        assert found.holds, (kind, found)
        assert (found.share > 0.3) == (kind != "permuted")


@pytest.mark.parametrize("fault", ["sensitivity", "noise of the data", "message"])
def test_replays_find_faults_that_statistics_do_not(fault, monkeypatch):
    if fault == "sensitivity":  # the rows of the source are longer than the noise is for
        true = dpcvx.mechanisms.gradient.integer_bounds
        monkeypatch.setattr(dpcvx.mechanisms.gradient, "integer_bounds", lambda b, d: (true(b, d)[0], 2**20))
    if fault == "message":
        fit = dp.PrivateLogisticRegression.fit

        def telling(self, X, y):
            if not np.isfinite(np.asarray(X, dtype=float)).all():
                raise WrongValue("A cell is not finite.")
            return fit(self, X, y)

        monkeypatch.setattr(dp.PrivateLogisticRegression, "fit", telling)
    if fault == "noise of the data":
        draw = dpcvx.mechanisms.lattice_gaussian.LatticeGaussian.draw
        sums = dp.data.memory.Arrays.sum
        seen = []
        monkeypatch.setattr(
            dp.data.memory.Arrays, "sum", lambda self, q: seen.append(sums(self, q)) or seen[-1]
        )
        monkeypatch.setattr(
            dpcvx.mechanisms.lattice_gaussian.LatticeGaussian,
            "draw",
            lambda self, rng: draw(self, rng) * (1 + abs(int(np.ravel(seen[-1])[0])) % 3),
        )
    neighbours = dict(hostile_neighbours(DATA, np.random.default_rng(2)))
    assert not replay_fit(make, DATA, neighbours["missing"], "missing").holds


def test_replays_find_a_warning_about_a_target(monkeypatch):
    fit = dp.PrivateLogisticRegression.fit

    def telling(self, X, y):
        if any(each not in self.classes for each in y):
            warnings.warn("A label is no class.", stacklevel=1)
        return fit(self, X, y)

    monkeypatch.setattr(dp.PrivateLogisticRegression, "fit", telling)
    neighbours = dict(hostile_neighbours(DATA, np.random.default_rng(2)))
    assert replay_fit(make, DATA, neighbours["tiny"], "tiny").differences == ("warnings",)


@pytest.mark.long
@pytest.mark.parametrize("name", example_fits())
def test_every_path_of_a_fit_is_replayed(name):
    fit, data = example_fits()[name]
    neighbours = dict(hostile_neighbours(data, np.random.default_rng(3)))
    warm_up(fit, data)
    found = replay_fit(fit, data, neighbours["huge"], "huge")
    assert found.holds, found
    assert found.share > 0.1  # it changes something


def test_every_estimator_solver_and_method_of_an_engine_is_replayed():
    estimators = {type(fit()).__name__ for fit, _ in example_fits().values()}
    assert estimators == {*ESTIMATORS, *ROW_ESTIMATORS, "PrivateSearchCV"}
    assert set(example_solvers()) == {solver.__name__ for solver in SOLVERS}
    assert set(example_engines()) == {f"engine: {method}" for method in (*METHODS, "persons", "chosen_pairs")}
    assert {*METHODS, "chosen_pairs"} == set(dpcvx.queries.budget_split.METHODS)


SLOW = (
    "NoisySVRG",
    "NoisySVRGPlusPlus",
    "engine: warm",
    "engine: offline",
    "engine: persons",
    "engine: chosen_pairs",
)
SOLVERS_AND_ENGINES = [
    pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
    for name in (*example_solvers(), *example_engines())
]


@pytest.mark.parametrize("name", SOLVERS_AND_ENGINES)
def test_solvers_and_engines_show_nothing_but_their_answers(name):
    publish, records, neighbours = {**example_solvers(), **example_engines()}[name]
    publish(records)
    shares = []
    for kind, other in neighbours[:2] + neighbours[-1:]:
        found = replay_release(publish, records, other, kind)
        assert found.holds, (kind, found)
        shares.append(found.share)
    inside = name == "ObjectivePerturbation"  # its noise is in the objective: exact densities are for it
    assert (max(shares) > 0.1) != inside


def half_the_noise(patch):
    mechanism = dpcvx.queries.mechanisms.NoisyHistogram
    noise = mechanism.gaussians.fget
    patch.setattr(
        mechanism,
        "gaussians",
        property(
            lambda self: tuple(dataclasses.replace(g, sensitivity=g.sensitivity // 2) for g in noise(self))
        ),
    )
    return "engine: histogram"


def double_score(patch):
    score = dpcvx.queries.mechanisms.PublicAnswer.score
    patch.setattr(dpcvx.queries.mechanisms.PublicAnswer, "score", lambda self, data: 2 * score(self, data))
    return "engine: multiplicative_weights"


def gradient_without_bound(patch):
    residuals = dpcvx.queries.private_side._residuals
    patch.setattr(dpcvx.queries.private_side, "_residuals", lambda *given: 2 * residuals(*given))
    return "engine: composition"


def message_about_a_cell(patch):
    read = dpcvx.queries.Counts.of.__func__

    def telling(cls, universe, table, *rest):
        if any(cell is None for cell in table["sex"]):
            warnings.warn("A cell is missing.", stacklevel=1)
        return read(cls, universe, table, *rest)

    patch.setattr(dpcvx.queries.Counts, "of", classmethod(telling))
    return "engine: histogram"


@pytest.mark.parametrize(
    "fault", [half_the_noise, double_score, gradient_without_bound, message_about_a_cell]
)
def test_replays_of_engines_find_faults(fault, monkeypatch):
    publish, records, neighbours = example_engines()[fault(monkeypatch)]
    assert not all(replay_release(publish, records, other, kind).holds for kind, other in neighbours)


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, "noise", "score"])
def test_replays_of_searches_find_faults_in_fits_and_scores(fault, monkeypatch):
    fit, data = example_fits()["search with scores on the rows of the fits"]
    if fault == "score":  # it is charged as if its noise were larger
        totals = dpcvx.tuning.score.NoisyScore.event.fget
        monkeypatch.setattr(
            dpcvx.tuning.score.NoisyScore,
            "event",
            property(lambda self: dataclasses.replace(totals(self), noise_multiplier=1e3)),
        )
    if fault == "noise":
        draw = dpcvx.mechanisms.lattice_gaussian.LatticeGaussian.draw
        monkeypatch.setattr(
            dpcvx.mechanisms.lattice_gaussian.LatticeGaussian, "draw", lambda self, rng: draw(self, rng) // 2
        )
    other = data.with_rows([0], [[10.0, -10.0, 10.0]], -2.0)
    assert replay_fit(fit, data, other, "another row").holds == (fault is None)


def test_a_fit_that_is_refused_is_no_replay():
    """Two equal refusals passed for a fit whose neighbours cannot be told apart."""
    found = replay_fit(lambda: make().set_params(bounds=None), DATA, DATA, "same")
    assert not found.holds
    assert "no fit to replay" in found.differences[0]


def test_right_guesses_refute_a_small_epsilon_and_lucky_ones_do_not():
    assert one_run_epsilon(1000, 100, 50, 0.0) == 0
    # Pure privacy: P(all 100 right) = (1 + e^-eps)^-100 is 0.05.
    assert one_run_epsilon(1000, 100, 100, 0.0) == pytest.approx(-np.log(0.05**-0.01 - 1), rel=1e-6)
    bounds = [one_run_epsilon(1000, 100, 95, delta) for delta in (0.0, 1e-6, 1e-4, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < bounds[0]


def test_bounds_are_those_of_the_paper():
    """Steinke, Nasr and Jagielski 2023: examples of their appendix on implementation, as printed."""
    assert one_run_epsilon(1000, 100, 75, 1e-4) == pytest.approx(0.673, abs=5e-4)
    assert _p_value(100, 100, 75, np.log(3), 0.0) == pytest.approx(0.553, abs=5e-4)


@pytest.mark.parametrize(
    ("canaries", "epsilon", "delta"), [(20, 1.0, 1e-2), (200, 0.5, 1e-4), (50, 2.0, 1e-3)]
)
def test_a_part_of_delta_that_gives_canaries_away_stays_below_the_bound(canaries, epsilon, delta):
    """Exact chances of releases that use up delta: with chance delta m / i they give away i random canaries.

    All other signs are told with chance e^epsilon / (1 + e^epsilon), so that each canary loses delta.
    """
    chance = 1 / (1 + np.exp(-epsilon))
    largest = 0.0
    given = np.arange(max(1, int(2 * delta * canaries)), canaries + 1)
    often = delta * canaries / given
    for right in range(1, canaries + 1):
        bound = _p_value(canaries, canaries, right, epsilon, delta)
        usual = stats.binom.sf(right - 1, canaries, chance)
        exact = (
            (1 - often) * usual + often * stats.binom.sf(right - given - 1, canaries - given, chance)
        ).max()
        assert exact <= bound
        if usual < 0.5:
            largest = max(largest, (exact - usual) / (bound - usual))
    assert largest > 1 / 12  # a twelfth of the term would be too little


@pytest.mark.long
def test_guesses_of_randomised_signs_stay_below_the_truth():
    """Each sign is told with chance e^eps / (1 + e^eps): the bound exceeds eps in few of 200 runs."""
    rng, epsilon = np.random.default_rng(4), 2.0
    right = rng.binomial(300, 1 / (1 + np.exp(-epsilon)), 200)
    bounds = np.array([one_run_epsilon(300, 300, int(count), 0.0) for count in right])
    assert 0.01 <= (bounds > epsilon).mean() <= 0.09
    assert bounds.mean() > 0.8 * epsilon


def test_one_run_finds_much_and_never_more_than_is_claimed():
    found = audit_one_run(1000, seed=0)
    assert found.holds
    assert 1 < found.audited < found.claimed


def test_times_of_fits_tell_steps_and_not_records():
    class Sleeper:
        def __init__(self, steps, slow=False):
            self.steps, self.slow = steps, slow

        def fit(self, X, y):
            clock.seconds += self.steps + rng.normal() + 5 * (self.slow and X is other)

    class Clock:
        seconds = 0.0

        def process_time(self):
            return self.seconds

    rng, clock, other = np.random.default_rng(5), Clock(), X.copy()
    pair = DATA, FitData(other, DATA.y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpcvx.audit.times.time", clock)
        assert time_test("fit", Sleeper, *pair, n_iter=10).holds
        assert not time_test("fit", lambda steps: Sleeper(steps, slow=True), *pair, n_iter=10).holds


@pytest.mark.long
def test_noise_has_its_laws_and_minimisers_their_densities():
    laws = law_tests(20_000, SeededGenerator(1))
    assert all(law.p_value > 1e-4 for law in laws)
    assert all(found.holds for found in density_tests()[:2])


def test_a_report_shows_controls_says_what_it_read_and_is_a_page(tmp_path):
    report = audit(runs=20, only=["target"])
    assert "same data" in str(report)
    assert "half noise" in str(report)
    assert "No record of anybody" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["private"] is False
    private = AuditReport(fits=(AuditedFit("fit", (replay_fit(make, DATA, DATA, "same"),)),), private=True)
    assert "PRIVATE" in str(private)
    private.write(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert "PRIVATE: this audit has read records" in page
    assert "released and public values only" not in page
    with pytest.raises(WrongValue, match="No mechanism is called"):
        audit(only=["nothing"])
    with pytest.raises(WrongValue, match="at least 20"):
        audit(runs=2)


@pytest.mark.long
def test_a_released_model_is_audited_on_a_table(tmp_path):
    import pandas as pd

    table = pd.DataFrame(X, columns=["a", "b"])
    model = dp.PrivateLogisticRegression(epsilon=4.0, bounds=(-1, 1), classes=(0, 1)).fit(table, DATA.y)
    assert audit_model(model, table, DATA.y).holds


@pytest.mark.long
def test_rehearsals_of_a_plan_are_no_answers_about_the_records():
    import pandas as pd

    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        rng.uniform(-1, 1, (613, 2)), columns=["a", "b"]
    )  # a size that no other test rehearses
    labels = (table["a"] + rng.logistic(size=613) > 0).astype(int)
    settings = {"epsilon": 3.7, "bounds": (-1, 1), "classes": (0, 1), "uncertainty": "auto"}
    fit = audit_model(dp.PrivateLogisticRegression(**settings), table, labels)
    assert fit.holds, fit


def test_neighbours_of_a_table_of_persons_change_the_rows_of_one_person_and_no_id():
    import pandas as pd

    rng = np.random.default_rng(2)
    ids = np.repeat(np.arange(20.0), rng.integers(1, 4, 20))  # numbers with a point, as missing ids make them
    table = pd.DataFrame({"id": ids, "a": rng.normal(size=len(ids)), "b": rng.normal(size=len(ids))})
    y = rng.normal(size=len(ids))
    for kind, other in hostile_neighbours(FitData(table, y, person="id"), rng):
        if kind == "permuted":
            continue
        np.testing.assert_array_equal(other.X["id"], ids)
        differs = (other.X.to_numpy() != table.to_numpy()).any(axis=1) | (other.y != y)
        assert len(np.unique(ids[differs])) == 1, kind
