"""Compiled integer kernels of the data plane, typed by numba; imported only when records are read.

Every function treats one row at a time or adds exact integers, so blocks, threads and order cannot change an
answer. Matrices of margins, residuals and sums hold one row per output: (K, n) and (K, d).
"""

from dpcvx.data.kernels.additive import accumulate_products, quantise_additive
from dpcvx.data.kernels.jit import compiled
from dpcvx.data.kernels.moments import add_moments
from dpcvx.data.kernels.passes import (
    accumulate_constant,
    difference_dense,
    difference_sparse,
    gradient_columns,
    gradient_dense,
    gradient_sparse,
    whole_margins,
)
from dpcvx.data.kernels.products import (
    accumulate_columns,
    accumulate_dense,
    accumulate_sparse,
    add_dense,
    add_sparse,
    multiply_columns,
    multiply_dense,
    multiply_sparse,
)
from dpcvx.data.kernels.quantise import quantise_dense, quantise_sparse
from dpcvx.data.kernels.residuals import bind, block_residuals, compile_slope, residuals_of

__all__ = [
    "accumulate_columns",
    "accumulate_constant",
    "accumulate_dense",
    "accumulate_products",
    "accumulate_sparse",
    "add_dense",
    "add_moments",
    "add_sparse",
    "bind",
    "block_residuals",
    "compile_slope",
    "compiled",
    "difference_dense",
    "difference_sparse",
    "gradient_columns",
    "gradient_dense",
    "gradient_sparse",
    "multiply_columns",
    "multiply_dense",
    "multiply_sparse",
    "quantise_additive",
    "quantise_dense",
    "quantise_sparse",
    "residuals_of",
    "whole_margins",
]
