"""Meaning of the estimators' parameters and attributes, for docstrings and for the command line."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["PARAMETERS", "Parameter", "document"]


@dataclass(frozen=True)
class Parameter:
    """A parameter of estimators, said once for Python, for the command line and for the docs."""

    kind: str  # its type, for docstrings
    text: str  # what it means
    # type, or choices, of the command line's option; dict for pairs such as age=1,income=-1; None where there
    # is no option
    option: type | tuple[str, ...] | None = None
    instead: str = ""  # where the command line gets it from, where there is no option


SCHEMA_FILE = "the schema file"
PYTHON_ONLY = "Python only"
PARAMETERS = {
    "epsilon": Parameter(
        "float, required", "Privacy loss that one person may suffer; smaller is more private.", float
    ),
    "delta": Parameter(
        "float, optional", "Probability beside epsilon; by default min(1/n^2, 1e-5), n being public.", float
    ),
    "bounds": Parameter(
        'pair, pair of arrays, mapping from column to pair, or "private"',
        "Bounds (low, high) of the columns in your units, from public knowledge; required. Dense columns "
        "are centred between them and scaled to [-1, 1]; sparse ones are scaled only, and their bounds "
        'must contain 0. ``"private"`` spends 15 % of the budget (up to half if records are few) on two '
        "noisy quantiles of each dense column, and new rows are clipped to what came out.",
        instead=SCHEMA_FILE,
    ),
    "data_norm": Parameter(
        "float, optional",
        "Bound on the l2 norm of a row in your units, without intercept, enforced by shrinking rows. "
        "Columns are then clipped to their bounds and share the scale 1/data_norm, without centring.",
        float,
    ),
    "y_bounds": Parameter(
        'pair, or "private"',
        "Bounds (low, high) of the target in your units, enforced by clipping; required. For several targets "
        'one pair for all, or a pair of arrays. ``"private"`` releases them as it does those of columns.',
        instead=SCHEMA_FILE,
    ),
    "classes": Parameter(
        'sequence of labels, or "from_y"',
        "The labels that may occur; required. A row with another label, or none, is left out of the fit. "
        '``"from_y"`` takes them from y and states that the set of labels is public.',
        instead=SCHEMA_FILE,
    ),
    "class_weight": Parameter(
        "mapping from label to weight, optional",
        "Weights of the classes, from public knowledge, for instance 1/share. Scores are shifted by the "
        "logarithms of the weights after the fit, which costs nothing. If the logistic model is correctly "
        "specified, weighting the loss would have the same effect, but needs noise for the largest weight.",
        instead=PYTHON_ONLY,
    ),
    "categories": Parameter(
        "mapping from column to levels, optional",
        "Declared levels of columns that hold no numbers. Each level has a coefficient, except the first of "
        "a column, the baseline that others are compared with, if there is an intercept; a cell that is no "
        "level takes shares of all levels. Columns are named for data frames, numbered for arrays.",
        instead=SCHEMA_FILE,
    ),
    "maps": Parameter(
        'mapping from column to map, one map for all columns of numbers, "auto", "none" or None',
        'Maps from the numbers of a column to features. "auto" spends 5 % of the budget on noisy histograms '
        "of the columns, in standardised fits where they are precise enough, and maps columns with long "
        'tails, or with bounds that are far too wide; "none" or None maps no column. Declared maps are '
        "``SignedLog``, ``QuantileMap``, ``Ramps``, or their names; the numbers of ``PrivateQuantiles`` and "
        "``PrivateRamps`` are released by the fit, for 10 % of the budget.",
        ("auto", "none"),
    ),
    "schema": Parameter(
        "TableSchema, optional",
        "Declaration of a table's columns, in place of ``bounds`` and ``categories``: numbers, levels, "
        "dates, hashed text, columns to leave out, and perhaps the target. It may name more columns than the "
        "table has.",
        instead=SCHEMA_FILE,
    ),
    "public": Parameter(
        "array-like, SciPy sparse matrix or data frame, or a pair of such rows and their targets, optional",
        "Rows that may be published, with the columns of X; others are left out. They weight the columns of "
        "a fit with ``data_norm`` in an l2 ball, before rows are shrunk; 1 % of the budget shows whether "
        "they mislead. In a standardised fit a score fitted to public rows and their targets is one more "
        "feature. In a regression with too few records to standardise they narrow the ranges of numbers, if "
        "a noisy count, for at most 5 % of the budget, finds the private rows near them. The guarantee does "
        "not depend on public rows. Never give rows of people who are in X: nothing protects public rows.",
        instead="--public",
    ),
    "fit_intercept": Parameter(
        "bool",
        "Add a constant feature in scaled units, inside the norm of a row and inside the set. Without it the "
        "model passes through 0 in scaled units, which centring moves in yours.",
        bool,
    ),
    "domain": Parameter('"l2", "l1" or Domain', "Set of the parameter in scaled units.", ("l2", "l1")),
    "radius": Parameter(
        "float, optional",
        "Size of the set in scaled units, intercept included; by default the planner's public rule.",
        float,
    ),
    "l2": Parameter(
        "float",
        "Ridge on the mean objective in scaled units, intercept included. The elastic net has a public rule "
        "where none is given.",
        float,
    ),
    "standardize": Parameter(
        '"auto" or bool',
        "Spend 13 % of the budget on noisy means and standard deviations of the features, and in regressions "
        "5 to 40 %, by n and epsilon, on centre and scale of the target. Fit in standardised coordinates, "
        "where ``radius`` and ``l2`` then hold; new rows "
        'are clipped to the region that the fit used. "auto" does so for dense records in an l2 ball without '
        "a stated size, if the noise on the means is small.",
        ("auto", "true", "false"),
    ),
    "extrapolation": Parameter(
        '"clip" or "linear"',
        'Predictions for new rows outside the region of a standardised fit, or beyond private bounds: "clip" '
        'moves such rows to the edge, as the fit did with its records; "linear" is ``X @ coef_ + '
        "intercept_`` for every row. It may be changed after the fit, by "
        '``set_params(extrapolation="linear")``.',
        ("clip", "linear"),
    ),
    "uncertainty": Parameter(
        'float or "auto"',
        "Share of the budget, below 1, for the Hessian that standard errors and intervals need; 0 for none. "
        '``"auto"`` or True takes the share with the smallest standard errors in a simulation from public '
        "numbers, which takes a few seconds.",
        str,
    ),
    "check": Parameter(
        "float",
        "Share of the budget (of mu^2, twice rho) for noisy counts of recognised cells in every column, "
        "level and target; they show a wrong column, a misspelt level or labels of another coding, see "
        "``check_``. 0 for none. No check is made, and the plan says so, if the standard deviation of a "
        "count would be a twentieth of the records or more, or if delta is 0.",
        float,
    ),
    "threshold": Parameter(
        "float, optional",
        "Residual in y's units beyond which Huber's loss is linear; by default 1.345 standard deviations of "
        "the target where the fit measures these, else a tenth of the width of ``y_bounds``.",
        float,
    ),
    "quantile": Parameter("float", "Quantile that quantile regression models, in (0, 1).", float),
    "exposure": Parameter(
        "str, optional",
        "Column of X with the exposure of each record, which is never a feature: the time, area or number of "
        "people in which y was counted. Means are proportional to it. By default all records have the same.",
        str,
    ),
    "max_exposure": Parameter(
        "float, optional",
        "Largest exposure that is possible, from public knowledge; a larger one counts as this.",
        float,
    ),
    "periods": Parameter(
        "sequence of float, or text",
        "Public edges of the periods that hazards are modelled of, three or more that increase, such as "
        "0,12,24,36; a period includes its end. Few are better: all periods of a record share its weight.",
        str,
    ),
    "event": Parameter(
        "str",
        "Column of X that says whether the event came at the time y (a number above 0, or True), or whether "
        "the record was only observed until then. It is never a feature.",
        str,
    ),
    "groups": Parameter(
        "mapping from name to columns, list of lists of columns, or one label per column, optional",
        "Columns of X that belong together, by name or position. A column that is in none is a group of its "
        "own, so that None makes a group of each column, with all of its levels.",
        instead=SCHEMA_FILE,
    ),
    "set_function": Parameter(
        "SetFunction, optional",
        "Price of a set of features, the levels of a category counted one by one, the intercept not "
        "counted. None charges 1 for each column of X, however many of its levels are used: without "
        "categories that is the l1 ball of `PrivateLasso`.",
        instead=PYTHON_ONLY,
    ),
    "knots": Parameter(
        '"auto", or int',
        "Knots of each number's shape: 0 for straight lines, or an odd number from 3 on. They are evenly "
        "spaced from two released standard deviations below the released mean to two above. By default 0, "
        "3, 5 or 9, from the number of records and columns, epsilon and delta.",
        int,
    ),
    "interactions": Parameter(
        '"auto", "all", "none", int, or list of pairs of columns',
        "Products of two standardised columns that are features beside the shapes. A number: so many pairs, "
        "which the fit selects privately for a twentieth of its budget. By default all pairs where records "
        "are many and columns few, twelve selected ones where columns are many, by public numbers, and none "
        "elsewhere.",
        ("auto", "all", "none"),
    ),
    "selected_columns": Parameter(
        "int, optional",
        "Number of columns of numbers that the fit selects privately, for 5 % of the budget; the others "
        "have no effect. Use it if you know, without the data, that few of many columns matter. None keeps "
        "all columns.",
        int,
    ),
    "monotone": Parameter(
        "mapping from column to 1 or -1, optional",
        "Columns of numbers whose shape must not fall (1), or not rise (-1): their coefficients are kept "
        "to a set of one sign. Such a column is in no interaction.",
        dict,
    ),
    "bounded": Parameter(
        "mapping from column to float, optional",
        "Columns of numbers between whose cells the score differs by so much at most: log-odds of a "
        "classifier, units of the target of a regressor. Their coefficients are kept to the convex set of "
        "such shapes. Such a column is in no interaction.",
        dict,
    ),
    "solver": Parameter(
        "str or Solver",
        'Algorithm by name, such as ``"gradient_descent"``, or as an object; ``"auto"`` takes the one with '
        "the smallest predicted excess risk. The message about an unknown name lists all.",
        str,
    ),
    "n_iter": Parameter(
        "int, optional", "Number of private answers; by default chosen from public facts.", int
    ),
    "person": Parameter(
        "str, optional",
        "Column of X with the id of each row's person, which is never a feature. All rows of a "
        "person are then protected together; they share the weight of one row, and their number is private. "
        "``fit(X, y, groups=ids)`` is the same for ids beside X. By default one row is one person.",
        str,
    ),
    "persons": Parameter(
        "int, optional",
        "Number of persons, if it is known beforehand; by default the number of different ids, which is "
        "then public.",
        int,
    ),
    "max_rows": Parameter(
        "int, optional",
        "Largest number of rows used of each person, each with the weight of a row; the noise grows in "
        "proportion. By default all rows of a person share the weight of one row.",
        int,
    ),
    "weight_bounds": Parameter(
        "pair (0, V), optional",
        "Bounds of ``sample_weight``, from public knowledge. The noise covers a row of weight V, "
        "however small most weights are: the smaller V, the better.",
        instead=PYTHON_ONLY,
    ),
    "ledger": Parameter(
        "Ledger, path or URL, optional",
        "Where the fit is charged, durably, before anything is computed from the records; given together "
        "with ``account``. Without one nothing is charged, and the statement says so.",
        str,
    ),
    "account": Parameter(
        "str, optional", "Name of the ledger's account that pays; by default nothing is charged.", str
    ),
    "random_state": Parameter(
        "None, int, RandomState or Generator",
        "Seed of the noise, for tests: the statement is stamped NOT PRIVATE. None, the default, draws noise "
        "cryptographically.",
        int,
    ),
    "backend": Parameter(
        "str",
        'Where sums are computed: "auto" in this process, "torch" on a GPU, "dask" on a cluster. The '
        "released numbers do not depend on it.",
        ("auto", "torch"),
    ),
    "verbose": Parameter(
        "int",
        "1 shows progress on the error stream: the current step and the number of private answers so far.",
        instead="shown unless --quiet",
    ),
}
ATTRIBUTES = {
    "coef_": (
        "ndarray of shape (d,) or (K, d)",
        "Coefficients of the features in your units; two classes have one row. The features of a mapped "
        "column are those of its map.",
    ),
    "intercept_": ("float or ndarray of shape (K,)", "Intercept in your units."),
    "classes_": ("ndarray", "Labels; with two, a positive score stands for the second."),
    "coef_names_": (
        "ndarray of str",
        'Names of the coefficients: "column", "column[map]" or "column=level".',
    ),
    "n_features_in_": ("int", "Number of columns of X."),
    "feature_names_in_": ("ndarray of str", "Column names of X, where it had any."),
    "formula_": ("Formula", "The computation of ``predict``: ``print`` it, or ``to_json()``."),
    "n_iter_": ("int", "Private answers used; fixed by the plan."),
    "check_": ("DataCheck or None", "Noisy counts of recognised cells, as a table: ``print`` it."),
    "plan_": ("Plan", "Everything that was fixed in advance, from public facts."),
    "release_": ("Release", "The released parameter in scaled units, and its plan."),
    "privacy_statement_": ("PrivacyStatement", "Privacy statement: ``print`` it, or ``to_json()``."),
}

Class = TypeVar("Class", bound=type)


def document(cls: Class) -> Class:
    """Append the sections Parameters and Attributes to a class's docstring, by its signature."""
    if cls.__doc__ is not None:
        names = list(inspect.signature(cls).parameters)
        entries = {name: (PARAMETERS[name].kind, PARAMETERS[name].text) for name in names}
        attributes = [name for name in ATTRIBUTES if name != "classes_" or "classes" in names]
        cls.__doc__ = "\n".join(
            [
                inspect.cleandoc(cls.__doc__),
                "",
                *_section("Parameters", entries),
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
