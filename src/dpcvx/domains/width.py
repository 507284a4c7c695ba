"""Gaussian width by simulation."""

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Shape
from dpcvx.domains.domain import Domain
from dpcvx.errors import WrongType, WrongValue


@dataclass(frozen=True)
class WidthEstimate:
    """An estimate of a Gaussian width, and the interval that holds the truth at the confidence asked for."""

    mean: float
    low: float
    high: float


def gaussian_width(
    domain: Domain, d: Shape, *, samples: int, rng: np.random.Generator, confidence: float = 0.95
) -> WidthEstimate:
    """Estimate E sup_{s in C} <g, s>, g standard normal, by the mean over samples.

    Parameters
    ----------
    domain : Domain
        The set C, with a linear minimisation oracle.
    d : int or tuple
        Shape of the parameter.
    samples : int
        Number of draws of g, one call of the oracle each.
    rng : numpy.random.Generator
        Source of g.
    confidence : float
        Probability with which the interval holds the truth.

    Returns
    -------
    WidthEstimate

    Notes
    -----
    The interval is valid for any number of samples: sup_s <g, s - start> is r-Lipschitz in g, r the distance
    of C from its start, so the mean is sub-Gaussian with parameter r / sqrt(samples) ([TTZ14] Fact 2.3).
    """
    if samples < 1:
        raise WrongValue(f"samples must be at least 1, got {samples!r}.")
    if not 0 < confidence < 1:
        raise WrongValue(f"confidence must be in (0, 1), got {confidence!r}.")
    if not hasattr(domain, "lmo"):
        raise WrongType(f"gaussian_width needs a domain with HasLMO; {type(domain).__name__} has none.")
    start = domain.start(d)
    total = 0.0
    for _ in range(samples):
        g = rng.normal(size=start.shape)
        total += float((g * (domain.lmo(-g) - start)).sum())
    mean = total / samples
    r = min(domain.norm(2, d) + float(np.linalg.norm(start.ravel())), domain.diameter(2, d))
    slack = r * math.sqrt(2 * math.log(2 / (1 - confidence)) / samples)
    return WidthEstimate(mean, max(mean - slack, 0.0), mean + slack)
