"""From what vLLM itself makes of the flags: a deployment in which nothing is assumed, and findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dsd_tune.check import rules_on_site as rules
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.on_release import drops_table
from dsd_tune.errors import DsdTuneError
from dsd_tune.model.cudagraph import CudagraphMode, Runner
from dsd_tune.records.configured import Configured
from dsd_tune.records.finding import Finding


def as_configured(deployment: Deployment, configured: Configured) -> Deployment:
    """The deployment with vLLM's choices in place of our assumptions. Capture sizes stay the user's own."""
    effective = {
        "method": configured.method,
        "num_speculative_tokens": configured.k_max,
        "parallel_drafting": configured.parallel_drafting,
    }
    return replace(
        deployment,
        speculative_config={**deployment.speculative_config, **effective},
        cpu=configured.device == "cpu",
        asked_runner=Runner(configured.runner),
        asked_max_num_seqs=configured.max_num_seqs,
        max_num_batched_tokens=configured.max_num_batched_tokens,
        data_parallel_size=configured.data_parallel_size,
        pipeline_parallel_size=configured.pipeline_parallel_size,
        tensor_parallel_size=configured.tensor_parallel_size,
        cudagraph_mode=CudagraphMode.NONE if configured.enforce_eager else deployment.cudagraph_mode,
        lora=configured.lora,
        hybrid=configured.hybrid,
    )


def on_configured(deployment: Deployment, configured: Configured) -> Iterator[Finding]:
    """Findings that only vLLM's own configuration can give; `deployment` is that `as_configured`."""
    if deployment.has_table and not configured.kept_table and not drops_table(deployment):
        yield Finding(
            rules.TABLE_DROPPED,
            f"After vLLM has read its flags, its configuration holds no table: K is {configured.k_max} at every batch "
            "size.",
            "Look into vLLM's log for the warning that says why, or use a fixed K.",
        )
    drafter = configured.drafter_max_len
    if drafter is not None and drafter < configured.max_model_len:
        stops = (
            " A longer request stops drafting for its whole batch, and zeros may be verified in place of drafts."
            if deployment.runner is Runner.V1
            else ""
        )
        yield Finding(
            rules.DRAFTER_CONTEXT,
            f"The drafter takes {drafter} tokens of context, the model {configured.max_model_len}.{stops}",
            f"Set --max-model-len to {drafter}, or use a drafter that was trained for longer contexts.",
        )


def on_refusal(error: DsdTuneError) -> Finding:
    """vLLM would not start at all."""
    return Finding(rules.CONFIG_REFUSED, error.what, error.todo)
