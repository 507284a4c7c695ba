"""Private standardisation: released means, deviations and a length make the coordinates of another fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, Following, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import FEATURE_BITS, AdditiveBasis, PublicScore, Quantiser, Region
from dpcvx.errors import Incompatible
from dpcvx.events import Compose, Repeat
from dpcvx.mechanisms import Mechanism, NoisyLength, NoisyMoments, NoisyPair, NoisyTarget
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.label_share import label_stage, measure_log_odds
from dpcvx.solvers.query_adapters import check_questions, divide_by
from dpcvx.solvers.scaled_target import (
    LONG_RESIDUAL,
    RESIDUAL,
    ScaledFit,
    TargetUnits,
    can_be_scaled,
    count_records,
    enough_shown,
    measure_units,
    scaled_loss,
    start_at,
    target_stage,
)
from dpcvx.solvers.shape_limits import limit_shapes

__all__ = ["Standardised", "doubtful_columns"]

FEATURE_SHARE: float = default("solvers.standardised.FEATURE_SHARE")
LENGTH_SHARE: float = default("solvers.standardised.LENGTH_SHARE")
LENGTH_SPREAD: float = default("solvers.standardised.LENGTH_SPREAD")
LEAST_LENGTH = 0.25  # least mean square length of rows, over the one that released moments predict
REACH: float = default("solvers.standardised.REACH")
INTERCEPT: float = default("solvers.standardised.INTERCEPT")
SCORE_SQUARE: float = default("solvers.standardised.SCORE_SQUARE")
LONGEST_SCORE: float = default("solvers.standardised.LONGEST_SCORE")
TWO_VALUED: float = default("solvers.standardised.TWO_VALUED")
LONGEST_LEVELS: float = default("solvers.standardised.LONGEST_LEVELS")
PAIR_SHARE: float = default("solvers.standardised.PAIR_SHARE")
COLUMN_STRETCH: float = default("solvers.standardised.COLUMN_STRETCH")
COLUMN_CONSTANT: float = default("solvers.standardised.COLUMN_CONSTANT")
LABEL_SHARE: float = default("solvers.standardised.LABEL_SHARE")
RAREST = 0.98  # largest mean of labels -1 and 1 that pairs are selected at: one in a hundred is the other
HIDDEN_NOISE: float = default("solvers.standardised.HIDDEN_NOISE")
LOST_COLUMNS = (
    "The model may be no better than a constant: the released standard deviations of all columns of numbers "
    "are no larger than their noise. Their bounds are too wide for this number of records and this epsilon. "
    "Use narrower bounds, column maps or a larger epsilon. The budget of this fit is spent."
)


@dataclass(frozen=True)
class Standardised(ScaledFit):
    """Standardise the records with released moments, fit with another solver, return to old coordinates.

    Algorithm: three questions release the mean m of every feature, the mean square s^2 about it, and the root
    mean square length r of the rows (x - m)/s with cells clipped to [-3, 3]. Rows are shrunk to length
    r (1 + 1/sqrt(d)), which few of d independent columns exceed, and scaled to norm 1 together with an
    intercept. Without a basis or a public score, r^2 is averaged with its prediction from the mean squares of
    the cells, weighted by precision, which is post-processing. The set holds the coefficients of these rows.
    New rows are mapped in the same way: the region is released with the parameter (`Region`).

    Means of the features of levels are shares m_j. Their mean squares m_j (1 - m_j) follow from them and are
    not asked. A column of many levels is scaled down, so that it is not longer than a few numbers. A cell
    that is no level counts as the shares. A missing cell of a number counts as the released mean of the cells
    that are there, whose number is released with their sum at no price (PRIVACY_MATH §17).

    Targets of squared and of pinball loss, which mean the same in any units, are centred and scaled first, as
    by `ScaledTarget`; of squared loss there may be several. The number of records that have a target,
    released there, takes the place of n in the gradients and Hessians that the fit works with, so that its
    steps and standard errors are those of the records that have a target (PRIVACY_MATH §17).

    Descent for two classes starts at the log-odds of their shares, which are released first
    (`measure_log_odds`): it would find slowly that a class is rare, and with more noise.

    Privacy: `NoisyMoments` twice and `NoisyLength` take 13 % of mu(eps, delta)^2 in all, and `NoisyTarget`
    between 5 and 40 % by n mu, or of labels between 3 and 20 %; the maps use released or public numbers and
    one row at a time, so the fit's questions have the sensitivity of rows of norm 1 (PRIVACY_MATH §12b). The
    fit is calibrated so that all together keep the budget.

    A score that was fitted to public rows is one more feature. The fit finds its weight like that of any
    column, and the answer is in terms of the columns alone (`PublicScore`).

    Without an intercept nothing is centred: deviations are taken about 0.

    With a basis the standardised cells become its features, row by row and with public numbers, before their
    length is released; the fit is one of these features, and its answer stays in their units (`Region` maps
    new rows). Means and deviations of the cells place the knots, so a basis costs no question of its own. A
    column whose released mean square is that of cells at the two ends of their bounds has no ramps.
    With few records no column has any if the target's tail, which is released with its scale, is long or
    hidden by noise: all ramps are 0, and residuals are clipped as those of straight lines are.

    Where the products of all pairs of columns would be too many features, some of them are selected first:
    those along which the loss of the constant model falls most. The share of the second label, which that
    model needs, is released before (`NoisyTarget`, 1 % of mu^2); then `NoisyPair` draws the pairs for 5 %
    of mu^2. Rows are mapped by released numbers once more, to the features of the pairs that were drawn.
    Columns are selected in the same way, by their straight lines and squares; the fit then has the features
    of the selected columns, and in its answer the coefficients of the others are 0.

    Parameters
    ----------
    solver : Solver
        Fits in the new coordinates.
    intercept : bool
        Whether the model has an intercept. It is the last entry of the answer, for a feature of value 1.
    stretch : float
        Rows are shrunk to this many times that length. With 1 some are, a little, which hardly changes
        predictions; standard errors of coefficients need rows as they are, and so more. Fits of few records
        have less noise with a smaller one. Shorter rows have larger coefficients: these are multiplied by a
        stretch below 1, and new rows are shrunk to the whole length only.
    reach : float
        Cells further than this from their mean are clipped, in deviations. Standard errors need more where
        features are skewed; more makes the length's noise larger.
    basis : AdditiveBasis, optional
        Features of the standardised cells; none for a linear model.
    selected : int
        Number of pairs of features that are selected, for a basis without pairs; with `droppable`, number of
        its columns of numbers.
    residual : float
        Residuals of squared loss are clipped at this many standard deviations of the target.
    shrink : {"row", "labels", "gradient"}
        Treatment of rows that are too long (`Quantiser`). "row": they are shrunk. "labels" and, for numbers,
        "gradient": gradients are clipped instead (`BoundedLogistic`, `BoundedInfluence`).
    bend : float
        Where gradients are clipped, the curvature at which a record is clipped in a released Hessian, over
        that of a record of usual length.
    pull : float
        Norm at which gradients are clipped, or that of the loss if it is smaller.
    """

    solver: Solver
    intercept: bool = True
    stretch: float = 1.0
    reach: float = REACH
    basis: AdditiveBasis | None = field(default=None, repr=False)  # long; the statement describes it
    # columns of levels: first feature, last + 1, and the stored integer of cells that are no level (or 0)
    levels: tuple[tuple[int, int, int], ...] = field(default=(), repr=False)
    residual: float = RESIDUAL[1]
    # columns of which every level has a feature: first feature, last + 1, and the feature of a cell's level
    compared: tuple[tuple[int, int, float], ...] = field(default=(), repr=False)
    shrink: str = "row"
    bend: float = field(default=1.0, repr=False)
    pull: float = field(default=math.inf, repr=False)
    marked: tuple[int, ...] = field(default=(), repr=False)  # features whose stored 0 is a missing cell
    # shapes within bounds: place of a number, largest difference of its contributions, sign of slopes or 0
    limits: tuple[tuple[int, float, int], ...] = field(default=(), repr=False)
    # pairs of features among which `selected` are chosen, whose products join those of the basis
    candidates: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    selected: int = field(default=0, repr=False)
    # places of numbers of which `selected` are chosen, each with two candidates: its product with the
    # constant, and its square; the features of the others are 0
    droppable: tuple[int, ...] = field(default=(), repr=False)
    # coefficients of a score that was fitted to public rows, among which its variance is 1; none without a
    # score, and with a basis
    score: tuple[float, ...] = field(default=(), repr=False)

    # clip of residuals, in standard deviations, of a fit whose ramps are 0 unless the target's tail is known
    # to be short; 0 if they do not depend on it
    straight: float = field(default=0.0, repr=False)

    standardises: ClassVar[bool] = True

    def with_coordinates(self, solver: Solver) -> Solver:
        """Return another solver, standardised."""
        return replace(self, solver=solver, stretch=1.0, reach=REACH, shrink="row", bend=1.0, pull=math.inf)

    def squares_left(self, plan: Plan, shares: tuple[float, ...]) -> tuple[float, ...]:
        """Return 1 for a column whose variance was measured, less where noise hides it.

        A mean square below twice the noise counts as that much, so a column that varies by less stays short.
        """
        squares = _any(plan.stages[self._targets(plan.problem) + 1].mechanism)
        least = 2 * float(squares.deviations[: plan.problem.d].max())
        return tuple(min(1.0, share * plan.problem.bounds.x_inf**2 / least) for share in shares)

    def _fit(self, plan: Plan, n: int | None = None) -> Plan:
        """Return the part of a plan after the moments, for n records that have a target."""
        inner, stages = self.inner(plan.problem), plan.stages[self._measured(plan.problem) :]
        if n is not None:
            stages = tuple(divide_by(n, stage) for stage in stages)
        return replace(plan, stages=stages, n=n or plan.n, problem=inner, solver=self.solver, candidates=())

    def inner(self, problem: Problem) -> Problem:
        """The problem in standardised coordinates; public, whatever the moments will be."""
        if problem.loss.unit_free and not can_be_scaled(problem):
            raise Incompatible(
                "Standardisation covers several targets of squared loss only; give standardize=False."
            )
        loss = problem.loss
        if loss.unit_free:
            loss = scaled_loss(loss, self.residual, problem.outputs)
        if self.shrink in ("labels", "gradient"):
            loss = loss.with_clipped_gradients(self.pull, self.bend)
        return replace(problem, loss=loss, bounds=Bounds(1.0, 1.0), d=self._width(problem) + self.intercept)

    def _targets(self, problem: Problem) -> int:
        """Number of stages that are about the target."""
        labels = self.intercept and self.solver.uses_log_odds and _has_two_labels(problem)
        return int(problem.loss.unit_free or labels)

    def _width(self, problem: Problem) -> int:
        """Number of features of the fit, the intercept not counted."""
        if self.basis is None:
            return problem.d + bool(self.score)
        return self.fitted_basis(self.basis).width

    def with_straight_lines(self) -> Standardised:
        """Return the fit of standardised cells alone."""
        return replace(self, basis=None, residual=self.straight or self.residual, straight=0.0)

    def fitted_basis(self, basis: AdditiveBasis) -> AdditiveBasis:
        """Return a basis of the size of the fit, which does not depend on the selection."""
        if self.droppable:
            return basis.keep(self.droppable[: self.selected], self.droppable)[0]
        return replace(basis, pairs=basis.pairs + ((0, 0),) * self.selected)

    def _measured(self, problem: Problem) -> int:
        """Number of stages before the fit."""
        return self._targets(problem) + 3 + self._selections(problem)

    def _selections(self, problem: Problem) -> int:
        """Number of stages that select pairs; of labels their shares come first."""
        return 0 if self.selected == 0 else 1 + self._asks_labels(problem)

    def _asks_labels(self, problem: Problem) -> bool:
        """Whether the shares of labels are asked for before pairs are selected: not if they are known."""
        return _has_two_labels(problem) and not self._targets(problem)

    def _mapped(self, problem: Problem) -> tuple[float, Bounds]:
        """Largest absolute value of a feature before rows are shrunk, and bounds of rows divided by it."""
        if self.score:
            score = self._public_score(np.ones(problem.d))
            norm = score.largest_norm(self._columns(problem.d))
            return score.largest, Bounds(1.0, math.nextafter(norm / score.largest, math.inf))
        if self.basis is None:
            return self.reach, Bounds(1.0, math.sqrt(self._columns(problem.d)) if self.levels else None)
        return self._bounded(self.fitted_basis(replace(self.basis, reach=self.reach)), problem)

    def _bounded(self, basis: AdditiveBasis, problem: Problem) -> tuple[float, Bounds]:
        """Largest absolute value of a basis's features, and bounds of rows divided by it."""
        norm = basis.largest_norm(self._columns(basis.d))
        return basis.largest, Bounds(1.0, math.nextafter(norm / basis.largest, math.inf))

    def _public_score(self, s: Vector) -> PublicScore:
        """Return the score as a feature of cells in these units, or standard deviations.

        In rows like the public ones its mean square is a tenth of that of all other features together, so
        that descent finds it early; a useless one adds 5 % to the noise. It is clipped at three
        standard deviations.
        """
        spread = math.sqrt(SCORE_SQUARE * self._columns(len(s)))
        direction = spread * s * np.array(self.score)
        shorter = LONGEST_SCORE / max(float(np.linalg.norm(direction)), LONGEST_SCORE)
        return PublicScore(shorter * direction, REACH * spread, self.reach)

    def _columns(self, d: int) -> int:
        """Number of columns that d features belong to, a column of levels counted once."""
        return d - sum(last - first - 1 for first, last, _ in self.levels)

    def _level_squares(self, shares: Vector, noise: float) -> Vector:
        """Return the mean squares that features of levels are scaled by; 0 for other features.

        That of a level with share m is m (1 - m), not below twice the noise. `noise`: standard deviation of
        the noise on a share. At most 1/(2 noise) equally frequent levels can be told from 0. A column of more
        levels, or of more than 16, is made as long as that many: its mean squares are multiplied by the
        ratio. The L features of compared levels vary in L - 1 directions, and are made as long as L - 1
        numbers: their mean squares are multiplied by L / (L - 1) at least.
        """
        squares = np.zeros_like(shares)
        compared = {(first, last) for first, last, _ in self.compared}
        for first, last, _ in self.levels:
            m = shares[first:last]
            size = last - first
            least = size / (size - 1) if self.intercept and (first, last) in compared else 1.0
            longer = max(least, size * min(1.0, max(2 * noise, 1 / LONGEST_LEVELS)))
            squares[first:last] = longer * np.maximum(m * (1 - self.intercept * m), 2 * noise)
        return squares

    def _unknown(self, d: int) -> Vector | None:
        """Stored integer that stands for a cell without a number or level, NaN where there is none."""
        if not self.marked and not any(share for *_, share in self.levels):
            return None
        unknown = np.full(d, np.nan)
        unknown[list(self.marked)] = 0
        for first, last, share in self.levels:
            unknown[first:last] = share or np.nan
        return unknown

    def _redundant(self, m: Vector, s: Vector, unit: float, d: int) -> Vector:
        """Return the directions from all levels of a column to the intercept, shape (q, d).

        A level's feature is u_0 where a cell is another level and u_1 where it is this one, so (u - u_0) /
        (u_1 - u_0) is 1 for one level of the column and 0 for the others; their sum less 1 is always 0.

        `m`, `s`: centre and scale of cells; `unit`: of a deviation, in the fit's rows.
        """
        directions = np.zeros((len(self.compared), d))
        for row, (first, last, one) in zip(directions, self.compared, strict=True):
            cells = np.array([[0.0], [one]])
            zero, size = np.diff(
                np.clip((cells - m[first:last]) / s[first:last], -self.reach, self.reach), axis=0, prepend=0.0
            )
            row[first:last] = 1 / size
            row[-1] = -(1 + (zero / size).sum()) * unit / INTERCEPT
        return directions

    def _known(self, d: int, moments: Vector, deviations: Vector) -> Vector:
        """Return the share of the cells of each feature that are there, 1 where missing ones are not marked.

        A share within two standard deviations of its noise from 1 is 1: perhaps no cell is missing. One below
        two standard deviations is replaced by these.
        """
        known = np.ones(d)
        places, last = list(self.marked), len(moments) - len(self.marked)
        noise = 2 * deviations[last:]
        known[places] = np.where(moments[last:] > 1 - noise, 1.0, np.maximum(moments[last:], noise))
        return known

    def _empty(self, moments: Vector, deviations: Vector) -> tuple[int, ...]:
        """Return the features whose share of cells is within two standard deviations of 0 and not of 1."""
        last = len(moments) - len(self.marked)
        noise = 2 * deviations[last:]
        return tuple(np.array(self.marked, dtype=int)[moments[last:] < np.minimum(noise, 1 - noise)].tolist())

    def measures(self, problem: Problem, n: int, budget: Budget) -> tuple[Mechanism, ...]:
        """The questions about means, mean squares and the length of rows."""
        if budget.delta == 0:
            raise Incompatible("Standardisation draws Gaussian noise, which needs delta > 0.")
        paid = spendable(budget)
        mu = gaussian_mu(paid.epsilon, paid.delta)
        features, length = (1 / (mu * math.sqrt(share)) for share in (FEATURE_SHARE / 2, LENGTH_SHARE))
        spans = tuple((first, last) for first, last, _ in self.levels)
        means, squares = (
            NoisyMoments(problem, n, order, features, budget.neighbours, spans, self.marked)
            for order in (1, 2)
        )
        mapped = replace(problem, bounds=self._mapped(problem)[1], d=self._width(problem))
        return means, squares, NoisyLength(mapped, n, length, budget.neighbours)

    def selections(self, problem: Problem, n: int, budget: Budget) -> tuple[Mechanism, ...]:
        """The questions that select pairs, if any: the share of the second label, then the pairs."""
        if self.selected == 0:
            return ()
        paid = spendable(budget)
        mu = gaussian_mu(paid.epsilon, paid.delta)
        # k draws of bounded range eta cost as much as a Gaussian of mu^2 = k eta^2/4 (PRIVACY_MATH §2.1).
        eta = 2 * mu * math.sqrt(PAIR_SHARE / self.selected)
        stretch = COLUMN_STRETCH if self.droppable else self.reach
        drawn = NoisyPair(self._constant_model(problem), n, eta, self.candidates, stretch, budget.neighbours)
        if not self._asks_labels(problem):
            return (drawn,)
        return NoisyTarget(n, 1 / (mu * math.sqrt(LABEL_SHARE)), budget.neighbours), drawn

    @property
    def _constant(self) -> float:
        """Value of the constant feature of rows by which pairs or columns are selected."""
        return COLUMN_CONSTANT if self.droppable else INTERCEPT

    def _constant_model(self, problem: Problem) -> Problem:
        """Return the problem of standardised cells over their reach and a constant, in the fit's own loss."""
        norm = math.hypot(math.sqrt(self._columns(problem.d)), self._constant)
        bounds = Bounds(1.0, math.nextafter(norm, math.inf))
        return replace(problem, loss=self.inner(problem).loss, bounds=bounds, d=problem.d + 1, l2=0.0)

    def _select(
        self, problem: Problem, ask: Asking, basis: AdditiveBasis, rows: Quantiser, units: TargetUnits
    ) -> tuple[AdditiveBasis, list[int] | None]:
        """Draw the pairs, or numbers; return the basis with them, to which the records are mapped.

        If numbers are selected, also return the indices of the features of the fit in the basis.

        `basis`: with the flat columns, which are known by now; `rows`: map to standardised cells; `units`: of
        the target, and the log-odds of labels if they are known.
        """
        constant = self._constant_model(problem)
        theta = np.zeros(constant.shape)
        if _has_two_labels(problem):
            theta[-1] = units.start / self._constant
        if self._asks_labels(problem):
            answer = ask.target(0.0, 1.0)
            share = min(max(float(answer[1]) / max(float(answer[0]), 0.5), -RAREST), RAREST)
            theta[-1] = math.log((1 + share) / (1 - share)) / self._constant
        cells = replace(rows, bounds=constant.bounds, scale=self.reach * rows.scale, intercept=self._constant)
        ask.remap(replace(cells, basis=None), units.center, units.scale)
        drawn: tuple[int, ...] = ()
        for _ in range(self.selected):
            place = ask.pair(theta, drawn)
            both = (place - place % 2, place - place % 2 + 1) if self.droppable else (place,)
            drawn = (*drawn, *both)
        if self.droppable:
            kept = tuple(self.candidates[k][0] for k in drawn[::2])
            found, cells_of, features = basis.keep(kept, self.droppable)
            basis = replace(basis, dropped=tuple(sorted({*self.droppable} - {*kept})))
        else:
            found = basis = replace(basis, pairs=tuple(self.candidates[k] for k in sorted(drawn)))
            cells_of, features = list(range(problem.d)), None
        _, bounds = self._bounded(found, problem)
        ask.remap(Quantiser(bounds, 0.0, 1 / self.reach, basis=found, places=tuple(cells_of)))
        return basis, features

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Give the measures their share, and the other solver what is left."""
        means, squares, length = self.measures(problem, n, budget)
        selections = (
            Stage(each, self.selected if isinstance(each, NoisyPair) else 1)
            for each in self.selections(problem, n, budget)
        )
        measures = (Stage(means, 1), Stage(squares, 1), *selections, Stage(length, 1))
        if problem.loss.unit_free:
            measures = (target_stage(n, budget, problem.outputs), *measures)
        elif self._targets(problem):
            measures = (label_stage(n, budget), *measures)
        before = Compose(tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in measures))
        fit = self.solver.plan(self.inner(problem), n, budget, Following(before, accountant))
        if problem.loss.unit_free:
            check_questions(problem.loss, fit)
        stages = (*measures, *fit.stages)
        return Plan(stages, problem, n, replace(self, solver=fit.solver), budget, accountant)

    def _measure_target(self, plan: Plan, ask: Asking) -> tuple[Solver, TargetUnits, int | None, str | None]:
        """Release what is asked about the target, if anything.

        Returns the solver of the fit, the units of its target, the number of records that have a target, None
        if it is not released, and a warning or None.
        """
        loss = plan.problem.loss
        if not self._targets(plan.problem):
            return self.solver, TargetUnits(), None, None
        if not loss.unit_free:
            found = measure_log_odds(plan.stages[0], ask)
            units = TargetUnits(level=found.log_odds, start=found.log_odds)
            solver = self.solver.with_log_odds(self._fit(plan), found.log_odds)
            return solver, units, None, found.caution
        shown = enough_shown(self.solver)
        units, present, caution = measure_units(
            plan.stages[0],
            plan,
            ask,
            self.residual,
            centred=self.intercept,
            shown=shown,
            straight=self.straight,
            # Standard errors are those of the clip that was planned for them.
            longest=RESIDUAL[1] if self.hessian_share is not None else LONG_RESIDUAL,
        )
        solver = self.solver
        if self.straight and units.tail:
            solver = solver.with_path_of(self._fit(plan), self.with_straight_lines().inner(plan.problem))
        return solver, units, present, caution

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Measure, map the records, fit, and map the coefficients back."""
        problem, d, inner = plan.problem, plan.problem.d, self.inner(plan.problem)
        stages = plan.stages[self._targets(problem) : self._measured(problem)]
        means, squares, lengths = (_any(stage.mechanism) for stage in (*stages[:2], stages[-1]))
        solver, units, present, caution = self._measure_target(plan, ask)
        limits = means.limits * 2.0**-FEATURE_BITS
        moments, weight = ask.moments(), plan.n
        if means.whole:
            weight = count_records(plan.n, float(moments[d]), float(means.deviations[d]))
        if present is None:
            present = weight
        more = plan.n / weight  # sums divided by n become means over the weight that is given
        lowest = -limits
        for first, last, _ in self.levels:
            lowest[first:last] = 0  # shares of levels
        known = self._known(d, more * moments, more * means.deviations)
        shares = np.clip(more * moments[:d] / known, lowest, limits)
        m = shares * self.intercept
        # A mean square below twice the standard deviation of its noise is replaced by that.
        measured, least = more * ask.moments(m) / known, 2 * more * squares.deviations / known
        share_noise = float(more * means.deviations[0])
        of_levels = self._level_squares(shares, share_noise)
        s = np.sqrt(np.where(of_levels > 0, of_levels, np.maximum(measured, least)))
        largest, bounds = self._mapped(problem)
        basis, features = None, None
        if self.basis is not None:
            x_inf, lines = problem.bounds.x_inf, self.straight and units.tail
            of_two = TWO_VALUED * x_inf**2 * square_of_two(m / x_inf)
            flat = tuple(j for j in self.basis.numbers if lines or measured[j] >= of_two[j])
            basis = replace(self.basis, reach=self.reach, flat=flat)
        score = self._public_score(s) if self.score else None
        spread = self.reach * s if basis is None and score is None else s
        unknown = self._unknown(d) if self.intercept else None
        cells = Quantiser(bounds, m, spread, basis=score or basis, missing=unknown)
        if basis is not None and self.selected:
            basis, features = self._select(problem, ask, basis, cells, units)
        else:
            ask.remap(cells, units.center, units.scale)
        most = float(d) if bounds.x_2 is None else bounds.x_2**2
        mean_square, noise = more * ask.length(), more * lengths.noise
        numbers = of_levels == 0
        if basis is None and score is None:
            of_shares = np.maximum(shares * (1 - self.intercept * shares), share_noise / 4)
            usual = known * np.where(numbers, np.maximum(measured, least / 8), of_shares) / s**2
            mean_square = _mean_square(float(usual.sum()) / largest**2, mean_square, noise)
        else:
            mean_square = max(mean_square, 2 * noise)
        mean_square = min(mean_square, most)
        hidden = numbers.any() and bool((measured < least)[numbers].all())
        # Levels are not hidden, and most regressions that have some were useful without the numbers.
        if caution is None and hidden and (numbers.all() or not problem.loss.unit_free):
            caution = LOST_COLUMNS
        kept = d if basis is None else d - len(basis.dropped)
        length = self.stretch * (1 + 1 / math.sqrt(kept)) * largest * math.sqrt(mean_square)
        shortened = min(self.stretch, 1.0)
        # Where gradients are clipped, rows are not: no row within reach is too long.
        farthest = length / shortened if self.shrink == "row" else self.reach * math.sqrt(d)
        empty = self._empty(more * moments, more * means.deviations)
        cell_noise = float(more * means.deviations[-1]) if empty else 0.0
        region = Region(m, s, self.reach, farthest, basis, share_noise, empty, cell_noise)
        if self.intercept:
            of_means, of_squares = (more * each.deviations[:d] / known for each in (means, squares))
            spread = np.where(numbers, measured / limits**2, np.nan)
            spread[list(empty)] = np.nan
            flat, at_end = doubtful_columns(
                shares / limits, spread, of_means / limits, of_squares / limits**2
            )
            region = replace(region, flat=flat, at_end=at_end)
        ask.announce(region, caution)

        unit = math.sqrt(1 - INTERCEPT**2 * self.intercept) / length  # of a deviation, in the fit's rows
        offset = INTERCEPT * self.intercept
        ask.remap(Quantiser(inner.bounds, 0.0, 1 / (largest * unit), offset, shrink=self.shrink))

        if self.limits and basis is not None:
            factor = shortened * units.factor * unit
            plan = replace(plan, problem=limit_shapes(problem, self.limits, basis, factor))

        def back(theta: Vector) -> Vector:
            weights: Vector = shortened * units.factor * unit * theta[: inner.d - self.intercept]
            offset = units.level + units.factor * INTERCEPT * theta[-1]
            if basis is not None and features is not None:
                fitted, weights = weights, np.zeros((basis.width, *theta.shape[1:]))
                weights[features] = fitted
            if score is not None:
                weights = score.fold(weights)
            if basis is None:
                weights = weights / s.reshape(-1, *[1] * (theta.ndim - 1))
                offset = offset - m @ weights
            if not self.intercept:
                return weights
            return np.concatenate([weights, np.reshape(offset, (1, *theta.shape[1:]))])

        if self.intercept and self.compared:
            directions = self._redundant(m, s, unit, inner.d if features is None else d + 1)
            if features is not None:
                fitted, directions = directions, np.zeros((len(directions), inner.d))
                directions[:, :kept], directions[:, -1] = fitted[:, features[:kept]], fitted[:, -1]
            solver = solver.with_redundant(directions)
        if self.shrink == "gradient" and score is None:
            # Mean squares of standardised features, less two standard deviations of their noise; those of
            # levels follow from their shares.
            of_shares = shares * (1 - self.intercept * shares) - 2 * share_noise
            usual = known * np.maximum(np.where(numbers, measured - least, of_shares), 0.0) / s**2
            # Cells that are clipped at the reach shorten rows; each column may be the one that has them.
            usual = np.maximum(usual - max(0.0, float(usual.sum()) - largest**2 * mean_square), 0.0)
            for first, last, _ in self.compared:
                usual[first:last] = 0
            solver = solver.with_squares(np.append(unit**2 * usual, [0.0] * self.intercept))
        start = start_at(units, INTERCEPT * self.intercept, inner.d)
        return self._run_fit(plan, ask, solver, present, back, units, start)


def square_of_two(means: Vector) -> Vector:
    """Return the mean square about m of cells that are -1 or 1 and have mean m, with squares clipped at 1.

    (1 - |m|)(1 - m^2/2): the rarer value is 1 + |m| from m, and `NoisyMoments` clips its square.
    """
    away = np.abs(means)
    return (1 - away) * (1 - away**2 / 2)


def doubtful_columns(
    means: Vector, squares: Vector, mean_noise: Any, square_noise: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns that hardly vary, and those whose mean is at the upper end of their bounds.

    A column hardly varies if its released mean square is less than twice its noise. Only small noise counts,
    since larger noise also hides useful columns that are skewed. A mean is at the upper end if it is within
    one standard deviation of its noise of that end and more than two from the middle, and the mean square
    within two of 0. Columns at the lower end are not returned, since those of useful skewed columns are there
    too.

    `means`, `squares`: released, of cells in [-1, 1], the squares about the means; NaN for columns
    that are no numbers; `mean_noise`, `square_noise`: their standard deviations.
    """
    hidden = squares < 2 * square_noise
    at_end = hidden & (means > np.maximum(1 - mean_noise, 2 * mean_noise))
    flat = hidden & ~at_end & (square_noise < HIDDEN_NOISE)
    return tuple(np.flatnonzero(flat).tolist()), tuple(np.flatnonzero(at_end).tolist())


def _mean_square(expected: float, measured: float, noise: float) -> float:
    """Return the mean square length of rows: the mean of prediction and release, weighted by precision.

    The relative error of the prediction is about `LENGTH_SPREAD`: clipped cells shorten rows, and noise
    changes the scale of columns. Noise may make the mean small or negative, so that it has a least value.

    `expected`: predicted from released moments; `measured`: released; `noise`: its standard deviation.
    """
    variance = (LENGTH_SPREAD * expected) ** 2
    found = (measured * variance + expected * noise**2) / (variance + noise**2)
    return max(found, LEAST_LENGTH * expected)


def _has_two_labels(problem: Problem) -> bool:
    """Whether the target is one of two labels, whose shares a constant model needs."""
    return problem.outputs == 1 and problem.loss.target == "labels"


def _any(mechanism: Mechanism) -> Any:
    """Return a mechanism, typed so that fields of its class may be read."""
    return mechanism
