"""What the user says about files that do not say it themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.measurement import Arm


class Unit(StrEnum):
    """Units a column may be declared in; `tok/s` are output tokens of the whole server."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    TOKENS_PER_SECOND = "tok/s"
    PERCENT = "percent"
    FRACTION = "fraction"

    @property
    def factor(self) -> float:
        """What a value is multiplied by to become seconds, tokens a second or a fraction."""
        return {Unit.MILLISECONDS: 1e-3, Unit.MICROSECONDS: 1e-6, Unit.PERCENT: 1e-2}.get(self, 1.0)


@dataclass(frozen=True, slots=True)
class Declared:
    """Declarations for all files of one import.

    `arm` is what rows with K of 1 or more were measured in, `k0` the rows with K=0; both hold only where the
    file is silent. Without them the arms are assumed that leave most unsaid, so that a wrong one claims too little:
    an engine for each fixed K, and one without speculation. `units` are by column name; of CSV rows only those
    pass that match `where`, by column name.
    """

    arm: Arm | None = None
    k0: Arm | None = None
    units: tuple[tuple[str, Unit], ...] = ()
    where: tuple[tuple[str, str], ...] = ()
    method: str | None = None
    allow_synthetic: bool = False

    def __post_init__(self) -> None:
        if self.arm is Arm.NO_SPEC or self.k0 is Arm.STATIC:
            raise ValueError(f"K of 1 or more cannot be {self.arm}, or K=0 cannot be {self.k0}")

    def arm_of(self, k: int) -> Arm:
        """The arm of a row whose file names none."""
        return (self.arm or Arm.STATIC) if k else (self.k0 or Arm.NO_SPEC)

    def assumption_at(self, k: int) -> str | None:
        """What `arm_of` assumes, for a remark; None if it was declared."""
        if k:
            return None if self.arm else "--arm static is assumed: an engine for each K, with that K fixed"
        return None if self.k0 else "--k0 no_spec is assumed: rows with K=0 come from an engine without speculation"

    def unit_of(self, column: str) -> Unit | None:
        """The unit declared for a column."""
        return dict(self.units).get(column)
