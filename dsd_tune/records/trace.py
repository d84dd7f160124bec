"""A request as a server sees it coming: when, how long its prompt is, and how many tokens it will ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """`arrival_s` counts from any beginning. A request of 0 output tokens costs what one of 1 costs."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if not math.isfinite(self.arrival_s):
            raise ValueError(f"an arrival is a time, got {self.arrival_s}")
        if self.prompt_tokens < 0 or self.output_tokens < 0:
            raise ValueError(f"a request cannot have {self.prompt_tokens} and {self.output_tokens} tokens")
