"""What the tuner needs from an engine, and nothing else: describe, start, measure, close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment
from dsd_tune.records.machine import MachineState
from dsd_tune.records.measurement import Arm, PromptCounts


@dataclass(frozen=True, slots=True)
class Measured:
    """One block's raw data as the engine saw it; fields as in `records.measurement.Block`.

    `prompts` is empty where drafts say nothing about the drafter: with dummy weights, or stated acceptance.
    """

    step_s: tuple[float, ...]
    steps_run: int
    context: tuple[int, int]
    prompts: tuple[PromptCounts, ...]
    machine: MachineState | None = None


class RunningEngine(Protocol):
    """One engine start: a process with weights loaded, in one arm, for as long as it lives."""

    def measure(self, batch_size: int, k: int, *, condition: Condition, steps: int, settle: int) -> Measured:
        """Hold exactly `batch_size` decoding requests at `k` and time `steps` steps after dropping `settle`.

        Requests of another condition, whose text has ended, or which would outgrow the context are replaced first, so
        that every block decodes real text. Of the engine's contexts the smallest has a window from the prompts
        themselves up to it, any other from half of it. Steps that break the rules (another batch size, a prefill,
        another number of drafts) are run but not kept; at least one kept step or an error.

        Raises:
            EngineFailed: the engine died, ran out of memory or kept no step. The engine must be closed.
        """
        ...

    def close(self) -> None:
        """End the engine and free what it holds. Safe to call twice and after a failure."""
        ...


class Engine(Protocol):
    """A way to start engines for one model, drafter and set of flags."""

    @property
    def alive_together(self) -> int:
        """How many starts may live at once without disturbing one another: idle engines must cost nothing."""
        ...

    def describe(self) -> Environment:
        """The fingerprint, without loading weights.

        Raises:
            EnvironmentUnfit: this vLLM, model and drafter cannot run together; says why.
        """
        ...

    def start(self, arm: Arm, fixed_k: int | None = None) -> RunningEngine:
        """Start one engine. `fixed_k` belongs to the arm `static` and to no other.

        Raises:
            EngineFailed: it did not come up; the message holds the engine's own last words.
        """
        ...
