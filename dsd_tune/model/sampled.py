"""Numbers that carry their uncertainty as joint draws, so that any function of them has an honest interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Comparison

Array = NDArray[np.float64]

DRAWS = 1000
"""Enough for the third digit of a 95 % limit, and a 256 x 9 grid of them stays under 20 MB."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """An array of estimates, shape S, with draws of their joint sampling distribution, shape (DRAWS, *S)."""

    point: Array
    draws: Array

    def __getitem__(self, index: Any) -> Sampled:  # noqa: ANN401 (numpy's own index is as wide)
        """Select along the estimate's own axes, as numpy would; the axis of draws is kept."""
        inner = index if isinstance(index, tuple) else (index,)
        return Sampled(np.asarray(self.point[index]), self.draws[(slice(None), *inner)])

    def map(self, function: Callable[[Array], Array]) -> Sampled:
        """Apply a function elementwise, or over the estimate's last axes."""
        return Sampled(function(self.point), function(self.draws))

    def __add__(self, other: Sampled) -> Sampled:
        return Sampled(self.point + other.point, self.draws + other.draws)

    def __sub__(self, other: Sampled) -> Sampled:
        return Sampled(self.point - other.point, self.draws - other.draws)

    def limits(self, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper limit of the central interval, each of shape S; nan where a draw is nan."""
        tail = (1 - level) / 2
        low, high = np.quantile(self.draws, [tail, 1 - tail], axis=0)
        return low, high

    def reach(self, level: float = 0.95) -> Array:
        """How far the truth may lie from each estimate, of shape S, for all of them at once; nan where a draw is nan.

        So many standard deviations as hold `level` of the draws in full: the sup-t band of Montiel Olea and
        Plagborg-Moller (2019), Journal of Applied Econometrics 34(1). Of many 95 % intervals some are wrong, these
        are not, 95 times in 100.
        """
        deviations: Array = self.draws.std(axis=0)
        varies = deviations > 0
        if not varies.any():
            return deviations
        away = np.abs(self.draws[:, varies] - self.point[varies]) / deviations[varies]
        return np.asarray(float(np.quantile(away.max(axis=1), level)) * deviations)

    def interval(self, level: float = 0.95) -> Interval:
        """The interval of a single number (S = ()), stretched to hold the estimate itself."""
        (found,) = self[None].intervals(level)
        assert found is not None
        return found

    def comparison(self) -> Comparison:
        """The interval of a single difference, with the smallest one that would have been told from none.

        That is (t.975 + t.8) standard errors: half the central 95 % interval and half the central 60 % one.
        """
        found = self.interval()
        halves = [float(high - low) / 2 for low, high in (self.limits(0.95), self.limits(0.6))]
        return Comparison(found.value, found.low, found.high, sum(halves))

    def intervals(self, level: float = 0.95) -> list[Interval | None]:
        """The interval of each of many numbers, S = (n,); None where one is not known."""
        numbers = zip(self.point.tolist(), *(limit.tolist() for limit in self.limits(level)), strict=True)
        return [
            Interval(value, min(low, value), max(high, value)) if math.isfinite(value) else None
            for value, low, high in numbers
        ]
