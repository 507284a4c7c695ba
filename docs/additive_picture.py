"""Draw the picture of the page on additive models: shapes of made-up people, fitted privately.

python docs/additive_picture.py
"""

from pathlib import Path

import numpy as np
import pandas as pd

from dpcvx import PrivateAdditiveClassifier

PICTURE = Path(__file__).resolve().parent / "images" / "additive_shapes.png"


def main() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    table = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "income": rng.lognormal(3, 0.6, n).clip(0, 200),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    log_odds = ((table["age"] - 45) / 20) ** 2 - np.log(table["income"]) + 2 + 0.5 * (table["sex"] == "m")
    ill = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    model = PrivateAdditiveClassifier(
        epsilon=1.0,
        bounds={"age": (18, 90), "income": (0, 200)},
        categories={"sex": ["f", "m"]},
        classes=(False, True),
        random_state=0,
    )
    model.fit(table, ill).plot(PICTURE)


if __name__ == "__main__":
    main()
