"""Looks for the names that the runtime relies on: `python benchmarks/hooks_in_packages.py FOLDER...`.

Each folder holds an unpacked wheel of vLLM, of any release and for any machine: its files are read, nothing of it runs.
To unpack one: `pip download --no-deps vllm==0.33.0`, then `unzip -q vllm-0.33.0-*.whl 'vllm/*.py' -d FOLDER`.
Without a folder, the installed vLLM. Ends with 1 if a name is missing anywhere.
"""

from __future__ import annotations

import ast
import sys
import warnings
from pathlib import Path

from dsd_tune.engines.vllm_source import find

HOOKS: dict[str, dict[str, tuple[str, ...]]] = {
    "engine/arg_utils.py": {"EngineArgs": ("create_engine_config",)},
    "config/vllm.py": {
        "VllmConfig": (
            *("__post_init__", "model_config", "cache_config", "parallel_config", "scheduler_config"),
            "speculative_config",
        )
    },
    "config/scheduler.py": {"SchedulerConfig": ("get_scheduler_cls", "max_num_seqs")},
    "config/speculative.py": {
        "SpeculativeConfig": ("method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size")
    },
    "config/parallel.py": {"ParallelConfig": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")},
    "config/cache.py": {"CacheConfig": ("mamba_cache_mode",)},
    "config/model.py": {"ModelConfig": ("model", "dtype", "is_hybrid", "served_model_name")},
    "v1/core/sched/scheduler.py": {
        "Scheduler": (
            *("schedule", "_update_after_schedule", "update_from_output", "dynamic_sd_lookup", "requests"),
            "vllm_config",
        )
    },
    "v1/core/sched/output.py": {
        "SchedulerOutput": (
            *("num_spec_tokens_to_schedule", "num_scheduled_tokens", "scheduled_new_reqs", "scheduled_cached_reqs"),
            "scheduled_spec_decode_tokens",
        ),
        "NewRequestData": ("req_id",),
        "CachedRequestData": ("resumed_req_ids",),
    },
    "v1/request.py": {"Request": ("num_computed_tokens", "num_tokens", "num_output_placeholders")},
    "v1/outputs.py": {"ModelRunnerOutput": ("sampled_token_ids",)},
    "v1/metrics/loggers.py": {
        "StatLoggerManager": ("__init__", "stat_loggers", "engine_indexes"),
        "AggregateStatLoggerBase": (),
    },
    "v1/metrics/stats.py": {
        "SchedulerStats": ("num_running_reqs", "spec_decoding_stats"),
        "IterationStats": ("finished_requests", "num_prompt_tokens", "num_generation_tokens"),
    },
    "v1/spec_decode/metrics.py": {
        "SpecDecodingStats": ("num_drafts", "num_draft_tokens_per_pos", "num_accepted_tokens_per_pos")
    },
}
"""File, class, and what of it is called, wrapped, read or set."""


def main() -> int:
    """Print a line for each package, and for each name that it lacks."""
    lacking = 0
    for folder in [find(Path(word)) for word in sys.argv[1:]] or [find(None)]:
        missed = missing(folder)
        count = sum(len(names) + 1 for classes in HOOKS.values() for names in classes.values())
        print(f"{folder}: {count - len(missed)} of {count} names", *missed, sep="\n  ")
        lacking += len(missed)
    return int(lacking > 0)


def missing(folder: Path) -> list[str]:
    """What the package in `folder` lacks, as `file: Class.name`."""
    return [
        f"{file}: {name}"
        for file, classes in HOOKS.items()
        for name in sorted(wanted(classes) - defined(folder / file))
    ]


def wanted(classes: dict[str, tuple[str, ...]]) -> set[str]:
    """`Class` and `Class.name` for all of a file."""
    return classes.keys() | {f"{owner}.{name}" for owner, names in classes.items() for name in names}


def defined(file: Path) -> set[str]:
    """Every class of a file, and what each defines: methods, fields, and attributes that it sets on itself."""
    if not file.is_file():
        return set()
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(file.read_bytes())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {one.name for one in classes} | {f"{one.name}.{name}" for one in classes for name in members(one)}


def members(owner: ast.ClassDef) -> set[str]:
    """Names in a class."""
    found = {node.name for node in owner.body if isinstance(node, ast.FunctionDef)}
    found |= {
        node.target.id for node in owner.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    found |= {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return found


if __name__ == "__main__":
    sys.exit(main())
