"""Accuracy on rcv1 with 1,000 public documents, and with documents that mislead.

The public documents are the first 1,000 of those to test on, without labels; the others are tested on.
"Shuffled" documents have their words permuted, "one word" ones consist of a single rare word.
"""

import argparse
import warnings

import numpy as np
import scipy.sparse as sp

from datasets import load

PUBLIC = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    task = load("rcv1")
    honest, X_test, y_test = task.X_test[:PUBLIC], task.X_test[PUBLIC:], task.y_test[PUBLIC:]
    words = np.random.default_rng(0).permutation(task.X.shape[1])
    rare = int(np.argmin(np.asarray(task.X.sum(axis=0)).ravel()))
    one = sp.csr_matrix((np.ones(PUBLIC), (np.arange(PUBLIC), np.full(PUBLIC, rare))), shape=honest.shape)
    public = {"none": None, "honest": honest, "shuffled": sp.csr_matrix(honest[:, words]), "one word": one}
    for epsilon in options.epsilons:
        for name, rows in public.items():
            scores = []
            for seed in range(options.seeds):
                model = task.estimator(epsilon=epsilon, random_state=seed, public=rows).fit(task.X, task.y)
                scores.append(float(np.mean(model.predict(X_test) == y_test)))
            error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if scores[1:] else 0.0
            print(f"epsilon {epsilon:<4g} {name:<9} {np.mean(scores):.4f} +- {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
