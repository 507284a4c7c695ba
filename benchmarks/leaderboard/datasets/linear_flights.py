"""A number from a table: delay at arrival of flights from New York."""

from leaderboard.table_problem import table_problem


class Dataset:
    """openintro/nycflights, target arr_delay, of the test list of benchmarks/tables.py."""

    title = "table: flights"
    kind = "regression"

    def get_data(self, seed):
        """Return the split of a seed."""
        return table_problem(self.kind, "openintro/nycflights", "arr_delay", seed)
