"""Step times of cells from blocks, with the two sources of noise kept apart.

A block's value is the log of its median step time. Between engine starts the whole engine is faster or slower
(the start is a random effect, common to all its cells); within a start, blocks of one cell scatter. Ks of one
engine share their start, so their differences are free of the first source; differences between arms are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dsd_tune.model.sampled import DRAWS, Sampled
from dsd_tune.records.measurement import Arm, Block, Cell

UNKNOWN_START_SD = 0.08
"""Assumed between-start deviation when no arm was started twice: twins of one engine were seen 15 % apart."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of log step time, each with its degrees of freedom."""

    between_starts: float
    between_df: int
    within_start: float
    within_df: int


@dataclass(frozen=True, slots=True)
class CellTimes:
    """Log step times of one cell: for each engine start, the values of its blocks."""

    by_start: dict[int, tuple[float, ...]]

    @property
    def mean(self) -> float:
        """Mean over starts of the means over blocks, so that a start counts once however long it ran."""
        return float(np.mean([np.mean(values) for values in self.by_start.values()]))

    @property
    def blocks(self) -> int:
        """Number of blocks over all starts."""
        return sum(len(values) for values in self.by_start.values())


def collect(blocks: Iterable[Block]) -> dict[Cell, CellTimes]:
    """Sort blocks into cells and starts."""
    grouped: dict[Cell, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        grouped[block.cell][block.start].append(float(np.log(np.median(block.step_s))))
    return {
        cell: CellTimes({start: tuple(values) for start, values in starts.items()}) for cell, starts in grouped.items()
    }


def estimate_noise(cells: dict[Cell, CellTimes]) -> Noise:
    """Pool both variance components over the whole run.

    A start's offset is its mean deviation from its cells' means, over all cells it measured. What is left of a
    block after its cell's mean and its start's offset is the scatter within a start.
    """
    offsets = _offsets(cells)
    between = [value for starts in offsets.values() for value in starts.values()]
    between_df = sum(len(starts) - 1 for starts in offsets.values() if len(starts) > 1)
    residuals = [
        value - times.mean - offsets[cell.arm][start]
        for cell, times in cells.items()
        for start, values in times.by_start.items()
        for value in values
    ]
    within_df = max(1, len(residuals) - len(cells) - between_df)
    within = float(np.sqrt(np.sum(np.square(residuals)) / within_df))
    if between_df == 0:
        return Noise(UNKNOWN_START_SD, 1, within, within_df)
    return Noise(float(np.sqrt(np.sum(np.square(between)) / between_df)), between_df, within, within_df)


def _offsets(cells: dict[Cell, CellTimes]) -> dict[Arm, dict[int, float]]:
    deviations: dict[Arm, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell, times in cells.items():
        for start, values in times.by_start.items():
            deviations[cell.arm][start].append(float(np.mean(values)) - times.mean)
    return {
        arm: {start: float(np.mean(values)) for start, values in starts.items()} for arm, starts in deviations.items()
    }


def draw_arm(
    cells: dict[Cell, CellTimes],
    noise: Noise,
    grid: Sequence[Sequence[Cell]],
    rng: np.random.Generator,
) -> Sampled:
    """Log step times of one arm's cells, shape (batch sizes, Ks); nan where a cell was not measured.

    All cells of the arm share one draw of the start effect (Student t: few starts give wide tails), each has
    its own draw of the scatter within.
    """
    times = [[cells.get(cell) for cell in row] for row in grid]
    point = np.array([[t.mean if t else np.nan for t in row] for row in times])
    within_se = np.array([[noise.within_start / np.sqrt(t.blocks) if t else np.nan for t in row] for row in times])
    starts = max((len(t.by_start) for row in times for t in row if t), default=1)
    shared = rng.standard_t(noise.between_df, DRAWS) * noise.between_starts / np.sqrt(starts)
    own = rng.standard_t(noise.within_df, (DRAWS, *point.shape)) * within_se
    return Sampled(point, point + shared[:, None, None] + own)
