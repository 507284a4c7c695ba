"""Rehearse a plan on public synthetic problems of its shape, to predict its excess risk.

Bounds hold for the worst data within the declared bounds and are too loose to rank solvers. Here the solver's
own loop runs against an oracle without records: a quadratic problem whose curvatures and coefficients follow
from the shape of the problem, and noise of the planned size. Nothing here reads private data or
concerns privacy; the numbers of the scenes are among `dpcvx.solvers.defaults`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import HasCoordinateVertices
from dpcvx.mechanisms import SecondMoments, Vertex
from dpcvx.plans import Asking, Plan
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.typical_data import DECAYS, GROWTH, UNIFORM, Typical, mean_curvature, usual_norm

__all__ = ["SHARES", "Scene", "is_modelled", "rehearse", "risk_at_zero", "scenes"]

FEWEST_DRAWS, MOST_DRAWS = 2, 8  # of the noise, for each problem
STEPS, COORDINATES = 400, 10_000  # aim for all draws together; the number of draws follows, in these limits
# Work (steps times coordinates) and steps of a run beyond which a rehearsal takes too long.
MOST_WORK, MOST_STEPS = 10**7, 5000
ANSWERED = {
    "gradient",
    "gradient on a support",
    "difference",
    "minimiser",
    "goodness",
    "Hessian",
    "vertex",
    "group",
}
SHARES: tuple[float, ...] = default("planning.rehearsal.SHARES")
DEVIATION: float = default("planning.rehearsal.DEVIATION")


@dataclass(frozen=True)
class Scene:
    """F(theta) = (1/2) sum_j h_j (theta_j - target_j)^2."""

    curvatures: Vector  # curvatures, target: h and the minimiser, in the shape of theta
    target: Vector

    def excess(self, theta: Vector) -> float:
        """F(theta), which is 0 at best."""
        return float((self.curvatures * (theta - self.target) ** 2).sum()) / 2

    def gradient(self, theta: Vector) -> Vector:
        """Gradient of F."""
        return self.curvatures * (theta - self.target)


def scenes(problem: Problem, clip: float | None = None, shares: tuple[float, ...] = ()) -> tuple[Scene, ...]:
    """Return public synthetic problems of the shape of a problem.

    In a Euclidean ball, and for standardised rows of a regression in an l1 ball, those of `Typical`, one for
    each law of its eigenvalues, a direction being a coordinate. In other sets features vary independently and
    evenly, and coefficients fall like 1, 1/2, 1/3, ... in the order of the features: the sets say which
    features belong together, or that few of them matter.
    With several outputs all have the same features.

    A declared norm of rows is a fact about rows, which are about as long. Bounds of columns are seldom
    reached, so that columns may also vary by a tenth or a hundredth of the square that is allowed; the
    coefficients are larger then. Scores explain all that can be explained: a classifier's loss at theta = 0,
    or the variance of a target whose deviation is 0.4 of the largest residual. The minimiser may lie outside
    of the set: what a small set leaves out is part of the excess. Given ``shares`` take the place of a tenth
    and a hundredth.
    """
    typical, rng = Typical.of(problem, clip), np.random.default_rng(0)
    by_columns = problem.row_norm == math.sqrt(problem.d) * problem.bounds.x_inf
    standardised = problem.loss.target_deviation is not None and not by_columns
    if problem.is_round or (standardised and isinstance(problem.domain, HasCoordinateVertices)):
        longest = (typical.curvatures - problem.l2) * (problem.row_norm / usual_norm(problem)) ** 2
        split = (np.split(part, len(DECAYS)) for part in (longest, typical.counts))
        laws = [_spread(h, len(DECAYS) * counts, problem) for h, counts in zip(*split, strict=True)]
        signs = rng.choice([-1.0, 1.0], problem.shape)
        targets = [signs / law ** (GROWTH / 2) for law in laws]
    else:
        moment = min(UNIFORM * problem.bounds.x_inf**2, problem.row_norm**2 / problem.d)
        laws = [np.full(problem.shape, mean_curvature(problem, clip) * moment)]
        falling = rng.choice([-1.0, 1.0], problem.d) / np.arange(1, problem.d + 1)
        targets = [np.outer(falling, rng.choice([-1.0, 1.0], problem.outputs)).reshape(problem.shape)]
    shorter = shares or ((SHARES if problem.is_round else SHARES[:1]) if by_columns else ())
    pairs = [*zip(laws, targets, strict=True), *((share * laws[-1], targets[-1]) for share in shorter)]
    return tuple(_scene(law, target, _learnable(problem, clip), problem.l2) for law, target in pairs)


def _scene(curvatures: Vector, target: Vector, learnable: float, l2: float) -> Scene:
    """Scene in which theta = 0 costs so much, before a ridge moves the minimiser towards 0."""
    target = target * math.sqrt(2 * learnable / float((curvatures * target**2).sum()))
    return Scene(curvatures + l2, target * curvatures / (curvatures + l2))


def _learnable(problem: Problem, clip: float | None) -> float:
    # Where a fit starts at the mean: what scores of a usual spread explain.
    if problem.loss.unit_free and problem.loss.link != "identity":
        return Typical.of(problem, clip).at_zero
    if problem.loss.link != "identity":
        return problem.loss_at_zero
    if problem.loss.target_deviation is not None:
        return problem.usual_loss_at_zero
    return min((DEVIATION * problem.slope(2, 0.0, clip)) ** 2 / 2, problem.loss_at_zero)


def is_modelled(problem: Problem) -> bool:
    """Whether there are scenes for the problem: a smooth convex loss over a set, no regulariser."""
    return (
        problem.loss.convex
        and math.isfinite(problem.smoothness)
        and problem.domain is not None
        and problem.regularizer is None
    )


def risk_at_zero(problem: Problem, clip: float | None = None) -> float:
    """Mean excess risk of theta = 0, the trivial model, over the scenes."""
    return float(np.mean([scene.excess(np.zeros(problem.shape)) for scene in scenes(problem, clip)]))


def _spread(curvatures: Vector, counts: Vector, problem: Problem) -> Vector:
    """One curvature for each coordinate, the same for every output."""
    rows = np.repeat(curvatures, np.rint(counts / problem.outputs).astype(int))
    return np.broadcast_to(rows.reshape(-1, *[1] * (len(problem.shape) - 1)), problem.shape)


def rehearse(plan: Plan, shares: tuple[float, ...] = ()) -> tuple[float, float] | None:
    """Excess risk on the scenes of the plan's problem: (optimisation part, privacy part).

    The first is what the loop leaves without noise, the second what the noise adds, on the worst of the
    scenes. None where there are no scenes, a run would take long, or a step cannot be computed.
    """
    problem = plan.problem
    known = all(stage.mechanism.traits.question in ANSWERED for stage in plan.stages)
    long = plan.n_calls * _width(plan) > MOST_WORK or plan.n_calls > MOST_STEPS
    if long or not (is_modelled(problem) and known):
        return None
    try:
        return _worst(plan, shares)
    except np.linalg.LinAlgError:  # a step over the set that has no solution in floating point
        return None


def _worst(plan: Plan, shares: tuple[float, ...]) -> tuple[float, float]:
    problem = plan.problem
    short = min(STEPS // plan.n_calls, COORDINATES // (plan.n_calls * problem.size))
    draws = min(max(FEWEST_DRAWS, short), MOST_DRAWS)
    rng, worst = np.random.default_rng(0), (0.0, 0.0)
    for scene in scenes(problem, plan.solver.clip, shares):
        exact = scene.excess(_run(plan, scene, None))
        noisy = float(np.mean([scene.excess(_run(plan, scene, rng)) for _ in range(draws)]))
        worst = max(worst, (exact, max(noisy - exact, 0.0)), key=sum)
    return worst


def _width(plan: Plan) -> int:
    """Coordinates that a step works on; a matrix of second moments is inverted."""
    matrix = any(stage.mechanism.traits.pairs for stage in plan.stages)
    return plan.problem.d**3 if matrix else plan.problem.size


def _run(plan: Plan, scene: Scene, rng: np.random.Generator | None) -> Vector:
    return plan.solver.run(plan, _SceneOracle(plan, scene, rng))


class _SceneOracle(Asking):
    """Answers as the plan's oracle would on a scene; without a generator there is no noise."""

    def __init__(self, plan: Plan, scene: Scene, rng: np.random.Generator | None) -> None:
        self._problem, self._scene, self._rng = plan.problem, scene, rng
        # Noise follows from exact arithmetic on bounds: once for each stage, not for each step.
        noises = ((stage, getattr(stage.mechanism, "noise", 0.0)) for stage in plan.stages)
        self._questions = ((stage.mechanism, noise) for stage, noise in noises for _ in range(stage.n_calls))
        self._theta = np.empty(0)  # Frank-Wolfe's point, from the first question on

    def _next(self) -> tuple[Any, float]:
        return next(self._questions)

    def _noise(self, scale: float, shape: tuple[int, ...]) -> Vector:
        return np.zeros(shape) if self._rng is None else scale * self._rng.standard_normal(shape)

    def ask(self, *public: Any, question: str | None = None) -> Any:
        """Answer the next question of the plan."""
        mechanism, noise = self._next()
        match mechanism.traits.question:
            case "gradient":
                return self._scene.gradient(*public) + self._noise(noise, public[0].shape)
            case "gradient on a support":
                theta, support = public
                answer = self._scene.gradient(theta)[support]
                return answer + self._noise(mechanism.noise_on(len(support)), answer.shape)
            case "difference":
                return self._difference(mechanism, *public)
            case "minimiser":
                return self._minimiser(mechanism, noise, *public)
            case "goodness":  # of no consequence for the fit
                return np.zeros(3)
            case "group":
                return self._best_group(mechanism, *public)
            case "Hessian":
                return self._second_moments(mechanism, noise)
        return self._best_vertex(mechanism, noise)

    def withdraw(self, theta: Vector, start: Vector, caution: str) -> Vector:
        """Return the parameter unchanged: the predicted risk is that of fits that find a signal."""
        return theta

    def _difference(self, mechanism: Any, theta: Vector, anchor: Vector) -> Vector:
        """Change of the gradient, with noise in proportion to the distance."""
        problem = mechanism.problem
        change = problem.slope_change(theta, anchor, 2, mechanism.clip) * problem.row_norm
        scale = mechanism.noise_multiplier * change / (mechanism.probability * mechanism.n)
        return self._scene.curvatures * (theta - anchor) + self._noise(scale, theta.shape)

    def _minimiser(self, mechanism: Any, noise: float, linear: Vector | None = None) -> Vector:
        """Minimiser over the whole space, with the noise of the objective or of the outcome."""
        h, added = self._scene.curvatures, max(mechanism.ridge / mechanism.n - mechanism.problem.l2, 0.0)
        pull: Vector = h * self._scene.target - (0.0 if linear is None else linear)
        shift = self._noise(noise, h.shape)
        if mechanism.traits.noise_inside:
            answer: Vector = (pull - shift) / (h + added)
        else:
            answer = pull / (h + added) + shift
        return answer

    def _second_moments(self, mechanism: Any, noise: float) -> SecondMoments:
        """Hessian of the loss, one noise for each pair of features."""
        d = mechanism.problem.d
        upper = np.triu(self._noise(noise / math.sqrt(2), (d, d)), 1)
        diagonal = self._scene.curvatures - mechanism.problem.l2 + self._noise(noise, (d,))
        return SecondMoments(upper + upper.T + np.diag(diagonal), None)

    def _best_vertex(self, mechanism: Any, noise: float) -> Vertex:
        """Best vertex, scores perturbed by Gumbel noise."""
        C = self._problem.C
        if self._theta.size == 0:
            self._theta = mechanism.origin().dense()
        scores = -C.vertex_scores(self._scene.gradient(self._theta).reshape(-1))
        if self._rng is not None:
            scores = scores + noise * self._rng.gumbel(size=len(scores))
        best = int(np.argmax(scores))
        if not isinstance(C, HasCoordinateVertices):
            return Vertex(best)
        index, value = C.coordinate(best, self._problem.size)
        return Vertex(index, 1 if value > 0 else -1)

    def _best_group(self, mechanism: Any, theta: Vector, drawn: tuple[int, ...]) -> int:
        """Group with the largest noisy score: gradient norm over the root of its size, plus Gumbel noise."""
        g = self._scene.gradient(theta)
        sizes = np.sqrt([len(group) for group in mechanism.groups])
        scores = np.array([np.linalg.norm(g[list(group)]) for group in mechanism.groups]) / sizes
        if self._rng is not None:
            scale = mechanism.noise / sizes.max()
            scores = scores + scale * self._rng.gumbel(size=len(scores))
        scores[list(drawn)] = -math.inf
        return int(np.argmax(scores))

    def move(self, step: float, vertex: Vertex) -> None:
        """theta <- (1 - step) theta + step * vertex."""
        C, size = self._problem.C, self._problem.size
        self._theta *= 1 - step
        if isinstance(C, HasCoordinateVertices):
            self._theta.reshape(-1)[vertex.index] += step * vertex.sign * abs(C.coordinate(0, size)[1])
        else:
            self._theta += step * C.vertex(vertex.index, size).reshape(self._theta.shape)
