"""A surface from a profile: the measured cells, with draws rebuilt from the intervals that were stored with them.

A profile keeps no draws, so it is not known which of its errors go together. What is known from how they were measured
is used: all arms share the machine's level, cells of an arm share the luck of its starts, all batch sizes share
acceptance. What an interval has beyond that is the cell's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.model.filling import fill
from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIMIT = 1.96
"""Standard deviations from a value to the end of its 95 % interval."""

_ONE = Interval(1.0, 1.0, 1.0)


def surface_of(profile: Profile, rng: np.random.Generator) -> Surface:
    """The surface that `profile` was decided on, as far as it tells."""
    return _Recalled(profile, rng).surface()


def with_acceptance(surface: Surface, rates: tuple[float, ...]) -> Surface:
    """The same step times under another drafter; `rates[i]` is the acceptance at position i + 1, to the largest K."""
    lengths = np.log([1 + sum(rates[:k]) for k in surface.ks])
    return replace(surface, log_tokens=Sampled(lengths, np.broadcast_to(lengths, (DRAWS, len(lengths)))))


class _Recalled:
    def __init__(self, profile: Profile, rng: np.random.Generator) -> None:
        self._profile, self._rng = profile, rng
        self._estimates = {e.cell: e for e in profile.cells}
        self._lengths = {a.k: a.tokens for a in profile.acceptance_lengths}
        self._batch_sizes = tuple(sorted({cell.batch_size for cell in self._estimates}))
        self._ks = tuple(sorted({0} | {cell.k for cell in self._estimates}))
        self._table_arm = Arm.DSD if any(c.arm is Arm.DSD and c.k for c in self._estimates) else Arm.STATIC
        width = np.nan_to_num([_deviation(e.tpot_s) if e else 0.0 for e in self._of(Arm.NO_SPEC, 0)])
        self._level = rng.standard_normal((DRAWS, 1)) * width

    def surface(self) -> Surface:
        """Everything put together."""
        no_spec = self._column(Arm.NO_SPEC, 0)
        luck = self._rng.standard_normal((DRAWS, 1))
        columns = [self._column(self._table_arm, k, luck) for k in self._ks]
        if self._is_import:
            columns[0] = _or_else(self._column(Arm.DSD, 0, luck), no_spec)
        measured = _beside_each_other([no_spec, *columns])
        whole = fill(measured, self._batch_sizes, np.repeat(~self._anchors[:, None], 1 + len(columns), axis=1))
        return Surface(
            batch_sizes=self._batch_sizes,
            ks=self._ks,
            no_spec=whole[:, 0],
            dsd=whole[:, 1:],
            log_tokens=self._log_tokens(),
            static=self._static(no_spec),
            untried=self._untried(),
            filled=self._filled(np.isnan(measured.point) & np.isfinite(whole.point)),
            table_assumed=self._table_arm is Arm.STATIC,
        )

    @property
    def _is_import(self) -> bool:
        return self._profile.environment is None

    @property
    def _anchors(self) -> NDArray[np.bool_]:
        """Which batch sizes were asked for; between them a sweep measures only what could win there."""
        asked = self._profile.request.batch_sizes if self._profile.request else self._batch_sizes
        return np.isin(self._batch_sizes, asked)

    def _static(self, no_spec: Sampled) -> dict[int, Sampled]:
        """Fixed Ks over no speculation, where they stand beside a table's engine; measured at the anchors."""
        if self._table_arm is Arm.STATIC:
            return {}
        rows = np.flatnonzero(self._anchors)
        sizes = tuple(self._batch_sizes[row] for row in rows)
        ratios = {}
        for k in sorted({cell.k for cell in self._estimates if cell.arm is Arm.STATIC}):
            ratio = self._column(Arm.STATIC, k, self._rng.standard_normal((DRAWS, 1))) - no_spec
            ratios[k] = spread(ratio[rows], sizes, sizes[-1])[np.array(self._batch_sizes) - 1]
        return ratios

    def _filled(self, cells: NDArray[np.bool_]) -> frozenset[Cell]:
        """Cells of no speculation, then of each K, as `Surface` names them."""
        named = [(Arm.NO_SPEC, 0), *((Arm.DSD, k) for k in self._ks)]
        return frozenset(Cell(named[j][0], self._batch_sizes[i], named[j][1]) for i, j in np.argwhere(cells).tolist())

    def _of(self, arm: Arm, k: int) -> list[CellEstimate | None]:
        """One for each batch size."""
        possible = arm is not Arm.STATIC or k > 0
        return [self._estimates.get(Cell(arm, b, k)) if possible else None for b in self._batch_sizes]

    def _column(self, arm: Arm, k: int, luck: Array | None = None) -> Sampled:
        """Log step times of an arm at one K, shape (B,); TPOT where its acceptance length is not known."""
        found = self._of(arm, k)
        length = np.log(self._length_of(found, k).value)
        point = np.array([np.log(e.tpot_s.value) + length if e else np.nan for e in found])
        draws = point + self._level
        if luck is not None:
            shared, own = np.array([self._deviations(e, k) if e else (np.nan, np.nan) for e in found]).T
            draws = draws + luck * shared + self._rng.standard_normal(draws.shape) * own
        return Sampled(point, draws)

    def _deviations(self, estimate: CellEstimate, k: int) -> tuple[float, float]:
        """Of a cell's step time against no speculation: what it shares with its arm, and what is its own."""
        left = _share_left(estimate)
        length = self._length_of([estimate], k)
        variance = max(0.0, _deviation(left or estimate.tpot_s) ** 2 - _deviation(length) ** 2)
        base = self._estimates.get(Cell(Arm.NO_SPEC, estimate.cell.batch_size, 0)) if left else None
        starts = 1 / estimate.starts + (1 / base.starts if base else 0)
        shared = min(variance, self._profile.variance.between_starts**2 * starts)
        return float(np.sqrt(shared)), float(np.sqrt(variance - shared))

    def _length_of(self, found: Sequence[CellEstimate | None], k: int) -> Interval:
        """Acceptance length at `k`; exactly 1 where TPOT was not taken apart."""
        split = k > 0 and any(e and e.step_s for e in found)
        return self._lengths.get(k, _ONE) if split else _ONE

    def _log_tokens(self) -> Sampled:
        """Log acceptance lengths, shape (Ks,); they rise and fall together, being sums of the same positions."""
        found = [self._length_of(self._of(self._table_arm, k), k) for k in self._ks]
        point, width = np.log([a.value for a in found]), np.array([_deviation(a) for a in found])
        return Sampled(point, point + self._rng.standard_normal((DRAWS, 1)) * width)

    def _untried(self) -> frozenset[tuple[int, int]]:
        """A sweep tried every cell; what an import lacks nobody tried."""
        known = {(cell.batch_size, cell.k) for cell in self._estimates}
        cells = frozenset((b, k) for b in self._batch_sizes for k in self._ks)
        return cells - known if self._is_import else frozenset()


def _deviation(interval: Interval) -> float:
    """Of the logarithm."""
    return float(np.log(interval.high / interval.low)) / (2 * _LIMIT)


def _share_left(estimate: CellEstimate) -> Interval | None:
    """TPOT over that without speculation; None where it is not known, or its interval has no logarithm."""
    gain = estimate.gain
    return Interval(1 - gain.value, 1 - gain.high, 1 - gain.low) if gain and gain.high < 1 else None


def _beside_each_other(columns: Sequence[Sampled]) -> Sampled:
    return Sampled(np.stack([c.point for c in columns], -1), np.stack([c.draws for c in columns], -1))


def _or_else(known: Sampled, otherwise: Sampled) -> Sampled:
    there = np.isfinite(known.point)
    return Sampled(np.where(there, known.point, otherwise.point), np.where(there, known.draws, otherwise.draws))
