"""Whether a table is live on a server: what it drafts while a known number of requests decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsd_tune.engines.held_load import Reading
from dsd_tune.records.table import Table

RANGES = 3
"""Ranges of a table that are tried."""
NEAR = 0.25
"""Drafts may be cut short at the end of a request, and n-gram drafters may find less."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What was read at each batch size, with the table's K there."""

    readings: tuple[Reading, ...]
    expected: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.readings or len(self.readings) != len(self.expected):
            raise ValueError("each reading needs the K that was expected")

    @property
    def is_live(self) -> bool:
        """Whether every reading shows the table's K."""
        return all(self._matches(self.expected))

    @property
    def reason(self) -> str:
        """What is so, in one sentence, and what to look at if the table is not live."""
        ks = [reading.k for reading in self.readings]
        if self.is_live:
            return "The table is live."
        if not any(ks):
            return "Nothing was drafted at any batch size. Start the server with --speculative-config and the table."
        if max(ks) - min(ks) <= NEAR:
            return (
                f"The server drafts {ks[0]:.1f} tokens at every batch size: a fixed K. Its table was not given, or was "
                "dropped (data parallelism), or its vLLM ignores tables: ask `dsd-tune check vllm serve ...`."
            )
        cap = round(max(ks))
        if all(self._matches([min(k, cap) for k in self.expected])):
            return f"The table is live, cut off at K={cap}. Raise num_speculative_tokens to {max(self.expected)}."
        return "The server follows another table, or a policy that looks at more than the batch size."

    def _matches(self, ks: Sequence[int]) -> list[bool]:
        return [abs(reading.k - k) <= NEAR for reading, k in zip(self.readings, ks, strict=True)]


def probe(table: Table, read: Callable[[int], Reading]) -> Probed:
    """Read at the first batch size of up to three ranges: the first, the last and one between.

    Raises:
        Whatever `read` raises.
    """
    ranges = table.ranges
    chosen = ranges if len(ranges) <= RANGES else (ranges[0], ranges[len(ranges) // 2], ranges[-1])
    return Probed(tuple(read(one.first) for one in chosen), tuple(one.k for one in chosen))
