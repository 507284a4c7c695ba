"""Two classes from a table: gender from answers of pupils about health."""

from leaderboard.table_problem import table_problem


class Dataset:
    """openintro/yrbss, target gender, of the test list of benchmarks/tables.py."""

    title = "table: pupils"
    kind = "binary"

    def get_data(self, seed):
        """Return the split of a seed."""
        return table_problem(self.kind, "openintro/yrbss", "gender", seed)
