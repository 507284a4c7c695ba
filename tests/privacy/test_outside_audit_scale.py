"""Attacks on what standardises, selects and searches: centres without bounds, targets without units."""

import re
import warnings

import numpy as np
import pytest

import dpcvx
import dpcvx.noise.gaussian
from adversary import stored
from dpcvx.accounting import Budget, Neighbours, Tight
from dpcvx.accounting.repetition import poisson_rate
from dpcvx.data.quantise import Quantiser
from dpcvx.data.shards import open_source
from dpcvx.domains import L2Ball
from dpcvx.errors import ShardsDamaged
from dpcvx.losses import Logistic, Squared
from dpcvx.mechanisms import NoisyMoments
from dpcvx.noise import SeededGenerator
from dpcvx.noise.exponential import Levels, select, select_signed
from dpcvx.plans import Oracle, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.tuning.repetitions import repetitions


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


# -- moments


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_means_are_about_zero(relation, silent):
    """About -1 a row of zeros adds sqrt(d) to the sum, which a row of norm 1 never does about 0."""
    d, n = 64, 10
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=d)
    question = NoisyMoments(problem, n, 1, 1.0, 1.0, Neighbours(relation))
    more, fewer = (stored(np.zeros((m, d)), np.ones(m), problem.bounds, "dense") for m in (n, n - 1))
    with pytest.raises(ValueError, match="about 0"):
        question(np.full(d, -1.0), more, SeededGenerator(0))
    change = question(None, more, SeededGenerator(0)) - question(None, fewer, SeededGenerator(0))
    assert np.linalg.norm(change) <= question.sensitivity


@pytest.mark.parametrize("target", ["all zero", "different"])
def test_targets_below_the_grid_have_a_scale(target):
    """A range below 2^-14 was a scale of 0: 0/0 of one target said another thing than y/0 of the next."""
    n, tiny = 400, 5e-5
    problem = Problem(Squared((-tiny, tiny)), L2Ball(1.0), bounds=Bounds(1.0, 1.0, tiny), d=3)
    plan = Standardised(NoisyGradientDescent(n_iter=3)).plan(problem, n, Budget(1.0, 1e-6), Tight())
    y = np.zeros(n) if target == "all zero" else np.linspace(-tiny, tiny, n)
    data = stored(np.full((n, 3), 0.25), y, problem.bounds, "dense")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = execute(plan, data, rng=SeededGenerator(0))
    assert np.isfinite(release.theta).all()


@pytest.mark.parametrize(("center", "scale"), [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_targets_are_not_sent_through_a_map_that_depends_on_them(center, scale):
    problem = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0, 1.0, 1.0), d=3)
    plan = NoisyGradientDescent(n_iter=3).plan(problem, 8, Budget(1.0, 1e-6), Tight())
    data = stored(np.zeros((8, 3)), np.zeros(8), problem.bounds, "dense")
    oracle = Oracle(plan, data, SeededGenerator(0))
    with pytest.raises(ValueError, match="finite centre and a positive scale"):
        oracle.remap(Quantiser(problem.bounds), center, scale)


def test_a_norm_far_beyond_all_cells_is_a_norm():
    """Cells that are small beside the declared norm are stored on the grid like all others."""
    X = np.full((500, 3), 0.5)
    model = dpcvx.PrivateLinearRegression(
        epsilon=1.0, bounds=(0.0, 1.0), y_bounds=(0.0, 1.0), data_norm=1e5, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, X[:, 0])
    assert np.isfinite(model.coef_).all()


# -- selection


@pytest.mark.parametrize("gap", [1e3, 1e5, 3e9, 1e15])
def test_scores_far_apart_take_no_more_memory_than_scores_close_together(gap, monkeypatch):
    """A level for each factor of two between best and worst score is memory that records decide on."""
    made = []
    monkeypatch.setattr(
        "dpcvx.noise.exponential.Levels", lambda *given: made.append(Levels(*given)) or made[-1], raising=True
    )
    rng = SeededGenerator(1)
    log_weights = np.array([-gap, 0.0, 0.5, -1.0])
    drawn = np.bincount([select(log_weights, rng) for _ in range(4000)], minlength=4) / 4000
    weights = np.exp(log_weights)
    np.testing.assert_allclose(drawn, weights / weights.sum(), atol=0.03)
    pairs = np.array([select_signed(np.array([gap, gap - 1.0, 3.0]), rng) for _ in range(2000)])
    assert (pairs[:, 1] == 1).all()
    np.testing.assert_allclose(np.mean(pairs[:, 0] == 0), 1 / (1 + np.exp(-1.0)), atol=0.04)
    assert max(levels.start.size for levels in made) < 5000


# -- the number of trials


@pytest.mark.parametrize("mean", [5.0, 140.0, 160.0, 400.0, 3000.0])
def test_a_law_whose_first_chances_are_tiny_is_drawn_all_the_same(mean):
    """From a mean of 144 on P(1) is below 10^-60, where the tail was taken to have ended."""
    rng = SeededGenerator(3)
    drawn = np.array([repetitions(mean, None, rng) for _ in range(200)])
    deviation = np.sqrt(poisson_rate(mean))
    assert abs(drawn.mean() - mean) < 5 * deviation / np.sqrt(200)
    assert 0.7 * deviation < drawn.std() < 1.3 * deviation


# -- shards


def test_a_damaged_shard_does_not_tell_how_many_cells_are_filled(tmp_path):
    from scipy.sparse import csr_array

    dpcvx.from_batches(
        [(csr_array(np.eye(30)[:, :25]), np.tile([0, 1], 15))],
        bounds=(0.0, 1.0),
        classes=(0, 1),
        store=tmp_path / "shards",
        verbose=0,
    )
    (path,) = (tmp_path / "shards").glob("*.indices.npy")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ShardsDamaged, match="cut short") as caught:
        open_source(tmp_path / "shards")
    assert str(size) not in re.findall(r"\d+", str(caught.value).replace(str(path), ""))
