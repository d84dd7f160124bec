"""vLLM's adaptive verification as an arm of a validation, where the vLLM that will serve can run it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dsd_tune.emit.serve_line import arguments
from dsd_tune.engines.vllm_planned import configure
from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.validation import ArmCommand, ServedArm

FIELD = "enable_adaptive_verification"


def adaptive_arm(profile: Profile) -> ArmCommand:
    """The drafter of the profile with the largest K of its advice, and no table: vLLM chooses what to verify.

    Raises:
        EnvironmentUnfit: this vLLM refuses, in its own words, or would not do it.
    """
    assert profile.request
    table = profile.decision.table
    config = json.loads(profile.request.speculative_config) | {FIELD: True}
    decision = replace(
        profile.decision, verdict=Verdict.FIXED, fixed_k=table.k_max if table else profile.decision.fixed_k
    )
    request = replace(profile.request, speculative_config=json.dumps(config))
    served = arguments(replace(profile, request=request, decision=decision))
    _require_able(served, config | {"num_speculative_tokens": decision.fixed_k})
    return ArmCommand(ServedArm.ADAPTIVE, tuple(served))


def _require_able(served: Sequence[str], config: Mapping[str, object]) -> None:
    model, *flags = served
    leave_out = "Leave --adaptive-verification out."
    try:
        configured = configure(model, config, ["--model", model, *flags], {})
    except EnvironmentUnfit as error:
        raise EnvironmentUnfit(f"Adaptive verification cannot run here: {error.what}", leave_out) from error
    if configured.runner != "v2":
        raise EnvironmentUnfit(
            f"Adaptive verification is a matter of model runner V2, and {configured.runner.upper()} would serve.",
            leave_out,
        )
