"""Expected standard errors before a fit: from public numbers, in units, and about as large as real ones."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.data import MomentSum
from dpcvx.data.magnified import Magnified
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.losses import Logistic


def linear(**changes):
    settings = {"epsilon": 4.0, "bounds": (0, 10), "y_bounds": (-20, 40), "uncertainty": 0.3, "check": 0}
    return dp.PrivateLinearRegression(**{**settings, **changes})


@pytest.fixture(scope="module")
def forecast():
    known = {"deviations": {"a": 1.0, "b": 2.0}, "correlation": 0.0, "target_deviation": 4.0, "r2": 0.25}
    return linear().power(20_000, ["a", "b"], **known)


def test_errors_without_privacy_are_those_of_the_textbook(forecast):
    error = 4.0 * math.sqrt(0.75) / math.sqrt(20_000)
    np.testing.assert_allclose(forecast.sampling[1:], [error, error / 2], rtol=0.05)
    assert forecast.names == ("Intercept", "a", "b")
    assert (forecast.multiple > 1).all()
    np.testing.assert_allclose(forecast.smallest_effect, (1.959964 + 0.841621) * forecast.std_err, rtol=1e-6)
    np.testing.assert_allclose(forecast.width, 2 * 1.959964 * forecast.std_err, rtol=1e-6)


def test_the_table_states_the_assumptions(forecast):
    content = forecast.to_dict()
    assert content["facts"]["records"] == "20,000"
    assert "a 1, b 2" in content["facts"]["assumed"]
    assert "25%" in content["facts"]["assumed"]
    assert "twelfth" in content["facts"]["cautious"]
    assert list(content["rows"][0])[1:5] == ["std err", "up to", "without privacy", "multiple"]
    assert "smallest effect" in str(forecast)
    assert repr(forecast) == str(forecast)
    assert "a sixth" in str(linear().power(20_000, 2))


def test_the_assumption_about_weights_is_stated(forecast):
    assert "weight" not in str(forecast)
    weighted = linear(weight_bounds=(0, 3)).power(20_000, ["a", "b"], mean_weight=0.6)
    assert "the mean weight is 0.2 of the largest one" in " ".join(str(weighted).split())
    assert (weighted.std_err > 2 * forecast.std_err).all()


@pytest.mark.parametrize("left", ["log(y)", "log1p(y)"])
def test_errors_of_a_transformed_target_are_in_its_units(left):
    """Simulated targets are those that the left side gives: they used to be transformed a second time."""
    columns = {"a": dp.NumberColumn((0, 10)), "y": dp.NumberColumn((1, 1000))}
    schema = dp.TableSchema(columns, target="y").with_formula(f"{left} ~ a")
    found = linear(y_bounds=None, schema=schema, bounds=None).power(20_000, ["a"])
    low, high = schema.target_parameters()["y_bounds"]
    plain = linear(y_bounds=(low, high), bounds={"a": (0, 10)}).power(20_000, ["a"])
    np.testing.assert_allclose(found.std_err, plain.std_err, rtol=1e-3)
    assert (found.multiple > 1).all()


def test_nothing_is_charged_and_the_model_stays_as_it_was(tmp_path):
    ledger = dp.Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=4.0, delta=1e-6)
    model = linear(ledger=ledger, account="people")
    model.power(5000, 2)
    assert not account.history()
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({"uncertainty": 0}, {}, "uncertainty=0.2"),
        ({"bounds": "private"}, {}, "private bounds"),
        ({}, {"deviations": {"c": 1.0}}, "no column"),
        ({}, {"deviations": {"a": -1.0}}, "positive"),
        ({}, {"r2": 1.5}, "r2"),
        ({}, {"shares": {"a": 0.5}}, "neither levels"),
        ({}, {"shares": {"c": 0.5}}, "no column"),
        ({"bounds": (0, 1)}, {"shares": {"a": 1.5}}, "between 0 and 1"),
        ({}, {"mean_weight": 1.0}, "weight_bounds"),
        ({"weight_bounds": (0, 2)}, {"mean_weight": 3.0}, "at most the largest"),
        ({}, {"power": 80}, "power"),
    ],
)
def test_what_cannot_be_foretold_is_refused(changes, arguments, says):
    with pytest.raises((Incompatible, WrongValue), match=says):
        linear(**changes).power(5000, ["a", "b"], **arguments)


def test_a_magnified_sample_has_the_sums_of_its_copies():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (20, 3)), rng.choice([-1.0, 1.0], 20)
    few = Magnified(dp.source(X, y, bounds=dp.Bounds(1.0)), 3, 60)
    many = dp.source(np.tile(X, (3, 1)), np.tile(y, 3), bounds=dp.Bounds(1.0))
    question = MomentSum(2, np.zeros(3, dtype=np.int64), np.full(3, 2**14))
    np.testing.assert_array_equal(few.sum(question), many.sum(question))
    losses, all_losses = (each.objective(Logistic(), 1, 10.0) for each in (few, many))
    theta = np.array([0.5, -1.0, 2.0])
    assert losses.value(theta) == pytest.approx(all_losses.value(theta))
    np.testing.assert_allclose(losses.gradient(theta), all_losses.gradient(theta))
    np.testing.assert_allclose(losses.hessian(theta), all_losses.hessian(theta))
    assert (losses.n, few.n, few.d) == (60, 60, 3)


@pytest.mark.long
def test_needed_records_and_epsilon_are_enough(forecast):
    wanted = 0.85 * forecast.width[1]
    n, epsilon = forecast.needed(wanted, "a")
    assert n > 20_000
    assert epsilon > 4.0
    assert forecast.again(n, 4.0).width[1] <= wanted * 1.05
    assert forecast.again(20_000, epsilon).width[1] <= wanted * 1.05
    assert forecast.needed(1e9, "a") == (20_000, 4.0)
    assert forecast.needed(1e-9, "a") == (None, None)
    with pytest.raises(WrongValue, match="no coefficient"):
        forecast.needed(1.0, "c")


@pytest.mark.long
def test_a_picture_is_drawn(forecast):
    from dpcvx.report.plots import precision_plot

    assert precision_plot(forecast).startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize(("n", "epsilon"), [(20_000, 1.0), (20_000, 4.0), (100_000, 0.5)])
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_standard_errors_come_out_as_foretold(kind, n, epsilon):
    """Features of another distribution, and of linear models other effects: within 20 % all the same."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (n, 3))
    settings = {"epsilon": epsilon, "bounds": (-5, 15), "uncertainty": 0.3, "check": 0}
    spread = {j: 10 / math.sqrt(12) for j in range(3)}
    if kind == "linear":
        y = X @ [1.0, 0.0, -0.3] + rng.normal(0, 4, n)
        model = dp.PrivateLinearRegression(y_bounds=(-40, 60), **settings)
        assumed = {"target_deviation": float(y.std()), "r2": 1 - 16 / float(y.var())}
    else:
        z = 0.3 * (X[:, 0] + X[:, 1] - X[:, 2] - 5)  # where effects differ, errors do too
        y, assumed = (rng.logistic(size=n) < z).astype(int), {"share": 0.5}
        model = dp.PrivateLogisticRegression(classes=(0, 1), **settings)
    foretold = model.power(n, 3, deviations=spread, correlation=0.0, **assumed)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(5):
            model.set_params(random_state=seed).fit(X, y)
            found.append(model.coef_std_)
    np.testing.assert_allclose(foretold.std_err[1:], np.median(found, axis=0), rtol=0.2)


@pytest.mark.long
def test_the_automatic_share_is_the_one_with_the_smallest_errors(tmp_path):
    """Ten features of few records need a large share of a small budget, three of many do not."""
    shares = {}
    for n, d in ((20_000, 3), (5_000, 10)):
        model = linear(epsilon=1.0, uncertainty="auto")
        shares[d] = dict(model.power(n, d).facts)["uncertainty"]
        assert str(linear(epsilon=1.0, uncertainty=True).plan(n, d)) == str(model.plan(n, d))
    assert shares[3] in ("10% of the budget", "20% of the budget")
    assert shares[10] in ("30% of the budget", "40% of the budget", "50% of the budget")
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (5000, 2))
    model = linear(uncertainty="auto", random_state=0).fit(X, X.sum(axis=1))
    model.save(tmp_path / "model.json")
    again = dp.load(tmp_path / "model.json")
    assert again.uncertainty == "auto"
    assert str(again.summary()) == str(model.summary())


@pytest.mark.parametrize("wrong", ["much", 1, -0.1, math.nan])
def test_a_share_is_auto_or_a_number_below_one(wrong):
    with pytest.raises(WrongValue, match="uncertainty"):
        linear(uncertainty=wrong).plan(5000, 2)


@pytest.mark.long
@pytest.mark.parametrize(("n", "warned"), [(300, True), (20_000, False)])
def test_hidden_standard_errors_are_foretold(n, warned):
    """The simulation that chooses the share of the budget knows that nothing will be seen."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (n, 6)), rng.choice([0, 1], n)
    model = dp.PrivateLogisticRegression(
        epsilon=0.5, bounds=(-1, 1), classes=(0, 1), uncertainty="auto", random_state=0
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert any("standard errors will probably say nothing" in str(each.message) for each in found) == warned
    assert any("will probably say nothing" in note for note in model.plan(n, 6).notes) == warned


def test_the_plan_of_a_fixed_share_says_if_noise_surely_hides_all():
    """200 columns of 5,000 records at epsilon 1: every standard error was as large as the set."""
    (note,) = linear(epsilon=1.0).plan(5000, 200).notes
    assert "standard errors will probably say nothing" in note
    assert not linear().plan(20_000, 5).notes


@pytest.mark.long
def test_the_plan_says_what_noise_hides_and_how_many_records_are_needed():
    """Counts of records and epsilon that are named are enough, and fewer are not."""
    model = linear(epsilon=1.0, bounds=(-10, 10), y_bounds=(-10, 10), uncertainty=0.2)
    (note,) = model.plan(2000, 5).notes
    assert "standard errors will probably say nothing" in note
    enough = int(re.search(r"about ([\d,]+) records", note)[1].replace(",", ""))
    assert not any("say nothing" in each for each in model.plan(enough, 5).notes)
    assert any("say nothing" in each for each in model.plan(enough // 2, 5).notes)
    (maybe,) = model.plan(enough, 5).notes
    assert "noise may hide" in maybe
    assert not linear(uncertainty=0.2).plan(200_000, 2).notes


def test_what_hides_something_is_not_named_as_enough(forecast):
    """Two runs may see what one of five did not: a table with notes used to advise its own n and epsilon."""
    seen = dataclasses.replace(forecast, again=lambda n, epsilon: forecast)
    assert seen.seen_with == (20_000, 4.0)
    sometimes = dataclasses.replace(seen, hidden=np.array([0.0, 0.2, 0.0]))
    assert sometimes.seen_with == (30_000, 6.0)
    assert "about 30,000 records" in " ".join(str(sometimes).split())


def test_a_fit_warns_before_it_pays_that_noise_will_hide_errors(tmp_path):
    ledger = dp.Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=4.0, delta=1e-4)
    X = np.random.default_rng(0).uniform(0, 10, (1000, 5))
    model = linear(epsilon=1.0, ledger=ledger, account="people")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dp.UselessModelWarning, match="standard errors will probably say nothing"):
            model.fit(X, X[:, 0])
    assert not account.history()


def ones(**settings):
    """Four columns of 0 and 1, whose standard errors are hidden in less favourable records only."""
    return dp.PrivateLogisticRegression(
        epsilon=1.0, bounds=(0, 1), classes=(0, 1), uncertainty=0.1, random_state=0, **settings
    )


def test_a_fit_warns_before_it_pays_that_noise_may_hide_errors():
    """Twelve columns of real accidents had errors of 12 to 2,300: the plan said so, and nothing else did."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (6000, 4)), rng.integers(0, 2, 6000)
    model = ones()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dp.UselessModelWarning, match="Noise may hide all standard errors"):
            model.fit(X, y)
    assert not hasattr(model, "coef_")


@pytest.mark.long
def test_the_note_of_a_plan_uses_the_facts_that_are_given():
    """It spoke of usual records beside a table of a rare class that was hidden in all runs."""
    names = ["a", "b", "c", "d"]
    (note,) = ones().plan(6000, names).notes
    assert "but not in one of usual records" in note
    (note,) = ones().plan(6000, names, assumed={"share": 0.01}).notes
    assert "will probably say nothing: noise hides how records with the given facts vary" in note
    known = {"share": 0.5, "shares": dict.fromkeys(names, 0.5), "correlation": 0.0}
    assert not ones().plan(6000, names, assumed=known).notes
    ordered = dp.PrivateOrdinalClassifier(epsilon=1.0, bounds=(0, 1), classes=(0, 1, 2), uncertainty=0.1)
    assert ordered.plan(6000, names, assumed={"share": 0.02}).notes != ordered.plan(6000, names).notes


@pytest.mark.long
def test_the_automatic_share_is_larger_where_it_saves_less_favourable_records():
    """The smallest errors of usual records are those of a tenth; real ones were then six times as large."""
    numbers = {"age": (15, 50), "educ": (0, 20), "children": (0, 15)}
    settings = {
        "epsilon": 4.0,
        "bounds": numbers | dict.fromkeys(("urban", "tv", "radio", "evermarr"), (0, 1)),
        "classes": (0, 1),
    }
    names = [*settings["bounds"]]
    tenth = dp.PrivateLogisticRegression(uncertainty=0.1, **settings)
    (note,) = tenth.plan(4358, names).notes
    assert note.startswith("noise may hide")
    automatic = dp.PrivateLogisticRegression(uncertainty="auto", **settings)
    plan = automatic.plan(4358, names)
    assert plan.solver.hessian_share > 0.1
    assert not any(note.startswith("noise may hide all") for note in plan.notes)
    usual = [model.power(4358, names).typical_error for model in (tenth, automatic)]
    assert usual[0] < usual[1] < 1.25 * usual[0]


def test_weights_that_differ_much_are_named_as_a_reason():
    forecast = linear(weight_bounds=(0, 2000)).power(20_000, ["a", "b"], mean_weight=10.0)
    assert (forecast.hidden > 0.5).all()
    assert "a smaller largest weight" in " ".join(str(forecast).split())


def test_rare_ones_and_close_correlation_make_errors_larger():
    model = linear(bounds=(0, 1))
    usual = model.power(20_000, ["a", "b"], shares={"a": 0.5, "b": 0.5}, correlation=0.0)
    rare = model.power(20_000, ["a", "b"], shares={"a": 0.05, "b": 0.5}, correlation=0.0)
    close = model.power(20_000, ["a", "b"], shares={"a": 0.5, "b": 0.5}, correlation=0.95)
    assert rare.std_err[1] > 2 * usual.std_err[1]
    assert 0.8 < rare.std_err[2] / usual.std_err[2] < 1.3
    assert (close.std_err[1:] > 1.3 * usual.std_err[1:]).all()
    assert (usual.up_to >= usual.std_err).all()


def test_levels_have_the_shares_that_are_given():
    columns = {"bounds": {}, "categories": {"region": ["north", "south", "west"]}}
    few = linear(**columns).power(20_000, ["region"], shares={"region": {"west": 0.02}})
    many = linear(**columns).power(20_000, ["region"], shares={"region": {"west": 0.4}})
    place = few.names.index("region=west")
    assert few.sampling[place] > 2.5 * many.sampling[place]
    with pytest.raises(WrongValue, match="those of its levels"):
        linear(**columns).power(20_000, ["region"], shares={"region": {"east": 0.4}})


@pytest.mark.long
@pytest.mark.parametrize("max_rows", [None, 2])
def test_standard_errors_of_persons_are_foretold(max_rows):
    """The simulated rows belong to persons, as the plan says; the automatic share is found with them."""
    expected = linear(person="id", max_rows=max_rows).power(2000, ["a", "b"]).std_err
    assert (np.isfinite(expected) & (expected > 0)).all()
    X = np.random.default_rng(0).uniform(0, 10, (1000, 2))
    fitted = linear(uncertainty="auto", max_rows=max_rows).fit(X, X[:, 0], groups=np.arange(1000) // 2)
    assert np.isfinite(fitted.coef_std_).all()
