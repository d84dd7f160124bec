"""TensorRT-LLM's `draft_len_schedule` as a table: keys are the largest batch size of a tier, above the last is 0."""

from __future__ import annotations

from collections.abc import Mapping

from dsd_tune.importers.schedule import ForeignTable, closing_size, keyed_by_batch_size
from dsd_tune.records.table import Table

_FLOOR = "TensorRT-LLM's one-engine drafters never go below 1, where this table has 0"


def read_tensorrt_llm(document: Mapping[str, object], where: str, max_num_seqs: int | None) -> ForeignTable | None:
    """The schedule in an LLM-API config or in its `speculative_config`; None if there is none.

    Raises:
        UsageError: a bad number, or the end is not known.
    """
    config = document.get("speculative_config", document)
    if not isinstance(config, dict) or not isinstance(schedule := config.get("draft_len_schedule"), dict):
        return None
    ks = keyed_by_batch_size(schedule, where)
    limit = config.get("max_concurrency")
    size = closing_size(max_num_seqs, document.get("max_batch_size", document.get("max_num_seqs")), where)
    table = _table(ks, size, limit if type(limit) is int else size)
    return ForeignTable("TensorRT-LLM draft_len_schedule", table, (_FLOOR,) if 0 in table.ks else ())


def _table(by_last: dict[int, int], max_num_seqs: int, max_concurrency: int) -> Table:
    """Each tier up to its key; K=0 above the last one and above `max_concurrency`."""
    dense: list[int] = []
    for last, k in by_last.items():
        dense += [k] * (last - len(dense))
    dense = dense[:max_concurrency]
    dense += [0] * (max_num_seqs - len(dense))
    return Table.from_dense(dense[:max_num_seqs])
