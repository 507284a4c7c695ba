"""Private hyper-parameter search and private scores."""

from dpcvx.tuning.curves import ScoreCurves, private_curves
from dpcvx.tuning.score import private_score
from dpcvx.tuning.search import PrivateSearchCV
from dpcvx.tuning.tune import TuningResult, private_tune

__all__ = [
    "PrivateSearchCV",
    "ScoreCurves",
    "TuningResult",
    "private_curves",
    "private_score",
    "private_tune",
]
