"""What a fit concludes: estimates with intervals, the decision, and what it was measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Cell
from dsd_tune.records.published import Fact
from dsd_tune.records.run import SweepRequest
from dsd_tune.records.table import Table
from dsd_tune.records.validation import Validation
from dsd_tune.records.warning import QualityWarning


@dataclass(frozen=True, slots=True)
class Comparison(Interval):
    """A difference between two choices, and the smallest one that this run would have told from none.

    `detectable` would have left an interval without 0 in four of five such runs: (t.975 + t.8) standard errors.
    """

    detectable: float

    def __post_init__(self) -> None:
        Interval.__post_init__(self)
        if not (math.isfinite(self.detectable) and self.detectable >= 0):
            raise ValueError(f"a detectable difference is 0 or more, got {self.detectable}")


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
    """One measured cell. `gain` is how much shorter TPOT is than `no_spec` at the same batch size: 0.1 is 10 %.

    `step_s` is None where acceptance is not known and TPOT cannot be taken apart, `gain` where `no_spec` was not
    measured. The blocks of an import are its rows. `cv` is the relative standard deviation of a block within the cell,
    luck of starts, drift and slow rounds taken out; None where no block repeats another. `break_even` is the acceptance
    length at which the cell takes as long a token as `no_spec`: a drafter that gives more pays.
    """

    cell: Cell
    step_s: Interval | None
    tpot_s: Interval
    gain: Interval | None
    starts: int
    blocks: int
    kept_share: float
    cv: float | None = None
    break_even: Interval | None = None


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
    share: Comparison


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

    From `low` to `high` the K of the other side is a rival, or within 2 %. `margin` is how much TPOT `right_k` saves at
    the next measured batch size, None where `left_k` failed there. Between `left_measured` and `right_measured` lies no
    measured batch size.
    """

    after: int
    low: int
    high: int
    left_measured: int
    right_measured: int
    left_k: int
    right_k: int
    margin: Interval | None


@dataclass(frozen=True, slots=True)
class Rival:
    """A K that is not surely worse than the table's from batch size `first` to `last`: another sweep might choose it.

    Surely means by intervals that hold for all Ks at all batch sizes at once, 95 times in 100.
    """

    k: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of batch sizes where one choice loses to no speculation; `loss` is the mean share of TPOT lost."""

    first: int
    last: int
    loss: Interval


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and all it was weighed against. Gains are over `no_spec`, averaged with the stated weights.

    `table` is None where one batch size was measured, gains where no engine without speculation was, and both where
    acceptance is not known, with a `fixed_k` of 0. `table_gain` is lowered by what choosing the best of many cells
    added to it; `confirmed_over_fixed` is `table_over_fixed` without that. `max_num_seqs` is where the measurements
    end, and so the advice. `capture_sizes` are the `cudagraph_capture_sizes` that the table needs to run the graphs
    that were measured; mostly it needs none.
    """

    verdict: Verdict
    max_num_seqs: int
    table: Table | None
    fixed_k: int
    table_gain: Comparison | None
    fixed_gain: Comparison | None
    table_over_fixed: Comparison | None
    confirmed_over_fixed: float | None
    fixed_worst_loss: float
    boundaries: tuple[Boundary, ...]
    rivals: tuple[Rival, ...]
    losing: tuple[Stretch, ...]
    objective: str
    weights: str
    reason: str
    remarks: tuple[str, ...]
    capture_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.verdict is Verdict.TABLE and self.table is None:
            raise ValueError("a table cannot be advised without one")
        if self.table is not None and self.table.max_num_seqs != self.max_num_seqs:
            raise ValueError(f"a table up to {self.table.max_num_seqs} is not closed at {self.max_num_seqs}")

    @property
    def varying_table(self) -> Table | None:
        """The table where it is worth the name: one K throughout is a fixed K."""
        return None if self.table is None or self.table.is_constant else self.table


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well step times of cells that were held back are foretold by the others, as shares of the measured time.

    `cells` counts those that a claim is made for; `flagged` are the others (batch size, K), where only measuring tells.
    `high_error` is the 90th percentile; both are None where no claim is made at all.
    """

    cells: int
    median_error: float | None
    high_error: float | None
    flagged: tuple[tuple[int, int], ...]


class Source(StrEnum):
    """What makes a comparison uncertain."""

    STARTS = "luck of engine starts"
    DRIFT = "drift of the machine"
    BLOCKS = "scatter of blocks"
    TEXT = "luck of the text"


@dataclass(frozen=True, slots=True)
class Limit:
    """The comparison that is closest to what the run can tell, and what gives it most of its uncertainty."""

    comparison: str
    source: Source


@dataclass(frozen=True, slots=True)
class Variance:
    """Relative standard deviations: between engine starts, of the machine between visits, between blocks of a visit.

    `trend` is how much slower the machine was at the end than at the beginning, as a share; None if nothing
    tells. `limit` is None for imports.
    """

    between_starts: float
    drift: float
    between_blocks: float
    trend: Interval | None
    limit: Limit | None


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """One of several conditions; `regret` is the share of TPOT its own decision saves there over the profile's."""

    condition: Condition
    cells: tuple[CellEstimate, ...]
    acceptance_lengths: tuple[AcceptanceLength, ...]
    decision: Decision
    regret: Comparison | None

    @property
    def is_served(self) -> bool:
        """Whether the profile's decision is as good here as could be told, or within 1 % of that."""
        return self.regret is None or self.regret.low <= 0 or self.regret.value < 0.01


@dataclass(frozen=True, slots=True)
class Profile:
    """A fitted run: everything a reader, an emitter or a server needs, and nothing they must recompute.

    An import has neither `environment` nor `request`, since nobody knows them; it has the `facts` that its files state.
    `roofline_tokens` is where the GPU's datasheet puts the critical size for 16-bit weights, None if it is not known.
    A run under several conditions has a part for each in `conditions`; all else is their mean, each counting alike.
    """

    environment: Environment | None
    request: SweepRequest | None
    facts: tuple[Fact, ...]
    cells: tuple[CellEstimate, ...]
    acceptance: tuple[PositionAcceptance, ...]
    acceptance_lengths: tuple[AcceptanceLength, ...]
    k0_tax: tuple[Tax, ...]
    crossovers: tuple[Crossover, ...]
    critical: CriticalSize | None
    roofline_tokens: float | None
    held_out: HeldOut | None
    variance: Variance
    decision: Decision
    conditions: tuple[ConditionResult, ...]
    warnings: tuple[QualityWarning, ...]
    validation: Validation | None
    created_at_s: float
    dsd_tune_version: str

    def __post_init__(self) -> None:
        if (self.environment is None) != (self.request is None):
            raise ValueError("a sweep has an environment and a request, an import has neither")
        if len(self.conditions) == 1:
            raise ValueError("a single condition is the profile itself")

    @property
    def cost_only(self) -> bool:
        """Whether acceptance was not measured, but stated or left open."""
        return self.environment is not None and self.environment.cost_only

    @property
    def acceptance_known(self) -> bool:
        """Whether TPOT, and so a gain, means anything: acceptance was measured or stated."""
        return self.decision.fixed_k > 0

    def fact(self, key: str) -> str | None:
        """What the imported files say about `key`, None if nothing."""
        return next((fact.value for fact in self.facts if fact.key == key), None)
