"""Tokens per second, from the step times of the profile and the acceptance of the moment."""

from __future__ import annotations

from collections.abc import Sequence

from dsd_tune.records.table import Table
from dsd_tune.runtime.costs import StepTimes, tokens_per_step
from dsd_tune.runtime.policies.table import TablePolicy
from dsd_tune.runtime.policy import StepView

WINDOW_DRAFTS = 512
FASTEST, SLOWEST = 16, 128
"""Acceptance is averaged over so many drafts, exponentially, but over no fewer and no more steps than these."""
PRIOR_DRAFTS = 4.0
"""How many drafts the profile's own acceptance is worth."""
PROBE_EVERY = 256
PROBE_STEPS = 8
"""A K that promises nothing is tried for 3 % of the steps, since acceptance is only seen where something is drafted."""
MARGIN = 0.02
"""A K must promise this much more than the one in force: estimates waver by as much."""


class GoodputPolicy:
    """The K with the most expected tokens per second at the number of requests decoding.

    Where the profile has no step times for at least two Ks, the table decides.
    """

    def __init__(self, times: StepTimes, rates: Sequence[float], table: Table, ks: frozenset[int]) -> None:
        """`rates[i]` is the profile's acceptance at position i + 1; only `ks` that it covers are chosen."""
        self._table = TablePolicy(table)
        self._options = [
            [(k, step_s) for k, step_s in times.at(size).items() if k in ks and k <= len(rates)]
            for size in range(table.max_num_seqs + 1)
        ]
        self._prior = [rate / before if before else 0.0 for rate, before in zip(rates, (1.0, *rates), strict=False)]
        self._drafted = [0.0] * len(rates)
        self._accepted = [0.0] * len(rates)
        self._first = self._prior[0]
        self._keep = 1 - 1 / SLOWEST
        self._tokens: Sequence[float] = tokens_per_step(rates)
        self._best = -1
        self._step = 0

    def k(self, step: StepView) -> int:
        """The best K, or now and then the next larger one to see what it would bring."""
        options = self._options[min(step.decoding, len(self._options) - 1)]
        if len(options) < 2:
            return self._table.k(step)
        self._step += 1
        self._best = self._better(options)
        if self._step % PROBE_EVERY >= PROBE_EVERY - PROBE_STEPS:
            return next((k for k, _ in options if k > self._best), self._best)
        return self._best

    def observe(self, drafted: Sequence[int], accepted: Sequence[int], steps: int) -> None:
        """Average acceptance at each position, given that all before it were accepted.

        What was seen loses weight with every step, so that a probe after a long time at K=0 counts. Position 1 keeps
        its estimate until then. Later ones return to the profile's, changed as position 1 has changed.
        """
        if drafted:
            self._keep = 1 - min(max(drafted[0] / WINDOW_DRAFTS, 1 / SLOWEST), 1 / FASTEST)
        keep = self._keep**steps
        before = drafted[0] if drafted else 0
        share, change, tokens = 1.0, 1.0, [1.0]
        for i, prior in enumerate(self._prior):
            self._drafted[i] *= keep
            self._accepted[i] *= keep
            if i < len(drafted):
                self._drafted[i] += min(before, drafted[i])
                self._accepted[i] += accepted[i]
                before = accepted[i]
            assumed = min(1.0, change * prior) if i else self._first
            now = (self._accepted[i] + PRIOR_DRAFTS * assumed) / (self._drafted[i] + PRIOR_DRAFTS)
            if i == 0:
                self._first = now
                change = now / prior if prior else 1.0
            share *= now
            tokens.append(tokens[i] + share)
        self._tokens = tokens

    def _better(self, options: list[tuple[int, float]]) -> int:
        """The most promising K; the one in force, if it is as good within the margin."""
        tokens, best, most, current = self._tokens, 0, 0.0, 0.0
        for k, step_s in options:
            promise = tokens[k] / step_s
            if promise > most:
                best, most = k, promise
            if k == self._best:
                current = promise
        return best if most > current * (1 + MARGIN) else self._best
