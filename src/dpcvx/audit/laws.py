"""Tests of the law of the noise: draws of each sampler against the law that is accounted for.

A law is accepted if a chi-square test of its cells does not reject it, and the test has power: the same draws
reject a scale that is 5 % smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.noise import Generator, exponential, gaussian, laplace, poisson_sample

__all__ = ["LawTest", "law_tests"]

REJECTED = 1e-4  # p-values below it reject a law
NARROWER = 0.95  # scale of the law that must be rejected
CELLS = 40


@dataclass(frozen=True)
class LawTest:
    """Result of a test of one sampler."""

    name: str
    draws: int
    p_value: float  # of the law that is accounted for
    control: float  # of a law that is narrower by 5 %, which must be rejected

    @property
    def holds(self) -> bool:
        """Whether the law is accepted and the narrower one is not."""
        return self.p_value > REJECTED and self.control < REJECTED


def law_tests(draws: int, rng: Generator) -> tuple[LawTest, ...]:
    """Draw from every sampler and compare with its law."""
    scale = 2**20
    normal = gaussian.lattice_gaussian(scale, draws, rng)
    few = min(draws, 20_000)  # drawn one by one
    double = laplace.lattice_laplace(scale, few, rng)
    return (
        _test("Gaussian noise", normal / scale, _normal_cdf),
        _test("Laplace noise", double / scale, _laplace_cdf),
        _selection("selection", few, rng),
        _sample("sample of the records", draws, rng),
    )


def _normal_cdf(x: Vector) -> Vector:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


def _laplace_cdf(x: Vector) -> Vector:
    return np.where(x < 0, np.exp(np.minimum(x, 0.0)) / 2, 1 - np.exp(-np.maximum(x, 0.0)) / 2)


def _test(name: str, values: Vector, cdf: Callable[[Vector], Vector]) -> LawTest:
    def p_value(scale: float) -> float:
        from scipy import stats

        counts = np.histogram(cdf(values / scale), bins=np.linspace(0, 1, CELLS + 1))[0]
        return float(stats.chisquare(counts).pvalue)

    return LawTest(name, len(values), p_value(1.0), p_value(NARROWER))


def _selection(name: str, draws: int, rng: Generator) -> LawTest:
    from scipy import stats

    weights = np.array([0.0, 1.0, -2.0, 2.5, 0.3])
    counts = np.bincount([exponential.select(weights, rng) for _ in range(draws)], minlength=len(weights))

    def p_value(factor: float) -> float:
        chances = np.exp(factor * weights)
        return float(stats.chisquare(counts, draws * chances / chances.sum()).pvalue)

    return LawTest(name, draws, p_value(1.0), p_value(1 / NARROWER))


def _sample(name: str, draws: int, rng: Generator) -> LawTest:
    from scipy import stats

    probability = 0.25
    drawn = len(poisson_sample(probability, draws, rng))

    def p_value(chance: float) -> float:
        deviation = math.sqrt(draws * chance * (1 - chance))
        return float(2 * stats.norm.sf(abs(drawn - draws * chance) / deviation))

    return LawTest(name, draws, p_value(probability), p_value(NARROWER * probability))
