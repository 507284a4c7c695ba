"""Rates of the noise samplers on one core, next to NumPy's unsafe normal: python benchmarks/noise.py

The sides take turns, so that a busy machine slows all of them; the table holds medians and their ratios.
OpenDP's integer vector is timed where it is installed (`pip install opendp`).
"""

import importlib.util
import statistics
import time
from collections.abc import Callable

import numpy as np

from dpcvx.noise import SecureGenerator, lattice_gaussian
from dpcvx.noise.exponential import select

COUNT = 10**6
OPENDP_COUNT = 10**4
ROUNDS = 15
SCALES = {"1": 1, "10": 10, "2^20": 2**20, "2^34": 2**34, "2^45": 2**45, "2^58 - 1": 2**58 - 1}
BAR, OPENDP_BAR = 0.25, 200


def opendp_draw() -> Callable[[], object] | None:
    """OpenDP's Gaussian on a vector of integers."""
    if importlib.util.find_spec("opendp") is None:
        return None
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    gaussian = dp.m.make_gaussian(*space, scale=10.0)
    zeros = [0] * OPENDP_COUNT
    return lambda: gaussian(zeros)


def main() -> None:
    secure = SecureGenerator()
    numpy_rng = np.random.Generator(np.random.PCG64(0))
    log_weights = numpy_rng.normal(size=COUNT)
    sides: dict[str, tuple[Callable[[], object], int]] = {
        "numpy PCG64 standard_normal (float64, not private)": (
            lambda: numpy_rng.standard_normal(COUNT),
            COUNT,
        ),
        "AES-256-CTR words": (lambda: secure.words(COUNT), COUNT),
        "selection among 10^6 weights": (lambda: select(log_weights, secure), COUNT),
    }
    for name, scale in SCALES.items():
        sides[f"lattice Gaussian, scale {name}"] = (
            lambda scale=scale: lattice_gaussian(scale, COUNT, secure),
            COUNT,
        )
    opendp = opendp_draw()
    if opendp is not None:
        sides["opendp integer vector, scale 10"] = (opendp, OPENDP_COUNT)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for draw, _ in sides.values():
        draw()  # tables and compilation
    for _ in range(ROUNDS):
        for name, (draw, _) in sides.items():
            start = time.perf_counter()
            draw()
            seconds[name].append(time.perf_counter() - start)
    rates = {name: count / statistics.median(seconds[name]) / 1e6 for name, (_, count) in sides.items()}
    reference = next(iter(rates.values()))
    print(f"{'sampler':<52} {'M/s':>8} {'/ numpy':>8}")
    for name, value in rates.items():
        print(f"{name:<52} {value:8.2f} {value / reference:8.3f}")
    slowest = min(rates[f"lattice Gaussian, scale {name}"] for name in SCALES)
    print(f"slowest lattice Gaussian: {slowest / reference:.2f}x numpy, bar {BAR}x")
    if opendp is not None:
        ratio = rates["lattice Gaussian, scale 10"] / rates["opendp integer vector, scale 10"]
        print(f"lattice Gaussian at scale 10: {ratio:.0f}x opendp, bar {OPENDP_BAR}x")


if __name__ == "__main__":
    main()
