"""Everything that `doctor` has seen and concluded."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.check.diagnosis import Diagnosis, worst_first
from dsd_tune.check.on_configured import on_configured
from dsd_tune.check.on_host import on_host
from dsd_tune.check.on_release import on_tables
from dsd_tune.check.on_running import on_running
from dsd_tune.check.on_source import on_source
from dsd_tune.records.configured import Configured
from dsd_tune.records.finding import Finding, Severity
from dsd_tune.records.host import Host
from dsd_tune.records.running import RunningServer
from dsd_tune.records.source import VllmSource


@dataclass(frozen=True, slots=True)
class Examination:
    """What was looked at; None for what was not. `refusal` is vLLM's no to the planned server."""

    source: VllmSource | None = None
    host: Host | None = None
    server: RunningServer | None = None
    configured: Configured | None = None
    diagnosis: Diagnosis | None = None
    refusal: Finding | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, the worst first."""
        found = [*self.diagnosis.findings] if self.diagnosis else []
        planned = self.diagnosis.deployment if self.diagnosis else None
        if self.refusal:
            found.append(self.refusal)
        if self.source:
            found += on_source(self.source)
            if planned is None or not planned.has_table:
                found += on_tables(self.source.release, self.source.traits)
        if planned and self.configured:
            found += on_configured(planned, self.configured)
        if self.host and self.source:
            share = self.configured.claimed_share if self.configured else None
            found += on_host(self.host, cpu=planned.cpu if planned else self.source.cpu, claimed_share=share)
        if self.server:
            found += on_running(self.server, planned)
        return worst_first(found)

    @property
    def is_fit(self) -> bool:
        """Whether nothing stands in the way of a table."""
        return all(finding.rule.severity is not Severity.ERROR for finding in self.findings)
