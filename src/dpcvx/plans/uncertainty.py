"""Uncertainty of released coefficients: privacy noise and sampling error.

Everything here is arithmetic on released numbers and public scales. A solver's answers say how steep the
objective is at public points; with a released Hessian one Newton step leads from there to the minimiser, and
the law of the step's error is known:

    estimate - theta* = -H^-1 (noise of the gradients + sampling error of the gradient - E delta)

to first order, E being the noise of the Hessian and delta the whole displacement: the step and its error.

The Hessian of a logistic loss changes on the way. Its value at the end of the step follows from the released
one if features are normal (`logistic_bias.after_step`). The step ends where the gradient, changed
accordingly, is 0, and errors are those of the Hessian there. Half of the difference from a Newton step is
added to standard errors, since features are not normal.

The curvature of a logistic loss falls with the distance from 0, so that noise moves its minimiser farther
outwards than inwards. If F is the objective with the mean noise of the gradients as a linear term, T its
third derivative, V the covariance of the estimate's error and C that of the points around their mean, then
to second order

    E estimate - theta* = -H^-1 T [V + C] / 2:

the minimiser of F is off by -H^-1 T [V]/2, and the mean of gradients is that at the mean of the points and
T [C]/2. This is taken away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.plans.logistic_bias import LEAST_CURVATURE, after_step, third_derivative

__all__ = [
    "CLUSTER",
    "COVARIANCES",
    "NONROBUST",
    "ROBUST",
    "Curvature",
    "Goodness",
    "Steepness",
    "Uncertainty",
    "average",
    "one_step",
    "one_step_across",
]

Mask = NDArray[np.bool_]
NONROBUST, SCALED, ROBUST, CLUSTER = "nonrobust", "scaled", "robust", "cluster-robust"
# Kinds of covariance, and the assumption that each makes.
COVARIANCES = {
    ROBUST: "the variance of errors may depend on the features (sandwich formula)",
    CLUSTER: "errors of a person's rows may depend on each other, and their variance on the features "
    "(sandwich formula over persons)",
    # of files of earlier versions
    NONROBUST: "the model is right: the variance of errors does not depend on the features",
    SCALED: "as nonrobust, scaled by the released spread of the gradients of persons or weighted rows",
}

# The Hessian's noise acts along the step, and in a second round along the error that the first one found.
ROUNDS = 2
# The meat of the sandwich and dispersion * H are averaged by their precisions, for a difference between them
# that is usually as large as this many times the second. Noise that is large beside the second is small
# beside the privacy noise of the gradients, which is the rest of the covariance.
USUAL_DIFFERENCE: float = 0.5
# (z^2 + 1)/2 at z = 1.96. If the relative variance of a variance estimate is r^2, Student's t with 2/r^2
# degrees of freedom (Satterthwaite) has to first order the quantile z (1 + (z^2 + 1) r^2 / 8).
STUDENT = (1.96**2 + 1) / 2
# The eigenvalues of the noise of a Hessian fill an interval around 0, and directions inside it are hidden. If
# the mean eigenvalue of a logistic loss is less than so many half-widths, directions below this number of
# them are hidden too: those that are seen there are the few in which noise happens to add curvature, and
# their intervals would be too short. The mean depends little on the noise in one direction.
SEEN_ON_AVERAGE = 2.5
STEPS = 12  # Newton steps to the minimiser of a logistic loss; five are usually enough
LEAST_LEFT = 0.25  # of a released curvature, where a step that is trusted ends
DOUBT = 0.5  # of the difference between the step to the minimiser and a Newton step, as a standard error
LEAST_EIGENVALUE = 0.25  # of the covariance of the mean gradient, in units of that of its privacy noise


@dataclass(frozen=True, eq=False)
class Steepness:
    """A released gradient of the objective."""

    point: Vector  # where
    gradient: Vector  # the answer
    deviation: float  # standard deviation of the noise on each of its entries
    # covariance of the points around their mean, where it is the mean of several; shape (d, d)
    scatter: Vector | None = None


@dataclass(frozen=True, eq=False)
class Curvature:
    """A released Hessian of the objective."""

    hessian: Vector  # shape (d, d)
    # standard deviation of the noise on an entry off the diagonal; on it sqrt(2) times as much
    deviation: float
    # covariance of a record's gradient over the Hessian of its loss: the variance of errors for squared loss,
    # 1 for a logistic model that is right
    dispersion: float
    ridge: float = 0.0  # part of the diagonal that has no noise and no dispersion
    meat: Vector | None = None  # released mean of g g^T over records or persons, shape (d, d)
    meat_deviation: float = 0.0  # as `deviation`, of the meat
    dispersion_deviation: float = 0.0  # standard deviation of the noise on the dispersion
    # of logistic loss: a vector q with <q, x> = 1 for every record; None if there is none, or another loss
    constant: Vector | None = None
    # symmetric matrix D, shape (d, d): the Hessian is D hessian D, where far records were clipped in it
    scale: Vector | None = None
    log_odds: float = 0.0  # of logistic loss: score of every record at theta = 0

    def covariance_of_gradient(self, records: Vector) -> Vector:
        """Return the covariance of one record's gradient, shape (d, d).

        `records`: Hessian of the loss, positive semidefinite. Without a meat it is dispersion * records; with
        one, the mean of both weighed by their precision.
        """
        usual: Vector = self.dispersion * records
        if self.meat is None:
            return usual
        if self.constant is not None:
            parts = self._parts(records)
            return usual + parts @ (self.meat - usual) @ parts
        weight = self._weight(records)
        return weight * self.meat + (1 - weight) * usual

    def noise_of_covariance(self, records: Vector) -> Vector:
        """Return a bound T on the noise of `covariance_of_gradient`, shape (d, d).

        For every a the noise on a^T C a, C being that covariance, has a standard deviation of at most
        sqrt(2) a^T T a: that of the meat's part is sqrt(2) |a|^2 times its deviation, that of the other part
        a^T H a times that of the dispersion, and standard deviations of a sum add up at most.
        """
        if self.meat is None:
            return np.zeros_like(records)
        if self.constant is not None:
            parts = self._parts(records)
            return self.meat_deviation * parts @ parts + self.dispersion_deviation / math.sqrt(2) * (
                records - parts @ records @ parts
            )
        weight = self._weight(records)
        own: Vector = weight * self.meat_deviation * np.eye(len(records))
        return own + (1 - weight) * self.dispersion_deviation / math.sqrt(2) * records

    def _parts(self, records: Vector) -> Vector:
        """Return A, shape (d, d), so that A meat A has the meat's weight in every direction of the Hessian.

        Curvatures of logistic loss differ by far more than those of squared loss: in the direction of a
        strong predictor of a rare class the meat may be small beside its noise.
        """
        values, axes = np.linalg.eigh(records)
        difference = (USUAL_DIFFERENCE * self.dispersion * np.maximum(values, 0.0)) ** 2
        noise = max(self.meat_deviation**2, 1e-300)
        found: Vector = axes * np.sqrt(difference / (difference + noise)) @ axes.T
        return found

    def _weight(self, records: Vector) -> float:
        """Return the weight of the meat beside dispersion * records."""
        difference = USUAL_DIFFERENCE * self.dispersion * float(np.trace(records)) / len(records)
        if self.meat_deviation == 0:
            return 1.0
        return difference**2 / (difference**2 + self.meat_deviation**2)


@dataclass(frozen=True)
class Goodness:
    """How much better the fit predicts the records than a constant does: a share of the constant's loss."""

    name: str  # "R²" or "pseudo-R²"
    value: float | None  # None where noise hides the loss of a constant
    deviation: float = 0.0  # standard deviation of the privacy noise on it, and of what clipping may change


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """An estimate without the bias of the fit, and the covariance of its error."""

    estimate: Vector
    covariance: Vector  # shape (d, d): of privacy noise and sampling error together
    # variance of a new target about its mean, and one or two standard deviations of its noise, so that it is
    # seldom too small; in the units of the loss, for squared loss
    dispersion: float
    # number of directions in which the records' curvature is hidden by noise: there the estimate is the fit,
    # and its error is taken to be as large as the set
    weak: int = 0
    # parts of the covariance, shape (d, d): sampling error, and hidden directions; None where it is not known
    sampling: Vector | None = None
    hidden: Vector | None = None
    kind: str = NONROBUST  # assumption behind the sampling error, one of `COVARIANCES`
    goodness: Goodness | None = None  # of the fit, not of the estimate; None where it was not released
    # whether released numbers show a target with a long tail, whose clipped errors bias the estimate
    long_tail: bool = False
    tail_unknown: bool = False  # whether no released number shows how long the tail is
    # places of coefficients of features with a long tail: half of the variance is in far records, whose
    # gradients may be clipped
    long_columns: tuple[int, ...] = ()

    def mapped(self, transform: Callable[[Vector], Vector], variance: float = 1.0) -> Uncertainty:
        """Return the same after an affine map of the parameter, in units with another variance of targets."""
        center = transform(np.zeros_like(self.estimate))
        linear = np.column_stack([transform(axis) - center for axis in np.eye(len(self.estimate))])
        return replace(
            self,
            estimate=transform(self.estimate),
            covariance=_mapped(self.covariance, linear),
            dispersion=variance * self.dispersion,
            sampling=None if self.sampling is None else _mapped(self.sampling, linear),
            hidden=None if self.hidden is None else _mapped(self.hidden, linear),
        )


def one_step_across(
    redundant: Vector, fit: Vector, steepness: Steepness, curvature: Curvature, *, n: int, reach: float
) -> Uncertainty:
    """Return the Newton step across directions along which no score changes, as `one_step` does.

    Along them the estimate is the fit and has no error: what is published must not depend on them. Noise has
    the same law in every orthonormal basis, that of a symmetric matrix with sqrt(2) on its diagonal too.

    `redundant`: shape (q, d), rows linearly independent.
    """
    across = np.linalg.qr(redundant.T, mode="complete")[0][:, len(redundant) :]
    found = one_step(
        across.T @ fit,
        Steepness(
            across.T @ steepness.point,
            across.T @ steepness.gradient,
            steepness.deviation,
            None if steepness.scatter is None else across.T @ steepness.scatter @ across,
        ),
        replace(
            curvature,
            hessian=across.T @ curvature.hessian @ across,
            meat=None if curvature.meat is None else across.T @ curvature.meat @ across,
            constant=None if curvature.constant is None else across.T @ curvature.constant,
            scale=None if curvature.scale is None else across.T @ curvature.scale @ across,
        ),
        n=n,
        reach=reach,
    )
    whole = found.mapped(lambda theta: across @ theta)
    return replace(whole, estimate=whole.estimate + fit - across @ (across.T @ fit))


def _mapped(covariance: Vector, linear: Vector) -> Vector:
    """Covariance after a linear map; exactly symmetric."""
    found: Vector = linear @ covariance @ linear.T
    return (found + found.T) / 2


def average(gradients: Sequence[Steepness]) -> Steepness:
    """Return the mean of points and gradients, each weighed by its precision."""
    precision = np.array([1 / each.deviation**2 for each in gradients])
    weights = precision / precision.sum()
    points = np.array([each.point for each in gradients])
    point: Vector = sum(weight * each for weight, each in zip(weights, points, strict=True))
    return Steepness(
        point,
        sum(weight * each.gradient for weight, each in zip(weights, gradients, strict=True)),
        1 / math.sqrt(precision.sum()),
        (weights[:, None] * (points - point)).T @ (points - point),
    )


def one_step(fit: Vector, steepness: Steepness, curvature: Curvature, *, n: int, reach: float) -> Uncertainty:
    """Return the Newton step's end and the covariance of its error.

    `fit`: what the solver returned; the estimate in directions whose curvature is hidden by noise;
    `curvature`: at the same point; `n`: number of records; `reach`: largest error that the set allows.
    """
    d = len(fit)
    values, axes = np.linalg.eigh(curvature.hessian + curvature.ridge * np.eye(d))
    # The eigenvalues of the noise alone fill an interval of this half-width around 0.
    noise_edge = 2 * curvature.deviation * math.sqrt(d)
    if curvature.constant is not None and values.mean() < SEEN_ON_AVERAGE * noise_edge:
        noise_edge *= SEEN_ON_AVERAGE
    hidden = values <= noise_edge
    inverse = (axes / np.where(hidden, np.inf, values)) @ axes.T
    lost = axes[:, hidden] @ axes[:, hidden].T
    records = axes * np.maximum(values - curvature.ridge, 0.0) @ axes.T
    scale = np.eye(d) if curvature.scale is None else curvature.scale
    if curvature.scale is not None:
        inverse = np.linalg.solve(scale, np.linalg.solve(scale, inverse).T)
        records = scale @ records @ scale
    step = inverse @ steepness.gradient
    sampling = curvature.covariance_of_gradient(records) / n
    unsure = curvature.noise_of_covariance(records) / n
    wider, doubt = np.eye(d), np.zeros((d, d))
    if curvature.constant is not None:
        hidden, step, inverse, later, plain = _curved_step(values, axes, hidden, steepness, curvature)
        lost = axes[:, hidden] @ axes[:, hidden].T
        carried = _root(later) @ _root(records, -0.5)
        sampling, unsure = _mapped(sampling, carried), _mapped(unsure, carried)
        # Standard errors are proportional to the inverse of a curvature that has noise. The mean of the
        # inverse is larger than the inverse of the mean. But a direction is seen more often if noise adds to
        # its curvature, which has the opposite effect: no correction is made.
        relative = np.where(hidden, 0.0, 2 * curvature.deviation**2 / np.where(hidden, 1.0, values) ** 2)
        wider = axes * np.sqrt(1 + 2 * STUDENT * relative) @ axes.T
        doubt = DOUBT**2 * np.outer(step - plain, step - plain)
        curvature = replace(curvature, hessian=later)
    gradient = _at_least(
        steepness.deviation**2 * np.eye(d) + sampling, LEAST_EIGENVALUE * steepness.deviation**2
    )
    gradient = _with_student_quantiles(gradient, unsure)
    covariance = np.zeros((d, d))
    for _ in range(ROUNDS):
        displacement = scale @ (np.outer(step, step) + covariance) @ scale
        of_hessian = curvature.deviation**2 * (np.trace(displacement) * np.eye(d) + displacement)
        noise = gradient + scale @ of_hessian @ scale
        covariance = inverse @ noise @ inverse
    covariance = _mapped(covariance, wider) + doubt
    estimate = steepness.point - step + lost @ (fit - steepness.point)
    if curvature.constant is not None:
        scatter = np.zeros((d, d)) if steepness.scatter is None else steepness.scatter
        spread = covariance + scatter
        estimate = estimate + inverse @ _half_third_derivative(estimate, curvature, inverse, spread, noise)
    return Uncertainty(
        estimate,
        covariance + reach**2 * lost,
        curvature.dispersion + curvature.dispersion_deviation,
        int(hidden.sum()),
        sampling=inverse @ _at_least(sampling, 0.0) @ inverse,
        hidden=reach**2 * lost if hidden.any() else None,
    )


def _curved_step(
    values: Vector, axes: Vector, hidden: Mask, steepness: Steepness, curvature: Curvature
) -> tuple[Mask, Vector, Vector, Vector, Vector]:
    """Return the hidden directions, and the step to the minimiser of a logistic loss with its Hessian.

    Returned are the hidden directions, the step, the inverse of the Hessian at its end, that Hessian, and the
    Newton step. While curvatures at the end of the step cannot be trusted, the direction of the smallest
    curvature that is seen counts as hidden too.

    `values`, `axes`: eigenvalues and eigenvectors of the released Hessian; `hidden`: of each, whether noise
    hides it.
    """
    hidden = hidden.copy()
    while True:
        inverse = (axes / np.where(hidden, np.inf, values)) @ axes.T
        plain = inverse @ steepness.gradient
        if hidden.all():
            return hidden, plain, inverse, curvature.hessian, plain
        found = _bent_step(axes[:, ~hidden], steepness, curvature)
        if found is not None:
            return hidden, *found, plain
        hidden[np.flatnonzero(~hidden)[0]] = True  # eigenvalues ascend


def _bent_step(
    seen: Vector, steepness: Steepness, curvature: Curvature
) -> tuple[Vector, Vector, Vector] | None:
    """Return the step to the minimiser of a logistic loss, the inverse of the Hessian there, and the Hessian.

    The Hessian falls on the way to the minimiser of a loss whose classes are rare or told apart well, and a
    Newton step ends before it. `after_step` says how steep the loss is on the way; its equation is solved by
    Newton steps that move scores by a standard deviation of one or less. None if the curvature in some
    direction falls below a quarter of what was released.

    `seen`: orthonormal directions that noise does not hide, shape (d, k).
    """
    hessian, constant = curvature.hessian, curvature.constant
    if constant is None:
        return None
    theta = steepness.point + curvature.log_odds * constant
    mean = max(float(constant @ hessian @ constant), LEAST_CURVATURE)
    ridge = curvature.ridge * np.eye(seen.shape[1])
    least = LEAST_LEFT * (seen.T @ hessian @ seen + ridge)
    moved = np.zeros(len(seen))
    for _ in range(STEPS):
        later, change = after_step(hessian, constant, theta, moved)
        inner = seen.T @ later @ seen + ridge
        if np.linalg.eigvalsh(inner - least)[0] <= 0:
            return None
        left = seen.T @ (steepness.gradient + change + curvature.ridge * moved)
        more = np.linalg.solve(inner, left)
        moved = moved - seen @ more / max(1.0, math.sqrt(more @ inner @ more / mean))
    return -moved, seen @ np.linalg.solve(inner, seen.T), later


def _root(matrix: Vector, power: float = 0.5) -> Vector:
    """Return a power of a symmetric matrix; 0 where an eigenvalue is not positive."""
    values, axes = np.linalg.eigh(matrix)
    positive = values > 1e-12 * max(values[-1], 1e-12)
    found: Vector = axes * np.where(positive, np.where(positive, values, 1.0) ** power, 0.0) @ axes.T
    return found


def _half_third_derivative(
    estimate: Vector, curvature: Curvature, inverse: Vector, spread: Vector, noise: Vector
) -> Vector:
    """Return T [spread]/2 at the estimate that this leads to; at most a standard error of the estimate.

    `noise`: covariance of H (estimate - theta*).
    """
    if curvature.constant is None:
        return np.zeros_like(estimate)
    found = np.zeros_like(estimate)
    for _ in range(ROUNDS):
        theta = estimate + inverse @ found + curvature.log_odds * curvature.constant
        found = third_derivative(curvature.hessian, curvature.constant, theta, spread) / 2
        found /= max(1.0, math.sqrt(found @ np.linalg.solve(noise, found)))
    return found


def _with_student_quantiles(estimate: Vector, noise: Vector) -> Vector:
    """Return a noisy covariance, enlarged so that 95 % intervals of the normal law cover as they should.

    The variance of the estimate G in direction a is at most 2 (a^T T a)^2, T being `noise`, so that Student's
    quantile needs (z^2 + 1)/2 (a^T T a)^2 / (a^T G a) more to first order. In every direction a^T T G^-1 T a
    is no less than that ratio, by Cauchy and Schwarz. The mean of the inverse of an estimate is larger than
    the inverse, by G^-1 (2 T G^-1 T) G^-1 to first order, which is taken away.
    """
    if not noise.any():
        return estimate
    larger = estimate + 2 * noise @ np.linalg.solve(estimate, noise)
    found: Vector = estimate + STUDENT * noise @ np.linalg.solve(larger, noise)
    return (found + found.T) / 2


def _at_least(matrix: Vector, least: float) -> Vector:
    """Return a symmetric matrix with eigenvalues below a number replaced by it."""
    values, axes = np.linalg.eigh(matrix)
    if values[0] >= least:
        return matrix
    found: Vector = axes * np.maximum(values, least) @ axes.T
    return found
