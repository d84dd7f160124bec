"""What stands beside a text for vLLM: which version obeys it, and what is left to fill in."""

from __future__ import annotations

import time
from dataclasses import replace

from dsd_tune.check.command_line import deployment, from_words
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.obedience import obeyed_since, obstacles
from dsd_tune.emit.decision import on_capture_sizes, to_fill_in
from dsd_tune.emit.serve_line import arguments
from dsd_tune.engines.vllm_facts import NEWEST_READ
from dsd_tune.records.profile import Profile


def said_of(profile: Profile) -> tuple[str, ...]:
    """Remarks on the emitted config, as sentences without a full stop."""
    return (*_obedience(profile), *on_capture_sizes(profile), *to_fill_in(profile), *_validation(profile))


def _validation(profile: Profile) -> tuple[str, ...]:
    """What servers said of the profile; of an import nobody can ask one."""
    if profile.request is None:
        return ()
    record = profile.validation
    if record is None:
        return ("Not validated: `dsd-tune validate` compares it with no speculation on real servers",)
    day = time.strftime("%Y-%m-%d", time.gmtime(record.created_at_s))
    levels = ", ".join(map(str, record.request.concurrency))
    return (f"Validated on {day} with {levels} requests at a time: {record.outcome}",)


def _obedience(profile: Profile) -> tuple[str, ...]:
    """Which vLLM the table needs, as one remark; nothing to say of a fixed K."""
    deployment = _deployment(profile)
    if deployment is None or not deployment.has_table:
        return ()
    runner = f" on model runner {deployment.asked_runner.upper()}" if deployment.asked_runner else ""
    since = obeyed_since(deployment)
    if since is not None:
        return (f"vLLM {since} or later obeys this table{runner}{_way_to_runner(deployment)}",)
    in_the_way = obstacles(deployment)[0]
    return (f"No vLLM so far obeys this table{runner}: {in_the_way.reason} {in_the_way.mend.removesuffix('.')}",)


def _way_to_runner(deployment: Deployment) -> str:
    """How to get the runner that was measured, where vLLM would choose another."""
    by_default = replace(deployment, asked_runner=None).runner
    if deployment.asked_runner in (None, by_default):
        return ""
    return f", which takes VLLM_USE_V2_MODEL_RUNNER={'0' if deployment.asked_runner == 'v1' else '1'}"


def _deployment(profile: Profile) -> Deployment | None:
    """The emitted command as `check` would see it under the newest vLLM, on the model runner that was measured."""
    settings = from_words(["vllm", "serve", *arguments(profile)])
    if "speculative-config" not in settings:
        return None
    environment = profile.environment
    runner = environment.runner.partition(",")[0] if environment else ""
    if runner in ("v1", "v2"):
        settings["model-runner"] = runner
    return deployment(settings, NEWEST_READ, cpu=environment is not None and environment.device == "cpu")
