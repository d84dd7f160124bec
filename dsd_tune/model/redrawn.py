"""A number that a simulation gives, with what it gave for each of a few draws of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from dsd_tune.model.sampled import Array
from dsd_tune.records.interval import Interval


@dataclass(frozen=True, slots=True)
class Redrawn:
    """Positive numbers: the value, and those of the draws, shape (n,), which have the same inputs in every choice."""

    value: float
    draws: Array

    @classmethod
    def of(cls, draws: Array, value: float | None = None) -> Redrawn:
        """Around `value`, by default the geometric mean of the draws."""
        return cls(float(np.exp(np.log(draws).mean())) if value is None else value, draws)

    def interval(self) -> Interval:
        """Of 95 %: the draws are too few for quantiles, so a Student t of the deviation of their logs."""
        logs = np.log(self.draws)
        away = float(student.ppf(0.975, len(logs) - 1) * logs.std(ddof=1))
        return Interval(self.value, self.value * float(np.exp(-away)), self.value * float(np.exp(away)))

    def over(self, other: Redrawn) -> Interval:
        """The ratio to another choice's number, draw by draw, so that what they share is not in it."""
        return Redrawn(self.value / other.value, self.draws / other.draws).interval()
