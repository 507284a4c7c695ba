"""Rates of the noise samplers on one core, next to NumPy's unsafe normal: python benchmarks/noise.py"""

import importlib.util
import time
from collections.abc import Callable

import numpy as np

from dpcvx.noise import SecureGenerator, SeededGenerator, lattice_gaussian, select


def rate(draw: Callable[[], object], count: int, repeats: int = 7) -> float:
    """Return the best rate of `repeats` runs, in millions for each second."""
    draw()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        draw()
        best = min(best, time.perf_counter() - start)
    return count / best / 1e6


def main() -> None:
    count = 10**6
    secure, seeded = SecureGenerator(), SeededGenerator(0)
    numpy_rng = np.random.Generator(np.random.PCG64(0))
    log_weights = numpy_rng.normal(size=count)
    rates = {
        "numpy PCG64 standard_normal (float64, not private)": rate(
            lambda: numpy_rng.standard_normal(count), count
        ),
        "AES-256-CTR words": rate(lambda: secure.words(count), count),
        "lattice Gaussian, scale 10, AES": rate(lambda: lattice_gaussian(10, count, secure), count),
        "lattice Gaussian, scale 2^34, AES": rate(lambda: lattice_gaussian(2**34, count, secure), count),
        "lattice Gaussian, scale 2^45, AES": rate(lambda: lattice_gaussian(2**45, count, secure), count),
        "lattice Gaussian, scale 2^34, seeded": rate(lambda: lattice_gaussian(2**34, count, seeded), count),
        "selection among 10^6 weights, AES": rate(lambda: select(log_weights, secure), count),
    }
    if importlib.util.find_spec("opendp"):
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        gaussian = dp.m.make_gaussian(*space, scale=10.0)
        zeros = [0] * 10_000
        rates["opendp integer vector, scale 10"] = rate(lambda: gaussian(zeros), len(zeros), repeats=2)
    reference = next(iter(rates.values()))
    print(f"{'sampler':<52} {'M/s':>8} {'/ numpy':>8}")
    for name, value in rates.items():
        print(f"{name:<52} {value:8.2f} {value / reference:8.3f}")


if __name__ == "__main__":
    main()
