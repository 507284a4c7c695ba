"""Standard errors and intervals of a fitted model, from what was released with it."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.data.row_map import RowMap
from dpcvx.errors import Incompatible, NotReleased
from dpcvx.estimators.data_check import DataCheck
from dpcvx.estimators.fitted_model import FittedModel
from dpcvx.estimators.hypotheses import ModelTerms
from dpcvx.estimators.inference import (
    MAPPED,
    NO_ERRORS,
    UNSEEN,
    ContrastTests,
    Summary,
    WaldTests,
    check_adjustment,
    covariance_fact,
    interval_of,
    statement_facts,
    wald,
)
from dpcvx.plans.statement import PrivacyStatement, doubts_about_columns, doubts_about_levels
from dpcvx.plans.uncertainty import Goodness, Uncertainty

__all__ = ["Intervals"]

FROM_ESTIMATE = (
    "coef is the estimate without the bias of the fit (coef_debiased_); predict uses coef_. Standard errors "
    "cover sampling error and privacy noise. Everything here was computed from released numbers."
)
RIDGE = "The model has a ridge (l2): coefficients and intervals are those of the penalised objective."
POOLED = (
    f"{UNSEEN}: released numbers cannot tell these levels from empty ones, so that their coefficients would "
    "be noise. They have the effect of the baseline; the mean of the other levels takes the place of a "
    "baseline that is empty. See whether the levels are spelt as in the data."
)
LONG_TAIL = (
    "Intervals may miss the coefficients of least squares: a few targets make up most of the variance of y, "
    "and their errors are clipped, which moves estimates towards those of the other records. Fit log(y) "
    "where y is positive (PrivateGammaRegressor has effects on the mean), or narrow y_bounds to the range "
    "that you want to describe."
)
TAIL_UNKNOWN = (
    "The tail of the target was not checked: noise was too large beside the spread of y. If a few targets "
    "make up most of the variance of y, their errors are clipped, and intervals may miss the coefficients of "
    "least squares. Use narrower y_bounds, a larger epsilon or more records, or the logarithm of y if it is "
    "skewed."
)
LONG_COLUMNS = (
    "Intervals may miss the coefficients of least squares: half or more of the variance of {columns} is in a "
    "few far records, whose gradients may be clipped. If the effect is not linear there, estimates describe "
    'the other records only. Declare a map such as "log" for these columns, or narrow their bounds to the '
    "range that you want to describe."
)
RARE_CLASS = (
    " A logistic model sees a share p (1 - p) of how a record varies, p being the share of the second class: "
    "with 5 % it needs about five times the records or epsilon of equal classes. power(n, features, "
    "share=p).needed(width, coefficient) returns the records, and the epsilon, that suffice."
)
UNCHECKED = (
    "Nothing that was released shows whether there are people at every level, because the data were not "
    "checked (the statement has the reason, unless check=0 was given). The coefficient of a level without "
    "people is noise alone."
)


class Intervals(FittedModel):
    """Standard errors and intervals of a linear model, fitted with a share of the budget for `uncertainty`.

    Intervals cover privacy noise and sampling error together. They are centred at ``coef_debiased_``, which
    has no bias from stopping early; ``coef_`` is the fit, which predicts better where noise is large.
    """

    categories: Any
    l2: float | None
    coef_: Vector
    coef_names_: Any
    intercept_: Any
    check_: DataCheck | None
    privacy_statement_: PrivacyStatement
    _link: str
    _row_map: RowMap
    _uncertainty: Uncertainty | None  # in the user's units, the intercept last

    @property
    def coef_debiased_(self) -> Vector:
        """Estimate of the coefficients without the bias of the fit, shape (d,)."""
        return self._known().estimate[:-1]

    @property
    def intercept_debiased_(self) -> float:
        """Estimate of the intercept without the bias of the fit."""
        return float(self._known().estimate[-1])

    @property
    def coef_std_(self) -> Vector:
        """Standard errors of ``coef_debiased_``, privacy noise included, shape (d,)."""
        deviations: Vector = np.sqrt(np.diag(self._known().covariance))[:-1]
        return deviations

    @property
    def intercept_std_(self) -> float:
        """Standard error of ``intercept_debiased_``, privacy noise included."""
        return float(np.sqrt(self._known().covariance[-1, -1]))

    def coef_interval(self, level: float = 0.95) -> Vector:
        """Return an interval for each coefficient.

        Parameters
        ----------
        level : float
            Probability with which an interval covers its coefficient.

        Returns
        -------
        ndarray of shape (d, 2)
            Lower and upper ends, in your units.
        """
        self._warn_of_weak_directions()
        return interval_of(self.coef_debiased_, self.coef_std_, level)

    def intercept_interval(self, level: float = 0.95) -> Vector:
        """Return an interval for the intercept.

        Parameters
        ----------
        level : float
            Probability with which the interval covers the intercept.

        Returns
        -------
        ndarray of shape (2,)
        """
        self._warn_of_weak_directions()
        return interval_of(np.array(self.intercept_debiased_), np.array(self.intercept_std_), level)

    @property
    def r2_(self) -> float:
        """R² of ``predict`` on the records of the fit, McFadden's pseudo-R² of a classifier; NaN if hidden.

        It is the share of a constant model's loss that the fit saves: squared errors, log-loss, or the
        deviance of a model of counts, amounts or shares (D²).
        """
        goodness = self._known_goodness()
        return math.nan if goodness.value is None else goodness.value

    def r2_interval(self, level: float = 0.95) -> Vector:
        """Return an interval for R² on the records of the fit; it covers privacy noise and clipping.

        Parameters
        ----------
        level : float
            Probability with which the interval covers R².

        Returns
        -------
        ndarray of shape (2,)
            NaN where noise hides R².
        """
        found = interval_of(np.array(self.r2_), np.array(self._known_goodness().deviation), level)
        return np.minimum(found, 1.0)

    def summary(self, level: float = 0.95, *, adjust: str | None = None) -> Summary:
        """Return the table of coefficients, with standard errors and tests where they were released.

        Parameters
        ----------
        level : float
            Probability with which an interval covers its coefficient.
        adjust : {None, "holm"}
            Adds p-values that are adjusted for the number of coefficients.

        Returns
        -------
        Summary
            ``print`` it; a notebook shows it as HTML; ``to_markdown()``, ``to_latex()``, ``to_json()``,
            ``to_csv()``, ``to_frame()``. It is computed from released numbers alone.
        """
        check_is_fitted(self)
        known, statement = self._uncertainty, self.privacy_statement_
        stamp = "" if statement.private else "NOT PRIVATE - "
        facts = [("family", self._family()), *statement_facts(statement), covariance_fact(known)]
        facts += [self._fit_fact(level), *self._dispersion_facts()]
        if known is not None:
            estimates: tuple[tuple[str, Vector, float], ...] = (
                ("", known.estimate[:-1], float(known.estimate[-1])),
            )
            notes = [FROM_ESTIMATE]
        else:
            labels = [
                str(label) for label in getattr(self, "classes_", range(len(np.atleast_1d(self.intercept_))))
            ]
            rows = np.atleast_2d(self.coef_)
            outputs = labels if len(rows) > 1 else [""]
            estimates = tuple(zip(outputs, rows, map(float, np.atleast_1d(self.intercept_)), strict=True))
            notes = [self._interval_objection() or NO_ERRORS]
        return Summary(
            f"{stamp}{type(self).__name__}",
            tuple(facts),
            self._terms(),
            estimates,
            known,
            level,
            adjust,
            (*notes, *self._summary_notes()),
            ratio="exp(coef)" if self._link == "log" else "",
        )

    def t_test(self, hypotheses: Any, *, level: float = 0.95, adjust: str | None = None) -> ContrastTests:
        """Test linear combinations of coefficients one by one; the fit needs ``uncertainty``.

        Parameters
        ----------
        hypotheses : str, list of str, array-like of shape (q, d) or (q, d + 1), or pair (matrix, values)
            Such as ``"age = 0"``, ``"age - hours = 0.5"`` or ``"age = 0, hours = 0"``; the coefficients are
            those of ``summary()``, "Intercept" included. Columns of a matrix are those of ``coef_names_``,
            with one in front of them for the intercept if there are d + 1.
        level : float
            Probability with which an interval covers.
        adjust : {None, "holm"}
            Adds p-values that are adjusted for the number of tests.

        Returns
        -------
        ContrastTests
            ``effect``, ``std_err``, ``statistic``, ``pvalue``, ``conf_int()``; ``print`` it.
        """
        return ContrastTests(self._terms().hypotheses(hypotheses), self._known(), level, adjust)

    def wald_test(self, hypotheses: Any) -> WaldTests:
        """Test several hypotheses about coefficients together; the fit needs ``uncertainty``.

        Parameters
        ----------
        hypotheses : str, list of str, array-like, or pair (matrix, values)
            As for `t_test`; or the name of a column, ``"region"`` or ``"C(region)"``: that it has no effect,
            whatever its level.

        Returns
        -------
        WaldTests
            With one test: ``statistic``, ``df``, ``pvalue``; ``print`` it.
        """
        known, terms = self._known(), self._terms()
        column = terms.whole_column(hypotheses) if isinstance(hypotheses, str) else None
        if column is not None:
            return WaldTests((wald(column, known, hypotheses),))
        wanted = terms.hypotheses(hypotheses)
        return WaldTests((wald(wanted, known, ", ".join(dict.fromkeys(wanted.names))),))

    def wald_test_terms(self, *, adjust: str | None = None) -> WaldTests:
        """Test for each column that it has no effect, levels of a category together.

        Parameters
        ----------
        adjust : {None, "holm"}
            Adds p-values that are adjusted for the number of columns.

        Returns
        -------
        WaldTests
            One test for each column.
        """
        check_adjustment(adjust)
        known, terms = self._known(), self._terms()
        columns = [(label, terms.whole_column(label)) for label, _, _ in terms.columns]
        return WaldTests(
            tuple(wald(column, known, label) for label, column in columns if column is not None), adjust
        )

    def compare_nested(self, smaller: Any) -> WaldTests:
        """Test whether a model that leaves features out is enough: a Wald test in this, the larger, model.

        The likelihood of the records is private and was not released, so there is no likelihood ratio, AIC
        or BIC. The covariance of the larger model was, and the hypothesis that the coefficients of the
        features that the smaller model lacks are 0 needs nothing else.

        Parameters
        ----------
        smaller : estimator
            Fitted model of the same kind whose features are among those of this one.

        Returns
        -------
        WaldTests
        """
        check_is_fitted(smaller)
        terms = self._terms()
        if type(smaller) is not type(self):
            raise Incompatible(
                f"{type(self).__name__} and {type(smaller).__name__} are not nested: they minimise "
                "different losses. Compare models of one class."
            )
        few, many = (set(map(str, each.coef_names_)) for each in (smaller, self))
        if not few < many:
            raise Incompatible(
                "The models are not nested: the features of the smaller one must be some of those of this "
                "one, under the same names. Models that are not nested can be compared by private_score on "
                "the same rows."
            )
        left = [f"`{name}` = 0" for name in terms.names if name not in few]
        return WaldTests((wald(terms.hypotheses(left), self._known(), f"{len(left)} coefficients are 0"),))

    def _terms(self) -> ModelTerms:
        check_is_fitted(self)
        rows = self._row_map
        unseen = frozenset(self.privacy_statement_.bounds.get("pooled", ()))
        return dataclasses.replace(ModelTerms.of(rows.names, rows.levels, rows.maps), unseen=unseen)

    def _family(self) -> str:
        """Return the family of the model in words, from its loss and link."""
        return f"{self.privacy_statement_.public.get('loss', 'linear')}, {self._link} link".replace("()", "")

    def _dispersion_facts(self) -> list[tuple[str, str]]:
        """Return the released dispersion of targets about their means, where the model's law has one."""
        return []

    def _fit_fact(self, level: float) -> tuple[str, str]:
        """Return the goodness of the fit with its interval, or how to get it."""
        goodness = None if self._uncertainty is None else self._uncertainty.goodness
        if goodness is None:
            metric = "D²" if hasattr(self, "law") else "accuracy" if hasattr(self, "classes_") else "R²"
            return metric, "not released; dpcvx score and private_score release it, at a price of their own"
        if goodness.value is None:
            return goodness.name, "hidden by noise"
        low, high = self.r2_interval(level)
        return goodness.name, f"{goodness.value:.3f} [{low:.3f}, {high:.3f}] of coef_ on these records"

    def _known_goodness(self) -> Goodness:
        goodness = self._known().goodness
        if goodness is None:
            raise NotReleased(
                "This model has no released R²: its loss has none, or its file is of an earlier version. "
                "private_score releases a metric, at a price of its own."
            )
        return goodness

    def _interval_objection(self) -> str:
        """Return why the model cannot have standard errors; empty if it can."""
        if self.coef_.ndim > 1:
            return (
                "Standard errors are not available for several scores per record: more than two classes, or "
                "several targets. Fit two classes, or one target, at a time."
            )
        return ""

    def _summary_notes(self) -> list[str]:
        """Return notes of the model's own for the table."""
        notes = [] if not self.l2 else [RIDGE]
        if self._uncertainty is not None and self._uncertainty.long_tail:
            notes.append(LONG_TAIL)
        if self._uncertainty is not None and self._uncertainty.tail_unknown:
            notes.append(TAIL_UNKNOWN)
        notes.extend(filter(None, [self._long_columns()]))
        terms = self._terms()
        if terms.unseen:
            notes.append(POOLED)
        if any("[quantiles]" in suffix for each in self._row_map.maps or () for suffix in each.suffixes):
            notes.append(MAPPED)
        return [*notes, *self._doubts()]

    def _long_columns(self) -> str:
        """Return a note about columns with long tails; empty if none is known."""
        known = self._uncertainty
        if known is None or not known.long_columns:
            return ""
        names = ", ".join(str(self.coef_names_[place]) for place in known.long_columns)
        return LONG_COLUMNS.format(columns=names)

    def _doubts(self) -> list[str]:
        """Return what is known of people at levels, and of columns of numbers, that may be empty."""
        public = self.privacy_statement_.public
        bounds = self.privacy_statement_.bounds
        told = [*doubts_about_columns(bounds), *doubts_about_levels(bounds)]
        levels = any(each is not None for each in self._row_map.levels)
        if told or self.check_ is not None or not levels:
            return told
        return [] if public.get("standardized") and public.get("intercept") else [UNCHECKED]

    def _score_interval(self, X: Any, level: float, extra: float = 0.0) -> Vector:
        """Interval for the linear score of each new row, the variance of a new target added where given."""
        known = self._known()
        self._warn_of_weak_directions()
        values, axes = np.linalg.eigh(known.covariance)
        factor = axes * np.sqrt(np.maximum(values, 0.0))
        table = self._new_rows(X)
        center = self._linear(table, known.estimate[:-1], known.estimate[-1])
        moves = self._linear(table, factor[:-1], factor[-1])
        return interval_of(center, np.sqrt((moves**2).sum(axis=1) + extra), level)

    def _known(self) -> Uncertainty:
        check_is_fitted(self)
        if self._uncertainty is None:
            raise NotReleased(
                "This model was fitted without a share of the budget for its uncertainty: fit it with "
                "uncertainty=0.2, which spends a fifth of the budget on the Hessian that intervals need."
            )
        return self._uncertainty

    def _warn_of_weak_directions(self) -> None:
        weak = self._known().weak
        if self._known().long_tail:
            warnings.warn(LONG_TAIL, UserWarning, stacklevel=3)
        if note := self._long_columns():
            warnings.warn(note, UserWarning, stacklevel=3)
        if weak:
            warnings.warn(
                f"In {weak} direction(s) of {len(self._known().estimate)} the noise hides how the records "
                "vary: intervals are as wide there as the set allows. More records, a larger epsilon or a "
                "larger uncertainty share narrow them." + (RARE_CLASS if self._link == "logit" else ""),
                UserWarning,
                stacklevel=3,
            )
