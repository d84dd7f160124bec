"""What a surface tells besides the decision: cells, acceptance lengths, tax of K=0, crossovers, critical size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dsd_tune.model.cost import critical_size
from dsd_tune.model.neighbours import LogSteps, held_out, outliers
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import AcceptanceLength, CellEstimate, CriticalSize, Crossover, HeldOut, Tax

ENOUGH_CELLS = 8
"""A law with six terms and a bend explains fewer cells whatever they are."""


@dataclass(frozen=True, slots=True)
class Support:
    """What an estimate rests on."""

    starts: int
    blocks: int
    kept_share: float
    cv: float | None = None


class Findings:
    """One surface, read in several ways. `split_ks` are the Ks whose TPOT was taken apart into step time and AL."""

    def __init__(self, surface: Surface, split_ks: frozenset[int]) -> None:
        self._surface = surface
        self._split_ks = split_ks

    @property
    def table_arm(self) -> Arm:
        """The arm that the table's cells were measured in."""
        return Arm.STATIC if self._surface.table_assumed else Arm.DSD

    def cells(self, support: Mapping[Cell, Support]) -> tuple[CellEstimate, ...]:
        """An estimate for each cell that is known and has support."""
        return tuple(estimate for line in self._lines() for estimate in self._estimates(*line, support))

    def acceptance_lengths(self) -> tuple[AcceptanceLength, ...]:
        """Of the Ks that have one."""
        tokens = self._surface.log_tokens.map(np.exp)
        known = [i for i, k in enumerate(self._surface.ks) if k in self._split_ks and np.isfinite(tokens.point[i])]
        return tuple(AcceptanceLength(self._surface.ks[i], tokens[i].interval()) for i in known)

    def k0_tax(self) -> tuple[Tax, ...]:
        """K=0 in the table's engine over no speculation."""
        tax = (self._surface.dsd[:, 0] - self._surface.no_spec).map(np.expm1)
        sizes = [(i, b) for i, b in enumerate(self._surface.batch_sizes) if np.isfinite(tax.point[i])]
        filled = self._surface.filled
        measured = [(i, b) for i, b in sizes if not filled & {Cell(Arm.NO_SPEC, b, 0), Cell(self.table_arm, b, 0)}]
        return tuple(Tax(b, tax[i].comparison()) for i, b in measured)

    def crossovers(self) -> tuple[Crossover, ...]:
        """Of every K against no speculation."""
        gains = {k: self._surface.no_spec - self._surface.fixed_tpot(k) for k in self._surface.ks if k > 0}
        return tuple(self._crossover(k, gain) for k, gain in gains.items() if np.isfinite(gain.point).any())

    def critical(self) -> CriticalSize | None:
        """From every step time that is known and no outlier; None from too few of them."""
        odd = {(cell.batch_size, cell.k) for cell, _ in self.outliers}
        cells, log_step = self._step_times()
        kept = [i for i, cell in enumerate(cells) if cell.arm is Arm.NO_SPEC or (cell.batch_size, cell.k) not in odd]
        return critical_size([cells[i] for i in kept], log_step[kept]) if len(kept) >= ENOUGH_CELLS else None

    def held_out(self) -> HeldOut:
        """How well cells are foretold by their neighbours, where they are."""
        return held_out(self._grid)

    @cached_property
    def outliers(self) -> tuple[tuple[Cell, float], ...]:
        """Cells that contradict their row and their column, and how many times too long their step is."""
        return tuple((Cell(self.table_arm, batch_size, k), times) for batch_size, k, times in outliers(self._grid))

    @cached_property
    def _grid(self) -> LogSteps:
        """Step times in the table's engine, of the Ks whose step time is known."""
        split = [i for i, k in enumerate(self._surface.ks) if k in self._split_ks]
        ks = tuple(self._surface.ks[i] for i in split)
        read_off = {(cell.batch_size, cell.k) for cell in self._surface.filled if cell.arm is not Arm.NO_SPEC}
        steps = LogSteps.measured(self._surface.batch_sizes, ks, self._surface.dsd.point[:, split])
        return LogSteps({cell: value for cell, value in steps.values.items() if cell not in read_off})

    def _step_times(self) -> tuple[list[Cell], Sampled]:
        """Cells and their log step times, shape (cells,)."""
        surface = self._surface
        columns = [(Cell(Arm.NO_SPEC, b, 0), surface.no_spec[i]) for i, b in enumerate(surface.batch_sizes)]
        for column, k in enumerate(surface.ks):
            if k in self._split_ks and (k or not surface.table_assumed):
                columns += [
                    (Cell(self.table_arm, b, k), surface.dsd[i, column]) for i, b in enumerate(surface.batch_sizes)
                ]
        known = [(c, value) for c, value in columns if np.isfinite(value.point) and c not in surface.filled]
        points = np.array([value.point for _, value in known])
        draws = np.array([value.draws for _, value in known]).reshape(len(known), len(surface.no_spec.draws))
        return [cell for cell, _ in known], Sampled(points, draws.T)

    def _lines(self) -> list[tuple[Arm, int, Sampled, Sampled]]:
        """Arm, K, log step and log TPOT over batch sizes, for everything measured."""
        surface, tpot = self._surface, self._surface.table_tpot()
        lines = [(Arm.NO_SPEC, 0, surface.no_spec, surface.no_spec)]
        columns = [(i, k) for i, k in enumerate(surface.ks) if k or not surface.table_assumed]
        lines += [(self.table_arm, k, surface.dsd[:, i], tpot[:, i]) for i, k in columns]
        lines += [(Arm.STATIC, k, surface.no_spec + r, surface.fixed_tpot(k)) for k, r in surface.static.items()]
        return lines

    def _estimates(
        self, arm: Arm, k: int, log_step: Sampled, log_tpot: Sampled, support: Mapping[Cell, Support]
    ) -> Iterator[CellEstimate]:
        """Of one arm and K at every batch size."""
        steps, tpots = log_step.map(np.exp).intervals(), log_tpot.map(np.exp).intervals()
        gains = (self._surface.no_spec - log_tpot).map(lambda g: -np.expm1(-g)).intervals()
        break_evens = (log_step - self._surface.no_spec).map(np.exp).intervals()
        rows = zip(self._surface.batch_sizes, steps, tpots, gains, break_evens, strict=True)
        for batch_size, step_s, tpot_s, gain, break_even in rows:
            cell = Cell(arm, batch_size, k)
            if cell in support and tpot_s:
                split, rests_on = k in self._split_ks, support[cell]
                yield CellEstimate(
                    cell=cell,
                    step_s=step_s if split else None,
                    tpot_s=tpot_s,
                    gain=gain,
                    starts=rests_on.starts,
                    blocks=rests_on.blocks,
                    kept_share=rests_on.kept_share,
                    cv=rests_on.cv,
                    break_even=break_even if split and arm is not Arm.NO_SPEC else None,
                )

    def _crossover(self, k: int, gain: Sampled) -> Crossover:
        """Where the gain of `k` over `no_spec` first changes sign, linear in log B between measured neighbours."""
        pays = bool(gain.point[np.isfinite(gain.point)][0] > 0)
        at = float(_first_crossings(gain.point[None], self._surface.batch_sizes)[0])
        if np.isnan(at):
            return Crossover(k, pays, None)
        drawn = _first_crossings(gain.draws, self._surface.batch_sizes)
        low, high = np.quantile(np.where(np.isnan(drawn), self._surface.batch_sizes[-1], drawn), [0.025, 0.975])
        return Crossover(k, pays, Interval(at, min(float(low), at), max(float(high), at)))


def _first_crossings(gains: Array, batch_sizes: Sequence[int]) -> Array:
    """Batch size at which each row of `gains`, shape (n, anchors), first changes sign; nan where it does not."""
    known = np.isfinite(gains).all(axis=0)
    gains, sizes = gains[:, known], np.log(np.asarray(batch_sizes, dtype=float)[known])
    turns = np.diff(gains > 0, axis=1)
    if not turns.size:
        return np.full(len(gains), np.nan)
    turned = np.flatnonzero(turns.any(axis=1))
    left = np.argmax(turns[turned], axis=1)
    before, after = gains[turned, left], gains[turned, left + 1]
    at = np.full(len(gains), np.nan)
    at[turned] = np.exp(sizes[left] + before / (before - after) * (sizes[left + 1] - sizes[left]))
    return at
