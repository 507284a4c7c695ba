"""GPU computations with torch that involve neither records nor noise, such as exact integer products.

Integers are the same as on the CPU bit for bit; what is computed in
floating point is post-processing of released values.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

from dpcvx.errors import Incompatible

if TYPE_CHECKING:
    import torch

__all__ = ["BACKENDS", "find_device"]

BACKENDS = ("auto", "torch")  # names that objects without records take


@cache
def find_device() -> torch.device | None:
    """Return the GPU, or None with a warning, once in a process, that says why there is none."""
    try:
        import torch
    except ImportError:
        raise Incompatible(
            'backend="torch" needs torch, which is not installed: pip install "dpcvx[torch]", '
            'or use backend="auto", which gives the same integer sums on the CPU.'
        ) from None
    with warnings.catch_warnings(record=True) as said:  # torch warns of a driver that is too old
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        return torch.device("cuda")
    cause = str(said[0].message).splitlines()[0] if said else "it sees no NVIDIA driver or no device"
    if torch.version.cuda is None:
        cause = "it was built without CUDA"
    warnings.warn(
        f'backend="torch" found no GPU, so the CPU does the work, with the same integer sums: torch '
        f"{torch.__version__} is installed, but {cause}.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
