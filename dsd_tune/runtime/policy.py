"""Who decides K, one batch size at a time. Runs inside an engine: it must be cheap and must not raise."""

from __future__ import annotations

from typing import Protocol

from dsd_tune.records.table import Table


class Policy(Protocol):
    """A rule that gives the number of speculative tokens for the next step."""

    def k(self, batch_size: int) -> int:
        """K for a step in which `batch_size` requests were scheduled."""
        ...


class TablePolicy:
    """A table, with vLLM's own meaning: the last K is carried on past the table's end, and nothing is 0."""

    __slots__ = ("_dense",)

    def __init__(self, table: Table) -> None:
        self._dense = (0, *table.dense())

    def k(self, batch_size: int) -> int:
        """K of the range that holds `batch_size`."""
        return self._dense[max(0, min(batch_size, len(self._dense) - 1))]


class FixedPolicy:
    """One K for every batch size, which may be changed between two steps: how a sweep switches K live."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def k(self, batch_size: int) -> int:
        """The K last set, whatever the batch size."""
        return self.value
