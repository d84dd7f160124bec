"""A profile's cells as lines over batch size, and those that each choice would run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dsd_tune.emit.decision import advised_table
from dsd_tune.model.claims import JUMP
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, Profile, Verdict
from dsd_tune.records.table import Range, Table
from dsd_tune.report.grid import columns_of, heading


@dataclass(frozen=True, slots=True)
class Line:
    """One arm and K over batch size; `cells` has None where nothing was measured."""

    arm: Arm
    k: int
    cells: tuple[CellEstimate | None, ...]

    @property
    def name(self) -> str:
        """As the columns of the terminal's grid are called."""
        return heading(self.arm, self.k)

    def measured(self) -> list[CellEstimate]:
        """The cells that exist, by rising batch size."""
        return [cell for cell in self.cells if cell]

    def runs(self) -> list[list[CellEstimate]]:
        """Cells that a line may join: neighbours, with no jump between them."""
        runs: list[list[CellEstimate]] = [[]]
        for cell in self.cells:
            if runs[-1] and (cell is None or _jumps(runs[-1][-1], cell)):
                runs.append([])
            if cell:
                runs[-1].append(cell)
        return [run for run in runs if run]

    def jumps(self) -> list[tuple[CellEstimate, CellEstimate]]:
        """Neighbours between which time grows faster than the batch: something happened there, nobody knows where."""
        pairs = [(left, right) for left, right in pairwise(self.cells) if left and right]
        return [(left, right) for left, right in pairs if _jumps(left, right)]


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a choice and the line that it runs on; None where that was not measured at all."""

    range: Range
    line: Line | None

    def measured(self) -> list[CellEstimate]:
        """The cells inside the range."""
        return [c for c in self.line.measured() if self._holds(c.cell.batch_size)] if self.line else []

    def paths(self) -> list[tuple[list[float], list[float]]]:
        """Batch sizes and TPOT in ms along the line, read off half a request beyond both ends so that ranges meet."""
        paths = []
        for run in self.line.runs() if self.line else []:
            sizes = [float(cell.cell.batch_size) for cell in run]
            times = [math.log(cell.tpot_s.value * 1e3) for cell in run]
            first, last = max(sizes[0], self.range.first - 0.5), min(sizes[-1], self.range.last + 0.5)
            if first <= last:
                at = sorted({first, last, *filter(self._holds, sizes)})
                paths.append((at, np.exp(np.interp(np.log(at), np.log(sizes), times)).tolist()))
        return paths

    def _holds(self, batch_size: float) -> bool:
        return self.range.first <= batch_size <= self.range.last


def batch_sizes(profile: Profile) -> tuple[int, ...]:
    """The batch sizes that were measured, rising."""
    return tuple(sorted({estimate.cell.batch_size for estimate in profile.cells}))


def k_max(profile: Profile) -> int:
    """The largest K measured."""
    return max(estimate.cell.k for estimate in profile.cells)


def lines(profile: Profile) -> list[Line]:
    """All that was measured: no speculation first, then by arm and K."""
    cells = {estimate.cell: estimate for estimate in profile.cells}
    sizes = batch_sizes(profile)
    return [Line(arm, k, tuple(cells.get(Cell(arm, size, k)) for size in sizes)) for arm, k in columns_of(cells)]


def chosen(profile: Profile) -> list[Piece]:
    """What the verdict would run; nothing where it cannot tell."""
    match profile.decision.verdict:
        case Verdict.TABLE:
            table = advised_table(profile)
            return table_pieces(profile, table) if table else []
        case Verdict.FIXED:
            return fixed_pieces(profile)
        case Verdict.OFF:
            return [Piece(_everywhere(profile, 0), _first_of(lines(profile), [(Arm.NO_SPEC, 0)]))]
        case Verdict.UNCLEAR:
            return []


def table_pieces(profile: Profile, table: Table) -> list[Piece]:
    """A table's ranges. An import has no engine with a table, so that others stand for it."""
    measured = lines(profile)
    return [
        Piece(part, _first_of(measured, [(Arm.DSD, part.k), (Arm.STATIC if part.k else Arm.NO_SPEC, part.k)]))
        for part in table.ranges
    ]


def fixed_pieces(profile: Profile) -> list[Piece]:
    """The best fixed K: in an engine of its own where that was measured, else in the table's."""
    k = profile.decision.fixed_k
    return [Piece(_everywhere(profile, k), _first_of(lines(profile), [(Arm.STATIC, k), (Arm.DSD, k)]))]


def bars(intervals: Iterable[Interval], scale: float) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Values, and how far their intervals reach down and up, in another unit: what matplotlib's errorbar takes."""
    found = list(intervals)
    below = [(interval.value - interval.low) * scale for interval in found]
    above = [(interval.high - interval.value) * scale for interval in found]
    return [interval.value * scale for interval in found], (below, above)


def _everywhere(profile: Profile, k: int) -> Range:
    return Range(1, profile.decision.max_num_seqs, k)


def _first_of(measured: Sequence[Line], columns: Sequence[tuple[Arm, int]]) -> Line | None:
    by_column = {(line.arm, line.k): line for line in measured}
    return next((by_column[column] for column in columns if column in by_column), None)


def _jumps(left: CellEstimate, right: CellEstimate) -> bool:
    before, after = (cell.step_s or cell.tpot_s for cell in (left, right))
    return math.log(after.value / before.value) > math.log(right.cell.batch_size / left.cell.batch_size) + JUMP
