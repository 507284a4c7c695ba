"""The GPU against its own memory and against this machine's CPU: python benchmarks/scale/gpu.py [part ...]

passes     both passes of a full gradient over an int16 matrix of 20 GB, next to the bandwidth of a plain read
bits       integer sums of the GPU and of the CPU on a slice of 1 GB, for several losses; bits must agree
gradient   whole gradients of 20 GB, margins to the host and residuals back included; of the slice on the CPU
nuclear    Frank-Wolfe over the nuclear ball, 2000 x 2000, T = 200, on the GPU, and its first steps on 2 cores
           and on all of them, each in a process of its own; the same plan, noise from AES in all of them
queries    the warm start of the query engine over a large universe: fit, one marginal, one update

Times are medians. Without a part all of them run; `--copies`, `--records` and `--levels` set their sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from dpcvx.accounting import Budget
from dpcvx.data import GradientSum
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS, ResidualBound
from dpcvx.data.memory import Arrays, source
from dpcvx.data.on_gpu import OnDevice
from dpcvx.data.rows import Dense
from dpcvx.domains import NuclearBall
from dpcvx.gpu.products import DenseOnDevice
from dpcvx.losses import Huber, Logistic, Squared
from dpcvx.planning.planner import plan
from dpcvx.plans import Plan, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.queries import Attribute, Histogram, Schema, Universe
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.maximum_entropy import fit
from dpcvx.queries.passes import passes_over
from dpcvx.solvers import NoisyGeneralFrankWolfe

FEATURES = 5000
SLICE_ROWS = 100_000  # 1 GB
SIDE, STEPS = 2000, 200
CPU_STEPS = 3
ONE, STEP = 2**RESIDUAL_BITS, 2**FEATURE_BITS
GPU = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds_of(call: Callable[[], object], repeats: int = 11) -> float:
    """Median time of a call once it is warm, by the clock of the device."""
    call()
    times = []
    for _ in range(repeats):
        if GPU.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def wall_of(call: Callable[[], object], repeats: int = 5) -> float:
    """Median wall time of a call that ends on the host."""
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


@cache
def slice_of_records() -> tuple[Any, Any]:
    """Random rows of 1 GB, and labels."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-STEP, STEP + 1, size=(SLICE_ROWS, FEATURES), dtype=np.int16)
    return rows, np.where(rng.random((SLICE_ROWS, 1)) < 0.5, -1.0, 1.0)


@cache
def all_records(copies: int) -> OnDevice:
    """The slice many times over, through the class of the rows and on to the device."""
    rows, y = slice_of_records()
    return OnDevice(Arrays(Dense(np.tile(rows, (copies, 1))), np.tile(y, (copies, 1))), GPU)


def read_bandwidth(stored: DenseOnDevice) -> float:
    """Bytes a second of a plain reduction over the same memory."""
    memory = stored.rows.as_strided((stored.rows.shape[0] * stored.rows.stride(0),), (1,))
    numbers = memory.view(torch.float32)
    return numbers.numel() * 4 / seconds_of(lambda: numbers.amax())


def passes(copies: int) -> None:
    records = all_records(copies)
    (stored,) = records.stored
    assert isinstance(stored, DenseOnDevice)
    size = records.n * records.d * 2
    bandwidth = read_bandwidth(stored)
    rng = np.random.default_rng(1)
    theta = torch.from_numpy(rng.integers(-(2**30), 2**30, (1, records.d)).astype(np.int32)).to(GPU)
    rho = torch.from_numpy(rng.integers(-ONE, ONE + 1, (1, records.n)).astype(np.int32)).to(GPU)
    sums = torch.zeros((1, records.d), dtype=torch.int64, device=GPU)
    print(
        f"int16 matrix {records.n} x {records.d}, {size / 1e9:.1f} GB; plain read {bandwidth / 1e12:.2f} TB/s"
    )
    for name, call in (
        ("margins", lambda: stored.margins(theta, 0, records.n)),
        ("sums", lambda: stored.add_sums(rho, 0, records.n, sums)),
    ):
        took = seconds_of(call)
        print(
            f"  {name:8} {1e3 * took:6.2f} ms  {size / took / 1e12:.2f} TB/s  "
            f"{size / took / bandwidth:.0%} of the plain read, bar 70 %"
        )


def bits(copies: int) -> None:
    rows, y = slice_of_records()
    host = Arrays(Dense(rows), y)
    device = OnDevice(host, GPU)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=FEATURES) / np.sqrt(FEATURES)
    bound = ResidualBound(ONE, ONE)
    for loss in (Logistic(), Squared(), Huber(0.5)):
        pair = [records.sum(GradientSum(loss, theta, bound)) for records in (host, device)]
        print(f"  {rows.nbytes / 1e9:.1f} GB, {loss!r}: same bits {np.array_equal(*pair)}")
        assert np.array_equal(*pair)
    whole = all_records(copies).sum(GradientSum(Logistic(), theta, bound))
    once = device.sum(GradientSum(Logistic(), theta, bound))
    print(f"  {copies} times the slice gives {copies} times its sum: {np.array_equal(whole, copies * once)}")
    few, targets = np.ascontiguousarray(rows[:20_000, :500]), rng.uniform(-1, 1, (20_000, 16))
    for outputs in (3, 16):
        host = Arrays(Dense(few), np.ascontiguousarray(targets[:, :outputs]))
        point = rng.normal(size=(500, outputs)) / 30
        pair = [r.sum(GradientSum(Squared(), point, bound)) for r in (host, OnDevice(host, GPU))]
        print(f"  {outputs} outputs: same bits {np.array_equal(*pair)}")
        assert np.array_equal(*pair)


def gradient(copies: int) -> None:
    rows, y = slice_of_records()
    records, host = all_records(copies), Arrays(Dense(rows), y)
    theta = np.random.default_rng(2).normal(size=FEATURES) / np.sqrt(FEATURES)
    bound = ResidualBound(ONE, ONE)
    took = wall_of(lambda: records.sum(GradientSum(Logistic(), theta, bound)))
    slow = wall_of(lambda: host.sum(GradientSum(Logistic(), theta, bound)))
    print(
        f"  logistic gradient of {2 * records.n * records.d / 1e9:.1f} GB, host included: {1e3 * took:.1f} ms"
    )
    print(
        f"  CPU, {len(os.sched_getaffinity(0))} cores, {rows.nbytes / 1e9:.1f} GB: {1e3 * slow:.1f} ms; "
        f"GPU {slow * copies / took:.0f}x for each record"
    )


def nuclear_problem(n: int, backend: str) -> tuple[Plan, Arrays]:
    """Targets of rank 5 behind 2000 features, and the plan of 200 steps."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (n, SIDE)) / np.sqrt(SIDE)
    truth = rng.normal(size=(SIDE, 5)) @ rng.normal(size=(5, SIDE)) / np.sqrt(5)
    y = np.clip(X @ truth + 0.1 * rng.normal(size=(n, SIDE)), -1, 1)
    bounds = Bounds(1.0, 1.0, y=1.0)
    problem = Problem(Squared(), NuclearBall(50.0, backend=backend), bounds=bounds, d=SIDE, outputs=SIDE)
    chosen = plan(problem, n, Budget(1.0, 1e-6), (NoisyGeneralFrankWolfe(n_iter=STEPS, clip=1.0),))
    return chosen, source(X, y, bounds=bounds)


def step_times(n: int, backend: str, steps: int) -> list[float]:
    """Seconds of each step of the fit after the first, which compiles."""
    chosen, host = nuclear_problem(n, backend)
    records = OnDevice(host, GPU) if backend == "torch" else host
    stamps: list[float] = []

    def progress(done: int, _: int) -> None:
        stamps.append(time.perf_counter())
        if done == steps:
            raise TimeoutError  # as many steps as were asked for are timed

    with contextlib.suppress(TimeoutError):
        execute(chosen, records, progress=progress)
    return np.diff(stamps).tolist()


def nuclear(n: int) -> None:
    began = time.perf_counter()
    fast = step_times(n, "torch", STEPS)
    print(
        f"  GPU: {len(fast)} steps of {SIDE} x {SIDE}, n = {n}: {statistics.median(fast):.3f} s each, "
        f"{sum(fast):.0f} s in all, {time.perf_counter() - began:.0f} s with data and plan"
    )
    everything = sorted(os.sched_getaffinity(0))
    for cores in sorted({min(2, len(everything)), len(everything)}):
        environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores))}
        command = [sys.executable, __file__, "--steps-on-cpu", str(n)]
        done = subprocess.run(
            ["taskset", "-c", ",".join(map(str, everything[:cores])), *command],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        slow = json.loads(done.stdout.splitlines()[-1])
        ratio = statistics.median(slow) / statistics.median(fast)
        print(
            f"  CPU, {cores} cores: {statistics.median(slow):.2f} s a step; GPU {ratio:.0f}x, bar 20x",
            flush=True,
        )


def queries(levels: int) -> None:
    universe = Universe(Schema(tuple(Attribute(f"a{i}", (0, 1), 1) for i in range(levels))))
    rng = np.random.default_rng(4)
    measured = []
    signs = np.array([[-1.0], [1.0]])
    for i in range(levels):
        measured.append(Measurement((i,), (signs,), rng.normal(0, 0.2, 1), 0.01))
        for j in range(i + 1, levels):
            measured.append(Measurement((i, j), (signs, signs), rng.normal(0, 0.1, 1), 0.01))
    attributes, factor = (1, 5, 9), rng.normal(0, 0.1, (2, 2, 2))
    times: dict[str, list[float]] = {}
    found: list[Histogram] = []
    for backend in ("torch" if GPU.type == "cuda" else "auto", "auto"):
        passes_there = passes_over(universe.shape, backend)
        fit(universe, measured[:3], passes=passes_there)
        began = time.perf_counter()
        histogram = fit(universe, measured, passes=passes_there)
        took = time.perf_counter() - began
        marginal = wall_of(lambda h=histogram: h.marginal(attributes))
        update = wall_of(lambda h=histogram: h.reweight(attributes, factor).marginal(attributes))
        times[f"{backend} {len(found)}"] = [took, marginal, update]
        found.append(histogram)
    apart = max(abs(a.marginal((0, 1)) - b.marginal((0, 1))).max() for a, b in [found])
    gpu, cpu = times.values()
    print(f"  {universe.n_cells} cells, {len(measured)} noisy means; answers agree up to {apart:.1e}")
    for name, fast, slow in zip(("warm start", "marginal", "update and marginal"), gpu, cpu, strict=True):
        print(f"  {name:20} GPU {1e3 * fast:10.2f} ms  CPU {1e3 * slow:10.2f} ms  {slow / fast:.0f}x")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="passes bits gradient nuclear queries")
    parser.add_argument("--copies", type=int, default=20, help="of the slice of 1 GB")
    parser.add_argument("--records", type=int, default=10_000, help="of the nuclear ball's problem")
    parser.add_argument(
        "--levels", type=int, default=22, help="binary attributes of the query engine's universe"
    )
    parser.add_argument("--steps-on-cpu", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps_on_cpu:
        print(json.dumps(step_times(options.steps_on_cpu, "auto", CPU_STEPS)))
        return
    name = torch.cuda.get_device_name() if GPU.type == "cuda" else "no GPU: figures are of torch on the CPU"
    print(f"{name}, torch {torch.__version__}, {os.cpu_count()} cores")
    parts: dict[str, Callable[[], None]] = {
        "bits": lambda: bits(options.copies),
        "passes": lambda: passes(options.copies),
        "gradient": lambda: gradient(options.copies),
        "nuclear": lambda: nuclear(options.records),
        "queries": lambda: queries(options.levels),
    }
    for part in options.parts or parts:
        print(part, flush=True)
        parts[part]()


if __name__ == "__main__":
    main()
