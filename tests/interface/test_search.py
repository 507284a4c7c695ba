"""PrivateSearchCV and private_score as scikit-learn's users meet them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.utils.metadata_routing import get_routing_for_object

import dpcvx
from dpcvx.errors import UselessModelWarning
from dpcvx.solvers import NoisySVRG
from dpcvx.tuning import PrivateSearchCV, private_tune

pytestmark = pytest.mark.long

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 3))
Y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
T = X @ [1.0, -2.0, 0.5]
GRID = {"radius": [1.0, 10.0]}


def logistic(**settings):
    base = {"epsilon": 2.0, "bounds": (-1, 1), "classes": (0, 1), "n_iter": 2}
    return dpcvx.PrivateLogisticRegression(**{**base, **settings})


def searching(estimator=None, grid=None, **settings):
    settings = {"n_trials": 2.0, **settings}
    return PrivateSearchCV(estimator or logistic(), grid or GRID, **settings)


@pytest.fixture(scope="module")
def fitted():
    return searching().fit(X, Y)


def test_it_stands_where_grid_search_stood(fitted):
    assert fitted.best_params_["radius"] in GRID["radius"]
    assert fitted.best_estimator_.radius == fitted.best_params_["radius"]
    assert 0 <= fitted.best_score_ <= 1
    assert fitted.predict(X).shape == (300,)
    assert fitted.predict_proba(X).shape == (300, 2)
    assert np.array_equal(fitted.decision_function(X), fitted.best_estimator_.decision_function(X))
    assert np.allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X))
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.n_features_in_ == 3
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        assert 0.3 < fitted.score(X, Y) <= 1
    assert not hasattr(fitted, "cv_results_")
    assert 0 < fitted.best_score_error_ < 1


def test_clones_parameters_and_tags():
    search = searching(scoring="neg_log_loss")
    copy = clone(search).set_params(estimator__l2=0.1)
    assert copy.estimator.l2 == 0.1
    assert search.estimator.l2 == 0
    assert copy.get_params()["estimator__n_iter"] == 2
    assert is_classifier(search)
    assert is_regressor(PrivateSearchCV(dpcvx.PrivateLasso(), {}))
    with pytest.raises(NotFittedError):
        search.predict(X)
    assert not hasattr(PrivateSearchCV(dpcvx.PrivateLasso(), {}), "predict_proba")
    assert get_routing_for_object(search) is not None


def test_it_can_be_cross_validated_itself():
    assert cross_val_predict(searching(), X, Y, cv=2).shape == (300,)


NAMES = ["a", "b", "c"]
TABLES = {
    "pandas": (pd.DataFrame(X, columns=NAMES), pd.Series(Y)),
    "polars": (pl.DataFrame(X, schema=NAMES), pl.Series(Y)),
    "arrow": (pa.table({name: X[:, j] for j, name in enumerate(NAMES)}), pa.array(Y)),
    "sparse": (sp.csr_array(X), Y),
    "coordinates": (sp.coo_matrix(X), Y),
    "lists": (X.tolist(), Y.tolist()),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", TABLES)
def test_rows_of_every_kind_give_the_same_search(kind):
    table, target = TABLES[kind]
    search = searching(random_state=4).fit(table, target)
    dense = searching(random_state=4).fit(X, Y)
    assert search.best_params_ == dense.best_params_
    assert search.best_estimator_.coef_ == pytest.approx(dense.best_estimator_.coef_)
    if kind in ("pandas", "polars", "arrow"):
        assert search.feature_names_in_.tolist() == NAMES
    else:
        assert not hasattr(search, "feature_names_in_")


def test_regressors_multinomials_and_scores_of_all_names():
    lasso = dpcvx.PrivateLasso(epsilon=2.0, bounds=(-1, 1), y_bounds=(-4, 4), n_iter=2)
    for scoring in (None, "neg_mean_absolute_error", "neg_root_mean_squared_error"):
        assert not searching(lasso, scoring=scoring).fit(X, T).best_score_ > 1  # NaN where noise hides it
    three = logistic(classes="from_y")
    statement = searching(three, scoring="balanced_accuracy").fit(X, Y + (X[:, 0] > 0.5)).privacy_statement_
    assert statement.bounds["classes"] == [0, 1, 2]
    assert statement.bounds["classes_are"] == "taken from y and declared public"


def test_settings_may_be_drawn_and_listed_in_several_grids():
    drawn = searching(grid={"radius": stats.uniform(1, 9)}, random_state=1).fit(X, Y)
    assert 1 <= drawn.best_params_["radius"] <= 10
    several = searching(grid=[{"radius": [2.0]}, {"l2": [0.5]}], random_state=1).fit(X, Y)
    assert several.best_params_ in ({"radius": 2.0}, {"l2": 0.5})


def test_the_functional_form():
    tuned = private_tune(logistic(), GRID, X, Y, n_trials=2.0, random_state=4)
    search = searching(random_state=4).fit(X, Y)
    assert (tuned.params, tuned.score) == (search.best_params_, search.best_score_)
    assert tuned.model.privacy_statement_ is tuned.statement


def test_the_statement_is_that_of_the_search(fitted, tmp_path):
    text = str(fitted.privacy_statement_)
    assert "chosen by private tuning" in text
    assert "epsilon = 2, delta = 1e-05" in text
    assert "geometric law, 2 on average" in text
    assert "NoisyScore" in text
    assert "NoisyGradient" in text
    fitted.best_estimator_.save(tmp_path / "model.json")
    again = dpcvx.load(tmp_path / "model.json")
    assert again.privacy_statement_ == fitted.privacy_statement_
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert "NOT PRIVATE" in str(searching(random_state=1).fit(X, Y).privacy_statement_)


def test_the_price_may_be_the_estimators_or_the_searchs():
    own = searching(logistic(epsilon=None), epsilon=0.5, delta=1e-4).fit(X, Y).privacy_statement_
    assert (own.epsilon, own.delta) == (0.5, 1e-4)
    assert own.public["delta_rule"] == "given"
    with pytest.raises(ValueError, match=r"epsilon of the search is 1.0, that of its estimator 2.0"):
        searching(epsilon=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="needs epsilon"):
        searching(logistic(epsilon=None)).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": {"epsilon": [1.0, 2.0]}}, "epsilon is not tuned"),
        ({"grid": {"classes": [(0, 1)]}}, "classes is not tuned"),
        ({"grid": {"C": [1.0]}}, "C is no parameter"),
        ({"grid": [{}]}, "param_grid must be"),
        ({"grid": "radius"}, "param_grid must be"),
        ({"n_trials": 1}, "n_trials must be"),
        ({"n_trials": True}, "n_trials must be"),
        ({"distribution": "uniform"}, "distribution must be one of geometric"),
        ({"test_size": 1.0}, "test_size must be"),
        ({"test_size": 0.0001}, "leaves one part empty"),
        ({"scoring": "f1"}, "scoring must be one of accuracy"),
        ({"scoring": "r2"}, "scoring must be one of accuracy"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        searching(**settings).fit(X, Y)


def test_records_that_cannot_be_split_are_refused_before_their_declarations_are_missed(tmp_path):
    shards = dpcvx.from_batches([(X, Y)], bounds=(-1, 1), classes=(0, 1), store=tmp_path / "shards")
    with pytest.raises(dpcvx.Incompatible, match="rows that are in memory"):
        searching(dpcvx.PrivateLogisticRegression(epsilon=1.0)).fit(shards)


def test_what_cannot_be_tuned_is_refused():
    with pytest.raises(TypeError, match="needs an estimator of dpcvx, got LogisticRegression"):
        searching(LogisticRegression(), {"C": [1.0]}).fit(X, Y)
    machine = dpcvx.PrivateLinearSVC(epsilon=1.0, bounds=(-1, 1), classes=(0, 1))
    with pytest.raises(TypeError, match="needs probabilities"):
        searching(machine, scoring="neg_log_loss").fit(X, Y)
    with pytest.raises(TypeError, match="sample_weight"):
        searching().fit(X, Y, sample_weight=np.ones(300))


def test_a_search_that_promises_nothing_warns_once_and_before_it_is_charged(tmp_path):
    dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=0.01, delta=1e-6)
    poor = logistic(epsilon=0.1, n_iter=None, ledger=tmp_path / "l.db", account="people")
    with (
        pytest.warns(UselessModelWarning, match="none of the settings") as heard,
        pytest.raises(dpcvx.BudgetExceeded),
    ):
        searching(poor, n_trials=9.0).fit(X, Y)
    assert len(heard) == 1
    with pytest.warns(UselessModelWarning) as heard:
        searching(logistic(epsilon=0.1, n_iter=None), n_trials=9.0).fit(X, Y)
    # however many fits there were; noise may hide the best score, which is said too
    assert sum("none of the settings" in str(each.message) for each in heard) == 1
    assert len(heard) <= 2


@pytest.mark.slow  # its plan alone takes seconds
def test_fits_to_samples_of_the_records_are_refused():
    with pytest.raises(dpcvx.NotAccountable, match="best of several runs of NoisySVRG"):
        searching(logistic(solver=NoisySVRG(), n_iter=None, l2=0.1)).fit(X, Y)


def test_grid_search_charges_every_fit_and_the_private_search_once(tmp_path):
    account = dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=20, delta=1e-3)
    paying = logistic(ledger=account.ledger, account="people")
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        GridSearchCV(paying, GRID, cv=2).fit(X, Y)
    assert len(account.history()) == 5
    searching(paying, n_trials=5.0).fit(X, Y)
    assert len(account.history()) == 6
    assert account.history()[-1].purpose == "search of 2 settings of PrivateLogisticRegression on 300 records"


class TestPrivateScore:
    model = logistic(epsilon=50.0, random_state=0).fit(X, Y)

    def test_a_large_epsilon_gives_the_plain_metric(self):
        found = dpcvx.private_score(self.model, X, Y, epsilon=1e3)
        plain = float(np.mean(self.model.predict(X) == Y))
        assert float(found) == pytest.approx(plain, abs=1e-3)
        assert str(found).startswith("accuracy = ")
        assert found.statement.model == "private_score of PrivateLogisticRegression"
        assert "from the score" in " ".join(found.statement.meaning.split())
        assert (found.statement.epsilon, found.statement.delta) == (1e3, 0.0)

    def test_values_stay_possible(self):
        values = [dpcvx.private_score(self.model, X[:3], Y[:3], epsilon=0.1).value for _ in range(20)]
        assert all(0 <= value <= 1 for value in values)
        assert {0.0, 1.0} & set(values)

    def test_a_search_is_scored_by_its_best_model(self, fitted):
        assert dpcvx.private_score(fitted, X, Y, epsilon=1.0).name == "accuracy"

    def test_bounds(self):
        cut = dpcvx.private_score(self.model, X, Y, epsilon=1.0, scoring="neg_log_loss", bounds=(0, 0.1))
        assert -0.1 <= cut.value <= 0
        assert cut.statement.bounds["largest"] == 0.1
        with pytest.raises(ValueError, match="leave bounds None"):
            dpcvx.private_score(self.model, X, Y, epsilon=1.0, bounds=(0, 1))
        with pytest.raises(ValueError, match="0, largest"):
            dpcvx.private_score(self.model, X, Y, epsilon=1.0, scoring="neg_log_loss", bounds=(1, 2))

    def test_others_are_refused(self):
        with pytest.raises(TypeError, match="need an estimator of dpcvx"):
            dpcvx.private_score(LogisticRegression().fit(X, Y), X, Y, epsilon=1.0)
        with pytest.raises(NotFittedError):
            dpcvx.private_score(logistic(), X, Y, epsilon=1.0)
        with pytest.raises(ValueError, match="expecting 3 features"):
            dpcvx.private_score(self.model, X[:, :2], Y, epsilon=1.0)
        with pytest.raises(ValueError, match="rows"):
            dpcvx.private_score(self.model, X, Y[:5], epsilon=1.0)
        with pytest.raises(ValueError, match="epsilon"):
            dpcvx.private_score(self.model, X, Y, epsilon=0)
