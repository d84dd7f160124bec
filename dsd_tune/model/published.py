"""A surface from single values: what others measured, joined with the deviations that had to be assumed.

Step time and acceptance are taken apart where the numbers allow it, so that luck of the text at one batch size
does not rank K there: TPOT = step time / AL, with AL pooled over batch sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.published import Published, PublishedAcceptance, PublishedRow

ENOUGH_DF = 3
"""Degrees of freedom from which luck of the text is estimated from a file's own acceptance lengths."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A relative standard deviation and its degrees of freedom; inf where it is an assumption without any."""

    sd: float
    df: float

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws of a deviation, shape (DRAWS, *shape)."""
        size = (DRAWS, *shape)
        standard = rng.standard_normal(size) if np.isinf(self.df) else rng.standard_t(self.df, size)
        return np.asarray(standard * self.sd, dtype=np.float64)


def surface_from_published(published: Published, rng: np.random.Generator) -> Surface:
    """The surface that an import supports.

    Each engine has one draw of `start_sd` for all its numbers (a fixed K is an engine of its own), each number
    one of its own: from repeated rows if the import has them, else `cell_sd`. Where K=0 in the table's engine was
    not measured it is taken to be `no_spec`; where only fixed-K engines were measured, the table's engine is taken
    to be like them. `caveats` says so. A K without acceptance has AL 1 here, and TPOT in place of step time.

    Raises:
        UsageError: no times, or times of a K whose acceptance was random text and whose real one is not known.
    """
    if not published.rows:
        raise UsageError("the import has acceptance, but no times.", "Import it together with a grid.")
    grid = _Grid(published, rng)
    no_spec = grid.arm(Arm.NO_SPEC, (0,))[:, 0]
    speculative = grid.arm(grid.main_arm, grid.ks)
    return Surface(
        batch_sizes=grid.batch_sizes,
        ks=grid.ks,
        no_spec=no_spec,
        dsd=_with_k0(speculative, grid.arm(Arm.DSD, (0,))[:, 0], no_spec) if 0 in grid.ks else speculative,
        log_tokens=grid.log_tokens(),
        static=grid.static_ratios(no_spec),
        untried=frozenset(missing_cells(published)),
        table_assumed=grid.main_arm is Arm.STATIC,
    )


def pooled_lengths(published: Published) -> dict[int, float]:
    """Acceptance length for each K that has one: all tokens over all steps.

    Steps are the drafts where they are counted. Otherwise every request is taken to have got equally many tokens,
    so that steps are in proportion to batch size over acceptance length.
    """
    return {k: _pooled(found) for k, found in _lengths(published).items()}


def batch_sizes(published: Published) -> tuple[int, ...]:
    """The batch sizes measured, rising."""
    return tuple(sorted({row.cell.batch_size for row in published.rows}))


def ks(published: Published) -> tuple[int, ...]:
    """The Ks measured, rising; 0 in whatever arm."""
    return tuple(sorted({row.cell.k for row in published.rows}))


def missing_cells(published: Published) -> tuple[tuple[int, int], ...]:
    """Batch sizes and Ks of the grid that no row has, whatever the arm."""
    have = {(row.cell.batch_size, row.cell.k) for row in published.rows}
    return tuple(cell for cell in product(batch_sizes(published), ks(published)) if cell not in have)


def text_deviation(published: Published) -> Deviation | None:
    """Deviation of one sequence's acceptance length, from how a K's lengths scatter over batch sizes.

    None where too few lengths are known to tell.
    """
    pooled = pooled_lengths(published)
    rows = [(row.cell, row.acceptance) for row in published.rows if row.acceptance]
    scatter = [np.log(found.length / pooled[cell.k]) ** 2 * cell.batch_size for cell, found in rows]
    df = len(rows) - len({cell.k for cell, _ in rows})
    return Deviation(float(np.sqrt(sum(scatter) / df)), df) if df >= ENOUGH_DF else None


def _lengths(published: Published) -> dict[int, list[tuple[PublishedAcceptance, int | None]]]:
    """For each K what is known of it, with the batch size it was seen at."""
    found: dict[int, list[tuple[PublishedAcceptance, int | None]]] = defaultdict(list)
    for row in published.rows:
        if row.acceptance:
            found[row.cell.k].append((row.acceptance, row.cell.batch_size))
    for item in published.acceptance:
        found[item.k].append((item, None))
    return found


def _pooled(found: Sequence[tuple[PublishedAcceptance, int | None]]) -> float:
    counted = [(item.length, float(item.drafts)) for item, _ in found if item.drafts]
    steps = counted or [(item.length, (batch_size or 1) / item.length) for item, batch_size in found]
    return sum(length * weight for length, weight in steps) / sum(weight for _, weight in steps)


def _with_k0(speculative: Sampled, dsd_k0: Sampled, no_spec: Sampled) -> Sampled:
    """The first column from the table's engine where it was measured at K=0, else from `no_spec`."""
    measured = np.isfinite(dsd_k0.point)
    point, draws = speculative.point.copy(), speculative.draws.copy()
    point[:, 0] = np.where(measured, dsd_k0.point, no_spec.point)
    draws[:, :, 0] = np.where(measured, dsd_k0.draws, no_spec.draws)
    return Sampled(point, draws)


class _Grid:
    """The import's log times by cell, with what is needed to draw them."""

    def __init__(self, published: Published, rng: np.random.Generator) -> None:
        self.batch_sizes = batch_sizes(published)
        self.ks = ks(published)
        self._published = published
        self._rng = rng
        self._pooled = pooled_lengths(published)
        self._text = text_deviation(published)
        self._values: dict[Cell, list[float]] = defaultdict(list)
        self._by_luck: set[Cell] = set()
        for row in published.rows:
            self._values[row.cell].append(self._log_step(row))
        self._own = self._repeatability()

    @property
    def main_arm(self) -> Arm:
        """The arm that stands for the table's engine."""
        return Arm.DSD if any(cell.arm is Arm.DSD and cell.k for cell in self._values) else Arm.STATIC

    def arm(self, arm: Arm, wanted: tuple[int, ...]) -> Sampled:
        """Log step times of an arm at Ks, shape (batch sizes, Ks); nan where not measured."""
        measured = [[self._values.get(cell) if cell else None for cell in row] for row in self._cells(arm, wanted)]
        point = np.array([[np.mean(values) if values else np.nan for values in row] for row in measured])
        count = np.array([[len(values) if values else 1 for values in row] for row in measured])
        engines = (1, len(wanted)) if arm is Arm.STATIC else (1, 1)
        shared = Deviation(self._published.start_sd, np.inf).draw(engines, self._rng)
        own = self._own.draw(point.shape, self._rng) / np.sqrt(count)
        draws = point + shared + own
        if self._text:
            draws = draws + self._text.draw(point.shape, self._rng) * self._luck(arm, wanted) / np.sqrt(count)
        return Sampled(point, draws)

    def log_tokens(self) -> Sampled:
        """Log of the pooled acceptance lengths, shape (Ks,)."""
        point = np.log([self._pooled.get(k, 1.0) for k in self.ks])
        sequences = {k: sum(b or 0 for _, b in found) for k, found in _lengths(self._published).items()}
        text = self._text or Deviation(self._published.cell_sd, np.inf)
        shares = [self._luck_left(sequences[k]) if k in sequences else 0.0 for k in self.ks]
        return Sampled(point, point + text.draw(point.shape, self._rng) * shares)

    def static_ratios(self, no_spec: Sampled) -> dict[int, Sampled]:
        """Log ratio of fixed-K step times to `no_spec`, where both arms with drafts were measured."""
        fixed = sorted({cell.k for cell in self._values if cell.arm is Arm.STATIC})
        if self.main_arm is Arm.STATIC or np.isnan(no_spec.point).all():
            return {}
        grid = self.arm(Arm.STATIC, tuple(fixed)) if fixed else None
        return {k: grid[:, i] - no_spec for i, k in enumerate(fixed)} if grid else {}

    def _log_step(self, row: PublishedRow) -> float:
        """Log of the step time, or of TPOT where the acceptance at this K is not known at all."""
        length = self._pooled.get(row.cell.k, 1.0)
        if row.step_s is not None and (row.cell.k == 0 or row.cell.k in self._pooled):
            return float(np.log(row.step_s))
        if row.tpot_s is None:
            raise UsageError(
                f"acceptance at K={row.cell.k} is not known, only that of random text ({row.source}).",
                "Import acceptance on real prompts with it, or say --allow-synthetic.",
            )
        if row.cell.k:
            self._by_luck.add(row.cell)
        return float(np.log(row.tpot_s * length))

    def _repeatability(self) -> Deviation:
        """Deviation of one number: of repeated rows about their means, else as assumed."""
        df = sum(len(values) - 1 for values in self._values.values())
        if df == 0:
            return Deviation(self._published.cell_sd, np.inf)
        scatter = sum(np.sum(np.square(np.array(values) - np.mean(values))) for values in self._values.values())
        return Deviation(float(np.sqrt(scatter / df)), df)

    def _cells(self, arm: Arm, wanted: tuple[int, ...]) -> list[list[Cell | None]]:
        """None where the arm cannot have that K."""
        return [[None if arm is Arm.STATIC and k == 0 else Cell(arm, b, k) for k in wanted] for b in self.batch_sizes]

    def _luck(self, arm: Arm, wanted: tuple[int, ...]) -> Array:
        """How much luck of the text is in each number, in deviations of one sequence."""
        cells = self._cells(arm, wanted)
        return np.array([[cell.batch_size**-0.5 if cell in self._by_luck else 0.0 for cell in row] for row in cells])

    def _luck_left(self, sequences: int) -> float:
        """How much of one sequence's luck is left in a pooled length; all of the assumed one."""
        return sequences**-0.5 if self._text and sequences else 1.0
