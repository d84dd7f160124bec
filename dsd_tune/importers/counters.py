"""vLLM's speculative counters, from wherever they were copied, turned into acceptance at one K."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsd_tune.errors import UsageError
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS
from dsd_tune.records.published import PublishedAcceptance

SHORTER_LAST_DRAFTS = 0.02
"""Drafts are cut short at the end of a request; by more than this share, more than one K was at work."""

UNDRAFTED_SHARE = 0.05
"""First tokens come from prefill; by more than this share, decode steps ran without a draft."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over a measurement. `by_position` holds accepted tokens at each position, as far as they are known."""

    drafts: int
    draft_tokens: int
    accepted: int
    by_position: tuple[int, ...] = ()
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        counted = (self.output_tokens is None or self.output_tokens > self.accepted) and min(
            self.by_position, default=0
        ) >= 0
        if not (1 <= self.drafts <= self.draft_tokens and 0 <= self.accepted <= self.draft_tokens and counted):
            raise ValueError(f"counters contradict each other: {self}")

    @property
    def mean_drafted(self) -> float:
        """Draft tokens in one draft."""
        return self.draft_tokens / self.drafts

    @property
    def k(self) -> int:
        """The K that these counters can come from, if it was one."""
        return math.ceil(self.mean_drafted - 1e-9)


def acceptance(counters: Counters, k: int | None, method: str | None, source: str) -> PublishedAcceptance:
    """Acceptance at `k`, or at the K that the counters show.

    Length is 1 + accepted/drafts, from the counts and not from what was printed. Where decode steps ran without
    a draft it is output tokens over decode steps, and a step yields its accepted tokens and one more, so steps
    are output minus accepted tokens.

    Raises:
        UsageError: more than one K was at work, or a method with steps that draft nothing lacks output tokens.
    """
    if method in DRAFTER_FREE_METHODS:
        return _capped(counters, k, method, source)
    k = k or counters.k
    _refuse_mixed(counters, k, source)
    rates = tuple(count / counters.drafts for count in counters.by_position[:k])
    length = tokens_per_step(counters) if undrafted_share(counters) > UNDRAFTED_SHARE else _length(counters)
    return PublishedAcceptance(k, length, rates if len(rates) == k else (), counters.drafts, source)


def undrafted_share(counters: Counters) -> float:
    """Share of the output tokens that no draft produced; 0 where output tokens are unknown."""
    if not counters.output_tokens:
        return 0.0
    return max(0.0, 1 - (counters.drafts + counters.accepted) / counters.output_tokens)


def tokens_per_step(counters: Counters) -> float:
    """Output tokens over decode steps, steps without a draft included."""
    output = counters.output_tokens or 0
    return output / (output - counters.accepted)


def _length(counters: Counters) -> float:
    return 1 + counters.accepted / counters.drafts


def _capped(counters: Counters, k: int | None, method: str, source: str) -> PublishedAcceptance:
    if counters.output_tokens is None:
        raise UsageError(
            f"{source}: with method {method} many steps draft nothing, so 1 + accepted/drafts "
            f"({_length(counters):.2f}) is no acceptance length.",
            "Add the output tokens, as column output_tokens or counter vllm:generation_tokens_total.",
        )
    return PublishedAcceptance(k or counters.k, tokens_per_step(counters), (), counters.drafts, source)


def _refuse_mixed(counters: Counters, k: int, source: str) -> None:
    drafted = counters.mean_drafted
    if abs(drafted - k) <= SHORTER_LAST_DRAFTS * k and not any(counters.by_position[k:]):
        return
    raise UsageError(
        f"{source} mixes more than one K: {drafted:.2f} tokens a draft, {len(counters.by_position)} positions, for "
        f"K={k}. Positions that were not drafted count in its rates.",
        "Measure acceptance with a fixed K. (For n-gram drafters say --method ngram.)",
    )
