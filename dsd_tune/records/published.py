"""Numbers that somebody else measured: single values without blocks, and what is known of where they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsd_tune.records.measurement import Cell

ORIGIN = ("source", "licence")
"""Facts that numbers need before they are passed on: where they were published, and what allows it."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that can change the answer, in the words of the file that stated it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class PublishedAcceptance:
    """Acceptance at one K. `length` is tokens per sequence and step, bonus token included.

    `rates[i]` is the share of all drafts accepted at position i, as vLLM counts it (empty if not published);
    `drafts` is how many drafts it rests on, if that is known.
    """

    k: int
    length: float
    rates: tuple[float, ...]
    drafts: int | None
    source: str

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"acceptance needs K of 1 or more, got {self.k}")
        if not 1 <= self.length <= self.k + 1:
            raise ValueError(f"the acceptance length at K={self.k} lies in 1 to {self.k + 1}, got {self.length}")
        if len(self.rates) not in (0, self.k) or any(not 0 <= rate <= 1 for rate in self.rates):
            raise ValueError(f"need one rate in 0 to 1 for each of {self.k} positions, got {self.rates}")
        if self.drafts is not None and self.drafts < 1:
            raise ValueError(f"an acceptance length rests on drafts, got {self.drafts}")


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One value at one cell, in seconds. How many runs it is the mean of is unknown; repeats are further rows.

    `tpot_s` may include a share of prefill, since clients measure it. `step_s` is given only where the file has
    it, or has what it follows from.
    """

    cell: Cell
    step_s: float | None
    tpot_s: float | None
    acceptance: PublishedAcceptance | None
    source: str

    def __post_init__(self) -> None:
        times = [time for time in (self.step_s, self.tpot_s) if time is not None]
        if not times or any(not (math.isfinite(time) and time > 0) for time in times):
            raise ValueError(f"{self.cell} needs a positive step time or TPOT, got {times}")
        if self.acceptance is not None and self.acceptance.k != self.cell.k:
            raise ValueError(f"{self.cell} cannot carry acceptance at K={self.acceptance.k}")


@dataclass(frozen=True, slots=True)
class Published:
    """One import. The deviations are assumptions, since single values carry none.

    `cell_sd` is the relative standard deviation of one number, `start_sd` that of the engine it came from, common
    to all its numbers. `remarks` say what was left out, and why.
    """

    rows: tuple[PublishedRow, ...]
    acceptance: tuple[PublishedAcceptance, ...]
    facts: tuple[Fact, ...]
    cell_sd: float
    start_sd: float
    remarks: tuple[str, ...]
    created_at_s: float
    dsd_tune_version: str

    def __post_init__(self) -> None:
        if not self.rows and not self.acceptance:
            raise ValueError("an import needs at least one number")
        if not (0 < self.cell_sd < 1 and 0 < self.start_sd < 1):
            raise ValueError(f"relative deviations lie between 0 and 1, got {self.cell_sd} and {self.start_sd}")
        keys = [fact.key for fact in self.facts]
        if len(keys) != len(set(keys)):
            raise ValueError(f"a fact has one value, got {keys}")

    def fact(self, key: str) -> str | None:
        """The value of a fact, None if no file stated it."""
        return next((fact.value for fact in self.facts if fact.key == key), None)
