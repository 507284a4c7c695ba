"""Dense passes of the exact data plane against BLAS in float64 and float32: alternating, medians, one run."""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from dpcvx.data import GradientSum, kernels
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS, ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.rows import Dense
from dpcvx.losses import Logistic

ONE = 2**RESIDUAL_BITS
PAUSE = 0.1  # seconds; BLAS threads spin for a while after a call and would disturb the next side
CALLS = 4  # in a row, as a solver makes them; the first one of a turn, after the pause, is not counted


def alternate(rounds: int, **sides: Callable[[], object]) -> dict[str, float]:
    """Median milliseconds of a call of each side, the sides taking turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(PAUSE)
            side()
            for _ in range(CALLS - 1):
                start = time.perf_counter()
                side()
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--d", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    n, d, rounds = options.n, options.d, options.rounds

    rng = np.random.default_rng(0)
    stored = rng.integers(-(2**FEATURE_BITS), 2**FEATURE_BITS + 1, size=(n, d), dtype=np.int16)
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    theta = rng.normal(size=d) / np.sqrt(d)
    loss, bound = Logistic(), ResidualBound(ONE, ONE)
    records = Arrays(Dense(stored), y[:, None])

    def blas(dtype: type) -> Callable[[], object]:
        X, t, labels = stored.astype(dtype) / dtype(2**FEATURE_BITS), theta.astype(dtype), y.astype(dtype)

        def gradient() -> object:
            return X.T @ (-labels / (1 + np.exp(labels * (X @ t))))

        return gradient

    gradient = alternate(
        rounds,
        integers=lambda: records.sum(GradientSum(loss, theta, bound)),
        float64=blas(np.float64),
        float32=blas(np.float32),
    )
    followed = records.follow(loss, 1)
    columns, rho = Dense(stored).transpose().values, rng.integers(-ONE, ONE, size=(1, n)).astype(np.int32)
    sums, steps = np.empty((1, d), dtype=np.int64), iter(range(10**9))

    def one_pass() -> None:
        records.parts(lambda a, b: kernels.multiply_dense(columns, rho, a, b, a, sums), d, n * d)

    def step() -> object:
        followed.add(next(steps) % d, 2**20)
        return followed.scores(2.0**-44, bound)

    frank_wolfe = alternate(rounds, step=step, one_pass=one_pass)

    rows = [(f"full gradient, {name}", ms, "") for name, ms in gradient.items()]
    rows += [
        ("  speed-up over float64", gradient["float64"] / gradient["integers"], "bar >= 3.5, stretch 4.5"),
        ("  speed-up over float32", gradient["float32"] / gradient["integers"], "bar >= 1.8"),
        ("Frank-Wolfe step (add + scores)", frank_wolfe["step"], ""),
        ("one int16 X^T r pass", frank_wolfe["one_pass"], ""),
        ("  step / pass", frank_wolfe["step"] / frank_wolfe["one_pass"], "bar <= 1.3"),
    ]
    print(f"n={n} d={d} rounds={rounds}; milliseconds (medians) and ratios")
    for name, value, note in rows:
        print(f"{name:34s} {value:9.2f}  {note}")


if __name__ == "__main__":
    main()
