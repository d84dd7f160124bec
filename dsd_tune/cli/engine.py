"""The engine that a request is measured on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsd_tune.engines.vllm_engine import VllmEngine
    from dsd_tune.records.prompt import Prompt
    from dsd_tune.records.run import SweepRequest


def engine_of(request: SweepRequest, prompts: tuple[Prompt, ...], log_dir: Path) -> VllmEngine:
    """vLLM, which leaves its logs in `log_dir`."""
    from dsd_tune.engines import vllm_engine

    return vllm_engine.VllmEngine(
        model=request.model,
        speculative_config=json.loads(request.speculative_config),
        ks=request.ks,
        max_num_seqs=request.max_num_seqs,
        conditions=request.conditions,
        prompts=prompts,
        seed=request.seed,
        engine_flags=request.engine_flags,
        log_dir=log_dir,
        load_format=request.load_format,
        synthetic_acceptance=request.synthetic_acceptance,
    )
