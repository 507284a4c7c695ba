"""The automatic choice of a solver: candidates, their predicted excess risk, and its explanation."""
