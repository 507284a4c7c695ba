"""Running times of a fit on two neighbours: can an attacker with a clock tell them apart?"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.audit.fits import FitData

__all__ = ["TimeTest", "time_test"]

SURE = 4.0  # standard errors; a test exceeds them by chance once in 16,000


@dataclass(frozen=True)
class TimeTest:
    """Area under the ROC curve of a classifier that sees the processor time of one fit."""

    name: str
    runs: int  # on each data set
    area: float  # 0.5 if times reveal nothing
    margin: float  # largest difference from 0.5 by chance
    control: float  # control: the same fit on the same data, with 50 % more steps

    @property
    def holds(self) -> bool:
        """Whether times reveal nothing about a record, and the control with more steps is detected."""
        return abs(self.area - 0.5) <= self.margin < abs(self.control - 0.5)


def time_test(
    name: str, make: Callable[[int], Any], one: FitData, other: FitData, *, n_iter: int, runs: int = 60
) -> TimeTest:
    """Measure fits on two neighbours in turn.

    `make`: returns an unfitted estimator with a given number of steps.
    """
    times: list[list[float]] = [[], [], []]
    kinds = ((one, n_iter), (other, n_iter), (one, n_iter + n_iter // 2))
    order = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data, steps in kinds:
            make(steps).fit(data.X, data.y)  # compiles
        for _ in range(runs):
            for place in order.permutation(3):
                data, steps = kinds[place]
                model = make(steps)
                began = time.process_time()
                model.fit(data.X, data.y)
                times[place].append(time.process_time() - began)
    first, second, longer = (np.array(each) for each in times)
    margin = SURE * math.sqrt((2 * runs + 1) / (12 * runs**2))  # of the area for equal distributions
    return TimeTest(name, runs, _area(first, second), margin, _area(first, longer))


def _area(one: Vector, other: Vector) -> float:
    """Return P(a time of the second kind is larger than one of the first)."""
    return float((other[:, None] > one).mean() + (other[:, None] == one).mean() / 2)
