"""What may be said between measured batch sizes: what grows evenly from one to the next, and nothing across a jump."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dsd_tune.model.ranges import regret_beyond_ties
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.records.measurement import Arm, Cell

JUMP = 0.1
"""Step time grows at most in proportion to batch size; what is 10 % beyond that is a jump."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Two neighbouring measured batch sizes that `k` is not read off between, and why, in words."""

    k: int
    left: int
    right: int
    said: str


@dataclass(frozen=True, slots=True)
class Claims:
    """`log_tpot` of the table's engine at every batch size, shape (max_num_seqs, Ks); nan where nothing is claimed.

    `log_line` has there what would follow if nothing happened in between: good enough for a mean.
    """

    log_tpot: Sampled
    log_line: Sampled
    gaps: tuple[Gap, ...]


def claim(surface: Surface, max_num_seqs: int, capture_limit: int | None) -> Claims:
    """Read the table's engine off between its cells, and leave out what they do not support.

    Above `capture_limit` tokens in flight vLLM runs without CUDA graphs. Where that limit is known, a K that crosses
    it is carried on up to it, by the growth of its last two measured batch sizes, and no further.
    """
    line = spread(surface.table_tpot(), surface.batch_sizes, max_num_seqs)
    crossed = tuple(_crossings(surface, capture_limit)) if capture_limit else ()
    # A known reason for a gap is better than a jump seen.
    first = {(gap.k, gap.left): gap for gap in reversed([*crossed, *_jumps(surface)])}
    if not first:
        return Claims(line, line, ())
    claimed = Sampled(line.point.copy(), line.draws.copy())
    for gap in first.values():
        inside, column = slice(gap.left, gap.right - 1), surface.ks.index(gap.k)
        claimed.point[inside, column] = claimed.draws[:, inside, column] = np.nan
    for gap in crossed:
        last, column = _last_captured(gap.k, capture_limit or 0), surface.ks.index(gap.k)
        if carried := _carried(surface, gap, last):
            for each in (claimed, line):
                each.point[gap.left : last, column] = carried.point
                each.draws[:, gap.left : last, column] = carried.draws
    return Claims(claimed, line, tuple(first.values()))


def regret_of(cost: Array, worse: Array, batch_sizes: tuple[int, ...]) -> Array:
    """Share lost to the best K at every batch size, shape (max_num_seqs, Ks); nan for a K that may not be used.

    `cost` is what is claimed, in logs. Where nothing at all is, a K counts with its larger loss at the measured batch
    sizes around, so that the choice that is least wrong on either side reaches across.
    """
    regret = np.full_like(cost, np.nan)
    claimed = np.isfinite(cost).any(axis=1)
    regret[claimed] = regret_beyond_ties(cost[claimed], worse[claimed])
    for row in np.flatnonzero(~claimed):
        around = [regret[b - 1] for b in neighbours(batch_sizes, int(row) + 1)]
        regret[row] = np.fmax(around[0], around[-1])
    return regret


def neighbours(batch_sizes: tuple[int, ...], batch_size: int) -> tuple[int, ...]:
    """The measured batch sizes around one: itself, the two beside it, or the one at the end."""
    if batch_size in batch_sizes:
        return (batch_size,)
    below = [b for b in batch_sizes if b < batch_size][-1:]
    return (*below, *[b for b in batch_sizes if b > batch_size][:1])


def _jumps(surface: Surface) -> Iterator[Gap]:
    for column, k in enumerate(surface.ks):
        steps = zip(surface.batch_sizes, surface.dsd.point[:, column], strict=True)
        measured = [(b, step) for b, step in steps if Cell(Arm.DSD, b, k) not in surface.filled]
        for (left, before), (right, after) in pairwise(measured):
            growth = after - before
            if growth > np.log(right / left) + JUMP:
                jump = f"its step time jumps to {np.exp(growth):.1f} times, nobody knows where"
                yield Gap(k, left, right, f"K={k} is not used between B={left} and {right}: {jump}")


def _crossings(surface: Surface, capture_limit: int) -> Iterator[Gap]:
    for k in surface.ks:
        last = _last_captured(k, capture_limit)
        for left, right in pairwise(surface.batch_sizes):
            if left <= last < right:
                said = f"K={k} is used up to B={last} at most, where CUDA graphs end ({capture_limit} tokens in flight)"
                yield Gap(k, left, right, said)


def _last_captured(k: int, capture_limit: int) -> int:
    """The largest batch size at which B*(K+1) tokens are within the limit."""
    return capture_limit // (k + 1)


def _carried(surface: Surface, gap: Gap, last: int) -> Sampled | None:
    """Log TPOT from `gap.left` + 1 to `last`, grown as between the last two measured batch sizes; None from one."""
    row, line = surface.batch_sizes.index(gap.left), surface.table_tpot()[:, surface.ks.index(gap.k)]
    if row == 0:
        return None
    further = np.log(np.arange(gap.left + 1, last + 1) / gap.left)
    width = np.log(gap.left / surface.batch_sizes[row - 1])
    slope = (line[row] - line[row - 1]).map(lambda rise: np.clip(rise / width, 0, 1))
    return Sampled(line.point[row] + further * slope.point, line.draws[:, row, None] + slope.draws[:, None] * further)
