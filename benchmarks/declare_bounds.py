"""Write declared_bounds.json: the bounds that the benchmarks declare for each task.

They stand for what a user knows beforehand: minima and maxima of the data, rounded outward to two significant
digits, one pair for all features where the records are sparse or pixels. A column that never varies gets room
of 1 above. Norms of rows are those that the sets are published with: 14 ones, unit norm; 8 clips most digits.
"""

import json
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
import scipy.sparse as sp

from datasets import DECLARED, SPLITS

NORMS = {"a9a": math.nextafter(math.sqrt(14), math.inf), "rcv1": 1.0, "mnist": 8.0}
REGRESSIONS = ("california_housing", "blogfeedback", "communities_crime")


def rounded(value: float, rounding: str) -> float:
    """Round to two significant digits; the value is read as its single-precision text, as it was stored."""
    exact = Decimal(str(np.float32(value)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding)) if exact else 0.0


def pair(values: np.ndarray) -> tuple[float, float]:
    low, high = rounded(values.min(), ROUND_FLOOR), rounded(values.max(), ROUND_CEILING)
    return (low, high) if low < high else (low, low + 1)


def declared(name: str) -> dict:
    X, y, X_test, y_test = SPLITS[name]()
    labels = np.concatenate([y, y_test])
    if sp.issparse(X) or name == "mnist":
        parts = [part.data if sp.issparse(part) else part.ravel() for part in (X, X_test)]
        bounds = pair(np.concatenate([*parts, [0.0]]))
    else:
        columns = [pair(column) for column in np.concatenate([X, X_test]).T]
        bounds = tuple([each[side] for each in columns] for side in (0, 1))
    facts = {"bounds": bounds}
    if name in NORMS:
        facts["data_norm"] = NORMS[name]
    if name in REGRESSIONS:
        return {**facts, "y_bounds": pair(labels)}
    return {**facts, "classes": np.unique(labels).tolist()}


def main() -> None:
    lines = []
    for name in SPLITS:
        facts = declared(name)
        lines.append(f"{json.dumps(name)}: {json.dumps(facts)}")
        print(f"{name}: {np.size(facts['bounds']) // 2} pair(s) of bounds")
    DECLARED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"declared bounds: benchmarks/{DECLARED.name}")


if __name__ == "__main__":
    main()
