"""PrivatePreprocessor: a step of a pipeline that one fit covers, or a private transformer of its own."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpcvx as dp

DECLARED = {"bounds": {"income": (0, 1e7), "age": (0, 120)}, "categories": {"sex": ["f", "m"]}}


def people(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 2))
    table = pd.DataFrame(
        {"income": np.exp(10 + scores[:, 0]), "age": 40 + 10 * scores[:, 1], "sex": rng.choice(["f", "m"], n)}
    )
    table.loc[: n // 50, "income"] = np.nan
    return table, scores.sum(axis=1) + 0.5 * rng.normal(size=n)


def regression(**settings):
    return dp.PrivateLinearRegression(**{"epsilon": 4.0, "y_bounds": (-6, 6), "random_state": 0, **settings})


@pytest.mark.filterwarnings("ignore:The released standard deviation of income is within its noise")
def test_a_pipeline_is_the_estimator_with_its_declarations():
    """One plan and one statement: that of the estimator covers the maps."""
    table, y = people()
    pipeline = make_pipeline(dp.PrivatePreprocessor(**DECLARED), regression())
    alone = regression(**DECLARED).fit(table, y)
    fitted = clone(pipeline).fit(table, y)
    assert np.array_equal(fitted.predict(table), alone.predict(table))
    assert fitted[-1].plan_.event == alone.plan_.event
    assert "income[quantiles]" in fitted[-1].coef_names_
    note = "[quantiles]: the coefficient is the effect of one unit"
    assert note in str(alone.summary())
    assert note not in str(regression(**DECLARED | {"maps": None}).fit(table, y).summary())
    assert "NoisyBinCounts" in str(fitted[-1].privacy_statement_)
    assert list(fitted[0].get_feature_names_out()) == ["income", "age", "sex"]
    assert dp.check_pipeline(
        make_pipeline(dp.PrivatePreprocessor(**DECLARED), regression(random_state=None))
    ).safe


def test_persons_of_a_pipeline():
    table, y = people(1000)
    ids = np.arange(1000) // 2
    preprocessor = dp.PrivatePreprocessor(**DECLARED, maps={"income": "log"})
    by_groups = make_pipeline(preprocessor, regression())
    by_groups.fit(table, y, privatelinearregression__groups=ids)
    by_column = make_pipeline(clone(preprocessor), regression(person="id")).fit(table.assign(id=ids), y)
    assert np.array_equal(by_groups[-1].coef_, by_column[-1].coef_)
    assert by_groups[-1].privacy_statement_.to_dict()["public"]["persons"] == 500


def test_a_schema_of_the_preprocessor():
    table, y = people()
    schema = dp.TableSchema(
        {
            "income": dp.NumberColumn((0, 1e7), map="log", missing=30_000),
            "age": dp.NumberColumn((0, 120), map=dp.Ramps([20, 40, 60])),
            "sex": dp.HashedColumn(2),
        }
    )
    fitted = make_pipeline(dp.PrivatePreprocessor(schema=schema), regression(check=0)).fit(table, y)
    assert list(fitted[-1].coef_names_) == ["income[log]", "age[0]", "age[1]", "sex=0", "sex=1"]
    features = dp.PrivatePreprocessor(schema=schema, epsilon=0).fit(table).transform(table)
    assert features.shape == (len(table), 5)
    assert np.isfinite(features).all()


def test_what_is_declared_twice_or_passed_to_others_is_refused():
    table, y = people(500)
    with pytest.raises(dp.Incompatible, match="declared with the data and with the estimator"):
        make_pipeline(dp.PrivatePreprocessor(**DECLARED), regression(bounds=(0, 1))).fit(table, y)
    with pytest.raises(dp.Incompatible, match="directly before a private estimator"):
        make_pipeline(dp.PrivatePreprocessor(**DECLARED), LinearRegression()).fit(table, y)
    with pytest.raises(dp.Incompatible, match="need an epsilon"):
        dp.PrivatePreprocessor(**DECLARED, epsilon=0, maps={"age": dp.PrivateRamps()}).fit(table)


def test_on_its_own_it_releases_maps_medians_and_quartiles_for_its_epsilon(tmp_path):
    table, _ = people()
    account = dp.Ledger(tmp_path / "l.db").create("people", epsilon=2.1, delta=1e-6)
    paying = {"ledger": account.ledger, "account": "people"}
    step = dp.PrivatePreprocessor(**DECLARED, epsilon=2.0, **paying).fit(table)
    assert step.privacy_statement_.certified_epsilon == pytest.approx(2.0)
    assert step.plan(3000, 2).epsilon == pytest.approx(2.0)
    features = step.transform(table)
    assert abs(features[:, :2].mean(axis=0)).max() < 0.3
    assert 0.6 < features[:, :2].std(axis=0).min() <= features[:, :2].std(axis=0).max() < 1.4
    low, high = step.bounds_
    assert (features >= low).all()
    assert (features <= high).all()
    hostile = pd.DataFrame({"income": ["x", None], "age": [1e308, -np.inf], "sex": [3, "f"]})
    assert np.isfinite(step.transform(hostile)).all()
    with pytest.raises(dp.BudgetExceeded):
        clone(step).fit(table)
    with pytest.raises(dp.Incompatible, match="need an epsilon"):
        dp.PrivatePreprocessor(**DECLARED, epsilon=0, maps={"age": "private_ramps"}).fit(table)


@pytest.mark.long
def test_a_search_over_a_pipeline_is_one_over_the_estimator_with_its_declarations():
    table, y = people(800)
    pipeline = make_pipeline(dp.PrivatePreprocessor(**DECLARED), regression(epsilon=None, random_state=None))
    grid = {"privatelinearregression__l2": [0, 0.1], "privatepreprocessor__maps": [{"income": "log"}]}
    given = {"epsilon": 2.0, "random_state": 3, "n_trials": 2}
    search = dp.PrivateSearchCV(pipeline, grid, **given).fit(table, y)
    alone = regression(epsilon=None, random_state=None, **DECLARED)
    own = dp.PrivateSearchCV(alone, {"l2": [0, 0.1], "maps": [{"income": "log"}]}, **given).fit(table, y)
    np.testing.assert_array_equal(search.predict(table), own.predict(table))
    assert search.best_params_["privatelinearregression__l2"] == own.best_params_["l2"]
    assert search.best_estimator_[0].maps == {"income": "log"}
    assert search.privacy_statement_.to_json() == own.privacy_statement_.to_json()


@pytest.mark.parametrize(
    ("steps", "name", "words"),
    [
        ((dp.PrivatePreprocessor(**DECLARED, epsilon=1.0),), "privatelinearregression__l2", "of its own"),
        (
            (StandardScaler(), dp.PrivatePreprocessor(**DECLARED)),
            "privatelinearregression__l2",
            "other steps",
        ),
        ((dp.PrivatePreprocessor(**DECLARED),), "l2", "named after its steps"),
        ((dp.PrivatePreprocessor(**DECLARED),), "privatepreprocessor__epsilon", "named after its steps"),
    ],
)
def test_other_pipelines_are_refused_with_the_reason(steps, name, words):
    table, y = people(50)
    pipeline = make_pipeline(*steps, regression())
    with pytest.raises((TypeError, ValueError), match=words):
        dp.PrivateSearchCV(pipeline, {name: [0, 1]}).fit(table, y)
