"""Private scale of a regression's target: released centre and standard deviation make the units of a fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, Following, calibrate, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import Quantiser
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian, Repeat
from dpcvx.losses import Huber, Loss
from dpcvx.mechanisms import NoisyTarget
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.label_share import measure_log_odds
from dpcvx.solvers.query_adapters import PresentAsk, ShiftedAsk, check_questions, divide_by
from dpcvx.solvers.target_posterior import TargetAnswer, TargetPosterior, log_likelihood, target_posterior
from dpcvx.solvers.typical_data import Typical

__all__ = [
    "LOG_UNIT",
    "LONG_RESIDUAL",
    "SELECTING",
    "SHORT_NOISE",
    "UNIT",
    "ConstantModel",
    "ScaledFit",
    "ScaledTarget",
    "TargetScale",
    "TargetUnits",
    "asks_about_tail",
    "can_be_scaled",
    "count_records",
    "covering_deviations",
    "enough_shown",
    "has_enough_records",
    "joint_clip",
    "measure_target",
    "measure_units",
    "residual_deviations",
    "scaled_loss",
    "start_at",
    "target_stage",
    "with_short_rows",
]

SHARES: tuple[float, float] = default("solvers.scaled_target.SHARES")
SHARE_SCALE: float = default("solvers.scaled_target.SHARE_SCALE")
LOOKS: int = default("solvers.scaled_target.LOOKS")
LOOK_NOISE: float = default("solvers.scaled_target.LOOK_NOISE")
SMALL_UNIT: float = default("solvers.scaled_target.SMALL_UNIT")
NARROWING: float = default("solvers.scaled_target.NARROWING")
RESIDUAL: tuple[float, float] = default("solvers.scaled_target.RESIDUAL")
LONG_RESIDUAL: float = default("solvers.scaled_target.LONG_RESIDUAL")
LONG_ROOM: float = default("solvers.scaled_target.LONG_ROOM")
MANY: float = default("solvers.scaled_target.MANY")
AMOUNT_RESIDUAL: float = default("solvers.scaled_target.AMOUNT_RESIDUAL")
SKEWED: float = default("solvers.scaled_target.SKEWED")
LARGEST: float = default("solvers.scaled_target.LARGEST")
WIDEST: float = default("solvers.scaled_target.WIDEST")
FAR_BIAS: tuple[float, float] = default("solvers.scaled_target.FAR_BIAS")
ENOUGH: float = default("solvers.scaled_target.ENOUGH")
SELECTING: float = default("solvers.scaled_target.SELECTING")
SHORT_ROWS: float = default("solvers.scaled_target.SHORT_ROWS")
SHORT_RESIDUAL: float = default("solvers.scaled_target.SHORT_RESIDUAL")
SHORT_NOISE: float = default("solvers.scaled_target.SHORT_NOISE")
UNIT = 2.5  # standard deviations of the target in a unit of the fit, in which radius and ridge hold
LOG_UNIT = 1.5  # the same where scores are logarithms of means
CENTER: float = default("solvers.scaled_target.CENTER")
SEEN: float = default("solvers.scaled_target.SEEN")
AIM: float = default("solvers.scaled_target.AIM")
AIMS: tuple[float, float] = default("solvers.scaled_target.AIMS")
NOISY: float = default("solvers.scaled_target.NOISY")
MOST_SHARE = 0.98  # largest distance of a start from the middle of shares that are mapped to [-1, 1]
LEAST_MEAN = 0.05  # of a target >= 0, in its standard deviations: the noise on the mean can be larger
FEWEST_SEEN = 3  # answers before the question about the tail; enough of the last ones must show the spread
TAIL_NOISE: float = default("solvers.scaled_target.TAIL_NOISE")
LONG_TAIL: float = default("solvers.scaled_target.LONG_TAIL")
LOST_DEVIATION: float = default("solvers.scaled_target.LOST_DEVIATION")
MOST_ERROR: float = default("solvers.scaled_target.MOST_ERROR")
MOST_LOG_ERROR: float = default("solvers.scaled_target.MOST_LOG_ERROR")
DOUBTFUL_TAIL: float = default("solvers.scaled_target.DOUBTFUL_TAIL")
MOST_SEEN = 0.9  # clipped mean squares above it say only that the range is too narrow
LOST_TARGET = (
    "The model may be worse than a constant: the released standard deviation of y is no larger than its "
    "noise. The y_bounds are too wide for this number of records and this epsilon, or almost all targets lie "
    "outside them (a wrong unit?), or y hardly varies. Check their unit, and use narrower y_bounds or a "
    "larger epsilon. The budget of this fit is spent."
)
AT_AN_END = (
    "The model may be worse than a constant: the released mean of y is within its noise of the {end} end of "
    "y_bounds, and noise hides how much y varies. Almost all targets may be clipped to that end (a wrong "
    "unit?), or the y_bounds are far too wide. Check their unit, and use narrower y_bounds or a larger "
    "epsilon. The budget of this fit is spent."
)
NOISY_MEAN = (
    "The predicted mean is itself noise, and R^2 may be far below 0: its error by noise is {error:.2g} times "
    "the released standard deviation of y, which is uncertain too. The y_bounds are wide for this number of "
    "records and this epsilon. Use narrower y_bounds, more records or a larger epsilon. The budget of this "
    "fit is spent."
)
LOW_MEANS = (
    "The predicted means may be too low, and effects too small: the released standard deviation of y is much "
    "larger than its mean, and errors of more than a few means are clipped. Use more records or a larger "
    "epsilon, or fit log(y) by a linear regression. The budget of this fit is spent."
)


@dataclass(frozen=True)
class TargetScale:
    """Released centre and standard deviation of the target, and the number of records that have one."""

    center: float
    deviation: float
    present: int
    caution: str | None  # where the standard deviation is hidden by noise
    # mean square of targets clipped at one standard deviation, and the standard deviation of its noise added;
    # None if it was not asked for
    within: float | None = None
    error: float = 0.0  # standard deviation of the noise on the centre, over the target's

    @property
    def long_tail(self) -> bool:
        """Whether a few targets make up most of the variance."""
        return self.within is not None and self.within < LONG_TAIL

    def doubt(self, loss: Loss) -> str | None:
        """Return a warning about a fit with this loss, from released numbers alone."""
        relative = loss.link == "log" and loss.variance_power == 2
        skewed = relative and self.deviation > SKEWED * self.center
        return self.caution or (LOW_MEANS if skewed else None)

    def units(
        self, loss: Loss, residual: float = RESIDUAL[1], straight: float = 0.0, longest: float = RESIDUAL[1]
    ) -> TargetUnits:
        """Return the units of a fit with this loss.

        The residuals of squared loss matter most where a few targets are far from all others. With a long
        tail the unit is larger, so that they are clipped up to `LONG_ROOM` times as far out if records are
        few, and at `longest` standard deviations if they are many.

        With another link nothing is centred, because the model is one of the mean itself; descent starts at
        the mean. Shares keep their unit. The unit of amounts is 1.5 standard deviations, or the mean if that
        is larger.

        `residual`: planned clip of residuals, in standard deviations; `straight`: clip unless the tail is
        known to be short, 0 for the planned one.
        """
        if loss.link == "identity":
            tail = "unknown" if self.within is None else "long" if self.within < DOUBTFUL_TAIL else ""
            tail, smaller = tail if loss.affine else "", 1.0
            if self.long_tail and loss.affine:
                planned = max(residual, RESIDUAL[0])
                clip = longest if residual >= RESIDUAL[1] else min(LONG_ROOM * planned, RESIDUAL[1])
                smaller = min(planned / clip, 1.0)
            if straight and tail:
                smaller = min(smaller, residual / straight)
            unit = UNIT * self.deviation / smaller
            return TargetUnits(self.center, unit, self.center, unit, error=self.error, tail=tail)
        if loss.link == "logit":
            center = min(max(self.center, -MOST_SHARE), MOST_SHARE)
            start = math.log((1 + center) / (1 - center))
            return TargetUnits(level=start, start=start, error=self.error)
        mean = max(self.center, LEAST_MEAN * self.deviation)
        unit = max(LOG_UNIT * self.deviation, mean)
        return TargetUnits(0.0, unit, math.log(mean), 1.0, math.log(mean / unit), self.error)


@dataclass(frozen=True)
class TargetUnits:
    """Units of a fit: targets (y - center)/scale; a score z of the fit stands for level + factor * z.

    `start`: score of the fit's targets at which z is 0.
    """

    center: Any = 0.0  # center, scale, level, factor: numbers, or (K,) arrays for K targets
    scale: Any = 1.0
    level: Any = 0.0
    factor: Any = 1.0
    start: float = 0.0
    error: float = 0.0  # standard deviation of the noise on the centre, over the target's; largest of K
    # "long" if clipped residuals may bias a least-squares fit, "unknown" if nothing shows whether they do
    tail: str = ""

    def variance(self, loss: Loss) -> float:
        """Return one unit of the fit's dispersion in the units of the target."""
        return float(self.scale ** (2 - loss.variance_power))


def residual_deviations(problem: Problem, n: int, budget: Budget) -> float:
    """Return the clip of residuals, in standard deviations of the target, that suits n records.

    The noise is proportional to it. Clipping at 0.7 standard deviations bends the fit of skewed targets
    towards their median, which costs less than the noise where records are few: where n mu is below 28 for
    each coefficient. From there on the clip grows with it, up to 2.5 standard deviations at 100.

    Amounts, whose slopes are errors relative to the mean, are skewed, and a clip bends their means down
    however many the records are: it grows on, up to 6 standard deviations at 240.

    Of K targets the norm of all residuals is clipped, at sqrt(K) times as much (`joint_clip`). The noise is
    larger by that factor, and norms of K residuals differ less from each other than single residuals do: the
    largest clip is 1 + 1.5/K.
    """
    root = math.sqrt(problem.outputs)
    most = 1 + (RESIDUAL[1] - 1) / problem.outputs
    if budget.delta == 0:
        return most
    share = n * _mu(budget) / (budget.neighbours.rows * problem.d * root * MANY)
    if problem.loss.link == "log" and problem.loss.variance_power == 2:
        return min(max(share * RESIDUAL[1], RESIDUAL[1]), AMOUNT_RESIDUAL)
    return min(max(share * RESIDUAL[1], RESIDUAL[0]), most)


def joint_clip(problem: Problem, residual: float) -> float | None:
    """Return the clip of the norm of K scaled residuals; None for one target, which the loss clips.

    It is None for classes too, whose slopes have no units. `residual`: clip in standard deviations of a
    target, as a root mean square over the targets.
    """
    if problem.outputs == 1 or problem.loss.link != "identity":
        return None
    return residual * math.sqrt(problem.outputs) / UNIT


def has_enough_records(n: int, budget: Budget, least: float = ENOUGH, outputs: int = 1) -> bool:
    """Say whether n mu is at least so large; by default, to learn more of a target than its mean.

    The noise on each of K targets is sqrt(K) times that on one. `outputs`: K.
    """
    return budget.delta == 0 or n * _mu(budget) >= least * math.sqrt(outputs) * budget.neighbours.rows


def covering_deviations(problem: Problem, n: int, budget: Budget) -> float:
    """Return the clip of residuals, in standard deviations of the target, that suits standard errors.

    Clipped at c standard deviations, errors with an exponential tail whose size changes with a feature by s
    for one standard deviation of it bias the feature's coefficient by s (1 + c) exp(-1 - c) at most, and the
    bias does not shrink with n. Gradients of far rows are clipped at smaller residuals, and their bias is
    larger: with exponential features, and errors that grow with these, it was 0.003 at c = 8 and 0.0003 at
    16; 0.012 exp(-0.2 c) is a cautious bound of it above 8. The clip is the smallest for which both biases,
    with s = 1/2, are at most half of a usual standard error sqrt(1/n + (4 c sqrt(d)/(n mu))^2), all in
    standard deviations of the target.
    """
    if budget.delta == 0:
        return RESIDUAL[1]
    noise = 4 * math.sqrt(problem.d) * budget.neighbours.rows / (n * _mu(budget))
    clips = np.linspace(RESIDUAL[1], WIDEST, 298)
    bias = np.maximum((1 + clips) * np.exp(-1 - clips), FAR_BIAS[0] * np.exp(-FAR_BIAS[1] * clips))
    biased = bias > np.sqrt(1 / n + (noise * clips) ** 2)
    return float(clips[min(int(biased.sum()), len(clips) - 1)])


def scaled_loss(loss: Loss, residual: float, outputs: int = 1) -> Loss:
    """Return the loss of targets in units of 2.5 standard deviations, residuals clipped at so many.

    Residuals of several targets are clipped at 2.5 each, and then together (`joint_clip`).
    """
    residual = residual if outputs == 1 else RESIDUAL[1]
    y_range = (-LARGEST / UNIT, LARGEST / UNIT)
    own: Any = loss
    if loss.threshold_deviations is not None:
        return Huber(loss.threshold_deviations / UNIT, y_range, 1 / UNIT)
    if loss.affine:
        return Huber(residual / UNIT, y_range, 1 / UNIT)
    if loss.link == "logit":
        shares: Loss = replace(own, limit=min(max(residual / RESIDUAL[1], 1.0) / 2, 1.0))
        return shares
    if loss.link == "log":
        # Targets may exceed a mean of 1 by the limit, so that the limit bounds slopes at every score. A
        # smaller one would bend means of skewed targets far down.
        limit, highest = max(residual, RESIDUAL[1]) / LOG_UNIT, LARGEST / LOG_UNIT + 1
        amounts: Loss = replace(own, limit=limit, y_range=(0.0, highest))
        return amounts
    scaled: Loss = replace(own, y_range=y_range)
    return scaled


def can_be_scaled(problem: Problem) -> bool:
    """Whether targets can be centred and scaled: one of a unit-free loss, or several of squared loss."""
    loss = problem.loss
    return loss.unit_free and (problem.outputs == 1 or loss.affine)


def target_stage(n: int, budget: Budget, outputs: int = 1) -> Stage:
    """Return the questions about the target, for a share of mu^2 that falls with the number of records.

    Each of several targets has as many questions as the others; all of them divide the share.
    """
    if budget.delta == 0:
        raise Incompatible("The scale of a target is measured with Gaussian noise, which needs delta > 0.")
    neighbours, mu = budget.neighbours, _mu(budget)
    scale = SHARE_SCALE * math.sqrt(outputs)
    share = min(max(scale * neighbours.rows / (n * mu), SHARES[0]), SHARES[1])
    looks = outputs * LOOKS
    return Stage(NoisyTarget(n, math.sqrt(looks / share) / mu, neighbours), looks)


def asks_about_tail(stage: Stage) -> bool:
    """Whether the last of these questions about a target may be one of its tail, by public numbers."""
    mechanism: Any = stage.mechanism
    return bool(mechanism.noise <= TAIL_NOISE) and stage.n_calls > FEWEST_SEEN


def measure_target(
    stage: Stage,
    n: int,
    ask: Asking,
    limit: float,
    *,
    centred: bool,
    shown: int = 3,
    place: int | None = None,
) -> TargetScale:
    """Ask for centre and standard deviation of the target, each time within a range that fits better.

    Each answer holds the mean m and the mean square of u = (y - center)/reach, clipped at 1. The centre moves
    towards center + reach * m, by the weight that m has beside what was known: at first that the centre is
    within three tenths or so of the middle of the bounds. Where the variance of u is larger than its noise,
    it gives the standard deviation: that of a normal target with such a clipped mean square, and no less than
    the last answer gave. The next reach is a few of these. Where noise hides the variance, the next reach is
    half of the last one, or three times the noise: the centre is known better than that. If answers
    are noisy, all of them together give the standard deviation in the end. If they are not, and enough of the
    last three showed the spread, the last question is one of targets clipped at one standard deviation: their
    mean square is 0.52 for a normal law, and small if the tail is long.

    Where the noise on an answer is larger than 0.17 of its range, this would narrow the range too slowly:
    then a posterior of all answers gives centre and reach instead (`_search_target`).

    `stage`: of `target_stage`; `limit`: largest absolute target; `centred`: whether the centre is free; it is
    0 otherwise; `shown`: how many of three are enough; `place`: of the target, where there are several.
    """
    mechanism: Any = stage.mechanism
    if mechanism.noise > LOOK_NOISE:
        return _search_target(stage, n, ask, limit, centred=centred, place=place)
    center, spread, reach = 0.0, (CENTER * limit) ** 2, limit
    deviation, hidden = limit, True
    seen: list[bool] = []
    shares: list[float] = []
    answers: list[TargetAnswer] = []
    present, within = n, None
    for left in reversed(range(stage.n_calls)):
        enough = len(seen) >= FEWEST_SEEN and sum(seen[-FEWEST_SEEN:]) >= shown
        if left == 0 and asks_about_tail(stage) and enough:
            within = n / present * float(ask.target(center, deviation, place)[2]) + mechanism.noise
            break
        answer = ask.target(center, reach, place)
        shares.append(float(answer[0]))
        share_noise = mechanism.share_noise / math.sqrt(len(shares))
        present = count_records(n, float(np.mean(shares)), share_noise)
        mean, square = (n / present * float(each) for each in answer[1:])
        noise = n / present * mechanism.noise
        mean = min(max(mean, -1.0), 1.0) * centred
        variance = square - mean**2
        answers.append(TargetAnswer(center, reach, mean, square))
        weight = spread / (spread + (reach * noise) ** 2)
        center = min(max(center + weight * reach * mean, -limit), limit)
        spread *= 1 - weight
        if variance > SEEN * noise:
            found = min(reach / _width(min(variance, MOST_SEEN)), limit)
            deviation, hidden = found if hidden else max(deviation, found), False
            reach = min(limit, deviation * _width(min(max(AIM * noise, AIMS[0]), AIMS[1])))
        else:
            largest = reach * math.sqrt(min(max(variance, 0.0) + SEEN * noise, 1.0))
            deviation, hidden = min(deviation, largest), True
            reach *= min(1.0, max(NARROWING, 2 * SEEN * noise))
        seen.append(not hidden)
    # Once in fifteen times noise alone is that large: two of the last three answers must show a spread.
    lost = sum(seen[-3:]) < 2
    if not lost and noise > NOISY:
        deviation = _combine_answers(answers, noise, center, limit, centred=centred)
    # A target that may fill a large part of its bounds needs no warning, even if noise hides its spread.
    warns = lost and deviation < LOST_DEVIATION * limit
    error = math.sqrt(spread)
    caution = _lost_target(center, error, limit) if warns else None
    return TargetScale(center, deviation, present, caution, within, error=error / deviation)


def measure_units(
    stage: Stage,
    plan: Plan,
    ask: Asking,
    residual: float,
    *,
    centred: bool,
    shown: int = 3,
    straight: float = 0.0,
    longest: float = RESIDUAL[1],
) -> tuple[TargetUnits, int, str | None]:
    """Return the units of a fit's targets, the number of records that have one, and a warning or None.

    Several targets are measured one after the other, and each has units of its own. The warning is the first
    that a target has. `stage`: of `target_stage`; others: see `TargetScale.units`.
    """
    problem, K = plan.problem, plan.problem.outputs
    loss, limit = problem.loss, problem.loss.y_range[1]
    one = replace(stage, n_calls=stage.n_calls // K)
    places = [None] if K == 1 else list(range(K))
    scales = [
        measure_target(one, plan.n, ask, limit, centred=centred, shown=shown, place=place) for place in places
    ]
    doubts = [scale.doubt(loss) for scale in scales]
    units = [scale.units(loss, residual, straight, longest) for scale in scales]
    present = min(scale.present for scale in scales)
    if K == 1:
        return units[0], present, doubts[0]
    center, scale, level, factor = np.array(
        [(each.center, each.scale, each.level, each.factor) for each in units]
    ).T
    largest = max(each.error for each in units)
    whole = TargetUnits(center, scale, level, factor, error=largest)
    return whole, present, next(filter(None, doubts), None)


def enough_shown(solver: Solver) -> int:
    """Return how many of the last answers must show the spread of the target before its tail is asked for.

    All three, unless the fit has standard errors, which a long tail makes wrong. `solver`: of the fit.
    """
    return 3 if solver.hessian_share is None else 2


def _combine_answers(
    answers: list[TargetAnswer], noise: float, center: float, limit: float, *, centred: bool
) -> float:
    """Return the standard deviation of the target from all answers together.

    It is the posterior mean on a grid, with a uniform prior of its logarithm, for a normal target. `noise`:
    standard deviation of the noise on either number of an answer.
    """
    middle = (center + answers[-1].reach * np.linspace(-1.5, 1.5, 31) * centred)[:, None]
    s = np.geomspace(min(each.reach for each in answers) / 30, limit, 120)
    fit = log_likelihood(answers, noise, middle, s, centred=centred)
    weights = np.exp(fit - fit.max())
    return float((weights * s).sum() / weights.sum())


def _search_target(
    stage: Stage, n: int, ask: Asking, limit: float, *, centred: bool, place: int | None
) -> TargetScale:
    """Ask for centre and standard deviation of a target whose answers are noisy, by their posterior.

    Each question has the centre of the posterior and the reach of what it leaves open (`TargetPosterior`):
    a range that is ten times too wide takes about five questions. All targets count as present unless the
    answers so far deny it. The other parameters are those of `measure_target`.
    """
    mechanism: Any = stage.mechanism
    found = TargetPosterior(0.0, limit, limit, 1.0)
    shares: list[float] = []
    asked: list[tuple[float, float, float, float]] = []
    reach, present = limit, n
    for _ in range(stage.n_calls):
        answer = ask.target(found.center, reach, place)
        shares.append(float(answer[0]))
        share, share_noise = float(np.mean(shares)), mechanism.share_noise / math.sqrt(len(shares))
        present = n if share > 1 - 2 * share_noise else count_records(n, share, share_noise)
        asked.append((found.center, reach, float(answer[1]), float(answer[2])))
        answers = [
            TargetAnswer(center, width, n / present * mean, n / present * square)
            for center, width, mean, square in asked
        ]
        found = target_posterior(answers, n / present * mechanism.noise, limit, centred=centred)
        reach = min(found.reach, limit)
    error = found.center_error / found.deviation
    at_end = abs(found.center) > limit - 2 * found.center_error
    lost = error > MOST_ERROR or found.log_error > MOST_LOG_ERROR or at_end
    caution = _lost_target(found.center, found.center_error, limit) if lost else None
    return TargetScale(found.center, SMALL_UNIT * found.deviation, present, caution, error=error)


def _lost_target(center: float, error: float, limit: float) -> str:
    """Return the warning about a target whose spread noise hides, by its released centre."""
    if abs(center) > limit - 2 * error:
        return AT_AN_END.format(end="upper" if center > 0 else "lower")
    return LOST_TARGET


def count_records(n: int, share: float, deviation: float) -> int:
    """Return the number of units, n times a released share of them.

    A share below two standard deviations of its noise is replaced by these: it may be noise alone.
    """
    return max(1, round(n * min(1.0, max(share, 2 * deviation))))


class ScaledFit(Solver):
    """A solver that measures scales first, fits in scaled units by another solver, and returns to old units.

    `solver`: fits in scaled units.
    """

    solver: Solver

    def inner(self, problem: Problem) -> Problem:
        """The problem in scaled units; public, whatever the scales will be."""
        raise NotImplementedError

    def _fit(self, plan: Plan, n: int | None = None) -> Plan:
        """Return the part of a plan after the measurements, for n records that have a target."""
        raise NotImplementedError

    @property
    def clip(self) -> float | None:
        """Clip of the inner fit."""
        return self.solver.clip

    @property
    def hessian_share(self) -> float | None:
        """Share of mu^2 for the Hessian of the inner fit."""
        return self.solver.hessian_share

    def innermost(self, plan: Plan) -> Plan:
        """Return the fit in scaled units."""
        return self.solver.innermost(self._fit(plan))

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """The other solver's prediction, in scaled units."""
        return self.solver.predict(self.inner(problem), n, budget)

    def _run_fit(
        self,
        plan: Plan,
        ask: Asking,
        solver: Solver,
        present: int,
        back: Callable[[Vector], Vector],
        units: TargetUnits,
        start: Vector | None = None,
    ) -> Vector:
        """Fit to the records that have a target, and return the result in old units.

        `present`: their released number; `back`: map to old units; `units`: of the fit's targets; `start`:
        public point that the fit is told to be 0.
        """
        fit, fit_ask = self._fit(plan), ask
        if start is not None:
            fit_ask = ShiftedAsk(fit_ask, start, plan.problem.l2)
        if present < plan.n:
            solver = solver.with_records(fit, present)
            fit, fit_ask = self._fit(plan, present), PresentAsk(fit_ask, plan.n / present, fit.problem.l2)
        theta = solver.run(fit, fit_ask)
        if fit_ask.uncertainty is not None:
            known = fit_ask.uncertainty.mapped(back, units.variance(plan.problem.loss))
            ask.publish(replace(known, long_tail=units.tail == "long", tail_unknown=units.tail == "unknown"))
        return back(theta)


@dataclass(frozen=True)
class ScaledTarget(ScaledFit):
    """Centre and scale the target with released numbers, fit with another solver, return to old units.

    Algorithm: `measure_target` releases a centre m, a standard deviation s and the number of records that
    have a target. Targets become (y - m)/(2.5 s), and squared loss becomes Huber's: squared loss with
    residuals clipped at 0.7 standard deviations where records are few, at 2.5 where they are many. Rows are
    not changed, or divided by a public length: a longer row is then shrunk to norm 1 together with its
    target, so that its record counts less and a linear model that is right keeps its coefficients. The number
    of records that have a target takes the place of n in the answers that the fit works with (PRIVACY_MATH
    §17).

    Privacy: `NoisyTarget` takes between 5 and 40 % of mu(eps, delta)^2, by n mu alone; centre and scale are
    functions of its answers and map one target at a time. Rows are shrunk one at a time, by a public length,
    so the fit's questions have the sensitivity of rows of norm 1 (PRIVACY_MATH §11b). The fit is calibrated
    so that all together keep the budget.

    Parameters
    ----------
    solver : Solver
        Fits to the scaled targets.
    intercept : float
        Value of the constant feature, the last one; 0 for none, and then nothing is centred.
    residual : float
        Residuals are clipped at this many standard deviations of the target.
    length : float, optional
        Rows are divided by it, and longer ones are shrunk. The set then holds the coefficients of these rows.
    """

    solver: Solver
    intercept: float = 1.0
    residual: float = RESIDUAL[1]
    length: float | None = None

    def with_coordinates(self, solver: Solver) -> Solver:
        """Return another solver, with scaled targets."""
        return replace(self, solver=solver)

    def with_redundant(self, directions: Vector) -> ScaledTarget:
        """Return the fit of a parameter with redundant directions: rows are not changed."""
        return replace(self, solver=self.solver.with_redundant(directions))

    def _fit(self, plan: Plan, n: int | None = None) -> Plan:
        """Return the part of a plan after the questions about the target, for n records that have one."""
        stages = plan.stages[1:] if n is None else tuple(divide_by(n, stage) for stage in plan.stages[1:])
        inner = self.inner(plan.problem)
        return replace(plan, stages=stages, n=n or plan.n, problem=inner, solver=self.solver, candidates=())

    def inner(self, problem: Problem) -> Problem:
        """The problem of scaled targets; public, whatever the scale will be."""
        if not can_be_scaled(problem):
            raise Incompatible(
                f"The target of {problem.loss.name} loss with {problem.outputs} output(s) is not scaled: "
                "that is for one target of a loss that means the same in any units, and for several of "
                "squared loss."
            )
        bounds = problem.bounds if self.length is None else Bounds(1.0, 1.0)
        loss = scaled_loss(problem.loss, self.residual, problem.outputs)
        return replace(problem, loss=loss, bounds=bounds)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Give the target its share, and the other solver what is left."""
        stage = target_stage(n, budget, problem.outputs)
        before = Repeat(stage.mechanism.event, stage.n_calls)
        fit = self.solver.plan(self.inner(problem), n, budget, Following(before, accountant))
        check_questions(problem.loss, fit)
        return Plan((stage, *fit.stages), problem, n, replace(self, solver=fit.solver), budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Measure the target, fit, and return to its units."""
        centred, shown = self.intercept > 0, enough_shown(self.solver)
        units, present, doubt = measure_units(
            plan.stages[0], plan, ask, self.residual, centred=centred, shown=shown
        )
        rows, length = None, self.length or 1.0
        if self.length is not None:
            rows = Quantiser(Bounds(1.0, 1.0), 0.0, length, shrink="numbers")
        ask.remap(rows, units.center, units.scale)
        ask.announce(None, doubt)

        def back(theta: Vector) -> Vector:
            old: Vector = units.factor / length * theta
            if self.intercept:
                old[-1] += units.level / self.intercept
            return old

        start = start_at(units, self.intercept, plan.problem.d)
        return self._run_fit(plan, ask, self.solver, present, back, units, start)


def with_short_rows(problem: Problem, intercept: float) -> ScaledTarget:
    """Return the fit of few records: rows of more than a usual norm are shrunk, and residuals clipped early.

    Cells that are spread evenly over their bounds make rows of sqrt(1/3) of the largest norm. The noise is
    for rows of that norm; where columns are flags, whose rows are all longer, it is as if residuals were
    clipped later. `problem`: with rows as they are; `intercept`: value of the constant feature.
    """
    from dpcvx.solvers.gradient_descent import NoisyGradientDescent

    return ScaledTarget(NoisyGradientDescent(), intercept, SHORT_RESIDUAL, SHORT_ROWS * problem.row_norm)


@dataclass(frozen=True)
class ConstantModel(Solver):
    """Predict the released mean of the target for everybody; all other coefficients are 0.

    Algorithm: the centre of `measure_target`, or for two labels the log-odds of `measure_log_odds`, with the
    whole budget. It is the plan of fits with so few records that no coefficient is worth its noise.

    Privacy: T questions `NoisyTarget` (l2 sensitivity 2 on the scale of (sqrt 2, u, u^2), PRIVACY_MATH §17),
    one for labels; event Repeat(Gaussian, T).

    Utility: the error of the mean is about 2/(n mu) of a range that the last questions narrow to a few
    standard deviations of the target. The share of a class is off by about 1/(n mu).

    Deviations: none, as there is no paper.

    Parameters
    ----------
    intercept : float
        Value of the constant feature, the last one.
    """

    intercept: float = 1.0

    constant: ClassVar[bool] = True

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of questions and their noise from public facts."""
        known = problem.loss.affine or problem.loss.link in ("log", "logit")
        several = problem.outputs > 1 and not can_be_scaled(problem)
        if several or not known or self.intercept == 0:
            raise Incompatible("ConstantModel is for the means of numbers or two labels, with an intercept.")
        if budget.delta == 0:
            raise Incompatible("The mean of a target is measured with Gaussian noise, which needs delta > 0.")
        looks = problem.outputs
        if problem.loss.target != "labels":
            looks *= LOOKS
        multiplier = calibrate(lambda t: Repeat(Gaussian(t), looks), spendable(budget), accountant)
        stage = Stage(NoisyTarget(n, multiplier, budget.neighbours), looks)
        return Plan((stage,), problem, n, self, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Measure the target."""
        loss, stage, theta = plan.problem.loss, plan.stages[0], np.zeros(plan.problem.shape)
        caution = None  # only about the mean; an earlier warning has said that this is a constant
        if loss.target == "labels":
            level = measure_log_odds(stage, ask).log_odds
        else:
            units = measure_units(stage, plan, ask, RESIDUAL[1], centred=True)[0]
            level = units.level
            if units.error > MOST_ERROR:
                caution = NOISY_MEAN.format(error=units.error)
        ask.announce(None, caution)
        theta[-1] = level / self.intercept
        return theta

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Predict the excess risk: all that coefficients could explain, and no noise beside it."""
        return Typical.of(problem).at_zero, 0.0


def start_at(units: TargetUnits, intercept: float, d: int) -> Vector | None:
    """Return the point whose scores are all the start of a fit's units; None for 0.

    `intercept`: value of the constant feature, the last of d; 0 for none.
    """
    if units.start == 0 or intercept == 0:
        return None
    point = np.zeros(d)
    point[-1] = units.start / intercept
    return point


def _mu(budget: Budget) -> float:
    paid = spendable(budget)
    return gaussian_mu(paid.epsilon, paid.delta)


def _width(square: float) -> float:
    """Return the range, in standard deviations, within which a normal target has this clipped mean square."""
    widths, squares = _clipped_squares()
    return float(np.interp(square, squares, widths))


@cache
def _clipped_squares() -> tuple[Vector, Vector]:
    """Ranges k, falling, and E min(z^2/k^2, 1) of a standard normal z for each."""
    widths = np.geomspace(60.0, 0.05, 1000)
    inside = np.array([math.erf(width / math.sqrt(2)) for width in widths])
    density = np.exp(-(widths**2) / 2) / math.sqrt(2 * math.pi)
    return widths, (inside - 2 * widths * density) / widths**2 + 1 - inside
