"""Measured acceptance as Model-Optimizer's `speculation_profile.json`, for tools that simulate or compare drafters.

Schema 1.0, as its `specdec_bench` writes it. The verdict does not matter here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise

from dsd_tune.emit.decision import method
from dsd_tune.emit.emission import Emission
from dsd_tune.errors import UsageError
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS
from dsd_tune.records.environment import Environment
from dsd_tune.records.profile import Profile
from dsd_tune.records.run import SweepRequest

_CHAIN = frozenset({"eagle", "eagle3", "draft_model"})
"""Methods whose first drafts do not depend on K, as the schema counts them; it asks for each K of all others."""

_TOLERANCE = 0.02
"""By how much the schema lets the mean differ from the one that the rates imply."""


def write(profile: Profile) -> Emission:
    """The whole document.

    Raises:
        UsageError: there is no drafter, or none of its tokens was measured.
    """
    if method(profile) in DRAFTER_FREE_METHODS:
        raise UsageError(
            f"A speculation profile describes a drafter, and {method(profile)} has none.",
            "Use the acceptance lengths in the profile itself.",
        )
    measured, marginal = _marginal(profile)
    environment, request = _measured_on(profile)
    lengths = {a.k: a.tokens.value for a in profile.acceptance_lengths if a.k > 0}
    mean = lengths.get(len(marginal), 1 + sum(marginal))
    document = {
        "schema_version": "1.0",
        "measured": True,
        **_subject(environment, len(marginal)),
        "conditional_accept_rates": _rounded([b / a if a else 0.0 for a, b in pairwise([1.0, *marginal])]),
        "marginal_accept_rates": _rounded(marginal),
        "mean_accept_length": round(mean, 6),
        "mean_accept_length_per_request": None,
        "accept_length_model": "chain_analytic" if method(profile) in _CHAIN else "measured_per_k",
        "accept_length_by_k": {str(k): round(length, 6) for k, length in lengths.items()},
        "acceptance_length_histogram": None,
        "per_category": None,
        "measurement_conditions": _conditions(environment, request, profile.dsd_tune_version),
        "validation": _validation(mean, marginal),
    }
    remark = "Noise put the rate of a later position above an earlier one; it was lowered to that"
    return Emission(json.dumps(document, indent=2), () if measured == marginal else (remark,))


def _marginal(profile: Profile) -> tuple[list[float], list[float]]:
    """Rates of positions 1, 2, ... as measured, and as the survival function that the schema asks for: never rising."""
    by_position = {a.position: a.rate.value for a in profile.acceptance}
    measured: list[float] = []
    while (position := len(measured) + 1) in by_position:
        measured.append(by_position[position])
    if not measured:
        raise UsageError("This profile holds no acceptance by position.", "Measure it with `dsd-tune sweep`.")
    return measured, list(accumulate(measured, min))


def _measured_on(profile: Profile) -> tuple[Environment, SweepRequest]:
    if profile.environment is None or profile.request is None:
        raise UsageError("Nobody knows on what an import was measured.", "Measure with `dsd-tune sweep`.")
    return profile.environment, profile.request


def _subject(environment: Environment, k: int) -> dict[str, object]:
    """What the rates describe: drafter, target, and K as far as it was measured."""
    return {
        "method": environment.method,
        "draft_checkpoint": {"id": _name(environment.drafter), "digest": environment.drafter_digest},
        "target_model": {"id": _name(environment.model), "digest": environment.model_digest},
        "num_speculative_tokens": k,
        "block_size": None,
        "max_supported_k": k,
        "verification_method": "longest_prefix",
    }


def _name(path: str) -> str:
    """Two last parts of a path: the document is published, and folders of this machine are not."""
    return "/".join([part for part in path.split("/") if part][-2:])


def _conditions(environment: Environment, request: SweepRequest, version: str) -> dict[str, object]:
    return {
        "engine": "vllm",
        "engine_version": environment.vllm_version,
        "gpu": environment.device_name,
        "dtype": environment.dtype,
        "tensor_parallel_size": environment.tensor_parallel_size,
        "temperature": request.temperatures[0],
        "concurrency": list(request.batch_sizes),
        "max_context": request.contexts[-1],
        "prompts_digest": environment.prompts_digest,
        "tool": f"dsd-tune {version}",
    }


def _validation(mean: float, marginal: Sequence[float]) -> dict[str, object]:
    implied = 1 + sum(marginal)
    consistency = {
        "implied_mean_accept_length": round(implied, 6),
        "reported_mean_accept_length": round(mean, 6),
        "abs_delta": round(abs(implied - mean), 6),
        "tolerance": _TOLERANCE,
        "passed": abs(implied - mean) <= _TOLERANCE,
    }
    return {"mean_consistency": consistency, "marginal_monotonicity": {"passed": True, "violations": []}}


def _rounded(rates: Sequence[float]) -> list[float]:
    return [round(rate, 6) for rate in rates]
