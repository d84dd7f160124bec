"""What a sweep would cost, for the terminal: 80 columns, no colour needed."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from dsd_tune.outlay import Outlay
from dsd_tune.records.run import SweepRequest


def render(request: SweepRequest, always: Outlay, at_most: Outlay, budget_s: float | None) -> RenderableType:
    """Both parts of a sweep side by side, and what a budget is enough for."""
    grid = Grid.grid(padding=(0, 2))
    for column in ("", "cells", "visits", "blocks", "engine starts", "time"):
        grid.add_column(justify="right" if column else "left", no_wrap=True)
    grid.add_row("", "cells", "visits", "blocks", "engine starts", "time")
    grid.add_row("anchors", *_numbers(always))
    grid.add_row("between them, at most", *_numbers(at_most))
    sizes = ", ".join(map(str, request.batch_sizes))
    said = f"Batch sizes {sizes}; K 0 to {request.k_max}; no speculation beside them; {request.starts} starts an arm."
    return Group(Text(said), Text(), grid, Text(), Text(_advice(always, at_most, budget_s)))


def _numbers(part: Outlay) -> tuple[str, ...]:
    counts = (part.cells, part.visits, part.blocks, part.starts)
    return (*map(str, counts), "unknown" if part.seconds is None else _clock(part.seconds))


def _advice(always: Outlay, at_most: Outlay, budget_s: float | None) -> str:
    if always.seconds is None:
        return "Times are unknown: --probe times this engine in about 20 seconds, --profile takes an earlier one's."
    apart = "" if always.starting_s is not None else " Engine starts and prefills come on top: no profile knows them."
    if budget_s is None:
        return f"A sweep ends when its table is sure enough, or nothing is left to look into.{apart}"
    left = budget_s - always.seconds
    if left < 0:
        return (
            f"{_clock(budget_s)} is not enough for the anchors: give more, or fewer --batch-sizes, --starts or a "
            f"smaller --max-k.{apart}"
        )
    share = min(1.0, left / at_most.seconds) if at_most.seconds else 1.0
    return f"{_clock(budget_s)} is enough for the anchors and {share:.0%} of what may be looked into after.{apart}"


def _clock(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
