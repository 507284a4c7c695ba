"""A fit, then a released Hessian: one Newton step to an estimate whose error has a known law."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dpcvx.accounting import Accountant, Budget, Following, gaussian_epsilon, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import Deviances, FitMeasure, LogLosses, SquaredErrors
from dpcvx.domains import HasEuclideanRadius
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Gaussian
from dpcvx.losses import Loss
from dpcvx.mechanisms import Mechanism, NoisyGoodness, NoisySecondMoments
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.plans.uncertainty import (
    CLUSTER,
    ROBUST,
    Curvature,
    Goodness,
    Steepness,
    average,
    one_step,
    one_step_across,
)
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.objective_perturbation import ObjectivePerturbation
from dpcvx.solvers.scaled_target import LOG_UNIT, ScaledTarget
from dpcvx.solvers.standardised import INTERCEPT, Standardised
from dpcvx.solvers.typical_data import mean_curvature

__all__ = ["OneStep", "far_reach", "hides_errors", "largest_bend", "largest_pull", "with_uncertainty"]

MEAT_SHARE: float = default("solvers.one_step.MEAT_SHARE")
GOODNESS_SHARE: float = default("solvers.one_step.GOODNESS_SHARE")
CLIPS = (2.5, 16.0)  # of errors and targets for R², in standard deviations of the target
DEVIANCE_CLIPS = (2.5, 10.0)  # of targets for D², in standard deviations
# Log-losses are clipped at log(n mu) - 2, between these: a calibrated model loses less than e^-(limit + 1) of
# its mean log-loss to the clip, which is then about half of the noise.
LOG_LOSSES = (3.0, 12.0)
SHARE_LOSSES = (1.5, 6.0)  # the same for shares, whose log-losses are smaller
LEAST_DEVIANCE = 6.0  # of amounts: small ones have a large deviance too, 6 at a twentieth of their mean
# Cells within so many standard deviations, and rows within so many root mean square lengths, are not clipped.
# Clipped cells bias a model: 1 cell in 1,100 of an exponential feature is beyond six deviations. Rows are not
# shrunk: gradients are clipped.
WIDE: tuple[float, float] = default("solvers.one_step.WIDE")
NARROW: tuple[float, float] = default("solvers.one_step.NARROW")
FARTHEST: float = default("solvers.one_step.FARTHEST")
ROOM: float = default("solvers.one_step.ROOM")
LATE: float = default("solvers.one_step.LATE")
# The mean squared error takes the place of the meat's trace where the noise of that is a larger share of it.
NOISY_TRACE = 1 / 3
MOST_SCALE = 16.0  # of a mean square of far records that were clipped in the Hessian
USUAL_VARIANCE = 0.7  # of standardised features with correlations of 0.3, in all directions but one
SEEN_BY: float = default("solvers.one_step.SEEN_BY")
MOST_BEND: float = default("solvers.one_step.MOST_BEND")
LONG_COLUMN: float = default("solvers.one_step.LONG_COLUMN")
BEND_OF_LABELS: float = default("solvers.one_step.BEND_OF_LABELS")
PULL: tuple[float, float] = default("solvers.one_step.PULL")
PULLED_BY: float = default("solvers.one_step.PULLED_BY")


@dataclass(frozen=True)
class OneStep(Solver):
    """Fit with another solver, release the Hessian there, and state how far off the coefficients may be.

    Algorithm: the fit is the other solver's. Its answers say how steep the objective is at public points: the
    gradients themselves, or for objective perturbation the ridge's pull on the minimiser, which the slope of
    the objective and the random linear term balance. With the Hessian at the mean of the late points a Newton
    step leads to an estimate without the bias of the fit: few steps, or a ridge. A minimiser is asked for in
    a larger ball than the problem's, where its slopes are bounded anyway: at the boundary of the set the
    gradient of the perturbed objective is not 0.

    Privacy: one question `NoisySecondMoments`, and one `NoisyGoodness` where the loss has an R², take a share
    of mu(eps, delta)^2; the fit is calibrated so that all together keep the budget. Everything else is
    post-processing of released answers.

    Utility: the estimate's error is Gaussian to first order. Its covariance is V = H^-1 (s^2 I + M/n + v^2
    (tr(W) I + W)) H^-1 with W = step step^T + V (two rounds of this equation are taken), s the noise of the
    mean gradient, M the covariance of a record's (or person's) gradient and v the noise of the Hessian. M is
    the released meat, so errors may vary with the features; where its noise is large, it is averaged with
    c H, which it is if the model is right: c is 1 for logistic loss, and for others the released trace of M
    over the trace of H. The noise of M and c is known, and intervals are enlarged to Student's quantiles for
    it. This holds where the noise of the Hessian, about
    2 v sqrt(d), is small beside its smallest eigenvalue, rows and residuals are hardly clipped, and the step
    is short beside the distance over which the Hessian changes; `Uncertainty.weak` counts directions where
    the first fails.

    Parameters
    ----------
    solver : Solver
        One that asks for gradients of all records, or objective perturbation.
    share : float
        Of mu^2 for the Hessian, in (0, 1).
    """

    solver: Solver
    share: float = 0.2
    # directions along which no score changes, such as one from all levels of a column to the intercept
    redundant: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    # {"", "squares", "log-loss", "deviance"}: how goodness of fit is measured; not at all by default
    goodness: str = field(default="", repr=False)
    packed: bool = field(default=False, repr=False)  # of `SquaredErrors`
    squares: tuple[float, ...] = field(default=(), repr=False)  # released mean squares, 0 for unknown ones
    # value of the last feature of every record, for logistic loss; 0 if it has no such feature
    last_feature: float = field(default=0.0, repr=False)
    log_odds: float = field(default=0.0, repr=False)  # released, of the second class, where the fit starts

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise WrongValue(
                f"uncertainty must be a share of the budget between 0 and 1, got {self.share!r}."
            )

    @property
    def clip(self) -> float | None:
        """Clip of the inner fit."""
        return self.solver.clip

    @property
    def hessian_share(self) -> float | None:
        """Share of mu^2 for the Hessian."""
        return self.share

    def innermost(self, plan: Plan) -> Plan:
        """Return the fit, without the question about the Hessian."""
        return self.solver.innermost(self._fit(plan))

    def _fit(self, plan: Plan) -> Plan:
        stages = plan.stages[: -2 if self.goodness else -1]
        return replace(plan, stages=stages, solver=self.solver, candidates=())

    def with_records(self, plan: Plan, n: int) -> OneStep:
        """Return the fit with the step sizes of n records."""
        return replace(self, solver=self.solver.with_records(self._fit(plan), n))

    @property
    def uses_log_odds(self) -> bool:
        """Whether the inner fit starts at the log-odds of the classes."""
        return self.solver.uses_log_odds

    def with_log_odds(self, plan: Plan, value: float) -> OneStep:
        """Return the fit that starts at these log-odds of the second class."""
        return replace(self, solver=self.solver.with_log_odds(self._fit(plan), value), log_odds=value)

    def with_redundant(self, directions: Vector) -> OneStep:
        """Return the fit whose Newton step leaves redundant directions alone."""
        return replace(self, redundant=tuple(map(tuple, directions.tolist())))

    def with_squares(self, squares: Vector) -> OneStep:
        """Return the fit whose Hessian is scaled to these mean squares; see `_scale`."""
        return replace(self, squares=tuple(squares.tolist()))

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Give the Hessian its share, and the fit what is left."""
        moments, multiplier = self._moments(problem, n, budget)
        event = Compose((Gaussian(multiplier), moments.event)) if self.goodness else moments.event
        fit = self.solver.plan(self._in_larger_ball(problem), n, budget, Following(event, accountant))
        # A correction of the intercept follows the fit, and is not part of the estimate.
        kinds = [
            stage.mechanism.traits for stage in fit.stages if stage.mechanism.traits.question != "goodness"
        ]
        if not (
            all(kind.question == "gradient" for kind in kinds) or all(kind.noise_inside for kind in kinds)
        ):
            raise Incompatible(
                f"The error of {type(fit.solver).__name__} has no known law: uncertainty is stated for "
                "solvers that ask for gradients of all records, such as NoisyGradientDescent, and for "
                "ObjectivePerturbation."
            )
        clip = fit.solver.clip
        stages = (*fit.stages, Stage(replace(moments, clip=clip), 1))
        if self.goodness:
            measure = self._measure(problem, n, multiplier, clip)
            asked = NoisyGoodness(problem, n, measure, multiplier, budget.neighbours)
            stages = (*fit.stages, Stage(asked, 1), *stages[-1:])
        return Plan(stages, problem, n, replace(self, solver=fit.solver), budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Fit, ask for the Hessian, and publish the estimate with its covariance beside the fit."""
        problem, moments = plan.problem, _any(plan.stages[-1].mechanism)
        recorded = _RecordingAsk(plan, ask)
        theta = self.solver.run(self._fit(plan), recorded)
        goodness, errors = self._ask_goodness(plan, theta, ask) if self.goodness else (None, None)
        steepness = average(recorded.notes[-math.ceil(LATE * len(recorded.notes)) :])
        answer = ask.second_moments(steepness.point)
        noise = moments.noise / math.sqrt(2)
        scale = self._scale(answer.hessian, noise)
        trace, dispersion, unsure, wide = float(answer.hessian.diagonal() @ scale**2), 1.0, 0.0, None
        meat_noise = moments.meat_noise(steepness.point) / math.sqrt(2)
        if answer.meat is not None and not self._likelihood(problem, plan.budget) and trace > 0:
            unsure = math.sqrt(2 * len(answer.meat)) * meat_noise / trace
            # A variance is positive; noise alone is this large or larger in most runs.
            dispersion = max(float(answer.meat.trace()) / trace, unsure / 2)
            if errors is not None and 2 * errors[1] < unsure:
                wide = errors[0] + 2 * errors[1]
            if errors is not None and errors[1] < unsure and unsure > NOISY_TRACE * errors[0]:
                dispersion, unsure = max(errors[0], errors[1] / 2), errors[1]
        constant = np.append(np.zeros(len(theta) - 1), 1 / self.last_feature) if self.last_feature else None
        curvature = Curvature(
            answer.hessian,
            noise,
            dispersion,
            problem.l2,
            answer.meat,
            meat_noise,
            unsure,
            constant,
            np.diag(scale) if (scale > 1).any() else None,
            self.log_odds,
        )
        reach = problem.C.norm(2, problem.size)
        step = partial(one_step_across, np.array(self.redundant)) if self.redundant else one_step
        known = step(theta, steepness, curvature, n=plan.n, reach=reach)
        kind = ROBUST if plan.budget.neighbours.unit == "row" else CLUSTER
        if wide is not None:
            known = replace(known, dispersion=wide)
        long = tuple(np.flatnonzero(scale**2 >= LONG_COLUMN).tolist())
        ask.publish(replace(known, kind=kind, goodness=goodness, long_columns=long))
        return theta

    def _scale(self, hessian: Vector, noise: float) -> Vector:
        """Return factors by which features are scaled in the Hessian, shape (d,), each at least 1.

        Curvatures of far records are clipped in the Hessian, which is then too small for columns with many of
        them. Their mean squares were released before, without clipping: the Hessian's diagonal is scaled to
        them, where it is smaller by more than noise; correlations stay those of the Hessian. Where noise
        hides a direction, nothing is scaled. `noise`: of an entry off the diagonal.
        """
        scale, d = np.ones(len(hessian)), len(hessian)
        if not self.squares or np.linalg.eigvalsh(hessian)[0] <= 2 * noise * math.sqrt(d):
            return scale
        low = hessian.diagonal() + 2 * math.sqrt(2) * noise
        found: Vector = np.sqrt(np.clip(np.array(self.squares) / low, 1.0, MOST_SCALE))
        return found

    def _measure(self, problem: Problem, n: int, multiplier: float, clip: float | None) -> FitMeasure:
        """Return the measure of fit, with limits from public numbers."""
        if self.goodness == "log-loss":
            return LogLosses(min(max(math.log(n / multiplier) - 2, LOG_LOSSES[0]), LOG_LOSSES[1]))
        if self.goodness == "deviance":
            return _deviances(problem.loss, n / multiplier)
        largest = max(map(abs, problem.loss.y_range))
        deviation, lost = problem.loss.target_deviation, 0.0
        if deviation is None:
            reach = min(problem.slope(math.inf, None, clip), 2 * largest)
        else:
            clip, lost = _clip_of_errors(n / multiplier)
            reach = min(deviation * clip, 2 * largest)
        return SquaredErrors(reach, min(reach, largest), self.packed, lost)

    def _ask_goodness(
        self, plan: Plan, theta: Vector, ask: Asking
    ) -> tuple[Goodness, tuple[float, float] | None]:
        """Ask how good the fit is; with R² the mean squared error and its noise come too."""
        asked = _any(plan.stages[-2].mechanism)
        # A fit of means is told that the constant model at which it starts is 0.
        base = np.zeros_like(theta) if self.goodness == "deviance" else None
        # The plan's n is the number of records that have a target.
        answer, present = ask.goodness(theta, base), plan.n / asked.n
        found = asked.measure.explained(answer, asked.noise, present)
        errors, neighbours = None, plan.budget.neighbours
        # Of weighted rows it is the mean of weighted squares, whose weights do not add up to n.
        if self.goodness == "squares" and (neighbours.weight == 1 or neighbours.unit != "row"):
            errors = asked.measure.error_variance(answer, asked.noise, present)
        return Goodness(asked.measure.name, *(found or (None,))), errors

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """The other solver's prediction for what the Hessian leaves of the budget."""
        mu = gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(1 - self.share)
        return self.solver.predict(problem, n, replace(budget, epsilon=gaussian_epsilon(mu, budget.delta)))

    def _in_larger_ball(self, problem: Problem) -> Problem:
        """The problem in a larger ball, for a minimiser whose noise does not grow with the set."""
        C, solver = problem.domain, self.solver
        if not (isinstance(solver, ObjectivePerturbation) and isinstance(C, HasEuclideanRadius)):
            return problem
        bounded = solver.clip is not None or math.isfinite(problem.loss.lipschitz(math.inf))
        return replace(problem, domain=C.with_euclidean_radius(ROOM * C.radius)) if bounded else problem

    def _moments(self, problem: Problem, n: int, budget: Budget) -> tuple[NoisySecondMoments, float]:
        """Return the question about Hessian and meat, and the noise multiplier of that about goodness."""
        if budget.delta == 0:
            raise Incompatible("Uncertainty draws Gaussian noise, which needs delta > 0.")
        paid = spendable(budget)
        mu = gaussian_mu(paid.epsilon, paid.delta) * math.sqrt(self.share)
        goodness = GOODNESS_SHARE if self.goodness else 0.0
        shares = ((1 - MEAT_SHARE) * (1 - goodness), MEAT_SHARE * (1 - goodness), GOODNESS_SHARE)
        hessian, meat, multiplier = (1 / (mu * math.sqrt(part)) for part in shares)
        return NoisySecondMoments(problem, n, hessian, meat, budget.neighbours), multiplier

    def _likelihood(self, problem: Problem, budget: Budget) -> bool:
        """Whether gradients vary as the Hessian says if the model is right: not if slopes are clipped.

        Nor do those of weighted rows and of persons with several rows.
        """
        single = budget.neighbours.weight == 1 and budget.neighbours.unit == "row"
        return problem.loss.dispersion_known and self.solver.clip is None and single


def _clip_of_errors(strength: float) -> tuple[float, float]:
    """Return the clip of errors and targets for R², in standard deviations of the target, and what R² loses.

    Errors and targets lose alike, which makes R² too large: clipped at c standard deviations, by about
    0.2 (1 + c) exp(-1 - 0.7 c) for errors that are exponential and grow with exponential features, and by
    less for normal ones. The smallest clip is taken for which that is half of the noise, 1.5 c^2/strength.
    `strength`: n mu of the question.
    """
    clips = np.linspace(*CLIPS, 200)
    lost = 0.2 * (1 + clips) * np.exp(-1 - 0.7 * clips)
    place = min(int((lost > 0.75 * clips**2 / strength).sum()), len(clips) - 1)
    return float(clips[place]), float(lost[place])


def _deviances(loss: Any, strength: float) -> Deviances:
    """Return the measure of D², with limits for targets.

    Deviances of amounts are those of a target at that distance above a usual mean, and of shares twice the
    log-loss of a share 1 at a mean that falls with the number of records. `strength`: n mu of the question.
    """
    if loss.link == "logit":
        return Deviances(loss, 2 * min(max(math.log(strength) - 3, SHARE_LOSSES[0]), SHARE_LOSSES[1]), 1.0)
    # An exponential tail clipped at c standard deviations loses 2 (1 + c) exp(-1 - c) of its variance, and D²
    # a quarter of that or less: no more than the noise.
    clips = np.linspace(*DEVIANCE_CLIPS, 100)
    biased = (1 + clips) * np.exp(-1 - clips) / 2 > 1.5 * clips**2 / strength
    far = loss.usual_target + float(clips[min(int(biased.sum()), len(clips) - 1)]) / LOG_UNIT
    largest = float(loss.deviance(np.array(far), np.array(loss.usual_target)))
    return Deviances(loss, max(largest, LEAST_DEVIANCE), min(far, loss.y_range[1]))


def hides_errors(plan: Plan) -> bool:
    """Say whether the noise of the Hessian surely hides most directions of usual standardised records.

    Usual records have unit variances and correlations of 0.3, so that all directions but one have the
    curvature 0.7 / (stretch (1 + sqrt d))^2 times that of the loss. Directions are hidden below 2 v sqrt(d),
    v being the noise. A factor of 2 is left, since the noise of lengths shortens rows: with 3.3 times that
    curvature 90 % of fits had a hidden direction, with 5.5 times 43 %, and with 5.7 times and more records 0.
    """
    solver: Any = plan.solver
    if not solver.standardises or solver.hessian_share is None or solver.basis is not None:
        return False
    moments = _any(plan.stages[-1].mechanism)
    d = moments.problem.d - solver.intercept
    usual = (
        (1 - INTERCEPT**2 * solver.intercept) * USUAL_VARIANCE / (solver.stretch * (1 + math.sqrt(d))) ** 2
    )
    usual *= mean_curvature(moments.problem, solver.clip)
    return bool(usual < 4 * moments.noise / math.sqrt(2) * math.sqrt(moments.problem.d))


def far_reach(n: int, budget: Budget) -> float:
    """Return the distance from their mean, in standard deviations, at which cells of n records are clipped.

    Clipped cells bias the coefficients of skewed features. The noise of the mean square length of rows is
    about the square of the distance times 10/(n mu): the distance is the largest one up to 16 for which that
    is a tenth, and six where it would be less.
    """
    if budget.delta == 0:
        return WIDE[0]
    paid = spendable(budget)
    many = n * gaussian_mu(paid.epsilon, paid.delta) / budget.neighbours.rows
    return min(max(WIDE[0], 0.1 * math.sqrt(many)), FARTHEST)


def largest_bend(d: int, n: int, budget: Budget, share: float) -> float:
    """Return the curvature at which records are clipped in the Hessian of a linear or logistic model.

    The curvature of a record whose row is f times as long as most is f^2 times theirs, and the noise of the
    Hessian is proportional to the largest one. A smaller limit makes the Hessian of far records too small,
    and standard errors of their columns too large unless their mean squares make up for it. Where usual
    directions (see `hides_errors`) have 200 k times the curvature that noise hides, the limit is k, which is
    better for correlated columns; it is at least 1. `d`: features without the intercept; `share`: of mu^2
    for the Hessian.
    """
    if budget.delta == 0:
        return 1.0
    paid = spendable(budget)
    mu = gaussian_mu(paid.epsilon, paid.delta) * math.sqrt(share * (1 - MEAT_SHARE) * (1 - GOODNESS_SHARE))
    noise = math.sqrt(budget.neighbours.cone_squared / 2) / (n * mu)
    seen = (1 - INTERCEPT**2) * USUAL_VARIANCE / (1 + math.sqrt(d)) ** 2 / (2 * noise * math.sqrt(d + 1))
    return min(max(1.0, seen / SEEN_BY), MOST_BEND)


def largest_pull(n: int, budget: Budget) -> float:
    """Return the norm at which gradients of records with labels are clipped.

    The slope of logistic loss is at most 1, and a record whose row is f times as long as most, and which
    contradicts the model, has a gradient of norm f. The noise is proportional to the limit. A limit of 1
    biases coefficients of rare levels and of skewed columns by up to a few standard errors once records are
    many, and not by more than noise hides where they are few. The limit is sqrt(n mu/1,600), between 1 and 2.
    """
    if budget.delta == 0:
        return PULL[0]
    paid = spendable(budget)
    many = n * gaussian_mu(paid.epsilon, paid.delta) / budget.neighbours.rows
    return min(max(PULL[0], math.sqrt(many / PULLED_BY)), PULL[1])


def with_uncertainty(
    solver: Solver, share: float, loss: Loss, far: float = WIDE[0], bend: float = 1.0, pull: float = 1.0
) -> Solver:
    """Return the solver that fits like another one and states its uncertainty.

    Curvatures of labels are clipped at 1.5 or less: where a class is rare they are small, noise is
    proportional to the limit, and far records, whose labels are known well, add little.

    `solver`: if it standardises, the step is made in its coordinates, with rows of which few are shortened;
    `share`: of mu^2 for the Hessian; `loss`: of the problem; `far`: reach of cells where gradients are
    clipped; `bend`, `pull`: see `largest_bend` and `largest_pull`.
    """
    goodness = "squares" if loss.affine else ""
    if loss.link == "logit" and loss.target == "labels":
        goodness = "log-loss"
    if loss.target in ("amounts", "shares") and isinstance(solver, ScaledTarget | Standardised):
        goodness = "deviance"
    if isinstance(solver, ScaledTarget):
        return replace(solver, solver=OneStep(solver.solver, share, goodness=goodness))
    if isinstance(solver, Standardised):
        # Shapes of an additive model are flat beyond their knots, so far cells bias them little.
        (reach, stretch), shrink = NARROW, "row"
        # The objective of a minimiser takes plain numbers, and labels -1 and 1, alone.
        if solver.basis is None and not isinstance(solver.solver, ObjectivePerturbation):
            if loss.affine:
                reach, stretch, shrink = far, WIDE[1], "gradient"
            elif goodness == "log-loss":
                reach, stretch, shrink = far, WIDE[1], "labels"
            elif goodness == "deviance":  # nearer clips bias coefficients of skewed columns
                reach = WIDE[0]
        curved = goodness == "log-loss" and solver.intercept and solver.basis is None
        step = OneStep(
            solver.solver,
            share,
            goodness=goodness,
            packed=shrink == "gradient",
            last_feature=INTERCEPT if curved else 0.0,
        )
        limit = pull if shrink == "labels" else solver.pull
        if shrink == "labels":
            bend = min(bend, BEND_OF_LABELS)
        return replace(
            solver, solver=step, stretch=stretch, reach=reach, shrink=shrink, bend=bend, pull=limit
        )
    return OneStep(solver, share, goodness=goodness)


class _RecordingAsk(Asking):
    """Passes queries on, and records the gradients of the objective that the public answers imply."""

    def __init__(self, plan: Plan, ask: Asking) -> None:
        self._plan, self._ask = plan, ask
        self.notes: list[Steepness] = []

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Ask for a gradient, or for a minimiser, where slope, ridge and random term balance."""
        answer = self._ask.ask(*public, question=question)
        if question == "goodness":
            return answer
        mechanism: Any = self._plan.stages[0].mechanism
        if mechanism.traits.noise_inside:
            problem, pull = self._plan.problem, mechanism.ridge / self._plan.n
            # Noise on the outcome moves the slope there by at most the smoothness times as much.
            moved = (problem.smoothness + pull) * mechanism.output_noise
            slope, noise = -(pull - problem.l2) * answer, math.hypot(mechanism.noise, moved)
            self.notes.append(Steepness(answer, slope, noise))
        else:
            (theta,) = public
            self.notes.append(Steepness(theta.copy(), answer, mechanism.noise_at(theta)))
        return answer


def _any(mechanism: Mechanism) -> Any:
    """Return a mechanism, typed so that fields of its class may be read."""
    return mechanism
