"""Loss functions phi(z, y) of the score z = <x, theta>, with their derivatives and constants.

Every loss carries its derivative twice: `grad` for whole arrays, and `slope` for one record, which the data
plane compiles. A record whose label is missing or undeclared has y = 0 under a loss of labels, and a code
outside 0..K-1 under softmax; it has value 0 and slope exactly 0. Constants are suprema over |z| <= z_max and
y in `y_range`.
"""

from dpcvx.losses import labels, means, numbers
from dpcvx.losses.labels import *  # noqa: F403
from dpcvx.losses.loss import DevianceLoss, Link, Loss, TargetKind
from dpcvx.losses.means import *  # noqa: F403
from dpcvx.losses.numbers import *  # noqa: F403
from dpcvx.losses.slopes import exp_basic

# Every loss of the package; `name` stands for it in queries, plans and files.
LOSSES: tuple[type[Loss], ...] = tuple(
    getattr(module, name) for module in (labels, numbers, means) for name in module.__all__
)

__all__ = ["LOSSES", "DevianceLoss", "Link", "Loss", "TargetKind", "exp_basic"]
__all__ += labels.__all__
__all__ += numbers.__all__
__all__ += means.__all__
