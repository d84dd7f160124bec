"""The engine that the tuner measures: vLLM, each start in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dsd_tune.engines.vllm_drafter import check_models
from dsd_tune.engines.vllm_process import VllmProcess
from dsd_tune.engines.vllm_wire import Launch
from dsd_tune.errors import EngineFailed, EnvironmentUnfit
from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment, GraphUse
from dsd_tune.records.measurement import Arm
from dsd_tune.records.prompt import Prompt
from dsd_tune.storage.fingerprint import drafter_digest, model_digest, prompts_digest, weight_bytes

_PROCESS_BYTES = 1 << 30
"""What a process with vLLM and torch in it takes besides weights and KV cache."""
_MEMORY_SHARE = 0.7
"""Of the memory free now, how much engines alive together may plan to take."""


class VllmEngine:
    """Starts vLLM for one model, drafter and set of flags; an `Engine`.

    `speculative_config` is vLLM's own without a table; its `num_speculative_tokens` is replaced by what an arm
    needs. `conditions` are all that blocks may ask for. `engine_flags` are raw flags of `vllm serve`. One log file a
    start goes to `log_dir`. Every process is started with room for at least as many requests as there are Ks, so that
    a table can hold each of them.
    """

    def __init__(
        self,
        model: str,
        speculative_config: Mapping[str, object],
        ks: tuple[int, ...],
        max_num_seqs: int,
        conditions: tuple[Condition, ...],
        prompts: Sequence[Prompt],
        seed: int,
        engine_flags: tuple[str, ...],
        log_dir: Path,
        load_format: str = "auto",
        synthetic_acceptance: tuple[float, ...] = (),
    ) -> None:
        self._launch = Launch(
            model=model,
            speculative_config=speculative_config,
            ks=ks,
            max_num_seqs=max(max_num_seqs, len(ks)),
            conditions=conditions,
            prompts=tuple(prompts),
            engine_flags=engine_flags,
            load_format=load_format,
            synthetic_acceptance=synthetic_acceptance,
            arm=Arm.DSD,
            fixed_k=None,
            order="",
        )
        self._max_num_seqs = max_num_seqs
        self._seed = seed
        self._log_dir = log_dir
        # A resumed sweep goes on counting, so that it keeps earlier logs and takes prompts in new orders.
        self._starts = len(list(log_dir.glob("engine-*.log")))

    @property
    def alive_together(self) -> int:
        """On a CPU as many as its free memory holds; one on a GPU, which vLLM fills; one if sizes are unknown."""
        named = (self._launch.model, self._launch.speculative_config.get("model"))
        weights = [weight_bytes(str(model)) for model in named if model]
        if self._facts["device"] != "cpu" or not all(weights):
            return 1
        each = sum(filter(None, weights)) + self._facts["cache_bytes"] + _PROCESS_BYTES
        return max(1, int(_MEMORY_SHARE * _free_bytes() / each))

    def describe(self) -> Environment:
        """The fingerprint, read from vLLM's configuration of all three arms, without loading weights.

        Raises:
            UsageError: no such model, or vLLM refuses a flag.
            EnvironmentUnfit: no vLLM here, or this vLLM, model and drafter cannot run under a table.
        """
        facts = {key: value for key, value in self._facts.items() if key != "cache_bytes"}
        for key in ("graphs_no_spec", "graphs_dsd", "graphs_static"):
            facts[key] = GraphUse(facts[key]["mode"], tuple(facts[key]["capture_sizes"]))
        facts["preloaded"] = tuple(facts["preloaded"])
        config = self._launch.speculative_config
        return Environment(
            model=self._launch.model,
            model_digest=model_digest(self._launch.model),
            drafter=str(config.get("model", "")),
            drafter_digest=drafter_digest(config),
            max_num_seqs=self._max_num_seqs,
            k_max=self._launch.k_max,
            prompts_digest=prompts_digest(self._launch.prompts),
            engine_flags=self._launch.engine_flags,
            synthetic_acceptance=self._launch.synthetic_acceptance,
            **facts,
        )

    def start(self, arm: Arm, fixed_k: int | None = None) -> VllmProcess:
        """Start one engine; see `Engine.start`. Every start takes the prompts in an order of its own.

        Raises:
            UsageError, EnvironmentUnfit: as `describe`.
            EngineFailed: it did not come up.
        """
        if (arm is Arm.STATIC) != (fixed_k is not None):
            raise ValueError(f"fixed_k belongs to the arm static and to no other, got {fixed_k} for {arm}")
        self._check()
        self._starts += 1
        launch = self._with(arm, fixed_k, order=f"{self._seed}/{self._starts}")
        process = VllmProcess(self._log_dir / f"engine-{self._starts}-{arm}.log")
        started = False
        try:
            process.start(launch)
            started = True
        finally:
            if not started:
                process.close()
        return process

    def _with(self, arm: Arm, fixed_k: int | None, order: str) -> Launch:
        return replace(self._launch, arm=arm, fixed_k=fixed_k, order=order)

    def _check(self) -> None:
        if find_spec("vllm") is None:
            raise EnvironmentUnfit("vLLM is not installed beside dsd-tune.", "Install it into the same environment.")
        check_models(self._launch.model, self._launch.speculative_config)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        self._check()
        process = VllmProcess(self._log_dir / "describe.log")
        try:
            return process.describe(self._launch)
        except EngineFailed as error:
            raise EnvironmentUnfit(error.what, error.todo) from error
        finally:
            process.close()


def _free_bytes() -> int:
    """Memory that could be had without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
