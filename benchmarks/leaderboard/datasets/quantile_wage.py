"""Quantile regression: ninth decile of weekly wages."""

from leaderboard.table_problem import table_problem


class Dataset:
    """AER/CPS1988, target wage, of the test list of benchmarks/tables.py."""

    title = "quantile .9: wages"
    kind = "quantile"

    def get_data(self, seed):
        """Return the split of a seed."""
        return table_problem(self.kind, "AER/CPS1988", "wage", seed, quantile=0.9)
