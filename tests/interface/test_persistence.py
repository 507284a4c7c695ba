"""Model files: a round trip changes nothing, and a hostile file does nothing."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import dpcvx
from dpcvx import (
    GroupBall,
    L1Ball,
    PrivateElasticNet,
    PrivateGroupLasso,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateLowRankRegression,
    PrivateQuantileRegressor,
    PrivateStructuredLasso,
    SubmodularBall,
    load,
)
from dpcvx.domains import (
    Cardinality,
    ConcaveOfCardinality,
    DirectSum,
    FromCallable,
    GroupCover,
    Interval,
    Transformed,
)
from dpcvx.solvers import NoisyMirrorDescent

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (60, 3))
Y = X[:, 0] - X[:, 1]
TABLE = pd.DataFrame({"age": X[:, 0], "sex": RNG.choice(["f", "m"], 60), "code": RNG.choice([1, 2], 60)})
PUBLIC = {"epsilon": 5.0, "bounds": (0, 10), "n_iter": 4}
TARGET = {"y_bounds": (-10, 10)}
CASES = {
    "linear": (PrivateLinearRegression(**PUBLIC, **TARGET), X, Y),
    "seeded": (PrivateLinearRegression(**PUBLIC, **TARGET, random_state=3), X, Y),
    "arrays": (PrivateLasso(**{**PUBLIC, "bounds": (np.zeros(3), np.full(3, 10.0))}, **TARGET), X, Y),
    "domain": (PrivateHuberRegressor(**PUBLIC, **TARGET, domain=L1Ball(2.0), threshold=1.5), X, Y),
    "solver": (PrivateQuantileRegressor(**PUBLIC, **TARGET, solver=NoisyMirrorDescent()), X, Y),
    "binary": (PrivateLogisticRegression(**PUBLIC, classes=("no", "yes")), X, np.where(Y > 0, "yes", "no")),
    "three": (PrivateLogisticRegression(**PUBLIC, classes=(0, 1, 2)), X, np.digitize(Y, [-2, 2])),
    "mixed": (PrivateLinearSVC(**PUBLIC, classes=("no", 1, 2.5)), X, np.digitize(Y, [-2, 2])),
    "norm": (PrivateLinearSVC(**PUBLIC, classes=(False, True), data_norm=9.0), X, Y > 0),
    "elastic": (PrivateElasticNet(**PUBLIC, **TARGET), X, Y),
    "groups": (PrivateGroupLasso(**PUBLIC, **TARGET, groups={"pair": [0, 2]}), X, Y),
    "labels": (PrivateGroupLasso(**PUBLIC, **TARGET, groups=np.array(["a", "b", "a"])), X, Y),
    "prices": (
        PrivateStructuredLasso(**PUBLIC, **TARGET, set_function=GroupCover([[0, 1], [1, 2]], [1.0, 2.0])),
        X,
        Y,
    ),
    "chain": (PrivateStructuredLasso(**PUBLIC, **TARGET, set_function=Interval(3, 2.0)), X, Y),
    "concave": (
        PrivateStructuredLasso(**PUBLIC, **TARGET, set_function=ConcaveOfCardinality([1.0, 1.5, 1.6])),
        X,
        Y,
    ),
    "matrix": (
        PrivateLowRankRegression(**PUBLIC, y_bounds=([-10, 0], [10, 5])),
        X,
        np.stack([Y, X[:, 2]], 1),
    ),
    "column": (PrivateLowRankRegression(**PUBLIC, **TARGET), X, Y[:, None]),
    "one": (PrivateLowRankRegression(**PUBLIC, **TARGET), X, Y),
    "group_ball": (
        PrivateLogisticRegression(**PUBLIC, classes=(0, 1, 2), domain=GroupBall([[0, 3], [1, 2]], 4.0)),
        X,
        np.digitize(Y, [-2, 2]),
    ),
    "sum": (
        PrivateHuberRegressor(
            **PUBLIC,
            **TARGET,
            domain=Transformed(
                SubmodularBall(DirectSum([Cardinality(), Interval(2, 0.0)], [2, 2]), 1.0), 2.0
            ),
        ),
        X,
        Y,
    ),
    "table": (
        PrivateLinearRegression(
            **{**PUBLIC, "bounds": {"age": (0, 10)}}, **TARGET, categories={"sex": ["f", "m"], "code": [1, 2]}
        ),
        TABLE,
        Y,
    ),
}


def saved(tmp_path, case):
    estimator, rows, y = CASES[case]
    model = copy.deepcopy(estimator).fit(rows, y)
    path = tmp_path / "model.json"
    model.save(path)
    return model, rows, path


@pytest.mark.parametrize("case", CASES)
def test_round_trip(tmp_path, case):
    model, rows, path = saved(tmp_path, case)
    again = load(path)
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert type(again.intercept_) is type(model.intercept_)
    assert again.privacy_statement_ == model.privacy_statement_
    assert str(again.privacy_statement_) == str(model.privacy_statement_)
    assert again.n_iter_ == model.n_iter_
    assert again.coef_names_.tolist() == model.coef_names_.tolist()
    if hasattr(model, "classes_"):
        np.testing.assert_array_equal(again.classes_, model.classes_)
        assert again.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    second = tmp_path / "again.json"
    again.save(second)
    assert second.read_bytes() == path.read_bytes()
    again.fit(rows, CASES[case][2])  # parameters came back too
    assert again.n_iter_ == model.n_iter_


@pytest.mark.parametrize("own", [np.sqrt, FromCallable(lambda mask: float(mask.any()), 3)])
def test_functions_are_not_saved_and_the_error_says_what_to_do(tmp_path, own):
    F = own if isinstance(own, FromCallable) else ConcaveOfCardinality(own)
    model = PrivateStructuredLasso(**PUBLIC, **TARGET, set_function=F).fit(X, Y)
    with pytest.raises(TypeError, match=r"set_function .* cannot hold.*values in place of functions"):
        model.save(tmp_path / "model.json")


def test_a_seeded_model_stays_stamped(tmp_path):
    _, _, path = saved(tmp_path, "seeded")
    assert not load(path).privacy_statement_.private
    assert str(load(path).privacy_statement_).startswith("NOT PRIVATE")


def test_names_are_checked_after_loading(tmp_path):
    _, rows, path = saved(tmp_path, "table")
    with pytest.raises(ValueError, match="feature names"):
        load(path).predict(rows[["sex", "age", "code"]])


def test_an_unfitted_model_is_not_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        PrivateLasso(epsilon=1.0).save(tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"format": "other"}', "\udcff", "[" * 100_000, '{"a": NaN}']
)
def test_what_is_no_model_is_refused(tmp_path, text):
    path = tmp_path / "model.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"no dpcvx model|no place"):
        load(path)


def changed(content, path, value):
    content = copy.deepcopy(content)
    place = content
    for key in path[:-1]:
        place = place[key]
    if value == DELETED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


DELETED = "DELETED"
HOSTILE = [
    (("schema",), 5),
    (("schema",), 1),
    (("class",), "load"),
    (("class",), "os.system"),
    (("class",), ["PrivateLasso"]),
    (("class",), "PrivateLinearRegression"),
    (("formula",), DELETED),
    (("formula",), []),
    (("extra",), 1),
    (("formula", "extra"), 1),
    (("formula", "coef"), DELETED),
    (("formula", "coef"), [1.0]),
    (("formula", "coef"), [[1.0], [2.0, 3.0]]),
    (("formula", "coef"), ["1", "2", "3"]),
    (("formula", "coef"), [True, False, True]),
    (("formula", "coef"), None),
    (("formula", "coef"), 1.0),
    (("formula", "coef"), [1e400, 0, 0]),
    (("formula", "coef"), [10**400, 0, 0]),
    (("formula", "coef"), json.loads("[" * 400 + "]" * 400)),
    (("formula", "coef"), {"shape": [4], "places": [], "values": []}),
    (("formula", "coef"), {"shape": [3], "places": [3], "values": [1.0]}),
    (("formula", "coef"), {"shape": [3], "places": [-1], "values": [1.0]}),
    (("formula", "coef"), {"shape": [3], "places": [True], "values": [1.0]}),
    (("formula", "coef"), {"shape": [3], "places": [0], "values": [1.0, 2.0]}),
    (("formula", "coef"), {"shape": [3], "places": 0, "values": 1.0}),
    (("formula", "intercept"), "0"),
    (("n_iter",), -1),
    (("n_iter",), True),
    (("formula", "columns"), 4),
    (("formula", "columns"), 0),
    (("formula", "columns"), 10**15),
    (("formula", "columns"), True),
    (("formula", "columns"), []),
    (("formula", "columns"), ["a"]),
    (("formula", "columns"), [1, 2, 3]),
    (("formula", "levels"), [None, None, None]),
    (("formula", "levels"), {"0": ["a", "b"]}),
    (("formula", "levels"), {"0": []}),
    (("formula", "levels"), {"0": [[]]}),
    (("formula", "levels"), {"0": "a"}),
    (("formula", "levels"), {"3": ["a"]}),
    (("formula", "levels"), {"-1": ["a"]}),
    (("formula", "levels"), {"x": ["a"]}),
    (("formula", "fill"), [1, 1]),
    (("formula", "fill"), "0"),
    (("formula", "fill"), None),
    (("formula", "bounds"), [0.0]),
    (("formula", "bounds"), 0.0),
    (("formula", "bounds"), [[0.0, 1.0], 1.0]),
    (("formula", "region"), {"center": 0.0}),
    (("formula", "region"), {"center": 0.0, "scale": 0.0, "reach": 1.0, "length": 1.0}),
    (("formula", "extrapolation"), "linear"),
    (("formula", "link"), "probit"),
    (("formula", "link"), []),
    (("formula", "classes"), None),
    (("formula", "classes"), {"kind": "O"}),
    (("formula", "classes", "kind"), "M"),
    (("formula", "classes", "kind"), []),
    (("formula", "classes", "labels"), [1, 2]),
    (("formula", "classes", "labels"), ["one"]),
    (("formula", "classes", "labels"), [{}, {}]),
    (("parameters",), []),
    (("parameters", "n_jobs"), 1),
    (("parameters", "solver"), {"object": "Popen", "fields": {"args": "id"}}),
    (("parameters", "solver"), {"object": ["L1Ball"], "fields": {}}),
    (("parameters", "domain"), {"object": "L1Ball", "fields": {"radius": -1}}),
    (("parameters", "domain"), {"object": "L1Ball", "fields": {"radius": "big"}}),
    (("parameters", "domain"), {"object": "L1Ball", "fields": {"size": 1}}),
    (("parameters", "domain"), {"object": "GroupBall", "fields": {"groups": [10**15], "radius": 1.0}}),
    (("parameters", "domain"), {"object": "GroupBall", "fields": {"groups": [[0], [10**15]], "radius": 1.0}}),
    (
        ("parameters", "domain"),
        {"object": "GroupCover", "fields": {"groups": [[0], [10**15]], "weights": [1.0, 1.0]}},
    ),
    (("parameters", "domain"), {"object": "FromCallable", "fields": {"function": "print", "size": 10**15}}),
    (("parameters", "categories"), {"pairs": [[[], 1]]}),
    (("parameters", "categories"), {"pairs": [1]}),
    (("parameters", "categories"), {"__reduce__": "x"}),
    (("privacy_statement",), None),
    (("privacy_statement", "epsilon"), "small"),
    (("privacy_statement", "private"), 1),
    (("privacy_statement", "relation"), "none"),
    (("privacy_statement", "mechanisms"), [1]),
    (("privacy_statement", "mechanisms"), [{}]),
    (("privacy_statement", "note"), "trust me"),
    (("privacy_statement", "delta"), DELETED),
]
HOSTILE_OLD = [
    (("schema",), 2),
    (("class",), "PrivateLinearRegression"),
    (("coef",), DELETED),
    (("extra",), 1),
    (("coef",), [1.0]),
    (("coef",), [[1.0], [2.0, 3.0]]),
    (("coef",), ["1", "2", "3"]),
    (("coef",), [True, False, True]),
    (("coef",), None),
    (("coef",), [1e400, 0, 0]),
    (("coef",), [10**400, 0, 0]),
    (("coef",), json.loads("[" * 400 + "]" * 400)),
    (("intercept",), "0"),
    (("n_iter",), -1),
    (("n_iter",), True),
    (("n_features_in",), 4),
    (("feature_names_in",), ["a"]),
    (("feature_names_in",), [1, 2, 3]),
    (("columns",), []),
    (("columns", "levels"), [None, None]),
    (("columns", "levels"), [None, None, [[]]]),
    (("columns", "scale"), [1, 1]),
    (("columns", "more"), 1),
    (("columns", "names"), [1, 2, 3]),
    (("classes",), None),
    (("classes",), {"kind": "O"}),
    (("classes", "kind"), "M"),
    (("classes", "kind"), []),
    (("classes", "labels"), [1, 2]),
    (("classes", "labels"), ["one"]),
    (("classes", "labels"), [{}, {}]),
]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    _, _, path = saved(tmp_path_factory.mktemp("models"), "binary")
    return json.loads(path.read_text())


def test_the_unchanged_content_loads(tmp_path, content):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    assert isinstance(load(path), dpcvx.PrivateLogisticRegression)


@pytest.mark.parametrize(("place", "value"), HOSTILE, ids=lambda part: str(part)[:40])
def test_hostile_content_is_a_value_error(tmp_path, content, place, value):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(changed(content, place, value)))
    with pytest.raises(ValueError):
        load(path)


def of_schema_1(content):
    """The same model in a file as version 0.1 wrote it."""
    formula = content["formula"]
    names = [f"x{j}" for j in range(3)]
    columns = {"levels": [None] * 3, "names": names, **{side: [1.0] * 3 for side in ("low", "high", "scale")}}
    statement = json.loads(json.dumps(content["privacy_statement"]))
    statement["public"]["features"] = names
    statement["bounds"]["bounds"] = {"low": [0.0] * 3, "high": [10.0] * 3}
    parameters = {name: value for name, value in content["parameters"].items() if name != "extrapolation"}
    return {
        "format": "dpcvx.model",
        "schema": 1,
        "class": content["class"],
        "parameters": parameters,
        **{name: formula[name] for name in ("coef", "intercept", "classes")},
        "n_iter": content["n_iter"],
        "n_features_in": 3,
        "feature_names_in": None,
        "columns": {**columns, "center": [5.0] * 3},
        "trim": formula["region"],
        "uncertainty": None,
        "privacy_statement": statement,
    }


def test_a_file_of_schema_1_predicts_the_same_and_is_written_anew(tmp_path, content):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(of_schema_1(content)))
    # Models of that time took the middle of the bounds for missing cells.
    formula = {**content["formula"], "fill": of_schema_1(content)["columns"]["center"]}
    new.write_text(json.dumps({**content, "formula": formula}))
    np.testing.assert_array_equal(load(old).predict_proba(X), load(new).predict_proba(X))
    assert load(old).privacy_statement_ == load(new).privacy_statement_
    load(old).save(old)
    load(new).save(new)
    assert old.read_bytes() == new.read_bytes()


@pytest.mark.parametrize(("place", "value"), HOSTILE_OLD, ids=lambda part: str(part)[:40])
def test_hostile_content_of_schema_1_is_a_value_error(tmp_path, content, place, value):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(changed(of_schema_1(content), place, value)))
    with pytest.raises(ValueError):
        load(path)


@pytest.mark.long
def test_a_wide_file_has_no_redundant_numbers(tmp_path):
    d = 2000
    rows = scipy.sparse.random_array((50, d), density=0.01, rng=np.random.default_rng(0), format="csr")
    model = PrivateLasso(**{**PUBLIC, "bounds": (0, 1)}, **TARGET, solver="frank_wolfe").fit(rows, Y[:50])
    path = tmp_path / "model.json"
    model.save(path)
    assert path.stat().st_size < 10_000  # 300 kB before
    again = load(path)
    assert again.privacy_statement_ == model.privacy_statement_
    assert again.coef_names_.tolist() == model.coef_names_.tolist()
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_a_statement_cannot_be_made_private_in_words_alone(tmp_path, content):
    # The words are computed from the fields, so that text in a file cannot contradict them.
    path = tmp_path / "model.json"
    path.write_text(json.dumps(changed(content, ("privacy_statement", "meaning"), "perfectly private")))
    assert "perfectly private" not in str(load(path).privacy_statement_)
