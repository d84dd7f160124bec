"""What `check` says: a finding applies one rule of a closed list to one deployment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.release import Release


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """vLLM refuses, crashes, corrupts output, or does something else than the table says."""

    WARNING = "warning"
    """It runs, and costs something that the table does not show."""

    NOTE = "note"
    """Worth knowing; nothing need change."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of the closed list. `since` and `until` are the first and last release it holds for."""

    code: str
    severity: Severity
    summary: str
    since: Release | None = None
    until: Release | None = None
    reference: str = ""

    def __post_init__(self) -> None:
        if not self.code or self.code != self.code.lower() or " " in self.code:
            raise ValueError(f"a code is lower-case words joined by hyphens, got {self.code!r}")
        if self.since and self.until and self.until < self.since:
            raise ValueError(f"{self.code} holds from {self.since} to {self.until}, which is never")

    def holds_for(self, release: Release) -> bool:
        """Whether this release behaves so."""
        return (self.since is None or release >= self.since) and (self.until is None or release <= self.until)

    @property
    def versions(self) -> str:
        """The releases it holds for, in words."""
        match self.since, self.until:
            case None, None:
                return "all"
            case since, None:
                return f"{since} and later"
            case None, until:
                return f"up to {until}"
            case since, until:
                return f"{since}" if since == until else f"{since} to {until}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that applies: `reason` says what is so here, `mend` what to do about it."""

    rule: Rule
    reason: str
    mend: str

    def __post_init__(self) -> None:
        if not self.reason or not self.mend:
            raise ValueError(f"{self.rule.code} needs a reason and a mend")
