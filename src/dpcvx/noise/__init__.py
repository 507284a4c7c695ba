"""Random number generators, exact Gaussian, Laplace and Poisson draws, and the exponential mechanism.

Nothing here releases a floating-point number: noise is an integer multiple of the lattice step, a selection
is an index. Each inexact sampler has a function that bounds its distance from the ideal law, from public
numbers. The time of a draw depends on the draw: a service that must hide timing draws its noise beforehand.
"""

from dpcvx.noise.gaussian import MAX_SCALE, gaussian_failure, lattice_gaussian
from dpcvx.noise.generators import Generator, SecureGenerator, SeededGenerator, Words, generator_of
from dpcvx.noise.laplace import MAX_LAPLACE_SCALE, laplace_failure, lattice_laplace
from dpcvx.noise.poisson import LEVELS, poisson_sample, probability_above

__all__ = [
    "LEVELS",
    "MAX_LAPLACE_SCALE",
    "MAX_SCALE",
    "Generator",
    "SecureGenerator",
    "SeededGenerator",
    "Words",
    "gaussian_failure",
    "generator_of",
    "laplace_failure",
    "lattice_gaussian",
    "lattice_laplace",
    "poisson_sample",
    "probability_above",
]
