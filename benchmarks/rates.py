"""Excess risk against dimension, rank, width and records, beside what the theorems promise.

epsilon = 1 and delta = 1e-6 unless said otherwise, defaults of the solvers, excess over the optimum on the
same records, certified by its duality gap.

    python benchmarks/rates.py [--seeds 3] [dimension nuclear records width structure threshold oracle]
"""

import argparse
import math
from dataclasses import dataclass

import numpy as np

from dpcvx.accounting import Budget, PureComposition, Tight, calibrate
from dpcvx.data.memory import source
from dpcvx.domains import GroupBall, L1Ball, L2Ball, NuclearBall, Simplex, gaussian_width
from dpcvx.domains.mirror import Euclidean
from dpcvx.domains.regularizers import SubmodularNorm
from dpcvx.domains.set_functions import (
    ConcaveOfCardinality,
    GroupCover,
    Interval,
    dual_norm,
    prox,
    tree_cover,
)
from dpcvx.domains.set_functions import norm as omega
from dpcvx.events import PureDP, Repeat
from dpcvx.losses import Huber, Logistic, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyDualFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisyStronglyConvexMirrorDescent,
    ObjectivePerturbation,
    OutputPerturbation,
    run_with_oracle,
)
from figures import panels, save, save_plot

BUDGET = Budget(1.0, 1e-6)
UNIT = Bounds(1.0, 1.0)  # with |phi'| <= 1 gradients have l2 norm at most 1


@dataclass(frozen=True)
class EuclideanL1Ball(L1Ball):
    """The l1 ball with the map whose bound grows like sqrt(p)."""

    def mirror_map(self, d):
        """Return the Euclidean map."""
        return Euclidean(self)


@dataclass(frozen=True)
class EuclideanSimplex(Simplex):
    """The simplex with the map whose bound grows like sqrt(p)."""

    def mirror_map(self, d):
        """Return the Euclidean map."""
        return Euclidean(self)


@dataclass(frozen=True)
class EuclideanNuclearBall(NuclearBall):
    """The nuclear ball with the map whose bound grows like m."""

    def mirror_map(self, d):
        """Return the Euclidean map."""
        return Euclidean(self)


class Exact:
    """The objective on given records, and its gradients."""

    def __init__(self, problem, X, y):
        self.problem, self.X, self.y = problem, X, y

    def value(self, theta):
        losses = self.problem.loss.value(self.X @ theta, self.y)
        return losses.sum() / len(self.y) + self.problem.l2 / 2 * (theta**2).sum()

    def gradient(self, theta):
        slopes = self.problem.loss.grad(self.X @ theta, self.y)
        return self.X.T @ slopes / len(self.y) + self.problem.l2 * theta

    def optimum(self, tolerance=1e-7):
        """Least value, by accelerated projected descent until the duality gap is small."""
        C, theta, t = self.problem.C, self.problem.C.start(self.problem.shape), 1.0
        point = theta
        for _ in range(20_000):
            new = C.project(point - self.gradient(point) / self.problem.smoothness)
            after = (1 + math.sqrt(1 + 4 * t * t)) / 2
            theta, point, t = new, new + (t - 1) / after * (new - theta), after
            g = self.gradient(theta)
            if ((theta - C.lmo(g)) * g).sum() < tolerance:
                return self.value(theta)
        raise RuntimeError("the optimum was not reached")

    def excess(self, plan, optimum, seed):
        """Of one private run."""
        data = source(self.X, self.y, bounds=self.problem.bounds)
        return self.value(execute(plan, data, rng=SeededGenerator(seed)).theta) - optimum


def stored(X):
    """Rows as they are stored, and just inside their norm."""
    return np.trunc(0.999 * X * 2**14) / 2**14


def report(name, where, excesses, extra=""):
    mean, error = np.mean(excesses), np.std(excesses) / math.sqrt(len(excesses))
    print(f"  {name:<34} {where:<10} excess {mean:.5f} +- {error:.5f} {extra}", flush=True)
    return float(mean)


def slope(x, y):
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


# Mirror descent against the dimension.


def sparse_signs(n, p, seed):
    """Rows of norm 1: four signs that tell the label, and noise of norm 0.6 in all other features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 4:] *= 0.6 / np.linalg.norm(X[:, 4:], axis=1, keepdims=True)
    X[:, :4] = rng.choice([-0.4, 0.4], (n, 4))
    return stored(X), np.where(3 * X[:, 0] + 2 * X[:, 1] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def dimension(seeds, n=2000, features=(100, 1000, 10_000)):
    """Mirror descent over the l1 ball and the simplex: at most like sqrt(log p), twice."""
    curves = {}
    for domain in (L1Ball(3.0), EuclideanL1Ball(3.0), Simplex(3.0), EuclideanSimplex(3.0)):
        name, curve = type(domain).__name__, []
        for p in features:
            problem = Problem(Logistic(), domain, bounds=UNIT, d=p)
            plan = NoisyMirrorDescent().plan(problem, n, BUDGET, Tight())
            excesses = []
            for seed in range(seeds):
                exact = Exact(problem, *sparse_signs(n, p, seed))
                excesses.append(exact.excess(plan, exact.optimum(1e-6), seed))
            curve.append(report(name, f"p={p}", excesses, f"T={plan.n_calls}"))
        curves[name] = curve
        print(f"  {name}: grows {curve[-1] / curve[0]:.2f} times")
    figure, axes = panels(2)
    for axis, kind in zip(axes, ("L1Ball", "Simplex"), strict=True):
        axis.loglog(features, curves[kind], "o-", label="its own map")
        axis.loglog(features, curves[f"Euclidean{kind}"], "s-", label="Euclidean map")
        guide = np.array(features, float)
        axis.loglog(features, curves[kind][0] * np.log(guide) / math.log(features[0]), "k--", label="log p")
        axis.loglog(features, curves[kind][0] * np.sqrt(guide / features[0]), "k:", label="sqrt(p)")
        axis.set(title=kind, xlabel="features p", ylabel="excess risk", ylim=(None, 0.6))
        axis.legend()
    save_plot(figure, "rates_dimension")
    return {f"growth_{name}": curve[-1] / curve[0] for name, curve in curves.items()}


# Matrices.


def nuclear(seeds, n=2000, sides=(16, 32, 64, 128), strengths=(0.05, 0.1, 0.2, 0.4, 0.8)):
    """m by m matrices: the largest excess over signals of several strengths follows the width, 2 sqrt(m).

    A strong signal is easy, and a weak one costs little: the bound is about those in between.
    """
    cases = [
        ("NoisyGeneralFrankWolfe", NoisyGeneralFrankWolfe(clip=1.0), NuclearBall(0.3)),
        ("NoisyMirrorDescent", NoisyMirrorDescent(clip=1.0), NuclearBall(0.3)),
        ("Euclidean map", NoisyMirrorDescent(clip=1.0), EuclideanNuclearBall(0.3)),
    ]
    curves = {name: [] for name, _, _ in cases}
    for name, solver, domain in cases:
        for m in sides:
            problem = Problem(Squared(), domain, bounds=UNIT, d=m, outputs=m)
            plan = solver.plan(problem, n, BUDGET, Tight())
            by_strength = []
            for strength in strengths:
                excesses = []
                for seed in range(seeds):
                    rng = np.random.default_rng(seed)
                    X, signs = rng.normal(size=(n, m)), rng.choice([-1.0, 1.0], n)
                    X[:, 0] = 0
                    X *= 0.6 / np.linalg.norm(X, axis=1, keepdims=True)
                    X[:, 0] = 0.8 * signs
                    y = np.zeros((n, m))
                    y[:, 0] = strength * signs
                    exact = Exact(problem, stored(X), y)
                    excesses.append(exact.excess(plan, exact.optimum(1e-6), seed))
                by_strength.append(excesses)
            worst = max(by_strength, key=np.mean)
            curves[name].append(report(name, f"m={m}", worst, f"T={plan.n_calls}"))
        print(f"  {name}: slope {slope(sides, curves[name]):.2f} in m")
    figure, (axis,) = panels(1)
    for name, curve in curves.items():
        axis.loglog(sides, curve, "o-", label=name)
    guide = np.sqrt(np.array(sides) / sides[0])
    axis.loglog(sides, curves["NoisyGeneralFrankWolfe"][0] * guide, "k--", label="sqrt(m)")
    axis.set(title="nuclear ball, worst of five signals", xlabel="side m", ylabel="excess risk")
    axis.legend()
    save_plot(figure, "rates_nuclear")
    return {
        "slope_frank_wolfe": slope(sides, curves["NoisyGeneralFrankWolfe"]),
        "slope_spectral": slope(sides, curves["NoisyMirrorDescent"]),
        "slope_euclidean": slope(sides, curves["Euclidean map"]),
    }


# Records.


def records(seeds, sizes=(500, 1000, 2000, 4000, 8000), d=10, l2=0.2):
    """A strongly convex problem: excess like 1/n^2 by solvers that use the modulus."""
    problem = Problem(Logistic(), L2Ball(2.0), bounds=UNIT, d=d, l2=l2)
    solvers = {
        "strongly_convex": NoisyStronglyConvexMirrorDescent(),
        "gradient_descent": NoisyGradientDescent(),
        "accelerated": NoisyAcceleratedMirrorDescent(),
        "output_perturbation": OutputPerturbation(l2),
        "objective_perturbation": ObjectivePerturbation(),
    }
    curves = {name: [] for name in solvers}
    for name, solver in solvers.items():
        for n in sizes:
            plan = solver.plan(problem, n, BUDGET, Tight())
            excesses = []
            for seed in range(4 * seeds):  # small problems
                rng = np.random.default_rng(seed)
                X = rng.normal(size=(n, d))
                X = stored(X / np.linalg.norm(X, axis=1, keepdims=True))
                y = np.where(X[:, 0] + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)
                exact = Exact(problem, X, y)
                excesses.append(exact.excess(plan, exact.optimum(1e-9), seed))
            curves[name].append(report(name, f"n={n}", excesses, f"calls={plan.n_calls}"))
        print(f"  {name}: slope {slope(sizes, curves[name]):.2f} in n")
    figure, (axis,) = panels(1)
    for name, curve in curves.items():
        axis.loglog(sizes, curve, "o-", label=name.replace("_", " "))
    guide = (np.array(sizes) / sizes[0]) ** -2.0
    axis.loglog(sizes, curves["strongly_convex"][0] * guide, "k--", label="slope -2")
    axis.set(title=f"ridge {l2}, d = {d}", xlabel="records n", ylabel="excess risk")
    axis.legend(fontsize=7)
    save_plot(figure, "rates_records")
    return {f"slope_{name}": slope(sizes, curve) for name, curve in curves.items()}


# Widths.


def width(seeds, n=400, features=(20, 50, 150, 400)):
    """Objective perturbation, epsilon 0.5: over balls of one radius the excess follows the Gaussian width."""
    budget, points = Budget(0.5, 1e-6), {}
    for ball in (L1Ball(0.5), GroupBall(5, 0.5), L2Ball(0.5)):
        name = type(ball).__name__
        for d in features:
            problem = Problem(Huber(0.5), ball, bounds=UNIT, d=d)
            plan = ObjectivePerturbation(0.3).plan(problem, n, budget, Tight())
            rng = np.random.default_rng(0)
            X = rng.normal(size=(n, d))
            exact = Exact(
                problem, stored(X / np.linalg.norm(X, axis=1, keepdims=True)), rng.choice([-1.0, 1.0], n)
            )
            optimum = exact.optimum()
            runs = [exact.excess(plan, optimum, seed) for seed in range(8 * seeds)]
            spread = ball.gaussian_width(d)
            points[name, d] = spread, report(name, f"d={d}", runs, f"width {spread:.2f}")
    follows = {}
    figure, (axis,) = panels(1)
    for kind in ("L1Ball", "GroupBall"):
        ratios = np.array([np.divide(points[kind, d], points["L2Ball", d]) for d in features])
        follows[kind] = ratios[:, 1] / ratios[:, 0]
        axis.loglog(ratios[:, 0], ratios[:, 1], "o-", label=kind)
    axis.loglog([0.15, 1], [0.15, 1], "k--", label="proportional")
    axis.set(title="objective perturbation, relative to the l2 ball", xlabel="Gaussian width")
    axis.set(ylabel="excess risk")
    axis.legend()
    save_plot(figure, "rates_width")
    closed = [
        C.gaussian_width(d) / gaussian_width(C, d, samples=400, rng=np.random.default_rng(1)).mean
        for C, d in (
            (L1Ball(1.0), 1000),
            (Simplex(), 1000),
            (GroupBall(10, 1.0), 1000),
            (NuclearBall(1.0), (60, 30)),
            (L2Ball(1.0), 1000),
        )
    ]
    least, most = min(map(min, follows.values())), max(map(max, follows.values()))
    print(f"  excess over width, relative to the l2 ball's at the same d: {least:.2f} to {most:.2f}")
    return {
        "excess_over_width_least": least,
        "excess_over_width_most": most,
        "closed_over_simulated_least": min(closed),
        "closed_over_simulated_most": max(closed),
    }


# Structured norms.


def structure(seeds, n=4000, d=40, l2=0.1):
    """Groups of 4, two of them used: excess by output perturbation and by Frank-Wolfe on the dual."""
    groups = [list(range(i, i + 4)) for i in range(0, d, 4)]
    norm = SubmodularNorm(GroupCover(groups), 0.01)
    problem = Problem(Huber(0.4), bounds=UNIT, d=d, l2=l2, regularizer=norm)
    results = {}
    for name, solver in (("output_perturbation", OutputPerturbation(l2)), ("dual", NoisyDualFrankWolfe())):
        plan = solver.plan(problem, n, BUDGET, Tight())
        excesses = []
        for seed in range(4 * seeds):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(n, d))
            X = stored(X / np.linalg.norm(X, axis=1, keepdims=True))
            y = np.clip(3 * X[:, :4].sum(axis=1) - 2 * X[:, 8:12].sum(axis=1), -1, 1)
            exact, theta = Exact(problem, X, y), np.zeros(d)
            for _ in range(2000):
                theta = norm.prox(theta - exact.gradient(theta) / problem.smoothness, 1 / problem.smoothness)
            optimum, start = (exact.value(v) + norm.value(v) for v in (theta, np.zeros(d)))
            released = execute(plan, source(X, y, bounds=UNIT), rng=SeededGenerator(seed)).theta
            excesses.append((exact.value(released) + norm.value(released) - optimum) / (start - optimum))
        results[f"share_{name}"] = report(name, f"n={n}", excesses, f"of that of 0, calls={plan.n_calls}")
    return results | {"prox_gap": prox_gap()}


def prox_gap(d=1000):
    """Largest relative duality gap of proximal steps in d coordinates."""
    rng, gaps = np.random.default_rng(0), []
    parents = [-1, *(int(rng.integers(0, i)) for i in range(1, d))]
    for F in (ConcaveOfCardinality(np.sqrt), tree_cover(parents), Interval(d, float(d))):
        v = rng.normal(size=d)
        step = 0.1 * dual_norm(F, v)
        theta = prox(F, v, step)
        rest = v - theta  # in step |P|, and tight there against theta
        infeasible = max(dual_norm(F, rest) / step - 1, 0.0)
        gap = abs(step * omega(F, theta) - rest @ theta) / (step * omega(F, theta))
        gaps.append(max(infeasible, gap))
    print(f"  proximal steps in {d} coordinates: relative gap at most {max(gaps):.1e}")
    return max(gaps)


# Sparse vector.


def threshold(seeds, runs=100):
    """Epsilon of each of 100 runs of the sparse vector at a total of (1, 1e-6), over the paper's."""
    each = 1 / calibrate(lambda t: Repeat(PureDP(1 / t), runs), BUDGET, PureComposition())
    paper = BUDGET.epsilon / math.sqrt(8 * runs * math.log(2 / BUDGET.delta))  # PRIVACY_MATH §9.2
    print(f"  {each:.5f} against {paper:.5f}; errors are 2/3 as sensitive as the paper says")
    return {"epsilon_over_paper": each / paper, "noise_over_paper": 2 / 3 * paper / each, "runs": runs}


# Oracles that are not private.


class Noisy:
    """Exact gradients with signs of anisotropic sizes added."""

    def __init__(self, exact, deviations, seed):
        self._exact, self._deviations, self._rng = exact, deviations, np.random.default_rng(seed)

    def gradient(self, theta):
        return self._exact.gradient(theta) + self._rng.choice([-1.0, 1.0], theta.shape) * self._deviations


def oracle(seeds, d=100, T=300):
    """Mirror descent on the user's own noisy gradients, as a share of the bound of Corollary 3.6."""
    problem = Problem(Logistic(), L1Ball(1.0), bounds=UNIT, d=d)
    exact = Exact(problem, *sparse_signs(2000, d, 0))
    optimum, deviations, psi = exact.optimum(), np.geomspace(0.02, 2.0, d), problem.C.mirror_map(d)
    G2 = problem.lipschitz_in(psi) ** 2 + deviations.max() ** 2 * psi.noise_norm(d)
    bound = 2.2 * math.sqrt(psi.divergence_bound(d) * G2 / (psi.strong_convexity * T))
    excesses = []
    for seed in range(4 * seeds):
        ask = Noisy(exact, deviations, seed)
        theta = run_with_oracle(NoisyMirrorDescent(), problem, ask, n_iter=T, noise=float(deviations.max()))
        excesses.append(exact.value(theta) - optimum)
    return {"share_of_bound": report("own oracle", f"T={T}", excesses, f"bound {bound:.3f}") / bound}


SECTIONS = (dimension, nuclear, records, width, structure, threshold, oracle)


def main() -> None:
    names = [section.__name__ for section in SECTIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="section", help=f"of {', '.join(names)}; all by default"
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    unknown = set(options.sections) - set(names)
    if unknown:
        parser.error(f"unknown section(s) {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    for section in SECTIONS:
        if not options.sections or section.__name__ in options.sections:
            print(section.__doc__.splitlines()[0])
            save(f"rates_{section.__name__}", section(options.seeds))


if __name__ == "__main__":
    main()
