"""Choose for the user: candidates, their predicted excess risk, the best of them. Nothing here reads data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dpcvx.accounting import Accountant, Budget, Tight, gaussian_mu
from dpcvx.domains import HasCoordinateVertices, HasMirrorMap, HasProjection, HasVertices
from dpcvx.domains.mirror import Euclidean
from dpcvx.errors import Incompatible, NotAccountable, WrongValue
from dpcvx.losses import Loss
from dpcvx.mechanisms.minimise import NEWTON_SIZE
from dpcvx.planning.candidates import list_others, weigh
from dpcvx.planning.outlook import advice, is_useful
from dpcvx.plans import Plan, Solver
from dpcvx.problem import Problem
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    ObjectivePerturbation,
    Standardised,
    configured,
)
from dpcvx.solvers.defaults import default
from dpcvx.solvers.scaled_target import can_be_scaled

RIDGE_SHARE: float = default("planning.planner.RIDGE_SHARE")
LEAST_GAIN: float = default("planning.planner.LEAST_GAIN")
MEAN_NOISE: float = default("planning.planner.MEAN_NOISE")
CLIP_ROOM: float = default("planning.planner.CLIP_ROOM")
CLASSES_ROOM: tuple[float, float] = default("planning.planner.CLASSES_ROOM")
CLASSES_RECORDS: tuple[float, float] = default("planning.planner.CLASSES_RECORDS")
CLIP_COST: float = default("planning.planner.CLIP_COST")
FEWEST_SELECTED_FROM: int = default("planning.planner.FEWEST_SELECTED_FROM")
CAREFUL_FROM: int = default("planning.planner.CAREFUL_FROM")


def default_radius(loss: Loss, ball: str = "", outputs: int = 1) -> float:
    """Size of the set, in scaled units, when the user names none.

    A classifier's score is a log-odds: with rows of norm 1, radius 10 reaches odds of e^10. A regression's
    target is mapped to [-1, 1]: with radius 3 a feature that varies over a third of its declared range can
    explain all of it. The logarithm of a mean varies less than log-odds, and gets half of their
    radius. In an l2 ball ("l2"), where the noise of a bounded slope does not grow with the radius,
    a classifier gets three times as much: rows are seldom as long as their bound, nor in line with theta.
    There the radius grows with the root of the number of scores (``outputs``), so that each has as much room.
    Fits of divided rows may have more room: `Planning._with_room`.
    """
    if loss.link == "identity":
        return 3.0
    reach = 5.0 if loss.link == "log" else 10.0
    return 3 * reach * math.sqrt(outputs) if ball == "l2" else reach


def default_ridge(radius: float) -> float:
    """Weight of a ridge, in scaled units, when the user names none, for a set of this Euclidean radius.

    The most that the ridge can cost, (l2/2) radius^2, is a tenth of the most that the constant in the middle
    of y's range can cost, 1/2.
    """
    return RIDGE_SHARE / radius**2


def residual_clip(problem: Problem) -> float | None:
    """Largest residual worth keeping where slopes are unbounded (squared loss): the largest one at theta = 0.

    A model that misses a person by more than the constant in the middle of y's range can miss anybody is of
    little use; clipping there leaves the gradient of a better one nearly as it is, and caps the noise that a
    large set would ask for.
    """
    loss = problem.loss
    if math.isfinite(loss.lipschitz(math.inf)):
        return None
    return problem.slope(2, 0.0)


def default_clip(problem: Problem, n: int, budget: Budget) -> float | None:
    """Residual clip of a fit to n records: `residual_clip`, and that of logistic losses where it pays.

    At theta = 0 every slope of logistic loss is 1/2, and 1 is that of a record which the model is wholly
    wrong about: noise for the few is paid by all. Clipped at 1/2 the noise is half of what it was, and
    records that the model gives odds against pull alike. Scores grow by a known factor, which
    classifiers take back (`typical_data.inflation`). Softmax of K scores is clipped at c sqrt(1 - 1/K) in
    l2 norm instead of sqrt(2), with c between 0.6 and 1.2 (`classes_room`). With 1.2 its scores grow by 9 %
    for three classes and less for more, and are left so.
    """
    C = problem.domain
    # There is no prediction without a set, and one without 0 fixes the size of scores itself.
    log_odds = problem.loss.link == "logit" and problem.loss.dispersion_known  # not clipped already
    if not log_odds or C is None or not C.contains(np.zeros(problem.shape)):
        return residual_clip(problem)
    slopes = problem.loss.grad(np.zeros((1, problem.outputs)), np.ones(1))
    room = classes_room(problem, n, budget) if problem.loss.joint else CLIP_ROOM
    clip = room * float(np.linalg.norm(slopes))
    whole, clipped = (
        sum(NoisyGradientDescent(clip=each).predict(problem, n, budget)) for each in (None, clip)
    )
    # A bound that promises nothing cannot tell the two apart: less noise is better then.
    return clip if whole - clipped > CLIP_COST or whole >= problem.loss_at_zero else None


def classes_room(problem: Problem, n: int, budget: Budget) -> float:
    """Return the clip of slopes of several classes, over their size at theta = 0.

    It is 0.6 where n mu is below 2.5 for each coefficient, and grows with the power 0.3 of it to 1.2 at 25:
    with few records the noise costs more than the bias of clipped slopes.
    """
    least, most = CLASSES_ROOM
    few, many = CLASSES_RECORDS
    if budget.delta == 0:
        return most
    records = n * gaussian_mu(budget.epsilon, budget.delta) / budget.neighbours.rows
    power = math.log(most / least) / math.log(many / few)
    room: float = least * (records / problem.size / few) ** power
    return min(max(room, least), most)


def automatic(problem: Problem) -> tuple[type[Any], ...]:
    """Return the solvers that are weighed where the user names none, by what the set can do.

    A solver is left out where another one is always better, or where measured risks contradict predictions.
    Mirror descent with the Euclidean map is behind gradient descent. So it is in l1 balls where rows are no
    longer than one of their cells may be, as standardised ones (R^2 of a LASSO .71 for .81), although its
    rehearsed risk is smaller. For several scaled targets it is no better, with a thousand
    passes over the records. Frank-Wolfe's prediction is often below that of its corrective variant, and its
    risk up to a hundred times above; the variant is for many features. Accelerated mirror descent is behind
    gradient descent on hulls of many vertices, in the Euclidean geometry and in those that are little better,
    as singular values of small matrices are; it is ahead by a factor where the set's own geometry pays, as
    that of many groups does. Objective perturbation is for bounded slopes of one score, and for as many
    features as Newton steps can bear.
    """
    C = problem.domain
    kinds: list[type[Any]] = [NoisyGradientDescent]
    short = isinstance(C, HasCoordinateVertices) and problem.row_norm <= problem.bounds.x_inf
    scaled = problem.outputs > 1 and problem.loss.target_deviation is not None
    euclidean = problem.is_round or short or scaled
    if not (euclidean and math.isfinite(problem.smoothness)):
        kinds.append(NoisyMirrorDescent)
    if isinstance(C, HasCoordinateVertices) and isinstance(C, HasProjection):
        if problem.d >= FEWEST_SELECTED_FROM:
            kinds.append(NoisyCorrectiveFrankWolfe)
    elif isinstance(C, HasVertices):
        kinds.append(NoisyFrankWolfe)
    elif _geometry_gain(problem) > LEAST_GAIN:
        kinds.append(NoisyAcceleratedMirrorDescent)
    if not isinstance(C, HasProjection | HasMirrorMap):
        kinds.append(NoisyGeneralFrankWolfe)
    single = problem.outputs == 1 and residual_clip(problem) is None
    if problem.is_round and single and problem.size <= NEWTON_SIZE:
        kinds.append(ObjectivePerturbation)
    return tuple(kinds)


def standardisation_pays(problem: Problem, n: int, budget: Budget) -> bool:
    """Say, from public facts, whether released means and deviations would be good enough to use.

    They are where the noise on a mean is at most a quarter of the largest value of a feature, in Euclidean
    balls and, for regressions, in l1 balls and for several targets.
    """
    several = problem.outputs > 1 and problem.loss.link == "identity"  # targets of a regression
    if several and not can_be_scaled(problem):
        return False
    round_or_sparse = problem.is_round or (
        problem.loss.unit_free and isinstance(problem.domain, HasCoordinateVertices)
    )
    if not (round_or_sparse or several) or budget.delta == 0:
        return False
    try:
        means = Standardised(NoisyGradientDescent()).measures(problem, n, budget)[0]
    except Incompatible:  # exact sums have no room for so many cells
        return False
    return means.noise <= MEAN_NOISE * problem.bounds.x_inf


def _geometry_gain(problem: Problem) -> float:
    """How many times the noise term D N / m of the Euclidean map is that of the set's own map."""
    C, shape = problem.domain, problem.shape
    if not (isinstance(C, HasMirrorMap) and isinstance(C, HasProjection)):
        return 1.0
    own, euclidean = (
        psi.divergence_bound(shape) * psi.noise_norm(shape) / psi.strong_convexity
        for psi in (C.mirror_map(shape), Euclidean(C))
    )
    return euclidean / own


def _prefer_careful(plans: tuple[Plan, ...], chosen: Plan) -> Plan:
    """Return the plan whose fit returns zeros if it finds only noise, where the chosen one promises nothing.

    Such a fit is no worse than a constant where there is nothing to find, and good where the records have
    larger effects than the public model of typical data.
    """
    few, short = chosen.problem.d < CAREFUL_FROM, chosen.problem.bounds.x_2 is not None
    if few or short or is_useful(chosen):  # of short rows, such as text, descent shows more than is predicted
        return chosen
    fits = ((plan, plan.solver.innermost(plan)) for plan in plans)
    return next((plan for plan, fit in fits if fit.solver.withdraws(fit.problem)), chosen)


def plan(
    problem: Problem,
    n: int,
    budget: Budget,
    candidates: str | tuple[Solver, ...] = "all",
    accountant: Accountant | None = None,
    *,
    density: float = 1.0,
) -> Plan:
    """Plan a private fit: weigh the solvers that fit the problem and fix the best one's noise.

    Parameters
    ----------
    problem : Problem
    n : int
        Number of records, public under replace-one.
    budget : Budget
    candidates : "all" or tuple of Solver
        Solvers to weigh. "all" weighs those of `automatic`, and lists every other that fits beside them.
    accountant : Accountant, optional
        The tightest known by default.
    density : float
        Share of cells that are not 0, where it is public and records are compressed: for the table's memory.

    Returns
    -------
    Plan
        The one with the least predicted excess risk, each multiplied by its solver's handicap. If it is not
        predicted to be better than a constant, a solver is preferred that returns zero coefficients where it
        finds only noise. ``plan.candidates`` are those that were weighed; "all" lists every other solver that
        fits as well.
    """
    if n < 1:
        raise WrongValue(f"n must be at least 1, got {n}.")
    if not 0 < density <= 1:
        raise WrongValue(f"density must be in (0, 1], got {density!r}.")
    everything, clip = candidates == "all", default_clip(problem, n, budget)
    if everything:
        candidates = tuple(configured(kind, clip=clip) for kind in automatic(problem))
    if isinstance(candidates, str):
        raise WrongValue(f'candidates must be "all" or a tuple of solvers, got {candidates!r}.')
    plans, refusals = [], []
    for solver in candidates:
        try:
            plans.append(solver.plan(problem, n, budget, accountant or Tight()))
        except (Incompatible, NotAccountable) as refusal:
            refusals.append(str(refusal))
    if not plans:
        raise Incompatible("No solver fits this problem:\n  " + "\n  ".join(refusals))
    weighed = weigh(tuple(plans), density)
    best = next(plan for plan in plans if plan.solver == weighed[0].solver)
    chosen = _prefer_careful(tuple(plans), best)
    weighed = tuple(sorted(weighed, key=lambda each: each.solver != chosen.solver))
    listed = list_others(chosen, tuple(plans), clip=clip, density=density) if everything else ()
    return replace(chosen, candidates=(*weighed, *listed), advise=advice)
