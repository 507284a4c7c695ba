"""Fit a private logistic regression and print its privacy statement."""

import numpy as np

from dpcvx import PrivateLogisticRegression

rng = np.random.default_rng(0)  # synthetic people: age and weekly hours; do they own a home?
age, hours = rng.uniform(18, 90, 20_000), rng.uniform(0, 60, 20_000)
owns = (0.06 * age + 0.03 * hours + rng.logistic(size=20_000) > 4.2).astype(int)
people = np.column_stack([age, hours])

model = PrivateLogisticRegression(epsilon=1.0, bounds=([18, 0], [90, 60]), classes=(0, 1))
model.fit(people, owns)
print(model.predict_proba([[30, 40], [60, 20]]))
print(model.plan_)
print(model.privacy_statement_)
