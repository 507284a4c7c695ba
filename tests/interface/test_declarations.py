"""Declarations of data and estimator: merged for a fit, and never written into the user's estimator."""

import threading

import numpy as np
import pytest

import dpcvx
from dpcvx import Incompatible, PrivateLinearRegression, PrivateLogisticRegression
from dpcvx.data.dataset import InMemory
from dpcvx.data.declarations import Declarations
from dpcvx.data.proposals import propose_column, propose_model

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 2))
Y = X[:, 0] + RNG.normal(0, 0.1, 400)


class Declared(InMemory):
    """Records in memory that come with declarations, and a hook that runs when they are read."""

    def __init__(self, X, y, declarations, hook=lambda: None):
        super().__init__(X, y)
        self.declarations, self.hook = declarations, hook

    def source(self, *facts):
        self.hook()
        return super().source(*facts)


def stated(model):
    return model.get_params(deep=False)


def test_what_the_data_declare_is_used_and_not_written_into_the_estimator():
    model = PrivateLinearRegression(epsilon=5.0, random_state=0)
    before = stated(model)
    model.fit(Declared(X, Y, {"bounds": (-2, 2), "y_bounds": (-3, 3)}))
    assert stated(model) == before
    assert model.privacy_statement_.bounds["bounds"]["low"] == [-2.0, -2.0]
    whole = PrivateLinearRegression(epsilon=5.0, random_state=0, bounds=(-2, 2), y_bounds=(-3, 3)).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_fit_leaves_the_parameters_untouched(interruption):
    def stop():
        assert (model.bounds, model.y_bounds) == (None, None)
        raise interruption

    model = PrivateLinearRegression(epsilon=5.0)
    before = stated(model)
    with pytest.raises(interruption):
        model.fit(Declared(X, Y, {"bounds": (-1, 1), "y_bounds": (-3, 3)}, stop))
    assert stated(model) == before
    assert not hasattr(model, "coef_")


def test_two_threads_fit_one_estimator_to_differently_declared_data(monkeypatch):
    """Both read their records at the same time, and each with its own declarations."""
    model = PrivateLinearRegression(epsilon=5.0, random_state=0)
    meeting, found = threading.Barrier(2, timeout=60), {}
    publish = PrivateLinearRegression._publish

    def publishing(self, release, made):
        found[made.stated.bounds[1]] = release.theta
        publish(self, release, made)

    monkeypatch.setattr(PrivateLinearRegression, "_publish", publishing)
    pairs = [((-1, 1), (-3, 3)), ((-4, 4), (-5, 5))]
    threads = [
        threading.Thread(target=model.fit, args=(Declared(X, Y, {"bounds": x, "y_bounds": y}, meeting.wait),))
        for x, y in pairs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (model.bounds, model.y_bounds) == (None, None)
    together = dict(found)
    for x, y in pairs:
        PrivateLinearRegression(epsilon=5.0, random_state=0, bounds=x, y_bounds=y).fit(X, Y)
        np.testing.assert_array_equal(together[x[1]], found[x[1]])


def test_a_declaration_has_one_place():
    data = Declared(X, Y, {"bounds": (-1, 1), "y_bounds": (-3, 3)})
    with pytest.raises(Incompatible, match="bounds is declared with the data and with the estimator"):
        PrivateLinearRegression(epsilon=1.0, bounds=(-1, 1)).fit(data)
    with pytest.raises(Incompatible, match="declare y_bounds, which PrivateLogisticRegression does not have"):
        PrivateLogisticRegression(epsilon=1.0, classes=(0, 1)).fit(data)


def test_declarations_are_parameters_of_estimators():
    names = set(vars(Declarations()))
    assert names <= set(stated(PrivateLinearRegression())) | set(stated(PrivateLogisticRegression()))


@pytest.mark.parametrize(
    "model",
    [
        dpcvx.PrivateLasso(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 1)),
        dpcvx.PrivateLinearSVC(epsilon=1.0, bounds=(-1, 1), classes=("a", "b", "c")),
        PrivateLinearRegression(epsilon=9.0, bounds="private", y_bounds="private"),
    ],
)
@pytest.mark.filterwarnings("ignore:The released")  # the records are not made for these bounds
def test_an_estimator_plans_without_data_as_it_plans_with_them(model):
    n = 3000
    rows = np.zeros((n, 2))
    y = np.resize(["a", "b", "c"], n) if hasattr(model, "classes") else np.zeros(n)
    planned = model.plan(n, 2)
    assert planned == model.set_params(random_state=0).fit(rows, y).plan_


def test_a_plan_knows_columns_by_name():
    model = PrivateLogisticRegression(
        epsilon=1.0, bounds={"age": (0, 100)}, categories={"sex": ["f", "m"]}, classes=(0, 1)
    )
    assert model.plan(10_000, ["age", "sex"]).problem.d >= 2
    with pytest.raises(ValueError, match="bounds are missing for column"):
        model.plan(10_000, ["age", "sex", "height"])
    with pytest.raises(ValueError, match="at least 1"):
        model.plan(0, ["age", "sex"])


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("has_insurance", "logistic"),
        ("marital_status", "logistic"),
        ("doctorVisits", "poisson"),
        ("children", "poisson"),
        ("share_of_food", "fractional"),
        ("wage", None),
        ("age", "linear"),
    ],
)
def test_a_model_is_proposed_by_the_name_of_the_target(name, model):
    assert propose_model(name, propose_column(name).column) == model


def test_a_target_that_the_file_declares_as_a_number_has_the_linear_model():
    assert propose_model("wage", propose_column("wage", "number").column, "number") == "linear"
    assert propose_model("dead", propose_column("dead", "text").column, "text") == "logistic"


@pytest.mark.parametrize(
    "name",
    ["uid", "patient_uid", "UUID", "comment", "caseid", "CASEID", "hhid", "pid", "idnum", "customerId"],
)
def test_identifiers_and_free_text_are_ignored(name):
    proposal = propose_column(name)
    assert proposal.column.kind == "ignored"
    assert "an identifier or free text by its name" in proposal.note


@pytest.mark.parametrize(
    ("name", "kind", "bounds"),
    [
        ("TV hours/day", "number", (0, 24)),
        ("minutes_per_day", "number", (0, 1440)),
        ("hours", "number", (0, 100)),
        ("day", "date", "?"),
        ("day of visit", "date", "?"),
        ("arrival_time", "date", "?"),
        ("lead_time", "number", "?"),
        ("time_to_delivery", "number", "?"),
        ("day_length", "number", "?"),
    ],
)
def test_amounts_of_time_are_no_date(name, kind, bounds):
    column = propose_column(name).column
    assert (column.kind, column.bounds) == (kind, bounds)


@pytest.mark.parametrize("name", ["paid", "valid", "covid", "medicaid", "kids", "thyroid", "ideal"])
def test_words_that_only_end_like_an_identifier_are_used(name):
    assert propose_column(name).column.kind == "number"


@pytest.mark.parametrize("name", ["year", "yearVeh", "yearacc", "birthyear", "schoolYear", "yr"])
def test_years_have_the_bounds_of_calendar_years(name):
    proposal = propose_column(name)
    assert proposal.column.bounds == (1900, 2030)
    assert "calendar years" in proposal.note


@pytest.mark.parametrize("name", ["yearsmarried", "years", "yearlyPay"])
def test_durations_in_years_are_no_calendar_years(name):
    assert propose_column(name).column.bounds == "?"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("c_city", "boolean"), ("in_town", "boolean"), ("not_smsa", "boolean"), ("birth_city", "hashed")],
)
def test_whether_somebody_lives_in_a_city_is_no_name_of_one(name, kind):
    assert propose_column(name).column.kind == kind
