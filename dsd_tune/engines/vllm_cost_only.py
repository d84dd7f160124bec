"""Where cost cannot be measured without acceptance, because it depends on the text. Child side: imports vLLM."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS

RATES_FIELD = "synthetic_acceptance_rates"
"""The field of vLLM's speculative config that states the share of steps that accept each position."""

_WITHOUT = "Measure with --load-format dummy alone, which tells the acceptance that would pay."


def synthetic_sampler(rates: tuple[float, ...]) -> dict[str, object]:
    """The part of a speculative config that makes vLLM accept drafts at these rates, whatever they are.

    Raises:
        EnvironmentUnfit: this vLLM, or its sampler for this platform, cannot.
    """
    import vllm
    from vllm.config import SpeculativeConfig
    from vllm.platforms import current_platform

    if RATES_FIELD not in {field.name for field in fields(SpeculativeConfig)}:
        raise EnvironmentUnfit(f"vLLM {vllm.__version__} has no {RATES_FIELD}.", _WITHOUT)
    if current_platform.is_cpu():
        raise EnvironmentUnfit("vLLM does not support synthetic acceptance with CPU sampling.", _WITHOUT)
    return {"rejection_sample_method": "synthetic", RATES_FIELD: list(rates)}


def require_cost_free_of_text(config: Any) -> None:
    """Raise EnvironmentUnfit, with the reason, if a step's cost depends on what is written."""
    experts = config.model_config.get_num_experts()
    if experts:
        raise EnvironmentUnfit(
            f"This model is a mixture of {experts} experts, and which of them a step needs depends on the text.",
            "Measure it with its weights, its drafter and real prompts.",
        )
    method = config.speculative_config.method
    if method in DRAFTER_FREE_METHODS:
        raise EnvironmentUnfit(
            f"The method {method} drafts from the text, so without real text it costs something else.",
            "Measure it with the model's weights and real prompts; it has no drafter to wait for.",
        )


def require_weights(config: Any) -> None:
    """Raise EnvironmentUnfit if acceptance would be counted on a model or drafter without weights."""
    drafter = getattr(config.speculative_config, "draft_load_config", None)
    if "dummy" in {config.load_config.load_format, getattr(drafter, "load_format", None)}:
        raise EnvironmentUnfit(
            "A model or drafter with dummy weights says nothing about acceptance.",
            "Give dsd-tune's own --load-format dummy to measure the cost alone.",
        )
