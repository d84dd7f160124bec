"""What a running server tells about its drafts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Counts since its start, summed over its engines. `k_max` is None where it runs without speculation.

    `drafts` counts sequences that were given a draft in a step, so `draft_tokens / drafts` is the mean K of
    those; steps at K = 0 count in neither.
    """

    url: str
    version: str
    models: tuple[str, ...]
    max_model_len: int | None
    running: int
    waiting: int
    k_max: int | None
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def mean_k(self) -> float | None:
        """Mean number of tokens in a draft; None before the first."""
        return self.draft_tokens / self.drafts if self.drafts else None
