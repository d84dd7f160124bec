"""The table without its nerves: prefills do not count, ties do not switch, and a switch has to last."""

from __future__ import annotations

from collections.abc import Sequence

from dsd_tune.records.profile import Boundary
from dsd_tune.records.table import Table
from dsd_tune.runtime.policy import StepView

DWELL = 16
"""Steps from one switch to the next, at least. Each costs one step at a K meant for another batch."""


class HysteresisPolicy:
    """Looks a table up by the requests that decode, and leaves a range only where another K is better for certain.

    Around each boundary the profile states the batch sizes at which both Ks are tied. Inside, the K in force stays: it
    costs nothing that was measured. The band is never narrower than the two batch sizes that the boundary separates.
    """

    __slots__ = ("_dwell", "_highest", "_ks", "_lowest", "_range", "_since")

    def __init__(self, table: Table, boundaries: Sequence[Boundary], dwell: int = DWELL) -> None:
        tied = {boundary.after: boundary for boundary in boundaries}
        afters = [r.last for r in table.ranges[:-1]]
        firsts = [min(after, tied[after].low) if after in tied else after for after in afters]
        lasts = [max(after + 1, tied[after].high) if after in tied else after + 1 for after in afters]
        self._ks = tuple(r.k for r in table.ranges)
        sizes = range(table.max_num_seqs + 1)
        # A noisy tie may reach over the next boundary, so neither list need be in order.
        self._lowest = tuple(max((i for i, last in enumerate(lasts, 1) if last < size), default=0) for size in sizes)
        self._highest = tuple(
            min((i for i, first in enumerate(firsts) if first > size), default=len(firsts)) for size in sizes
        )
        self._dwell = dwell
        self._since = dwell
        self._range = 0

    def k(self, step: StepView) -> int:
        """The K in force, or that of the nearest range which the batch size no longer leaves open."""
        size = min(step.decoding, len(self._lowest) - 1)
        self._since += 1
        if size and self._since > self._dwell:
            nearest = min(max(self._range, self._lowest[size]), self._highest[size])
            if nearest != self._range:
                self._range, self._since = nearest, 0
        return self._ks[self._range]
