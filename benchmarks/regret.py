"""Regret of the automatic choice, and how well predictions foretell what is measured.

For each task and epsilon, the model with every default is compared with the best of an exhaustive search
over solvers and settings. The search has seeds of its own; its winner is fitted again with the seeds of the
automatic choice. Excess is held-out risk over that of one reference without privacy: logarithmic loss, or
1 - R^2; what is below 0.002 counts as 0.002. Every fit is kept in benchmarks/output/regret.jsonl, and is not
repeated: tasks can be searched one at a time, with seeds as they can be afforded, and put together by --kept.
"""

import argparse
import dataclasses
import itertools
import json
import warnings
from collections import defaultdict

import numpy as np
from scipy.stats import spearmanr

from datasets import OUTPUT, SPLITS, Task, load
from dpcvx.errors import DpcvxError
from dpcvx.planning.outlook import predicted_risk
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    ObjectivePerturbation,
    OutputPerturbation,
    SufficientStatistics,
)
from figures import save
from references import reference, trivial

EPSILONS = (0.1, 0.3, 1.0, 4.0)
FLOOR = 0.002
FIRST_SEARCH_SEED = 1000
CELLS = OUTPUT / "regret.jsonl"
# Largest slopes of a logistic loss, in units of those at theta = 0; None for no limit.
CLIPS = (None, 1.0, 1.5)
# Factors of the default number of steps and of the default step.
TRAVELS = {"travel/4": (0.5, 0.5), "travel/2": (0.5, 1.0), "travel x2": (2.0, 1.0), "travel x4": (4.0, 1.0)}


def settings(task: Task, epsilon: float):
    """Parameters of the estimator that the search tries, by their names."""
    for standardize in (False, True):
        known = {"standardize": standardize}
        suffix = ", standardised" if standardize else ""
        yield f"gradient descent{suffix}", {"solver": "gradient_descent", **known}
        default = _descent(task, epsilon, known)
        if default is not None and task.classifies:
            classes = len(task.declared["classes"])
            at_zero = 0.5 if classes == 2 else (1 - 1 / classes) ** 0.5
            for room in CLIPS:
                clip = None if room is None else room * at_zero
                name = "whole slopes" if room is None else f"slopes at {room:g}"
                yield (
                    f"gradient descent, {name}{suffix}",
                    {"solver": NoisyGradientDescent(clip=clip), **known},
                )
        if default is not None:
            for name, (steps, length) in TRAVELS.items():
                changed = dataclasses.replace(
                    default, n_iter=max(1, round(steps * default.n_iter)), step=length * default.step
                )
                yield f"gradient descent {name}{suffix}", {"solver": changed, **known}
        for kind in (NoisyMirrorDescent, NoisyAcceleratedMirrorDescent, NoisyGeneralFrankWolfe):
            yield f"{kind.__name__}{suffix}", {"solver": kind(), **known}
        for kind in (ObjectivePerturbation, OutputPerturbation):
            yield f"{kind.__name__}{suffix}", {"solver": kind(), **known}
            yield f"{kind.__name__}, radius 3{suffix}", {"solver": kind(), "radius": 3.0, **known}
        if not task.classifies:
            yield f"SufficientStatistics{suffix}", {"solver": SufficientStatistics(), **known}
        else:
            for kind in (NoisyCorrectiveFrankWolfe, NoisyFrankWolfe):
                yield f"{kind.__name__}, l1{suffix}", {"solver": kind(), "domain": "l1", **known}


def _descent(task: Task, epsilon: float, known: dict):
    """The default gradient descent, its steps and their length fixed; None where it does not fit."""
    from dpcvx.data.dataset import InMemory
    from dpcvx.estimators.linear_model import declare_fit

    estimator = task.estimator(epsilon=epsilon, solver="gradient_descent", **known)
    try:
        planned = declare_fit(estimator, InMemory(task.X, task.y), len(task.y)).plan
    except DpcvxError:
        return None
    # Standardised or not: the estimator decides by its parameter.
    return planned.solver.innermost(planned).solver


def fitted(task: Task, epsilon: float, name: str, parameters: dict, seed: int, kept: dict) -> dict | None:
    """Score, risk and prediction of one fit, taken from the file where it is there; None where none fits."""
    key = (task.name, epsilon, name, seed)
    if key not in kept:
        cell = {"task": task.name, "epsilon": epsilon, "setting": name, "seed": seed}
        try:
            model = task.estimator(epsilon=epsilon, random_state=seed, **parameters).fit(task.X, task.y)
            score, risk = task.measured(model)
            plan = model.plan_
            cell |= {"score": score, "risk": risk, "solver": type(plan.solver).__name__}
            cell |= {"predicted": sum(predicted_risk(plan))}
        except DpcvxError as refusal:
            cell |= {"refused": type(refusal).__name__}
        kept[key] = cell
        with CELLS.open("a") as file:
            file.write(json.dumps(cell) + "\n")
    return None if "refused" in kept[key] else kept[key]


def mean_excess(task: Task, cells: list[dict]) -> float:
    """Mean excess over the reference: of the logarithmic loss, or of 1 - R^2."""
    score, risk = reference(task)
    if task.classifies:
        return float(np.mean([cell["risk"] for cell in cells])) - risk
    return score - float(np.mean([cell["score"] for cell in cells]))


def compare(task: Task, epsilon: float, seeds: int, search_seeds: int, kept: dict) -> float:
    """Ratio of the automatic choice's excess to that of the search's winner, on the same seeds."""
    auto = [fitted(task, epsilon, "auto", {}, seed, kept) for seed in range(seeds)]
    found = {}
    for name, parameters in settings(task, epsilon):
        cells = [
            fitted(task, epsilon, name, parameters, FIRST_SEARCH_SEED + seed, kept)
            for seed in range(search_seeds)
        ]
        if None not in cells:
            found[name] = mean_excess(task, cells), parameters
    winner = min(found, key=lambda name: found[name][0])
    best = [fitted(task, epsilon, winner, found[winner][1], seed, kept) for seed in range(seeds)]
    ours, theirs = (max(mean_excess(task, cells), FLOOR) for cells in (auto, best))
    # The default itself is among what can be found.
    ratio = ours / min(ours, theirs)
    print(
        f"  epsilon {epsilon:<4g} automatic {ours:.4f} ({auto[0]['solver']}), best {theirs:.4f} ({winner}): "
        f"{ratio:.2f}x",
        flush=True,
    )
    return ratio


def seeds_kept(task: Task, epsilon: float, kept: dict) -> tuple[int, int]:
    """Numbers of seeds of the automatic choice and of a whole search that are in the file."""

    def count(setting: str, first: int) -> int:
        seeds = itertools.count(first)
        return next(seed for seed in seeds if (task.name, epsilon, setting, seed) not in kept) - first

    searched = [count(name, FIRST_SEARCH_SEED) for name, _ in settings(task, epsilon)]
    return count("auto", 0), min(searched)


def foretold(tasks: list[Task], epsilons: list[float], kept: dict) -> dict[str, float]:
    """Rank correlation of predicted and measured excess over all settings, and the share of bounds."""
    groups = defaultdict(list)
    for (task, epsilon, setting, _), cell in kept.items():
        if cell.get("predicted") is not None and epsilon in epsilons:
            groups[task, epsilon, setting].append(cell)
    predicted, measured, names = [], [], []
    for task in tasks:
        _, risk = reference(task)
        for (name, _, _), cells in groups.items():
            if name == task.name:
                predicted.append(np.mean([cell["predicted"] for cell in cells]))
                measured.append(np.mean([cell["risk"] for cell in cells]) - risk)
                names.append(name)
    predicted, measured, names = np.array(predicted), np.array(measured), np.array(names)
    for task in tasks:
        own = names == task.name
        print(
            f"  {task.name}: rank correlation {spearmanr(predicted[own], measured[own]).statistic:.2f}, "
            f"a bound in {np.mean(predicted[own] >= measured[own]):.0%} of {own.sum()} cases"
        )
    return {
        "rank_correlation": float(spearmanr(predicted, measured).statistic),
        "share_of_bounds": float(np.mean(predicted >= measured)),
        "cases": len(names),
    }


def cells() -> dict:
    """Return the fits that are kept, by task, epsilon, setting and seed."""
    lines = CELLS.read_text().splitlines() if CELLS.exists() else []
    kept = [json.loads(line) for line in lines]
    return {(cell["task"], cell["epsilon"], cell["setting"], cell["seed"]): cell for cell in kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--search-seeds", type=int, default=3)
    parser.add_argument(
        "--forget", nargs="*", metavar="SETTING", help="drop kept fits of these settings; all"
    )
    parser.add_argument("--kept", action="store_true", help="what is in the file already, with all its seeds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    OUTPUT.mkdir(exist_ok=True)
    kept = cells()
    if options.forget is not None:
        kept = {key: cell for key, cell in kept.items() if options.forget and key[2] not in options.forget}
        CELLS.write_text("".join(json.dumps(cell) + "\n" for cell in kept.values()))
    ratios, tasks = {}, []
    for name in options.tasks:
        task = load(name)
        tasks.append(task)
        print(f"{name}: the best constant has an excess of {trivial(task)[1] - reference(task)[1]:.3g}")
        for epsilon in options.epsilons:
            seeds, search_seeds = options.seeds, options.search_seeds
            if options.kept:
                seeds, search_seeds = seeds_kept(task, epsilon, kept)
            if seeds and search_seeds:
                ratios[name, epsilon] = compare(task, epsilon, seeds, search_seeds, kept)
    print("predictions:")
    figures = foretold(tasks, options.epsilons, kept)
    figures |= {
        "median_regret": float(np.median(list(ratios.values()))),
        "worst_regret": max(ratios.values()),
    }
    print(", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in figures.items()))
    save(
        "regret",
        {**figures, **{f"{name}_eps{epsilon:g}": value for (name, epsilon), value in ratios.items()}},
    )


if __name__ == "__main__":
    main()
