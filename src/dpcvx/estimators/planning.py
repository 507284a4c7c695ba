"""Plans of fits: an estimator's parameters, and the problem, set, bounds and solvers that follow from them.

Everything here is a function of parameters and declarations; no record is in reach.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from dpcvx.accounting import (
    REPLACE_ONE,
    Accountant,
    Budget,
    Following,
    Neighbours,
    Tight,
    default_delta,
    gaussian_mu,
)
from dpcvx.arrays import Vector
from dpcvx.data import Dataset
from dpcvx.data.columns import Columns
from dpcvx.data.declarations import Declarations
from dpcvx.data.target import Target
from dpcvx.domains import NAMED_BALLS, Domain, HasEuclideanRadius, HasL1Radius
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators.data_check import DataCheck, check_stages
from dpcvx.estimators.private_bounds import is_private, private_columns, quantile_stages
from dpcvx.estimators.private_maps import TailRule, histogram_stages, pooled_stages
from dpcvx.estimators.public_rows import UNUSED, PublicColumns, public_score, public_stages
from dpcvx.events import Compose, Repeat
from dpcvx.losses import Loss
from dpcvx.planning.outlook import USUAL_CELLS, is_useful
from dpcvx.planning.planner import (
    automatic,
    default_clip,
    default_radius,
    plan,
    residual_clip,
    standardisation_pays,
)
from dpcvx.plans import Plan, Solver, Stage
from dpcvx.problem import Problem
from dpcvx.solvers import (
    NAMED_SOLVERS,
    ConstantModel,
    NoisyGradientDescent,
    ScaledTarget,
    Standardised,
    configured,
    with_fewer_steps,
)
from dpcvx.solvers.calibrated import Calibrated
from dpcvx.solvers.defaults import default
from dpcvx.solvers.one_step import far_reach, largest_bend, largest_pull, with_uncertainty
from dpcvx.solvers.scaled_target import (
    SELECTING,
    SHORT_NOISE,
    can_be_scaled,
    covering_deviations,
    has_enough_records,
    joint_clip,
    residual_deviations,
    with_short_rows,
)
from dpcvx.solvers.standardised import INTERCEPT as STANDARDISED_INTERCEPT

__all__ = ["AUTOMATIC", "MAY_HIDE", "SAY_NOTHING", "FitDeclaration", "Parameters", "Planning", "parameters"]


AUTOMATIC = "auto"
CHECK: float = default("estimators.planning.CHECK")
INTERCEPT: float = default("estimators.planning.INTERCEPT")
PHASES: tuple[float, ...] = default("estimators.planning.PHASES")
CLASSIFIER_INTERCEPT: float = default("estimators.planning.CLASSIFIER_INTERCEPT")
INTERCEPT_BESIDE_UNIT_ROWS: float = default("estimators.planning.INTERCEPT_BESIDE_UNIT_ROWS")
CLASS_ROWS: tuple[float, float] = default("estimators.planning.CLASS_ROWS")
STRETCH: tuple[float, float, float] = default("estimators.planning.STRETCH")
CLASS_PATH: float = default("estimators.planning.CLASS_PATH")
CLASS_INTERCEPT: float = default("estimators.planning.CLASS_INTERCEPT")

# in the note of a plan whose standard errors noise will hide
SAY_NOTHING = "standard errors will probably say nothing"
MAY_HIDE = "noise may hide"  # begins notes on standard errors that are hidden in less favourable records


@dataclasses.dataclass(frozen=True, eq=False)
class FitDeclaration:
    """A fit as it is fixed before a record is read."""

    stated: Declarations  # declared with the estimator or with the data
    plain: Columns  # from raw columns to features, without maps of numbers
    columns: Columns  # with maps; placeholders where the fit will release them
    target: Target  # from raw targets to those of the loss
    plan: Plan
    intercept: float  # value of the intercept's feature in scaled units, 0 for none
    check: DataCheck | None = None  # counts of recognised cells, once the fit has released them
    # by position of a number's column: its map, or the request for one that the fit releases
    maps: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    public: PublicColumns | None = None  # weights or ranges of the features from public rows
    # entries of the statement about persons, weights, and records that were stored by other rules
    stored: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def releases_bounds(self) -> bool:
        """Whether the bounds in force are not the declared ones, but follow from released numbers."""
        return is_private(self.stated.bounds) or (self.public is not None and self.public.narrows)


Model = TypeVar("Model")


@dataclass_transform(kw_only_default=True, eq_default=False)
def parameters(cls: type[Model]) -> type[Model]:
    """Make the annotated defaults of a class, and those it inherits, its keyword-only parameters.

    scikit-learn reads an estimator's parameters from the signature of its constructor.
    """
    return dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)


@parameters
class Parameters:
    """Parameters that every estimator has."""

    epsilon: float | None = None
    delta: float | None = None
    bounds: Any = None
    data_norm: float | None = None
    categories: dict[Any, Any] | None = None
    maps: Any = "auto"
    schema: Any = None
    public: Any = None
    fit_intercept: bool = True
    radius: float | None = None
    l2: float | None = 0
    standardize: Any = "auto"
    extrapolation: str = "clip"
    uncertainty: float | str = 0
    check: float = CHECK
    solver: Any = "auto"
    n_iter: int | None = None
    person: str | None = None
    persons: int | None = None
    max_rows: int | None = None
    weight_bounds: Any = None
    ledger: Any = None
    account: Any = None
    random_state: Any = None
    backend: str = "auto"
    verbose: int = 0


class Planning(Parameters):
    """The part of an estimator that plans its fit."""

    _geometry: ClassVar[str] = "l2"  # the estimator's own set, where the user may not choose one

    def _loss(self, target: Target) -> Loss:
        """Return the loss of scaled scores."""
        raise NotImplementedError

    def _plan_fit(
        self,
        n: int,
        fit: tuple[Declarations, Columns, Target],
        epsilon: float,
        dataset: Dataset,
        maps: Mapping[int, Any],
    ) -> tuple[Plan, float]:
        """Plan of a fit to n units, and the value of the intercept's feature, from public facts alone.

        `dataset`: its neighbours, whether its records are sparse, and whether they can be counted; no record
        is read. `maps`: declared ones, and requests for others, by position.
        """
        stated, columns, target = fit
        loss = self._loss(target)
        domain = self._domain_of(loss, target.outputs, columns)
        intercept = self._intercept(loss, domain, stated.data_norm)
        problem = Problem(
            loss,
            domain,
            bounds=columns.row_bounds(stated.data_norm, intercept),
            d=columns.width + (intercept != 0),
            outputs=target.outputs,
            l2=self._ridge(domain),
        )
        neighbours: Neighbours = getattr(dataset, "neighbours", REPLACE_ONE)
        units = n // neighbours.rows
        budget = Budget(
            epsilon,
            default_delta(units) if self.delta is None else float(self.delta),
            neighbours.relation,
            neighbours.unit,
            neighbours.rows,
            neighbours.weight,
        )
        plain = dataclasses.replace(
            problem, d=columns.width, bounds=columns.row_bounds(stated.data_norm, 0.0)
        )
        standardize = self._standardizes(plain, n, budget, dense=not dataset.table.sparse)
        declared = {j: each for j, each in maps.items() if not isinstance(each, TailRule)}
        pooled: tuple[Stage, ...] = ()
        used, ranges = "", False
        # One range of all cells is worth more than the scale of each column where few of many are selected. A
        # user who fixes the set or the solver means the units of the declared bounds.
        by_columns = standardize and (plain.is_round or plain.outputs > 1)
        if self._is_free and self.standardize == "auto" and not (declared or by_columns):
            pooled = pooled_stages(n, maps, dataset, budget)
        standardize = standardize and not pooled
        path = 1.0
        if not (standardize or dataset.table.sparse or stated.data_norm):
            longest = problem.row_norm
            problem, intercept = self._with_short_rows(problem, intercept, budget)
            if problem.row_norm < longest and not problem.loss.joint:
                path = CLASS_PATH
        # How full compressed rows are is private; their time and memory are told for usual ones.
        density = min(1.0, USUAL_CELLS / problem.d) if dataset.table.sparse else 1.0
        redundant = _redundant(columns, intercept)
        make = partial(
            self._plan,
            problem,
            n,
            budget,
            intercept=intercept,
            density=density,
            redundant=redundant,
            path=path,
        )
        if standardize:
            coordinates = self._coordinates(columns, n, budget)
            if self._predicts_two_classes(problem, budget):
                coordinates = dataclasses.replace(coordinates, stretch=_stretch(n, budget, plain.d))
            if plain.is_round and not (self.uncertainty or coordinates.basis or private_columns(*fit)):
                score, used = public_score(self.public, dataset, columns, target)
                coordinates = dataclasses.replace(coordinates, score=score)
            basis = coordinates.basis
            width = plain.d if basis is None else coordinates.fitted_basis(basis).width
            mapped = self._constrained(self._with_room(plain, width), coordinates, columns)
            make = partial(self._plan, mapped, n, budget, coordinates=coordinates)
        elif self._is_free and _can_scale(problem, budget):
            wrapper = ScaledTarget(NoisyGradientDescent(), intercept, self._residual(problem, n, budget))
            scaled, dense = problem, not dataset.table.sparse and stated.data_norm is None
            if dense and self._shortens_rows(problem, n, budget):
                scaled, wrapper = self._with_room(problem, problem.d), with_short_rows(problem, intercept)
            make = partial(
                self._plan_scaled, scaled, n, budget, wrapper, density=density, redundant=redundant
            )
            ranges = dense and loss.link == "identity" and not private_columns(*fit)
        constant = self._may_be_constant(problem, intercept, budget)
        check, note = check_stages(dataset, columns, target, n, budget, float(self.check))
        asked = maps if standardize else declared
        histograms = pooled or histogram_stages(n, asked, dataset, budget, target)
        given = None if standardize or self.uncertainty else self.public
        # Maps that the fit releases refer to the declared bounds of columns.
        ranges = ranges and not histograms
        weighing, reason = public_stages(
            n, given, stated.data_norm, domain, dataset, budget, columns=columns, ranges=ranges
        )
        if used:
            reason = used
        elif given is not self.public:
            reason = UNUSED + "columns of this fit are standardised, or it has standard errors"
        bounds = quantile_stages(n, private_columns(*fit), budget)
        chosen = _after((*check, *weighing, *bounds, *histograms), make)
        classes = _has_two_classes(problem, budget)
        enough = standardize or has_enough_records(n, budget, outputs=problem.outputs)
        few = (problem.loss.affine or classes) and not enough
        # Maps are of columns, of which a constant makes no use.
        if constant and not histograms and (few or not (classes or is_useful(chosen))):
            chosen = _after((*check, *bounds), partial(self._plan_constant, problem, n, budget, intercept))
            reason = UNUSED + "the model is the same for everybody" if self.public is not None else reason
        if chosen.solver.standardises:
            intercept = float(self.fit_intercept)
        notes = tuple(each for each in (note, reason) if each)
        return dataclasses.replace(chosen, notes=notes), intercept

    # column that tells the rows of a record apart, if a record becomes several rows
    _several_rows: str = ""

    @property
    def _has_default_set(self) -> bool:
        """Whether the user gives no radius, and no set as an object; a set may be given by name."""
        return self.radius is None and isinstance(getattr(self, "domain", ""), str)

    @property
    def _is_free(self) -> bool:
        """Whether the planner may scale the target: not if the user gives a set, a radius or a solver."""
        named = all(isinstance(each, str) for each in (self.solver, getattr(self, "domain", "")))
        # Sufficient statistics are of squared loss, whose residuals are not clipped.
        free = named and self.radius is None and self.solver != "sufficient_statistics"
        return free and self.standardize is not False

    def _may_be_constant(self, problem: Problem, intercept: float, budget: Budget) -> bool:
        """Whether the planner may choose the model that predicts the same for everybody."""
        automatic = self.solver == "auto" and self.n_iter is None and not self.uncertainty
        free = self._is_free and self.standardize == "auto" and intercept > 0
        mean = problem.loss.affine or problem.loss.link != "identity"
        return (
            automatic and free and mean and (_can_scale(problem, budget) or _has_two_classes(problem, budget))
        )

    def _residual(self, problem: Problem, n: int, budget: Budget) -> float:
        """Clip of residuals in standard deviations of the target, for coverage or for risk."""
        chosen = covering_deviations if self.uncertainty else residual_deviations
        return chosen(problem, n, budget)

    def _coordinates(self, columns: Columns, n: int, budget: Budget) -> Standardised:
        """Return the coordinates of a standardised fit, from public facts."""
        return Standardised(
            NoisyGradientDescent(),
            bool(self.fit_intercept),
            levels=columns.level_spans(),
            compared=columns.compared_spans(),
            # Without an intercept nothing is centred, and missing cells stay in the middle of their bounds.
            marked=tuple(np.flatnonzero(columns.marked).tolist()) if self.fit_intercept else (),
        )

    def _constrained(self, problem: Problem, coordinates: Standardised, columns: Columns) -> Problem:
        """Return the problem with what its set demands of coefficients in these coordinates."""
        return problem

    def _with_room(self, problem: Problem, features: int) -> Problem:
        """The problem in a default ball in which a fit of divided rows has room for its coefficients.

        The intercept of a standardised fit reaches all of y's range: targets of unit-free losses are centred,
        and labels need not be; those of Huber's loss are not. Rows are divided by their length, at most
        1 + sqrt(d) cells, which multiplies coefficients: an l1 ball has that many times the radius, so that
        it is one of coefficients of cells. An l2 ball of a regression has at least the radius sqrt(d): d
        columns that explain a target together need about half of that. Noise does not grow with the radius,
        because residuals are clipped. Fits with standard errors keep the smaller ball, which limits
        directions that noise hides. A set that the user names stays as it is.
        """
        loss, C = problem.loss, problem.domain
        if not self._has_default_set:
            return problem
        if isinstance(C, HasL1Radius):
            wider = C.with_l1_radius(C.radius * (1 + math.sqrt(problem.d)))
            return dataclasses.replace(problem, domain=wider, l2=self._ridge(wider))
        scaled = loss.unit_free and loss.link == "identity" and problem.outputs == 1
        if scaled and isinstance(C, HasEuclideanRadius) and not self.uncertainty:
            wider = C.with_euclidean_radius(max(C.radius, math.sqrt(features)))
            return dataclasses.replace(problem, domain=wider)
        centred = loss.unit_free or loss.link != "identity"
        if centred or not (self.fit_intercept and isinstance(C, HasEuclideanRadius)):
            return problem
        return dataclasses.replace(
            problem, domain=C.with_euclidean_radius(math.hypot(C.radius, 1 / STANDARDISED_INTERCEPT))
        )

    def _standardizes(self, problem: Problem, n: int, budget: Budget, *, dense: bool) -> bool:
        """Whether the fit standardises: as the user says, or where public facts say that it pays."""
        if self.standardize not in (True, False, "auto"):
            raise WrongValue(f'standardize must be True, False or "auto", got {self.standardize!r}.')
        if self.standardize is True and not dense:
            raise Incompatible(
                "Only dense records can be standardised, these are compressed or sparse: give "
                'standardize=False, or "auto".'
            )
        if self.standardize != "auto":
            return bool(self.standardize)
        free = self._is_free and (problem.is_round or self.solver == "auto")
        return dense and free and standardisation_pays(problem, n, budget)

    def _shortens_rows(self, problem: Problem, n: int, budget: Budget) -> bool:
        """Whether rows of a dense fit that does not standardise are shrunk to a usual norm.

        In an l1 ball they are where records are too few to select features.
        """
        few = self.solver == "auto" and not has_enough_records(n, budget, SELECTING)
        ball = problem.is_round or (few and isinstance(problem.domain, HasL1Radius))
        return ball and problem.loss.affine and not self.uncertainty

    def _with_short_rows(self, problem: Problem, intercept: float, budget: Budget) -> tuple[Problem, float]:
        """Return a classifier's problem with rows shrunk to a usual norm, and its intercept.

        The noise is in proportion to that norm, and usual rows are much shorter than the longest ones that
        bounds allow. If all rows are longer than the norm, signal and noise shrink together. The constant
        feature is not shrunk. Other problems are returned as they are.
        """
        two = self._predicts_two_classes(problem, budget)
        classes = self._is_free and problem.is_round and (two or problem.loss.joint)
        if not classes or self.uncertainty:
            return problem, intercept
        intercept = min(intercept, CLASS_INTERCEPT)
        rows = math.sqrt(max(problem.row_norm**2 - INTERCEPT**2 * (intercept > 0), 0.0))
        share = CLASS_ROWS[0] if two else CLASS_ROWS[1]
        norm = math.nextafter(math.hypot(share * rows, intercept), math.inf)
        bounds = dataclasses.replace(problem.bounds, x_2=norm)
        return dataclasses.replace(problem, bounds=bounds), intercept

    def _predicts_two_classes(self, problem: Problem, budget: Budget) -> bool:
        """Whether the target is one of two classes, and each record is one row of the fit."""
        return _has_two_classes(problem, budget) and not self._several_rows

    def _wrap_solvers(self, solvers: tuple[Solver, ...], problem: Problem) -> tuple[Solver, ...]:
        """Wrap the solvers of a standardised fit in the estimator's own post-processing; by default none."""
        return solvers

    def _ridge(self, domain: Domain) -> float:
        """Weight of the ridge in scaled units."""
        if self.l2 is None:
            raise WrongValue(f"{type(self).__name__} needs l2, the ridge: 0 for none, or a positive number.")
        return float(self.l2)

    def _radius(self, loss: Loss, ball: str = "", outputs: int = 1) -> float:
        return default_radius(loss, ball, outputs) if self.radius is None else float(self.radius)

    def _domain_of(self, loss: Loss, outputs: int, columns: Columns) -> Domain:
        """Return the set of the parameter, the intercept's coefficient last."""
        chosen = getattr(self, "domain", self._geometry)
        if isinstance(chosen, str):
            if chosen not in NAMED_BALLS:
                raise WrongValue(
                    f'domain must be "l2", "l1" or a Domain such as dpcvx.L2Ball(10.0), got {chosen!r}.'
                )
            domain: Domain = NAMED_BALLS[chosen](self._radius(loss, chosen, outputs))
            return domain
        if not isinstance(chosen, Domain):
            raise WrongType(f'domain must be "l2", "l1" or a Domain object, got {type(chosen).__name__}.')
        if self.radius is not None:
            raise WrongValue(
                f"radius={self.radius!r} and domain={chosen!r} both fix the size of the set; "
                "leave radius None."
            )
        return chosen

    def _intercept(self, loss: Loss, domain: Domain, data_norm: float | None) -> float:
        """Value of the constant feature in scaled units, 0 for none."""
        if not self.fit_intercept:
            return 0.0
        if data_norm is None or not isinstance(domain, HasEuclideanRadius):
            return INTERCEPT
        descends = self.solver in ("auto", NoisyGradientDescent.name) and not self.uncertainty
        settles = loss.link == "logit" and self._has_default_set and descends
        return CLASSIFIER_INTERCEPT if settles else INTERCEPT_BESIDE_UNIT_ROWS

    def _plan(
        self,
        problem: Problem,
        n: int,
        budget: Budget,
        accountant: Accountant,
        *,
        intercept: float = 0.0,
        coordinates: Standardised | None = None,
        density: float = 1.0,
        redundant: Vector | None = None,
        path: float = 1.0,
    ) -> Plan:
        if coordinates is not None:
            residual = self._residual(coordinates.inner(problem), n, budget)
            if coordinates.straight:
                lines = self._residual(coordinates.with_straight_lines().inner(problem), n, budget)
                coordinates = dataclasses.replace(coordinates, straight=lines)
            coordinates = dataclasses.replace(coordinates, residual=residual)
        inner = problem
        if coordinates is not None:
            inner, intercept = coordinates.inner(problem), STANDARDISED_INTERCEPT * coordinates.intercept
        joint = None if coordinates is None else joint_clip(inner, coordinates.residual)
        if coordinates is None and self.uncertainty:
            intercept = 0.0  # such a fit does not release the shares of the classes
        candidates = self._candidates(inner, n, budget, intercept, joint=joint, path=path)
        if coordinates is not None:
            if self.uncertainty and self.solver == "auto":
                # Descent takes far records of every loss into account without bias; see `with_uncertainty`.
                candidates = tuple(each for each in candidates if not each.minimises) or candidates
            candidates = self._wrap_solvers(_calibrated(candidates, inner.loss, intercept), inner)
            candidates = tuple(dataclasses.replace(coordinates, solver=solver) for solver in candidates)
        return self._choose(problem, n, budget, candidates, accountant, density=density, redundant=redundant)

    def _plan_scaled(
        self,
        problem: Problem,
        n: int,
        budget: Budget,
        wrapper: ScaledTarget,
        accountant: Accountant,
        *,
        density: float = 1.0,
        redundant: Vector | None = None,
    ) -> Plan:
        """Plan of a fit to a centred and scaled target, by some solver in place of the wrapper's."""
        limit = None if wrapper.length is None else SHORT_NOISE
        inner = wrapper.inner(problem)
        solvers = self._candidates(inner, n, budget, 0.0, limit, joint_clip(inner, wrapper.residual))
        solvers = self._wrap_solvers(_calibrated(solvers, inner.loss, wrapper.intercept), inner)
        candidates = tuple(dataclasses.replace(wrapper, solver=solver) for solver in solvers)
        return self._choose(problem, n, budget, candidates, accountant, density=density, redundant=redundant)

    def _plan_constant(
        self, problem: Problem, n: int, budget: Budget, intercept: float, accountant: Accountant
    ) -> Plan:
        """Plan of the model that predicts the mean of the target for everybody."""
        return plan(problem, n, budget, (ConstantModel(intercept),), accountant)

    def _choose(
        self,
        problem: Problem,
        n: int,
        budget: Budget,
        candidates: tuple[Solver, ...],
        accountant: Accountant,
        *,
        density: float,
        redundant: Vector | None,
    ) -> Plan:
        if self.solver == "auto" and not self.uncertainty:
            fewer = (with_fewer_steps(each, n, problem.d) for each in candidates)
            candidates = tuple(each for each in fewer if each is not None) or candidates
        if self.uncertainty:
            share = float(self.uncertainty)
            bend = largest_bend(problem.d - bool(self.fit_intercept), n, budget, share)
            limits = far_reach(n, budget), bend, largest_pull(n, budget)
            candidates = tuple(with_uncertainty(each, share, problem.loss, *limits) for each in candidates)
            if redundant is not None:
                candidates = tuple(each.with_redundant(redundant) for each in candidates)
        return plan(problem, n, budget, candidates, accountant, density=density)

    def _automatic(self, problem: Problem) -> tuple[type[Any], ...]:
        """Return the classes of solvers that are compared if the user names none."""
        return automatic(problem)

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
        """Solvers to weigh: those of the planner, or the one that the user names.

        `intercept`: value of the constant feature, 0 for none; `noise_share`: most that descent's noise may
        cost; `joint`: clip of the norm of several scaled residuals; `path`: length of a descent, over that
        for typical rows.
        """
        kept = (problem.d - 1,) if self.fit_intercept else ()  # the intercept is the last feature
        if problem.loss.link != "logit":
            intercept = 0.0
        n_iter = None if self.n_iter is None else int(self.n_iter)
        # Standard errors are those of the loss's own minimiser.
        clip = joint or (residual_clip(problem) if self.uncertainty else default_clip(problem, n, budget))
        measured = problem.loss.target == "labels" or problem.loss.link == "identity"
        phases = PHASES if measured and not self.uncertainty else ()
        if self.solver == "auto":
            kinds = self._automatic(problem)
            if self.n_iter is not None:
                kinds = tuple(kind for kind in kinds if hasattr(kind, "n_iter"))
            return tuple(
                configured(
                    kind,
                    clip=clip,
                    n_iter=n_iter,
                    intercept=intercept,
                    noise_share=noise_share,
                    phases=phases,
                    kept=kept,
                    path=path,
                )
                for kind in kinds
            )
        if isinstance(self.solver, str):
            if self.solver not in NAMED_SOLVERS:
                known = ", ".join(map(repr, ["auto", *NAMED_SOLVERS]))
                raise WrongValue(f"solver must be one of {known} or a Solver object, got {self.solver!r}.")
            kind = NAMED_SOLVERS[self.solver]
            if self.n_iter is not None and not hasattr(kind, "n_iter"):
                raise WrongValue(f"{kind.__name__} has no iterations: leave n_iter None.")
            return (
                configured(kind, clip=clip, n_iter=n_iter, intercept=intercept, phases=phases, kept=kept),
            )
        if not hasattr(self.solver, "plan") or isinstance(self.solver, type):
            raise WrongType(f"solver must be a name or a Solver object, got {self.solver!r}.")
        solver: Any = self.solver
        return (solver if n_iter is None else dataclasses.replace(solver, n_iter=n_iter),)


def _stretch(n: int, budget: Budget, features: int) -> float:
    """Return the length to which standardised rows of two classes are shrunk, over their released length.

    Shorter rows need less noise, and a row that is shrunk keeps its direction. With many records there is
    little noise, and rows keep their length too.
    """
    least, few, many = STRETCH
    records = n * gaussian_mu(budget.epsilon, budget.delta) / budget.neighbours.rows / features
    power = math.log(1 / least) / math.log(many / few)
    share: float = least * (records / few) ** power
    return round(min(max(share, least), 1.0), 3)


def _can_scale(problem: Problem, budget: Budget) -> bool:
    """Whether targets can be measured with Gaussian noise, and scaled."""
    return can_be_scaled(problem) and budget.delta > 0


def _has_two_classes(problem: Problem, budget: Budget) -> bool:
    """Whether the target is one of two classes, whose log-odds are scores."""
    labels = problem.loss.target == "labels" and problem.loss.link == "logit"
    return labels and problem.outputs == 1 and budget.delta > 0


def _calibrated(solvers: tuple[Solver, ...], loss: Loss, intercept: float) -> tuple[Solver, ...]:
    """Return solvers that correct the level of their means, where scores are logarithms of means.

    `intercept`: value of the constant feature, 0 for none.
    """
    if loss.link != "log" or intercept == 0:
        return solvers
    return tuple(Calibrated(each, intercept) for each in solvers)


def _redundant(columns: Columns, intercept: float) -> Vector | None:
    """Return the directions from all levels of a column to the intercept, shape (q, d + 1); None for none.

    `intercept`: value of the intercept's feature.
    """
    spans = columns.compared_spans() if intercept else ()
    if not spans:
        return None
    directions = np.zeros((len(spans), columns.width + 1))
    for row, (first, last, one) in zip(directions, spans, strict=True):
        row[first:last], row[-1] = 1 / one, -1 / intercept
    return directions


def _after(before: tuple[Stage, ...], make: Callable[[Accountant], Plan]) -> Plan:
    """Return the plan of a fit after questions about raw records, all within one budget.

    `make`: makes the plan of the fit itself with an accountant.
    """
    if not before:
        return make(Tight())
    asked = Compose(tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in before))
    return dataclasses.replace(make(Following(asked, Tight())), before=before, accountant=Tight())
