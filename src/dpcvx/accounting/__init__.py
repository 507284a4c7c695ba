"""Privacy accounting: the budget, the cost of each event, and the noise that a budget requires.

Every constant here is a function of events alone. `Tight` is the default accountant.
"""

from dpcvx.accounting.accountant import Accountant, Following
from dpcvx.accounting.bounded_range import AdaptiveSelection, selection_delta, selection_renyi
from dpcvx.accounting.budget import (
    SAMPLER_SHARE,
    Budget,
    budget_of,
    calibrate,
    default_delta,
    explain_delta,
    explain_size,
    sampler_delta,
    spendable,
    warn_of_delta,
)
from dpcvx.accounting.gaussian import GDP, gaussian_delta, gaussian_epsilon, gaussian_mu
from dpcvx.accounting.loss_distribution import PLD
from dpcvx.accounting.neighbours import REPLACE_ONE, WEIGHT, WEIGHT_BITS, Neighbours
from dpcvx.accounting.objective import ObjectiveProfile, objective_delta, objective_epsilon, objective_renyi
from dpcvx.accounting.pure import PureComposition
from dpcvx.accounting.renyi import RDP
from dpcvx.accounting.tight import Tight

__all__ = [
    "GDP",
    "PLD",
    "RDP",
    "REPLACE_ONE",
    "SAMPLER_SHARE",
    "WEIGHT",
    "WEIGHT_BITS",
    "Accountant",
    "AdaptiveSelection",
    "Budget",
    "Following",
    "Neighbours",
    "ObjectiveProfile",
    "PureComposition",
    "Tight",
    "budget_of",
    "calibrate",
    "default_delta",
    "explain_delta",
    "explain_size",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "objective_delta",
    "objective_epsilon",
    "objective_renyi",
    "sampler_delta",
    "selection_delta",
    "selection_renyi",
    "spendable",
    "warn_of_delta",
]
