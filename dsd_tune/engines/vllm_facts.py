"""What differs between vLLM's versions and methods, in one place; read in the releases 0.24 to 0.33."""

from __future__ import annotations

TABLE_FIELD = "num_speculative_tokens_per_batch_size"
"""The field of vLLM's speculative config that holds a table; a vLLM without it (before 0.24) has no tables."""

DRAFTER_FREE_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that propose from the text itself, and may propose fewer tokens than K."""

_STOPS_AT_SMALLER_K = "asserts that every step drafts num_speculative_tokens, and stops the engine at a smaller K"

METHODS_WITHOUT_TABLE = {
    "ngram_gpu": _STOPS_AT_SMALLER_K,
    "suffix": _STOPS_AT_SMALLER_K,
    "medusa": _STOPS_AT_SMALLER_K,
    "extract_hidden_states": _STOPS_AT_SMALLER_K,
    "custom_class": "never tells the proposer which K was chosen, so the table has no effect",
}
"""Why a method cannot run under a table; 0.33 drops the table instead of stopping."""

PARALLEL_DRAFTING = "reshapes its drafts by num_speculative_tokens, so at a smaller K requests get each other's drafts"
"""Why PARD and P-EAGLE cannot run under a table, in every version so far."""

PARALLEL_NATIVE = frozenset({"dflash", "dspark"})
"""Methods that draft in parallel and still follow a smaller K."""

OWN_FLAGS = {
    "--model": "--model",
    "--max-num-seqs": "--max-num-seqs",
    "--speculative-config": "--speculative-config",
    "-sc": "--speculative-config",
    "--spec-method": "--speculative-config",
    "--spec-model": "--speculative-config",
    "--spec-tokens": "--speculative-config",
}
"""Flags of `vllm serve` that dsd-tune sets itself, with the option that the user should use instead."""


def table_obstacle(method: str, *, parallel_drafting: bool, data_parallel_size: int) -> str | None:
    """Why vLLM cannot follow a table with this method and parallelism, as a sentence; None if it can."""
    if method in METHODS_WITHOUT_TABLE:
        return f"The method {method} {METHODS_WITHOUT_TABLE[method]}."
    if parallel_drafting and method not in PARALLEL_NATIVE:
        return f"Parallel drafting {PARALLEL_DRAFTING}."
    if data_parallel_size > 1:
        return f"vLLM drops the table when data parallelism is above 1, and it is {data_parallel_size}."
    return None


def sweep_table(ks: tuple[int, ...], max_num_seqs: int) -> list[list[int]]:
    """A table under which every K of `ks` gets the CUDA graphs it would have in a real one.

    vLLM (0.29 and later) captures sizes for each K up to the widest batch that the table runs at it, so
    each K gets its own batch size at the far end, and the largest K everything before. It is never looked up.

    Raises:
        ValueError: fewer batch sizes than Ks.
    """
    if max_num_seqs < len(ks):
        raise ValueError(f"{len(ks)} values of K need max_num_seqs of at least that, got {max_num_seqs}")
    largest, *others = sorted(ks, reverse=True)
    head = max_num_seqs - len(others)
    return [[1, head, largest], *([head + i, head + i, k] for i, k in enumerate(others, start=1))]
