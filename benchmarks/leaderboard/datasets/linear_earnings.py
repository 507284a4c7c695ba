"""A number from a table: hourly earnings of US workers."""

from leaderboard.table_problem import table_problem


class Dataset:
    """AER/CPSSW8, target earnings, of the test list of benchmarks/tables.py."""

    title = "table: earnings"
    kind = "regression"

    def get_data(self, seed):
        """Return the split of a seed."""
        return table_problem(self.kind, "AER/CPSSW8", "earnings", seed)
