"""What vLLM itself makes of a server's flags, before any weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configured:
    """vLLM's effective settings. `kept_table` says whether its configuration still holds the table.

    `drafter_max_len` is None for a drafter without a context of its own; `claimed_share` of all memory is what
    vLLM takes at start, None if a size is given instead. `unread` are flags that no engine knows.
    """

    method: str
    k_max: int
    kept_table: bool
    parallel_drafting: bool
    runner: str
    device: str
    cudagraph_mode: str
    capture_sizes: tuple[int, ...]
    enforce_eager: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    drafter_max_len: int | None
    hybrid: bool
    async_scheduling: bool
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    lora: bool
    claimed_share: float | None
    unread: tuple[str, ...] = ()
