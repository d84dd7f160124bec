"""A number with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval, in the unit its field's name gives."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.value, self.low, self.high))) or self.low > self.high:
            raise ValueError(f"an interval must be finite and ordered, got {self}")
