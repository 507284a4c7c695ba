"""Singular vectors of a public matrix on a torch device, in float64."""

from __future__ import annotations

import numpy as np
import torch

from dpcvx.arrays import Vector

__all__ = ["leading_pair"]

SQUARINGS = 30  # the Gram matrix to the power 2^30: what is below the largest by 10^-7 is gone


def leading_pair(matrix: Vector, device: torch.device) -> tuple[Vector, Vector]:
    """Return unit vectors u, v with <u, matrix v> the largest singular value, up to 1e-8 of it.

    The Gram matrix of the shorter side is squared until it is a projection: products of matrices are what a
    GPU is best at. Its largest column v has, for a size m and after k squarings, v^T G v >= sigma_1^2 (1 -
    log(m) 2^-k) / |v|^2, whatever the gaps between singular values.

    `matrix`: shape (m, n).
    """
    g = torch.from_numpy(np.ascontiguousarray(matrix)).to(device)
    short = g if g.shape[0] <= g.shape[1] else g.T
    largest = short.abs().max()
    if not largest > 0:
        return np.eye(matrix.shape[0])[0], np.eye(matrix.shape[1])[0]
    gram = (short / largest) @ (short / largest).T
    for _ in range(SQUARINGS):
        gram = gram / gram.trace()
        gram = gram @ gram
    left = gram[:, gram.diagonal().argmax()]
    left = left / left.norm()
    right = short.T @ left
    right = right / right.norm()
    pair = (left, right) if short is g else (right, left)
    return pair[0].cpu().numpy(), pair[1].cpu().numpy()
