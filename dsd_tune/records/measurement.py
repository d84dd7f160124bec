"""What a sweep writes down: cells, blocks of raw step times with their token counts, and cells that failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.condition import Condition
from dsd_tune.records.machine import MachineState


class Arm(StrEnum):
    """What kind of engine was measured. Arms are never inferred from one another."""

    NO_SPEC = "no_spec"
    """An engine without a speculative config."""
    DSD = "dsd"
    """An engine with a table; its K is switched live, K=0 included."""
    STATIC = "static"
    """An engine with a fixed K and no table; it may run other CUDA graphs than the table's engine."""


class Phase(StrEnum):
    """What is compared with what. Engines of one phase alternate; those of two are not compared."""

    MAIN = "main"
    """`no_spec` and the table's engine."""
    STATIC = "static"
    """The best fixed K against fresh `no_spec`."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One point of the grid: an arm at a batch size and K. `no_spec` has K=0 by definition."""

    arm: Arm
    batch_size: int
    k: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch size must be 1 or more, got {self.batch_size}")
        if self.k < 0 or (self.arm is Arm.NO_SPEC and self.k != 0):
            raise ValueError(f"K={self.k} is impossible in arm {self.arm}")
        if self.arm is Arm.STATIC and self.k == 0:
            raise ValueError("a fixed K of 0 is the arm no_spec")

    def __str__(self) -> str:
        return f"{self.arm} B={self.batch_size} K={self.k}"


@dataclass(frozen=True, slots=True)
class PromptCounts:
    """Tokens of one prompt inside one block, counted until the model's own end of sequence.

    `drafted[i]` steps proposed a token at position i, `accepted[i]` of them had it accepted; a position
    counts as accepted only if all before it were. `steps` are decode steps, so tokens are steps + accepted.
    """

    prompt: str
    steps: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.drafted) != len(self.accepted):
            raise ValueError("drafted and accepted must have one count for each position")
        if any(not 0 <= a <= d <= self.steps for d, a in zip(self.drafted, self.accepted, strict=True)):
            raise ValueError(f"need 0 <= accepted <= drafted <= steps at each position, got {self}")

    @property
    def tokens(self) -> int:
        """Tokens this prompt received in the block."""
        return self.steps + sum(self.accepted)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive steps at one cell: the statistical unit, because neighbouring steps are correlated.

    It belongs to the visit of `stop`, a batch size, with number `repetition`, and was taken on its pass `round`: even
    ones are forward, odd ones reversed. `slot` is the engine's place, `start` its process; both numbers are unique over
    all workers of the run. `step_s` holds the kept steps only, `steps_run` counts all of them after those dropped to
    settle. `context` is the shortest and longest sequence seen, in tokens.
    """

    cell: Cell
    condition: Condition
    phase: Phase
    stop: int
    repetition: int
    round: int
    slot: int
    start: int
    taken_at_s: float
    step_s: tuple[float, ...]
    steps_run: int
    context: tuple[int, int]
    prompts: tuple[PromptCounts, ...]
    machine: MachineState | None

    def __post_init__(self) -> None:
        if not self.step_s or len(self.step_s) > self.steps_run:
            raise ValueError(f"a block needs 1 to {self.steps_run} kept steps, got {len(self.step_s)}")
        if any(not (math.isfinite(s) and s > 0) for s in self.step_s):
            raise ValueError(f"step times must be positive and finite, got {self.step_s}")

    @property
    def kept_share(self) -> float:
        """Share of the steps run that met the rules: exactly B decoding, none prefilling, B*K drafted."""
        return len(self.step_s) / self.steps_run


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that could not be measured, and why. It is data: the sweep went on without it."""

    cell: Cell
    condition: Condition
    phase: Phase
    stop: int
    repetition: int
    round: int
    slot: int
    start: int
    taken_at_s: float
    reason: str
