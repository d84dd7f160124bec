"""What vLLM is about to serve, read out of its configuration, and the machine it is on."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Serving:
    """A vLLM configuration with speculation, as far as a profile depends on it.

    `drafter` is the model that the speculative config names; `settings` are all of its fields, and `defaults` what they
    are where nobody sets them. `loses_state` means: the model has recurrent layers, and this configuration keeps only
    their last state.
    """

    vllm_version: str
    method: str
    model: str
    drafter: str
    settings: Mapping[str, object]
    defaults: Mapping[str, object]
    k_max: int
    max_num_seqs: int
    dtype: str
    runner: str
    device: str
    device_name: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    loses_state: bool

    @classmethod
    def of(cls, config: Any) -> Serving:
        """From a `VllmConfig`, complete or about to be completed."""
        import vllm
        from vllm.platforms import current_platform

        speculation, model, parallel = config.speculative_config, config.model_config, config.parallel_config
        return cls(
            vllm_version=vllm.__version__,
            method=str(speculation.method),
            model=str(model.model),
            drafter=str(speculation.model),
            settings=vars(speculation),
            defaults=vars(type(speculation)),
            k_max=speculation.num_speculative_tokens,
            max_num_seqs=config.scheduler_config.max_num_seqs,
            dtype=str(model.dtype).removeprefix("torch."),
            runner="v2" if getattr(config, "use_v2_model_runner", False) else "v1",
            device=current_platform.device_type,
            device_name=device_name(),
            tensor_parallel_size=parallel.tensor_parallel_size,
            pipeline_parallel_size=parallel.pipeline_parallel_size,
            data_parallel_size=parallel.data_parallel_size,
            loses_state=bool(model.is_hybrid) and config.cache_config.mamba_cache_mode == "none",
        )


def device_name() -> str:
    """The accelerator's name, or on a CPU engine the processor's. Starts no CUDA context."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return str(current_platform.get_device_name())
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
