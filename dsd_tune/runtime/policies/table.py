"""The table as vLLM reads it."""

from __future__ import annotations

from dsd_tune.records.table import Table
from dsd_tune.runtime.policy import StepView


class TablePolicy:
    """A table, with vLLM's own meaning: looked up by requests scheduled; past the table's end its last K goes on."""

    __slots__ = ("_dense",)

    def __init__(self, table: Table) -> None:
        self._dense = (0, *table.dense())

    def k(self, step: StepView) -> int:
        """K of the range that holds the batch size."""
        return self._dense[min(step.batch_size, len(self._dense) - 1)]
