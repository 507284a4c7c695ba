"""Records on which no private LASSO can be good."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue

__all__ = ["HardRecords", "PaddedTardos"]

SHARES = np.geomspace(0.01, 0.8, 60)  # of code columns, among which `hardest` chooses


class HardRecords(NamedTuple):
    """Rows X of signs (and of zeros, which say nothing), targets y, and the biases of the columns.

    The first ``users`` rows are the users'. A column with bias 1 or -1 is padding.
    """

    X: npt.NDArray[np.int8]
    y: Vector
    biases: Vector


@dataclass(frozen=True)
class PaddedTardos:
    """A law of records for the LASSO over ||theta||_1 <= 1 that privacy makes hard.

    w users with targets 1 and signs x_jc = +-1 of mean m_c; k rows with targets 0 whose p columns are
    orthogonal signs; so 2 n F(theta) = sum_j (<x_j, theta> - 1)^2 + k ||theta||_2^2

    The best theta spreads over all columns and needs the sign of each. In padding columns all users agree; in
    the others, a Tardos code, m_c has the arcsine law. A private algorithm cannot tell them apart, and
    whatever follows the signs of the padding betrays users by the code.

    Algorithm: the records of [TTZ14] Theorem 5.8 with the padded code of Theorem 5.9, both in [TTZ15] too.

    Utility: a lower bound for every (eps, delta)-private algorithm (replace-one), at every n. Let s be the
    share of code columns, o = 1 - s, kappa = k/(w p), and f_c = clip(p theta_c/b, -1, 1) for any b > 0.
    (i) For any f in [-1, 1]^p that is a function of the records, and g_jc = (x_jc - m_c)/sqrt(1 - m_c^2), the
    mean of sum_j f_c g_jc over code columns is 2/pi times the mean of f_c m_c over padding, by integrating
    E[f_c | m_c] by parts under the arcsine law: columns are drawn alike, independently. (ii) Of a fresh row,
    sum_c f_c g_jc has mean 0 and variance at most s p; so of user j's it has mean at most
    sinh(eps) sqrt(s p) + 4 delta s p/pi, if f is private. Hence a = E sum_padding f_c m_c / p is at most
    o (pi w/2) (sinh(eps)/sqrt(s p) + 4 delta/pi). (iii) As (v - u)_+ <= v^2/(4 u), a score is on average at
    most b a + p ||theta||^2/(4 b) over padding and sqrt(s p) ||theta|| over the code. With
    b = A/(2 (kappa + s)), A = 1/(1 + a/(2 (kappa + s))), this makes E 2 n F at least w A^2 kappa/(kappa + s).
    (iv) theta_c = m_c/(p (kappa + o)) on padding has E 2 n F = w kappa/(kappa + o) plus the variance of the
    number of columns. The difference is `lower_bound`; chosen by `hardest` it falls like (n eps)^(-2/3).

    Deviations: the paper's theorem is for n large enough to make the code secure with p = 1000 m^2 columns,
    w = m/log m and k = w p/1000 >= p rows, which needs w >= 1000, p about 10^11 and n as large; its constant
    is then 1.6e-5 w/n. (Its n = w + w p should be w + w p/1000, which changes no rate.) Here users' scores
    are compared in expectation instead of accusing one, and the lemma about signs is replaced by (iii), so
    that neither tail bounds nor a share of 1/1000 are needed: the bound is stated for every n, without the
    logarithm in 1/(n log n)^(2/3), and the biases need no cut-off. Columns are code or padding independently,
    instead of fixed numbers in random order, which makes (i) exact.

    Parameters
    ----------
    n : int
        Number of records.
    p : int
        Number of features.
    users : int
        w; at least 1.
    share : float
        s, between 0 and 1; at most kappa.
    """

    n: int
    p: int
    users: int
    share: float

    def __post_init__(self) -> None:
        if self.p < 1 or self.users < 1:
            raise WrongValue(f"p and users must be at least 1, got p={self.p}, users={self.users}.")
        if self.anchors == 0:
            raise WrongValue(
                f"{self.p} orthogonal columns of signs need {_order(self.p)} rows beside the {self.users} of "
                f"users, got n={self.n}: use n at least {_order(self.p) + self.users}, or a smaller p."
            )
        if not 0 < self.share <= min(self._kappa, 1):
            raise WrongValue(f"share must be positive and at most {min(self._kappa, 1)}, got {self.share!r}.")

    @classmethod
    def hardest(cls, n: int, p: int, *, epsilon: float, delta: float) -> PaddedTardos:
        """Return the instance of this size with the largest lower bound, over users and share."""
        most = n - _order(p)
        if p < 1 or most < 1:
            raise WrongValue(
                f"{p} features need n at least {_order(max(p, 1)) + 1}, got n={n}: use more records, or a "
                "smaller p."
            )
        candidates = [
            cls(n, p, int(users), float(share))
            for users in np.unique(np.geomspace(1, most, 80).astype(int))
            for share in SHARES
            if share <= _anchors(n, p, int(users)) / (users * p)
        ]
        if not candidates:
            raise WrongValue(f"no share of code columns fits n={n}, p={p}: use more records.")
        return max(candidates, key=lambda instance: instance.lower_bound(epsilon, delta))

    @property
    def anchors(self) -> int:
        """Number k of rows with targets 0 and orthogonal columns."""
        return _anchors(self.n, self.p, self.users)

    @property
    def _kappa(self) -> float:
        return self.anchors / (self.users * self.p)

    def agreement(self, epsilon: float, delta: float) -> float:
        """Bound on E (1/p) sum_c f_c m_c over padding columns, for every private f in [-1, 1]^p."""
        betrayal = math.sinh(epsilon) / math.sqrt(self.share * self.p) + 4 * delta / math.pi
        return (1 - self.share) * min(1.0, math.pi * self.users / 2 * betrayal)

    def lower_bound(self, epsilon: float, delta: float) -> float:
        """Bound from below, for every private algorithm, its mean excess risk over draws; below 0 if void."""
        s, o, kappa = self.share, 1 - self.share, self._kappa
        A = 1 / (1 + self.agreement(epsilon, delta) / (2 * (kappa + s)))
        gap = A**2 / (kappa + s) - 1 / (kappa + o) - s * o / (kappa * self.p * (kappa + o) ** 2)
        return self.users * kappa * gap / (2 * self.n)

    def draw(self, rng: np.random.Generator) -> HardRecords:
        """Return records: users first, then orthogonal rows, then zeros up to n."""
        from scipy.linalg import hadamard

        X = np.zeros((self.n, self.p), dtype=np.int8)
        X[: self.users], biases = self.draw_users(rng)
        order = _order(self.p)
        block = hadamard(order, dtype=np.int8)[:, : self.p]
        X[self.users : self.users + self.anchors] = np.tile(block, (self.anchors // order, 1))
        y = np.zeros(self.n)
        y[: self.users] = 1.0
        return HardRecords(X, y, biases)

    def draw_users(self, rng: np.random.Generator) -> tuple[npt.NDArray[np.int8], Vector]:
        """Return the padded code alone: the users' signs, and the biases of the columns."""
        biases = np.sign(rng.random(self.p) - 0.5)
        code = rng.random(self.p) < self.share
        biases[code] = np.sin(np.pi * (rng.random(int(code.sum())) - 0.5))  # the arcsine law on [-1, 1]
        signs = np.where(rng.random((self.users, self.p)) < (1 + biases) / 2, 1, -1)
        return signs.astype(np.int8), biases


def _order(p: int) -> int:
    """Smallest power of 2 that is at least p: so many rows let p columns of signs be orthogonal."""
    return 1 << (p - 1).bit_length()


def _anchors(n: int, p: int, users: int) -> int:
    return max(0, (n - users) // _order(p) * _order(p))
