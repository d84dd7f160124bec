"""The unit of work of a run: one stop of the staircase, which one worker makes."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Phase


@dataclass(frozen=True, slots=True)
class Visit:
    """Every wanted cell of `arms` at one condition and batch size, forward and then reversed.

    `repetition` counts from 0: the same visit again, for precision.
    """

    phase: Phase
    arms: tuple[Arm, ...]
    condition: Condition
    batch_size: int
    repetition: int

    def __post_init__(self) -> None:
        if not self.arms or self.batch_size < 1 or self.repetition < 0:
            raise ValueError(f"a visit needs arms, a batch size of 1 or more and a repetition from 0, got {self}")
