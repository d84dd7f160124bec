"""From a user's words to a `SweepRequest`: defaults filled in, nonsense refused with one sentence."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.errors import UsageError
from dsd_tune.records.run import SweepRequest

STEPS = 8
"""Kept steps in a block: long enough that its median shrugs off one bad step, short enough to rotate often."""

SETTLE = 2
"""Steps dropped after a change of K: drafts lag by one step, and the first step at a new shape is slow."""

DEFAULT_LARGEST_BATCH = 32
DEFAULT_K_MAX = 4

LARGEST_K = 1024
"""Far above what any drafter drafts: more is a typing error."""

TESTBED_FLAGS = ("--max-model-len", "1024", "--enforce-eager", "--kv-cache-memory-bytes", "512M")
"""Compiling would take longer than the testbed's whole sweep; without a cache size vLLM claims most of the memory."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be measured, whoever named it."""

    model: str
    speculative_config: dict[str, object]
    prompts: Path
    engine_flags: tuple[str, ...]


def named_target(model: str | None, config: str | None, prompts: Path | None, flags: list[str]) -> Target:
    """The user's own model, drafter and prompts; all three are needed.

    Raises:
        UsageError: one is missing, or the config is no JSON object that names a method or drafter.
    """
    if model is None or config is None or prompts is None:
        pairs = (("--model", model), ("--speculative-config", config), ("--prompts", prompts))
        missing = ", ".join(name for name, value in pairs if value is None)
        raise UsageError(f"{missing} must be given.", "Or use --testbed to try the shipped small model.")
    return Target(model, parse_config(config), prompts, tuple(flags))


def testbed_target(model: str | None, config: str | None, prompts: Path | None, flags: list[str]) -> Target:
    """The testbed's parts, except those that the user names."""
    import sys

    from dsd_tune.testbed.prepare import prepare

    ready = prepare(lambda line: print(line, file=sys.stderr))
    return Target(
        model or str(ready.target),
        parse_config(config) if config else {"method": "eagle3", "model": str(ready.eagle3)},
        prompts or ready.prompts,
        (*TESTBED_FLAGS, *flags),
    )


def parse_config(text: str) -> dict[str, object]:
    """A `--speculative-config` value without a table.

    Raises:
        UsageError: no JSON, no object, or it already holds a table.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--speculative-config is not JSON ({error}).",
            """Write it in single quotes: '{"method":"eagle3","model":"..."}'.""",
        ) from error
    if not isinstance(config, dict) or not ({"method", "model"} & config.keys()):
        raise UsageError("--speculative-config names no method and no model.", 'Give {"method":..., "model":...}.')
    if TABLE_FIELD in config:
        raise UsageError(f"--speculative-config holds {TABLE_FIELD} already.", "Leave it out: the sweep finds it.")
    if config.get("rejection_sample_method") == "synthetic":
        raise UsageError("--speculative-config states acceptance.", "Leave it out, and give --synthetic-acceptance.")
    return config


def sweep_request(
    target: Target,
    *,
    batch_sizes: str | None,
    max_k: int | None,
    max_num_seqs: int | None,
    contexts: tuple[int, ...],
    temperatures: tuple[float, ...],
    starts: int,
    rounds: int,
    seed: int,
    load_format: str,
    synthetic_acceptance: tuple[float, ...],
) -> SweepRequest:
    """Everything made explicit. The largest batch size served is always measured, so that the table closes there.

    Raises:
        UsageError: a value is impossible or contradicts another.
    """
    sizes = _batch_sizes(batch_sizes, max_num_seqs)
    default_k = len(synthetic_acceptance) or target.speculative_config.get("num_speculative_tokens", DEFAULT_K_MAX)
    k_max = max_k if max_k is not None else default_k
    if type(k_max) is not int or k_max < 1:
        raise UsageError(f"the largest K must be 1 or more, got {k_max}.", "Without drafts there is nothing to tune.")
    if k_max > LARGEST_K:
        raise UsageError(f"the largest K must be {LARGEST_K} or less, got {k_max}.", "Correct --max-k.")
    for temperature in temperatures:
        if not (math.isfinite(temperature) and temperature >= 0):
            raise UsageError(f"--temperature {temperature} is no temperature.", "Give 0 for greedy, or what you serve.")
    if len(synthetic_acceptance) not in (0, k_max):
        raise UsageError(
            f"--synthetic-acceptance states {len(synthetic_acceptance)} positions, and the largest K is {k_max}.",
            "State one for each position, or leave --max-k out.",
        )
    return SweepRequest(
        model=target.model,
        speculative_config=json.dumps(target.speculative_config, separators=(",", ":")),
        batch_sizes=sizes,
        ks=tuple(range(k_max + 1)),
        max_num_seqs=sizes[-1],
        contexts=contexts,
        starts=starts,
        rounds=rounds,
        steps=STEPS,
        settle=SETTLE,
        temperatures=temperatures,
        seed=seed,
        engine_flags=target.engine_flags,
        load_format=load_format,
        synthetic_acceptance=synthetic_acceptance,
    )


def seconds(text: str) -> float:
    """A time as people write it: 30s, 10m, 1.5h.

    Raises:
        UsageError: it is not written like that.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"{text!r} is no time to spend.", "Write 30s, 10m or 2h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def share(text: str) -> float:
    """A share as people write it: 2%, or 0.02.

    Raises:
        UsageError: it is no number above 0 and below 1.
    """
    match = re.fullmatch(r"(\d*\.?\d+)(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value < 1:
        raise UsageError(f"{text!r} is no share to lose.", "Write 2% or 0.02.")
    return value


def _batch_sizes(text: str | None, max_num_seqs: int | None) -> tuple[int, ...]:
    if max_num_seqs is not None and max_num_seqs < 1:
        raise UsageError(f"--max-num-seqs must be 1 or more, got {max_num_seqs}.", "Give the largest you serve.")
    if text is None:
        largest = max_num_seqs or DEFAULT_LARGEST_BATCH
        return (*(2**i for i in range(largest.bit_length()) if 2**i < largest), largest)
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError as error:
        raise UsageError(f"--batch-sizes {text} is no list of whole numbers.", "Write 1,2,4,8.") from error
    if sizes[0] < 1:
        raise UsageError(f"batch size {sizes[0]} is impossible.", "Batch sizes are 1 or more.")
    if max_num_seqs is not None and sizes[-1] > max_num_seqs:
        raise UsageError(f"batch size {sizes[-1]} exceeds --max-num-seqs {max_num_seqs}.", "Raise it or leave it out.")
    if max_num_seqs is not None and sizes[-1] < max_num_seqs:
        sizes.append(max_num_seqs)
    return (1, *sizes) if sizes[0] > 1 else tuple(sizes)
