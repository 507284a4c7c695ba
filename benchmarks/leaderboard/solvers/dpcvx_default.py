"""dpcvx with every default: the estimator that the documentation names for the task."""

import numpy as np

from leaderboard.objective import KINDS, LABELS

ESTIMATORS = {
    "binary": "PrivateLogisticRegression",
    "text": "PrivateLogisticRegression",
    "multiclass": "PrivateLogisticRegression",
    "regression": "PrivateLinearRegression",
    "sparse": "PrivateLasso",
    "additive": "PrivateAdditiveRegressor",
    "grouped": "PrivateGroupLasso",
    "several targets": "PrivateLowRankRegression",
    "quantile": "PrivateQuantileRegressor",
}
# Predictions from a table, by docs/how_to_choose.md: additive models, which are linear where records are few.
OF_TABLES = {"binary": "PrivateAdditiveClassifier", "regression": "PrivateAdditiveRegressor"}


class Solver:
    """This project. Nothing is set but what the task declares."""

    title = "dpcvx"
    kinds = KINDS
    private = True
    requirements = ()
    guarantee = "(ε, δ), replace-one"

    def settings(self, epsilon, kind):
        """Return the defaults."""
        return [{}]

    def fit(self, problem, epsilon, seed, **chosen):
        """Return predictions; `chosen` are other parameters, for benchmarks/time_to_accuracy.py alone."""
        import dpcvx

        if problem.kind == "queries":
            return self._answers(problem, epsilon, seed)
        X, X_test, declared = self._table(problem)
        declared |= chosen
        if problem.kind in LABELS:
            declared["classes"] = tuple(range(problem.n_classes))
        else:
            declared["y_bounds"] = tuple(problem.y_bounds)
        if problem.data_norm:
            declared["data_norm"] = problem.data_norm
        if problem.quantile:
            declared["quantile"] = problem.quantile
        if problem.groups.size:
            declared["groups"] = [np.flatnonzero(problem.groups == g) for g in np.unique(problem.groups)]
        if problem.radius:
            declared |= {"radius": problem.radius, "fit_intercept": False}
        names = {**ESTIMATORS, **OF_TABLES} if problem.table else ESTIMATORS
        model = getattr(dpcvx, names[problem.kind])(
            epsilon=epsilon, delta=problem.delta, random_state=seed, **declared
        ).fit(X, problem.y)
        if problem.kind in LABELS:
            return model.decision_function(X_test)
        return model.predict(X_test)

    def _table(self, problem):
        """Arrays with a pair of bounds for each column, or data frames with declared levels."""
        if not problem.levels.any():
            bounds = (0.0, 1.0) if problem.data_norm else tuple(problem.bounds)
            return problem.X, problem.X_test, {"bounds": bounds}
        import pandas

        frames = [pandas.DataFrame(X) for X in (problem.X, problem.X_test)]
        bounds, categories = {}, {}
        for j, levels in enumerate(problem.levels):
            if levels:
                categories[f"x{j}"] = [f"level {level}" for level in range(int(levels))]
            else:
                bounds[f"x{j}"] = tuple(problem.bounds[:, j])
        for frame in frames:
            frame.columns = [f"x{j}" for j in range(len(problem.levels))]
            for name in categories:
                frame[name] = [f"level {int(place)}" for place in frame[name]]
        return *frames, {"bounds": bounds, "categories": categories}

    def _answers(self, problem, epsilon, seed):
        """Coefficients of all queries from one engine."""
        from dpcvx.accounting import Budget
        from dpcvx.noise import SeededGenerator
        from dpcvx.queries import QueryEngine, Regression
        from queries import binary

        schema, table = binary(problem.X > 0)
        engine = QueryEngine(
            schema,
            table,
            Budget(epsilon, problem.delta),
            n_queries=len(problem.X_test),
            rng=SeededGenerator(seed),
        )
        found = []
        for target, *features in problem.X_test:
            query = Regression(f"x{target}", [f"x{feature}" for feature in features])
            found.append(engine.ask(query).coded)
        return np.array(found)
