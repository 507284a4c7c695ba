"""Selection of a few groups of features, and a refit on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from dpcvx.accounting import Accountant, Budget, calibrate, spendable
from dpcvx.arrays import IntVector, Vector
from dpcvx.domains import HasGroups, HasProjection
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Event, Exponential, Gaussian, Repeat
from dpcvx.mechanisms import NoisyGradient, NoisyGroup
from dpcvx.plans import Asking, Plan, Solver, Stage, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise
from dpcvx.solvers.evidence import Evidence
from dpcvx.solvers.typical_data import Harmonic

__all__ = ["NoisyGroupSelection"]

SHARE: float = default("solvers.group_selection.SHARE")
STRIDE: float = default("solvers.group_selection.STRIDE")
MOST_STEPS: int = default("solvers.group_selection.MOST_STEPS")
HANDICAP: float = default("solvers.group_selection.HANDICAP")
LATE = 3  # the last third of the refit's iterates is averaged
LENGTHS = np.geomspace(1e-2, 1e3, 200)  # path lengths that are compared, in units of 1/curvature


@dataclass(frozen=True)
class NoisyGroupSelection(Solver):
    """Select a few groups of features at theta = 0, refit on their features.

    S = features of k drawn groups; theta = mean of the last third of T projected gradient steps within S

    Algorithm: beyond the papers. Over a group ball, [TTZ14] Algorithm 4 would move to a vertex, which is a
    group and a direction within it; here only the group is drawn. All groups are drawn from the gradient at
    theta = 0, one after another and none twice, so that the draws cost one pass over the records. The refit
    starts at 0 and is noisy projected gradient descent on S. If its gradients show only noise, theta is 0,
    and the release has a caution (`Evidence`).

    Privacy: k questions `NoisyGroup` (scores with sensitivity 1, replace-one) and T questions `NoisyGradient`
    on a support (l2 sensitivity 2 (phi' bound) min(B_2, B_x sqrt(|S|))/n, replace-one); event
    Compose(Repeat(Exponential(eta), k), Repeat(Gaussian, T)), eta = 2 mu sqrt(SHARE/k) where Gaussian noise
    of the same budget has mu (PRIVACY_MATH §2.1, §15). S follows from released draws, so the noise may depend
    on its size.

    Utility: no rate is proved; the prediction is a model. J groups are equally useful, J = 1, 2, 4, ... up to
    half of them with equal probability, and scores have the variance of a useful model. A draw finds one of
    the J useful groups among m with probability 1/(1 + (m/J - 1) exp(-a/b)), where a is the norm of the
    gradient of a useful group and b the scale of the Gumbel noise on it. The default number of draws
    minimises the predicted risk.

    Deviations: none, as there is no paper.

    Parameters
    ----------
    n_iter : int, optional
        Answers in all, k + T; at least 2.
    selections : int, optional
        k; by default the model's.
    clip : float, optional
        Residuals phi' are clipped to this size.
    kept : tuple of int
        Features that are in every support and in no draw, such as an intercept.
    """

    n_iter: int | None = None
    selections: int | None = None
    clip: float | None = None
    kept: tuple[int, ...] = ()

    name: ClassVar[str] = "group_selection"
    requires: ClassVar[tuple[type, ...]] = (HasGroups, HasProjection)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)
        check_count("selections", self.selections)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the numbers of draws and steps and their noise from public facts."""
        require(self, problem)
        groups = self._groups(problem)
        k, T = self._counts(problem, n, budget)

        def parts(t: float) -> tuple[float, float]:  # eta and noise multiplier; t is close to 1/mu
            return 2 * math.sqrt(SHARE / k) / t, t * math.sqrt(T / (1 - SHARE))

        def event(t: float) -> Event:
            eta, noise_multiplier = parts(t)
            return Compose((Repeat(Exponential(eta), k), Repeat(Gaussian(noise_multiplier), T)))

        eta, noise_multiplier = parts(calibrate(event, spendable(budget), accountant))
        most = sum(sorted(map(len, groups))[-k:]) + len(self.kept)
        select = NoisyGroup(problem, n, eta, groups, budget.neighbours, self.clip)
        refit = NoisyGradient(problem, n, noise_multiplier, budget.neighbours, self.clip, support=most)
        solver = replace(self, n_iter=k + T, selections=k)
        return Plan((Stage(select, k), Stage(refit, T)), problem, n, solver, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Draw groups, then descend over their features."""
        C, (select, refit) = plan.problem.C, plan.stages
        groups, T = cast(NoisyGroup, select.mechanism).groups, refit.n_calls
        theta, total = np.zeros(plan.problem.shape), np.zeros(plan.problem.shape)
        drawn: tuple[int, ...] = ()
        for _ in range(select.n_calls):
            drawn = (*drawn, ask.group(theta, drawn))  # a group with a large gradient
        support = np.array(sorted({*self.kept}.union(*(groups[g] for g in drawn))))
        step = self._refit_step(cast(NoisyGradient, refit.mechanism), len(support), T)
        averaged = -(-T // LATE)
        evidence = Evidence(cast(NoisyGradient, refit.mechanism), theta[support], self.clip)
        for t in range(T):
            g = ask.gradient(theta, support)
            evidence.add(theta, g, support)
            theta[support] -= step * g
            theta = C.project(theta)
            total += theta * (t >= T - averaged)
        return evidence.settle(total / averaged, np.zeros_like(theta), ask)

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Model the excess risk: (optimisation part, privacy part)."""
        parts = self._parts(problem, n, budget, np.array([self._counts(problem, n, budget)[0]]))
        return float(parts[0][0]), float(parts[1][0])

    def withdraws(self, problem: Problem) -> bool:
        """Return True: a fit of pure noise returns to 0."""
        return True

    def handicap(self, plan: Plan) -> float:
        """Return 0.3: where groups are declared, the measured risk was far below the rehearsed one."""
        return HANDICAP

    def _groups(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Features of each group that may be drawn."""
        if len(set(self.kept) & set(range(problem.d))) != len(self.kept):
            raise WrongValue(f"kept must hold different places of {problem.d} features, got {self.kept!r}.")
        labels = problem.C.labels(problem.shape).reshape(problem.d, -1)
        if (labels != labels[:, :1]).any():
            raise Incompatible(
                "NoisyGroupSelection needs groups of features, with all of their coefficients."
            )
        members: dict[int, list[int]] = {}
        for j, label in enumerate(labels[:, 0].tolist()):
            if j not in self.kept:
                members.setdefault(label, []).append(j)
        if not members:
            raise Incompatible("NoisyGroupSelection needs a group beside the features that it keeps.")
        return tuple(map(tuple, members.values()))

    def _counts(self, problem: Problem, n: int, budget: Budget) -> tuple[int, int]:
        if not math.isfinite(problem.smoothness):
            raise Incompatible(
                f"NoisyGroupSelection needs a smooth loss; {type(problem.loss).__name__} is not. "
                "Use NoisyMirrorDescent."
            )
        groups, k = self._groups(problem), self.selections
        if k is None:
            most = len(groups) if self.n_iter is None else max(1, min(len(groups), self.n_iter // 2))
            k = 1 + int(np.argmin(sum(self._parts(problem, n, budget, np.arange(1, most + 1)))))
        if k > len(groups):
            raise Incompatible(f"selections={k} is more than the {len(groups)} groups.")
        if self.n_iter is not None:
            if self.n_iter <= k:
                raise Incompatible(f"n_iter={self.n_iter} leaves no step for a refit after {k} selection(s).")
            return k, self.n_iter - k
        draws = np.array([k])
        step = STRIDE / _smoothness(problem, float(self._features(problem, draws)[0]))
        price = float(self._price(problem, n, budget, draws)[0])
        path = _longest(Harmonic.of(problem, self.clip).squares, price)
        return k, min(max(math.ceil(path / step), 1), MOST_STEPS)

    def _features(self, problem: Problem, k: IntVector) -> Vector:
        """Usual number of features of k groups and of those that are kept."""
        groups = self._groups(problem)
        return k * sum(map(len, groups)) / len(groups) + len(self.kept)

    def _parts(self, problem: Problem, n: int, budget: Budget, k: IntVector) -> tuple[Vector, Vector]:
        """Model the excess risk for each number of draws: (optimisation parts, privacy parts)."""
        groups, model = self._groups(problem), Harmonic.of(problem, self.clip)
        size, gain = sum(map(len, groups)) / len(groups), model.curvature * model.squares / 2
        scale = np.sqrt(k / SHARE) * _noise(problem, size, n, budget, self.clip)
        useful = 2.0 ** np.arange(max(1, math.floor(math.log2(len(groups)))))  # J
        gradients = model.curvature * np.sqrt(model.squares / useful)
        right = 1 / (1 + (len(groups) / useful - 1) * np.exp(-gradients / scale[:, None]))
        found = np.minimum(k[:, None] / useful, 1.0)
        left, missed = gain * (1 - found).mean(axis=1), gain * ((1 - right) * found).mean(axis=1)
        # Features of one table are correlated, so coefficients approach their values like those of a ridge.
        H = LENGTHS / model.curvature
        refit, noise = gain / (1 + LENGTHS) ** 2, self._price(problem, n, budget, k)[:, None] * H**2
        best = (refit + noise).argmin(axis=1)
        return left + refit[best], missed + noise[np.arange(len(k)), best]

    def _price(self, problem: Problem, n: int, budget: Budget, k: IntVector) -> Vector:
        """Risk that the noise of a refit along a path of length 1 adds, for each number of draws."""
        features = self._features(problem, k)
        shift = _noise(problem, features, n, budget, self.clip) / math.sqrt(1 - SHARE)
        price: Vector = Harmonic.of(problem, self.clip).curvature * features / 2 * shift**2
        return price

    def _refit_step(self, refit: NoisyGradient, features: int, T: int) -> float:
        """Length of each step, now that the size of the support is known."""
        model = Harmonic.of(refit.problem, self.clip)
        price = model.curvature * features / 2 * refit.noise_on(features) ** 2 / T
        path = _longest(model.squares, price) * T / (T - (-(-T // LATE) - 1) / 2)
        return min(path / T, STRIDE / _smoothness(refit.problem, features))


def _row(problem: Problem, features: float | Vector) -> Any:
    """Largest norm of a row on so many features."""
    return np.minimum(problem.row_norm, np.sqrt(features) * problem.bounds.x_inf)


def _noise(problem: Problem, features: float | Vector, n: int, budget: Budget, clip: float | None) -> Any:
    """`gradient_noise` on a support of so many features."""
    return gradient_noise(problem, n, budget, clip) * _row(problem, features) / problem.row_norm


def _smoothness(problem: Problem, features: float) -> float:
    """Largest curvature of the objective on a support of so many features."""
    return float(problem.smoothness * (_row(problem, features) / problem.row_norm) ** 2)


def _longest(squares: float, price: float) -> float:
    """Path length that minimises squares/(2 H) + price H^2, the bound for any correlation of the features.

    A unit gradient would move the answer so far.
    """
    return float((squares / (4 * price)) ** (1 / 3))
