"""The constants of the papers as printed, with the guarantee that each really gives, and hard instances.

Nothing in dpcvx rests on these. They are here to be compared: a `Reproduction` holds what a paper claims for
an algorithm with the noise it prints, what is proved of that noise, and what one pair of neighbouring data
sets shows. Those with a guarantee can be run, and the run states the guarantee that holds, not the claim.

Neighbours differ by one replaced record, as in all five papers. In formulas L is the largest l2 norm of a
record's gradient, L1 the largest entry of one, and n the number of records.
"""

from dpcvx.papers.algorithms import (
    every,
    kd19_algorithm_2,
    kd19_objective_perturbation,
    kd19_output_perturbation,
    sufficient_constant,
    ttz14_algorithm_1,
    ttz14_algorithm_2,
    ttz14_algorithm_4,
    ttz14_algorithm_5,
    ttz15_algorithm_2,
    u15_figure_3,
    wyx17_algorithm_1,
    wyx17_algorithm_2,
    wyx17_algorithm_3,
    wyx17_algorithm_4,
)
from dpcvx.papers.reproduction import AsPrinted, Reproduction, table

__all__ = [
    "AsPrinted",
    "Reproduction",
    "every",
    "kd19_algorithm_2",
    "kd19_objective_perturbation",
    "kd19_output_perturbation",
    "sufficient_constant",
    "table",
    "ttz14_algorithm_1",
    "ttz14_algorithm_2",
    "ttz14_algorithm_4",
    "ttz14_algorithm_5",
    "ttz15_algorithm_2",
    "u15_figure_3",
    "wyx17_algorithm_1",
    "wyx17_algorithm_2",
    "wyx17_algorithm_3",
    "wyx17_algorithm_4",
]
