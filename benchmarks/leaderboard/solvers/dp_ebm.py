"""DP-EBM: additive models of boosted bins, from the package interpret-core."""

from types import SimpleNamespace

import pandas

from additive import ebm


class Solver:
    """Defaults of interpret-core 0.7.8, told the same bounds.

    Its (epsilon, delta) is run as it is claimed: its sensitivities are those of a record that is added or
    removed, a weaker guarantee than replace-one, which favours it.
    """

    title = "DP-EBM"
    kinds = ("regression", "additive", "grouped", "binary")
    private = True
    requirements = ("interpret-core==0.7.8", "scipy", "pandas", "matplotlib")
    guarantee = "claims (ε, δ), add-remove"

    def settings(self, epsilon, kind):
        """Return the defaults."""
        return [{}]

    def fit(self, problem, epsilon, seed):
        """Return predictions of benchmarks/additive.py's fit."""
        levels = problem.levels if problem.levels.size else [0] * problem.X.shape[1]
        frames = [pandas.DataFrame(X) for X in (problem.X, problem.X_test)]
        bounds = {}
        for frame in frames:
            frame.columns = [f"x{j}" for j in range(len(levels))]
        for j, count in enumerate(levels):
            if count:
                for frame in frames:
                    frame[f"x{j}"] = [f"level {int(place)}" for place in frame[f"x{j}"]]
            else:
                bounds[f"x{j}"] = tuple(problem.bounds[:, j])
        task = SimpleNamespace(
            X=frames[0],
            y=problem.y,
            X_test=frames[1],
            declared={"bounds": bounds, "y_bounds": tuple(problem.y_bounds)},
            delta=problem.delta,
            classifies=problem.kind == "binary",
            scored=lambda predictions: predictions,
        )
        return ebm(task, {}, epsilon, seed)
