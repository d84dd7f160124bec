"""What a fit concludes: estimates with intervals, the decision, and what it was measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.environment import Environment
from dsd_tune.records.measurement import Cell
from dsd_tune.records.run import SweepRequest
from dsd_tune.records.table import Table


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval, in the unit its field's name gives."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.value, self.low, self.high))) or self.low > self.high:
            raise ValueError(f"an interval must be finite and ordered, got {self}")


class Verdict(StrEnum):
    """The four answers; each has its exit code."""

    TABLE = "deploy this table"
    FIXED = "use this fixed K"
    OFF = "turn speculation off"
    UNCLEAR = "cannot tell"

    @property
    def exit_code(self) -> int:
        """0 something to deploy, 4 measured and no gain, 5 cannot tell yet."""
        return {Verdict.OFF: 4, Verdict.UNCLEAR: 5}.get(self, 0)


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """One measured cell. `gain` is how much shorter TPOT is than `no_spec` at the same batch size: 0.1 is 10 %."""

    cell: Cell
    step_s: Interval
    tpot_s: Interval
    gain: Interval
    starts: int
    blocks: int
    kept_share: float


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """Share of drafted tokens at `position` (from 1) that were accepted with all before them."""

    position: int
    rate: Interval


@dataclass(frozen=True, slots=True)
class AcceptanceLength:
    """Tokens a sequence gets per step at `k`, bonus token included."""

    k: int
    tokens: Interval


@dataclass(frozen=True, slots=True)
class Tax:
    """How much longer a step is at K=0 in the table's engine than without speculation: 0.05 is 5 %."""

    batch_size: int
    share: Interval


@dataclass(frozen=True, slots=True)
class Crossover:
    """The batch size at which `k` stops paying against `no_spec`; `at` is None if that was not seen.

    `pays` says what holds at the smallest measured batch size.
    """

    k: int
    pays: bool
    at: Interval | None


@dataclass(frozen=True, slots=True)
class CriticalSize:
    """Tokens in flight, B*(K+1), where verification leaves its flat part; None if no bend was seen.

    `relative_error` is the cost law's median error on the cells it was fitted to.
    """

    tokens: Interval | None
    relative_error: float
    remark: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a table changes from `left_k` to `right_k`: after batch size `after`.

    From `low` to `high` the two are tied; `margin` is how much TPOT `right_k` saves at the next measured batch size,
    None where `left_k` failed there.
    """

    after: int
    low: int
    high: int
    left_k: int
    right_k: int
    margin: Interval | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of batch sizes where one choice loses to no speculation; `loss` is the mean share of TPOT lost."""

    first: int
    last: int
    loss: Interval


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and all it was weighed against. Gains are over `no_spec`, averaged with the stated weights."""

    verdict: Verdict
    table: Table
    fixed_k: int
    table_gain: Interval
    fixed_gain: Interval
    table_over_fixed: Interval
    fixed_worst_loss: float
    boundaries: tuple[Boundary, ...]
    losing: tuple[Stretch, ...]
    weights: str
    reason: str


@dataclass(frozen=True, slots=True)
class Variance:
    """Relative standard deviations: between engine starts, of the machine between visits, between blocks of a visit."""

    between_starts: float
    drift: float
    between_blocks: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A fitted run: everything a reader, an emitter or a server needs, and nothing they must recompute."""

    environment: Environment
    request: SweepRequest
    cells: tuple[CellEstimate, ...]
    acceptance: tuple[PositionAcceptance, ...]
    acceptance_lengths: tuple[AcceptanceLength, ...]
    k0_tax: tuple[Tax, ...]
    crossovers: tuple[Crossover, ...]
    critical: CriticalSize
    variance: Variance
    decision: Decision
    warnings: tuple[str, ...]
    created_at_s: float
    dsd_tune_version: str
