"""What a step costs in a simulated engine: the truth that a tuner's answer is compared with."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from dsd_tune.records.measurement import Arm, Cell


@dataclass(frozen=True, slots=True)
class CostLaw:
    """Step time of a cell, in seconds: `overhead + graphs * verify(pad(B*(K+1))) + cache(B) + draft(B, K) + tax(B)`.

    `verify` is `verify_s` up to `critical_tokens`, then rises by `slope_s` a token. `capture_sizes` are what
    tokens are padded to; above the largest they are not. `cliff_s` is added above `cliff_tokens`. A mixture of
    experts adds `experts_s` times the share of experts that the step's tokens reach, each token reaching
    `expert_share` of them. The table's engine pays a tax a step and a request, at K=0 too. A token of a
    request's context costs `kv_s` to read, once for all of its K+1 tokens. `graphs_dsd` and `graphs_static` are what
    verification costs under those arms' CUDA graphs, relative to `no_spec`.
    """

    overhead_s: float = 0.004
    verify_s: float = 0.016
    critical_tokens: int = 32
    slope_s: float = 0.0004
    capture_sizes: tuple[int, ...] = ()
    draft_s: float = 0.0015
    draft_request_s: float = 0.00002
    tax_s: float = 0.0004
    tax_request_s: float = 0.00006
    graphs_dsd: float = 1.0
    graphs_static: float = 1.0
    cliff_tokens: int = 0
    cliff_s: float = 0.0
    experts_s: float = 0.0
    expert_share: float = 0.1
    kv_s: float = 0.0

    def __post_init__(self) -> None:
        if list(self.capture_sizes) != sorted(set(self.capture_sizes)):
            raise ValueError(f"capture sizes must rise and differ, got {self.capture_sizes}")
        if self.verify_s <= 0 or not 0 <= self.expert_share <= 1:
            raise ValueError("verification takes time, and a share lies between 0 and 1")

    def step_s(self, cell: Cell, context: int = 0) -> float:
        """Step time of a cell without noise, in seconds, with `context` tokens in the cache of each request."""
        verify_s = self.verify_tokens_s(self.padded(cell.batch_size * (cell.k + 1)))
        draft_s = cell.k * (self.draft_s + cell.batch_size * self.draft_request_s)
        cache_s = self.kv_s * cell.batch_size * context
        if cell.arm is not Arm.DSD:
            graphs = self.graphs_static if cell.arm is Arm.STATIC else 1.0
            return self.overhead_s + graphs * verify_s + cache_s + draft_s
        tax_s = self.tax_s + cell.batch_size * self.tax_request_s
        return self.overhead_s + self.graphs_dsd * verify_s + cache_s + draft_s + tax_s

    def verify_tokens_s(self, tokens: int) -> float:
        """Seconds to verify `tokens` tokens in flight, padding included."""
        past_critical = max(0, tokens - self.critical_tokens)
        cliff_s = self.cliff_s if tokens > self.cliff_tokens else 0.0
        experts = 1 - (1 - self.expert_share) ** tokens
        return self.verify_s + self.slope_s * past_critical + cliff_s + self.experts_s * experts

    def padded(self, tokens: int) -> int:
        """Tokens after padding to the next capture size."""
        at = bisect_left(self.capture_sizes, tokens)
        return self.capture_sizes[at] if at < len(self.capture_sizes) else tokens
