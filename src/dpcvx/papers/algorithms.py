"""The algorithms of the five papers, with the noise that they print."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from dpcvx.accounting import Budget, gaussian_mu
from dpcvx.errors import WrongType
from dpcvx.events import ApproxDP, Compose, Gaussian, PerturbedObjective, PureDP, Repeat
from dpcvx.papers.instances import NOTHING, gaussian, odd_record, repeated_selection
from dpcvx.papers.reproduction import Reproduction
from dpcvx.solvers import (
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    ObjectivePerturbation,
)

Function = TypeVar("Function", bound=Callable[..., Any])


def _claims(algorithm: Function) -> Function:
    """Refuse a claim that is no Budget."""

    @wraps(algorithm)
    def checked(claimed: Budget, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(claimed, Budget):
            raise WrongType(
                f"claimed must be a Budget, for instance dpcvx.Budget(1.0, 1e-6); got {claimed!r}."
            )
        return algorithm(claimed, *args, **kwargs)

    return cast(Function, checked)


# -- [TTZ14] and [TTZ15]


@_claims
def ttz14_algorithm_1(claimed: Budget, n_iter: int) -> Reproduction:
    """[TTZ14] Algorithm 1: mirror descent with sigma^2 = 32 L^2 T log^2(T/delta)/(eps n)^2.

    Parameters
    ----------
    claimed : Budget
    n_iter : int
        T.
    """
    multiplier = math.sqrt(32 * n_iter) * math.log(n_iter / claimed.delta) / (2 * claimed.epsilon)
    return Reproduction(
        "TTZ14",
        f"Algorithm 1, T = {n_iter}",
        claimed,
        "sigma^2 = 32 L^2 T log^2(T/delta)/(eps n)^2",
        Repeat(Gaussian(multiplier), n_iter),
        gaussian(claimed, math.sqrt(n_iter) / multiplier),
        "strong composition of a loose Gaussian bound: private, with many times the noise that is needed",
        solver=NoisyMirrorDescent(n_iter),
    )


@_claims
def ttz14_algorithm_2(claimed: Budget) -> Reproduction:
    """[TTZ14] Algorithm 2: objective perturbation with sigma = L sqrt(2 log(1/delta))/eps on the sum.

    The proof is for losses of one score per record, smooth and not strongly convex (ridge 2 beta/eps).

    Parameters
    ----------
    claimed : Budget
    """
    shift = claimed.epsilon / math.sqrt(2 * math.log(1 / claimed.delta))
    return Reproduction(
        "TTZ14",
        "Algorithm 2",
        claimed,
        "sigma = L sqrt(2 log(1/delta))/(n eps), ridge 2 beta/(n eps)",
        PerturbedObjective(shift, math.log1p(claimed.epsilon / 2)),
        gaussian(claimed, 2 * shift),
        "the constant 8 of its source became 2; with linear losses it is a Gaussian release, and its noise "
        "is too small",
        solver=ObjectivePerturbation(0.1),
    )


def _laplace_selection(paper: str, algorithm: str, claimed: Budget, n_iter: int) -> Reproduction:
    epsilon0 = math.sqrt(2) * claimed.epsilon / math.sqrt(n_iter * math.log(1 / claimed.delta))
    spread = math.sqrt(2 * n_iter * math.log(1 / claimed.delta)) * epsilon0
    return Reproduction(
        paper,
        f"{algorithm}, T = {n_iter}",
        claimed,
        "Laplace noise of scale L1 c sqrt(8 T log(1/delta))/(n eps) on every score",
        Repeat(PureDP(epsilon0), n_iter - 1),
        repeated_selection(claimed, epsilon0, n_iter - 1),
        "replacing a record changes a score by 2 L1 c/n; the scale is made for L1 c/n",
        argued=spread + n_iter * epsilon0 * math.expm1(epsilon0),
    )


@_claims
def ttz14_algorithm_4(claimed: Budget, n_iter: int) -> Reproduction:
    """[TTZ14] Algorithm 4: Frank-Wolfe on a polytope, T - 1 noisy minima with Laplace noise.

    Parameters
    ----------
    claimed : Budget
    n_iter : int
        T.
    """
    return _laplace_selection("TTZ14", "Algorithm 4", claimed, n_iter)


@_claims
def ttz15_algorithm_2(claimed: Budget, n_iter: int) -> Reproduction:
    """[TTZ15] Algorithm 2: private LASSO, the selections of [TTZ14] Algorithm 4 with other steps.

    Parameters
    ----------
    claimed : Budget
    n_iter : int
        T.
    """
    return _laplace_selection("TTZ15", "Algorithm 2", claimed, n_iter)


@_claims
def ttz14_algorithm_5(claimed: Budget, n_iter: int, *, n: int, lipschitz: float) -> Reproduction:
    """[TTZ14] Algorithm 5: Frank-Wolfe over general sets with sigma^2 = 32 L T log^2(n/delta)/(n eps)^2.

    Parameters
    ----------
    claimed : Budget
    n_iter : int
        T; T - 1 gradients are released.
    n : int
        Number of records.
    lipschitz : float
        L.
    """
    sigma = math.sqrt(32 * lipschitz * n_iter) * math.log(n / claimed.delta) / (n * claimed.epsilon)
    multiplier = sigma * n / (2 * lipschitz)
    return Reproduction(
        "TTZ14",
        f"Algorithm 5, T = {n_iter}, n = {n}, L = {lipschitz:g}",
        claimed,
        "sigma^2 = 32 L T log^2(n/delta)/(n eps)^2",
        Repeat(Gaussian(multiplier), n_iter - 1),
        gaussian(claimed, math.sqrt(n_iter - 1) / multiplier),
        "L stands to the first power: the noise does not follow the units of the loss, and is too little for "
        "large L",
        solver=NoisyGeneralFrankWolfe(n_iter - 1),
        size=(n, lipschitz),
    )


# -- [WYX17], whose "some constant c" is an argument here


@_claims
def sufficient_constant(claimed: Budget) -> float:
    """Return the smallest c for which sigma^2 = c L^2 T log(1/delta)/(n eps)^2 has the claimed guarantee.

    It depends on epsilon and delta, so no number serves for all of them.

    Parameters
    ----------
    claimed : Budget
    """
    mu = gaussian_mu(claimed.epsilon, claimed.delta)
    return (2 * claimed.epsilon / mu) ** 2 / math.log(1 / claimed.delta)


@_claims
def wyx17_algorithm_1(claimed: Budget, n_steps: int, *, n: int, constant: float = 1.0) -> Reproduction:
    """[WYX17] Algorithm 1: one epoch of DP-SVRG, one record a step.

    Parameters
    ----------
    claimed : Budget
    n_steps : int
        Steps m of the epoch (T = 1).
    n : int
        Number of records.
    constant : float
        The paper's c.
    """
    sigma = math.sqrt(constant * n_steps * math.log(1 / claimed.delta)) / (n * claimed.epsilon)
    return _variance_reduced("Algorithm 1", claimed, n_steps, n, sigma, "T m log(1/delta)", constant)


@_claims
def wyx17_algorithm_2(claimed: Budget, n_steps: int, *, n: int, constant: float = 1.0) -> Reproduction:
    """[WYX17] Algorithm 2: one epoch of DP-SVRG++, of 2 m steps.

    Parameters
    ----------
    claimed : Budget
    n_steps : int
        m; the epoch has 2 m steps (T = 1).
    n : int
        Number of records.
    constant : float
        The paper's c.
    """
    sigma = math.sqrt(constant * 2 * n_steps * math.log(2 / claimed.delta)) / (n * claimed.epsilon)
    return _variance_reduced("Algorithm 2", claimed, 2 * n_steps, n, sigma, "2^T m log(2/delta)", constant)


def _variance_reduced(
    algorithm: str, claimed: Budget, steps: int, n: int, sigma: float, terms: str, constant: float
) -> Reproduction:
    return Reproduction(
        "WYX17",
        f"{algorithm}, T = 1, {steps} steps, n = {n}, c = {constant:g}",
        claimed,
        f"sigma^2 = c L^2 {terms}/(n eps)^2",
        None,
        odd_record(claimed, steps, n, sigma),
        "a record that is drawn stands almost in the clear; its theorem's condition on epsilon excludes this "
        "case, and the remark that removes the condition is wrong",
    )


@_claims
def wyx17_algorithm_3(claimed: Budget) -> Reproduction:
    """[WYX17] Algorithm 3: accelerated mirror descent, which returns a point without noise.

    Parameters
    ----------
    claimed : Budget
    """
    return Reproduction(
        "WYX17",
        "Algorithm 3",
        claimed,
        "sigma^2 = c L^2 T log(1/delta)/(n eps)^2",
        None,
        NOTHING,
        "the y-step uses the gradient without its noise; after one step y is a function of the records alone",
    )


@_claims
def wyx17_algorithm_4(claimed: Budget, n_iter: int, *, constant: float = 1.0) -> Reproduction:
    """[WYX17] Algorithm 4: gradient descent with sigma^2 = c L^2 T log(1/delta)/(n eps)^2.

    Parameters
    ----------
    claimed : Budget
    n_iter : int
        T.
    constant : float
        The paper's c; `sufficient_constant` is the smallest that is enough.
    """
    multiplier = math.sqrt(constant * n_iter * math.log(1 / claimed.delta)) / (2 * claimed.epsilon)
    return Reproduction(
        "WYX17",
        f"Algorithm 4, T = {n_iter}, c = {constant:.4g}",
        claimed,
        "sigma^2 = c L^2 T log(1/delta)/(n eps)^2",
        Repeat(Gaussian(multiplier), n_iter),
        gaussian(claimed, math.sqrt(n_iter) / multiplier),
        f'"some constant c" is left open; it takes {sufficient_constant(claimed):.4g} here, and depends on '
        "epsilon and delta",
        solver=NoisyGradientDescent(n_iter),
    )


# -- [KD19]


@_claims
def kd19_output_perturbation(claimed: Budget) -> Reproduction:
    """[KD19] Section 4.1: noise on the minimiser of a loss with a norm.

    Parameters
    ----------
    claimed : Budget
    """
    return Reproduction(
        "KD19",
        "Section 4.1",
        claimed,
        "sigma = L R sqrt(log(1/delta) + eps)/(lambda eps)",
        None,
        NOTHING,
        "a norm is not strongly convex: replacing a record can move the minimiser by any distance",
    )


@_claims
def kd19_algorithm_2(claimed: Budget) -> Reproduction:
    """[KD19] Algorithm 2: Frank-Wolfe on the dual, and the primal point that belongs to its result.

    Parameters
    ----------
    claimed : Budget
    """
    return Reproduction(
        "KD19",
        "Algorithm 2",
        claimed,
        "Laplace noise of scale L Gamma sqrt(8 T log(1/delta))/(n eps) on every corner's score",
        None,
        NOTHING,
        "theta comes from a last minimisation over the records without noise; and the dual objective is no "
        "mean over records, so the scores have another sensitivity",
    )


@_claims
def kd19_objective_perturbation(claimed: Budget) -> Reproduction:
    """[KD19] Proposition 2: the noise of [TTZ14] Algorithm 2, without its ridge.

    Parameters
    ----------
    claimed : Budget
    """
    shift = claimed.epsilon / math.sqrt(2 * math.log(1 / claimed.delta))
    return Reproduction(
        "KD19",
        "Proposition 2",
        claimed,
        "sigma = L sqrt(2 log(1/delta))/(n eps), no ridge",
        None,
        gaussian(claimed, 2 * shift),
        "as TTZ14 Algorithm 2, and no theorem covers an objective without a ridge; nor is it output "
        "perturbation of the dual, whose set does not move with the noise",
    )


# -- [U15]


@_claims
def u15_figure_3(claimed: Budget, n_updates: int) -> Reproduction:
    """[U15] Figure 3: T answers of (eps0, delta0) beside sparse vector, half of the budget for each.

    Parameters
    ----------
    claimed : Budget
    n_updates : int
        T.
    """
    logarithm = math.log(4 / claimed.delta)
    epsilon0 = claimed.epsilon / math.sqrt(8 * n_updates * logarithm)
    sparse_vector = ApproxDP(claimed.epsilon / 2, claimed.delta / 2)
    answers = Repeat(PureDP(epsilon0), n_updates), ApproxDP(0.0, claimed.delta / 4)
    return Reproduction(
        "U15",
        f"Figure 3, T = {n_updates}",
        claimed,
        "eps0 = eps/sqrt(8 T log(4/delta)), delta0 = delta/(4 T); sensitivity 3 S/n of an error",
        Compose((sparse_vector, *answers)),
        (0.0, 0.0),
        "its composition theorem asks for half of this eps0; optimal composition repairs the claim. The "
        "sensitivity is 2 S/n",
        argued=claimed.epsilon + claimed.epsilon**2 / (4 * logarithm),
    )


@_claims
def every(claimed: Budget, *, n_iter: int = 100, n: int = 10_000) -> tuple[Reproduction, ...]:
    """Return every algorithm at one claim, in the order of the papers.

    Parameters
    ----------
    claimed : Budget
    n_iter : int
        T.
    n : int
        Number of records.
    """
    return (
        ttz14_algorithm_1(claimed, n_iter),
        ttz14_algorithm_2(claimed),
        ttz14_algorithm_4(claimed, n_iter),
        ttz14_algorithm_5(claimed, n_iter, n=n, lipschitz=1.0),
        ttz14_algorithm_5(claimed, n_iter, n=n, lipschitz=1000.0),
        ttz15_algorithm_2(claimed, n_iter),
        wyx17_algorithm_1(claimed, n_iter, n=n),
        wyx17_algorithm_2(claimed, n_iter, n=n),
        wyx17_algorithm_3(claimed),
        wyx17_algorithm_4(claimed, n_iter),
        kd19_output_perturbation(claimed),
        kd19_algorithm_2(claimed),
        kd19_objective_perturbation(claimed),
        u15_figure_3(claimed, n_iter),
    )
