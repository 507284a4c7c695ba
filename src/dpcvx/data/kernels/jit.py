"""Compiler options of the kernels, in one place."""

from __future__ import annotations

from numba import njit

__all__ = ["compiled"]

# Threads run side by side, and a division by zero is an infinity: no record raises.
compiled = njit(cache=True, nogil=True, error_model="numpy")
