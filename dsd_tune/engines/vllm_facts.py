"""What differs between vLLM's versions and methods, in one place; read in the releases 0.24 to 0.33."""

from __future__ import annotations

from dsd_tune.records.drafter import PARALLEL_NATIVE
from dsd_tune.records.release import Release

FIRST_WITH_TABLES = Release(0, 24)
"""The release that introduced tables."""

NEWEST_READ = Release(0, 33)
"""The newest release whose behaviour is known here; later ones are taken to be like it."""

TABLE_FIELD = "num_speculative_tokens_per_batch_size"
"""The field of vLLM's speculative config that holds a table; a vLLM without it (before 0.24) has no tables."""

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

OWN_FLAGS = {
    "--model": "--model",
    "--max-num-seqs": "--max-num-seqs",
    "--load-format": "--load-format",
    "--speculative-config": "--speculative-config",
    "-sc": "--speculative-config",
    "--spec-method": "--speculative-config",
    "--spec-model": "--speculative-config",
    "--spec-tokens": "--speculative-config",
}
"""Flags of `vllm serve` that dsd-tune sets itself, with the option that the user should use instead."""

SHORT_FLAGS = {
    "O": "optimization-level",
    "ac": "attention-config",
    "asc": "api-server-count",
    "cc": "compilation-config",
    "dc": "diffusion-config",
    "dcp": "decode-context-parallel-size",
    "dp": "data-parallel-size",
    "dpa": "data-parallel-address",
    "dpb": "data-parallel-backend",
    "dpe": "data-parallel-external-lb",
    "dph": "data-parallel-hybrid-lb",
    "dpl": "data-parallel-size-local",
    "dpm": "data-parallel-multi-port-external-lb",
    "dpn": "data-parallel-rank",
    "dpp": "data-parallel-rpc-port",
    "dpr": "data-parallel-start-rank",
    "ep": "enable-expert-parallel",
    "n": "nnodes",
    "pcp": "prefill-context-parallel-size",
    "pp": "pipeline-parallel-size",
    "q": "quantization",
    "r": "node-rank",
    "sc": "speculative-config",
    "tp": "tensor-parallel-size",
}
"""Short flags of `vllm serve`, with their long names; a `--config` file knows only these. Read in 0.32."""


def long_flag(word: str) -> tuple[str, str | None]:
    """A flag's long name without dashes in front, as vLLM normalises it, and the value glued to it by `=`.

    Dots lead to fields of a config and stay; `-O3` is an optimization level of 3.
    """
    if word.startswith("-O") and word[2:3] not in ("", "=", "."):
        word = f"-O={word[2:]}"
    flag, equals, value = word.partition("=")
    head, dot, field = flag.lstrip("-").partition(".")
    head = head.replace("_", "-") if flag.startswith("--") else SHORT_FLAGS.get(head, head)
    return f"{head}{dot}{field}", value if equals else None


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
