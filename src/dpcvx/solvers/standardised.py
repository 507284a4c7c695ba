"""Private standardisation: released means, deviations and a length make the coordinates of another fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, Following, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import FEATURE_BITS, AdditiveBasis, Quantiser, Region
from dpcvx.errors import Incompatible
from dpcvx.events import Compose
from dpcvx.mechanisms import Mechanism, NoisyLength, NoisyMoments, SecondMoments, Vertex
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers.defaults import default

__all__ = ["Standardised"]

FEATURE_SHARE: float = default("solvers.standardised.FEATURE_SHARE")
TARGET_SHARE: float = default("solvers.standardised.TARGET_SHARE")
LENGTH_SHARE: float = default("solvers.standardised.LENGTH_SHARE")
REACH: float = default("solvers.standardised.REACH")
INTERCEPT: float = default("solvers.standardised.INTERCEPT")
RESIDUAL_DEVIATIONS: float = default("solvers.standardised.RESIDUAL_DEVIATIONS")
TWO_VALUED: float = default("solvers.standardised.TWO_VALUED")
LARGEST_TARGET: float = default("solvers.standardised.LARGEST_TARGET")
LONGEST_LEVELS: float = default("solvers.standardised.LONGEST_LEVELS")
DIVIDED = ("gradient", "gradient on a support", "difference", "Hessian")  # questions whose answers are over n
LOST_TARGET = (
    "The model may be worse than a constant: the released standard deviation of y is no larger than its "
    "noise. The y_bounds are too wide for this number of records and this epsilon. Use narrower y_bounds, "
    'y_bounds="private" or a larger epsilon. The budget of this fit is spent.'
)
LOST_COLUMNS = (
    "The model may be no better than a constant: the released standard deviations of all columns of numbers "
    "are no larger than their noise. Their bounds are too wide for this number of records and this epsilon. "
    "Use narrower bounds, column maps or a larger epsilon. The budget of this fit is spent."
)


@dataclass(frozen=True)
class Standardised(Solver):
    """Standardise the records with released moments, fit with another solver, return to old coordinates.

    Algorithm: three questions release the mean m of every feature (and of the target of squared and of
    pinball loss, which mean the same in any units), the mean square s^2 about it, and the root mean square
    length r of the rows (x - m)/s with cells clipped to [-3, 3]. Rows are shrunk to length r (1 + 1/sqrt(d)),
    which few of d independent columns exceed, and scaled to norm 1 together with an intercept; targets
    become (y - m_y)/(2.5 s_y), and squared loss becomes Huber's with threshold 1, which is squared loss with
    residuals clipped there. The third question also asks for the mean square of targets clipped at 2.5 s_y.
    It replaces s_y^2 where that is smaller than its noise, as it is for a target that varies far less than
    its range. The set holds the coefficients of these rows. New rows are mapped alike: the region is released
    with the parameter (`Region`).

    Means of the features of levels are shares m_j. Their mean squares m_j (1 - m_j) follow from them and are
    not asked. A column of many levels is scaled down, so that it is not longer than a few numbers. A cell
    that is no level counts as the shares.

    The first question also asks for the number of records that have a target. It takes the place of n: in the
    mean and the deviation of the target, and in the gradients and Hessians that the fit works with, so that
    its steps and standard errors are those of the records that have a target (PRIVACY_MATH §17).

    Privacy: `NoisyMoments` twice and `NoisyLength` take 13 % of mu(eps, delta)^2 in all, and 5 % more with a
    target; the maps use released numbers and one row at a time, so the fit's questions have the sensitivity
    of rows of norm 1 (PRIVACY_MATH §12b). The fit is calibrated so that all together keep the budget.

    Without an intercept nothing is centred: deviations are taken about 0.

    With a basis the standardised cells become its features, row by row and with public numbers, before their
    length is released; the fit is one of these features, and its answer stays in their units (`Region` maps
    new rows). Means and deviations of the cells place the knots, so a basis costs no question of its own. A
    column whose released mean square says that its cells are at the two ends of their bounds has no ramps.

    Parameters
    ----------
    solver : Solver
        Fits in the new coordinates.
    intercept : bool
        Whether the model has an intercept. It is the last entry of the answer, for a feature of value 1.
    stretch : float
        Rows are shrunk to this many times that length. With 1 some are, a little, which predictions hardly
        feel; standard errors of coefficients need rows as they are, and so more.
    reach : float
        Cells further than this from their mean are clipped, in deviations. Standard errors need more where
        features are skewed; more makes the length's noise larger.
    basis : AdditiveBasis, optional
        Features of the standardised cells; none for a linear model.
    """

    solver: Solver
    intercept: bool = True
    stretch: float = 1.0
    reach: float = REACH
    basis: AdditiveBasis | None = field(default=None, repr=False)  # long; the statement describes it
    # columns of levels: first feature, last + 1, and the stored integer of cells that are no level (or 0)
    levels: tuple[tuple[int, int, int], ...] = field(default=(), repr=False)

    standardises: ClassVar[bool] = True

    @property
    def clip(self) -> float | None:
        """Clip of the inner fit."""
        return self.solver.clip

    def innermost(self, plan: Plan) -> Plan:
        """Return the fit in standardised coordinates."""
        return self.solver.innermost(self._fit(plan))

    def with_coordinates(self, solver: Solver) -> Solver:
        """Return another solver, standardised."""
        return Standardised(solver, self.intercept, basis=self.basis, levels=self.levels)

    def squares_left(self, plan: Plan, shares: tuple[float, ...]) -> tuple[float, ...]:
        """Return 1 for a column whose variance was measured, less where noise hides it.

        A mean square below twice the noise counts as that much, so a column that varies by less stays short.
        """
        least = 2 * float(_any(plan.stages[1].mechanism).deviations[: plan.problem.d].max())
        return tuple(min(1.0, share * plan.problem.bounds.x_inf**2 / least) for share in shares)

    def _fit(self, plan: Plan, n: int | None = None) -> Plan:
        """Return the part of a plan after the moments, for n records that have a target."""
        inner, stages = self.inner(plan.problem), plan.stages[3:]
        if n is not None:
            stages = tuple(_divided_by(n, stage) for stage in stages)
        return replace(plan, stages=stages, n=n or plan.n, problem=inner, solver=self.solver, candidates=())

    def inner(self, problem: Problem) -> Problem:
        """The problem in standardised coordinates; public, whatever the moments will be."""
        if problem.outputs > 1 and problem.loss.unit_free:
            raise Incompatible("Standardisation covers one target of a regression; give standardize=False.")
        loss: Any = problem.loss
        if loss.unit_free:
            loss = replace(loss.clipped(1.0) or loss, y_range=(-LARGEST_TARGET, LARGEST_TARGET))
        return replace(problem, loss=loss, bounds=Bounds(1.0, 1.0), d=self._width(problem) + self.intercept)

    def _width(self, problem: Problem) -> int:
        """Number of features of the fit, the intercept not counted."""
        return problem.d if self.basis is None else self.basis.width

    def _mapped(self, problem: Problem) -> tuple[float, Bounds]:
        """Largest absolute value of a feature before rows are shrunk, and bounds of rows divided by it."""
        if self.basis is None:
            return self.reach, Bounds(1.0, math.sqrt(self._columns(problem.d)) if self.levels else None)
        basis = replace(self.basis, reach=self.reach)
        return basis.largest, Bounds(1.0, math.nextafter(basis.largest_norm / basis.largest, math.inf))

    def _columns(self, d: int) -> int:
        """Number of columns that d features belong to, a column of levels counted once."""
        return d - sum(last - first - 1 for first, last, _ in self.levels)

    def _level_squares(self, shares: Vector, noise: float) -> Vector:
        """Return the mean squares that features of levels are scaled by; 0 for other features.

        That of a level with share m is m (1 - m), not below twice the noise. `noise`: standard deviation of
        the noise on a share. At most 1/(2 noise) equally frequent levels can be told from 0. A column of more
        levels, or of more than 16, is made as long as that many: its mean squares are multiplied by the
        ratio.
        """
        squares = np.zeros_like(shares)
        for first, last, _ in self.levels:
            m = shares[first:last]
            longer = max(1.0, (last - first) * min(1.0, max(2 * noise, 1 / LONGEST_LEVELS)))
            squares[first:last] = longer * np.maximum(m * (1 - self.intercept * m), 2 * noise)
        return squares

    def _unknown(self, d: int) -> Vector | None:
        """Stored integer that stands for a cell that is none of the levels, NaN where there is none."""
        if not any(share for *_, share in self.levels):
            return None
        unknown = np.full(d, np.nan)
        for first, last, share in self.levels:
            unknown[first:last] = share or np.nan
        return unknown

    def measures(self, problem: Problem, n: int, budget: Budget) -> tuple[Mechanism, ...]:
        """The questions about means, mean squares and the length of rows."""
        if budget.delta == 0:
            raise Incompatible("Standardisation draws Gaussian noise, which needs delta > 0.")
        paid = spendable(budget)
        mu = gaussian_mu(paid.epsilon, paid.delta)
        features, targets, length = (
            1 / (mu * math.sqrt(share)) for share in (FEATURE_SHARE / 2, TARGET_SHARE / 3, LENGTH_SHARE)
        )
        spans = tuple((first, last) for first, last, _ in self.levels)
        means, squares = (
            NoisyMoments(problem, n, order, features, targets, budget.neighbours, spans) for order in (1, 2)
        )
        mapped = replace(problem, bounds=self._mapped(problem)[1], d=self._width(problem))
        return means, squares, NoisyLength(mapped, n, length, targets, budget.neighbours)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Give the measures their share, and the other solver what is left."""
        measures = self.measures(problem, n, budget)
        before = Compose(tuple(measure.event for measure in measures))
        fit = self.solver.plan(self.inner(problem), n, budget, Following(before, accountant))
        stages = (*(Stage(measure, 1) for measure in measures), *fit.stages)
        return Plan(stages, problem, n, replace(self, solver=fit.solver), budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Measure, map the records, fit, and map the coefficients back."""
        problem, d, inner = plan.problem, plan.problem.d, self.inner(plan.problem)
        means, squares, lengths = (_any(stage.mechanism) for stage in plan.stages[:3])
        limits = means.limits * 2.0**-FEATURE_BITS
        moments, noise, present, weight = ask.moments(), means.deviations, plan.n, plan.n
        if means.whole:
            weight = present = _count(plan.n, moments[d], noise[d])
            moments, noise = np.delete(moments, d), np.delete(noise, d)
        if problem.loss.unit_free:
            present = _count(plan.n, moments[-1], noise[-1])
            moments = moments[:-1]
        # Sums divided by n become means over the weight that is given, and over records that have a target.
        more = plan.n / np.where(np.arange(len(moments)) < d, weight, present)
        lowest = -limits
        for first, last, _ in self.levels:
            lowest[first:last] = 0  # shares of levels
        shares = np.clip(more * moments, lowest, limits)
        m = shares * self.intercept
        # A mean square below twice the standard deviation of its noise is replaced by that.
        measured, least = more * ask.moments(m), 2 * more * squares.deviations
        of_levels = self._level_squares(shares, float(more[0] * noise[0]))
        s = np.sqrt(np.where(of_levels > 0, of_levels, np.maximum(measured, least)))
        y_center, y_scale = 0.0, 1.0
        if problem.loss.unit_free:
            y_center = float(m[d])
            y_scale = min(RESIDUAL_DEVIATIONS * float(s[d]), problem.loss.y_range[1] + abs(y_center))
        largest, bounds = self._mapped(problem)
        basis = None
        if self.basis is not None:
            # Cells are in [-x_inf, x_inf]: a mean square about 0 of x_inf^2 leaves them at the two ends.
            squared = (m[:d] ** 2 + s[:d] ** 2) / problem.bounds.x_inf**2
            flat = tuple(j for j in self.basis.numbers if squared[j] >= TWO_VALUED)
            basis = replace(self.basis, reach=self.reach, flat=flat)
        spread = self.reach * s[:d] if basis is None else s[:d]
        unknown = self._unknown(d) if self.intercept else None
        ask.remap(Quantiser(bounds, m[:d], spread, basis=basis, missing=unknown), y_center, y_scale)
        mean_square, *again = ask.length()
        mean_square = plan.n / weight * max(float(mean_square), 2 * lengths.noise)
        most = float(d) if bounds.x_2 is None else bounds.x_2**2
        mean_square, closer = min(mean_square, most), 1.0
        caution = None
        if again and measured[d] < least[d]:
            found, noise = (plan.n / present * float(each) for each in (again[0], lengths.target_noise))
            square = max(found, 2 * noise)
            caution = LOST_TARGET if found < square else None
            closer = min(1.0, RESIDUAL_DEVIATIONS * math.sqrt(square))
            y_scale *= closer
        numbers = of_levels[:d] == 0
        if caution is None and numbers.any() and (measured[:d] < least[:d])[numbers].all():
            caution = LOST_COLUMNS
        length = self.stretch * (1 + 1 / math.sqrt(d)) * largest * math.sqrt(mean_square)
        ask.announce(Region(m[:d], s[:d], self.reach, length, basis), caution)

        unit = math.sqrt(1 - INTERCEPT**2 * self.intercept) / length  # of a deviation, in the fit's rows
        ask.remap(Quantiser(inner.bounds, 0.0, 1 / (largest * unit), INTERCEPT * self.intercept), 0.0, closer)

        def back(theta: Vector) -> Vector:
            weights: Vector = y_scale * unit * theta[: inner.d - self.intercept]
            offset = y_center + y_scale * INTERCEPT * theta[-1]
            if basis is None:
                weights = weights / s[:d].reshape(-1, *[1] * (theta.ndim - 1))
                offset = offset - m[:d] @ weights
            if not self.intercept:
                return weights
            return np.concatenate([weights, np.reshape(offset, (1, *theta.shape[1:]))])

        fit, fit_ask, solver = self._fit(plan), ask, self.solver
        if present < plan.n:
            solver = solver.with_records(fit, present)
            fit, fit_ask = self._fit(plan, present), _PresentAsk(ask, plan.n / present, inner.l2)
        theta = solver.run(fit, fit_ask)
        if fit_ask.uncertainty is not None:
            ask.publish(fit_ask.uncertainty.mapped(back, y_scale**2))
        return back(theta)

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """The other solver's prediction, in standardised units."""
        return self.solver.predict(self.inner(problem), n, budget)


def _count(n: int, share: float, deviation: float) -> int:
    """Return the number of units, n times a released share of them.

    A share below two standard deviations of its noise is replaced by these: it may be noise alone.
    """
    return max(1, round(n * min(1.0, max(float(share), 2 * float(deviation)))))


class _PresentAsk(Asking):
    """Passes queries on, and turns sums over n into means over the records that have a target.

    Vertices and minimisers do not depend on the divisor, apart from a ridge.
    """

    def __init__(self, ask: Asking, factor: float, l2: float) -> None:
        self._ask, self._factor, self._l2 = ask, factor, l2

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Ask, and rescale gradients, their differences and Hessians."""
        answer = self._ask.ask(*public, question=question)
        if question == "Hessian":
            spread = None if answer.spread is None else self._factor * answer.spread
            return SecondMoments(self._factor * answer.hessian, spread)
        if question not in DIVIDED:
            return answer
        point = public[0]
        if len(public) > 1:
            point = point - public[1] if question == "difference" else point[public[1]]
        ridge = self._l2 * point
        return self._factor * (answer - ridge) + ridge

    def move(self, step: float, vertex: Vertex) -> None:
        """Pass a move on."""
        self._ask.move(step, vertex)


def _divided_by(n: int, stage: Stage) -> Stage:
    """Return a stage with the noise that its answers have once `_PresentAsk` has rescaled them."""
    if stage.mechanism.traits.question not in DIVIDED:
        return stage
    return replace(stage, mechanism=replace(_any(stage.mechanism), n=n))


def _any(mechanism: Mechanism) -> Any:
    """Return a mechanism, typed so that fields of its class may be read."""
    return mechanism
