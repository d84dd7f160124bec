"""Time a few cells of a real engine, to know how long a sweep will take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsd_tune.engines.protocol import Engine, RunningEngine
    from dsd_tune.outlay import Pace
    from dsd_tune.records.measurement import Cell
    from dsd_tune.records.run import SweepRequest


def probed(engine: Engine, request: SweepRequest) -> Pace:
    """One start of the table's engine, timed at the corners of the grid; cells in between are read off evenly."""
    from dsd_tune.outlay import Pace
    from dsd_tune.records.measurement import Arm

    least, most, k_max = request.batch_sizes[0], request.batch_sizes[-1], request.k_max
    began = time.monotonic()
    running = engine.start(Arm.DSD)
    try:
        start_s = time.monotonic() - began
        filled_s = _block_s(running, request, most, k_max)
        corners = {(b, k): _block_s(running, request, b, k) for b in (most, least) for k in (k_max, 0)}
    finally:
        running.close()

    def block_s(cell: Cell) -> float:
        across = (cell.batch_size - least) / max(1, most - least)
        rows = [corners[b, 0] + cell.k / k_max * (corners[b, k_max] - corners[b, 0]) for b in (least, most)]
        return rows[0] + across * (rows[1] - rows[0])

    return Pace(block_s, start_s, max(0.0, filled_s - corners[most, k_max]))


def _block_s(running: RunningEngine, request: SweepRequest, batch_size: int, k: int) -> float:
    began = time.monotonic()
    running.measure(batch_size, k, condition=request.conditions[0], steps=request.steps, settle=request.settle)
    return time.monotonic() - began
