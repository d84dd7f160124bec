"""The sources of one vLLM: what it calls itself, and what was seen in its files."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.records.release import Release
from dsd_tune.records.trait import Trait, Traits, traits_of


@dataclass(frozen=True, slots=True)
class VllmSource:
    """`seen` are the traits found, `missed` those looked for in vain; of the others the file was not there."""

    folder: str
    version: str
    cpu: bool
    seen: Traits
    missed: Traits

    @property
    def release(self) -> Release:
        """What it calls itself; where that cannot be, as in a checkout without tags, what it looks like."""
        try:
            stated = Release.parse(self.version)
        except ValueError:
            return self._likeness()
        return self._likeness() if stated < Trait.TABLES.since and Trait.TABLES in self.seen else stated

    @property
    def traits(self) -> Traits:
        """What it has. What was not there to look at is taken from the release."""
        return self.seen | (traits_of(self.release) - self.missed)

    @property
    def additions(self) -> tuple[Trait, ...]:
        """What was seen and is not in its release."""
        return tuple(trait for trait in Trait if trait in self.seen - traits_of(self.release))

    @property
    def omissions(self) -> tuple[Trait, ...]:
        """What is in its release and was missed."""
        return tuple(trait for trait in Trait if trait in self.missed & traits_of(self.release))

    def _likeness(self) -> Release:
        """The newest release that brought something seen here."""
        return max((trait.since for trait in self.seen), default=Release(0, 0))
