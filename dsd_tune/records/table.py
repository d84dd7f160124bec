"""The table itself: which K applies at which batch size, with vLLM's own meaning and none of its leniency."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise


@dataclass(frozen=True, slots=True)
class Range:
    """Batch sizes `first` to `last`, both included, run with `k` speculative tokens a request."""

    first: int
    last: int
    k: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ValueError(f"a range needs 1 <= first <= last, got {self.first} to {self.last}")
        if self.k < 0:
            raise ValueError(f"K must be 0 or more, got {self.k}")


@dataclass(frozen=True, slots=True)
class Table:
    """Ranges that start at 1, leave no gap, and differ from their neighbours.

    vLLM accepts gaps, open tails and values it will clamp. A table of ours never needs that leniency, so
    its meaning is the same under every vLLM that knows the field.
    """

    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        if not self.ranges:
            raise ValueError("a table needs at least one range")
        if self.ranges[0].first != 1:
            raise ValueError(f"the first range must start at 1, got {self.ranges[0].first}")
        for left, right in pairwise(self.ranges):
            if right.first != left.last + 1:
                raise ValueError(f"{left} and {right} are not adjacent")
            if right.k == left.k:
                raise ValueError(f"{left} and {right} have the same K and must be one range")

    @classmethod
    def from_dense(cls, ks: Sequence[int]) -> Table:
        """Build from one K for each batch size: `ks[0]` belongs to batch size 1."""
        ranges = []
        first = 1
        for k, run in groupby(ks):
            last = first + sum(1 for _ in run) - 1
            ranges.append(Range(first, last, k))
            first = last + 1
        return cls(tuple(ranges))

    @property
    def max_num_seqs(self) -> int:
        """The batch size at which the table is closed."""
        return self.ranges[-1].last

    @property
    def k_max(self) -> int:
        """The largest K: what `num_speculative_tokens` must be so that nothing is clamped."""
        return max(r.k for r in self.ranges)

    @property
    def ks(self) -> frozenset[int]:
        """The distinct Ks; each costs CUDA graphs where vLLM captures them per K."""
        return frozenset(r.k for r in self.ranges)

    @property
    def is_constant(self) -> bool:
        """Whether one fixed K says the same."""
        return len(self.ranges) == 1

    def k_at(self, batch_size: int) -> int:
        """K at a batch size from 1 to `max_num_seqs`."""
        if not 1 <= batch_size <= self.max_num_seqs:
            raise ValueError(f"batch size {batch_size} is outside 1 to {self.max_num_seqs}")
        firsts = [r.first for r in self.ranges]
        return self.ranges[bisect_right(firsts, batch_size) - 1].k

    def dense(self) -> tuple[int, ...]:
        """One K for each batch size from 1 to `max_num_seqs`."""
        return tuple(r.k for r in self.ranges for _ in range(r.first, r.last + 1))

    def as_lists(self) -> list[list[int]]:
        """The value of vLLM's `num_speculative_tokens_per_batch_size`."""
        return [[r.first, r.last, r.k] for r in self.ranges]
