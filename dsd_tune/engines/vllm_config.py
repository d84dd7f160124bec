"""From flags to vLLM's own configuration of one arm. Child side: imports vLLM."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from dsd_tune.engines.vllm_cost_only import require_cost_free_of_text, require_weights, synthetic_sampler
from dsd_tune.engines.vllm_facts import OWN_FLAGS, TABLE_FIELD, sweep_table, table_obstacle
from dsd_tune.engines.vllm_sampler import require_temperatures
from dsd_tune.engines.vllm_wire import Launch
from dsd_tune.errors import EnvironmentUnfit, UsageError
from dsd_tune.records.measurement import Arm


def arm_config(launch: Launch, arm: Arm, fixed_k: int | None) -> Any:
    """vLLM's configuration of an arm, complete and checked by vLLM, as `vllm serve` would run it.

    Raises:
        UsageError: vLLM refuses a flag or a value.
        EnvironmentUnfit: this vLLM cannot follow a table with this model and method, or measure what was asked.
    """
    from vllm.usage.usage_lib import UsageContext

    if arm is Arm.DSD:
        _require_tables()
    if arm is not Arm.NO_SPEC:
        require_temperatures(condition.temperature for condition in launch.conditions)
    args = _engine_args(launch)
    args.speculative_config = _speculative(launch, arm, fixed_k)
    try:
        config = args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, OSError, NotImplementedError) as error:
        raise UsageError(f"vLLM refuses this model or these flags: {sentence(error)}", "Change them.") from error
    if arm is Arm.DSD:
        _require_table_kept(config)
        (require_cost_free_of_text if launch.cost_only else require_weights)(config)
    longest = max(launch.contexts)
    if longest > config.model_config.max_model_len:
        raise UsageError(
            f"Contexts of {longest} tokens do not fit max_model_len {config.model_config.max_model_len}.",
            "Lower the context or raise --max-model-len.",
        )
    _size_cpu_cache(config, launch)
    return config


def cache_bytes(config: Any, launch: Launch) -> int:
    """KV cache for `max_num_seqs` sequences inside the longest window, or one of max_model_len if that is more."""
    block = config.cache_config.block_size or 128
    window = -(-(max(launch.contexts) + launch.k_max + 1) // block + 1) * block
    tokens = max(launch.max_num_seqs * window, config.model_config.max_model_len + 2 * block)
    spec = config.speculative_config
    models = [config.model_config] + ([spec.draft_model_config] if spec and spec.draft_model_config else [])
    return int(tokens * sum(_bytes_per_token(model, config.parallel_config) for model in models))


def _bytes_per_token(model: Any, parallel: Any) -> int:
    """Keys and values of every layer. Latent or recurrent layers need less, so this is an upper bound."""
    width = model.get_num_kv_heads(parallel) * model.get_head_size() * model.dtype.itemsize
    return int(2 * width * max(1, model.get_num_layers(parallel)))


def _size_cpu_cache(config: Any, launch: Launch) -> None:
    """By default vLLM takes most of a CPU host's memory for each engine, so two could not live together."""
    from vllm.platforms import current_platform

    cache = config.cache_config
    chosen = (
        cache.kv_cache_memory_bytes is not None
        or os.environ.get("VLLM_CPU_KVCACHE_SPACE")
        or any(flag.replace("_", "-").startswith("--gpu-memory-utilization") for flag in launch.engine_flags)
    )
    if current_platform.is_cpu() and not chosen:
        cache.kv_cache_memory_bytes = cache_bytes(config, launch)


def _engine_args(launch: Launch) -> Any:
    """The user's flags, read by vLLM's own parser."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> None:
            raise UsageError(
                f"vLLM refuses a flag: {message}.", "After `--` belong the engine flags of `vllm serve`, and no others."
            )

    refuse_own_flags(launch.engine_flags)
    parser = EngineArgs.add_cli_args(Parser(add_help=False, allow_abbrev=False))
    try:
        args = EngineArgs.from_cli_args(parser.parse_args(list(launch.engine_flags)))
    except ValueError as error:
        raise UsageError(f"vLLM refuses a flag: {sentence(error)}", "Change it.") from error
    args.model = launch.model
    args.max_num_seqs = launch.max_num_seqs
    args.load_format = launch.load_format
    args.disable_log_stats = True
    return args


def refuse_own_flags(flags: tuple[str, ...]) -> None:
    """Raise UsageError if a flag would contradict what dsd-tune sets itself."""
    for flag in flags:
        name = flag.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
        if name in OWN_FLAGS:
            raise UsageError(f"{flag} cannot be given to vLLM directly.", f"Use dsd-tune's own {OWN_FLAGS[name]}.")


def _speculative(launch: Launch, arm: Arm, fixed_k: int | None) -> dict[str, object] | None:
    if arm is Arm.NO_SPEC:
        return None
    common = {key: value for key, value in launch.speculative_config.items() if key != TABLE_FIELD}
    if launch.synthetic_acceptance:
        common |= synthetic_sampler(launch.synthetic_acceptance[: fixed_k or launch.k_max])
    if arm is Arm.STATIC:
        return {**common, "num_speculative_tokens": fixed_k}
    table = sweep_table(launch.ks, launch.max_num_seqs)
    return {**common, "num_speculative_tokens": launch.k_max, TABLE_FIELD: table}


def _require_tables() -> None:
    import vllm
    from vllm.config import SpeculativeConfig

    if TABLE_FIELD not in {field.name for field in dataclasses.fields(SpeculativeConfig)}:
        raise EnvironmentUnfit(
            f"vLLM {vllm.__version__} has no {TABLE_FIELD}, so it cannot follow a table.", "Use vLLM 0.24 or later."
        )


def _require_table_kept(config: Any) -> None:
    """vLLM drops a table that it cannot follow with one warning, or stops at the first smaller K."""
    spec = config.speculative_config
    parallel = bool(getattr(spec, "parallel_drafting", False))
    ranks = config.parallel_config.data_parallel_size
    obstacle = table_obstacle(spec.method, parallel_drafting=parallel, data_parallel_size=ranks)
    if obstacle is None and getattr(spec, TABLE_FIELD) is None:
        obstacle = f"This vLLM drops the table for method {spec.method}."
    if obstacle:
        raise EnvironmentUnfit(obstacle, "Use a fixed K there, or another method or layout.")


def sentence(error: Exception) -> str:
    """vLLM's own words, without pydantic's frame around them."""
    details = getattr(error, "errors", None)
    text = str(details()[0]["msg"]) if callable(details) else str(error)
    return " ".join(text.removeprefix("Value error, ").split()).rstrip(".") + "."
