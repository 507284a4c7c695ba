"""Work on private data takes a public number of steps: neighbours run the same lines of code.

The time of an answer is an output of a service (PRIVACY_MATH §19). These tests do not read a clock: they
compare the lines that run, those of compiled functions included. `test_answer_times.py` measures times.
"""

import itertools
import sys
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

from dpcvx.domains import Box, L1Ball, L2Ball, LinfBall, Simplex
from dpcvx.losses import Huber, Quantile, SmoothHinge
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Count, Marginal, Mean, Regression, Schema, descent_kernels
from dpcvx.queries.histogram import Counts
from dpcvx.queries.marginals import NoisyMarginals
from dpcvx.queries.measuring import Measurer
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram, PublicAnswer
from dpcvx.queries.private_side import PrivateSide
from dpcvx.queries.sparse_vector import AboveThreshold
from dpcvx.queries.universe import Universe
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent

SCHEMA = Schema(
    (
        Attribute("ill", ("no", "yes"), "yes"),
        Attribute("work", ("none", "part", "full"), "full"),
        Binned("age", (18.0, 30.0, 50.0, 90.0), 40),
        Attribute("sex", ("f", "m"), "m"),
    )
)
N = 6
FEATURES = ("work", "age", "sex")
DOMAINS = [L2Ball(3.0), L1Ball(3.0), LinfBall(1.0), Box(-1.0, 2.0), Simplex(2.0)]
QUERIES = [
    *(Regression("ill", FEATURES, loss=loss) for loss in ("logistic", "squared", "huber", "smooth_hinge")),
    Regression("ill", ("age",), loss="quantile", radius=1.0),
    *(Regression("ill", FEATURES, domain=domain) for domain in DOMAINS[1:]),
    *(Regression("ill", FEATURES, loss="squared", domain=domain) for domain in DOMAINS[1:]),
    Regression("age", ("sex",), loss=Huber(0.2), l2=0.1),
    Regression("age", ("sex",), loss=Quantile(0.8), domain=LinfBall(1.0)),
    Regression("ill", ("sex",), loss=SmoothHinge(0.3), l2=0.3),
    Regression("ill", ("age", "sex"), radius=100.0),
    Regression("ill", (), radius=1.0),
    Count({"sex": ["f"], "age": ["[18, 30)", "[50, 90]"]}),
    Mean("age"),
    Mean("age", {"sex": ["m"]}),
    Marginal(("ill", "work")),
]
UNIVERSE = Universe(SCHEMA)


def neighbours():
    """Pairs of tables that differ in one record: degenerate, separable and ordinary ones."""
    rng = np.random.default_rng(0)
    sizes = UNIVERSE.shape
    cells = UNIVERSE.n_cells
    separable = np.array(
        [np.ravel_multi_index((k % 2, 2 * (k % 2), 2 * (k % 2), k % 2), sizes) for k in range(N)]
    )
    for table in (np.zeros(N, dtype=int), separable, rng.integers(0, cells, N)):
        for replacement in (cells // 2, cells // 2 - 1):
            other = table.copy()
            other[-1] = replacement
            yield table, other


@contextmanager
def lines_run():
    """Count the lines of the package that run."""
    counted: Counter[tuple[object, int]] = Counter()

    def note(frame, event, _):
        if "dpcvx" not in frame.f_code.co_filename:
            return None
        if event == "line":
            counted[frame.f_code, frame.f_lineno] += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        yield counted
    finally:
        sys.settrace(before)


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Compile the kernels before lines are counted, which would make that slow."""
    REGRESSION.error(np.full(len(REGRESSION.y), 1 / len(REGRESSION.y)), np.zeros(len(REGRESSION.names)))


@pytest.fixture
def interpreted(monkeypatch):
    """Run the kernels of the minimiser as Python, so that their lines are counted."""
    for name in ("descend", "project", "shift"):
        monkeypatch.setattr(descent_kernels, name, getattr(descent_kernels, name).py_func)


def run_of(checked, table):
    counts = Counts(UNIVERSE, table)
    with lines_run() as counted:
        checked.score(counts)
    return counted


QUICK = {0, 4, 7, *range(len(QUERIES) - 5, len(QUERIES))}  # a regression of each set, and all else
LONGER = [
    query if place in QUICK else pytest.param(query, marks=pytest.mark.long)
    for place, query in enumerate(QUERIES)
]


@pytest.mark.parametrize("query", LONGER, ids=repr)
@pytest.mark.usefixtures("interpreted")
def test_the_error_of_an_answer_runs_the_same_lines_on_neighbours(query):
    """The minimiser stopped at a certificate: 10 against 1,270 steps by one record."""
    question = query.compile(SCHEMA, N)
    for (one, other), warm in zip(neighbours(), itertools.cycle([True, False])):
        theta = question.answer(_weights(question, one))
        asked = question.near(theta, 0.2) if warm and hasattr(question, "near") else question
        checked = PublicAnswer(asked, theta)
        run_of(checked, one)  # fills caches, which hold public numbers
        assert run_of(checked, one) == run_of(checked, other)


def _weights(question, table):
    return Counts(UNIVERSE, table).marginal(question.attributes).ravel() / N


ANSWERS = tuple(
    PublicAnswer(
        question, question.answer(np.full(int(np.prod(question.sizes)), 1 / np.prod(question.sizes)))
    )
    for question in (query.compile(SCHEMA, N) for query in (QUERIES[0], QUERIES[1], QUERIES[-3]))
)
REGRESSION = QUERIES[0].compile(SCHEMA, N)
PATHS = {
    "comparison": lambda side: side.above(side.start(AboveThreshold(0.5)), ANSWERS[0], 1e9),
    "self-check": lambda side: side.ask(NoisyErrors(ANSWERS, 2, 3.0)),
    "histogram": lambda side: side.ask(NoisyHistogram(UNIVERSE, N, 3.0)),
    "marginals": lambda side: side.ask(NoisyMarginals(UNIVERSE.shape, N, 3.0, 2)),
    "measured means": lambda side: Measurer(N, 3.0, 1e-6).measure(QUERIES[-1].compile(SCHEMA, N), side),
    "measured regression": lambda side: MEASURER.measure(REGRESSION, side),
    "measured by Frank-Wolfe": lambda side: VERTICES.measure(QUERIES[5].compile(SCHEMA, N), side),
}
MEASURER = Measurer(N, 3.0, 1e-6, NoisyGradientDescent(n_iter=5))
VERTICES = Measurer(N, 3.0, 1e-6, NoisyFrankWolfe(n_iter=5))


@pytest.mark.parametrize("path", PATHS)
def test_every_other_access_to_the_records_runs_the_same_lines_on_neighbours(path):
    """With the same noise; a draw may take longer than another one, whatever the records are."""
    for one, other in itertools.islice(neighbours(), 0, None, 2):
        runs = []
        for table in (one, one, other):  # the first run fills caches of public numbers
            side = PrivateSide(Counts(UNIVERSE, table), SeededGenerator(1))
            with lines_run() as counted:
                PATHS[path](side)
            runs.append(counted)
        assert runs[1] == runs[2]
        assert sum(runs[1].values()) > 5


def test_no_step_computes_with_subnormal_numbers():
    """A coordinate that shrinks by a constant factor would become subnormal, which takes longer."""
    A, nothing = np.diag([1.0, 0.1, 0.05]), np.zeros((0, 0))
    objective = (A, np.zeros(3), np.zeros((3, 0)), np.zeros(0), nothing, nothing, nothing, nothing)
    domain = tuple(Box(-1.0, 1.0).projection_form(3))
    for steps in (10, 1000, 5000, 8000, 12_000, 30_000):
        point = descent_kernels.descend(
            (descent_kernels.QUADRATIC, 1.0), objective, domain, np.ones(3), 0.9, steps
        )
        assert all(x == 0 or abs(x) >= 1e-100 for x in point)
    assert (point == 0).all()
