"""Step times of cells from blocks, with four sources of noise kept apart.

A block's value is the log of its median step time. Between engine starts the whole engine is faster or slower
(the start is a random effect, common to all its cells). The machine drifts, and a visit, which is all blocks taken
in a row at one batch size, shares that; what slows the machine for seconds is shared by a round, which takes each cell
of a visit once. What is left scatters from block to block. So differences within a visit are free of drift and slow
rounds, differences between Ks of one engine free of its luck too, and absolute times of none of them.

A block that lies far from what its cell, start and round say weighs less, here and in the estimate of the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsd_tune.model.robust import Standing, standing
from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.records.measurement import Block, Cell
from dsd_tune.records.profile import Source

UNKNOWN_START_SD = 0.08
"""Assumed deviation between starts when no arm was started twice: twins of one engine were seen 15 % apart."""

UNKNOWN_DRIFT_SD = 0.1
"""Assumed deviation between visits when no batch size was visited twice."""

UNKNOWN_BLOCK_SD = 0.05
"""Assumed scatter of blocks when nothing was measured twice."""

ENOUGH_FREEDOM = 0.5
"""Degrees of freedom from which the scatter of one cell is told."""

_NOTHING_LEFT = 1e-6

ASSUMED_DF = 30
"""Degrees of freedom of an assumed deviation: it is generous already, so its tails need not be."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean square of log step time, its degrees of freedom, and the part of it that is another source's."""

    mean_square: float
    df: int
    others: float = 0.0

    @classmethod
    def assumed(cls, sd: float) -> Spread:
        """What nothing was measured of."""
        return cls(sd**2, ASSUMED_DF)

    @property
    def sd(self) -> float:
        """The standard deviation of this source alone; 0 where the others explain all there is."""
        return float(np.sqrt(max(0.0, self.mean_square - self.others)))

    def draw(self, rng: np.random.Generator) -> Array:
        """Deviations as uncertain as they are, shape (DRAWS, 1).

        A mean square is chi-square by its degrees of freedom, and the others' part is taken off each draw of it, so
        that a source which seems absent may yet be there (Weerahandi 1993).
        """
        squares = self.mean_square * self.df / rng.chisquare(self.df, (DRAWS, 1)) - self.others
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


@dataclass(frozen=True, slots=True)
class Noise:
    """Luck of a start, drift of the machine between visits, slowness of a round in a visit, scatter of blocks in it."""

    starts: Spread
    drift: Spread
    rounds: Spread
    blocks: Spread

    @property
    def within_visit_sd(self) -> float:
        """The standard deviation of a block among those of its visit."""
        return float(np.hypot(self.rounds.sd, self.blocks.sd))


@dataclass(frozen=True, slots=True)
class Timings:
    """n blocks: log step times, shape (n,), and which cell, start, visit and round each belongs to, as 0 and 1.

    `taken_s` is when each was taken, from the first one on; `standing` how far each lies from its cell, and its weight.
    """

    cells: tuple[Cell, ...]
    values: Array
    of_cell: Array
    of_start: Array
    of_visit: Array
    of_round: Array
    taken_s: Array
    standing: Standing


def collect(blocks: Iterable[Block]) -> Timings:
    """Lay out blocks, which come in the order in which they were taken."""
    rows = tuple(blocks)
    cells = sorted({block.cell for block in rows})
    values = np.array([np.log(np.median(block.step_s)) for block in rows])
    of_cell = _membership([cells.index(block.cell) for block in rows])
    of_start = _membership([block.start for block in rows])
    visits = _visits(rows)
    of_visit, of_round = _membership(visits), _membership(_rounds(rows, visits))
    taken_s = np.array([block.taken_at_s for block in rows])
    of_size = _membership([block.cell.batch_size for block in rows])
    stands = standing(np.hstack([of_cell, of_start, of_round]), values, of_cell, of_size)
    since = taken_s - taken_s.min(initial=np.inf)
    return Timings(tuple(cells), values, of_cell, of_start, of_visit, of_round, since, stands)


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


def _rounds(blocks: Sequence[Block], visits: Sequence[int]) -> list[int]:
    """The number of each block's round. The reference cell follows the last round of its visit, and belongs to it."""
    known: dict[tuple[int, int], int] = {}
    latest: dict[int, int] = {}
    numbers = []
    for block, visit in zip(blocks, visits, strict=True):
        own_size = block.cell.batch_size == block.stop
        round_ = block.round if own_size else latest.get(visit, block.round)
        latest[visit] = round_
        numbers.append(known.setdefault((visit, round_), len(known)))
    return numbers


def _membership(labels: Sequence[int]) -> Array:
    """Shape (rows, distinct labels): 1 where the row has the label."""
    column = np.asarray(labels)[:, None]
    return np.asarray(column == np.unique(column), dtype=np.float64)


def estimate_noise(timings: Timings) -> Noise:
    """Each source from what it explains beyond cells and the other sources (Henderson 1953, method 3).

    Drift is left in the starts where each has visits of its own, since it cannot be told from luck there, and slow
    rounds in the visits where each has one.
    """
    stands = timings.standing
    # Weights by their square: an outlier would otherwise still add nine variances to the scatter.
    roots = stands.weights / stands.spread
    values, cell, start, visit, round_ = (
        (roots if rows.ndim == 1 else roots[:, None]) * rows
        for rows in (timings.values, timings.of_cell, timings.of_start, timings.of_visit, timings.of_round)
    )
    everything = np.hstack([cell, start, round_])
    rest = _beyond(everything, values)
    df = round(float(stands.weights @ stands.weights)) - int(np.linalg.matrix_rank(everything))
    blocks = Spread(float(rest @ rest) / df, df) if df > 0 else Spread.assumed(UNKNOWN_BLOCK_SD)
    scatter = blocks.mean_square if df > 0 else 0.0
    rounds = _explained(values, round_, np.hstack([cell, start, visit]), scatter) or Spread.assumed(0.0)
    slow = round_ * rounds.sd
    return Noise(
        starts=_explained(values, start, np.hstack([cell, round_]), scatter)
        or _explained(values, start, cell, scatter)
        or Spread.assumed(UNKNOWN_START_SD),
        drift=_explained(values, visit, np.hstack([cell, start]), scatter, slow) or Spread.assumed(UNKNOWN_DRIFT_SD),
        rounds=rounds,
        blocks=blocks,
    )


def _explained(
    values: Array, effect: Array, given: Array, scatter: float, nested: Array | None = None
) -> Spread | None:
    """Deviation of the levels of `effect`, beside blocks that scatter by a variance of `scatter`.

    `nested` holds the effects of levels inside those of `effect`, each column one deviation of it. None where `given`
    leaves nothing to tell it by.
    """
    columns = _beyond(given, effect)
    weight = float(np.sum(columns**2))
    if weight < 1e-9:
        return None
    left = _beyond(given, values)
    coefficients, _, rank, _ = np.linalg.lstsq(columns, left, rcond=1e-9)
    fitted = columns @ coefficients
    others = int(rank) * scatter
    if nested is not None:
        others += float(np.sum((nested - _beyond(columns, nested)) ** 2))
    return Spread(float(fitted @ fitted) / weight, int(rank), others / weight)


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
    """Generalised least squares with start, visit and round as random effects.

    In a balanced run an estimate is the mean over blocks, in any other the best use of cells that shared a start, a
    visit or a round. Each of these has one draw of its effect, common to all its blocks (Student t: few starts give
    wide tails), each block its own of the scatter.
    """
    return CellTimes(timings.cells, _draw(timings, noise, timings.of_cell, rng))


def change(timings: Timings, covariates: Sequence[Array], rng: np.random.Generator) -> Sampled | None:
    """By how much log step time changes with the first covariate of blocks, each shape (n,), beside the others.

    The noise is estimated beside them too, so that what they explain does not hide them. None where cells, starts and
    the other covariates leave nothing to tell it by.
    """
    first, *others = covariates
    given = np.column_stack([timings.of_cell, *others])
    if np.linalg.norm(_beyond(np.hstack([given, timings.of_start]), first)) < _NOTHING_LEFT:
        return None
    columns = np.column_stack([given, first])
    return _draw(timings, estimate_noise(replace(timings, of_cell=columns)), columns, rng)[-1]


def variations(timings: Timings) -> dict[Cell, float]:
    """Relative standard deviation of a block within its cell, of cells whose blocks repeat each other.

    Luck of starts, drift and slow rounds are taken out. Blocks count by their weight: outliers are named one by one.
    """
    stands = timings.standing
    squares = timings.of_cell.T @ (stands.weights * stands.distance**2)
    freedom = timings.of_cell.T @ (stands.weights * stands.freedom)
    known = np.flatnonzero(freedom > ENOUGH_FREEDOM)
    return {timings.cells[i]: float(np.sqrt(squares[i] / freedom[i])) for i in known}


def uncertainty(timings: Timings, noise: Noise, contrast: Mapping[Cell, float]) -> dict[Source, float]:
    """Standard deviation that each source gives to a weighted sum of log step times."""
    wanted = np.array([contrast.get(cell, 0.0) for cell in timings.cells])
    read = wanted @ _reader(timings, noise, timings.of_cell)
    roots = 1 / np.sqrt(timings.standing.precision)
    return {
        Source.STARTS: noise.starts.sd * float(np.linalg.norm(read @ timings.of_start)),
        Source.DRIFT: noise.drift.sd * float(np.linalg.norm(read @ timings.of_visit)),
        Source.BLOCKS: float(
            np.hypot(
                noise.rounds.sd * np.linalg.norm(read @ timings.of_round),
                noise.blocks.sd * np.linalg.norm(read * roots),
            )
        ),
    }


def _draw(timings: Timings, noise: Noise, columns: Array, rng: np.random.Generator) -> Sampled:
    """Estimates and draws of the coefficients of `columns`, shape (n, coefficients)."""
    reader = _reader(timings, noise, columns)
    point = reader @ timings.values
    errors = (
        _student(rng, noise.starts, timings.of_start.shape[1]) @ timings.of_start.T
        + _student(rng, noise.drift, timings.of_visit.shape[1]) @ timings.of_visit.T
        + _student(rng, noise.rounds, timings.of_round.shape[1]) @ timings.of_round.T
        + _student(rng, noise.blocks, len(timings.values)) / np.sqrt(timings.standing.precision)
    )
    # Two starts leave tails so wide that a time would overflow; far beyond any decision, they are cut.
    return Sampled(point, point + np.clip(errors @ reader.T, -50, 50))


def _reader(timings: Timings, noise: Noise, columns: Array) -> Array:
    """The matrix that reads the coefficients of `columns` off blocks, shape (coefficients, n)."""
    # Without any scatter the covariance is singular; a part in a million leaves it what it is.
    scatter = max(noise.blocks.sd, 1e-6) ** 2
    covariance = (
        noise.starts.sd**2 * timings.of_start @ timings.of_start.T
        + noise.drift.sd**2 * timings.of_visit @ timings.of_visit.T
        + noise.rounds.sd**2 * timings.of_round @ timings.of_round.T
        + scatter * np.diag(1 / timings.standing.precision)
    )
    weighted = np.linalg.solve(covariance, columns).T
    return np.asarray(np.linalg.solve(weighted @ columns, weighted))


def _student(rng: np.random.Generator, spread: Spread, width: int) -> Array:
    """Draws of a multivariate Student t, shape (DRAWS, width): one uncertain scale for all that share it."""
    return np.asarray(rng.standard_normal((DRAWS, width)) * spread.draw(rng))
