"""Where a table changes K, by how much and how surely; and where a choice loses to no speculation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.model.ranges import TIE, surely_worse
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Boundary, Comparison, Rival, Stretch
from dsd_tune.records.table import Range, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray


def boundaries(table: Table, cost: Sampled, surface: Surface) -> tuple[Boundary, ...]:
    """Every change of K; `cost` holds logs, shape (batch sizes, Ks)."""
    open_ = _open(table, cost, surface)
    return tuple(_boundary(left, right, cost, surface, open_) for left, right in pairwise(table.ranges))


def rivals(table: Table, cost: Sampled, surface: Surface) -> tuple[Rival, ...]:
    """Every K that the table could have as well, as far as the numbers tell; `cost` as for `boundaries`."""
    open_ = _open(table, cost, surface)
    open_[np.arange(len(open_)), _columns(table, surface)] = False
    return tuple(
        Rival(k, start + 1, end) for column, k in enumerate(surface.ks) for start, end in _runs(open_[:, column])
    )


def _columns(table: Table, surface: Surface) -> NDArray[np.intp]:
    """Of the table's K at every batch size."""
    return np.array([surface.ks.index(k) for k in table.dense()])


def _open(table: Table, cost: Sampled, surface: Surface) -> NDArray[np.bool_]:
    """Where a K is known and not surely worse than the table's, shape (batch sizes, Ks)."""
    return np.isfinite(cost.point) & ~surely_worse(cost, _columns(table, surface))


def _boundary(left: Range, right: Range, cost: Sampled, surface: Surface, open_: NDArray[np.bool_]) -> Boundary:
    columns = surface.ks.index(left.k), surface.ks.index(right.k)
    saved = cost[:, columns[0]] - cost[:, columns[1]]
    near = np.abs(saved.point) <= TIE
    before = _length((open_[:, columns[1]] | near)[left.first - 1 : left.last][::-1])
    behind = _length((open_[:, columns[0]] | near)[right.first - 1 : right.last])
    anchor = next(b for b in surface.batch_sizes if b > left.last)
    return Boundary(
        after=left.last,
        low=min(left.last - before + 1, left.last),
        high=left.last + behind,
        left_measured=max((b for b in surface.batch_sizes if b <= left.last), default=1),
        right_measured=anchor,
        left_k=left.k,
        right_k=right.k,
        margin=share_of(saved[anchor - 1]) if np.isfinite(saved.point[anchor - 1]) else None,
    )


def _length(flags: NDArray[np.bool_]) -> int:
    """How many flags are set before the first that is not."""
    return int(np.argmin(np.append(flags, False)))


def losing_stretches(gain: Sampled) -> tuple[Stretch, ...]:
    """Runs of batch sizes at which the choice is significantly worse than no speculation; `gain` is of shape (B,)."""
    return tuple(Stretch(start + 1, end, _mean_loss(gain, start, end)) for start, end in _runs(gain.limits()[1] < 0))


def _runs(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    yield from ((int(start), int(end)) for start, end in edges.reshape(-1, 2))


def _mean_loss(gain: Sampled, start: int, end: int) -> Interval:
    part = gain[slice(start, end)]
    mean = Sampled(np.asarray(-part.point.mean()), -part.draws.mean(axis=1))
    return mean.map(np.expm1).interval()


def share_of(log_gain: Sampled) -> Interval:
    """A log ratio of costs as the share saved."""
    return _saved(log_gain).interval()


def compared(log_gain: Sampled) -> Comparison:
    """A log ratio of costs as the share saved, with what could have been told from none."""
    return _saved(log_gain).comparison()


def _saved(log_gain: Sampled) -> Sampled:
    return log_gain.map(lambda g: -np.expm1(-g))
