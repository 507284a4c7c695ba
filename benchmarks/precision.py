"""Expected standard errors by share of the budget for uncertainty, over those of a fit without privacy.

Each cell is the geometric mean over the coefficients of `model.power`; a star: noise hid a direction.
No data are read. The last column is the share that uncertainty="auto" takes.
"""

import argparse
import warnings

import dpcvx as dp

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
CELLS = [  # (records, features, epsilon)
    (5_000, 3, 4.0),
    (20_000, 3, 1.0),
    (20_000, 10, 1.0),
    (20_000, 10, 4.0),
    (100_000, 10, 1.0),
    (100_000, 30, 2.0),
    (1_000_000, 10, 1.0),
]


def model(kind, epsilon, share):
    settings = {"epsilon": epsilon, "bounds": (-3, 3), "uncertainty": share, "check": 0}
    if kind == "linear":
        return dp.PrivateLinearRegression(y_bounds=(-3, 3), **settings)
    return dp.PrivateLogisticRegression(classes=(0, 1), **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["linear", "logistic"])
    parser.add_argument("--cells", type=int, nargs="+", help="numbers of cells; all by default")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("model     n  d  epsilon ", *(f"{share:6g}" for share in SHARES), " auto")
    for kind in options.kinds:
        for n, d, epsilon in (CELLS[j] for j in options.cells or range(len(CELLS))):
            found = [model(kind, epsilon, share).power(n, d) for share in SHARES]
            cells = [
                f"{each.typical_error / each.typical_sampling:5.2f}{'*' if each.hidden.any() else ' '}"
                for each in found
            ]
            chosen = dict(model(kind, epsilon, "auto").power(n, d).facts)["uncertainty"]
            print(kind, n, d, epsilon, *cells, chosen, flush=True)


if __name__ == "__main__":
    main()
