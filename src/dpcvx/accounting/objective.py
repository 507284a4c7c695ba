"""Objective perturbation of GLM losses (PRIVACY_MATH §4).

With a = L B_2/sigma, Jac = log(1 + beta B_2^2/Lam), e~ = epsilon - Jac and the Gaussian profile delta_G,

    add/remove:  delta = 2 (Phi(-z0) - e^{e~} Phi(-z0 - a)),  z0 = max(0, e~/a - a/2)
                 delta = max(2 delta_G(epsilon; a), delta_G(e~; a))    where e~ >= a^2/2, which is sharper
    replace:     delta = 2 delta_G(e~; 2a)                             where e~ >= 2a sqrt(1 + a^2)

and no claim at all (delta = 1) under replace below that condition. Of persons, whose gradient is a weighted
mean of those of rows and whose curvature may have any rank, Jac = d log(1 + beta B_2^2/(d Lam)) and

    delta = 2 (m phi(z) - (e~ - m^2/2) Phi(-z)),  z = e~/m - m/2, m = 2a (replace) or a (add/remove)

under the same conditions (PRIVACY_MATH §16).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from dpcvx.accounting.accountant import accepted_leaves, accepts, require_delta, require_epsilon
from dpcvx.accounting.gaussian import gaussian_delta, gaussian_epsilon
from dpcvx.accounting.inversion import first_passing
from dpcvx.accounting.neighbours import Neighbours
from dpcvx.arrays import Vector
from dpcvx.events import Event, Gaussian, PerturbedObjective

OUTPUT_SHARE = 0.01  # PRIVACY_MATH §4: share of epsilon and delta for the Gaussian that covers inexactness
_SMALLEST_DELTA = 1e-300


def objective_delta(epsilon: float, event: PerturbedObjective, *, sharp: bool = True) -> float:
    """Return the privacy profile of one perturbed objective.

    `sharp`: whether the two directions of add/remove are bounded apart; False gives the plain theorem.
    """
    require_epsilon(epsilon)
    a, left = event.shift, epsilon - event.jacobian
    if event.unit == "person":
        return _person_delta(left, event)
    if Neighbours(event.relation).replaces:
        if left < _least_replace(a):
            return 1.0
        return min(1.0, 2 * gaussian_delta(left, 2 * a))
    if left < a * a / 2:  # z0 = 0: the loss may be anywhere in the half-normal
        return min(1.0, 1 - math.exp(left) * 2 * float(ndtr(-a)))
    if sharp:
        return min(1.0, max(2 * gaussian_delta(epsilon, a), gaussian_delta(left, a)))
    return min(1.0, 2 * gaussian_delta(left, a))


def objective_epsilon(event: PerturbedObjective, delta: float) -> float:
    """Return the smallest epsilon >= 0 whose profile is at most delta."""
    require_delta(delta)
    a, jacobian = event.shift, event.jacobian
    if delta == 0:
        return math.inf
    if event.unit == "person":
        least = _least(event)
        if _person_delta(least, event) <= delta:
            return jacobian + least

        def excess(left: float) -> float:
            return _person_delta(left, event) - delta

        most = 2 * least + 1.0
        while excess(most) > 0:
            most *= 2
        return jacobian + first_passing(excess, least, most, tolerance=1e-12)
    if Neighbours(event.relation).replaces:
        return jacobian + max(_least_replace(a), gaussian_epsilon(2 * a, delta / 2))
    if delta >= 1 - math.exp(a * a / 2) * 2 * float(ndtr(-a)):
        return max(0.0, jacobian + math.log1p(-delta) - math.log(2) - float(log_ndtr(-a)))
    both_tails, one_tail = gaussian_epsilon(a, delta / 2), gaussian_epsilon(a, delta)
    return max(both_tails, jacobian + max(a * a / 2, one_tail))


def _least_replace(a: float) -> float:
    """Return the e~ from which the worst pair of replaced records is known: x' = x or x' = -x."""
    return 2 * a * math.sqrt(1 + a * a)


def _least(event: PerturbedObjective) -> float:
    """Return the e~ from which the profile of persons is proved."""
    a = event.shift
    return _least_replace(a) if Neighbours(event.relation).replaces else a * a / 2


def _person_delta(left: float, event: PerturbedObjective) -> float:
    """Return twice the mean of (m Z + m^2/2 - left)_+ for a normal Z; 1 where nothing is proved."""
    if left < _least(event):
        return 1.0
    m = (2 if Neighbours(event.relation).replaces else 1) * event.shift
    z = left / m - m / 2
    # m (phi(z) - z Phi(-z)) = m phi(z) (1 - z R(z)) with Mills' ratio R, which loses no digits in the tail.
    mills = math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return min(1.0, 2 * m * density * max(0.0, 1 - z * mills))


def objective_renyi(orders: Vector, event: PerturbedObjective) -> Vector:
    """Return R(alpha): the half-normal's moment under add/remove, a bound by two of them under replace.

    add/remove:  Jac + alpha a^2/2 + log(2 Phi((alpha-1) a)) / (alpha-1)
    replace:     Jac + log(2 (1 + e^{2 alpha (alpha-1) a^2})) / (alpha-1)

    The same for persons: the moment is a convex function of the loss, and that of a person is at most a mean
    of those of rows.
    """
    a, less = event.shift, orders - 1
    if not Neighbours(event.relation).replaces:
        return event.jacobian + orders * a * a / 2 + (math.log(2) + log_ndtr(less * a)) / less
    return event.jacobian + (math.log(2) + np.logaddexp(0.0, 2 * orders * less * a * a)) / less


@dataclass(frozen=True)
class ObjectiveProfile:
    """Profiles of perturbed objectives, and Gaussian releases beside them, by basic composition.

    A hundredth of delta is for the Gaussian releases together, the rest is shared evenly by the objectives.
    For one objective and the small Gaussian noise on its output this loses next to nothing.
    """

    def epsilon(self, event: Event, delta: float) -> float:
        """Return an upper bound on epsilon at delta."""
        require_delta(delta)
        leaves = accepted_leaves(event, (PerturbedObjective, Gaussian), self)
        objectives = {leaf: n for leaf, n in leaves.items() if isinstance(leaf, PerturbedObjective)}
        squares = [n / leaf.noise_multiplier**2 for leaf, n in leaves.items() if isinstance(leaf, Gaussian)]
        if not objectives:
            return gaussian_epsilon(math.sqrt(math.fsum(squares)), delta)
        gaussian = 0.0
        if squares:
            gaussian = gaussian_epsilon(math.sqrt(math.fsum(squares)), OUTPUT_SHARE * delta)
            delta *= 1 - OUTPUT_SHARE
        each = delta / sum(objectives.values())
        return gaussian + math.fsum(n * objective_epsilon(leaf, each) for leaf, n in objectives.items())

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the smallest delta at which `epsilon` gives no more than this."""
        require_epsilon(epsilon)

        def excess(log_delta: float) -> float:
            return self.epsilon(event, math.exp(log_delta)) - epsilon

        smallest, largest = math.log(_SMALLEST_DELTA), math.log1p(-1e-12)
        if excess(largest) > 0:
            return 1.0
        if excess(smallest) <= 0:
            return _SMALLEST_DELTA
        return math.exp(first_passing(excess, smallest, largest, tolerance=1e-12))

    def supports(self, event: Event) -> bool:
        """Say whether every part is `PerturbedObjective` or `Gaussian`."""
        return accepts(event, (PerturbedObjective, Gaussian))
