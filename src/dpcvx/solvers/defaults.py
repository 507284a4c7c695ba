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
    Default("solvers.typical_data.LOG_MEAN_VARIANCE", 0.25,
            "variance of useful scores that are logarithms, or log-odds, of means: a factor of 1.6 or so",
            "benchmarks/families.py", predicts=False),
    Default("solvers.typical_data.EXPLAINED", 0.5,
            "share of the variance of a target of known standard deviation that a useful regression explains",
            "benchmarks/accuracy.py"),
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
    Default("solvers.gradient_descent.SETTLE_NOISE", 2.0,
            "standard deviations of its noise by which the last step of an intercept is shortened: otherwise "
            "noise would move it where classes are balanced", "benchmarks/accuracy.py", predicts=False),
    Default("solvers.gradient_descent.MOST_STEPS", 10_000,
            "more steps by default would seldom be worth the time", "benchmarks/dense.py", predicts=False),
    Default("solvers.gradient_descent.MOST_NOISE", 2.0,
            "most noise of a phase, over the least: on data that bend less than typical ones noise of early "
            "steps does not fade", "benchmarks/labels.py", predicts=False),
    Default("solvers.gradient_descent.NOISE_SHARE", 0.1,
            "of the loss at theta = 0: a model whose noise costs more is hardly worth having",
            "not measured: where it binds, little is learnt anyway"),
    Default("solvers.gradient_descent.SCALED_NOISE_SHARE", 0.2,
            "the same for a target of known standard deviation, of its variance",
            "benchmarks/small.py", predicts=False),
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
    Default("solvers.group_selection.SHARE", 0.3,
            "of mu^2 for the draws of groups; 0.15 to 0.5 give about the same R^2",
            "benchmarks/group_designs.py", predicts=False),
    Default("solvers.group_selection.STRIDE", 1.5,
            "step of the refit over the inverse of the largest curvature: below 2, where steps could diverge",
            "not measured: stable for any records", predicts=False),
    Default("solvers.group_selection.MOST_STEPS", 1000,
            "steps of the refit that a default may cost", "benchmarks/group_designs.py", predicts=False),
    Default("solvers.group_selection.HANDICAP", 0.3,
            "where groups are declared, its risk is far below that of its rehearsals: it was ahead of other "
            "solvers in 20 of 24 cells",
            "benchmarks/group_designs.py", predicts=False),
    Default("solvers.corrective_frank_wolfe.MOST_SELECTIONS", 1000,
            "selections that a default may cost; beyond it selections must be given",
            "benchmarks/corrective.py", predicts=False),
    Default("solvers.corrective_frank_wolfe.FEWEST_SELECTIONS", 16,
            "selections where half of the features are as many: with the eight of the model of harmonic "
            "coefficients, half of sixteen equal ones are not found, and few coefficients are found as well "
            "with either", "benchmarks/corrective.py", predicts=False),
    Default("solvers.corrective_frank_wolfe.REVISITS", 4.0,
            "selections for each feature that can be found: some are selected twice, and some by chance",
            "benchmarks/lasso_designs.py", predicts=False),
    Default("solvers.corrective_frank_wolfe.MOST_STEPS", 1000,
            "steps of the refit that a default may cost", "benchmarks/corrective.py", predicts=False),
    Default("solvers.evidence.LEAST_SUM", 4.0,
            "standard deviations by which the squares of gradients on selected features exceed those "
            "of noise, or coefficients are 0: no useful fit was below 7, and up to 21 % of the fits that "
            "found only noise were above 1.5",
            "benchmarks/noise_designs.py", predicts=False),
    Default("solvers.evidence.CHANCE", 0.02,
            "chance that the largest entry of noise alone, in the means of all and of the first answers, "
            "counts as a coefficient",
            "benchmarks/noise_designs.py", predicts=False),
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
    Default("solvers.standardised.LENGTH_SHARE", 0.01,
            "of mu^2 for the length of rows, which is one number", "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.LENGTH_SPREAD", 0.3,
            "usual relative error of the mean square length of rows as predicted from released moments",
            "benchmarks/labels.py", predicts=False),
    Default("solvers.standardised.REACH", 3.0,
            "cells further from their mean are clipped, in standard deviations: rare levels and tails would"
            " make all rows long", "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.INTERCEPT", 0.25,
            "of a row of norm 1: after centring the intercept has little to do",
            "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.SCORE_SQUARE", 0.1,
            "mean square of a score fitted to public rows, over that of all other features together",
            "benchmarks/public_rows.py", predicts=False),
    Default("solvers.standardised.LONGEST_SCORE", 8.0,
            "most coefficients of that score, as a vector: more would be for columns that nearly cancel",
            "benchmarks/public_rows.py", predicts=False),
    Default("solvers.standardised.TWO_VALUED", 0.97,
            "a column of numbers counts as one of two values, and has no shape in an additive model, if its "
            "mean square about its mean is at least this share of that of cells at the two ends of the "
            "bounds with the same mean", "benchmarks/additive.py", predicts=False),
    Default("solvers.standardised.COLUMN_STRETCH", 4.0,
            "columns are selected by products of cells, in units of three standard deviations, times this "
            "factor: with the constant, slopes and squares within 1.5 standard deviations are not clipped",
            "benchmarks/additive_groups.py", predicts=False),
    Default("solvers.standardised.COLUMN_CONSTANT", 0.5,
            "value of the constant feature whose products with the cells are slopes of straight lines",
            "benchmarks/additive_groups.py", predicts=False),
    Default("solvers.standardised.PAIR_SHARE", 0.05,
            "of mu^2 for the selection of pairs of columns, or of columns: with more, no more of the useful "
            "ones were found", "benchmarks/additive_groups.py", predicts=False),
    Default("solvers.standardised.LABEL_SHARE", 0.01,
            "of mu^2 for the share of the second label, before pairs are selected",
            "not measured: one number", predicts=False),
    Default("solvers.standardised.LONGEST_LEVELS", 16.0,
            "a column of more levels is made as long as so many numbers: 800 levels would drown the other "
            "columns", "benchmarks/accuracy.py", predicts=False),
    Default("solvers.standardised.HIDDEN_NOISE", 0.003,
            "a column is named as hardly varying if the noise on its mean square (cells in [-1, 1]) hides it "
            "and is at most this. With 0.003 at most 0.4 % of the columns of the development list are named, "
            "with 0.01 5 % at epsilon 4, because long tails are hidden too", "benchmarks/column_units.py",
            predicts=False),
    Default("solvers.scaled_target.SHARES", (0.05, 0.4),
            "least and most of mu^2 for the centre and the scale of the target", "benchmarks/small.py",
            predicts=False),
    Default("solvers.scaled_target.SHARE_SCALE", 20.0,
            "the share is this over n mu, between the least and the most: errors of the centre fall like "
            "1/(n mu) and cost as much as all noise of the fit where records are few", "benchmarks/small.py",
            predicts=False),
    Default("solvers.scaled_target.LOOKS", 10,
            "questions about the target: each may halve its range, so that ten find a target in bounds that "
            "are a thousand times too wide", "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.LOOK_NOISE", 0.17,
            "noise on one of these answers, over the range, above which a posterior of all answers chooses "
            "the next range", "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.SMALL_UNIT", 0.7,
            "a fit takes this times the posterior's standard deviation for that of the target: noise and "
            "clips are in proportion to it. With 1,500 and 2,000 records at epsilon 0.1, 0.6 and 0.8 had 29 "
            "and 38 fits with R^2 below -0.1 where 1 had 50, and a mean R^2 that was 0.006 higher (246 fits)",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.NARROWING", 0.5,
            "factor of the range where noise hides the target's spread, if that is large beside the noise; "
            "a quarter would pass by long tails",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.CENTER", 0.3,
            "usual distance of the target's mean from the middle of its bounds, over half of their width",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.SEEN", 1.5,
            "standard deviations of its noise that a variance must exceed to be used", "benchmarks/small.py",
            predicts=False),
    Default("solvers.scaled_target.AIM", 3.0,
            "the next range is one in which the clipped mean square is this many standard deviations of its "
            "noise", "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.AIMS", (0.02, 0.6),
            "limits of that mean square: ranges of 7 and of 0.8 standard deviations of a normal target",
            "benchmarks/small.py", predicts=False),
    Default("solvers.target_posterior.MISFIT", 0.2,
            "assumed relative error of a normal target's clipped mean square as a model of other targets",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.NOISY", 0.02,
            "noise on an answer, over its range, from which all answers together give the standard "
            "deviation; with less, the last ones alone do, which see more of long tails",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.TAIL_NOISE", 0.03,
            "most noise on an answer, over its range, if the last one is about the target's tail",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.LONG_TAIL", 0.3,
            "mean square of targets clipped at one standard deviation, with a deviation of its noise added, "
            "below which the tail is long: their residuals are then clipped further out. A normal law has "
            "0.52, or 0.35 if its standard deviation is found 1.5 times too large; with 0.35 ames lost 0.6 "
            "of R^2", "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.LOST_DEVIATION", 0.1,
            "a fit whose target's spread is hidden by noise warns if its standard deviation is below this, "
            "in units of half the width of its bounds: five of six fits above were useful, and three of "
            "three below were worse than a constant", "benchmarks/usefulness.py", predicts=False),
    Default("solvers.scaled_target.MOST_ERROR", 0.4,
            "a fit warns if noise on the mean of the target is larger than this, in released standard "
            "deviations of the target", "benchmarks/usefulness.py", predicts=False),
    Default("solvers.scaled_target.MOST_LOG_ERROR", 0.6,
            "a fit also warns if the logarithm of that standard deviation has a larger error than this, by "
            "the posterior: a factor of 1.8", "benchmarks/usefulness.py", predicts=False),
    Default("solvers.scaled_target.RESIDUAL", (0.7, 2.5),
            "residuals of squared loss are clipped at this many standard deviations of the target: the first "
            "where records are few, the second where they are many and, at least, for standard errors",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.LONG_ROOM", 1.5,
            "largest factor by which a long tail widens the clip of residuals where records are few. When "
            "they were clipped at 2.5 standard deviations, 4 of 30 fits of ames at epsilon 4 were no better "
            "than a constant (R^2 of the others: .83), because noise had made the tail look long",
            "benchmarks/long_tails.py", predicts=False),
    Default("solvers.scaled_target.LONG_RESIDUAL", 4.0,
            "residuals of targets with long tails are clipped at this many standard deviations where "
            "records are many and columns are standardised: R^2 rises by 0.005 to 0.02 in five of six "
            "cells, and 6 costs 0.02 on blogfeedback", "benchmarks/long_tails.py", predicts=False),
    Default("solvers.scaled_target.ENOUGH", 30.0,
            "least n mu for a model other than the mean of the target, where columns are not standardised",
            "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.SELECTING", 500.0,
            "least n mu with which a regression over an l1 ball selects features; with less, all are fitted "
            "to shrunk rows, as in an l2 ball. It is also the least that pays for a pooled range of cells",
            "benchmarks/lasso_designs.py", predicts=False),
    Default("solvers.scaled_target.SHORT_ROWS", 0.5,
            "norm to which rows of few records are shrunk, over the largest: somewhat below that of cells "
            "spread evenly over their bounds, sqrt(1/3)", "benchmarks/regression_peers.py", predicts=False),
    Default("solvers.scaled_target.SHORT_RESIDUAL", 0.3,
            "residuals of such fits are clipped at this many standard deviations of the target",
            "benchmarks/regression_peers.py", predicts=False),
    Default("solvers.scaled_target.SHORT_NOISE", 0.07,
            "of the target's variance: what the noise of such fits may cost; 0.05 leaves R^2 .37 for .40 at "
            "epsilon 1, 0.1 costs .05 at epsilon .1", "benchmarks/regression_peers.py", predicts=False),
    Default("solvers.scaled_target.MANY", 100.0,
            "records are many where n mu is this for each coefficient; the clip of residuals is in "
            "proportion between 28 and 100", "benchmarks/small.py", predicts=False),
    Default("solvers.scaled_target.AMOUNT_RESIDUAL", 6.0,
            "where records are many, relative errors of amounts are clipped at up to this many standard "
            "deviations: with 2.5, predicted medical costs were half of the observed ones, with 10 the noise "
            "took 0.045 of D^2 on incomes", "benchmarks/families.py", predicts=False),
    Default("solvers.scaled_target.SKEWED", 1.5,
            "released standard deviations of amounts, over their mean, from which their predicted means may "
            "be far too low", "benchmarks/families.py", predicts=False),
    Default("solvers.scaled_target.WIDEST", 25.0,
            "largest clip of residuals of fits with standard errors, in standard deviations of the target",
            "not measured: more than 14 is used for more than a million records only", predicts=False),
    Default("solvers.scaled_target.FAR_BIAS", (0.024, 0.2),
            "twice the bias of a coefficient by clipped gradients of far rows, and its decay with the clip, "
            "for more than 100,000 records: with a clip of 8 instead of 14 intervals of the last linear cell "
            "covered 80 %",
            "benchmarks/interval_coverage.py", predicts=False),
    Default("solvers.scaled_target.LARGEST", 10.0,
            "standard deviations of the target beyond which one is clipped",
            "not measured: nearly all targets are nearer", predicts=False),
    Default("solvers.scaled_target.DOUBTFUL_TAIL", 0.38,
            "like LONG_TAIL, for a warning in fits with standard errors, whose coefficients clipped errors "
            "bias; an exponential law has 0.46", "benchmarks/real_coverage.py", predicts=False),
    Default("solvers.calibrated.SHARE", 0.1,
            "of mu^2 for the sums of targets and of predicted means, by which means are calibrated",
            "benchmarks/families.py", predicts=False),
    Default("solvers.calibrated.CLIPS", (2.5, 10.0),
            "least and most distance of targets from their mean, in standard deviations, in their sum",
            "benchmarks/families.py", predicts=False),
    Default("solvers.calibrated.USUAL", 0.15,
            "usual size of a correction, in logarithms of means", "benchmarks/families.py", predicts=False),
    Default("solvers.calibrated.MEAN_CLIP", 2.0,
            "largest predicted mean in their sum, in units of 1.5 standard deviations of the target",
            "benchmarks/families.py", predicts=False),
    Default("solvers.label_share.SHARES", (0.03, 0.2),
            "least and most of mu^2 for the share of a class", "benchmarks/labels.py", predicts=False),
    Default("solvers.label_share.SHARE_SCALE", 5.0,
            "the share of mu^2 is this over n mu, between the least and the most", "benchmarks/labels.py",
            predicts=False),
    Default("solvers.label_share.DEVIATION", 1.5,
            "usual standard deviation of the log-odds of a class, over tables", "benchmarks/labels.py",
            predicts=False),
    Default("solvers.label_share.FAINT", 1.5,
            "a fit warns that a class may be empty if its released share is below this many standard "
            "deviations of its noise, as it is for 93 % of empty classes; with 2, five of 25 warnings were "
            "of useful models",
            "benchmarks/usefulness.py", predicts=False),
    Default("solvers.one_step.MEAT_SHARE", 0.2,
            "of the Hessian's share, for the meat of the sandwich: it is not inverted, so noise matters less",
            "benchmarks/interval_coverage.py", predicts=False),
    Default("solvers.one_step.GOODNESS_SHARE", 0.1,
            "of the Hessian's share, for R² or pseudo-R²: three sums, whose noise does not grow with the "
            "number of features", "benchmarks/interval_coverage.py", predicts=False),
    Default("solvers.one_step.WIDE", (6.0, 1.0),
            "with standard errors: standard deviations at which linear, logistic, count, amount and share "
            "models clip cells, because clipped cells bias them; and the length of rows of the first two, "
            "over that which few rows exceed, beyond which gradients are clipped, which causes little bias",
            "benchmarks/intervals.py", predicts=False),
    Default("solvers.one_step.FARTHEST", 16.0,
            "largest reach of cells where records are many: clipped cells bias coefficients of skewed "
            "features", "benchmarks/interval_coverage.py", predicts=False),
    Default("solvers.one_step.SEEN_BY", 200.0,
            "the Hessian's clip of curvature grows once the curvature of usual directions is this many times "
            "that which noise hides: a larger clip is better for correlated columns",
            "benchmarks/textbook.py", predicts=False),
    Default("solvers.one_step.MOST_BEND", 64.0,
            "largest curvature of a far record in the Hessian: of a row that is 8 times as long as most",
            "not measured: hardly any row is longer", predicts=False),
    Default("solvers.one_step.LONG_COLUMN", 2.0,
            "tables note a long tail of a column if its released mean square is at least this many times its "
            "diagonal entry of the Hessian, in which far records are clipped. The ratio is at most 1.25 for "
            "columns whose intervals cover, such as gamma variables and the population of "
            "california_housing",
            "benchmarks/real_coverage.py", predicts=False),
    Default("solvers.one_step.BEND_OF_LABELS", 1.5,
            "limit of the curvature of labels in the Hessian: with 3 % to 5 % in one class and epsilon 8 or "
            "more, noise hid a direction in a quarter to three quarters of the fits of some cells with a "
            "limit of 4 or more, and in at most 1 % with this one; "
            "standard errors of skewed columns stayed as they were", "benchmarks/interval_coverage.py",
            predicts=False),
    Default("solvers.one_step.PULL", (1.0, 2.0),
            "smallest and largest norm at which gradients of records with labels are clipped",
            "benchmarks/real_labels.py", predicts=False),
    Default("solvers.one_step.PULLED_BY", 1600.0,
            "n mu from which on that norm grows, like the square root: at n = 20,000 the coefficient of a "
            "level of 8 % of the records was off by 3 to 5 standard errors with the norm 1, by 0.2 with 2",
            "benchmarks/real_labels.py", predicts=False),
    Default("solvers.one_step.NARROW", (3.0, 2.0),
            "the same for other models, such as additive ones, and for objective perturbation: descent on "
            "longer rows ends too far from the minimiser", "benchmarks/intervals.py", predicts=False),
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
    Default("planning.planner.CAREFUL_FROM", 50,
            "features from which a plan that promises nothing is replaced by one that returns zeros if it "
            "finds only noise: R^2 at epsilon 1 is 0.4 to 0.6 instead of 0 with 200 to 1,000 features, about "
            "equal with 60, and 0.05 instead of 0.22 with 20",
            "benchmarks/noise_designs.py", predicts=False),
    Default("solvers.gradient_descent.HANDICAP", 0.8,
            "factor of descent's prediction before solvers are compared: another one must be predicted at "
            "most 0.8 of its risk, since smaller differences between predictions were often wrong",
            "benchmarks/choice.py", predicts=False),
    Default("planning.planner.MEAN_NOISE", 0.25,
            "of the largest value of a feature: with more noise on a mean, standardisation does not pay",
            "benchmarks/accuracy.py", predicts=False),
    Default("planning.planner.CLIP_ROOM", 1.0,
            "slopes of logistic loss of two classes are clipped at this many times their size at theta = 0",
            "benchmarks/accuracy.py"),
    Default("planning.planner.CLASSES_ROOM", (0.6, 1.2),
            "the same for more classes, whose scores are not divided by a factor afterwards: least and most",
            "benchmarks/classes.py", predicts=False),
    Default("planning.planner.CLASSES_RECORDS", (2.5, 25.0),
            "n mu for each coefficient: up to the first the smallest clip is used, from the second the "
            "largest one",
            "benchmarks/classes.py", predicts=False),
    Default("planning.planner.CLIP_COST", 0.001,
            "predicted excess risk that clipping must save; where it saves less, log-losses were larger with "
            "it by 0.0007 on the development list", "benchmarks/accuracy.py", predicts=False),
    Default("planning.additive.KNOTS", ((400.0, 5), (600.0, 9)),
            "least n mu/d, and the number of knots of classifiers from there on: 3 knots from 200 on lowered "
            "AUC in 6 of 9 cells of the development list, by 0.002 on average",
            "benchmarks/additive.py", predicts=False),
    Default("planning.additive.KNOTS_OF_NUMBERS", ((100.0, 5), (600.0, 9)),
            "the same for regressions: with n mu/d between 100 and 400 and a target whose tail is known to "
            "be short, 5 knots gained 0.012 of R^2 on average over 11 cells of the development list, and "
            "lost 0.004 at most", "benchmarks/additive_knots.py", predicts=False),
    Default("planning.additive.WHATEVER_TAIL", 400.0,
            "n mu/d from which shapes of a regression do not depend on the target's tail: below, they lost "
            "0.02 and 0.04 of R^2 on two tables whose tails were long and hidden by noise",
            "benchmarks/additive_knots.py", predicts=False),
    Default("planning.additive.KNOTS_OF_LABELS_BESIDE_ERRORS", ((15_000.0, 3), (60_000.0, 5)),
            "the same for classifiers with standard errors: with less, noise on the Hessian hid all shapes "
            "of simulated tables with three columns", "not measured: one simulated table", predicts=False),
    Default("planning.additive.KNOTS_OF_NUMBERS_BESIDE_ERRORS",
            ((4_000.0, 3), (15_000.0, 5), (60_000.0, 9)),
            "the same for regressions with standard errors", "not measured: one simulated table",
            predicts=False),
    Default("planning.additive.KNOT_REACH", 2.0,
            "outermost knots, in standard deviations: beyond them a shape goes on like its linear part",
            "benchmarks/additive.py", predicts=False),
    Default("planning.additive.RAMP_SQUARE", 2.0,
            "sum of squares of a number's ramps at its largest, beside 9 of the standardised number",
            "benchmarks/additive.py", predicts=False),
    Default("planning.additive.PAIR_SQUARE", 0.3,
            "sum of squares of all products of pairs, over that of the standardised features",
            "benchmarks/additive.py", predicts=False),
    Default("planning.additive.PAIRS_OF_LABELS", 1000.0,
            "least n mu/d from which products of all pairs of columns are features, for classifiers",
            "benchmarks/additive.py", predicts=False),
    Default("planning.additive.PAIRS_OF_NUMBERS", 400.0,
            "the same for regressions: between 400 and 1,000 products gained R^2 in 4 of 6 cells of the "
            "development list, by 0.03 on average, whichever table is left out; between 300 and 400 they "
            "lost against straight lines in one of two",
            "benchmarks/additive.py", predicts=False),
    Default("solvers.few_steps.SETTLED", (12.0, 8.0),
            "(1 - momentum) T of a descent on many cells or on the features of a basis, in place of 20, and "
            "of one on many cells of a basis", "benchmarks/additive_speed.py", predicts=False),
    Default("solvers.few_steps.STRIDE", 3.0,
            "largest step of a descent on many cells, times smoothness: with Polyak's momentum it is "
            "stable for rows of mean square below 1.3, and half as many steps go as far. On small tables, "
            "where time does not matter, both together cost about 0.001 of AUC or R^2",
            "benchmarks/additive_speed.py", predicts=False),
    Default("solvers.few_steps.MANY_CELLS", 2e6,
            "records times columns of a linear fit from which on the time of a step matters, some 1 ms on "
            "one core. Such fits take half the time; no loss could be measured on adult and covtype",
            "benchmarks/accuracy.py", predicts=False),
    Default("solvers.few_steps.MANY_BASIS_CELLS", 1e7,
            "the same for records times features of a basis, some 5 ms", "benchmarks/additive_speed.py",
            predicts=False),
    Default("planning.additive.MOST_PAIRS", 300,
            "products that a default may add; more take long and few of them matter",
            "benchmarks/additive.py", predicts=False),
    Default("planning.additive.RECORDS_OF_A_PAIR", 200,
            "records for each product of a default: with fewer, all products overfit also without privacy. "
            "On 11 regressions of the development list with 18 to 165 records for each, at epsilon 4 to 32 "
            "and n mu/d of 400 to 1,700, a dozen selected products gained 0.011 of R^2 on average over "
            "straight lines, and so did all products. The dozen lost more than 0.003 on 3 of them, all on 5",
            "benchmarks/additive_pairs.py", predicts=False),
    Default("planning.additive.SELECTED_PAIRS", 12,
            "pairs that the fit selects where all would be too many",
            "benchmarks/additive_pairs.py", predicts=False),
    Default("planning.additive.MOST_CANDIDATES", 2000,
            "pairs that may be candidates of a selection: a record has as many features while it is made",
            "not measured: 400 MB for 100,000 records", predicts=False),
    Default("planning.outlook.MOST_LEFT", 0.95,
            "a model predicted to learn less than a twentieth of what there is to learn is no better than a"
            " constant", "not measured: as far as a prediction can tell", predicts=False),
    Default("planning.outlook.MOST_LEFT_OF_CLASSES", 0.99,
            "the same for two classes with n mu of 30 and more: with 0.95, 21 of 33 warnings were of useful "
            "models", "benchmarks/usefulness.py", predicts=False),
    Default("planning.outlook.FEW_RECORDS", 1000.0,
            "records times epsilon below which a plan in words states a larger loss of a regression",
            "benchmarks/small_kept.py", predicts=False),
    Default("planning.outlook.MEASURED_LOSS", 3.0,
            "times the predicted loss of the gain over a constant: the median ratio of ten cells of the "
            "development list; from 1,000 on plans predict more than is lost", "benchmarks/small_kept.py",
            predicts=False),
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
    Default("estimators.planning.CLASS_ROWS", (0.65, 0.3),
            "norm to which rows are shrunk if columns are not standardised, over the largest that bounds "
            "allow: for two classes, and for more", "benchmarks/labels.py", predicts=False),
    Default("estimators.planning.STRETCH", (0.6, 60.0, 300.0),
            "standardised rows of two classes are shrunk to 0.6 of their usual length if n mu/d is below "
            "60, and to their usual length if it is above 300", "benchmarks/labels.py", predicts=False),
    Default("estimators.planning.CLASS_PATH", 0.5,
            "length of a descent with short rows of two classes, over that for typical rows: with 1, 41 of "
            "123 fits to parts of tables are worse than a constant, instead of 22",
            "benchmarks/usefulness.py", predicts=False),
    Default("estimators.planning.CLASS_INTERCEPT", 0.3,
            "largest value of the constant feature of classifiers whose columns are not standardised",
            "benchmarks/labels.py", predicts=False),
    Default("estimators.planning.INTERCEPT_BESIDE_UNIT_ROWS", 0.5,
            "beside rows of norm 1 a constant feature of 1 adds 41 % to the norm and so to the noise, one "
            "of 0.5 adds 12 %", "benchmarks/accuracy.py", predicts=False),
    Default("estimators.planning.CLASSIFIER_INTERCEPT", 0.2,
            "the same for log-odds: 2 % more noise. Descent along it is slow, and a last Newton step makes "
            "up for it", "benchmarks/accuracy.py", predicts=False),
    Default("estimators.assumptions.WIDTH", (6.0, 12.0),
            "bounds of a column in its standard deviations, where none is given: half of 78 columns of 22 "
            "tables were below 7.2; the second number is that of a cautious forecast, here and below",
            "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.CORRELATION", (0.5, 0.8),
            "of neighbouring columns: the least variance of a direction is then 0.35 and 0.12 of that of a "
            "column; on 22 tables it was 0.41 at the median, and 0.09 at the 5th percentile",
            "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.SHARE_OF_ONES", (0.15, 0.05),
            "of columns of 0 and 1: the 25th and the 5th percentile of 76 such columns",
            "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.SHARE_OF_CLASS", (0.2, 0.1),
            "of the second class", "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.SHARE_OF_EVENTS", (0.15, 0.05),
            "of records at risk whose event comes in a period", "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.SHARE_ABOVE", (0.5, 0.3),
            "of answers above the middle of ordered levels", "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.MEAN_OF_AMOUNTS", (0.6, 0.4),
            "mean of a count or an amount over its standard deviation", "benchmarks/forecast.py",
            predicts=False),
    Default("estimators.assumptions.MEAN_WEIGHT", (0.1, 0.02),
            "mean of survey weights over the largest one that is declared", "benchmarks/forecast.py",
            predicts=False),
    Default("estimators.assumptions.TARGET_WIDTH", 10.0,
            "bounds of a target in its standard deviations: half of seven targets were below 11.5",
            "benchmarks/forecast.py", predicts=False),
    Default("estimators.assumptions.SCORE_DEVIATION", 1.0,
            "standard deviation of the log-odds of a simulated classifier", "benchmarks/forecast.py",
            predicts=False),
    Default("estimators.assumptions.SKEWNESS", (0.3, 1.2),
            "standard deviation of the logarithm of a column whose bounds are six standard deviations wide; "
            "in proportion to their width, up to the second number", "benchmarks/forecast.py",
            predicts=False),
    Default("estimators.hidden_errors.SHARES", (0.1, 0.2, 0.3, 0.4, 0.5),
            "shares of mu^2 for the Hessian that uncertainty='auto' chooses from: less than a tenth gains a "
            "few per cent at best, and noise may hide a direction", "benchmarks/precision.py",
            predicts=False),
    Default("estimators.hidden_errors.RESCUE_COST", 1.25,
            "uncertainty='auto' takes a larger share if noise otherwise hides all standard errors of "
            "cautious records, and if those of usual records are then at most this factor larger",
            "benchmarks/error_shares.py", predicts=False),
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
    Default("estimators.private_maps.LARGEST_NOISE", 0.065,
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
    Default("estimators.private_maps.BENT", 4.0,
            "largest over smallest slope of quantiles against normal ones up to which a column is only "
            "clipped", "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.TARGET_BENT", 8.0,
            "the same of a target, above which columns with a tail on the same side are not mapped to normal "
            "scores. R^2 of diamonds at epsilon 4 .92 for .82; 4 would cost california .05",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.REACH", 3.0,
            "normal scores at which maps end", "not measured: the reach of standardised cells",
            predicts=False),
    Default("estimators.private_maps.TAIL_REACH", (6.0, 16.0, 200.0),
            "columns whose tails predict that of the target are clipped at 6 normal scores if n over the "
            "noise multiplier of the histograms is at most 200, and otherwise in proportion to it, up to "
            "16. With 6 for all tables, R^2 of blogfeedback at epsilon 4 is .20 instead of .24; with 16 for "
            "all, that of doctor visits at epsilon 1 with wide bounds is .08 instead of .11",
            "benchmarks/preprocessing.py", predicts=False),
    Default("estimators.private_maps.POOLED_SHARE", 0.02,
            "of mu^2 for one histogram of the cells of all columns, where the fit does not standardise",
            "benchmarks/lasso_designs.py", predicts=False),
    Default("estimators.private_maps.POOLED_NOISE", 0.02,
            "of the cells: a pooled histogram whose shares have a larger standard deviation is not asked for",
            "not measured: its 40 or so filled bins would hide the quantiles", predicts=False),
    Default("estimators.private_maps.POOLED_FROM", 50,
            "columns from which one range serves all: a column that differs from the others is clipped by it",
            "not measured: of 50 columns at most 5 can be wholly beyond the range", predicts=False),
    Default("estimators.private_maps.POOLED_RANKS", (0.05, 0.95),
            "quantiles of all cells at which cells are clipped", "benchmarks/lasso_designs.py",
            predicts=False),
    Default("estimators.private_maps.POOLED_WIDTH", 0.8,
            "of the bounds: a range that is wider gains little, and cells are left alone",
            "not measured: a uniform column has 0.9", predicts=False),
    Default("estimators.planning.PHASES", (2 / 9, 4 / 9, 6 / 9, 7 / 9, 8 / 9, 1.0),
            "ends of the phases of a descent that have noise of their own: three before the last third and "
            "three in it keep nearly all that a noise for every step would gain. Linear regressions of the "
            "development list with n mu/d of 5 to 100 gained 0.003 of R^2 on average over 58 cells",
            "benchmarks/accuracy.py", predicts=False),
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
    Default("estimators.public_rows.FLOOR", 0.25,
            "least weight of a column, and norm of a row without frequent columns, over the usual norm",
            "benchmarks/public_rows.py", predicts=False),
    Default("estimators.public_rows.LONG", 0.1,
            "share of the public rows that are shorter than 1 once columns are weighted",
            "benchmarks/public_rows.py", predicts=False),
    Default("estimators.public_rows.SHARE", 0.01,
            "of mu^2 for the count of private rows that are long with the weights",
            "benchmarks/public_rows.py", predicts=False),
    Default("estimators.public_rows.LEAST", 0.5,
            "of the private rows must be long; of rows like the public ones nine tenths are",
            "benchmarks/public_rows.py", predicts=False),
    Default("estimators.public_rows.LARGEST_NOISE", 0.1,
            "of the records: public rows are not used if the count has a larger standard deviation",
            "not measured: four standard deviations between nine tenths and a half", predicts=False),
    Default("estimators.public_rows.RANGE", 1.5,
            "standard deviations of a public number around its mean to which private cells are clipped; with "
            "1 R^2 is the same, with 2 and 3 it gains less",
            "benchmarks/public_scales.py", predicts=False),
    Default("estimators.public_rows.NEAR", 1.5,
            "a private row is near the public ones if no number is farther from its public mean than this "
            "many times the farthest public one", "benchmarks/public_scales.py", predicts=False),
    Default("estimators.public_rows.LEAST_NEAR", 0.7,
            "of the private rows must be near; of rows like the public ones 0.93 or more are",
            "benchmarks/public_scales.py", predicts=False),
    Default("estimators.public_rows.RANGE_SHARE", 0.05,
            "most of mu^2 for the count of private rows that are near", "benchmarks/public_scales.py",
            predicts=False),
    Default("estimators.public_rows.RANGE_NOISE", 0.1,
            "of the records: standard deviation of that count where less of the budget pays for it",
            "benchmarks/public_scales.py", predicts=False),
    Default("estimators.public_rows.LARGEST_RANGE_NOISE", 0.15,
            "of the records: ranges are not used if the count has a larger standard deviation",
            "not measured: the largest share pays for it with the fewest records of a model", predicts=False),
    Default("estimators.regressors.HUBER_SHARE", 0.1,
            "default threshold of Huber's loss, of the width of y_bounds",
            "not measured: a tenth of the range is an outlier in most tables", predicts=False),
    Default("estimators.regressors.HUBER_DEVIATIONS", 1.345,
            "standard deviations of the target where a fit measures them: Huber's own number, by which the "
            "loss is 95 % as efficient as squares for normal errors",
            "not measured: the usual number", predicts=False),
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
    Default("queries.budget_split.CHECKS", (),
            "shares of the budget for self-checks: errors of regressions, and of shares of three "
            "attributes; with 4 and 1 % the noise was ten times the errors and more",
            "benchmarks/self_check.py", predicts=False),
    Default("queries.budget_split.NET", 0.2,
            "share for the safety net of a warm start: comparisons, and measurements after an error "
            "above the level",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.RUN_PART", 0.7,
            "part of the safety net for comparisons; the rest pays for measurements",
            "benchmarks/queries.py", predicts=False),
    Default("queries.budget_split.CORRECTIONS", 4,
            "fewest updates of a warm start that has a safety net",
            "benchmarks/net.py", predicts=False),
    Default("queries.budget_split.MOST_CORRECTIONS", 64,
            "most updates of a warm start",
            "not measured: every update makes later answers slower", predicts=False),
    Default("queries.budget_split.NET_LEVEL", 0.005,
            "share of the records that comparisons of a warm start must detect with more than the fewest "
            "updates",
            "benchmarks/net.py", predicts=False),
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
    Default("queries.budget_split.BIN_MEANS", 0.1,
            "of the budget for means of numbers inside their bins",
            "benchmarks/natural.py", predicts=False),
    Default("queries.budget_split.CHOICES", 1.5,
            "chosen pairs per attribute; 1 was worse on two surveys and better on none",
            "benchmarks/chosen_pairs.py", predicts=False),
    Default("queries.budget_split.FIRST", 0.3,
            "share of single attributes in the first release, if pairs are chosen; 0.2 and 0.4 are no better",
            "benchmarks/chosen_pairs.py", predicts=False),
    Default("queries.budget_split.CHOICE_PART", 0.3,
            "share of the choice in the budget of a choice and its measurement; 0.2 and 0.5 are no better",
            "benchmarks/chosen_pairs.py", predicts=False),
    Default("queries.chosen_pairs.STAGES", 8,
            "fits of the model while pairs are chosen; a fit for each choice takes eight times as long and "
            "gains little", "benchmarks/chosen_pairs.py", predicts=False),
    Default("queries.chosen_pairs.COST", 0.5,
            "share of the expected noise of a measurement that is subtracted from the score of a pair; 0 and "
            "1 are each better on some surveys", "benchmarks/chosen_pairs.py", predicts=False),
    Default("queries.chosen_pairs.UNSEEN", 0.4,
            "mean square of the error of a model for a pair that was not measured, over that for the pairs "
            "that were chosen last", "benchmarks/joint_pairs.py", predicts=False),
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
    Default("queries.error_bars.LEAST", 0.2,
            "least standard error of a cell, in units of the noise on its cells of two attributes",
            "benchmarks/answer_intervals.py", predicts=False),
    Default("queries.mean_errors.INTERACTIONS", (1e-2, 4e-4, 1e-4),
            "variance of a population's interactions that were not measured, in functions of variance 1, if "
            "single attributes, pairs or triples were: 95 to 97 % of the cells of tables of one attribute "
            "more are covered", "benchmarks/answer_intervals.py", predicts=False),
    Default("queries.answer_intervals.SHRINKAGE", 2.0,
            "part of the squared shrinkage, beyond that of noise, that is added to the variance of a number",
            "benchmarks/answer_intervals.py", predicts=False),
    Default("queries.public_side.MANY_MISSING", 0.05,
            "share of people without the target of a regression above which there are no intervals: at 0.05 "
            "they cover 93 to 95 %, at 0.1 92 %",
            "benchmarks/missing_targets.py", predicts=False),
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
