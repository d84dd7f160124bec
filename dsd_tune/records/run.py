"""What was asked of a sweep and where it ran: the head of a run directory."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """One sweep as the user asked for it, every default made explicit.

    `speculative_config` is the user's JSON text without a table. `contexts` are longest sequences, in tokens; every
    context is measured at every temperature. A block is `steps` kept steps after `settle` dropped ones; every cell
    gets one block in each of `rounds` rounds of each of `starts` engine starts. `load_format` is vLLM's own.
    `synthetic_acceptance` is the share of steps in which each position is to be accepted, whatever is drafted.
    """

    model: str
    speculative_config: str
    batch_sizes: tuple[int, ...]
    ks: tuple[int, ...]
    max_num_seqs: int
    contexts: tuple[int, ...]
    starts: int
    rounds: int
    steps: int
    settle: int
    temperatures: tuple[float, ...]
    seed: int
    engine_flags: tuple[str, ...]
    load_format: str = "auto"
    synthetic_acceptance: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.batch_sizes or any(b < 1 for b in self.batch_sizes):
            raise ValueError("batch sizes must be 1 or more, and at least one is needed")
        if list(self.batch_sizes) != sorted(set(self.batch_sizes)):
            raise ValueError("batch sizes must rise and differ")
        if self.batch_sizes[-1] > self.max_num_seqs:
            raise ValueError(f"batch size {self.batch_sizes[-1]} exceeds max_num_seqs {self.max_num_seqs}")
        if list(self.ks) != sorted(set(self.ks)) or not self.ks or self.ks[0] != 0 or self.ks[-1] < 1:
            raise ValueError("K must start at 0, rise, and reach at least 1")
        if not self.conditions or list(self.conditions) != sorted(set(self.conditions)):
            raise ValueError("contexts and temperatures must rise and differ, and at least one of each is needed")
        if min(self.starts, self.rounds, self.steps) < 1 or min(self.settle, self.seed) < 0:
            raise ValueError("starts, rounds and steps must be 1 or more, settle and seed 0 or more")
        rates = (1.0, *self.synthetic_acceptance, 0.0)
        if self.synthetic_acceptance and (len(rates) != self.k_max + 2 or list(rates) != sorted(rates, reverse=True)):
            raise ValueError(f"stated acceptance needs {self.k_max} shares of steps, none above the one before")

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every context at every temperature."""
        return tuple(Condition(context, t) for context in self.contexts for t in self.temperatures)

    @property
    def k_max(self) -> int:
        """The largest K tried: `num_speculative_tokens` of the sweep's own engines."""
        return self.ks[-1]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A run directory's identity: written once before the first block, compared on every resume."""

    request: SweepRequest
    environment: Environment
    created_at_s: float
    dsd_tune_version: str
