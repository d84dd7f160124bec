"""Counts drafted and accepted tokens by prompt and position while a block runs."""

from __future__ import annotations

from collections import Counter, defaultdict

from dsd_tune.records.measurement import PromptCounts


class Tally:
    """Adds up one block's counts; two requests of the same prompt count together."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._steps: Counter[str] = Counter()
        self._drafted: defaultdict[str, list[int]] = defaultdict(lambda: [0] * k)
        self._accepted: defaultdict[str, list[int]] = defaultdict(lambda: [0] * k)

    def add(self, prompt: str, *, drafted: int, new_tokens: int, before_eos: int) -> None:
        """One request's step: `drafted` tokens were verified and `new_tokens` came out, the last one the model's own.

        Positions from the end of sequence on are not counted: nobody would have asked for them.
        """
        self._steps[prompt] += 1
        for i in range(min(drafted, before_eos if before_eos < new_tokens else drafted)):
            self._drafted[prompt][i] += 1
        for i in range(min(new_tokens - 1, before_eos)):
            self._accepted[prompt][i] += 1

    def counts(self) -> tuple[PromptCounts, ...]:
        """One record a prompt, in the order of their ids."""
        return tuple(
            PromptCounts(p, self._steps[p], tuple(self._drafted[p]), tuple(self._accepted[p]))
            for p in sorted(self._steps)
        )
