"""Tokens per second, from the step times of the profile and the acceptance of the moment."""

from __future__ import annotations

from collections.abc import Sequence

from dsd_tune.records.table import Table
from dsd_tune.runtime.acceptance import Acceptance
from dsd_tune.runtime.costs import StepTimes
from dsd_tune.runtime.policies.table import TablePolicy
from dsd_tune.runtime.policy import StepView

PROBE_EVERY = 128
PROBE_STEPS = 4
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
        self._acceptance = Acceptance(rates)
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
        """Keep acceptance up to the moment."""
        self._acceptance.observe(drafted, accepted, steps)

    def _better(self, options: list[tuple[int, float]]) -> int:
        """The most promising K; the one in force, if it is as good within the margin."""
        tokens, best, most, current = self._acceptance.tokens, 0, 0.0, 0.0
        for k, step_s in options:
            promise = tokens[k] / step_s
            if promise > most:
                best, most = k, promise
            if k == self._best:
                current = promise
        return best if most > current * (1 + MARGIN) else self._best
