"""Whether a profile describes the vLLM that is being started. Pure, apart from reading models to digest them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum

from dsd_tune.errors import ProfileMismatch
from dsd_tune.records.drafter import PARALLEL_NATIVE
from dsd_tune.records.environment import Environment
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.release import Release
from dsd_tune.records.table import Table
from dsd_tune.runtime.serving import Serving
from dsd_tune.storage.fingerprint import drafter_digest, model_digest

_LAST_TO_LOSE_STATE = Release(0, 31)
"""Up to here a step without drafts after one with accepted drafts reads an old state of recurrent layers."""

_DECISIVE = frozenset(
    {"draft_sample_method", "enable_adaptive_verification", "parallel_drafting", "rejection_sample_method"}
)
"""Settings that change what is measured even where the sweep left them alone. Many others vLLM fills in by itself."""


def fitting_table(profile: Profile, serving: Serving) -> Table:
    """The profile's table up to vLLM's own max_num_seqs.

    Raises:
        ProfileMismatch: the profile does not advise a table, or was measured on something else; says what to do.
    """
    table, environment = _advised(profile), _known(profile)
    for key, measured, here in _compared(profile, environment, serving):
        if measured != here:
            raise ProfileMismatch(
                f"It was measured with {key} {measured}, and this is {here}.", "Measure again under what you serve."
            )
    _require_possible(profile.decision.max_num_seqs, table, serving)
    within = Table.from_dense(table.dense()[: serving.max_num_seqs])
    if within.is_constant:
        raise ProfileMismatch(
            f"Up to max_num_seqs {serving.max_num_seqs} its table is a fixed K={within.k_max}.",
            f"Set num_speculative_tokens to {within.k_max}." if within.k_max else "Leave --speculative-config out.",
        )
    return within


def possible_ks(serving: Serving) -> frozenset[int]:
    """The Ks that this vLLM may run: 0 is none of them where it would silently corrupt the output."""
    return frozenset(range(_zero_corrupts(serving), serving.k_max + 1))


def _zero_corrupts(serving: Serving) -> bool:
    release = _release(serving.vllm_version)
    # A version that tells nothing may be an old one.
    return serving.loses_state and (isinstance(release, str) or release <= _LAST_TO_LOSE_STATE)


def _advised(profile: Profile) -> Table:
    decision = profile.decision
    if decision.verdict is Verdict.TABLE and decision.table is not None:
        return decision.table
    todo = {
        Verdict.FIXED: f"Set num_speculative_tokens to {decision.fixed_k}.",
        Verdict.OFF: "Leave --speculative-config out.",
    }
    raise ProfileMismatch(
        f"Its verdict is: {decision.verdict} ({decision.reason}).", todo.get(decision.verdict, "Measure more.")
    )


def _known(profile: Profile) -> Environment:
    if profile.environment is None:
        raise ProfileMismatch(
            "It is an import, so what it was measured on is not known.", "Paste what `dsd-tune emit-config` prints."
        )
    return profile.environment


def _compared(profile: Profile, environment: Environment, serving: Serving) -> Iterator[tuple[str, object, object]]:
    """Key, measured value, value here; the cheap ones first."""
    yield "vLLM", _release(environment.vllm_version), _release(serving.vllm_version)
    # Of two runners, the first is that of the table's engine.
    yield "model runner", environment.runner.split(",")[0], serving.runner
    for key in ("method", "device", "device_name", "dtype", "tensor_parallel_size", "pipeline_parallel_size"):
        yield key, getattr(environment, key), getattr(serving, key)
    yield "the model", environment.model_digest, model_digest(serving.model)
    config = json.loads(profile.request.speculative_config) if profile.request else {}
    unset = {**serving.defaults, "parallel_drafting": serving.method in PARALLEL_NATIVE}
    for key in sorted((config.keys() | _DECISIVE) & serving.settings.keys() - {"model", "method"}):
        yield f"the drafter's {key}", _spelled(config.get(key, unset.get(key))), _spelled(serving.settings[key])
    here = {**config, "model": serving.drafter} if "model" in config else config
    yield "the drafter", environment.drafter_digest, drafter_digest(here)


def _spelled(setting: object) -> object:
    """A name as a string in one case: vLLM takes some in any, and makes members of an enumeration of them."""
    name = setting.name if isinstance(setting, Enum) else setting
    return name.lower() if isinstance(name, str) else name


def _release(version: str) -> Release | str:
    """What decides about behaviour; a simulated engine has a word in place of a version."""
    try:
        return Release.parse(version)
    except ValueError:
        return version


def _require_possible(measured_up_to: int, table: Table, serving: Serving) -> None:
    if serving.data_parallel_size > 1:
        raise ProfileMismatch(
            f"data_parallel_size is {serving.data_parallel_size}, and ranks must not choose Ks by themselves.",
            "Run independent servers behind a router.",
        )
    if table.k_max > serving.k_max:
        raise ProfileMismatch(
            f"Its table needs K={table.k_max}, and num_speculative_tokens is {serving.k_max}.",
            f"Set num_speculative_tokens to {table.k_max}.",
        )
    if serving.max_num_seqs > measured_up_to:
        raise ProfileMismatch(
            f"It was measured up to batch size {measured_up_to}, and max_num_seqs is {serving.max_num_seqs}.",
            f"Set --max-num-seqs {measured_up_to}, or measure further.",
        )
    if 0 in table.ks - possible_ks(serving):
        raise ProfileMismatch(
            f"vLLM {serving.vllm_version} corrupts the output of a model with recurrent layers when K drops to 0.",
            "Use vLLM 0.32 or later, or set --mamba-cache-mode align.",
        )
