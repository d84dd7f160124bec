"""Step times of cells from blocks, with three sources of noise kept apart.

A block's value is the log of its median step time. Between engine starts the whole engine is faster or slower
(the start is a random effect, common to all its cells). The machine drifts, and a visit, which is all blocks taken
in a row at one batch size, shares that. What is left scatters from block to block. So differences within a visit are
free of drift, differences between Ks of one engine free of its luck too, and absolute times of neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.records.measurement import Block, Cell

UNKNOWN_START_SD = 0.08
"""Assumed deviation between starts when no arm was started twice: twins of one engine were seen 15 % apart."""

UNKNOWN_DRIFT_SD = 0.1
"""Assumed deviation between visits when no batch size was visited twice."""

UNKNOWN_BLOCK_SD = 0.05
"""Assumed scatter of blocks when nothing was measured twice."""

ASSUMED_DF = 30
"""Degrees of freedom of an assumed deviation: it is generous already, so its tails need not be."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation of log step time and the degrees of freedom it was estimated with."""

    sd: float
    df: int


@dataclass(frozen=True, slots=True)
class Noise:
    """The three sources: luck of a start, drift of the machine between visits, scatter of blocks."""

    starts: Spread
    drift: Spread
    blocks: Spread


@dataclass(frozen=True, slots=True)
class Timings:
    """n blocks: log step times, shape (n,), and which cell, start and visit each belongs to, as 0 and 1."""

    cells: tuple[Cell, ...]
    values: Array
    of_cell: Array
    of_start: Array
    of_visit: Array


def collect(blocks: Iterable[Block]) -> Timings:
    """Lay out blocks, which come in the order in which they were taken."""
    rows = tuple(blocks)
    cells = sorted({block.cell for block in rows})
    return Timings(
        cells=tuple(cells),
        values=np.array([np.log(np.median(block.step_s)) for block in rows]),
        of_cell=_membership([cells.index(block.cell) for block in rows]),
        of_start=_membership([block.start for block in rows]),
        of_visit=_membership(_visits(rows)),
    )


def _visits(blocks: Sequence[Block]) -> list[int]:
    """The number of each block's visit. What later engines add to it, after the first have ended, is another visit."""
    ends = {block.start: place for place, block in enumerate(blocks)}
    begins = {block.start: place for place, block in reversed(list(enumerate(blocks)))}
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    numbers = []
    for place, block in enumerate(blocks):
        visit = (block.phase, block.condition, block.stop, block.repetition)
        number, lives_until = known.get(visit, (place, -1))
        number = number if begins[block.start] <= lives_until else place
        known[visit] = (number, max(lives_until, ends[block.start]))
        numbers.append(number)
    return numbers


def _membership(labels: Sequence[int]) -> Array:
    """Shape (rows, distinct labels): 1 where the row has the label."""
    column = np.asarray(labels)[:, None]
    return np.asarray(column == np.unique(column), dtype=np.float64)


def estimate_noise(timings: Timings) -> Noise:
    """Each source from what it explains beyond cells and the other sources (Henderson 1953, method 3).

    Drift is left in the starts where each has visits of its own, since it cannot be told from luck there.
    """
    cell, start, visit = timings.of_cell, timings.of_start, timings.of_visit
    everything = np.hstack([cell, start, visit])
    rest = _beyond(everything, timings.values)
    df = len(rest) - int(np.linalg.matrix_rank(everything))
    blocks = Spread(float(np.sqrt(rest @ rest / df)), df) if df > 0 else Spread(UNKNOWN_BLOCK_SD, ASSUMED_DF)
    scatter = blocks.sd**2 if df > 0 else 0.0
    return Noise(
        starts=_explained(timings.values, start, np.hstack([cell, visit]), scatter)
        or _explained(timings.values, start, cell, scatter)
        or Spread(UNKNOWN_START_SD, ASSUMED_DF),
        drift=_explained(timings.values, visit, np.hstack([cell, start]), scatter)
        or Spread(UNKNOWN_DRIFT_SD, ASSUMED_DF),
        blocks=blocks,
    )


def _explained(values: Array, effect: Array, given: Array, scatter: float) -> Spread | None:
    """Deviation of the levels of `effect`, beside blocks that scatter by a variance of `scatter`.

    None where `given` leaves nothing to tell it by.
    """
    columns = _beyond(given, effect)
    weight = float(np.sum(columns**2))
    if weight < 1e-9:
        return None
    left = _beyond(given, values)
    coefficients, _, rank, _ = np.linalg.lstsq(columns, left, rcond=1e-9)
    fitted = columns @ coefficients
    beyond_scatter = max(0.0, float(fitted @ fitted) - int(rank) * scatter)
    return Spread(float(np.sqrt(beyond_scatter / weight)), int(rank))


def _beyond(given: Array, columns: Array) -> Array:
    """What is left of `columns`, shape (n, ...), after least squares on `given`."""
    coefficients, _, _, _ = np.linalg.lstsq(given, columns, rcond=1e-9)
    return np.asarray(columns - given @ coefficients)


@dataclass(frozen=True, slots=True)
class CellTimes:
    """Joint estimates of the log step time of every cell measured."""

    cells: tuple[Cell, ...]
    log_step: Sampled

    def grid(self, rows: Sequence[Sequence[Cell]]) -> Sampled:
        """Pick cells into a grid, shape (rows, columns); nan where a cell was not measured."""
        place = {cell: i for i, cell in enumerate(self.cells)}
        wanted = np.array([[place.get(cell, len(place)) for cell in row] for row in rows])
        point = np.append(self.log_step.point, np.nan)
        draws = np.append(self.log_step.draws, np.full((DRAWS, 1), np.nan), axis=1)
        return Sampled(point, draws)[wanted]


def draw_cells(timings: Timings, noise: Noise, rng: np.random.Generator) -> CellTimes:
    """Generalised least squares with start and visit as random effects.

    In a balanced run an estimate is the mean over blocks, in any other the best use of cells that shared a start or
    a visit. Each start and visit has one draw of its effect, common to all its blocks (Student t: few starts give
    wide tails), each block its own of the scatter.
    """
    reader = _reader(timings, noise)
    point = reader @ timings.values
    errors = (
        _student(rng, noise.starts, timings.of_start.shape[1]) @ timings.of_start.T
        + _student(rng, noise.drift, timings.of_visit.shape[1]) @ timings.of_visit.T
        + _student(rng, noise.blocks, len(timings.values))
    )
    # Two starts leave tails so wide that a time would overflow; far beyond any decision, they are cut.
    return CellTimes(timings.cells, Sampled(point, point + np.clip(errors @ reader.T, -50, 50)))


def _reader(timings: Timings, noise: Noise) -> Array:
    """The matrix that reads cells off blocks, shape (cells, n)."""
    # Without any scatter the covariance is singular; a part in a million leaves it what it is.
    scatter = max(noise.blocks.sd, 1e-6) ** 2
    covariance = (
        noise.starts.sd**2 * timings.of_start @ timings.of_start.T
        + noise.drift.sd**2 * timings.of_visit @ timings.of_visit.T
        + scatter * np.eye(len(timings.values))
    )
    weighted = np.linalg.solve(covariance, timings.of_cell).T
    return np.asarray(np.linalg.solve(weighted @ timings.of_cell, weighted))


def _student(rng: np.random.Generator, spread: Spread, width: int) -> Array:
    """Draws of a multivariate Student t, shape (DRAWS, width): one uncertain scale for all that share it."""
    scale = np.sqrt(spread.df / rng.chisquare(spread.df, (DRAWS, 1)))
    return np.asarray(rng.standard_normal((DRAWS, width)) * scale * spread.sd)
