"""The privacy statement: complete, readable, from public facts alone."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest

import dpcvx
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.tuning import private_curves, private_score

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (200, 3))
Y = X[:, 0] - X[:, 1]


def lasso(**changes):
    settings = {
        "epsilon": 2.0,
        "bounds": (0, 10),
        "y_bounds": (-10, 10),
        "solver": "frank_wolfe",
        "n_iter": 7,
    }
    return dpcvx.PrivateLasso(**{**settings, **changes}).fit(X, Y)


def logistic(**changes):
    settings = {"epsilon": 1.0, "bounds": (0, 10), "classes": (0, 1), "data_norm": 12.0, "standardize": False}
    return dpcvx.PrivateLogisticRegression(**{**settings, **changes}).fit(X, (Y > 0).astype(int))


@pytest.mark.parametrize("fit", [lasso, logistic])
def test_statement_says_what_the_plan_promises(fit):
    model = fit()
    said, plan = model.privacy_statement_.to_dict(), model.plan_
    assert said["model"] == type(model).__name__
    assert said["version"] == dpcvx.__version__
    assert said["unit"] == "one row is one person"
    assert said["relation"] == "replace"
    assert (said["epsilon"], said["delta"]) == (plan.budget.epsilon, plan.budget.delta)
    assert said["delta"] == 1e-5
    assert said["certified_epsilon"] == plan.price.epsilon <= plan.budget.epsilon
    assert said["certified_epsilon"] == plan.accountant.epsilon(plan.event, said["delta"] * 0.999)
    assert said["accountant"] == "Tight"
    assert said["sampler_delta"] == plan.price.sampler_delta
    for part, stage in zip(said["mechanisms"], plan.stages, strict=True):
        assert part["question"] == type(stage.mechanism).__name__
        assert part["count"] == stage.n_calls
        assert part["sensitivity"] == stage.mechanism.sensitivity
        assert part["noise"] == stage.mechanism.noise
    steps = [stage for stage in plan.stages if type(stage.mechanism) is type(plan.stages[-1].mechanism)]
    assert sum(stage.n_calls for stage in steps) == model.n_iter_
    assert said["public"]["n"] == 200
    assert said["public"]["n_iter"] == model.n_iter_
    assert "AES-256-CTR" in said["randomness"]
    assert "nothing was charged" in said["ledger"]
    assert any("GridSearchCV" in item for item in said["not_covered"])
    assert any("score" in item for item in said["not_covered"])


def test_the_price_of_each_mechanism_is_named():
    target, vertex = lasso().privacy_statement_.mechanisms
    gradients = logistic().privacy_statement_.mechanisms
    assert target["event"] == "Gaussian"
    assert vertex["event"] == "Exponential"
    assert vertex["eta"] > 0
    assert len(gradients) == 6  # phases of one descent, each with its own noise
    for gradient in gradients:
        assert gradient["event"] == "Gaussian"
        assert gradient["noise"] == pytest.approx(gradient["noise_multiplier"] * gradient["sensitivity"])
        # 2 L2 / n for slopes of 1/2 and rows of norm sqrt(1.04); rounding to the lattice is below 1e-3.
        assert gradient["sensitivity"] == pytest.approx(2 * 0.5 * math.sqrt(1.04) / 200, rel=1e-3)


def test_phases_of_one_descent_are_one_line():
    statement = logistic().privacy_statement_
    words = " ".join(str(statement).split())
    counts = [part["count"] for part in statement.mechanisms]
    assert words.count("NoisyGradient,") == 1
    assert f"{sum(counts)} times in phases of ({', '.join(map(str, counts))})" in words
    assert all(f"{part['noise_multiplier']:.6g}" in words for part in statement.mechanisms)
    # Another question in between is a line of its own.
    assert str(lasso().privacy_statement_).count("asked ") == 2


def test_json_holds_every_field():
    statement = logistic(random_state=0).privacy_statement_
    said = json.loads(statement.to_json())
    assert said == statement.to_dict()
    assert PrivacyStatement.from_dict(said) == PrivacyStatement.from_dict(statement.to_dict())
    assert said["bounds"]["data_norm"] == 12.0
    assert said["bounds"]["bounds"] == {"low": [0.0] * 3, "high": [10.0] * 3}
    assert said["bounds"]["classes"] == [0, 1]
    assert said["private"] is False


@pytest.mark.parametrize("fit", [lasso, logistic])
def test_words_are_readable(fit):
    statement = fit().privacy_statement_
    lines = str(statement).splitlines()
    assert 15 <= len(lines) <= 35
    assert max(map(len, lines)) <= 110
    words = " ".join(str(statement).split())
    for needed in (
        "epsilon = ",
        "delta = ",
        "one row is one person",
        "AES-256-CTR",
        "no ledger",
        "not covered",
    ):
        assert needed in words
    assert f"at most e^{statement.epsilon:g} times as likely" in words
    assert "NOT PRIVATE" not in words


def test_a_seeded_run_promises_nothing():
    statement = lasso(random_state=1).privacy_statement_
    words = str(statement)
    assert words.startswith("NOT PRIVATE")
    assert "no guarantee" in words
    assert "times as likely" not in words
    assert "epsilon = 2" not in words


SEEDED = {
    "score": lambda seed: private_score(logistic(), X, (Y > 0).astype(int), epsilon=1.0, random_state=seed),
    "curves": lambda seed: private_curves(logistic(), X, (Y > 0).astype(int), epsilon=1.0, random_state=seed),
    "preprocessor": lambda seed: dpcvx.PrivatePreprocessor(
        epsilon=9.0, bounds=(0, 10), random_state=seed
    ).fit(X),
    "search": lambda seed: dpcvx.PrivateSearchCV(
        dpcvx.PrivateLasso(epsilon=30.0, bounds=(0, 10), y_bounds=(-10, 10), n_iter=3, check=0),
        {"radius": [1.0, 2.0]},
        n_trials=1.5,
        random_state=seed,
    ).fit(X, Y),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SEEDED)
def test_whatever_else_is_drawn_from_a_seed_promises_nothing(name):
    for seed in (0, None):
        made = SEEDED[name](seed)
        said = getattr(made, "privacy_statement_", None) or made.statement
        assert said.to_dict()["private"] == (seed is None)
        assert str(said).startswith("NOT PRIVATE") == (seed is not None)


def test_long_lists_are_shortened_in_words_only():
    rows = RNG.uniform(0, 1, (50, 40))
    model = dpcvx.PrivateLasso(epsilon=1, bounds=(0, 1), y_bounds=(0, 1), n_iter=2).fit(rows, rows[:, 0])
    statement = model.privacy_statement_
    assert len(statement.public["features"]) == 40
    assert "40 values from x0 to x39" in " ".join(str(statement).split())


def test_the_statement_says_where_the_guarantee_starts():
    assert any("check_pipeline" in item for item in logistic().privacy_statement_.not_covered)


def test_labels_taken_from_the_data_limit_the_neighbours_that_are_meant():
    """Replacing the only record of a label changes classes_, with certainty."""
    declared, read = (logistic(classes=classes).privacy_statement_ for classes in ((0, 1), "from_y"))
    assert "have the same set of labels" in read.meaning
    assert "labels" not in declared.meaning


def test_the_statement_says_what_becomes_of_unknown_levels():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"age": X[:, 0], "town": ["x", "zz"] * 100})
    settings = {"epsilon": 2.0, "bounds": {"age": (0, 10)}, "y_bounds": (-10, 10)}
    model = dpcvx.PrivateLinearRegression(**settings, categories={"town": ["x", "y"]}).fit(table, Y)
    assert "none of the levels of its column counts as 0" in model.privacy_statement_.bounds["enforced"]


@pytest.mark.parametrize(("epsilon", "said"), [(10.0, False), (10.5, True)])
def test_plan_and_statement_say_that_a_large_epsilon_promises_little(epsilon, said):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 2))
    model = dpcvx.PrivateLinearRegression(epsilon=epsilon, delta=1e-5, bounds=(0, 1), y_bounds=(0, 1))
    model.fit(X, X[:, 0])
    for text in (str(model.plan_), str(model.privacy_statement_), model.privacy_statement_.to_json()):
        assert ("promises little" in " ".join(text.split())) is said


def test_a_delta_that_is_not_below_one_in_n_is_said_before_a_charge_and_in_the_statement(tmp_path):
    """A delta of 0.1 allows publishing one record in ten."""
    ledger = dpcvx.Ledger(tmp_path / "l.db")
    ledger.create("people", epsilon=1.0, delta=0.2)
    words = r"A delta of 0.1 is not below 1/n \(0.005 for 200 records\).* about 20 records in all"
    with pytest.warns(dpcvx.PrivacyLeakWarning, match=words):
        model = lasso(delta=0.1)
    statement = model.privacy_statement_
    assert "about 20 records in all." in statement.meaning
    assert PrivacyStatement.from_dict(statement.to_dict()) == statement
    assert "records in all" not in lasso(delta=1 / 201).privacy_statement_.meaning
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpcvx.PrivacyLeakWarning)
        with pytest.raises(dpcvx.PrivacyLeakWarning, match="not below 1/n"):
            lasso(delta=0.1, ledger=ledger, account="people")
    assert ledger.account("people").used == 0.0


@pytest.mark.filterwarnings("ignore::dpcvx.UselessModelWarning")
@pytest.mark.filterwarnings("ignore::dpcvx.UnrecognisedDataWarning", "ignore::dpcvx.UselessModelWarning")
def test_a_large_delta_is_said_of_persons_searches_and_preprocessors():
    ids = np.arange(200) // 2
    facts = {"epsilon": 1.0, "delta": 0.02, "bounds": (0, 10), "y_bounds": (-10, 10)}
    model = dpcvx.PrivateLinearRegression(**facts)
    with pytest.warns(dpcvx.PrivacyLeakWarning, match="0.01 for 100 persons.* about 2 persons"):
        assert "2 persons in all" in model.fit(X, Y, groups=ids).privacy_statement_.meaning
    with pytest.warns(dpcvx.PrivacyLeakWarning, match="for 200 records"):
        dpcvx.PrivateSearchCV(model, {"l2": [0, 0.1]}).fit(X, Y)
    with pytest.warns(dpcvx.PrivacyLeakWarning, match="for 200 records"):
        dpcvx.PrivatePreprocessor(epsilon=1.0, delta=0.02, bounds=(0, 10)).fit(X)
