"""Loss functions phi(z, y) of the score z = <x, theta>, with their derivatives and constants.

Every loss carries its derivative twice: `grad` for whole arrays, and `slope` for one record, which the data
plane compiles. A record whose label is missing or undeclared has y = 0 under a loss of labels, and a code
outside 0..K-1 under softmax; it has value 0 and slope exactly 0. Constants are suprema over |z| <= z_max and
y in `y_range`.
"""

from dpcvx.losses.labels import ClippedLogistic, Logistic, Sigmoid, SmoothHinge, Softmax
from dpcvx.losses.loss import Link, Loss, TargetKind
from dpcvx.losses.numbers import Huber, Quantile, Squared, Welsch
from dpcvx.losses.slopes import exp_basic

# Every loss of the package; `name` stands for it in queries, plans and files.
LOSSES: tuple[type[Loss], ...] = (
    ClippedLogistic,
    Huber,
    Logistic,
    Quantile,
    Sigmoid,
    SmoothHinge,
    Softmax,
    Squared,
    Welsch,
)

__all__ = [
    "LOSSES",
    "ClippedLogistic",
    "Huber",
    "Link",
    "Logistic",
    "Loss",
    "Quantile",
    "Sigmoid",
    "SmoothHinge",
    "Softmax",
    "Squared",
    "TargetKind",
    "Welsch",
    "exp_basic",
]
