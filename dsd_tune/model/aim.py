"""What a decision is for: the quantity to save, the batch sizes that count, and what is known of the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.weights import Weights, every_doubling, from_histogram, up_to_peak
from dsd_tune.records.objective import Objective

MISS = 10.0
"""A token later than the objective of latency counts as this many in time: worth avoiding at almost any price."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What is aimed at, with what is known of traffic and engine.

    `slo_s` asks for goodput: tokens within that TPOT. `histogram` holds pairs of batch size and weight, `peak` is the
    largest batch size that happens. `capture_limit` is vLLM's max_cudagraph_capture_size, in tokens.
    """

    objective: Objective = Objective.TPOT
    slo_s: float | None = None
    histogram: tuple[tuple[int, float], ...] = ()
    peak: int | None = None
    capture_limit: int | None = None

    def __post_init__(self) -> None:
        if self.histogram and self.peak:
            raise ValueError("a histogram has its own peak")
        if self.slo_s is not None and self.slo_s <= 0:
            raise ValueError(f"a TPOT to keep within must be positive, got {self.slo_s}")

    @property
    def said(self) -> str:
        """The objective in words."""
        if self.slo_s is not None:
            return f"goodput: tokens within a TPOT of {self.slo_s * 1e3:g} ms; a later one counts as {MISS:g} in time"
        return "throughput: every token counts alike" if self.objective is Objective.THROUGHPUT else "TPOT"

    @property
    def quantity(self) -> str:
        """What is saved, in a word."""
        return "TPOT" if self.slo_s is None else "TPOT (with what lateness costs)"

    def cost(self, log_tpot: Sampled) -> Sampled:
        """Log of what a token costs, in the shape given."""
        if self.slo_s is None:
            return log_tpot
        limit, extra = np.log(self.slo_s), np.log(MISS)
        return log_tpot.map(lambda values: np.where(values > limit, values + extra, values))

    def require_within_reach(self, *log_tpots: Sampled) -> None:
        """That some TPOT keeps the objective of latency: where every token is late, that ranks nothing.

        Raises:
            UsageError: none does.
        """
        fastest_s = float(np.exp(np.fmin.reduce(np.concatenate([line.point.ravel() for line in log_tpots]))))
        if self.slo_s is not None and fastest_s > self.slo_s:
            raise UsageError(
                f"nothing measured keeps a TPOT of {self.slo_s * 1e3:g} ms: the fastest has {fastest_s * 1e3:.3g} ms.",
                "Give a longer one.",
            )

    def weights(self, max_num_seqs: int, log_tpot: Array) -> Weights:
        """Weights of batch sizes; `log_tpot` has shape (max_num_seqs,) and tells how many tokens each yields.

        In the same time a larger batch yields more tokens, so where tokens count it weighs more.
        """
        if self.histogram:
            by_time = from_histogram(max_num_seqs, self.histogram)
        elif self.peak:
            by_time = up_to_peak(max_num_seqs, self.peak)
        else:
            by_time = every_doubling(max_num_seqs)
        if self.objective is Objective.TPOT and self.slo_s is None:
            return by_time
        rate = np.arange(1, max_num_seqs + 1) / np.exp(log_tpot)
        shares = by_time.shares * np.where(np.isfinite(rate), rate, 0.0)
        return Weights(shares / shares.sum(), by_time.said, by_time.usual) if shares.any() else by_time
