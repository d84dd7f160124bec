"""Continuous batching as a queue: steps whose length depends on how many requests take part, and nothing else.

Between an arrival and an end nothing changes, so that all steps in between are taken at once. All requests of a batch
get the same mean number of tokens a step, so that one clock, which counts tokens, serves them all: a request ends when
that clock reaches what it was when it came plus what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf, sqrt

from dsd_tune.model.course import Recorder
from dsd_tune.model.tally import Times
from dsd_tune.records.trace import Request

_ROUNDING = 1e-6
"""Tokens by which a sum of many steps may miss a whole number."""

_KEPT = 4096
"""Times that wait to be counted, since counting many at once is cheap."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a step does at each batch size; the first item is for one request.

    `step_s` is how long it takes, `tokens` what each request gets (the acceptance length), `luck` the standard
    deviation of the tokens that chance adds to or takes from a request, over the square root of its length.
    """

    step_s: tuple[float, ...]
    tokens: tuple[float, ...]
    luck: tuple[float, ...]
    ks: tuple[int, ...]
    prefill_s: float

    def __post_init__(self) -> None:
        if not len(self.step_s) == len(self.tokens) == len(self.luck) == len(self.ks) > 0:
            raise ValueError("a pace has one step, length, luck and K for each batch size")
        if min(self.step_s) <= 0 or self.prefill_s < 0:
            raise ValueError("steps take time")
        if any(not 1 <= tokens <= k + 1 + _ROUNDING for tokens, k in zip(self.tokens, self.ks, strict=True)):
            raise ValueError("a step yields at least a token and at most K + 1")


class Queue:
    """One server at one pace. Requests come in the order of their arrival and wait for a place in that order.

    Times begin at 0. After `drain` every request has ended, and `first_token_s`, `completion_s` and `tpot_s` hold its
    times, `seconds_at[b - 1]` the time spent at batch size b. A `recorder` is told every stretch of steps.
    """

    def __init__(self, pace: Pace, recorder: Recorder | None = None) -> None:
        self.first_token_s, self.completion_s, self.tpot_s = Times(), Times(), Times()
        self.now_s = 0.0
        self.requests = self.output_tokens = 0
        self._pace, self._recorder = pace, recorder
        self._seconds_at = [0.0] * (len(pace.step_s) + 1)
        self._batch = 0
        self._clock = 0.0
        self._decoding: list[tuple[float, float, float, int]] = []
        self._prefilling: list[tuple[Request, float]] = []
        self._kept: tuple[list[float], list[float], list[float]] = ([], [], [])

    @property
    def seconds_at(self) -> list[float]:
        """Busy time at each batch size from 1."""
        return self._seconds_at[1:]

    def feed(self, requests: Sequence[Request], lucks: Sequence[float]) -> None:
        """Serve until the last of `requests` has a place; `lucks` holds a standard normal number for each."""
        places = len(self._pace.step_s)
        for request, luck in zip(requests, lucks, strict=True):
            while self._batch == places:
                self._advance(inf)
            while self.now_s < request.arrival_s:
                if self._batch:
                    self._advance(request.arrival_s)
                else:
                    self.now_s = request.arrival_s
            self._batch += 1
            self._prefilling.append((request, luck))

    def drain(self) -> None:
        """Serve until nobody is left."""
        while self._batch:
            self._advance(inf)
        self._count()

    def _advance(self, until_s: float) -> None:
        """Whole steps: to the first at or after `until_s`, but not past one in which a request begins or ends."""
        batch, pace = self._batch, self._pace
        step_s, tokens = pace.step_s[batch - 1], pace.tokens[batch - 1]
        if self._prefilling:
            seconds = step_s + pace.prefill_s * sum(request.prompt_tokens for request, _ in self._prefilling)
            steps = 1
        else:
            steps = ceil((self._decoding[0][0] - self._clock - _ROUNDING) / tokens)
            if until_s - self.now_s < steps * step_s:
                steps = ceil((until_s - self.now_s) / step_s)
            steps = max(steps, 1)
            seconds = steps * step_s
        if self._recorder:
            self._recorder.add(self.now_s, self.now_s + seconds, batch)
        self.now_s += seconds
        self._clock += steps * tokens
        self._seconds_at[batch] += seconds
        if self._prefilling:
            self._begin_decoding(tokens, pace.luck[batch - 1], pace.ks[batch - 1])
        if self._decoding[0][0] <= self._clock + _ROUNDING:
            self._end()

    def _begin_decoding(self, tokens: float, luck: float, k: int) -> None:
        """The step of its prefill gave each new request its first token."""
        # The last step overshoots by half its tokens here, and by this much less where tokens are whole.
        early = (1 - luck**2) / 2 if k else 0.0
        for request, chance in self._prefilling:
            left = max(request.output_tokens - 1, 0)
            needed = left + chance * luck * sqrt(left) - early
            # At best every draft is accepted, at worst none ever is.
            needed = min(max(needed, left * tokens / (k + 1)), left * tokens)
            heappush(self._decoding, (self._clock + needed, request.arrival_s, self.now_s, request.output_tokens))
        self._prefilling.clear()

    def _end(self) -> None:
        first, completion, tpot = self._kept
        while self._decoding and self._decoding[0][0] <= self._clock + _ROUNDING:
            _, arrival_s, first_s, tokens = heappop(self._decoding)
            self._batch -= 1
            self.requests += 1
            self.output_tokens += tokens
            first.append(first_s - arrival_s)
            completion.append(self.now_s - arrival_s)
            if tokens > 1:
                tpot.append((self.now_s - first_s) / (tokens - 1))
        if len(first) > _KEPT:
            self._count()

    def _count(self) -> None:
        for times, kept in zip((self.first_token_s, self.completion_s, self.tpot_s), self._kept, strict=True):
            times.add(kept)
            kept.clear()
