"""scikit-learn's own checks on every estimator, and its tools around them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpcvx
from zoo import CLASSIFIERS, REGRESSORS

# A large epsilon, because the checks ask for accuracy on 200 rows; their features are standardised.
PUBLIC = {"epsilon": 30.0, "delta": 1e-5, "bounds": (-3, 3), "n_iter": 100}
TARGET = {"y_bounds": (-3, 3)}
OWN_TARGETS = {"PrivateFractionalRegressor": {"y_bounds": (0, 1)}}
LABELS = {"classes": "from_y"}
OTHER = {"PrivateHuberRegressor": "mirror_descent", "PrivateLinearSVC": "mirror_descent"}
ESTIMATORS = [
    kind(
        **PUBLIC,
        **(LABELS if kind in CLASSIFIERS else OWN_TARGETS.get(kind.__name__, TARGET)),
        solver=OTHER.get(kind.__name__, "auto"),
    )
    for kind in REGRESSORS + CLASSIFIERS
]
EXPECTED_FAILURES = {
    "check_supervised_y_no_nan": "a missing or infinite target must not stop a fit: whether it stops "
    "would reveal that one person's target is missing",
    "check_complex_data": "one complex cell makes an array of numbers complex, so no type is refused",
}

ignore_leak_warning = pytest.mark.filterwarnings("ignore::dpcvx.PrivacyLeakWarning")
# Checks of scikit-learn fit numbers around 100, far above the declared bounds.
ignore_data_warning = pytest.mark.filterwarnings("ignore::dpcvx.UnrecognisedDataWarning")


# scikit-learn 1.7 hands pytest a generator, which pytest 9 wants as a list.
checks = parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
QUICK = (dpcvx.PrivateLinearRegression, dpcvx.PrivateLowRankRegression, dpcvx.PrivateLogisticRegression)


def for_its_suite(case):
    """An estimator and its check; for the long suite unless the estimator is a quick one."""
    (estimator, check), marks = (case.values, case.marks) if hasattr(case, "marks") else (case, ())
    long = () if type(estimator) in QUICK else (pytest.mark.long,)
    return pytest.param(estimator, check, marks=(*marks, *long))


every_check = pytest.mark.parametrize(
    checks.args[0], [for_its_suite(case) for case in checks.args[1]], **checks.kwargs
)


@ignore_leak_warning
@ignore_data_warning
@every_check
def test_scikit_learn_check(estimator, check):
    check(estimator)


def people(n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 3))
    return X, (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_clone_keeps_every_parameter_and_no_fit(estimator):
    X, y = people(50)
    copy = clone(estimator.set_params(random_state=None).fit(X, y))
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "coef_")


def test_pipeline_passes_feature_names_and_fits():
    X, y = people()
    model = dpcvx.PrivateLogisticRegression(epsilon=5, bounds=(-6, 6), classes=(0, 1), random_state=0)
    pipeline = make_pipeline(FunctionTransformer(lambda X: 2 * X), model).fit(X, y)
    assert (pipeline.predict(X) == y).mean() > 0.8


@ignore_leak_warning
@ignore_data_warning
def test_grid_search_fits_every_candidate_and_says_nothing_of_covering_the_choice():
    X, y = people()
    model = dpcvx.PrivateLogisticRegression(epsilon=5, bounds=(-3, 3), classes=(0, 1), random_state=0)
    search = GridSearchCV(model, {"radius": [1.0, 10.0]}, cv=2).fit(X, y)
    assert set(search.cv_results_["param_radius"]) == {1.0, 10.0}
    statement = str(search.best_estimator_.privacy_statement_)
    assert "the choice of GridSearchCV" in " ".join(statement.split())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::dpcvx.errors.PrivacyLeakWarning")
def test_two_workers_add_different_noise():
    # A peer's generator was copied to its workers, and every worker added the same noise.
    X, y = people()
    model = dpcvx.PrivateLogisticRegression(epsilon=1, bounds=(-3, 3), classes=(0, 1))

    def coefficients(estimator, X, y):
        return estimator.coef_[0]

    halves = [(np.arange(len(y)), np.arange(len(y)))] * 4
    released = cross_val_score(model, X, y, cv=halves, n_jobs=2, scoring=coefficients)
    assert len(set(released)) == 4
