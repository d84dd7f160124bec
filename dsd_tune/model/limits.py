"""Which comparison behind a verdict is the closest call, and what makes it uncertain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dsd_tune.model.surface import Surface
from dsd_tune.model.timing import Noise, Timings, uncertainty
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import Comparison, Decision, Limit, Source

TURNING_POINT = 0.01
"""Around this gain a verdict changes: less is not worth a deployment."""

Choice = Callable[[int], Cell]
"""The cell that a choice runs at a batch size."""


def limit(decision: Decision, surface: Surface, timings: Timings, noise: Noise) -> Limit | None:
    """None where nothing is compared, or nothing is uncertain."""
    calls = [call for call in _comparisons(decision, surface) if call[1].detectable > 0]
    if not calls:
        return None
    closest = min(calls, key=lambda call: abs(call[1].value - TURNING_POINT) / call[1].detectable)
    said, _, left, right = closest
    return Limit(said, _source(left, right, surface, timings, noise))


def _comparisons(decision: Decision, surface: Surface) -> Iterator[tuple[str, Comparison, Choice, Choice]]:
    def off(batch_size: int) -> Cell:
        return Cell(Arm.NO_SPEC, batch_size, 0)

    def fixed(batch_size: int) -> Cell:
        return Cell(Arm.DSD, batch_size, decision.fixed_k)

    if decision.fixed_gain:
        yield "the fixed K over no speculation", decision.fixed_gain, fixed, off
    table = decision.table
    if table is None:
        return

    def tabled(batch_size: int) -> Cell:
        return Cell(Arm.DSD, batch_size, table.k_at(batch_size))

    if decision.table_gain:
        yield "the table over no speculation", decision.table_gain, tabled, off
    if decision.table_over_fixed:
        # A fixed K in an engine of its own differs from the table's engine by the luck of starts, as no_spec does.
        other = off if decision.fixed_k in surface.static else fixed
        yield "the table over the fixed K", decision.table_over_fixed, tabled, other


def _source(left: Choice, right: Choice, surface: Surface, timings: Timings, noise: Noise) -> Source:
    """What contributes most to the mean difference of log TPOT over the batch sizes where both were measured."""
    pairs = [(left(b), right(b)) for b in surface.batch_sizes]
    pairs = [pair for pair in pairs if set(pair) <= set(timings.cells)]
    contrast = dict.fromkeys(timings.cells, 0.0)
    text = np.zeros(len(surface.log_tokens.draws))
    for better, worse in pairs:
        contrast[better] += 1 / len(pairs)
        contrast[worse] -= 1 / len(pairs)
        columns = [surface.ks.index(cell.k) for cell in (better, worse)]
        text += (surface.log_tokens.draws[:, columns] @ [1, -1]) / len(pairs)
    found = uncertainty(timings, noise, contrast) | {Source.TEXT: float(text.std())}
    return max(found, key=lambda source: found[source])
