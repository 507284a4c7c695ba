"""Processor time until dpcvx is as accurate as a peer at its best: logistic regression, epsilon 1, p = 20.

    python benchmarks/time_to_accuracy.py

The problem is the task `growth` of the leaderboard, and each peer runs in its environment there. The
accuracy of a peer is that of its best setting on the records to test on, and its time is that of this
setting. dpcvx reaches it if its mean AUC is lower by at most one standard error of the peer. Times are
medians over the seeds of fits in one process; the first fit of a process, which imports and compiles, is
left out. DP-SGD keeps its noise multiplier from that fit; dpcvx plans each fit anew.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from leaderboard.objective import score
from leaderboard.runner import Processes, parts

OURS = "dpcvx_default"
PEERS = ("diffprivlib", "dp_sgd")
STEPS = (None, 80, 40, 20, 10, 5)  # n_iter of dpcvx; None is the default


def measure(process, problems, files, setting):
    """Scores of all seeds and the median processor time of a setting."""
    out, scores, times = str(Path(files[0]).with_name("predictions.npy")), [], []
    for seed, (problem, file) in enumerate(zip(problems, files, strict=True)):
        request = {"problem": file, "epsilon": 1.0, "seed": seed, "setting": setting, "out": out}
        if seed == 0:
            process.ask(request)
        answer = process.ask(request)
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        scores.append(score(problem, np.load(out)))
        times.append(answer["processor"])
    return np.array(scores), statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 200_000])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    solvers, task = parts("solvers"), parts("datasets")["growth"]
    with Processes(solvers) as processes, tempfile.TemporaryDirectory() as folder:
        for n in options.records:
            problems = [task.get_data(seed, n=n, p=20) for seed in range(options.seeds)]
            files = [str(Path(folder) / f"{n}-{seed}.npz") for seed in range(options.seeds)]
            for problem, file in zip(problems, files, strict=True):
                problem.save(file)
            ours = []
            for steps in STEPS:
                scores, seconds = measure(
                    processes[OURS], problems, files, {} if steps is None else {"n_iter": steps}
                )
                ours.append((seconds, float(scores.mean()), steps or "default"))
                print(f"n = {n:,}  dpcvx n_iter {steps or 'default'}: {scores.mean():.4f}  {seconds:.3f} s")
            for peer in PEERS:
                found = [
                    (*measure(processes[peer], problems, files, setting), setting)
                    for setting in solvers[peer].settings(1.0, task.kind)
                ]
                scores, seconds, setting = max(found, key=lambda each: each[0].mean())
                error = float(scores.std(ddof=1) / np.sqrt(len(scores)))
                print(f"n = {n:,}  {peer} {setting}: {scores.mean():.4f} ± {error:.4f}  {seconds:.3f} s")
                reached = [each for each in ours if each[1] >= scores.mean() - error]
                if reached:
                    best = min(reached)
                    print(f"    dpcvx n_iter {best[2]}: {best[0]:.3f} s, {seconds / best[0]:.2f}x (aim 5x)")
                else:
                    print("    not reached by dpcvx")


if __name__ == "__main__":
    main()
