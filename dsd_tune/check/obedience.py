"""Since when vLLM does what a deployment's table says, and what is in the way."""

from __future__ import annotations

from dataclasses import replace

from dsd_tune.check import rules
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.diagnosis import diagnose
from dsd_tune.engines.vllm_facts import FIRST_WITH_TABLES, NEWEST_READ
from dsd_tune.records.finding import Finding, Severity
from dsd_tune.records.release import Release


def obeyed_since(deployment: Deployment) -> Release | None:
    """The oldest release from which on every known one obeys the table; None if the newest does not.

    The release of `deployment` itself does not matter; its model runner does.
    """
    oldest = None
    for minor in range(NEWEST_READ.minor, FIRST_WITH_TABLES.minor - 1, -1):
        release = Release(0, minor)
        if obstacles(replace(deployment, release=release, source_traits=None)):
            break
        oldest = release
    return oldest


def obstacles(deployment: Deployment) -> list[Finding]:
    """Why this release does not obey: errors that it has and others have not, and drafts that K does not shorten."""
    return [finding for finding in diagnose(deployment).findings if _disobeys(finding)]


def _disobeys(finding: Finding) -> bool:
    is_error = finding.rule.severity is Severity.ERROR
    return (is_error and finding.rule.depends_on_vllm) or finding.rule is rules.RUNNER_DRAFTS_K_MAX
