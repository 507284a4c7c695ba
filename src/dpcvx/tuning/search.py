"""Private tuning with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.estimators import refuse_metadata
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.tuning.tune import private_tune

__all__ = ["PrivateSearchCV"]


def _has(name: str) -> Any:
    return available_if(lambda search: hasattr(search.estimator, name))


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Private search over settings of an estimator, in place of ``GridSearchCV``.

    Settings are drawn at random, fitted and scored with noise, a random number of times; the best run is
    released, and epsilon covers the search: every fit, every score and the choice. Its model is
    ``best_estimator_`` as it was fitted in that run. Nothing is fitted again, since a further fit would have
    to be paid for, and there is no ``cv_results_``: what was not chosen is not released, nor is how much was
    tried.

    Parameters
    ----------
    estimator : estimator or Pipeline
        An estimator of dpcvx, or a pipeline of a `PrivatePreprocessor` without an epsilon and an estimator.
    param_grid : dict or list of dict
        Values of its parameters to try: lists, or distributions with a method ``rvs``, from which settings
        are drawn beforehand.
    epsilon, delta : float, optional
        The price of everything; by default the estimator's.
    scoring : str, optional
        scikit-learn's name of a metric; by default "accuracy" or "r2". See `dpcvx.tuning.score.METRICS`.
    n_trials : float, optional
        Expected number of runs; by default twice the number of settings, or 20 for distributions.
    distribution : {"geometric", "logarithmic", "poisson"}
        Law of the number of runs. The logarithmic one is cheaper and often tries one setting only; Poisson's
        seldom tries few, and costs the most.
    test_size : float or None
        Share of the rows that are kept for scores; models are fitted to the others, and each row pays for one
        of both. None scores on the rows of the fit, and they pay for both.
    ledger, account : optional
        Where the search is charged, once, before anything is computed; by default the estimator's.
    random_state : None or int, optional
        None draws cryptographically; by default the estimator's. Anything else is for tests: the statement is
        stamped NOT PRIVATE.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best run.
    best_params_ : dict
        Its setting.
    best_score_ : float
        Its noisy score; NaN, with a warning, if the noise hides it.
    best_score_error_ : float
        Standard error of the noise on that score. The sampling error of the rows is not part of it, and the
        best of many noisy scores is more likely too good than too bad.
    best_score_interval_ : tuple of float
        95 % interval of that score without noise, wide enough for the choice of the best of many.
    privacy_statement_ : PrivacyStatement
        Statement of the whole search: ``print`` it, or ``to_json()``.
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        scoring: str | None = None,
        n_trials: float | None = None,
        distribution: str = "geometric",
        test_size: float | None = 0.2,
        ledger: Any = None,
        account: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.n_trials = n_trials
        self.distribution = distribution
        self.test_size = test_size
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_score_: float
    best_score_error_: float
    best_score_interval_: tuple[float, float]
    privacy_statement_: PrivacyStatement

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, **metadata: Any) -> Self:
        """Search, and keep the best run.

        Parameters
        ----------
        X, y : as for ``estimator.fit``
            Private rows, one per person unless there are ``groups``, or a column that the estimator's
            ``person`` names.
        groups : array-like, shape (n,), optional
            Id of each row's person: rows are split, fitted and scored by person.
        **metadata
            None is accepted: weights are refused with the reason.

        Returns
        -------
        self
        """
        refuse_metadata(self, metadata)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name not in _FIRST}
        tuned = private_tune(self.estimator, self.param_grid, X, y, groups=groups, **settings)
        self.best_estimator_, self.best_params_ = tuned.model, tuned.params
        self.best_score_, self.best_score_error_ = tuned.score, tuned.standard_error
        self.best_score_interval_ = tuned.interval
        self.privacy_statement_ = tuned.statement
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict with the best model."""
        answer: NDArray[Any] = self._fitted().predict(X)
        return answer

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Vector:
        """Probabilities of the best model."""
        answer: Vector = self._fitted().predict_proba(X)
        return answer

    @_has("predict_log_proba")  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Vector:
        """Logarithms of probabilities of the best model."""
        answer: Vector = self._fitted().predict_log_proba(X)
        return answer

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Vector:
        """Scores of the best model."""
        answer: Vector = self._fitted().decision_function(X)
        return answer

    def score(self, X: Any, y: Any) -> float:
        """Accuracy or R^2 of the best model on rows that may be published, and warn once of others."""
        return float(self._fitted().score(X, y))

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the best model."""
        labels: NDArray[Any] = self._fitted().classes_
        return labels

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        return int(self._fitted().n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Column names of X, where it had any."""
        names: NDArray[Any] = self._fitted().feature_names_in_
        return names

    def _fitted(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags = own.estimator_type, own.classifier_tags
        tags.regressor_tags, tags.input_tags = own.regressor_tags, own.input_tags
        tags.target_tags = own.target_tags
        return tags


_FIRST = ("estimator", "param_grid")
