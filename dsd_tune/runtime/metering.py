"""What vLLM's statistics of one step say about K, and how far an engine has drifted from its profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WINDOW = 256
"""Steps over which drift is averaged, exponentially."""
SETTLED = 256
"""Steps before anything is said about drift: of 64 drafts accepted at 0.3, one lot in four is off by a quarter."""
TOLERANCE = 0.25
"""Drift beyond this share counts: engines of one kind have been seen 15 % apart for as long as they lived."""


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step as the front of a server sees it.

    `k` is None where nothing shows it: no request drafted, and none that could have. `step_s` is the time since the
    step before, None after a pause, and always where a front hears of some steps only. `plain` means that all requests
    decoded, as they did when the profile was measured. `drafted` and `accepted` count requests by position.
    """

    batch_size: int
    k: int | None
    step_s: float | None
    plain: bool
    drafted: Sequence[int]
    accepted: Sequence[int]


class StepReader:
    """Reads one engine's statistics, step after step."""

    def __init__(self, *, hears_all: bool = True) -> None:
        """`hears_all` says whether every step is read, so that the time between two is that of one."""
        self._hears_all = hears_all
        self._last: float | None = None

    def read(self, scheduler: Any, iteration: Any, now: float) -> StepSeen | None:
        """The step that vLLM's `SchedulerStats` and `IterationStats` describe; None if there was no request in it."""
        batch_size = scheduler.num_running_reqs + (len(iteration.finished_requests) if iteration else 0)
        step_s = None if self._last is None else now - self._last
        self._last = now if scheduler.num_running_reqs and self._hears_all else None
        if not batch_size:
            return None
        drafts = scheduler.spec_decoding_stats
        drafted = tuple(drafts.num_draft_tokens_per_pos) if drafts else ()
        accepted = tuple(drafts.num_accepted_tokens_per_pos) if drafts else ()
        k, prefills = sum(map(bool, drafted)), iteration is None or iteration.num_prompt_tokens > 0
        decoding = drafts.num_drafts if drafts else iteration.num_generation_tokens if iteration else 0
        known = k > 0 or not prefills
        plain = not prefills and decoding == batch_size
        return StepSeen(batch_size, k if known else None, step_s, plain, drafted[:k], accepted[:k])


class Drift:
    """Observed against expected, both fading; 1 means as expected."""

    def __init__(self) -> None:
        self._observed = self._expected = 0.0
        self._steps = 0

    def add(self, observed: float, expected: float) -> None:
        """One more step."""
        keep = 1 - 1 / WINDOW
        self._observed = keep * self._observed + observed
        self._expected = keep * self._expected + expected
        self._steps += 1

    @property
    def is_large(self) -> bool:
        """Whether the ratio has left the tolerance, once enough steps were seen."""
        ratio = self._observed / self._expected if self._expected else 1.0
        return self._steps >= SETTLED and abs(ratio - 1) > TOLERANCE


def size_range(batch_size: int) -> str:
    """The label of a batch size: ranges that double, as `5-8`."""
    if batch_size <= 2:
        return str(batch_size)
    last = 1 << (batch_size - 1).bit_length()
    return f"{last // 2 + 1}-{last}"
