"""Additive model: weight of pupils."""

from leaderboard.table_problem import table_problem


class Dataset:
    """openintro/yrbss, target weight, of the test list of benchmarks/tables.py."""

    title = "additive: weight"
    kind = "additive"

    def get_data(self, seed):
        """Return the split of a seed."""
        return table_problem(self.kind, "openintro/yrbss", "weight", seed)
