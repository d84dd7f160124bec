"""What one foreign file yields before files are joined."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.records.published import Fact, PublishedAcceptance, PublishedRow

RUNNING_SHARE = 0.9
"""Below this share of what was offered, a number belongs to a mix of smaller batches."""

GRID_SD = 0.02
"""Assumed for published grids: launches of one command were seen 0.4 % (one request) to 3.3 % (four) apart."""

RESTART_SD = 0.08
"""Assumed for single runs nobody vouches for: twins of one engine were seen 15 % apart."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server was offered `offered` requests at once, and ran `running` of them."""

    offered: int
    running: int
    source: str

    def __post_init__(self) -> None:
        if not 1 <= self.running <= self.offered:
            raise ValueError(f"{self.source}: {self.running} cannot run of {self.offered} offered")

    @property
    def is_mixed(self) -> bool:
        """Whether too few ran for the number to be keyed by this batch size."""
        return self.running < RUNNING_SHARE * self.offered

    def __str__(self) -> str:
        return f"of {self.offered} offered only {self.running} ran ({self.source})"


@dataclass(frozen=True, slots=True)
class Found:
    """Contents of one file or folder.

    `columns` are those of a CSV file, by which rows can be chosen. `output_lengths` are mean output tokens a
    request, one for each result that tells. `start_sd` is the relative deviation to assume between the engines it
    was measured in.
    """

    rows: tuple[PublishedRow, ...] = ()
    acceptance: tuple[PublishedAcceptance, ...] = ()
    facts: tuple[Fact, ...] = ()
    running: tuple[Running, ...] = ()
    columns: tuple[str, ...] = ()
    output_lengths: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    start_sd: float = GRID_SD
