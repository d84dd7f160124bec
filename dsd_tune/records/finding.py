"""What `check` and `doctor` say: a finding applies one rule of a closed list to one deployment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.trait import Trait, Traits


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
    """One entry of the closed list. It holds for a vLLM that has what it `needs`, unless that is `mended`."""

    code: str
    severity: Severity
    summary: str
    needs: Trait | None = None
    mended: Trait | None = None
    reference: str = ""

    def __post_init__(self) -> None:
        if not self.code or self.code != self.code.lower() or " " in self.code:
            raise ValueError(f"a code is lower-case words joined by hyphens, got {self.code!r}")

    @property
    def depends_on_vllm(self) -> bool:
        """Whether another vLLM might behave otherwise."""
        return self.needs is not None or self.mended is not None

    def holds_for(self, traits: Traits) -> bool:
        """Whether a vLLM with these traits behaves so."""
        return (self.needs is None or self.needs in traits) and (self.mended is None or self.mended not in traits)

    @property
    def versions(self) -> str:
        """The releases it holds for, in words."""
        since = self.needs.since if self.needs else None
        until = self.mended.since.before if self.mended else None
        if since and until and until < since:
            return "none as released"
        match since, until:
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
