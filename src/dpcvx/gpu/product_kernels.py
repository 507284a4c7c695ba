"""Triton kernels for products of stored integers with one vector; importing triton.

Rows are 8-bit or 16-bit integers, vectors 32-bit, sums 64-bit. A tile may reach beyond the last column, into
the next row or, after the last one, into what `DenseOnDevice` leaves free there: what is read in that place
is multiplied by 0 or not written. Without masks the loads are as wide and as early as memory allows.
"""

# Triton gives the kernels their types when it compiles them.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn.functional import pad


class Tile(NamedTuple):
    """Tile size in rows and columns, number of warps, and number of tiles loaded ahead."""

    height: int
    width: int
    warps: int
    stages: int


# The fastest of those tried on an H200. No answer depends on them.
MARGIN_TILE = Tile(8, 512, 4, 4)
SUM_TILE = Tile(16, 256, 4, 3)
ROWS_AT_ONCE = 2048  # rows that one program adds up before it writes


@triton.jit
def _margins(
    rows, vector, out, n, d, stride, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr
):
    """out[i] = <rows[i], vector> for HEIGHT rows; the vector is 0 beyond d."""
    i = tl.program_id(0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
    at = rows + tl.minimum(i, n - 1)[:, None] * stride
    total = tl.zeros((HEIGHT, WIDTH), dtype=tl.int64)
    for left in tl.range(0, d, WIDTH, num_stages=STAGES):
        j = left + tl.arange(0, WIDTH)
        weights = tl.load(vector + j)
        tile = tl.load(at + j[None, :])
        total += tile.to(tl.int64) * weights.to(tl.int64)[None, :]
    tl.store(out + i, tl.sum(total, axis=1), mask=i < n)


@triton.jit
def _sums(
    rows, vector, out, n, d, stride, at_once, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr
):
    """out[j] += sum_i vector[i] rows[i, j] for WIDTH columns and `at_once` rows; the vector is 0 beyond n."""
    j = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    first = tl.program_id(1).to(tl.int64) * at_once
    total = tl.zeros((HEIGHT, WIDTH), dtype=tl.int64)
    for top in tl.range(0, at_once, HEIGHT, num_stages=STAGES):
        i = first + top + tl.arange(0, HEIGHT)
        weights = tl.load(vector + i)
        tile = tl.load(rows + tl.minimum(i, n - 1)[:, None] * stride + j[None, :])
        total += tile.to(tl.int64) * weights.to(tl.int64)[:, None]
    # Integers add up to the same sum in any order.
    tl.atomic_add(out + j, tl.sum(total, axis=0), mask=j < d)


def margins(rows: torch.Tensor, vector: torch.Tensor, out: torch.Tensor, tile: Tile = MARGIN_TILE) -> None:
    """out[i] = <rows[i], vector>."""
    n, d = rows.shape
    _margins[(triton.cdiv(n, tile.height),)](
        rows,
        pad(vector, (0, -d % tile.width)),
        out,
        n,
        d,
        rows.stride(0),
        HEIGHT=tile.height,
        WIDTH=tile.width,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )


def add_sums(
    rows: torch.Tensor,
    vector: torch.Tensor,
    out: torch.Tensor,
    tile: Tile = SUM_TILE,
    at_once: int = ROWS_AT_ONCE,
) -> None:
    """out[j] += sum_i vector[i] rows[i, j]."""
    n, d = rows.shape
    _sums[(triton.cdiv(d, tile.width), triton.cdiv(n, at_once))](
        rows,
        pad(vector, (0, -n % at_once)),
        out,
        n,
        d,
        rows.stride(0),
        at_once,
        HEIGHT=tile.height,
        WIDTH=tile.width,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
