"""Cross-validations and searches of scikit-learn on private rows warn, whatever scorer they use."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate

from dpcvx import PrivacyLeakWarning, PrivateLogisticRegression

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 2))
Y = np.where(X[:, 0] > 0, "yes", "no")


def model():
    return PrivateLogisticRegression(epsilon=3.0, delta=1e-5, bounds=(-1, 1), classes=("no", "yes"), n_iter=5)


@pytest.mark.parametrize("scoring", [None, "accuracy", "neg_log_loss"])
@pytest.mark.parametrize("how", [cross_validate, cross_val_score, GridSearchCV, cross_val_predict])
def test_one_warning_that_says_what_to_do(how, scoring):
    if how is cross_val_predict and scoring is not None:
        pytest.skip("it takes no scorer")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        if how is GridSearchCV:
            GridSearchCV(model(), {"radius": [1.0, 2.0]}, cv=2, scoring=scoring).fit(X, Y)
        elif how is cross_val_predict:
            cross_val_predict(model(), X, Y, cv=2)
        else:
            how(model(), X, Y, cv=2, scoring=scoring)
    leaks = {str(each.message) for each in said if each.category is PrivacyLeakWarning}
    (text,) = leaks
    assert text.startswith("A cross-validation or search of scikit-learn scores this fit by plain metrics")
    assert "use PrivateSearchCV or private_score" in text


def test_a_plain_fit_and_its_predictions_are_silent():
    fitted = model().fit(X, Y)  # warnings are errors here
    fitted.predict(X)
    with pytest.warns(PrivacyLeakWarning, match="score is the plain metric"):
        fitted.score(X, Y)
