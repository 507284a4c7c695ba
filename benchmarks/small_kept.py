"""Share of the gain without privacy that private fits to small tables keep, and the share that plans predict.

Default linear and logistic regressions are fitted to the tables of the development list of `tables.py` with
1,000 to 3,000 records to fit. The gain is R^2, or AUC above 1/2, on new records; tables are left out if
a model without privacy gains less than 0.05. The lost share is 1 - (private gain)/(gain without privacy), of
R^2 or of the decrease of log-loss below that of a constant. The predicted lost share is the excess risk of
the plan over that of a constant. `docs/how_much_epsilon.md` shows the shares that are kept. Printed are the
lost shares by n times epsilon and, for regressions with n times epsilon below 1,000, the ratio of measured to
predicted ones.
"""

import argparse
import json
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpcvx import PrivateLinearRegression, PrivateLogisticRegression
from dpcvx.planning.outlook import predicted_risk, trivial_risk
from figures import replace_cell
from tables import DEVELOPMENT, TableTask, load, questions

EPSILONS = (0.1, 0.3, 1.0, 4.0)
LEAST, MOST = 1000, 3000  # records to fit
LEAST_GAIN = 0.05
EDGES = (0, 1e3, 3e3, 1e4, np.inf)  # of n times epsilon


def gains(task: TableTask, score: np.ndarray) -> tuple[float, float]:
    """R^2 twice, or AUC above 1/2 and the decrease of log-loss, against the mean of the fitted records."""
    if not task.classifies:
        worst = np.mean((task.y_test - task.y.mean()) ** 2)
        r2 = 1 - float(np.mean((task.y_test - score) ** 2) / worst)
        return r2, r2
    share = task.y.mean()
    constant, own = (
        float(np.mean(np.logaddexp(0, z) - task.y_test * z)) for z in (np.log(share / (1 - share)), score)
    )
    return float(roc_auc_score(task.y_test, score)) - 0.5, constant - own


def plain(task: TableTask) -> tuple[float, float]:
    """Gains of the model without privacy, on standardised columns."""
    both = pd.concat([task.X, task.X_test])
    features = pd.get_dummies(both, columns=list(task.declared["categories"] or ()), drop_first=True)
    rows = features.to_numpy(dtype=np.float64)
    model = LogisticRegression(max_iter=2000) if task.classifies else LinearRegression()
    fitted = make_pipeline(StandardScaler(), model).fit(rows[: len(task.X)], task.y)
    new = rows[len(task.X) :]
    return gains(task, fitted.decision_function(new) if task.classifies else fitted.predict(new))


def private(task: TableTask, epsilon: float, seed: int) -> dict[str, float]:
    """Gains of a default fit, and the share that its plan predicts to be lost."""
    kind = PrivateLogisticRegression if task.classifies else PrivateLinearRegression
    model = kind(epsilon=epsilon, delta=task.delta, random_state=seed, **task.declared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.X, task.y)
    score = model.decision_function(task.X_test) if task.classifies else model.predict(task.X_test)
    gain, risk = gains(task, score)
    constant = model.plan_.solver.innermost(model.plan_).solver.constant
    predicted = 1.0 if constant else sum(predicted_risk(model.plan_)) / trivial_risk(model.plan_)
    return {"gain": gain, "risk": risk, "predicted": predicted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    cells: dict[str, dict] = {}
    for question in questions(DEVELOPMENT):
        tasks = [load(question, seed) for seed in range(options.seeds)]
        if not LEAST <= len(tasks[0].y) <= MOST:
            continue
        gain, risk = np.mean([plain(task) for task in tasks], axis=0)
        cell = {"n": len(tasks[0].y), "classifies": int(tasks[0].classifies)}
        cell |= {"plain": float(gain), "plain_risk": float(risk)}
        for epsilon in EPSILONS:
            found = [private(task, epsilon, seed) for seed, task in enumerate(tasks)]
            cell[str(epsilon)] = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
        cells[tasks[0].name] = cell
        print(tasks[0].name, json.dumps(cell), flush=True)
    useful = [cell for cell in cells.values() if cell["plain"] >= LEAST_GAIN]
    for low, high in pairwise(EDGES):
        lost = np.array(
            [
                (cell[str(e)]["predicted"], 1 - cell[str(e)]["risk"] / cell["plain_risk"])
                for cell in useful
                for e in EPSILONS
                if low <= cell["n"] * e < high
            ]
        )
        if not len(lost):
            continue
        print(f"n epsilon {low:g} to {high:g}: {len(lost)} cells, predicted and measured losses by quartile")
        print(np.quantile(lost, (0.25, 0.5, 0.75), axis=0).round(3).tolist())
    ratios = [
        (1 - cell[str(e)]["risk"] / cell["plain_risk"]) / cell[str(e)]["predicted"]
        for cell in useful
        for e in EPSILONS
        if not cell["classifies"] and cell["n"] * e < EDGES[1]
    ]
    print(
        f"{len(ratios)} regressions below {EDGES[1]:g}: measured over predicted loss {np.median(ratios):.2f}"
    )
    if not options.dry:
        for name, cell in cells.items():
            numbers = {key: value for key, value in cell.items() if not isinstance(value, dict)}
            for epsilon in EPSILONS:
                numbers |= {f"{epsilon:g} {key}": value for key, value in cell[str(epsilon)].items()}
            replace_cell("small_kept", name, numbers)


if __name__ == "__main__":
    main()
