"""Test scores of private models with every default, beside the model without privacy and AdaSSP.

Given are epsilon, delta = 1/n^2 and what declared_bounds.json holds: bounds, norms of rows, classes. Scores
are accuracy or R^2, means over seeds with their standard errors; they go to docs/figures/accuracy.json after
each epsilon, with the number of seeds.
"""

import argparse
import time
import warnings

import numpy as np

from datasets import SPLITS, Task, load
from figures import update
from references import adassp, reference


def summary(scores: list[float]) -> tuple[float, float]:
    """Mean and standard error."""
    return float(np.mean(scores)), float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if scores[1:] else 0.0


def measure(task: Task, epsilon: float, seeds: int, settings: dict) -> dict[str, float]:
    """Fit with each seed, print a line, return the figures."""
    began, scores = time.perf_counter(), []
    for seed in range(seeds):
        model = task.estimator(epsilon=epsilon, random_state=seed, **settings).fit(task.X, task.y)
        scores.append(task.measured(model)[0])
    seconds = (time.perf_counter() - began) / seeds
    mean, error = summary(scores)
    figures = {"": mean, "_error": error, "_seeds": seeds}
    line = f"  epsilon {epsilon:<4g} {mean:.4f} +- {error:.4f}   ({seeds} seeds, {seconds:.1f} s each"
    if not task.classifies:
        peer, spread = summary([task.measured(adassp(task, epsilon, seed))[0] for seed in range(seeds)])
        figures |= {"_adassp": peer, "_adassp_error": spread}
        line += f", AdaSSP {peer:.4f} +- {spread:.4f}"
    plan = model.plan_
    print(f"{line}; {type(plan.solver).__name__}, {plan.n_calls} answers)", flush=True)
    return {f"{task.name}_eps{epsilon:g}{kind}": value for kind, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 4.0])
    parser.add_argument("--set", nargs="*", default=[], help="parameters of the estimator, as name=value")
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    settings = dict(pair.split("=") for pair in options.set)
    settings = {name: _value(text) for name, text in settings.items()}
    warnings.simplefilter("ignore")
    for name in options.tasks:
        task = load(name)
        print(f"{name}: n = {len(task.y)}, d = {task.X.shape[1]}, {len(task.y_test)} to test on", flush=True)
        score, _ = reference(task)
        print(f"  without privacy {score:.4f}", flush=True)
        for epsilon in options.epsilons:
            figures = measure(task, epsilon, options.seeds, settings)
            if not options.dry and not settings:
                update("accuracy", {f"{name}_plain": score, **figures})


def _value(text: str):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False, "None": None}.get(text, text)


if __name__ == "__main__":
    main()
