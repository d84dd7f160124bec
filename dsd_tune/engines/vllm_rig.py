"""Starts vLLM inside this process and rigs it for measuring. Child side: imports vLLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dsd_tune.engines.machine import machine_state
from dsd_tune.engines.nvml import engine_gpus
from dsd_tune.engines.vllm_block import Rig
from dsd_tune.engines.vllm_config import arm_config
from dsd_tune.engines.vllm_pool import RequestPool
from dsd_tune.engines.vllm_steps import Stepper
from dsd_tune.engines.vllm_supply import Supply
from dsd_tune.engines.vllm_wire import Launch
from dsd_tune.engines.window import start_lengths
from dsd_tune.errors import EngineFailed
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS
from dsd_tune.records.environment import DUMMY
from dsd_tune.records.measurement import Arm
from dsd_tune.runtime.options import say
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.steering import install


def start(launch: Launch) -> Rig:
    """Load weights and return an engine with no requests in it.

    Raises:
        UsageError, EnvironmentUnfit: as `arm_config`, or no prompt is short enough.
        EngineFailed: the engine follows no table although its configuration has one.
        Whatever vLLM raises while loading.
    """
    from vllm.v1.engine.llm_engine import LLMEngine

    config = arm_config(launch, launch.arm, launch.fixed_k)
    engine = LLMEngine.from_vllm_config(config, disable_log_stats=True)
    tokenizer = engine.renderer.tokenizer if hasattr(engine, "renderer") else engine.tokenizer
    door = _EngineDoor(engine, config.model_config)
    core = engine.engine_core
    speculation = config.speculative_config
    return Rig(
        stepper=Stepper(core),
        pool=RequestPool(
            door,
            _supplies(launch, tokenizer),
            _eos(launch, config.model_config, tokenizer),
            config.model_config.max_model_len,
        ),
        set_k=_k_switch(launch.arm, core.engine_core.scheduler),
        lag=_lag(config),
        k_max=launch.k_max,
        fewer_drafts=speculation is not None and speculation.method in DRAFTER_FREE_METHODS,
        chunk=config.scheduler_config.max_num_batched_tokens,
        machine=partial(machine_state, engine_gpus(config.parallel_config.world_size)),
        counts_drafts=not launch.cost_only,
    )


class _EngineDoor:
    """Requests with the server's own sampling defaults, endless and without detokenizing."""

    def __init__(self, engine: Any, model_config: Any) -> None:
        defaults = {k: v for k, v in model_config.get_diff_sampling_param().items() if k != "max_tokens"}
        # No seed: requests with one crash the CPU sampler, and no single request is to be repeated.
        self._settings = {**defaults, "max_tokens": model_config.max_model_len, "ignore_eos": True, "detokenize": False}
        self._engine = engine

    def add(self, name: str, token_ids: Sequence[int], temperature: float) -> str:
        from vllm import SamplingParams

        prompt = {"prompt_token_ids": list(token_ids)}
        params = SamplingParams(**{**self._settings, "temperature": temperature})
        return self._engine.add_request(name, prompt, params) or name

    def abort(self, names: list[str]) -> None:
        self._engine.abort_request(names)


def _supplies(launch: Launch, tokenizer: Any) -> dict[int, Supply]:
    """Each context's own prompts, in this start's order."""
    reader = _Reader(tokenizer)
    return {
        context: Supply(launch.prompts, start_lengths(context, launch.contexts), reader, launch.order)
        for context in launch.contexts
    }


class _Reader:
    """The tokenizer of the model, with its chat template if it has one."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def message(self, text: str) -> tuple[int, ...]:
        if not getattr(self._tokenizer, "chat_template", None):
            return tuple(self._tokenizer.encode(text))
        message = [{"role": "user", "content": text}]
        framed = self._tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        return tuple(self._tokenizer.encode(framed, add_special_tokens=False))

    def tokens(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))


def _eos(launch: Launch, model_config: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text: the tokenizer's and those of the model's generation config; garbage has no end."""
    if launch.load_format == DUMMY:
        return frozenset()
    declared = model_config.try_get_generation_config().get("eos_token_id")
    ids = declared if isinstance(declared, list) else [declared]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)


def _lag(config: Any) -> int:
    """Steps that are already under way with the old K: one under async scheduling, and the pipeline's stages."""
    stages = config.parallel_config.pipeline_parallel_size
    return int(bool(config.scheduler_config.async_scheduling)) + (stages if stages > 1 else 0)


def _k_switch(arm: Arm, scheduler: Any) -> Callable[[int], None]:
    """Sets K from the next step on in the arm `dsd`; the other arms have one K for life."""
    if arm is not Arm.DSD:
        return lambda _k: None
    policy = FixedPolicy(0)
    # Whatever goes wrong shows: a step whose drafts are not those asked for is not kept.
    if not install(scheduler, policy, say):
        raise EngineFailed("vLLM started without the table it was given.", "See its log for the reason.")
    return lambda k: setattr(policy, "value", k)
