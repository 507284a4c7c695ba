"""One verb for oracles: whoever answers implements `ask`, and a solver may ask a question of its own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import dpcvx
from dpcvx.data import LengthSum
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import NoisyGradient, NoisyLength, Traits
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Asking, Oracle, Plan, Stage
from dpcvx.solvers import NoisyGradientDescent, OutputPerturbation
from dpcvx.solvers.own_oracle import run_with_oracle

PROBLEM = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(1.0), bounds=dpcvx.Bounds(1.0), d=3)
BUDGET = dpcvx.Budget(5.0, 1e-4)
SOURCE = dpcvx.source(np.eye(3), [1.0, -1.0, 1.0], bounds=dpcvx.Bounds(1.0))
HELPERS = ("gradient", "difference", "minimiser", "second_moments", "moments", "length", "vertex")


@dataclass(frozen=True)
class ExactLength(NoisyLength):
    """A question that dpcvx has no name for."""

    traits: ClassVar[Traits] = Traits("squared length")

    def __call__(self, factor, data, rng):
        return factor * int(data.sum(LengthSum())[0])


def oracle(mechanism, n_calls=2):
    solver = NoisyGradientDescent(n_iter=1)
    return Oracle(Plan((Stage(mechanism, n_calls),), PROBLEM, 3, solver, BUDGET), SOURCE, SeededGenerator(0))


def test_a_question_of_ones_own_needs_no_method_of_the_oracle():
    ask = oracle(ExactLength(PROBLEM, 3, 50.0))
    assert ask.ask(2) == 2 * 3 * 2**28
    assert ask.ask(1, question="squared length") == 3 * 2**28
    with pytest.raises(Incompatible, match="allows 2 private answers"):
        ask.ask(1)


@pytest.mark.parametrize("helper", [name for name in HELPERS if name != "gradient"])
def test_another_question_than_the_stage_answers_is_refused(helper):
    ask = oracle(NoisyGradient(PROBLEM, 3, 50.0))
    points = {"difference": 2, "second_moments": 1}.get(helper, 0)
    with pytest.raises(Incompatible, match=r"stage 1 answers NoisyGradient, not a \w+"):
        getattr(ask, helper)(*[np.zeros(3)] * points)
    assert ask.gradient(np.zeros(3)).shape == (3,)  # a refused question costs no answer


def test_an_imitator_overrides_one_method():
    class Echo(Asking):
        def ask(self, *public, question=None):
            return (question, len(public))

    ask, theta = Echo(), np.zeros(3)
    answers = [ask.gradient(theta), ask.gradient(theta, np.arange(2)), ask.difference(theta, theta)]
    answers += [ask.minimiser(), ask.minimiser(theta), ask.second_moments(theta), ask.moments(), ask.length()]
    assert [count for _, count in answers] == [1, 2, 2, 0, 1, 1, 1, 0]
    assert ask.vertex() == ("vertex", 0)


def test_an_oracle_of_the_user_answers_gradients_alone():
    class Own:
        def gradient(self, theta):
            return theta

    with pytest.raises(Incompatible, match="answers gradients; the solver asks for a minimiser"):
        run_with_oracle(OutputPerturbation(), PROBLEM, Own(), n_iter=1)
