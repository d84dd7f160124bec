"""SGLang's adaptive JSON as a table: keys are the smallest batch size of a tier, and the first tier begins at 1."""

from __future__ import annotations

from collections.abc import Mapping

from dsd_tune.errors import UsageError
from dsd_tune.importers.schedule import ForeignTable, closing_size, keyed_by_batch_size
from dsd_tune.records.table import Table

_PADDING = "SGLang pads the batch to its CUDA graph before it looks a tier up; vLLM does not"


def read_sglang(document: Mapping[str, object], where: str, max_num_seqs: int | None) -> ForeignTable | None:
    """The table in a file of `--speculative-adaptive-config`, or under `bs_params`; None if this is neither.

    A tier names steps, and a step drafts one token (`num_draft_tokens` counts the bonus token too).

    Raises:
        UsageError: a tier chooses among several steps while it runs, a bad number, or the end is not known.
    """
    tiers = document.get("bs_params", document)
    if not isinstance(tiers, dict) or not any(str(key).isdigit() for key in tiers):
        return None
    ks = keyed_by_batch_size({key: _steps(tiers[key], key, where) for key in tiers if str(key).isdigit()}, where)
    size = closing_size(max_num_seqs, document.get("max_running_requests", document.get("max_num_seqs")), where)
    return ForeignTable("SGLang adaptive JSON", _table(ks, size), (_PADDING,))


def _table(by_first: dict[int, int], max_num_seqs: int) -> Table:
    """Each tier from its key to the next one; batch sizes under the first key belong to the first tier."""
    firsts = list(by_first)
    dense: list[int] = []
    for first, end in zip(firsts, [*(later - 1 for later in firsts[1:]), max_num_seqs], strict=True):
        dense += [by_first[first]] * (end - len(dense))
    return Table.from_dense(dense[:max_num_seqs])


def _steps(tier: object, key: str, where: str) -> object:
    candidates = tier.get("candidate_steps") if isinstance(tier, dict) else tier
    if not isinstance(candidates, list):
        return candidates
    if len(candidates) != 1:
        raise UsageError(
            f"{where}: the tier {key} chooses among {candidates} while it runs; a table has one K for a batch size.",
            "Leave one step in each tier, or measure with `dsd-tune sweep`.",
        )
    return candidates[0]
