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

from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.records.measurement import Block, Cell

UNKNOWN_START_SD = 0.08
"""Assumed between-start deviation when no arm was started twice: twins of one engine were seen 15 % apart."""

UNKNOWN_BLOCK_SD = 0.05
"""Assumed scatter of blocks when no cell was measured twice in a start."""

ASSUMED_DF = 30
"""Degrees of freedom of an assumed deviation: it is generous already, so its tails need not be."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of log step time, each with its degrees of freedom."""

    between_starts: float
    between_df: int
    within_start: float
    within_df: int


Times = dict[Cell, dict[int, tuple[float, ...]]]
"""Log step times of each cell: for each engine start, the values of its blocks."""


def collect(blocks: Iterable[Block]) -> Times:
    """Sort blocks into cells and starts."""
    grouped: dict[Cell, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        grouped[block.cell][block.start].append(float(np.log(np.median(block.step_s))))
    return {cell: {start: tuple(values) for start, values in starts.items()} for cell, starts in grouped.items()}


@dataclass(frozen=True, slots=True)
class _Layout:
    """One arm's n blocks: their values, shape (n,), and which cell and which start each belongs to, as 0 and 1."""

    values: Array
    of_cell: Array
    of_start: Array


def _layout(times: Times, cells: Sequence[Cell]) -> _Layout:
    """Columns of `of_cell` follow `cells`."""
    rows = [(v, i, start) for i, cell in enumerate(cells) for start, vs in times[cell].items() for v in vs]
    starts = np.array([start for _, _, start in rows])
    return _Layout(
        values=np.array([value for value, _, _ in rows]),
        of_cell=np.eye(len(cells))[[i for _, i, _ in rows]],
        of_start=(starts[:, None] == np.unique(starts)).astype(float),
    )


def estimate_noise(times: Times) -> Noise:
    """Pool both variance components over the arms.

    Within each arm a block is its cell plus its start plus scatter, by least squares, so that starts which
    measured different cells (a resumed run) are told apart. What starts explain beyond cells is their variance
    (Henderson 1953, method 3); the scatter's small part in it is left there, on the safe side.
    """
    between = within = weight = 0.0
    between_df = within_df = 0
    for arm in {cell.arm for cell in times}:
        layout = _layout(times, [cell for cell in times if cell.arm is arm])
        deviations = _about_cells(layout, layout.values)
        starts = _about_cells(layout, layout.of_start)
        effects, _, rank, _ = np.linalg.lstsq(starts, deviations, rcond=1e-9)
        residuals = deviations - starts @ effects
        between += float(deviations @ deviations - residuals @ residuals)
        within += float(residuals @ residuals)
        weight += float(np.sum(starts**2))
        between_df += int(rank)
        within_df += len(deviations) - layout.of_cell.shape[1] - int(rank)
    luck = (float(np.sqrt(between / weight)), between_df) if between_df else (UNKNOWN_START_SD, ASSUMED_DF)
    scatter = (float(np.sqrt(within / within_df)), within_df) if within_df > 0 else (UNKNOWN_BLOCK_SD, ASSUMED_DF)
    return Noise(*luck, *scatter)


def _about_cells(layout: _Layout, columns: Array) -> Array:
    """What is left of `columns`, shape (n, ...), after each cell's mean."""
    means = (layout.of_cell.T @ columns) / layout.of_cell.sum(0).reshape(-1, *[1] * (columns.ndim - 1))
    return np.asarray(columns - layout.of_cell @ means)


def draw_arm(times: Times, noise: Noise, grid: Sequence[Sequence[Cell]], rng: np.random.Generator) -> Sampled:
    """Log step times of one arm's cells, shape (batch sizes, Ks); nan where a cell was not measured.

    Generalised least squares with the start as a random effect: in a balanced run the mean over blocks, in any
    other the best use of cells that shared a start. Each start has one draw of its effect, common to all its
    cells (Student t: few starts give wide tails), each block its own of the scatter.
    """
    flat = [cell for row in grid for cell in row]
    shape = (len(grid), len(grid[0]))
    known = [i for i, cell in enumerate(flat) if cell in times]
    point, draws = np.full(len(flat), np.nan), np.full((DRAWS, len(flat)), np.nan)
    if known:
        layout = _layout(times, [flat[i] for i in known])
        reader = _reader(layout, noise)
        shared = _student(rng, noise.between_df, layout.of_start.shape[1]) * noise.between_starts
        own = _student(rng, noise.within_df, len(layout.values)) * noise.within_start
        point[known] = reader @ layout.values
        # Two starts leave tails so wide that a time would overflow; far beyond any decision, they are cut.
        draws[:, known] = point[known] + np.clip((shared @ layout.of_start.T + own) @ reader.T, -50, 50)
    return Sampled(point.reshape(shape), draws.reshape(DRAWS, *shape))


def _reader(layout: _Layout, noise: Noise) -> Array:
    """The matrix that reads cells off blocks, shape (cells, n)."""
    # Without any scatter the covariance is singular; a part in a million leaves it what it is.
    scatter = max(noise.within_start, 1e-6) ** 2
    covariance = noise.between_starts**2 * layout.of_start @ layout.of_start.T + scatter * np.eye(len(layout.values))
    weighted = np.linalg.solve(covariance, layout.of_cell).T
    return np.asarray(np.linalg.solve(weighted @ layout.of_cell, weighted))


def _student(rng: np.random.Generator, df: int, width: int) -> Array:
    """Draws of a multivariate Student t, shape (DRAWS, width): one uncertain scale for all that share it."""
    scale = np.sqrt(df / rng.chisquare(df, (DRAWS, 1)))
    return np.asarray(rng.standard_normal((DRAWS, width)) * scale)
