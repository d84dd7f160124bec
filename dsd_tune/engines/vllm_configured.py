"""Lets vLLM configure a planned server, and reads what came of it. Child side: imports vLLM, loads no weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from dsd_tune.engines.vllm_config import sentence
from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.errors import UsageError
from dsd_tune.records.configured import Configured


def configured(flags: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """A `Configured` as a mapping, for these flags of `vllm serve` under these variables.

    Raises:
        UsageError: vLLM refuses.
    """
    os.environ.update(environment)
    from vllm.usage.usage_lib import UsageContext

    args, unread = _engine_args(flags)
    try:
        config = args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, OSError, NotImplementedError) as error:
        raise UsageError(f"vLLM refuses this model or these flags: {sentence(error)}", "Change them.") from error
    return asdict(_read(config, tuple(unread)))


def _engine_args(flags: Sequence[str]) -> tuple[Any, list[str]]:
    """vLLM's own reading of the flags, and those that belong to the web server or to nobody."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    unread: list[str] = []

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
            known, rest = super().parse_known_args(args, namespace)
            unread.extend(word for word in rest if word.startswith("--"))
            return known, []

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"vLLM refuses a flag: {message}.", "Change it.")

    parser = EngineArgs.add_cli_args(Parser(add_help=False, allow_abbrev=False))
    return EngineArgs.from_cli_args(parser.parse_args(list(flags))), unread


def _read(config: Any, unread: tuple[str, ...]) -> Configured:
    from vllm.platforms import current_platform

    model, parallel, spec = config.model_config, config.parallel_config, config.speculative_config
    drafter: Any = getattr(spec, "draft_model_config", None)
    cache = config.cache_config
    return Configured(
        method=str(spec.method),
        k_max=spec.num_speculative_tokens,
        kept_table=getattr(spec, TABLE_FIELD, None) is not None,
        parallel_drafting=bool(getattr(spec, "parallel_drafting", False)),
        runner="v2" if getattr(config, "use_v2_model_runner", False) else "v1",
        device=current_platform.device_type,
        cudagraph_mode=getattr(config.compilation_config.cudagraph_mode, "name", "NONE"),
        capture_sizes=tuple(config.compilation_config.cudagraph_capture_sizes or ()),
        enforce_eager=bool(model.enforce_eager),
        max_num_seqs=config.scheduler_config.max_num_seqs,
        max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
        max_model_len=model.max_model_len,
        drafter_max_len=drafter.max_model_len if drafter else None,
        hybrid=bool(model.is_hybrid),
        async_scheduling=bool(config.scheduler_config.async_scheduling),
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        lora=config.lora_config is not None,
        claimed_share=None if cache.kv_cache_memory_bytes else cache.gpu_memory_utilization,
        unread=unread,
    )
