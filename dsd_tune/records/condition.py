"""What a batch decodes under, besides batch size and K: how long its sequences are, and how tokens are sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """`context` is the longest sequence measured, in tokens."""

    context: int
    temperature: float

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"a context needs a token, got {self.context}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"a temperature is finite and 0 or more, got {self.temperature}")

    def __str__(self) -> str:
        return f"context {self.context}, temperature {self.temperature:g}"
