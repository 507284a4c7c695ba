"""TukeyEM (Amin et al. 2023): many small least-squares fits, and a private point deep among them."""

import math

import numpy as np

from leaderboard.objective import REGRESSIONS

MOST_MODELS = 1_000


class Solver:
    """Own implementation of the published algorithm, its constants checked against the code of its authors.

    Depth is the smallest over coordinates of the number of fits on either side. Half of epsilon and delta
    test privately that the deep region is stable (propose-test-release), half choose a depth by the
    exponential mechanism, with weights exp(epsilon depth / 2): a replaced record changes one fit, and a depth
    by 1. Where the test fails the answer is zero, the middle of the target's bounds.
    """

    title = "TukeyEM"
    kinds = REGRESSIONS
    private = True
    requirements = ()
    guarantee = "(ε, δ), replace-one"

    def settings(self, epsilon, kind):
        """There are none."""
        return [{}]

    def fit(self, problem, epsilon, seed):
        """Return predictions."""
        rows, new = problem.rows()
        n, d = rows.shape
        models = min(MOST_MODELS, n // d)
        rng, y = np.random.default_rng(seed), problem.scaled_target()
        if models < 8:
            return problem.in_units(np.zeros(len(new)))
        parts = np.array_split(rng.permutation(n), models)
        fits = np.array([np.linalg.lstsq(rows[part], y[part], rcond=None)[0] for part in parts])
        return problem.in_units(new @ deep_point(fits, epsilon, problem.delta, rng))


def deep_point(fits, epsilon, delta, rng):
    """Return a private point of large depth among the rows of fits, or 0 where the test fails."""
    m, d = fits.shape
    ordered = np.sort(fits + 1e-10 * rng.random(fits.shape), axis=0).T
    deepest, start = m // 2, m // 4
    # Logarithm of the volume of points of depth k or more: volumes[k - 1].
    volumes = np.log(np.maximum(ordered[:, ::-1] - ordered, 1e-300))[:, :deepest].sum(axis=0)
    half, half_delta = epsilon / 2, delta / 2
    distance = stable_distance(volumes, start, half, half_delta)
    if distance + rng.laplace(scale=1 / half) <= math.log(1 / (2 * half_delta)) / half:
        return np.zeros(d)
    depths = np.arange(start, deepest + 1)
    at_least = volumes[depths - 1]
    inside = np.append(at_least[1:], -np.inf)
    shells = at_least + np.log1p(-np.exp(np.minimum(inside - at_least, 0.0)) + 1e-300)
    depth = int(depths[np.argmax(shells + half * depths / 2 + rng.gumbel(size=len(depths)))])
    return shell_point(ordered, depth, deepest, rng)


def stable_distance(volumes, start, epsilon, delta):
    """Lower bound on the number of fits that must change before the mechanism is unsafe; -1 for none."""
    limit = math.log(delta / (8 * math.exp(epsilon)))
    found = -1
    for k in range(start - 1):
        inner = volumes[start + k + 1 :]
        gains = epsilon / 2 * np.arange(1, len(inner) + 1)
        if not len(inner) or np.min(volumes[start - k - 2] - inner - gains) > limit:
            break
        found = k
    return found


def shell_point(ordered, depth, deepest, rng):
    """Uniform point of exactly this depth: in the box of this depth, outside the next."""
    low, high = ordered[:, depth - 1], ordered[:, -depth]
    if depth == deepest:
        return rng.uniform(low, high)
    inner_low, inner_high = ordered[:, depth], ordered[:, -depth - 1]
    whole, inner = high - low, np.maximum(inner_high - inner_low, 0)
    rims = np.maximum(whole - inner, 1e-300)
    # The first coordinate outside the inner box is j: earlier ones are inside it, later ones anywhere.
    before = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(inner, 1e-300)))[:-1]])
    after = np.concatenate([np.cumsum(np.log(whole)[::-1])[::-1][1:], [0.0]])
    j = int(np.argmax(before + np.log(rims) + after + rng.gumbel(size=len(low))))
    point = rng.uniform(low, high)
    point[:j] = rng.uniform(inner_low[:j], np.maximum(inner_high, inner_low)[:j])
    left = (inner_low - low)[j]
    place = rng.uniform(0, rims[j])
    point[j] = low[j] + place if place < left else inner_high[j] + place - left
    return point
