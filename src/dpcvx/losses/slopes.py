"""Slopes d phi/dz of one record, which the data plane compiles.

They are plain functions of +, -, *, / and comparisons, because those are the operations that every compiler
and every device rounds alike: a slope gives the same bits on every backend. The third argument is the loss's
`parameter`.
"""

from dpcvx.arrays import Vector

PACKING = 4096.0  # distance of two codes of a row's length in the targets of `BoundedInfluence`
LENGTHS = 16.0  # codes for one unit of a row's length
ROUNDING = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer
LARGEST_MEAN = 3.0  # of Poisson loss, in the units of the scaled target; larger means count as this one


def exp_basic(x: float) -> float:
    """Return e^x for x clamped to [-40, 40], within 1e-12 relatively, from basic operations only.

    e^x = (e^(x/1024))^1024: a Taylor polynomial of degree 7 where |x/1024| <= 0.04, then ten squarings.
    """
    if x > 40.0:
        x = 40.0
    if x < -40.0:
        x = -40.0
    t = x / 1024.0
    p = 1.0 + t / 7.0
    p = 1.0 + p * t / 6.0
    p = 1.0 + p * t / 5.0
    p = 1.0 + p * t / 4.0
    p = 1.0 + p * t / 3.0
    p = 1.0 + p * t / 2.0
    p = 1.0 + p * t
    for _ in range(10):
        p = p * p
    return p


def squared_slope(z: float, y: float, a: float) -> float:
    """Return z - y."""
    return z - y


def logistic_slope(z: float, y: float, a: float) -> float:
    """Return -y / (1 + e^(y z))."""
    return -y / (1.0 + exp_basic(y * z))


def bounded_logistic_slope(z: float, y: float, a: float) -> float:
    """Return -y / (1 + e^(y z)) clipped to [-a, a], 0 where |y| < 1."""
    if y > -1.0 and y < 1.0:
        return 0.0
    r = -y / (1.0 + exp_basic(y * z))
    if r > a:
        return a
    if r < -a:
        return -a
    return r


def clipped_logistic_slope(z: float, y: float, a: float) -> float:
    """Return -y times 1 / (1 + e^(y z)), at most a."""
    s = 1.0 / (1.0 + exp_basic(y * z))
    if s > a:
        return -y * a
    return -y * s


def huber_slope(z: float, y: float, a: float) -> float:
    """Return z - y clipped to [-a, a]."""
    r = z - y
    if r > a:
        return a
    if r < -a:
        return -a
    return r


def bounded_influence_slope(z: float, y: float, a: float) -> float:
    """Return f^2 (z - t) clipped to [-a, a], where y = t + 4096 k and f = 1 + k/16."""
    k = (y / PACKING + ROUNDING) - ROUNDING
    f = 1.0 + k / LENGTHS
    r = f * f * (z - (y - PACKING * k))
    if r > a:
        return a
    if r < -a:
        return -a
    return r


def smooth_hinge_slope(z: float, y: float, a: float) -> float:
    """Return -y times (1 - y z) / a clipped to [0, 1]."""
    gap = 1.0 - y * z
    if gap <= 0.0:
        return 0.0
    if gap >= a:
        return -y
    return -y * gap / a


def quantile_slope(z: float, y: float, a: float) -> float:
    """Return -a below the target, 1 - a above it, and 0 on it."""
    if z < y:
        return -a
    if z > y:
        return 1.0 - a
    return 0.0


def softmax_slope(z: Vector, y: float, a: float, out: Vector) -> None:
    """Write softmax(z) - e_y into `out`, or zeros when no class has the code y."""
    outputs = z.shape[0]
    known = False
    top = z[0]
    for k in range(outputs):
        if z[k] > top:
            top = z[k]
        if y == k:
            known = True
    total = 0.0
    for k in range(outputs):
        out[k] = exp_basic(z[k] - top)
        total += out[k]
    for k in range(outputs):
        if not known:
            out[k] = 0.0
        elif y == k:
            # 1 - p_k from the other terms would be closer to the truth; the residual's grid is far coarser.
            out[k] = out[k] / total - 1.0
        else:
            out[k] = out[k] / total


def sigmoid_slope(z: float, y: float, a: float) -> float:
    """Return -y s (1 - s) with s = 1 / (1 + e^(y z))."""
    e = exp_basic(y * z)
    return -y * e / ((1.0 + e) * (1.0 + e))


def welsch_slope(z: float, y: float, a: float) -> float:
    """Return r e^(-r^2 / a^2) with r = z - y."""
    r = z - y
    return r * exp_basic(-(r / a) * (r / a))


def log_poisson_slope(z: float, y: float, a: float) -> float:
    """Return min(e^z, 3) - y, clipped to [-a, a]."""
    mean = exp_basic(z)
    if mean > LARGEST_MEAN:
        mean = LARGEST_MEAN
    r = mean - y
    if r > a:
        return a
    if r < -a:
        return -a
    return r


def log_gamma_slope(z: float, y: float, a: float) -> float:
    """Return 1 - y e^(-z), clipped to [-a, a]."""
    r = 1.0 - y * exp_basic(-z)
    if r > a:
        return a
    if r < -a:
        return -a
    return r


def fractional_logit_slope(z: float, y: float, a: float) -> float:
    """Return 1 / (1 + e^(-z)) - (1 + y) / 2, clipped to [-a, a]."""
    r = 1.0 / (1.0 + exp_basic(-z)) - 0.5 * (1.0 + y)
    if r > a:
        return a
    if r < -a:
        return -a
    return r
