"""The choice of a solver: candidates, their predicted risk, defaults, and the words for it."""
