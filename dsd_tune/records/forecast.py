"""What a server would have done with some traffic, under each choice of K."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.records.comparison import Change
from dsd_tune.records.interval import Interval


@dataclass(frozen=True, slots=True)
class Spread:
    """Over requests: mean, median and high percentiles. `p99` is None where requests are too few for it."""

    mean: Interval
    p50: Interval
    p90: Interval
    p99: Interval | None


@dataclass(frozen=True, slots=True)
class Against:
    """What one choice makes of another's TPOT, completion time (means over requests) and time until all is done."""

    tpot: Change | None
    completion: Change
    finished: Change


@dataclass(frozen=True, slots=True)
class Course:
    """What one server was at from 0 s on, as means over equal bins of `bin_s` seconds.

    An idle server counts as batch size 0. `k` is the mean over busy time, None in a bin without any.
    """

    bin_s: float
    batch_size: tuple[float, ...]
    k: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if self.bin_s <= 0 or not len(self.batch_size) == len(self.k) > 0:
            raise ValueError("a course has a batch size and a K for each bin of some width")


@dataclass(frozen=True, slots=True)
class ChoiceForecast:
    """One choice of K. Times are seconds; `tpot_s` is None where no request has a second token.

    `first_token_s` and `completion_s` count from a request's arrival, waiting for a place included. `finished_s` is
    from the first arrival to the last token. `seconds_at[b - 1]` is the time spent at batch size b, `seconds_per_k`
    that at each K. `course` is what it was at over time. `against_no_spec` is None for that choice itself, and where
    it is not known.
    """

    name: str
    max_num_seqs: int
    tpot_s: Spread | None
    first_token_s: Spread
    completion_s: Spread
    finished_s: Interval
    output_tokens_per_s: Interval
    seconds_at: tuple[float, ...]
    seconds_per_k: tuple[tuple[int, float], ...]
    course: Course
    against_no_spec: Against | None

    @property
    def full_share(self) -> float:
        """Share of the busy time in which nobody else could have been admitted."""
        return self.seconds_at[-1] / sum(self.seconds_at)


@dataclass(frozen=True, slots=True)
class Forecast:
    """All choices on the same requests. `rests_on` is how many of them the intervals were computed from."""

    requests: int
    output_tokens: int
    prefill_tokens_per_s: float
    rests_on: int
    choices: tuple[ChoiceForecast, ...]
    table_against_fixed: Against | None
    best_fixed: str | None
    remarks: tuple[str, ...]
