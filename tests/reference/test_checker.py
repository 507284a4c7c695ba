"""The independent check of statements: it agrees with the accountant, and rejects what was altered."""

import ast
import dataclasses
import json
import math
import re
from copy import deepcopy
from pathlib import Path

import mpmath
import numpy as np
import pytest
from typer.testing import CliRunner

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.checker import verify_statement
from dpcvx.checker.profiles import delta_bound, flatten
from dpcvx.cli import app
from dpcvx.errors import NotAccountable, WrongValue
from dpcvx.events import (
    ApproxDP,
    Compose,
    Exponential,
    Gaussian,
    PerturbedObjective,
    Poisson,
    PureDP,
    Repeat,
    RepeatAndSelect,
    Worst,
    to_plain,
)
from dpcvx.plans import Price
from dpcvx.plans.statement import CRYPTOGRAPHIC, PrivacyStatement
from golden.cases import CASES, seen

DELTA = 1e-7
EVENTS = [
    Repeat(Gaussian(10.0), 50),
    Compose((Gaussian(4.0), Gaussian(11.0))),
    Exponential(0.5),
    Repeat(Exponential(0.05), 100),
    Repeat(PureDP(0.05), 100),
    Compose((PureDP(0.3), Exponential(0.1), Gaussian(5.0))),
    Compose((PerturbedObjective(0.05, 0.3), Gaussian(50.0))),
    PerturbedObjective(0.05, 0.3, "add_remove"),
    PerturbedObjective(0.4, 0.3, "add_remove"),
    Compose((PerturbedObjective(0.05, 0.3, unit="person"), Gaussian(50.0))),
    Worst((Gaussian(3.0), Exponential(1.0))),
    Compose((ApproxDP(0.1, 1e-8), Gaussian(5.0))),
]
SLOWER = [
    RepeatAndSelect(Worst((Gaussian(10.0), Gaussian(12.0))), 5.0),
    RepeatAndSelect(Gaussian(10.0), 5.0, 1.0),
    RepeatAndSelect(Gaussian(10.0), 5.0, 0.0),
    Compose((Repeat(Poisson(0.02, 4.0), 20), Gaussian(10.0))),
    Repeat(Poisson(0.02, 3.0, "add_remove"), 20),
]


@pytest.mark.parametrize(
    "event", [*EVENTS, *(pytest.param(event, marks=pytest.mark.long) for event in SLOWER)], ids=str
)
def test_the_profile_is_that_of_the_accountant(event):
    """At the accountant's epsilon the checker needs the same delta, up to the grid of sampled losses."""
    epsilon = Tight().epsilon(event, DELTA)
    found = delta_bound(flatten(to_plain(event)), epsilon)
    assert 0.99 * DELTA < found < (1 + 1e-6) * DELTA


@pytest.mark.parametrize("epsilon", [0.1, 8.0])
@pytest.mark.parametrize("mu", [0.05, 0.8, 3.0])
def test_gaussian_profiles_are_exact(epsilon, mu):
    with mpmath.workdps(60):
        first = mpmath.ncdf(mpmath.mpf(mu) / 2 - epsilon / mpmath.mpf(mu))
        second = mpmath.exp(epsilon) * mpmath.ncdf(-mpmath.mpf(mu) / 2 - epsilon / mpmath.mpf(mu))
        exact = first - second
    found = delta_bound(flatten(to_plain(Gaussian(1 / mu))), epsilon)
    assert found == pytest.approx(float(exact), rel=1e-12)


def statement_of(model, X, y):
    """The statement that the same fit without a seed would have."""
    seeded = model.fit(X, y).privacy_statement_
    return dataclasses.replace(seeded, private=True, randomness=CRYPTOGRAPHIC).to_dict()


@pytest.fixture(scope="module")
def statements():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (400, 3))
    y, labels = X @ [1.0, 0.5, 0.0], (X[:, 0] > 0.5).astype(int)
    common = {"bounds": (0, 1), "epsilon": 1.0, "random_state": 0}
    return [
        statement_of(dp.PrivateLogisticRegression(**common, classes=(0, 1)), X, labels),
        statement_of(
            dp.PrivateLogisticRegression(**common, classes=(0, 1), solver="objective_perturbation"), X, labels
        ),
        statement_of(dp.PrivateLasso(**common, y_bounds=(0, 2)), X, y),
        # Enough records that the noise of gradients changes between phases.
        statement_of(
            dp.PrivateLogisticRegression(**common, classes=(0, 1)), np.tile(X, (5, 1)), np.tile(labels, 5)
        ),
    ]


def test_statements_of_fits_hold(statements):
    for statement in statements:
        verdict = verify_statement(statement)
        assert verdict.holds, verdict
        assert verdict.needed_delta <= statement["delta"]
        assert "follows from the noise" in str(verdict)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
def test_every_statement_of_the_recorded_cases_holds(name, monkeypatch):
    """Those of models, searches, scores and engines, as they would be without a seed."""
    stated, write = [], PrivacyStatement.to_json
    monkeypatch.setattr(PrivacyStatement, "to_json", lambda self: stated.append(self) or write(self))
    seen(name)
    for statement in stated:
        content = dataclasses.replace(statement, private=True, randomness=CRYPTOGRAPHIC).to_dict()
        verdict = verify_statement(json.loads(json.dumps(content)))
        assert verdict.holds, verdict


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("groups", [None, np.arange(400) // 2], ids=["records", "persons"])
def test_a_delta_that_is_not_below_one_in_n_is_a_weak_promise_that_holds(groups):
    """It has a sentence of its own, about the number of records that are stated: any other is rejected."""
    X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    model = dp.PrivateLinearRegression(epsilon=1.0, delta=0.05, bounds=(-1, 1), y_bounds=(-1, 1))
    said = model.fit(X, X[:, 0], groups=groups).privacy_statement_.to_dict()
    assert "promises little" in said["meaning"]
    assert verify_statement(said).holds
    for other in (r"about \d+", r"for \d+", r"probability 0.05"):
        altered = said | {"meaning": re.sub(other, other.split(" ")[0] + " 1", said["meaning"])}
        assert not verify_statement(altered).holds


def test_phases_with_noise_of_their_own_are_stated_one_by_one(statements):
    gradients = [part for part in statements[3]["mechanisms"] if part["question"] == "NoisyGradient"]
    assert len({part["noise_multiplier"] for part in gradients}) == len(gradients) > 1


def test_the_page_names_the_fields_that_statements_have():
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (.+) \|$", page, re.MULTILINE)[1:]
    named = {name for row in rows for name in re.findall("`([a-z_]+)`", row)} - {"replace", "add_remove"}
    have = {field.name for field in dataclasses.fields(PrivacyStatement)} | {"meaning"}
    assert len(rows) > 9
    assert named == have


def alterations(statement):
    """(what was altered, statement): one number or word of a copy each."""
    for name, factor in [
        *(("epsilon", factor) for factor in (0.5, 0.9, 0.99, 1.5)),
        *(("delta", factor) for factor in (0.1, 0.5, 2.0, 100.0)),
        *(("certified_epsilon", factor) for factor in (0.5, 0.99, 1.01)),
        ("sampler_delta", 1e70),
    ]:
        yield f"{name} times {factor}", {**statement, name: statement[name] * factor}
    for i, part in enumerate(statement["mechanisms"]):
        for name, value in part.items():
            if isinstance(value, int | float):
                for factor in (2, 3) if name == "count" else (0.7, 1.3):
                    changed = deepcopy(statement)
                    changed["mechanisms"][i][name] = value * factor
                    yield f"mechanism {i}, {name} times {factor}", changed
        left = deepcopy(statement)
        del left["mechanisms"][i]
        yield f"mechanism {i} left out", left
    yield "other relation", {**statement, "relation": "add_remove"}
    yield "other unit", {**statement, "unit": "one person with all of their rows"}
    yield "seeded", {**statement, "private": False}
    yield "no randomness", {**statement, "randomness": "Mersenne Twister"}
    yield "other promise", {**statement, "meaning": statement["meaning"].replace("e^1 ", "e^0.1 ")}
    yield "other n", {**statement, "public": {**statement["public"], "n": 4000}}


@pytest.mark.parametrize("place", [0, *(pytest.param(place, marks=pytest.mark.long) for place in (1, 2, 3))])
def test_altered_statements_are_rejected(statements, place):
    changed = list(alterations(statements[place]))
    kept = [name for name, content in changed if _accepted(content)]
    assert len(changed) >= 30
    assert not kept


def _accepted(content):
    try:
        return verify_statement(content).holds
    except WrongValue:
        return False


def contradictions(statement):
    """(what was altered, statement): altered consistently, or where no event is touched."""
    for place, name in [(0, "noise"), (0, "sensitivity"), (1, "noise"), (1, "noise_multiplier")]:
        changed = deepcopy(statement)
        changed["mechanisms"][-1]["answers"][place][name] *= 100
        yield f"{name} of answer {place}", changed
    changed = deepcopy(statement)
    del changed["mechanisms"][-1]["answers"][1]
    yield "an answer left out", changed
    for name, value in [("noise", None), ("noise", "1"), ("sensitivity", -1.0), ("noise", 10**400)]:
        changed = deepcopy(statement)
        changed["mechanisms"][0][name] = value
        yield f"{name} {str(value)[:9]}", changed
    cheap = [{"event": "Repeat", "count": part["count"], "of": part} for part in statement["mechanisms"]]
    dear = deepcopy(statement["mechanisms"])
    dear[0]["noise"] /= 100
    dear[0]["noise_multiplier"] /= 100
    yield (
        "mechanisms beside a composition",
        {**statement, "mechanisms": dear, "composition": {"event": "Compose", "events": cheap}},
    )
    yield "more words", {**statement, "meaning": statement["meaning"] + " In fact e^0.1 times."}
    yield "unit of nothing", {**statement, "unit": "one household"}
    yield "odd randomness", {**statement, "randomness": "cryptographic? no: seed 0"}
    for name in ("epsilon", "delta", "certified_epsilon", "sampler_delta"):
        for value in (10**400, -(10**400), float("nan"), float("inf"), -1):
            yield f"{name} {str(value)[:9]}", {**statement, name: value}


def test_statements_that_contradict_themselves_are_rejected():
    X = np.random.default_rng(0).uniform(0, 1, (400, 3))
    model = dp.PrivateLinearRegression(
        bounds=(0, 1), y_bounds=(0, 2), epsilon=1.0, uncertainty=0.3, random_state=0
    )
    statement = statement_of(model, X, X @ [1.0, 0.5, 0.0])
    assert verify_statement(statement).holds
    assert not [name for name, content in contradictions(statement) if _accepted(content)]


@pytest.mark.long
def test_an_objective_of_rows_does_not_protect_persons():
    X = np.random.default_rng(0).uniform(0, 1, (300, 3))
    model = dp.PrivateLogisticRegression(
        bounds=(0, 1), epsilon=1.0, classes=(0, 1), solver="objective_perturbation", random_state=0
    )
    model.fit(X, (X[:, 0] > 0.5).astype(int), groups=np.repeat(np.arange(100), 3))
    seeded = model.privacy_statement_
    statement = dataclasses.replace(seeded, private=True, randomness=CRYPTOGRAPHIC).to_dict()
    assert verify_statement(statement).holds
    other = {**statement, "public": {**statement["public"], "persons": 3000}}
    assert any("differs from the rule" in each for each in verify_statement(other).findings)
    statement["mechanisms"][0]["events"][0]["unit"] = "row"
    assert any("another unit" in each for each in verify_statement(statement).findings)


def nested(event, times):
    for _ in range(times):
        event = {"event": "Worst", "events": [event, event]}
    return event


@pytest.mark.parametrize(
    "event",
    [
        {"event": "Repeat", "count": 10**18, "of": to_plain(Poisson(0.01, 4.0))},
        to_plain(Poisson(1e-12, 0.3)),
        to_plain(RepeatAndSelect(RepeatAndSelect(Gaussian(10.0), 5.0, 1.0), 5.0, 1.0)),
        nested(to_plain(RepeatAndSelect(Gaussian(10.0), 5.0)), 20),
        to_plain(Compose((PureDP(0.1), *(Gaussian(100.0 + i) for i in range(3000))))),
    ],
    ids=["samples", "rare sample", "nested search", "nested choices", "many"],
)
def test_no_statement_takes_forever(statements, event, monkeypatch):
    """Without a limit on the work these take minutes to years."""
    monkeypatch.setattr("dpcvx.checker.effort.MOST", 10**5)
    verdict = verify_statement({**statements[0], "composition": event})
    assert not verdict.holds
    assert verdict.needed_delta == math.inf


@pytest.mark.long
def test_a_search_states_its_composition_and_holds():
    run = Gaussian(10.0)
    event = RepeatAndSelect(run, 4.0)
    budget = dp.Budget(1.01 * Tight().epsilon(event, DELTA), DELTA)
    part = {"question": "NoisyGradient", "count": 1, **to_plain(run), "sensitivity": 1.0, "noise": 10.0}
    price = Price(event, (part,), 0.0, budget)
    statement = PrivacyStatement.of(price, model="search", private=True, bounds={}, public={}).to_dict()
    assert statement["composition"] == to_plain(event)
    assert verify_statement(statement).holds
    assert not verify_statement({**statement, "composition": {}}).holds
    # A search fits and scores different people: together its mechanisms may cost more than it does.
    beside = {**part, "question": "NoisyScore"}
    several = {**statement, "mechanisms": [part, *[beside] * 40]}
    assert not verify_statement({**several, "composition": {}}).holds
    assert verify_statement(several).holds
    assert PrivacyStatement.from_dict(statement).to_dict() == statement


@pytest.mark.parametrize("content", [[], {}, {"model": "x"}, {"mechanisms": "abc"}, None, 3])
def test_content_that_is_not_a_statement_is_refused(content):
    with pytest.raises(WrongValue, match="no privacy statement"):
        verify_statement(content)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "Gaussian", "noise_multiplier": 0.0},
        {"event": "Gaussian", "noise_multiplier": "10"},
        {"event": "Gaussian"},
        {"event": "Nothing"},
        {"event": "Repeat", "count": 0, "of": {"event": "PureDP", "epsilon": 1.0}},
        {"event": "Repeat", "count": 1.5, "of": {"event": "PureDP", "epsilon": 1.0}},
        {"event": "Compose", "events": []},
        {"event": "Poisson", "probability": 2.0, "noise_multiplier": 1.0},
        {"event": "RepeatAndSelect", "mean": 1.0, "of": {"event": "PureDP", "epsilon": 1.0}},
        "Gaussian",
    ],
)
def test_content_that_is_not_an_event_has_no_price(event):
    with pytest.raises(NotAccountable):
        flatten(event)


def test_it_shares_nothing_with_the_accountant():
    folder = Path(dp.__file__).parent / "checker"
    imported = {
        name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
    }
    own = {name for name in imported if name.startswith("dpcvx")}
    assert own == {"dpcvx.errors", *(f"dpcvx.checker.{path.stem}" for path in folder.glob("[!_]*.py"))}
    assert not imported & {"numpy", "scipy", "dp_accounting"}


def test_the_command_line(statements, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"statement": statements[0]}))
    bad.write_text(json.dumps({**statements[0], "epsilon": 0.5}))
    found = CliRunner().invoke(app, ["verify", str(good)])
    assert found.exit_code == 0
    assert "follows from the noise" in found.output
    found = CliRunner().invoke(app, ["verify", str(good), str(bad), "--json"])
    assert found.exit_code == 4
    content = json.loads(found.output)
    assert [content[str(path)]["holds"] for path in (good, bad)] == [True, False]


def test_a_model_file_can_be_verified(tmp_path):
    model = dp.PrivateLogisticRegression(bounds=(0, 1), epsilon=1.0, classes=(0, 1))
    X = np.random.default_rng(0).uniform(0, 1, (300, 3))
    model.fit(X, (X[:, 0] > 0.5).astype(int)).save(tmp_path / "model.json")
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "model.json")]).exit_code == 0
