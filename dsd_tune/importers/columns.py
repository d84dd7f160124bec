"""What the columns of a CSV grid mean, and in which unit they are: by name, or as declared, or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.errors import UsageError
from dsd_tune.importers.declared import Declared, Unit


class Quantity(StrEnum):
    """What a column holds."""

    BATCH_SIZE = "batch size"
    OFFERED = "offered concurrency"
    RUNNING = "running requests"
    K = "K"
    ARM = "arm"
    TPOT = "TPOT"
    STEP = "step time"
    THROUGHPUT = "output tokens a second"
    ITL = "ITL"
    LENGTH = "acceptance length"
    RATE = "acceptance rate"
    POSITION = "acceptance at a position"
    DRAFTS = "drafts"
    DRAFT_TOKENS = "draft tokens"
    ACCEPTED = "accepted tokens"
    OUTPUT_TOKENS = "output tokens"
    FACT = "fact"


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is understood. `rank` orders columns of one quantity: the first that has a value counts."""

    name: str
    quantity: Quantity
    factor: float = 1.0
    rank: int = 0


_NAMES = {
    Quantity.BATCH_SIZE: ("batch_size",),
    Quantity.OFFERED: ("offered", "offered_concurrency", "max_concurrency", "concurrency"),
    Quantity.RUNNING: ("running", "running_median", "num_requests_running"),
    Quantity.K: ("k", "num_speculative_tokens"),
    Quantity.ARM: ("arm",),
    Quantity.LENGTH: ("acceptance_length", "mean_acceptance_length", "al"),
    Quantity.DRAFTS: ("num_drafts", "drafts"),
    Quantity.DRAFT_TOKENS: ("draft_tokens", "num_draft_tokens"),
    Quantity.ACCEPTED: ("accepted_tokens", "num_accepted_tokens"),
    Quantity.OUTPUT_TOKENS: ("output_tokens", "total_output_tokens"),
}
_TIMES = {
    Quantity.TPOT: ("tpot", "mean_tpot", "median_tpot"),
    Quantity.STEP: ("step", "step_time", "mean_step", "median_step"),
    Quantity.ITL: ("itl", "mean_itl", "median_itl"),
}
_OUTPUT_THROUGHPUT = ("output_tok_s", "output_throughput", "output_tokens_per_s", "output_tokens_per_second")
"""Names that say both output and per second; vLLM's own among them."""

_THROUGHPUT = ("tok_s", "throughput", "tokens_per_s", "tokens_per_second", "tps")
"""Names that leave open whether prompt tokens are counted."""

CONTEXT = ("ctx", "context", "context_length", "seq_len", "isl", "osl", "forced_osl", "input_len", "output_len")
"""Axes of sequence length."""

FACTS = frozenset({
    *CONTEXT,
    "model",
    "model_id",
    "tokenizer_id",
    "drafter",
    "method",
    "gpu",
    "engine",
    "backend",
    "workload",
    "dataset",
    "dataset_name",
    "dtype",
    "kv_cache_dtype",
    "load_format",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "cudagraph_mode",
    "vllm_version",
    "commit",
    "prompts_hash",
    "temperature",
    "random_input_len",
    "random_output_len",
})  # fmt: skip
"""What must not differ between rows that are compared."""

_UNIT_SUFFIXES = {"_s": Unit.SECONDS, "_ms": Unit.MILLISECONDS, "_us": Unit.MICROSECONDS}
_POSITION = re.compile(r"(?:p|pos|position_)(\d+)(_pct)?")


def column(name: str, declared: Declared) -> Column | None:
    """The meaning of a column, None if it has none for us.

    Raises:
        UsageError: it holds what we need, in a unit that neither its name nor the user tells.
    """
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    for quantity, names in _NAMES.items():
        if key in names:
            return Column(name, quantity, rank=names.index(key))
    if key in FACTS:
        return Column(name, Quantity.FACT)
    return _throughput(name, key, declared) or _rate(name, key, declared) or _time(name, key, declared)


def _throughput(name: str, key: str, declared: Declared) -> Column | None:
    if key in _OUTPUT_THROUGHPUT or (key in _THROUGHPUT and declared.unit_of(name) is Unit.TOKENS_PER_SECOND):
        return Column(name, Quantity.THROUGHPUT)
    if key in _THROUGHPUT:
        raise _undeclared(name, "does not say whether prompt tokens are counted", Unit.TOKENS_PER_SECOND)
    return None


def _rate(name: str, key: str, declared: Declared) -> Column | None:
    if key in ("acceptance_rate", "acceptance_rate_pct"):
        unit = Unit.PERCENT if key.endswith("_pct") else declared.unit_of(name)
        if unit not in (Unit.PERCENT, Unit.FRACTION):
            raise _undeclared(name, "may be a percentage or a fraction", Unit.PERCENT, Unit.FRACTION)
        return Column(name, Quantity.RATE, unit.factor)
    if match := _POSITION.fullmatch(key):
        unit = Unit.PERCENT if match[2] else declared.unit_of(name) or Unit.FRACTION
        return Column(name, Quantity.POSITION, unit.factor, int(match[1]))
    return None


def _time(name: str, key: str, declared: Declared) -> Column | None:
    suffix = next((s for s in _UNIT_SUFFIXES if key.endswith(s)), "")
    base = key.removesuffix(suffix)
    for quantity, names in _TIMES.items():
        if base in names:
            unit = _UNIT_SUFFIXES.get(suffix) or declared.unit_of(name)
            if unit is None or unit not in _UNIT_SUFFIXES.values():
                raise _undeclared(name, "does not say its unit", *_UNIT_SUFFIXES.values())
            return Column(name, quantity, unit.factor, names.index(base))
    return None


def _undeclared(name: str, why: str, *units: Unit) -> UsageError:
    return UsageError(f"column {name} {why}.", f"Declare it: {' or '.join(f'--unit {name}={unit}' for unit in units)}.")
