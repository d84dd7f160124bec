"""One place in a simulated batch: which text it decodes, and how far that has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import PromptCounts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class SimulatedRequest:
    """`acceptance` is its prompt's own chance at each position; `context` is its length, in tokens."""

    prompt: int
    acceptance: NDArray[np.float64]
    condition: Condition
    context: int
    steps: int = 0

    def decode(self, k: int, steps: int, random: np.random.Generator) -> PromptCounts:
        """Run for `steps` steps; a position is tried only where all before it were accepted."""
        accepted: list[int] = []
        for chance in self.acceptance[:k]:
            accepted.append(int(random.binomial(accepted[-1] if accepted else steps, chance)))
        self.steps += steps
        self.context += steps + sum(accepted)
        return PromptCounts(f"simulated-{self.prompt}", steps, (steps,) * k, tuple(accepted))
