"""Starts vLLM inside this process and rigs it for measuring. Child side: imports vLLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsd_tune.engines.vllm_block import Rig
from dsd_tune.engines.vllm_config import arm_config
from dsd_tune.engines.vllm_facts import DRAFTER_FREE_METHODS
from dsd_tune.engines.vllm_pool import RequestPool, TokenizedPrompt, Window, endless, usable
from dsd_tune.engines.vllm_steps import Stepper
from dsd_tune.engines.vllm_wire import Launch
from dsd_tune.errors import EngineFailed
from dsd_tune.records.measurement import Arm
from dsd_tune.records.prompt import Prompt
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
    prompts = usable([_tokenize(tokenizer, prompt) for prompt in launch.prompts], launch.max_context)
    window = Window(launch.max_context, config.model_config.max_model_len)
    door = _EngineDoor(engine, config.model_config, launch.temperature)
    core = engine.engine_core
    speculation = config.speculative_config
    return Rig(
        stepper=Stepper(core),
        pool=RequestPool(door, endless(prompts, launch.order), _eos(config.model_config, tokenizer), window),
        set_k=_k_switch(launch.arm, core.engine_core.scheduler),
        lag=_lag(config),
        k_max=launch.k_max,
        fewer_drafts=speculation is not None and speculation.method in DRAFTER_FREE_METHODS,
    )


class _EngineDoor:
    """Requests with the server's own sampling defaults, endless and without detokenizing."""

    def __init__(self, engine: Any, model_config: Any, temperature: float) -> None:
        from vllm import SamplingParams

        defaults = {k: v for k, v in model_config.get_diff_sampling_param().items() if k != "max_tokens"}
        # No seed: requests with one crash the CPU sampler, and no single request is to be repeated.
        settings = {**defaults, "temperature": temperature, "ignore_eos": True, "detokenize": False}
        self._params = SamplingParams(**settings, max_tokens=model_config.max_model_len)
        self._engine = engine

    def add(self, name: str, token_ids: Sequence[int]) -> str:
        prompt = {"prompt_token_ids": list(token_ids)}
        return self._engine.add_request(name, prompt, self._params) or name

    def abort(self, names: list[str]) -> None:
        self._engine.abort_request(names)


def _tokenize(tokenizer: Any, prompt: Prompt) -> TokenizedPrompt:
    """As a chat server would send it: one user message, if the tokenizer has a chat template."""
    if getattr(tokenizer, "chat_template", None):
        message = [{"role": "user", "content": prompt.text}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        return TokenizedPrompt(prompt.id, tuple(tokenizer.encode(text, add_special_tokens=False)))
    return TokenizedPrompt(prompt.id, tuple(tokenizer.encode(prompt.text)))


def _eos(model_config: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text: the tokenizer's and those of the model's generation config."""
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
