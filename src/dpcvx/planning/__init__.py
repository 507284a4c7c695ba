"""The automatic choice of a solver: candidates, their predicted excess risk, and its explanation."""

from dpcvx.planning.planner import plan

__all__ = ["plan"]
