"""diffprivlib: logistic regression by perturbed objectives, linear regression by a noisy Gram matrix."""

import numpy as np


class Solver:
    """IBM's library, version 0.6.6, which needs scikit-learn 1.6.

    It claims epsilon with delta = 0. The claim of LogisticRegression does not hold with an intercept, nor
    that of LinearRegression, whose centring spends more than epsilon: it is run as it claims. With
    1,000 columns a fit takes longer than 10 s and predicts nothing, so that it is not run there.
    """

    title = "diffprivlib"
    kinds = ("regression", "additive", "grouped", "binary", "multiclass", "several targets")
    private = True
    requirements = ("diffprivlib==0.6.6", "scikit-learn==1.6.*")
    guarantee = "claims (ε, 0)"

    def settings(self, epsilon, kind):
        """Strength of the ridge of classifiers."""
        return [{"C": 1.0}, {"C": 100.0}] if kind in ("binary", "multiclass") else [{}]

    def fit(self, problem, epsilon, seed, C=1.0):
        """Return predictions."""
        from diffprivlib.models import LinearRegression, LogisticRegression

        rows, new = problem.rows()
        if problem.kind in ("binary", "multiclass"):
            length = np.sqrt(rows.shape[1] - 1)
            model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=C, random_state=seed)
            model.fit(rows[:, :-1] / length, problem.y)
            return model.decision_function(new[:, :-1] / length)
        if not problem.radius:
            rows, new = rows[:, :-1], new[:, :-1]
        model = LinearRegression(
            epsilon=epsilon,
            bounds_X=(-1.0, 1.0),
            bounds_y=(-1.0, 1.0),
            fit_intercept=not problem.radius,
            random_state=seed,
        )
        return problem.in_units(model.fit(rows, problem.scaled_target()).predict(new))
