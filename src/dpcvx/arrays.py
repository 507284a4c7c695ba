"""Type aliases for arrays."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]  #: real numbers, shape (d,), or (d, K) for several outputs
IntVector: TypeAlias = NDArray[np.int64]  #: exact integers on the lattice of the data plane, same shapes
Shape: TypeAlias = int | tuple[int, ...]  #: of a Vector: d, or (d, K)
