"""Every tuned number of a default: its value, the reason, and the benchmark that measured it.

A number is here if another value would be as right as far as proofs go. Constants of mathematics, of proofs
of privacy, of storage formats and of numerical methods stay beside the code that uses them. The file is in
the lowest room with such numbers; planning, estimators and tuning lie above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULTS", "Default", "default", "defaults_table"]


@dataclass(frozen=True)
class Default:
    """A number that was chosen."""

    name: str  # module and constant that hold it, below `dpcvx`
    value: Any  # float or tuple of float
    why: str
    # benchmark that runs with it, so that its figures show the effect of another value; or "not measured",
    # with the reason for this one
    measured_by: str
    # whether predicted risks of usual plans depend on it; a test halves and doubles those that do
    predicts: bool = True


# fmt: off
_LISTED = (
    Default("solvers.typical_data.CLASSIFICATION_VARIANCE", 4.0,
            "variance of a useful classifier's scores, which are log-odds", "benchmarks/accuracy.py"),
    Default("solvers.typical_data.REGRESSION_VARIANCE", 0.08,
            "variance of a useful regression's scores: it explains half of a target whose standard "
            "deviation is 0.4 of the largest residual", "benchmarks/accuracy.py"),
    Default("solvers.typical_data.DECAYS", (1.0, 2.0),
            "powers of the rank with which eigenvalues of typical data fall, taken as equally likely",
            "not measured: usual spectra lie between them", predicts=False),
    Default("solvers.typical_data.GROWTH", 0.125,
            "power of 1/eigenvalue with which squared coefficients grow: 0 is equally large, 1 equally "
            "useful; the eighth root was the best of those tried", "benchmarks/accuracy.py"),
    Default("solvers.typical_data.DIRECTIONS", 128,
            "eigenvalues that are told apart; more are taken together in groups",
            "not measured: a numerical resolution", predicts=False),
    Default("solvers.gradient_descent.MOST_MOMENTUM", 0.99,
            "up to a hundred times fewer steps",
            "not measured: more needs runs of over 2,000 steps to settle", predicts=False),
    Default("solvers.gradient_descent.SETTLED", 20.0,
            "the transient of momentum decays like e^(-(1 - momentum) T/2): nothing is left with this (1 - "
            "momentum) T", "benchmarks/rates.py", predicts=False),
    Default("solvers.gradient_descent.HASTE", 0.9,
            "momentum of a run whose few steps are given, if the path is long",
            "not measured: ten times the path, and settled after 200 steps", predicts=False),
    Default("solvers.gradient_descent.LATE", 3,
            "one in so many iterates, the last ones, is averaged", "benchmarks/accuracy.py"),
    Default("solvers.gradient_descent.MOST_STEPS", 10_000,
            "more steps by default would seldom be worth the time", "benchmarks/dense.py", predicts=False),
    Default("solvers.gradient_descent.NOISE_SHARE", 0.1,
            "of the loss at theta = 0: a model whose noise costs more is hardly worth having",
            "not measured: where it binds, little is learnt anyway"),
    Default("solvers.mirror_descent.MOST_STEPS", 1000,
            "passes over the records that a default may cost; beyond it n_iter must be given",
            "benchmarks/rates.py"),
    Default("solvers.accelerated_mirror_descent.MOST_STEPS", 1000,
            "passes over the records that a default may cost; beyond it n_iter must be given",
            "benchmarks/rates.py", predicts=False),
    Default("solvers.strongly_convex_mirror_descent.MOST_STEPS", 1000,
            "passes over the records that a default may cost; beyond it n_iter must be given",
            "benchmarks/rates.py"),
    Default("solvers.frank_wolfe.MOST_STEPS", 10_000,
            "passes over the records that a default may cost; beyond it n_iter must be given",
            "benchmarks/lasso_rates.py", predicts=False),
    Default("solvers.general_frank_wolfe.MOST_STEPS", 10_000,
            "passes over the records that a default may cost; beyond it n_iter must be given",
            "benchmarks/rates.py", predicts=False),
    Default("solvers.corrective_frank_wolfe.MOST_SELECTIONS", 1000,
            "selections that a default may cost; beyond it selections must be given",
            "benchmarks/corrective.py", predicts=False),
    Default("solvers.corrective_frank_wolfe.MOST_STEPS", 1000,
            "steps of the refit that a default may cost", "benchmarks/corrective.py", predicts=False),
    Default("solvers.dual_frank_wolfe.MOST_STEPS", 1000,
            "minimisations that a default may cost; beyond it n_iter must be given",
            "benchmarks/rates.py", predicts=False),
    Default("solvers.sufficient_statistics.MOMENT_SHARE", 0.5,
            "of mu^2 for the second moments; the bound is least for 0.53 to 0.61 and flat there",
            "not measured: derived in the class's docstring"),
    Default("solvers.sufficient_statistics.FAILURE", 0.05,
            "chance that the noise of X^T X is larger than the ridge covers, as in [Wang18] Algorithm 2",
            "not measured: the paper's"),
    Default("solvers.sufficient_statistics.LEAST_CURVATURE", 1e-6,
            "of the largest curvature that rows can have: a smaller one is noise",
            "not measured: it only keeps equations solvable", predicts=False),
    Default("solvers.svrg.SHARES", (0.5, 0.75, 0.9),
            "of the budget for full gradients, among which the bound chooses",
            "benchmarks/svrg.py", predicts=False),
    Default("solvers.svrg.TYPICAL_DIFFERENCE", 0.1,
            "of the largest gradient: variance reduction pays from there on (PRIVACY_MATH §6)",
            "benchmarks/svrg.py"),
    Default("solvers.svrg.MOST_EPOCHS", 8,
            "epochs that a default may have", "benchmarks/svrg.py"),
    Default("solvers.svrg.EPOCH_GAIN", 3.0,
            "logarithm of what as many steps as the condition number take off the excess; measured 2.4 to "
            "3.3", "benchmarks/svrg.py"),
    Default("solvers.objective_perturbation.PRICE", 1.6,
            "it takes many passes, and its ridge costs more where signals are strong than typical data say:"
            " it must promise half of what descent does", "benchmarks/regret.py", predicts=False),
    Default("solvers.objective_perturbation.MOST_PRODUCTS", 1e11,
            "plans with more products, a minute or so, are chosen only if nothing else fits",
            "not measured: an order of magnitude of time", predicts=False),
    Default("solvers.objective_perturbation.UNAFFORDABLE", 1e9,
            "factor of a predicted risk that no other can have",
            "not measured: any huge number does", predicts=False),
    Default("solvers.standardised.FEATURE_SHARE", 0.12,
            "of mu^2 for means and mean squares of the features, half each",
            "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.TARGET_SHARE", 0.05,
            "of mu^2 for mean, mean square and a second look at the scale of the target, a third each",
            "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.LENGTH_SHARE", 0.01,
            "of mu^2 for the length of rows, which is one number", "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.REACH", 3.0,
            "cells further from their mean are clipped, in standard deviations: rare levels and tails would"
            " make all rows long", "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.INTERCEPT", 0.25,
            "of a row of norm 1: after centring the intercept has little to do",
            "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.RESIDUAL_DEVIATIONS", 2.5,
            "residuals of squared loss are clipped at this many standard deviations of the target",
            "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.LARGEST_TARGET", 4.0,
            "largest target, in units of the clipped residual",
            "not measured: ten standard deviations of the target", predicts=False),
    Default("solvers.one_step.SPREAD_SHARE", 0.2,
            "of the Hessian's share, for one number beside d (d + 1)/2",
            "benchmarks/intervals.py", predicts=False),
    Default("solvers.one_step.WIDE", (6.0, 3.0),
            "reach of cells and stretch of rows for linear models: clipped cells bias their "
            "coefficients", "benchmarks/intervals.py", predicts=False),
    Default("solvers.one_step.NARROW", (3.0, 2.0),
            "the same for others: a logistic model is less sensitive to far cells, and descent on longer "
            "rows ends too far from the minimiser", "benchmarks/intervals.py", predicts=False),
    Default("solvers.one_step.ROOM", 10.0,
            "radius of the ball of a perturbed minimiser, over that of the set: none is on the boundary",
            "benchmarks/intervals.py", predicts=False),
    Default("solvers.one_step.LATE", 0.5,
            "of the answers: the last ones, where descent is near its end",
            "benchmarks/intervals.py", predicts=False),
    Default("planning.planner.RIDGE_SHARE", 0.1,
            "the most that a default ridge can cost, over what the constant in the middle of y's range can "
            "cost", "not measured: an elastic net without l2 is rare", predicts=False),
    Default("planning.planner.LEAST_GAIN", 1.5,
            "above it accelerated mirror descent is ahead of gradient descent by up to 5 and behind by 1.1 "
            "at most; at 1.2 it is behind by up to 2.3",
            "not measured: compared once on groups and low rank; no benchmark repeats it", predicts=False),
    Default("planning.planner.FEWEST_SELECTED_FROM", 20,
            "features from which corrective Frank-Wolfe is weighed: it selects a few of many. Of the 9 of "
            "california_housing it took too few, and left 0.4 to 0.7 more of what can be learnt than descent",
            "benchmarks/choice.py", predicts=False),
    Default("solvers.gradient_descent.HANDICAP", 0.8,
            "factor of descent's prediction before solvers are compared: another one must be predicted at "
            "most 0.8 of its risk, since smaller differences between predictions were often wrong",
            "benchmarks/choice.py", predicts=False),
    Default("planning.planner.MEAN_NOISE", 0.25,
            "of the largest value of a feature: with more noise on a mean, standardisation does not pay",
            "benchmarks/accuracy.py", predicts=False),
    Default("planning.planner.CLIP_ROOM", 1.2,
            "slopes of logistic losses are clipped at this many times their size at theta = 0",
            "benchmarks/accuracy.py"),
    Default("planning.planner.CLIP_COST", 0.0005,
            "predicted excess risk that clipping must save; it costs about 0.0002 on typical data",
            "benchmarks/accuracy.py"),
    Default("planning.outlook.MOST_LEFT", 0.95,
            "a model predicted to learn less than a twentieth of what there is to learn is no better than a"
            " constant", "not measured: as far as a prediction can tell", predicts=False),
    Default("planning.outlook.USUAL_CELLS", 100,
            "stored cells of a compressed row; a short text has about as many different words",
            "not measured: texts of a hundred words", predicts=False),
    Default("planning.rehearsal.SHARES", (0.1, 0.01),
            "of the square that bounds allow, by which columns may vary",
            "not measured: bounds are often wide by a factor of 3 to 10"),
    Default("planning.rehearsal.DEVIATION", 0.4,
            "standard deviation of a regression's target over its largest residual",
            "benchmarks/accuracy.py"),
    Default("estimators.planning.INTERCEPT", 1.0,
            "value of the constant feature beside features in [-1, 1]",
            "not measured: the unit of the features", predicts=False),
    Default("estimators.planning.INTERCEPT_BESIDE_UNIT_ROWS", 0.5,
            "beside rows of norm 1 a constant feature of 1 adds 41 % to the norm and so to the noise, one "
            "of 0.5 adds 12 %", "benchmarks/accuracy.py", predicts=False),
    Default("estimators.private_bounds.SHARE", 0.15,
            "of mu^2 for private bounds; a selection of bounded range eta counts as mu = eta/2",
            "not measured: little beside the fit, enough for a quantile", predicts=False),
    Default("estimators.private_bounds.MOST_SHARE", 0.5,
            "of mu^2 for private bounds of few records; a fit with less left is hardly worth its bounds",
            "not measured: as much as the fit", predicts=False),
    Default("estimators.private_bounds.LARGEST_SHARE", 0.25,
            "of the records beyond a quantile; nearer the middle it says little of the ends",
            "not measured: quartiles", predicts=False),
    Default("estimators.private_bounds.DEVIATIONS", 3.0,
            "standard deviations of a normal column that the bounds would cover",
            "not measured: the reach of standardised cells", predicts=False),
    Default("estimators.private_maps.SHARE", 0.05,
            "of mu^2 for histograms of columns, which find long tails and bounds that are too wide",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.REQUESTED_SHARE", 0.1,
            "of mu^2 for histograms of columns whose maps the user asks for",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.LARGEST_NOISE", 0.08,
            "of the records: histograms whose counts have a larger standard deviation are not asked for",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.FINE_NOISE", 0.005,
            "of the records: noise up to which histograms have many bins. With more of it the noise of empty "
            "bins hides the tails of 2,000 records: R^2 .25 for .53 (Cauchy)",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.RANKS", (0.05, 0.25, 0.5, 0.75, 0.95),
            "quantiles from which the map of a column follows",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.WIDE", 2.5,
            "bounds this many times as wide as the middle nine tenths of the cells leave the column alone: "
            "4 left R^2 .58 for .62 (log-normal), 6 left .50; up to here normal and uniform columns are not "
            "mapped",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.BENT", 2.5,
            "largest over smallest slope of quantiles against normal ones up to which a column is only "
            "clipped", "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.REACH", 3.0,
            "normal scores at which maps end", "not measured: the reach of standardised cells",
            predicts=False),
    Default("estimators.planning.CHECK", 0.01,
            "of mu^2 for counts of recognised cells: half a per cent of noise on the fit",
            "benchmarks/accuracy.py", predicts=False),
    Default("estimators.data_check.LARGEST_NOISE", 0.05,
            "of the records: a count with a larger standard deviation is not asked for",
            "not measured: a level of an eighth of the people would hardly be seen", predicts=False),
    Default("estimators.data_check.FALSE_ALARM", 0.01,
            "probability that something is named where nothing is wrong",
            "not measured: a usual level", predicts=False),
    Default("estimators.data_check.MANY_MISSING", 0.25,
            "of the cells of a column: more that are not recognised are worth a warning",
            "not measured: usual columns have fewer missing cells", predicts=False),
    Default("estimators.data_check.FEW_PEOPLE", 0.05,
            "of the records: levels are named by their counts alone where smaller ones can be seen",
            "not measured: levels of fewer people are common", predicts=False),
    Default("estimators.regressors.HUBER_SHARE", 0.1,
            "default threshold of Huber's loss, of the width of y_bounds",
            "not measured: a tenth of the range is an outlier in most tables", predicts=False),
    Default("tuning.tune.DRAWN_TRIALS", 20.0,
            "expected trials where settings are drawn from distributions",
            "not measured: the usual size of a random search", predicts=False),
    Default("tuning.tune.TRIALS_PER_SETTING", 2.0,
            "expected trials for each setting; the best of many is then tried with probability 2/3",
            "not measured: derived", predicts=False),
    Default("tuning.tune.DRAWN_PER_TRIAL", 2,
            "settings drawn from distributions beforehand, for each expected trial",
            "not measured: repeated settings tell nothing new", predicts=False),
    Default("tuning.tune.SCORE_SHARE", 0.1,
            "of the budget of a trial for its score",
            "not measured: a score is one number beside a model", predicts=False),
    Default("queries.budget_split.CHECKS", (0.04, 0.01),
            "shares of the budget for self-checks: errors of regressions, and of shares of three "
            "attributes",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.NET", 0.2,
            "share for the safety net of a warm start: comparisons, and measurements after an error "
            "above the level",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.RUN_PART", 0.7,
            "part of the safety net for comparisons; the rest pays for measurements",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.CORRECTIONS", 4,
            "updates of a warm start",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.LARGEST_LEVEL", 0.1,
            "no safety net if it detects errors above this share of records only",
            "not measured: a tenth of all records is no safety", predicts=False),
    Default("queries.budget_split.FALSE_ALARM", 0.05,
            "probability that a run of the expected queries reports an error of an exact histogram",
            "not measured: a usual level", predicts=False),
    Default("queries.budget_split.ROUNDS", 8,
            "updates of the offline variant",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.CHECK", 0.01,
            "of the budget for counts of recognised cells: half a per cent of noise on the answers",
            "not measured: as for estimators", predicts=False),
    Default("queries.self_check.SIZE", 200,
            "queries of a self-check; the 195th error is its 97.5 % quantile",
            "not measured: enough for a quantile of 5 % in two parts", predicts=False),
    Default("queries.self_check.FEATURES", 6,
            "most features of a regression of a self-check",
            "not measured: usual questions", predicts=False),
    Default("queries.error_bars.CONFIDENCE", 0.95,
            "confidence of the bounds on errors of answers",
            "not measured: the usual level", predicts=False),
    Default("queries.error_bars.SHORTEST_REACH", 0.1,
            "smallest neighbourhood of an answer in which its error is measured, relative to its set",
            "not measured: the minimiser may be farther off than expected", predicts=False),
    Default("queries.multiplicative_weights.SWEEPS", 2,
            "passes over all measurements when a new one is added",
            "benchmarks/queries.py", predicts=False),
    Default("queries.maximum_entropy.AGREEMENT", 0.05,
            "tolerance of the minimiser relative to the effect of the noise",
            "not measured: far below the noise", predicts=False),
)
# fmt: on
DEFAULTS: dict[str, Default] = {each.name: each for each in _LISTED}


def default(name: str) -> Any:
    """Return the value of a default."""
    return DEFAULTS[name].value


def defaults_table() -> str:
    """Return all defaults as a Markdown table."""
    rows = (f"| `{each.name}` | {each.value} | {each.why} | {each.measured_by} |" for each in _LISTED)
    return "\n".join(("| default | value | why | measured by |", "|---|---|---|---|", *rows))
