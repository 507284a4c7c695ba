"""The constants of the papers as printed, with the guarantee that each really gives, and hard instances.

No other part of dpcvx uses them. A `Reproduction` holds the guarantee that a paper claims for an algorithm
with the noise it prints, the guarantee that is proved for that noise, and the privacy loss that one pair of
neighbouring data sets shows. An algorithm with a proved guarantee can be run; the run states that guarantee.

Neighbours differ by one replaced record, as in all five papers. In formulas L is the largest l2 norm of a
record's gradient, L1 the largest entry of one, and n the number of records.
"""

from dpcvx.papers.adaptive_analyst import analyse_adaptively, overfitting
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
from dpcvx.papers.hard_instances import PaddedTardos
from dpcvx.papers.reproduction import AsPrinted, Reproduction, table
from dpcvx.papers.sample_sizes import SampleSize

__all__ = [
    "AsPrinted",
    "PaddedTardos",
    "Reproduction",
    "SampleSize",
    "analyse_adaptively",
    "every",
    "kd19_algorithm_2",
    "kd19_objective_perturbation",
    "kd19_output_perturbation",
    "overfitting",
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
