"""Private tuning: settings are tried a random number of times, the best is released, and all is paid."""

from dpcvx.tuning.search import PrivateSearchCV
from dpcvx.tuning.tune import Tuned, private_tune

__all__ = ["PrivateSearchCV", "Tuned", "private_tune"]
