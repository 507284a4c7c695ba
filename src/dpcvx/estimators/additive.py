"""Private additive models: a shape for each column, all fitted together as one convex problem."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpcvx.accounting import Budget, Tight
from dpcvx.data import AdditiveBasis, Dataset
from dpcvx.data.columns import Columns
from dpcvx.data.declarations import Declarations
from dpcvx.data.target import Target
from dpcvx.domains import Domain, L2Ball
from dpcvx.domains.signed import SignedBall
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators.classifiers import PrivateLogisticRegression
from dpcvx.estimators.documentation import document
from dpcvx.estimators.hypotheses import ModelTerms
from dpcvx.estimators.linear_model import LinearModel
from dpcvx.estimators.planning import FitDeclaration, parameters
from dpcvx.estimators.private_maps import UNIT_BOUNDS
from dpcvx.estimators.regressors import SquaredRegressor
from dpcvx.estimators.shape_summary import PRODUCTS, ShapeSummary
from dpcvx.estimators.shapes import Shapes
from dpcvx.losses import Loss
from dpcvx.planning.additive import (
    KNOTS,
    KNOTS_OF_LABELS_BESIDE_ERRORS,
    KNOTS_OF_NUMBERS,
    KNOTS_OF_NUMBERS_BESIDE_ERRORS,
    MOST_CANDIDATES,
    PAIRS_OF_LABELS,
    PAIRS_OF_NUMBERS,
    SELECTED_PAIRS,
    KnotRule,
    default_knots,
    default_pairs,
    needs_short_tail,
    pair_weight,
    ramp_weight,
    selects_pairs,
    spaced_knots,
)
from dpcvx.planning.planner import default_clip
from dpcvx.plans import Plan, Release, Solver
from dpcvx.problem import Problem
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.scaled_target import asks_about_tail, target_stage
from dpcvx.solvers.standardised import REACH
from dpcvx.solvers.typical_data import inflation
from dpcvx.words import is_number, quantity, show

__all__ = ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]

FEWEST_KNOTS = 3
BELOW = 1 - 2.0**-48  # of a bound, for the rounding of a shape's values
MOST_KNOTS = 33  # more would only slow a fit down: ramps between them are narrower than noise allows


@parameters
class AdditiveModel(LinearModel):
    """A linear model of ramps and products of standardised columns."""

    knots: Any = "auto"
    interactions: Any = "auto"
    monotone: Mapping[Any, int] | None = None
    bounded: Mapping[Any, float] | None = None
    selected_columns: int | None = None

    _knot_rule: ClassVar[KnotRule] = KNOTS
    _knot_rule_beside_errors: ClassVar[KnotRule] = KNOTS_OF_NUMBERS_BESIDE_ERRORS
    _pairs_from: ClassVar[float] = PAIRS_OF_NUMBERS

    @property
    def shapes_(self) -> Shapes:
        """Shape of each column: knots or levels, and their contributions to the score."""
        check_is_fitted(self)
        return Shapes.of(self)

    def summary(self, level: float = 0.95, *, adjust: str | None = None) -> ShapeSummary:
        """Return the table of shapes: a line for each column, with one test of the whole shape.

        Parameters
        ----------
        level : float
            Not used: intervals are those of each knot, in ``shapes_``.
        adjust : {None, "holm"}
            Adds p-values that are adjusted for the number of columns.

        Returns
        -------
        ShapeSummary
            ``print`` it, or export it as the table of a linear model. Tests need ``uncertainty``.
        """
        made = super().summary(level, adjust=adjust)
        facts = (made.title, made.facts, made.terms, made.estimates, made.uncertainty, level, adjust)
        return ShapeSummary(*facts, made.notes, shapes=self.shapes_)

    def _terms(self) -> ModelTerms:
        """Return the coefficients by name; a column's line and ramps belong together, and so do products."""
        terms, rows = super()._terms(), self._row_map
        basis = None if rows.region is None else rows.region.basis
        if basis is None:
            return terms
        bent = {*basis.numbers} - {*basis.flat} if basis.ramps else set()
        published = {place: k for k, place in enumerate(rows.compared.tolist())}  # baselines are left out
        columns: list[tuple[str, Sequence[int], str]] = []
        for label, span, baseline in terms.columns:
            first = int(rows.compared[span[0]])
            ramps = [published[place] for place in basis.ramp_places(first)] if first in bent else []
            columns.append((label, (*span, *ramps), baseline))
        if basis.pairs:
            last = len(rows.feature_names)
            columns.append((PRODUCTS, range(last - len(basis.pairs), last), ""))
        return ModelTerms(rows.feature_names, tuple(columns))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the shape of every column; needs ``dpcvx[plot]``.

        Parameters
        ----------
        path : str or Path, optional
            File to write the picture to, by its suffix .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure
            A panel for each column. With ``uncertainty`` a band is 95 % intervals, point by point, of the
            shape without the bias of the fit.
        """
        from dpcvx.estimators.shape_plots import draw_shapes

        figure = draw_shapes(self.shapes_)
        if path is not None:
            figure.savefig(path)
        return figure

    def _standardizes(self, problem: Problem, n: int, budget: Budget, *, dense: bool) -> bool:
        """Whether the fit standardises, which knots need."""
        found = super()._standardizes(problem, n, budget, dense=dense)
        asked = self.knots not in ("auto", 0) or self.interactions not in ("auto", "none", 0)
        asked = asked or self.selected_columns is not None
        if (asked or self._demands) and not found:
            raise Incompatible(
                "Knots, interactions, selected columns, monotone and bounded shapes need standardised "
                "columns: leave them out, or give dense records, delta > 0, no radius and standardize=True."
            )
        return found

    def _domain_of(self, loss: Loss, outputs: int, columns: Columns) -> Domain:
        domain = super()._domain_of(loss, outputs, columns)
        if getattr(self, "domain", "l2") != "l2":
            raise Incompatible('Additive models are fitted in an l2 ball: leave domain at "l2".')
        return domain

    def _coordinates(self, columns: Columns, n: int, budget: Budget) -> Standardised:
        """Return the standardisation with the basis of the model, from public facts."""
        coordinates = super()._coordinates(columns, n, budget)
        spans, numbers = columns.spans(), _number_places(columns)
        flags = {spans[j][0] for j in columns.flags}  # two values need no knots between them
        numbers = tuple(j for j in numbers if j not in flags)
        knots = self._knot_count(n, budget, columns)
        if self.knots == "auto" and knots == FEWEST_KNOTS:  # few records may not show what is a flag
            numbers = tuple(j for j in numbers if (columns.low[j], columns.high[j]) not in UNIT_BOUNDS)
        droppable = self._droppable(columns)
        pairs, selected = () if droppable else self._pairs(n, budget, columns), 0
        candidates = self._every_pair(columns) if pairs is None else ()
        if pairs is None:
            pairs, selected = (), self._selected(candidates)
        if droppable:
            selected = int(self.selected_columns or 0)
            candidates = tuple((j, other) for j in droppable for other in (columns.width, j))
        if not (knots and numbers) and not pairs and not selected and not self._demands:
            return coordinates
        basis = AdditiveBasis(
            columns.width,
            numbers if knots else (),
            spaced_knots(knots) if numbers else (),
            ramp_weight(knots),
            pairs,
            pair_weight(columns.width, selected or None),
            REACH,
        )
        return dataclasses.replace(
            coordinates,
            basis=basis,
            candidates=candidates,
            selected=selected,
            droppable=droppable,
            straight=float(self._needs_short_tail(n, budget, columns)),
        )

    def _needs_short_tail(self, n: int, budget: Budget, columns: Columns) -> bool:
        """Whether the model has shapes only if the released tail of its target is short."""
        return False

    def _droppable(self, columns: Columns) -> tuple[int, ...]:
        """Return the indices of the columns from which the fit selects; empty if it keeps all."""
        count, places = self.selected_columns, _number_places(columns)
        if count is None:
            return ()
        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
            raise WrongValue(f"selected_columns must be None or a positive integer, got {show(count)}.")
        if self.uncertainty or self._demands or self.interactions not in ("auto", "none", 0):
            raise Incompatible(
                "selected_columns is for fits without standard errors, monotone or bounded shapes and "
                "interactions: the columns are not known before the fit. Leave selected_columns or these out."
            )
        return () if count >= len(places) else places

    @property
    def _demands(self) -> dict[Any, tuple[int, float]]:
        """Columns whose shapes have demands: a sign of their slopes or 0, and a limit or infinity."""
        signs, limits = self.monotone or {}, self.bounded or {}
        for key, sign in signs.items():
            if sign not in (1, -1) or isinstance(sign, bool):
                raise WrongValue(f"monotone must be 1 (rising) or -1 (falling), got {show(sign)} for {key}.")
        for key, limit in limits.items():
            if not is_number(limit, 0, math.inf):
                raise WrongValue(f"bounded must be a positive number, got {show(limit)} for {key}.")
        return {
            key: (int(signs.get(key, 0)), float(limits.get(key, math.inf)))
            for key in dict.fromkeys((*signs, *limits))
        }

    def _constrained(self, problem: Problem, coordinates: Standardised, columns: Columns) -> Problem:
        """Return the problem with the signs that monotone shapes need."""
        if not self._demands or coordinates.basis is None:
            return problem
        if self.uncertainty:
            raise Incompatible(
                "Standard errors are not available with monotone or bounded shapes: the law of an estimate "
                "at the boundary of a set is not normal. Leave uncertainty at 0, or leave out monotone and "
                "bounded."
            )
        signs: dict[int, list[int]] = {1: [], -1: [], 0: []}
        for key, (sign, _) in self._demands.items():
            j = _feature_of(key, columns, "monotone" if sign else "bounded")
            ramps = coordinates.basis.ramp_places(j) if j in coordinates.basis.numbers else ()
            signs[sign] += [j, *ramps]
        domain: Any = problem.domain
        return dataclasses.replace(
            problem, domain=SignedBall(domain.radius, tuple(signs[1]), tuple(signs[-1]))
        )

    def _plan_fit(
        self,
        n: int,
        fit: tuple[Declarations, Columns, Target],
        epsilon: float,
        dataset: Dataset,
        maps: Mapping[int, Any],
    ) -> tuple[Plan, float]:
        """Plan of a fit, with the limits of bounded shapes in the units of its scores."""
        made, intercept = super()._plan_fit(n, fit, epsilon, dataset, maps)
        solver: Any = made.solver
        if not self.bounded or not solver.standardises:
            return made, intercept
        _, columns, target = fit
        unit = float(target.scale)
        if target.outputs == 1 and made.problem.loss.link == "logit" and solver.clip is not None:
            unit /= inflation(solver.clip)  # scores are divided by it after the fit
        limits = tuple(
            (_feature_of(key, columns, "bounded"), limit / unit, sign)
            for key, (sign, limit) in self._demands.items()
        )
        return dataclasses.replace(made, solver=dataclasses.replace(solver, limits=limits)), intercept

    def _publish(self, release: Release, made: FitDeclaration) -> None:
        """Set the fitted attributes; a shape that is still beyond its bound is scaled down to it.

        The fit keeps to the bounds in units that were known before it.
        """
        super()._publish(release, made)
        basis = None if self._row_map.region is None else self._row_map.region.basis
        if basis is None:
            return
        published = {place: k for k, place in enumerate(self._row_map.compared.tolist())}
        for key, limit in (self.bounded or {}).items():
            j = _feature_of(key, made.columns, "bounded")
            shape = self.shapes_[made.columns.labels()[_column_of(key, made.columns, "bounded")]]
            largest = float(np.ptp(shape.values, axis=0).max())
            places = (j, *(basis.ramp_places(j) if j in basis.numbers else ()))
            factor = min(1.0, limit * BELOW / largest) if largest else 1.0
            self.coef_[..., [published[place] for place in places]] *= factor

    def _candidates(
        self,
        problem: Problem,
        n: int,
        budget: Budget,
        intercept: float,
        noise_share: float | None = None,
        joint: float | None = None,
        path: float = 1.0,
    ) -> tuple[Solver, ...]:
        """Return the solvers; in a set with signs, descent with the schedule of the whole ball."""
        if not isinstance(problem.domain, SignedBall):
            return super()._candidates(problem, n, budget, intercept, noise_share, joint, path)
        ball = dataclasses.replace(problem, domain=L2Ball(problem.domain.radius))
        clip = default_clip(ball, n, budget)
        given = None if self.n_iter is None else int(self.n_iter)
        descent = NoisyGradientDescent(given, clip=clip)
        return (descent.plan(ball, n, budget, Tight()).solver,)

    def _knot_count(self, n: int, budget: Budget, columns: Columns) -> int:
        given = self.knots
        if isinstance(given, str) and given == "auto":
            rule = self._knot_rule_beside_errors if self.uncertainty else self._knot_rule
            return default_knots(n, budget, self._kept_columns(columns), rule)
        whole = isinstance(given, numbers.Integral) and not isinstance(given, bool)
        if not whole or not (given == 0 or (FEWEST_KNOTS <= given <= MOST_KNOTS and given % 2)):
            raise WrongValue(
                f'knots must be "auto", 0 for straight lines, or an odd number from {FEWEST_KNOTS} to '
                f"{MOST_KNOTS}, got "
                f"{show(given)}."
            )
        return int(given)

    def _kept_columns(self, columns: Columns) -> int:
        """Return the number of columns that the model keeps."""
        dropped = len(self._droppable(columns)) - int(self.selected_columns or 0)
        return len(columns.levels) - max(dropped, 0)

    def _every_pair(self, columns: Columns) -> tuple[tuple[int, int], ...]:
        """Return the pairs of features of different columns, of which one is a number."""
        own = {place: j for j, span in enumerate(columns.spans()) for place in span}
        fixed = {_feature_of(key, columns, "monotone or bounded") for key in self._demands}
        free = [place for place in range(columns.width) if place not in fixed]
        numbers_at = {place for place in free if columns.levels[own[place]] is None}
        return tuple((i, j) for i, j in combinations(free, 2) if own[i] != own[j] and {i, j} & numbers_at)

    def _selected(self, candidates: tuple[tuple[int, int], ...]) -> int:
        """Return the number of pairs that the fit selects."""
        count = SELECTED_PAIRS if self.interactions == "auto" else int(self.interactions)
        if self.uncertainty:
            raise Incompatible(
                "Standard errors are not available with selected interactions: they would not count the "
                "selection. List the pairs, or leave uncertainty at 0."
            )
        if not count <= len(candidates) <= MOST_CANDIDATES:
            raise WrongValue(
                f"interactions={self.interactions!r} selects from all pairs of columns, of which there are "
                f"{len(candidates)}: there must be as many, and at most {MOST_CANDIDATES}."
            )
        return count

    def _pairs(self, n: int, budget: Budget, columns: Columns) -> tuple[tuple[int, int], ...] | None:
        """Return the pairs whose products are features; None if the fit is to select them."""
        given, every = self.interactions, self._every_pair(columns)
        fixed = {_feature_of(key, columns, "monotone or bounded") for key in self._demands}
        if isinstance(given, str) and given == "auto":
            facts = n, budget, len(columns.levels), len(every), self._pairs_from
            if self.uncertainty:  # the noise of the Hessian grows with the number of features
                return ()
            return every if default_pairs(*facts) else None if selects_pairs(*facts) else ()
        if given == "all":
            return every
        if given == "none" or (isinstance(given, numbers.Integral) and given == 0):
            return ()
        if isinstance(given, numbers.Integral) and not isinstance(given, bool) and int(given) > 0:
            return None
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise WrongType(
                'interactions must be "auto", "all", "none", a number of pairs to select, or a list of pairs '
                f"of columns, got {show(given)}."
            )
        found = []
        for pair in given:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise WrongValue(f"Each of the interactions must be a pair of columns, got {show(pair)}.")
            first, second = (_column_of(key, columns, "interactions") for key in pair)
            if first == second:
                raise WrongValue(f"The interactions need pairs of different columns, got {show(pair)}.")
            spans = columns.spans()
            found += [(i, j) for i in spans[first] for j in spans[second]]
            if fixed & {*spans[first], *spans[second]}:
                raise WrongValue(f"A monotone or bounded column cannot be in an interaction: {show(pair)}.")
        return tuple(found)

    def _public_facts(self, chosen: Plan, columns: Columns, intercept: float) -> dict[str, Any]:
        facts = super()._public_facts(chosen, columns, intercept)
        basis = getattr(chosen.solver, "basis", None)
        if basis is None:
            return {**facts, "basis": "standardised or scaled columns: straight lines"}
        knots = ", ".join(f"{knot:g}" for knot in basis.knots) or "none"
        solver: Any = chosen.solver
        products = quantity(len(basis.pairs), "product")
        if solver.droppable:
            facts["columns"] = (
                f"{solver.selected} of {len(solver.droppable)} columns of numbers, selected privately; the "
                "features of the others are 0"
            )
        elif solver.selected:
            products = f"{quantity(solver.selected, 'product')}, selected from {len(solver.candidates)},"
        facts["basis"] = (
            "standardised columns; of numbers also ramps, with knots at the released mean plus released "
            f"standard deviations times {knots}; {products} of two columns"
        )
        if solver.straight:
            facts["basis"] += (
                "; all ramps are 0 if the released tail of the target is long or hidden by noise"
            )
        if self.monotone:
            facts["monotone"] = {str(key): int(sign) for key, sign in self.monotone.items()}
        if self.bounded:
            facts["bounded"] = {str(key): float(limit) for key, limit in self.bounded.items()}
        return facts


@document
@parameters
class PrivateAdditiveClassifier(AdditiveModel, PrivateLogisticRegression):
    """Generalised additive model of a label: the log-odds are a sum of shapes, one for each column.

    minimise (1/n) sum_i log(1 + exp(-y_i <phi(x_i), theta>)) over ||theta||_2 <= radius, phi(x) the
    standardised columns of x, ramps between knots of those that hold numbers, and products of pairs

    Shapes are piecewise linear, with knots at the released mean of a column and multiples of its released
    standard deviation, which a standardised linear fit releases too: knots cost nothing beyond it. How many
    there are follows from public numbers; where records are few or epsilon is small the model is linear.
    ``shapes_`` has the knots and values, ``plot()`` draws them.
    """

    _knot_rule_beside_errors: ClassVar[KnotRule] = KNOTS_OF_LABELS_BESIDE_ERRORS
    _pairs_from: ClassVar[float] = PAIRS_OF_LABELS


@document
@parameters
class PrivateAdditiveRegressor(AdditiveModel, SquaredRegressor):
    """Generalised additive model of a number: its mean is a sum of shapes, one for each column.

    minimise (1/n) sum_i (<phi(x_i), theta> - y_i)^2 / 2 over ||theta||_2 <= radius, phi(x) the standardised
    columns of x, ramps between knots of those that hold numbers, and products of pairs

    Shapes are piecewise linear, with knots at the released mean of a column and multiples of its released
    standard deviation, which a standardised linear fit releases too: knots cost nothing beyond it. How many
    there are follows from public numbers; where records are few or epsilon is small the model is linear.
    ``shapes_`` has the knots and values, ``plot()`` draws them.
    """

    _geometry: ClassVar[str] = "l2"
    _knot_rule: ClassVar[KnotRule] = KNOTS_OF_NUMBERS

    def _needs_short_tail(self, n: int, budget: Budget, columns: Columns) -> bool:
        automatic = self.knots == "auto" and not self.uncertainty
        return automatic and needs_short_tail(n, budget, self._kept_columns(columns))

    def _knot_count(self, n: int, budget: Budget, columns: Columns) -> int:
        """Return the number of knots; none if noise will hide a tail on which they would depend."""
        knots = super()._knot_count(n, budget, columns)
        needed = knots > 0 and self._needs_short_tail(n, budget, columns)
        return 0 if needed and not asks_about_tail(target_stage(n, budget)) else knots


def _number_places(columns: Columns) -> tuple[int, ...]:
    """Places of features that are numbers, one for its column; levels and maps with ramps have shapes."""
    spans = zip(columns.spans(), columns.levels, strict=True)
    return tuple(span[0] for span, levels in spans if levels is None and len(span) == 1)


def _column_of(key: Any, columns: Columns, parameter: str) -> int:
    """Return the position of a column that is named, or numbered from 0."""
    labels = columns.labels()
    if str(key) in labels:
        return labels.index(str(key))
    if isinstance(key, numbers.Integral) and 0 <= int(key) < len(labels):
        return int(key)
    raise WrongValue(
        f"{parameter} names a column {show(key)} that X does not have: {', '.join(labels[:20])}."
    )


def _feature_of(key: Any, columns: Columns, parameter: str) -> int:
    """Return the place of a number's feature."""
    j = _column_of(key, columns, parameter)
    if columns.spans()[j][0] not in _number_places(columns):
        raise WrongValue(f"{parameter} is for columns of numbers, and {show(key)} has levels or ramps.")
    return columns.spans()[j][0]
