"""Runs vLLM's engine core one step at a time and reports, for the same step, what went in and what came out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsd_tune.errors import EngineFailed

_CALLS_A_STEP = 64
"""With async scheduling or pipeline stages the first calls only fill the queue; a stage each, never this many."""


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step by request. `took_s` runs from the end of the step before to the end of this one."""

    took_s: float
    scheduled: Mapping[str, int]
    drafted: Mapping[str, int]
    new_tokens: Mapping[str, Sequence[int]]

    def follows_rules(self, batch_size: int, k: int, *, fewer_drafts: bool, decoding: frozenset[str]) -> bool:
        """Whether exactly `batch_size` requests of `decoding` ran, each with its own token and `k` drafts.

        `fewer_drafts` allows for n-gram proposers, which find less than `k` where the text does not repeat.
        """
        drafts = [self.drafted.get(request, 0) for request in self.scheduled]
        return (
            len(self.scheduled) == batch_size
            and self.scheduled.keys() <= decoding
            and all(n <= k if fewer_drafts else n == k for n in drafts)
            and all(n == 1 + d for n, d in zip(self.scheduled.values(), drafts, strict=True))
        )


class Stepper:
    """Steps an in-process engine core, watching `Scheduler.update_from_output`, where both ends of a step meet."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._seen: list[tuple[Any, Any]] = []
        self._ended_s = time.perf_counter()
        scheduler = core.engine_core.scheduler
        update = scheduler.update_from_output

        def watched(scheduler_output: Any, runner_output: Any) -> Any:
            outputs = update(scheduler_output, runner_output)
            self._seen.append((scheduler_output, outputs))
            return outputs

        scheduler.update_from_output = watched

    def start_clock(self) -> None:
        """Let the next step's time begin now: the engine has been idle, or requests were exchanged."""
        self._ended_s = time.perf_counter()

    def step(self) -> Step:
        """Run until one step's output has been processed.

        Raises:
            EngineFailed: the engine has nothing to do, or does nothing.
        """
        for _ in range(_CALLS_A_STEP):
            self._core.get_output()
            if self._seen:
                return self._close_step()
        raise EngineFailed("The engine makes no progress with requests waiting.", "See its log.")

    def _close_step(self) -> Step:
        now = time.perf_counter()
        took_s, self._ended_s = now - self._ended_s, now
        scheduler_output, outputs = self._seen.pop()
        self._seen.clear()
        return Step(
            took_s=took_s,
            scheduled=dict(scheduler_output.num_scheduled_tokens),
            drafted={r: len(ids) for r, ids in scheduler_output.scheduled_spec_decode_tokens.items()},
            new_tokens={o.request_id: list(o.new_token_ids) for out in outputs.values() for o in out.outputs},
        )
