"""Can the time of an answer tell neighbouring tables apart? A classifier tries, in process and over HTTP.

An engine answers one query again and again; before each answer a coin decides which of two neighbouring
tables is behind it. Everything public stays the same, so that only the work on the records can differ. The
public histogram is the exact distribution of the first table: a minimiser that stops at a certificate then
has nothing to do on this table, and a long way to go on the other one (PRIVACY_MATH §19).

The areas under the curve are printed with ``pytest -m slow -s tests/privacy/test_answer_times.py``; an idle
machine is the sharpest judge, because other programs blur times. All cases take some ten minutes.
"""

import time
from contextlib import nullcontext

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Count, Mean, QueryEngine, Regression, Schema
from dpcvx.queries.compiled import TOLERANCE, CompiledRegression
from dpcvx.queries.histogram import Counts, Histogram
from serving import make_analysts, visitor

pytestmark = pytest.mark.slow

SCHEMA = Schema(
    (
        Attribute("ill", ("no", "yes"), "yes"),
        Attribute("job", ("a", "b", "c"), "c"),
        Binned("age", (0, 1, 2, 3, 4), 1.5),
        Attribute("sex", ("f", "m"), "m"),
    )
)
N = 20_000  # enough for comparisons with the records
ANSWERS = 800  # of each table: an area has a standard error of 0.014
FEATURES = ("job", "age", "sex")
QUERIES = {
    "logistic": Regression("ill", FEATURES),
    "logistic, l1": Regression("ill", FEATURES, domain="l1"),
    "logistic, large": Regression("ill", FEATURES, radius=1000.0),
    "squared": Regression("ill", FEATURES, loss="squared"),
    "huber": Regression("ill", FEATURES, loss="huber"),
    "smooth hinge": Regression("ill", FEATURES, loss="smooth_hinge"),
    "quantile": Regression("age", ("sex",), loss="quantile", radius=1.0),
    "mean": Mean("age", {"sex": ["m"]}),
    "count": Count({"job": ["a"], "sex": ["f"]}),
}


def records(*places):
    """A table from tuples (how many, ill, job, age, sex)."""
    columns = [np.concatenate([np.full(many, at[k]) for many, *at in places]) for k in range(4)]
    levels = (np.array(["no", "yes"]), np.array(["a", "b", "c"]), np.arange(4) + 0.5, np.array(["f", "m"]))
    names = SCHEMA.names
    return {name: known[column] for name, known, column in zip(names, levels, columns, strict=True)}


HALF = N // 2
PAIRS = {
    # The minimiser of a logistic loss is 0; one record adds three directions.
    "balanced": [
        records((HALF, 0, 0, 0, 0), (HALF, 1, 0, 0, 0)),
        records((HALF, 0, 0, 0, 0), (HALF - 1, 1, 0, 0, 0), (1, 1, 1, 3, 0)),
    ],
    # Separable, so that the minimiser is on the boundary; one record makes it inseparable.
    "separable": [
        records((HALF, 0, 0, 0, 0), (HALF, 1, 2, 3, 1)),
        records((HALF, 0, 0, 0, 0), (HALF - 1, 1, 2, 3, 1), (1, 0, 2, 3, 1)),
    ],
    # Everybody alike, and one person who is not.
    "degenerate": [records((N, 0, 0, 0, 0)), records((N - 1, 0, 0, 0, 0), (1, 1, 2, 3, 1))],
}


class Study:
    """An engine with two tables behind it, of which one is in use."""

    def __init__(self, pair):
        self.engine = QueryEngine(SCHEMA, pair[0], Budget(2.0, 1e-6), method="warm", rng=SeededGenerator(0))
        self._tables = [Counts.of(self.engine.universe, table) for table in pair]
        exact = self._tables[0].marginal((0, 1, 2, 3)).ravel() / N
        self.engine._public_side.histogram = Histogram(self.engine.universe, exact)
        self.engine.__dict__["_level"] = 1e9  # nothing is measured anew

    def use(self, side):
        self.engine._private_side._records = self._tables[side]

    def times(self, ask):
        """Sides and times of answers, in random order; the first few are for warming up."""
        sides = np.random.default_rng(1).permutation(np.repeat([0, 1], ANSWERS))
        found = []
        for side in (*sides[:40], *sides):
            self.use(side)
            started = time.perf_counter(), time.process_time()
            ask()
            found.append((time.perf_counter() - started[0], time.process_time() - started[1]))
        return sides, np.array(found[40:])


def areas(sides, times):
    """Areas under the curve: of the time of one answer, and of a classifier on features of it, in 5 folds."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    logs = np.log(times)
    around = [np.median(logs[max(0, k - 10) : k + 11], axis=0) for k in range(len(logs))]
    before = np.vstack([logs[:1], logs[:-1]])
    features = np.hstack([logs, logs - around, before])
    model = HistGradientBoostingClassifier(max_depth=3, max_iter=50, learning_rate=0.1)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    guesses = cross_val_predict(model, features, sides, cv=folds, method="predict_proba")[:, 1]
    return roc_auc_score(sides, logs[:, 0]), roc_auc_score(sides, guesses)


def stop_at_certificate(monkeypatch):
    """Plant the fault: look at a Frank-Wolfe gap every ten steps and stop when it is small."""
    steps_made = CompiledRegression._descend

    def stopping(self, weights, start, steps):
        C, theta = self.problem.C, start if self.anchor is None else self.anchor
        for _ in range(0, steps, 10):
            slopes = weights * self.rounded_loss.grad(self._margins(theta), self.y)
            gradient = self.reach * (slopes @ self.X + self.problem.l2 * self._point(theta))
            if gradient @ (theta - C.lmo(gradient)) <= TOLERANCE / 2 * self.range(theta) / self.records:
                break
            theta = steps_made(self, weights, theta, 10)
        return theta

    monkeypatch.setattr(CompiledRegression, "_descend", stopping)


def over_http(study, query, folder):
    """Ask over HTTP, with slots so short that they round nothing."""
    served = visitor(make_analysts(folder, study.engine), slot=1e-4, per_minute=10**6, per_day=10**6)
    return served, lambda client: client.post("/api/v1/queries", json=query.to_json()).raise_for_status()


def measured(study, query, where, folder):
    if where == "process":
        assert study.engine.ask(query).checked  # otherwise nothing private is computed
        return areas(*study.times(lambda: study.engine.ask(query)))
    served, ask = over_http(study, query, folder)
    with served as client:
        return areas(*study.times(lambda: ask(client)))


def report(*words):
    with open("/proc/loadavg") if hasattr(time, "clock_gettime") else nullcontext() as load:
        print(*words, "load", load.read().split()[0] if load else "?", flush=True)


CASES = [("balanced", name, "process") for name in QUERIES]
CASES += [(pair, name, "process") for pair in ("separable", "degenerate") for name in ("logistic", "squared")]
CASES += [("balanced", name, "HTTP") for name in ("logistic", "logistic, l1", "squared", "quantile", "count")]
CASES += [("separable", "logistic", "HTTP"), ("degenerate", "logistic", "HTTP")]


@pytest.mark.parametrize(("pair", "name", "where"), CASES)
def test_times_of_answers_do_not_tell_neighbours_apart(pair, name, where, tmp_path):
    single, classifier = measured(Study(PAIRS[pair]), QUERIES[name], where, tmp_path)
    report(f"{where} {pair} {name}: one time {single:.3f}, classifier {classifier:.3f},")
    assert 0.45 <= single <= 0.55
    assert 0.45 <= classifier <= 0.55


@pytest.mark.parametrize(
    ("pair", "name", "where"), [("balanced", "logistic", at) for at in ("process", "HTTP")]
)
def test_a_minimiser_that_stops_at_a_certificate_is_found(pair, name, where, tmp_path, monkeypatch):
    stop_at_certificate(monkeypatch)
    single, classifier = measured(Study(PAIRS[pair]), QUERIES[name], where, tmp_path)
    report(f"{where} {pair} {name}, planted stop: one time {single:.3f}, classifier {classifier:.3f},")
    assert max(single, 1 - single, classifier) > 0.9
