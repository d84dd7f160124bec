"""One result of a foreign file, in our units, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass

from dsd_tune.importers.counters import Counters
from dsd_tune.records.measurement import Arm


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file says of one cell; None where it is silent. Times are seconds, rates fractions.

    `offered` is the client's concurrency or the file's batch size, `running` what the server really ran.
    `output_tok_s` are output tokens a second of the whole server.
    """

    source: str
    offered: int | None
    running: int | None = None
    arm: Arm | None = None
    k: int | None = None
    tpot_s: float | None = None
    step_s: float | None = None
    output_tok_s: float | None = None
    has_itl: bool = False
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    rates: tuple[float, ...] = ()
    counters: Counters | None = None
    method: str | None = None
    dataset: str | None = None
