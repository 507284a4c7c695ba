"""Exact accounting of Gaussian releases.

A release with sensitivity Delta and standard deviation sigma is mu-GDP with mu = Delta / sigma, mu^2 adds
over adaptive releases, and mu-GDP is (epsilon, delta)-DP iff delta_G(epsilon; mu) <= delta with

    delta_G(epsilon; mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import erfcx, log_ndtr

from dpcvx.accounting.accountant import accepted_leaves, accepts, require_delta, require_epsilon
from dpcvx.accounting.inversion import first_passing
from dpcvx.errors import WrongValue
from dpcvx.events import Event, Gaussian

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SMALL_MU = 1e-5  # where subtraction and midpoint rule are both good to about 1e-11


def _mills(t: float) -> float:
    """Return Phi(-t) / phi(t) without underflow."""
    return math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))


def _log_delta(epsilon: float, mu: float) -> float:
    """Return log delta_G(epsilon; mu), stable down to delta = 1e-300 and up to epsilon = 1e3."""
    upper = mu / 2 - epsilon / mu
    lower = -mu / 2 - epsilon / mu
    if upper < 0 or mu < _SMALL_MU:
        # e^epsilon phi(lower) = phi(upper), so the common factor phi(upper) is taken out before subtracting.
        # For small mu the difference is mu times the downward slope of the Mills ratio at the midpoint.
        if mu < _SMALL_MU:
            difference = mu * (1 - epsilon / mu * _mills(epsilon / mu))
        else:
            difference = _mills(-upper) - _mills(-lower)
        return -math.inf if difference <= 0 else -upper * upper / 2 - _LOG_SQRT_2PI + math.log(difference)
    first = float(log_ndtr(upper))
    ratio = epsilon + float(log_ndtr(lower)) - first
    return first + math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta_G(epsilon; mu), the smallest delta of a mu-GDP release."""
    if not (mu > 0 and math.isfinite(mu)):
        raise WrongValue(f"mu is {mu!r}; it must be a positive finite number.")
    require_epsilon(epsilon)
    return math.exp(_log_delta(epsilon, mu))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 with delta_G(epsilon; mu) <= delta."""
    require_delta(delta)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0:
        return math.inf
    log_delta = math.log(delta)
    # mu-GDP is (mu^2/2)-zCDP, whose textbook conversion is above the exact value: a bracket.
    upper = mu * mu / 2 + mu * math.sqrt(-2 * log_delta)
    return first_passing(
        lambda epsilon: _log_delta(epsilon, mu) - log_delta, 0.0, upper, tolerance=1e-14 * upper
    )


@lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with delta_G(epsilon; mu) <= delta.

    T releases of sensitivity Delta then need noise of standard deviation Delta sqrt(T) / mu.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    if delta == 0:
        raise WrongValue("delta is 0; Gaussian noise needs delta > 0.")
    log_delta = math.log(delta)
    # The textbook conversion of zCDP is private; from there the first failing mu is a few doublings away.
    # epsilon = 0 makes it vanish, where delta_G(0; mu) <= mu / sqrt(2 pi) takes over.
    root_rho = epsilon / (math.sqrt(epsilon - log_delta) + math.sqrt(-log_delta))
    passes = max(math.sqrt(2) * root_rho, delta * math.sqrt(2 * math.pi))
    fails = 1.5 * passes
    while _log_delta(epsilon, fails) <= log_delta:
        passes, fails = fails, 1.5 * fails

    def excess(log_mu: float) -> float:
        return _log_delta(epsilon, math.exp(log_mu)) - log_delta

    return math.exp(first_passing(excess, math.log(fails), math.log(passes), tolerance=1e-14))


@dataclass(frozen=True)
class GDP:
    """Exact accounting of any number of Gaussian releases: mu_total^2 = sum 1 / noise_multiplier^2."""

    def _mu(self, event: Event) -> float:
        leaves = accepted_leaves(event, (Gaussian,), self)
        squares = (n / leaf.noise_multiplier**2 for leaf, n in leaves.items() if isinstance(leaf, Gaussian))
        return math.sqrt(math.fsum(squares))

    def epsilon(self, event: Event, delta: float) -> float:
        """Return the smallest epsilon at delta."""
        return gaussian_epsilon(self._mu(event), delta)

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the smallest delta at epsilon."""
        return gaussian_delta(epsilon, self._mu(event))

    def supports(self, event: Event) -> bool:
        """Say whether every part is `Gaussian`."""
        return accepts(event, (Gaussian,))
