"""What became of one profile's numbers in another: each change with its interval and one of four words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Cell


class Said(StrEnum):
    """What may be said of a change."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    UNCLEAR = "cannot tell"

    @property
    def exit_code(self) -> int:
        """0 nothing lost, 4 measured and worse, 5 cannot tell yet."""
        return {Said.WORSE: 4, Said.UNCLEAR: 5}.get(self, 0)


@dataclass(frozen=True, slots=True)
class Change:
    """One number after over the same number before; 1.1 is a tenth more. `said` knows whether more is better."""

    ratio: Interval
    said: Said

    def __post_init__(self) -> None:
        if self.ratio.low <= 0:
            raise ValueError(f"a ratio is positive, got {self.ratio}")


@dataclass(frozen=True, slots=True)
class CellChange:
    """Step time of a cell that both measured; TPOT where its step time is not known."""

    cell: Cell
    change: Change


@dataclass(frozen=True, slots=True)
class PositionChange:
    """Acceptance at a position, from 1, or acceptance length at a K."""

    at: int
    change: Change


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key of the fingerprint with both values, in words. `machine` tells that it names the hardware."""

    key: str
    before: str
    after: str
    machine: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two profiles, key by key and cell by cell.

    `tpot` is the TPOT of `choice`, which the first profile advises, and `no_spec` that without speculation, both over
    the batch sizes that were measured in both; `relative` is the ratio of the two, from which the machine's own
    speed is gone. None where it was not measured in both. `missing` are cells that only one of them has.
    """

    keys: tuple[KeyChange, ...]
    choice: str
    tpot: Change | None
    no_spec: Change | None
    relative: Change | None
    cells: tuple[CellChange, ...]
    acceptance: tuple[PositionChange, ...]
    acceptance_lengths: tuple[PositionChange, ...]
    missing: tuple[Cell, ...]
    advice_before: str
    advice_after: str
    said: Said
    reason: str
