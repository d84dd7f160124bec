"""The decision as TensorRT-LLM's `draft_len_schedule`: keys are the largest batch size of a range."""

from __future__ import annotations

from collections.abc import Iterator

from dsd_tune.emit.decision import advised_table, max_num_seqs
from dsd_tune.emit.emission import Emission
from dsd_tune.emit.foreign import MEASURED_ELSEWHERE
from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table

_FLOOR = "One-engine drafters never draft less than 1 token, so where this says 0 they draft 1"


def write(profile: Profile) -> Emission:
    """Part of an LLM API config. `max_batch_size` keeps batches under the last key, above which 0 is implied.

    Raises:
        UsageError: the first range does not have the largest K, which TensorRT-LLM refuses.
    """
    table = advised_table(profile)
    lines = [f"max_batch_size: {max_num_seqs(profile)}"]
    if table is None:
        return Emission("\n".join(lines))
    remarks = ("Merge speculative_config with the one that names your drafter", MEASURED_ELSEWHERE)
    return Emission("\n".join([*lines, *_speculative(table)]), remarks + ((_FLOOR,) if 0 in table.ks else ()))


def _speculative(table: Table) -> Iterator[str]:
    first = table.ranges[0]
    if first.k != table.k_max:
        raise UsageError(
            f"TensorRT-LLM wants the largest draft length at the smallest batch sizes; here it is {first.k} up to "
            f"{first.last} and {table.k_max} later.",
            "Use a fixed max_draft_len there.",
        )
    yield "speculative_config:"
    yield f"  max_draft_len: {table.k_max}"
    if not table.is_constant:
        schedule = ", ".join(f"{r.last}: {r.k}" for r in table.ranges)
        yield f"  draft_len_schedule: {{{schedule}}}"
