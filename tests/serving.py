"""A profile of the simulated engine, the vLLM configuration that it fits, and vLLM's side of starting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from builders import a_profile, an_environment

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, Profile
from dsd_tune.records.table import Table
from dsd_tune.runtime.serving import Serving
from dsd_tune.storage import formats
from dsd_tune.storage.fingerprint import drafter_digest, model_digest

VERSION = "0.32.0"
CONFIG = {"method": "eagle", "model": "drafter"}


def a_fitting_profile(table: Table | None = None, **environment: Any) -> Profile:
    """A profile that `a_serving()` fits: K=2 up to batch size 4, K=0 up to 16, or another table."""
    known = {
        "model_digest": model_digest("target"),
        "drafter_digest": drafter_digest(CONFIG),
        "method": "eagle",
        "vllm_version": VERSION,
    }
    profile = a_profile(environment=an_environment(**{**known, **environment}))
    if table is None:
        return profile
    return replace(profile, decision=replace(profile.decision, table=table, max_num_seqs=table.max_num_seqs))


def a_serving(**changed: Any) -> Serving:
    """What vLLM is about to serve, with `changed` fields."""
    environment = an_environment()
    serving = Serving(
        vllm_version=VERSION,
        method="eagle",
        model="target",
        drafter="drafter",
        settings={"draft_tensor_parallel_size": 1, "enable_adaptive_verification": False, "parallel_drafting": False},
        defaults={"enable_adaptive_verification": False},
        k_max=2,
        max_num_seqs=16,
        dtype=environment.dtype,
        runner=environment.runner,
        device=environment.device,
        device_name=environment.device_name,
        tensor_parallel_size=environment.tensor_parallel_size,
        pipeline_parallel_size=environment.pipeline_parallel_size,
        data_parallel_size=1,
        loses_state=False,
    )
    return replace(serving, **changed)


def a_vllm_config(table: list[tuple[int, int, int]] | None = None, *, speculates: bool = True) -> SimpleNamespace:
    """A `VllmConfig` as far as the hooks touch it themselves."""
    speculation = SimpleNamespace(num_speculative_tokens_per_batch_size=table)
    return SimpleNamespace(speculative_config=speculation if speculates else None)


def write_profile(path: Path, profile: Profile) -> None:
    """Put a profile where `DSD_TUNE_PROFILE` points, atomically as `fit` does."""
    formats.write(formats.PROFILE, path, profile)


def with_step_times(profile: Profile, step_s: Mapping[int, float], sizes: Sequence[int]) -> Profile:
    """The same profile, whose steps take `step_s[k]` at each of these batch sizes in the table's engine."""
    cells = tuple(
        CellEstimate(Cell(Arm.DSD, size, k), Interval(s, s, s), Interval(s, s, s), None, 2, 4, 0.9)
        for size in sizes
        for k, s in step_s.items()
    )
    return replace(profile, cells=cells)


def with_settings(profile: Profile, **settings: object) -> Profile:
    """The same profile, measured with further settings of the drafter."""
    assert profile.request
    assert profile.environment
    config = {**CONFIG, **settings}
    return replace(
        profile,
        request=replace(profile.request, speculative_config=json.dumps(config)),
        environment=replace(profile.environment, drafter_digest=drafter_digest(config)),
    )
