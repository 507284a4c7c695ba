"""Regressors of means: counts with exposure, amounts and shares, from fits to tables, files and exports."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import d2_tweedie_score

import dpcvx as dp

pytestmark = pytest.mark.filterwarnings("ignore::dpcvx.PrivacyLeakWarning")
SLOPES = np.array([0.5, -0.3, 0.0])
KINDS = [dp.PrivatePoissonRegressor, dp.PrivateGammaRegressor, dp.PrivateFractionalRegressor]


def people(kind, n=6_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    z = 0.5 + X @ SLOPES
    if kind is dp.PrivatePoissonRegressor:
        return X, rng.poisson(np.exp(z) * rng.gamma(2, 0.5, n))  # overdispersed
    if kind is dp.PrivateGammaRegressor:
        return X, rng.gamma(2, np.exp(z) / 2)
    mean = 1 / (1 + np.exp(-z))
    return X, rng.beta(4 * mean, 4 * (1 - mean))


def model(kind, **more):
    given = {"epsilon": 4.0, "bounds": (-5, 5), "random_state": 1} | more
    if kind is not dp.PrivateFractionalRegressor:
        given.setdefault("y_bounds", (0, 40))
    return kind(**given)


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_and_means_are_those_of_the_model(kind):
    X, y = people(kind)
    fitted = model(kind).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, SLOPES, atol=0.1)
    assert fitted.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)
    assert fitted.intercept_ == pytest.approx(0.5, abs=0.1)


def test_amounts_with_a_long_tail_are_better_than_their_mean():
    """Slopes clipped at 1.7 of the mean predicted half of lognormal costs, at every epsilon."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12_000, 3))
    y = np.exp(X @ SLOPES + 1.4 * rng.normal(size=len(X)))
    fitted = model(dp.PrivateGammaRegressor, y_bounds=(0, 1_000), epsilon=1.0).fit(X, y)
    assert fitted.predict(X).mean() > 0.7 * y.mean()
    assert fitted.score(X, y) > 0.05


@pytest.mark.parametrize(("kind", "power"), [(KINDS[0], 1), (KINDS[1], 2)])
def test_the_score_is_the_share_of_the_deviance(kind, power):
    X, y = people(kind)
    fitted = model(kind).fit(X, y)
    weights = np.random.default_rng(1).uniform(size=len(y))
    for given in (None, weights):
        wanted = d2_tweedie_score(y, fitted.predict(X), power=power, sample_weight=given)
        assert fitted.score(X, y, given) == pytest.approx(wanted)
    y = np.where(np.arange(len(y)) < 10, np.nan, y)
    rest = d2_tweedie_score(y[10:], fitted.predict(X[10:]), power=power)
    assert fitted.score(X, y) == pytest.approx(rest)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_files_and_exports_predict_the_same(kind, tmp_path):
    X, y = people(kind, 2_000)
    fitted = model(kind, uncertainty=0.3).fit(X, y)
    fitted.save(tmp_path / "model.json")
    again = dp.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.predict_interval(X), fitted.predict_interval(X))
    assert str(again.summary()) == str(fitted.summary())
    np.testing.assert_array_equal(fitted.to_sklearn().predict(X), fitted.predict(X))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(fitted.to_onnx().SerializeToString())
    np.testing.assert_allclose(session.run(["prediction"], {"X": X})[0], fitted.predict(X), rtol=1e-9)
    assert {"log": "exp(z)", "logit": "1 / (1 + exp(-z))"}[fitted._link] in str(fitted.formula_)


def counted(n=8_000, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    years = rng.uniform(0.02, 1, n) * 5
    y = rng.poisson(years * np.exp(-1.5 + table.to_numpy() @ SLOPES))
    return table.assign(years=years), y


def with_years(**more):
    return model(dp.PrivatePoissonRegressor, exposure="years", max_exposure=5, y_bounds=(0, 20), **more)


@pytest.mark.long
def test_means_are_proportional_to_the_exposure():
    table, y = counted()
    fitted = with_years().fit(table, y)
    np.testing.assert_allclose(fitted.coef_, SLOPES, atol=0.1)
    assert fitted.intercept_ == pytest.approx(-1.5, abs=0.1)
    assert list(fitted.coef_names_) == ["a", "b", "c"]
    rates = fitted.predict(table[list("abc")])
    np.testing.assert_allclose(fitted.predict(table), rates * table["years"])
    assert "column 'years'" in fitted.privacy_statement_.bounds["exposure"]
    # A model without the exposure explains less.
    plain = model(dp.PrivatePoissonRegressor, y_bounds=(0, 20)).fit(table[list("abc")], y)
    constant = table["years"] * y.sum() / table["years"].sum()
    assert fitted.score(table, y) > 0.1
    assert d2_tweedie_score(y, fitted.predict(table), power=1) > plain.score(table[list("abc")], y) + 0.1
    assert d2_tweedie_score(y, constant, power=1) < d2_tweedie_score(y, fitted.predict(table), power=1)


@pytest.mark.parametrize("cell", [np.nan, 0.0, -1.0, np.inf, 1e300])
def test_no_exposure_stops_a_fit(cell):
    table, y = counted(500)
    table.loc[0, "years"] = cell
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = with_years(epsilon=30.0).fit(table, y)
    assert np.isfinite(fitted.coef_).all()


def test_weights_and_persons_go_with_an_exposure():
    table, y = counted(2_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted = with_years(weight_bounds=(0, 1)).fit(table, y, sample_weight=np.full(2_000, 0.5))
        persons = with_years().fit(table, y, groups=np.repeat(np.arange(1_000), 2))
    for each in (weighted, persons):
        np.testing.assert_allclose(each.coef_, SLOPES, atol=0.35)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"max_exposure": None}, "exposure needs max_exposure"),
        ({"max_exposure": -1}, "exposure needs max_exposure"),
        ({"exposure": None}, "max_exposure needs exposure"),
        ({"exposure": 3}, "exposure must be the name of a column"),
        ({"exposure": "months"}, "names a column of a data frame, which X does not have"),
        ({"backend": "dask"}, "table in memory"),
        ({"y_bounds": None}, r"needs y_bounds=\(0, high\)"),
        ({"solver": "frank_wolfe"}, "No solver fits|does not fit"),
    ],
)
def test_wrong_parameters_are_refused(wrong, match):
    table, y = counted(200)
    with pytest.raises((ValueError, TypeError), match=match):
        with_years().set_params(**wrong).fit(table, y)


def test_shares_have_the_bounds_0_and_1():
    with pytest.raises(ValueError, match=r"y_bounds are \(0, 1\).*100 for percentages"):
        dp.PrivateFractionalRegressor(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 100)).fit([[0.1]], [50])


@pytest.mark.long
def test_the_table_shows_ratios_and_the_dispersion():
    X, y = people(dp.PrivatePoissonRegressor, 10_000)
    fitted = model(dp.PrivatePoissonRegressor, uncertainty=0.3).fit(X, y)
    shown = str(fitted.summary())
    assert "exp(coef)" in shown
    assert "log link" in shown
    assert "variance over mean" in shown
    low, high = fitted.predict_interval(X[:50]).T
    assert (low < np.exp(0.5 + X[:50] @ SLOPES)).mean() > 0.8
    assert (np.exp(0.5 + X[:50] @ SLOPES) < high).mean() > 0.8
    with pytest.raises(ValueError, match="is a model of means"):
        fitted.predict_interval(X, of="observation")


def test_a_constant_is_the_mean_where_records_are_few():
    X, y = people(dp.PrivatePoissonRegressor, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model(dp.PrivatePoissonRegressor, epsilon=1.0).fit(X, y)
    assert fitted.plan_.solver.innermost(fitted.plan_).solver.constant
    assert (fitted.coef_ == 0).all()
    assert 0 < fitted.predict(X[:1]) < 40


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_forecast_and_their_share_is_chosen(kind):
    assert model(kind, uncertainty="auto").plan(5_000, 3).solver.hessian_share is not None
    X, y = people(kind)
    expected = model(kind, uncertainty=0.2).power(len(y), 3, deviations={0: 1.0, 1: 1.0, 2: 1.0}).std_err[1:]
    found = model(kind, uncertainty=0.2).fit(X, y).coef_std_
    assert (found < 3 * expected).all()
    assert (expected < 3 * found).all()


@pytest.mark.long
def test_the_command_line_fits_and_predicts_with_an_exposure(tmp_path, monkeypatch, capsys):
    from dpcvx.cli import main

    table, y = counted(3_000)
    table.assign(visits=y).to_csv(tmp_path / "t.csv", index=False)
    numbers = "\n".join(f'{name} = {{ kind = "number", bounds = [-5, 5] }}' for name in "abc")
    (tmp_path / "t.toml").write_text(f'[target]\ncolumn = "visits"\nbounds = [0, 20]\n[columns]\n{numbers}\n')
    monkeypatch.chdir(tmp_path)

    def run(words):
        monkeypatch.setattr("sys.argv", ["dpcvx", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    fit = "fit t.csv --bounds t.toml --model poisson --exposure years --max-exposure 5 --epsilon 4"
    assert "exp(coef)" in run(f"{fit} --uncertainty 0.2 --out m.json")
    run("predict m.json t.csv --out p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv")["prediction"]
    np.testing.assert_allclose(predicted, dp.load(tmp_path / "m.json").predict(table), rtol=1e-6)


@pytest.mark.parametrize("kind", ["Poisson", "Gamma"])
def test_predicted_means_of_skewed_targets_add_up_to_the_targets(kind):
    """Clipped slopes bend means down: 12 and 15 % without the correction."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (20_000, 2))
    mean = np.exp(0.5 * X[:, 0] + 0.5 + 1.2 * rng.normal(size=20_000) - 0.72)
    y = np.minimum(rng.poisson(mean) if kind == "Poisson" else mean, 80)
    settings = {"epsilon": 2.0, "bounds": (-1, 1), "y_bounds": (0, 80), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skewed amounts
        model = getattr(dp, f"Private{kind}Regressor")(**settings).fit(X, y)
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.06)
    assert model.privacy_statement_.epsilon <= 2.0


@pytest.mark.parametrize("kind", ["Poisson", "Gamma", "Fractional"])
@pytest.mark.long
def test_d2_is_released_with_standard_errors_and_its_interval_covers_that_of_the_records(kind):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (8000, 2))
    mean = np.exp(X[:, 0] - 0.5)
    y = {"Poisson": rng.poisson(3 * mean), "Gamma": mean * rng.gamma(3, 1 / 3, 8000)}.get(kind, mean / 2)
    settings = {"epsilon": 4.0, "bounds": (-1, 1), "random_state": 0, "uncertainty": 0.2}
    if kind != "Fractional":
        settings["y_bounds"] = (0, 40)
    model = getattr(dp, f"Private{kind}Regressor")(**settings).fit(X, y)
    low, high = model.r2_interval()
    assert f"{model.r2_:.3f} [{low:.3f}, {high:.3f}]" in str(model.summary())
    assert "\nD²" in str(model.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = model.score(X, y)
    assert low - 0.01 < exact < high + 0.01
    assert high - low < 0.5


@pytest.mark.parametrize("kind", KINDS[:2])
def test_shards_of_numbers_serve_models_of_amounts(kind, tmp_path):
    """Stored targets are in [-1, 1]; they were refused."""
    X, y = people(kind, 1_000)
    parts = [(X[i : i + 250], y[i : i + 250]) for i in range(0, 1_000, 250)]
    shards = dp.from_batches(parts, store=tmp_path / "shards", bounds=(-5, 5), y_bounds=(0, 40))
    given = {"maps": "none", "check": 0}
    from_shards = kind(epsilon=4.0, random_state=1, **given).fit(shards)
    np.testing.assert_allclose(from_shards.coef_, model(kind, **given).fit(X, y).coef_, atol=1e-3)


def test_an_exposure_beyond_memory_is_refused_with_the_reason():
    import polars

    lazy = polars.LazyFrame({"a": [1.0], "years": [1.0]})
    given = model(KINDS[0], exposure="years", max_exposure=2, bounds={"a": (0, 1)})
    with pytest.raises(dp.Incompatible, match="stored without exposures"):
        given.fit(lazy, [1.0])


def test_standard_errors_that_noise_will_hide_are_told_before_they_are_paid_for():
    X, y = people(KINDS[0], 1_000)
    given = model(KINDS[0], epsilon=0.5, uncertainty=0.2, account="nobody", ledger="sqlite:///nowhere/x.db")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dp.UselessModelWarning, match="standard errors will probably say nothing"):
            given.fit(X, y)


@pytest.mark.long
def test_intervals_of_a_skewed_column_cover_its_effect():
    """Cells were clipped beyond three standard deviations: the mean distance was 3.5 standard errors."""
    n, away = 20_000, []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.column_stack([-rng.exponential(size=n), rng.normal(size=n)])
        y = rng.gamma(3, np.exp(1 + X @ [0.5, 0.2]) / 3)
        given = {"epsilon": 8.0, "bounds": ([-12, -5], [0, 5]), "y_bounds": (0, 100), "uncertainty": 0.2}
        fitted = model(dp.PrivateGammaRegressor, **given, random_state=seed).fit(X, y)
        away.append((fitted.coef_debiased_ - [0.5, 0.2]) / fitted.coef_std_)
    assert np.abs(np.mean(away, axis=0)).max() < 1.5
