"""Step times foretold from neighbouring cells: how far a grid explains itself, and what does not fit.

A cell is read off twice: between its neighbours in batch size, and between those in K. Where the two agree, and the
cells they rest on fit in as well, the reading is claimed to hold. On the edges of a grid there is one reading, and the
cost law may second it, where it holds and the time changes little. Everywhere else only a measurement tells.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dsd_tune.model.cost import CostLaw, smooth_law
from dsd_tune.model.sampled import Array
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import HeldOut

AGREES = 0.06
"""Readings in both directions this close (as a log ratio) confirm each other."""

STEADY = 0.3
"""Cells this close (as a log ratio) leave little room for a jump between them: one reading and the law are enough."""

DOUBTFUL = 0.15
"""A cell this far (as a log ratio) from every reading of it foretells nothing."""

OUTLIER = 0.25
"""A cell this far, and on the same side, from what its row and its column both say is an outlier."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One cell as its neighbours tell it, a log step time, and the cells that told it."""

    log_step: float
    told_by: frozenset[tuple[int, int]]


class LogSteps:
    """Log step times of cells (batch size, K), to be looked up along either axis."""

    def __init__(self, values: Mapping[tuple[int, int], float]) -> None:
        self.values = values
        self.at_size: dict[int, dict[int, float]] = defaultdict(dict)
        self.at_k: dict[int, dict[int, float]] = defaultdict(dict)
        for (batch_size, k), value in sorted(values.items()):
            self.at_size[batch_size][k] = value
            self.at_k[k][batch_size] = value

    @classmethod
    def measured(cls, batch_sizes: tuple[int, ...], ks: tuple[int, ...], log_step: Array) -> LogSteps:
        """The cells that are known of an array of shape (batch sizes, Ks)."""
        cells = {(b, k): float(log_step[i, j]) for i, b in enumerate(batch_sizes) for j, k in enumerate(ks)}
        return cls({cell: value for cell, value in cells.items() if np.isfinite(value)})

    def law(self) -> CostLaw | None:
        """The cost law that these cells follow; None where none is smooth enough."""
        cells = [_in_table(cell) for cell in self.values]
        return smooth_law(cells, np.exp(list(self.values.values())))


def held_out(steps: LogSteps) -> HeldOut:
    """Every second cell foretold from the others, in turn."""
    order = sorted(steps.values)
    errors: list[float] = []
    flagged = []
    for fold in (0, 1):
        shown = LogSteps({cell: steps.values[cell] for cell in order[1 - fold :: 2]})
        law = shown.law()
        for cell in order[fold::2]:
            told = foretell(shown, cell, law)
            if told is None:
                flagged.append(cell)
            else:
                errors.append(abs(float(np.expm1(told - steps.values[cell]))))
    median, high = map(float, np.quantile(errors, [0.5, 0.9])) if errors else (None, None)
    return HeldOut(len(errors), median, high, tuple(sorted(flagged)))


def foretell(shown: LogSteps, cell: tuple[int, int], law: CostLaw | None = None) -> float | None:
    """Log step time of a cell that is not among those shown; None where no claim is made.

    `law` is what the cells shown follow, None if they follow none.
    """
    readings = _readings(shown, cell)
    values = [reading.log_step for reading in readings]
    voices = list(values)
    if law and len(readings) == 1 and _is_steady(shown, readings[0]):
        voices.append(float(np.log(law.step_s([_in_table(cell)])[0])))
    if len(voices) < 2 or max(voices) - min(voices) > AGREES:
        return None
    if any(_is_doubtful(shown, other) for reading in readings for other in reading.told_by):
        return None
    return float(np.mean(values))


def outliers(steps: LogSteps) -> tuple[tuple[int, int, float], ...]:
    """Cells that contradict both their row and their column: batch size, K, and how many times too long a step is."""
    found = []
    for cell, value in sorted(steps.values.items()):
        excess = [value - reading.log_step for reading in _readings(steps, cell)]
        if len(excess) == 2 and (min(excess) > OUTLIER or max(excess) < -OUTLIER):
            found.append((*cell, float(np.exp(np.mean(excess)))))
    return tuple(found)


def _is_steady(shown: LogSteps, reading: Reading) -> bool:
    times = [shown.values[cell] for cell in reading.told_by]
    return max(times) - min(times) <= STEADY


def _in_table(cell: tuple[int, int]) -> Cell:
    batch_size, k = cell
    return Cell(Arm.DSD, batch_size, k)


def _is_doubtful(shown: LogSteps, cell: tuple[int, int]) -> bool:
    away = [abs(reading.log_step - shown.values[cell]) for reading in _readings(shown, cell)]
    return bool(away) and min(away) > DOUBTFUL


def _readings(shown: LogSteps, cell: tuple[int, int]) -> list[Reading]:
    """Between neighbours in batch size and between those in K, where both sides are there.

    Over K time grows linearly. Over batch size a dense model's does, and that of a mixture of experts as a power, so
    the mean of both is read.
    """
    batch_size, k = cell
    readings = []
    if in_size := _between(shown.at_k[k], batch_size):
        (low, before), (high, after) = in_size
        share = np.log(batch_size / low) / np.log(high / low)
        power = before + share * (after - before)
        linear = _mean_time(before, after, (batch_size - low) / (high - low))
        readings.append(Reading(float(power + linear) / 2, frozenset({(low, k), (high, k)})))
    if in_k := _between(shown.at_size[batch_size], k):
        (low, before), (high, after) = in_k
        told_by = frozenset({(batch_size, low), (batch_size, high)})
        readings.append(Reading(_mean_time(before, after, (k - low) / (high - low)), told_by))
    return readings


def _mean_time(before: float, after: float, share: float) -> float:
    """Log of the time at `share` of the way from one log time to another."""
    return float(np.log((1 - share) * np.exp(before) + share * np.exp(after)))


def _between(line: Mapping[int, float], at: int) -> tuple[tuple[int, float], tuple[int, float]] | None:
    """The next entry on either side of `at`, itself left out; the line's entries rise."""
    places = list(line)
    below, above = bisect_left(places, at), bisect_right(places, at)
    if not below or above == len(places):
        return None
    low, high = places[below - 1], places[above]
    return (low, line[low]), (high, line[high])
