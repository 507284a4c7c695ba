"""Random number of trials of a search; it stays secret, because the price depends on its law."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

from dpcvx.accounting.repetition import poisson_rate, success_probability

if TYPE_CHECKING:
    from dpcvx.noise import Generator

__all__ = ["LAWS", "LAW_FAILURE", "repetitions"]

LAWS: dict[str, float | None] = {"geometric": 1.0, "logarithmic": 0.0, "poisson": None}
LAW_FAILURE = 2.0**-128  # total variation of a draw: 192 random bits, chances in 60 digits
_DIGITS = 60
_WORDS = 3


def repetitions(mean: float, shape: float | None, rng: Generator) -> int:
    """Draw K >= 1 by inversion: the first k at which the sum of P(1), ..., P(k) exceeds a uniform number.

    `mean`: expected number, more than 1; `shape`: of the truncated negative binomial law; None for Poisson's
    law, conditioned on K >= 1.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        uniform = Decimal(0)
        for word in rng.words(_WORDS).tolist():
            uniform = (uniform + word) / 2**64
        chance, ratio = _first(mean, shape)
        k, left = 1, uniform - chance
        # Beyond the mean every law's chances fall; before it those of Poisson's may be small and still rise.
        while left >= 0 and (k < mean or chance > Decimal(10) ** -_DIGITS):
            k += 1
            chance *= ratio * ((k - 1 + Decimal(shape)) / k) if shape is not None else ratio / k
            left -= chance
    return k


def _first(mean: float, shape: float | None) -> tuple[Decimal, Decimal]:
    """P(1), and the constant part of P(k) / P(k-1), from the same floats that the accountant reads."""
    if shape is None:
        rate = Decimal(poisson_rate(mean))
        return rate / (rate.exp() - 1), rate
    success = Decimal(success_probability(mean, shape))
    if shape == 0:
        return (1 - success) / -success.ln(), 1 - success
    return Decimal(shape) * (1 - success) / (success ** -Decimal(shape) - 1), 1 - success
