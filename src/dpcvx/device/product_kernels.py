"""Triton kernels for products of stored integers with one vector; importing triton.

Rows are 8-bit or 16-bit integers whose stride is a multiple of 16, vectors 32-bit; sums have 64 bits.
"""

# Triton gives the kernels their types when it compiles them.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# Rows and columns of a tile, and the warps that share it: the fastest of those tried on an H200. No answer
# depends on them.
MARGIN_TILE = (8, 512, 4)
SUM_TILE = (16, 512, 4)
ROWS_AT_ONCE = 1024  # rows that one program adds up before it writes


@triton.jit
def _margins(rows, vector, out, n, d, stride, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """out[i] = <rows[i], vector> for HEIGHT rows."""
    i = tl.program_id(0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
    total = tl.zeros((HEIGHT, WIDTH), dtype=tl.int64)
    for left in range(0, d, WIDTH):
        j = left + tl.arange(0, WIDTH)
        weights = tl.load(vector + j, mask=j < d, other=0)
        inside = (i < n)[:, None] & (j < d)[None, :]
        tile = tl.load(rows + i[:, None] * stride + j[None, :], mask=inside, other=0)
        total += tile.to(tl.int64) * weights.to(tl.int64)[None, :]
    tl.store(out + i, tl.sum(total, axis=1), mask=i < n)


@triton.jit
def _sums(rows, vector, out, n, d, stride, height, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """out[j] += sum_i vector[i] rows[i, j] for WIDTH columns and `height` rows."""
    j = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    first = tl.program_id(1).to(tl.int64) * height
    total = tl.zeros((HEIGHT, WIDTH), dtype=tl.int64)
    for top in range(0, height, HEIGHT):
        i = first + top + tl.arange(0, HEIGHT)
        weights = tl.load(vector + i, mask=i < n, other=0)
        inside = (i < n)[:, None] & (j < d)[None, :]
        tile = tl.load(rows + i[:, None] * stride + j[None, :], mask=inside, other=0)
        total += tile.to(tl.int64) * weights.to(tl.int64)[:, None]
    # Integers add up to the same sum in any order.
    tl.atomic_add(out + j, tl.sum(total, axis=0), mask=j < d)


def margins(rows: torch.Tensor, vector: torch.Tensor, out: torch.Tensor, tile: Any = MARGIN_TILE) -> None:
    """out[i] = <rows[i], vector>."""
    n, d = rows.shape
    height, width, warps = tile
    _margins[(triton.cdiv(n, height),)](
        rows, vector, out, n, d, rows.stride(0), HEIGHT=height, WIDTH=width, num_warps=warps
    )


def add_sums(
    rows: torch.Tensor,
    vector: torch.Tensor,
    out: torch.Tensor,
    tile: Any = SUM_TILE,
    at_once: int = ROWS_AT_ONCE,
) -> None:
    """out[j] += sum_i vector[i] rows[i, j]."""
    n, d = rows.shape
    height, width, warps = tile
    grid = (triton.cdiv(d, width), triton.cdiv(n, at_once))
    _sums[grid](rows, vector, out, n, d, rows.stride(0), at_once, HEIGHT=height, WIDTH=width, num_warps=warps)
