"""Reads out of vLLM's configurations what a measurement depends on, without loading weights. Child side."""

from __future__ import annotations

import platform
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dsd_tune.engines.nvml import engine_gpus
from dsd_tune.engines.vllm_config import arm_config, cache_bytes
from dsd_tune.engines.vllm_wire import Launch
from dsd_tune.records.environment import GraphUse
from dsd_tune.records.measurement import Arm
from dsd_tune.runtime.serving import device_name

_RUNTIME = re.compile(r"/(lib(?:tcmalloc|jemalloc|mimalloc|iomp|gomp|omp)\w*)[^/\n]*$", re.MULTILINE)


def describe(launch: Launch) -> dict[str, object]:
    """The part of an `Environment` that only vLLM knows, and `cache_bytes`, what one engine's KV cache needs.

    Raises:
        UsageError: vLLM refuses the model, the drafter or a flag.
        EnvironmentUnfit: this vLLM cannot follow a table here.
    """
    import torch
    import vllm
    from vllm.platforms import current_platform

    dsd = arm_config(launch, Arm.DSD, None)
    static = arm_config(launch, Arm.STATIC, launch.k_max)
    no_spec = arm_config(launch, Arm.NO_SPEC, None)
    gpus = engine_gpus(dsd.parallel_config.world_size)
    return {
        "method": str(dsd.speculative_config.method),
        "vllm_version": vllm.__version__,
        "runner": _runners(no_spec, dsd),
        "device": current_platform.device_type,
        "device_name": device_name(),
        "driver": platform.release() if current_platform.is_cpu() else gpus.driver() if gpus else "",
        "threads": _threads(),
        "dtype": str(dsd.model_config.dtype).removeprefix("torch."),
        "tensor_parallel_size": dsd.parallel_config.tensor_parallel_size,
        "pipeline_parallel_size": dsd.parallel_config.pipeline_parallel_size,
        "max_model_len": dsd.model_config.max_model_len,
        "async_scheduling": bool(dsd.scheduler_config.async_scheduling),
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda or "",
        "preloaded": _preloaded(),
        "power_limit_w": gpus.power_limit_w() if gpus else None,
        "load_format": str(dsd.load_config.load_format),
        "graphs_no_spec": asdict(_graphs(no_spec)),
        "graphs_dsd": asdict(_graphs(dsd)),
        "graphs_static": asdict(_graphs(static)),
        "cache_bytes": cache_bytes(dsd, launch),
    }


def _runners(no_spec: Any, dsd: Any) -> str:
    """`v1` or `v2`; vLLM may pick another one for the engine without speculation, and then both are named."""
    plain, table = ("v2" if getattr(config, "use_v2_model_runner", False) else "v1" for config in (no_spec, dsd))
    return table if plain == table else f"{table}, no_spec {plain}"


def _graphs(config: Any) -> GraphUse:
    compilation = config.compilation_config
    mode = getattr(compilation.cudagraph_mode, "name", "NONE")
    return GraphUse(mode, tuple(compilation.cudagraph_capture_sizes or ()))


def _preloaded() -> tuple[str, ...]:
    """Allocators and OpenMP runtimes that are really in this process, by name without version."""
    maps = Path("/proc/self/maps")
    text = maps.read_text(encoding="utf-8", errors="replace") if maps.exists() else ""
    return tuple(sorted(set(_RUNTIME.findall(text))))


def _threads() -> int:
    """Threads that a CPU engine computes with; they follow OMP_NUM_THREADS and the cores allowed."""
    import torch

    return int(torch.get_num_threads())
