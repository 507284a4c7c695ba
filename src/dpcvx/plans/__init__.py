"""Plans: the stages and price of a run, the oracle that answers its solver, execution and release."""

from dpcvx.plans.answers import Answers
from dpcvx.plans.asking import Asking
from dpcvx.plans.checkpoint import Checkpoint
from dpcvx.plans.execution import Release, charge, execute, open_account
from dpcvx.plans.oracle import Oracle
from dpcvx.plans.plan import Candidate, Plan, Solver, check_count, require, solver_name
from dpcvx.plans.price import Price
from dpcvx.plans.stage import Stage, running_time

__all__ = [
    "Answers",
    "Asking",
    "Candidate",
    "Checkpoint",
    "Oracle",
    "Plan",
    "Price",
    "Release",
    "Solver",
    "Stage",
    "charge",
    "check_count",
    "execute",
    "open_account",
    "require",
    "running_time",
    "solver_name",
]
