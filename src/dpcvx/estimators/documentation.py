"""What the estimators' parameters and attributes mean, said once and put into every docstring."""

from __future__ import annotations

import inspect
import textwrap
from typing import TypeVar

__all__ = ["documented"]

PARAMETERS = {
    "epsilon": ("float", "Privacy loss that one person may suffer; required."),
    "delta": ("float, optional", "Probability beside epsilon; by default min(1/n^2, 1e-5), n being public."),
    "bounds": (
        'pair, pair of arrays, mapping from column to pair, or "private"',
        "Bounds (low, high) of the columns in your units, from public knowledge; required. Dense columns "
        "are centred between them and scaled to [-1, 1]; sparse ones are scaled only, and their bounds "
        'must contain 0. ``"private"`` spends 15 % of the budget on two noisy quantiles of each dense '
        "column, and new rows are clipped to what came out.",
    ),
    "data_norm": (
        "float, optional",
        "Bound on the l2 norm of a row in your units, without intercept, enforced by shrinking rows. "
        "Columns are then clipped to their bounds and share the scale 1/data_norm, without centring.",
    ),
    "y_bounds": (
        'pair, or "private"',
        "Bounds (low, high) of the target in your units, enforced by clipping; required. For several targets "
        'one pair for all, or a pair of arrays. ``"private"`` releases them as it does those of columns.',
    ),
    "classes": (
        'sequence of labels, or "from_y"',
        "The labels that may occur; required. A row with another label, or none, has no part in the fit. "
        '``"from_y"`` takes them from y and states that the set of labels is public.',
    ),
    "categories": (
        "mapping from column to levels, optional",
        "Declared levels of columns that hold no numbers; each level becomes a 0/1 feature, an undeclared "
        "one is 0 in all of them. Columns are named for data frames, numbered for arrays.",
    ),
    "fit_intercept": (
        "bool",
        "Add a constant feature in scaled units, inside the norm of a row and inside the set. Without it the "
        "model passes through 0 in scaled units, which centring moves in yours.",
    ),
    "domain": (
        '"l2", "l1" or Domain',
        "Set of the parameter in scaled units.",
    ),
    "radius": (
        "float, optional",
        "Size of the set in scaled units, intercept included; by default the planner's public rule.",
    ),
    "l2": (
        "float",
        "Ridge on the mean objective in scaled units, intercept included; None, for the elastic net alone, "
        "is its public rule.",
    ),
    "standardize": (
        '"auto" or bool',
        "Spend 13 % of the budget (with a target 18 %) on noisy means and deviations and fit in standardised "
        "coordinates, where "
        '``radius`` and ``l2`` then hold; new rows are brought into the region that the fit saw. "auto" does '
        "so for dense records in an l2 ball of no stated size, if the means' noise is small.",
    ),
    "uncertainty": (
        "float",
        "Share of the budget, below 1, for the Hessian that standard errors and intervals need; 0 for none.",
    ),
    "threshold": (
        "float, optional",
        "Residual in y's units beyond which the loss is linear; by default a tenth of the width of "
        "``y_bounds``.",
    ),
    "quantile": ("float", "Quantile to model, in (0, 1)."),
    "groups": (
        "mapping from name to columns, list of lists of columns, or one label per column, optional",
        "Columns of X that belong together, by name or position. A column that is in none is a group of its "
        "own, so that None makes a group of each column, with all of its levels.",
    ),
    "set_function": (
        "SetFunction, optional",
        "Price of a set of features, the levels of a category counted one by one, the intercept not "
        "counted. None charges 1 for each column of X, however many of its levels are used: without "
        "categories that is the l1 ball of `PrivateLasso`.",
    ),
    "solver": (
        "str or Solver",
        'Algorithm: ``"auto"`` takes the one with the smallest predicted excess risk; a name such as '
        '``"gradient_descent"`` or ``"corrective_frank_wolfe"``, or an object, decides it.',
    ),
    "n_iter": ("int, optional", "Number of private answers; by default chosen from public facts."),
    "ledger": (
        "Ledger, path or URL, optional",
        "Where the fit is charged, durably, before a record is read. Without one nothing is charged, and the "
        "statement says so.",
    ),
    "account": ("str, optional", "Name of the account that pays; given together with ``ledger``."),
    "random_state": (
        "None, int, RandomState or Generator",
        "None draws noise cryptographically. Anything else is for tests: the statement is stamped NOT "
        "PRIVATE.",
    ),
    "backend": (
        "str",
        'Where sums are computed, a name of ``dpcvx.data.dataset.BACKENDS``; "auto" is in this process. No '
        "answer depends on it.",
    ),
    "verbose": ("int", "1 shows a bar of the private answers so far."),
}
ATTRIBUTES = {
    "coef_": ("ndarray of shape (d,) or (K, d)", "Coefficients in your units; two classes have one row."),
    "intercept_": ("float or ndarray of shape (K,)", "Intercept in your units."),
    "classes_": ("ndarray", "Labels; with two, a positive score stands for the second."),
    "coef_names_": ("ndarray of str", 'Names of the coefficients: a column\'s, or "column=level".'),
    "n_features_in_": ("int", "Number of columns of X."),
    "feature_names_in_": ("ndarray of str", "Column names of X, where it had any."),
    "n_iter_": ("int", "Private answers used; fixed by the plan."),
    "plan_": ("Plan", "Everything that was fixed before a record was read."),
    "release_": ("Release", "The released parameter in scaled units, and its plan."),
    "privacy_statement_": ("PrivacyStatement", "What was promised: ``print`` it, or ``to_json()``."),
}

Class = TypeVar("Class", bound=type)


def documented(cls: Class) -> Class:
    """Append the sections Parameters and Attributes to a class's docstring, by its signature."""
    if cls.__doc__ is not None:
        names = list(inspect.signature(cls).parameters)
        attributes = [name for name in ATTRIBUTES if name != "classes_" or "classes" in names]
        cls.__doc__ = "\n".join(
            [
                inspect.cleandoc(cls.__doc__),
                "",
                *_section("Parameters", {name: PARAMETERS[name] for name in names}),
                "",
                *_section("Attributes", {name: ATTRIBUTES[name] for name in attributes}),
                "",
            ]
        )
    return cls


def _section(title: str, entries: dict[str, tuple[str, str]]) -> list[str]:
    lines = [title, "-" * len(title)]
    for name, (kind, text) in entries.items():
        lines += [
            f"{name} : {kind}",
            *textwrap.wrap(text, 106, initial_indent="    ", subsequent_indent="    "),
        ]
    return lines
