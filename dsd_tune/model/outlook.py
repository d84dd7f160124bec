"""The CUDA graphs of an engine that is yet to get its table, beside those of the engine that was measured.

vLLM derives what it captures from the table itself, so a step may lack in deployment the graph it was measured with.
"""

from __future__ import annotations

from dataclasses import replace

from dsd_tune.model.claims import neighbours
from dsd_tune.model.cudagraph import Dispatcher, Graph, GraphSettings
from dsd_tune.records.table import Table

_RANK = {Graph.NONE: 0, Graph.PIECEWISE: 1, Graph.FULL: 2}


class Outlook:
    """`engine` is what will be deployed, but for K_max and table; `measured` the engine of the sweep."""

    def __init__(self, engine: GraphSettings, measured: GraphSettings, batch_sizes: tuple[int, ...]) -> None:
        self._engine = engine
        self._measured = Dispatcher(measured)
        self._around = {b: neighbours(batch_sizes, b) for b in range(1, engine.max_num_seqs + 1)}

    def misses(self, table: Table, sizes: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Batch sizes at which `table` runs a lesser graph than was measured on either side; `sizes` as in vLLM."""
        engine = self._with(table, sizes or self._engine.sizes)
        numbered = enumerate(zip(Dispatcher(engine).by_batch_size(), table.dense(), strict=True), start=1)
        return tuple(b for b, (graph, k) in numbered if _RANK[graph] < self._measured_rank(b, k))

    def mending_sizes(self, table: Table) -> tuple[int, ...]:
        """Capture sizes under which `table` misses nothing: vLLM's own and few more; none where they are not needed.

        Nor are there any where the user chose sizes, or no size helps.
        """
        misses = self.misses(table)
        if not misses or self._engine.sizes is not None or self._engine.max_size is not None:
            return ()
        sizes = set(Dispatcher(self._with(table, None)).sizes)
        while misses:
            # A size is captured for every K, so those added may take others' place in turn.
            wanted = sizes | {b * (table.k_at(b) + 1) for b in misses}
            if wanted == sizes:
                return ()
            sizes = wanted
            misses = self.misses(table, tuple(sorted(sizes)))
        return tuple(sorted(sizes))

    def _with(self, table: Table, sizes: tuple[int, ...] | None) -> GraphSettings:
        """One K for all batch sizes is deployed without a table."""
        dense = None if table.is_constant else table.dense()
        return replace(self._engine, k_max=table.k_max, table=dense, stated_ks=tuple(sorted(table.ks)), sizes=sizes)

    def _measured_rank(self, batch_size: int, k: int) -> int:
        """Of the better graph on either side, as far as the measured engine captured any."""
        if batch_size * (k + 1) > max(self._measured.sizes, default=0):
            return _RANK[Graph.NONE]
        return max(_RANK[self._measured.dispatch(b, k).graph] for b in self._around[batch_size])
