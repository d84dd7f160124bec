"""Where a table changes K, and by how much; and where a choice loses to no speculation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.model.ranges import TIE
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Boundary, Comparison, Stretch
from dsd_tune.records.table import Range, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray


def boundaries(table: Table, cost: Sampled, surface: Surface) -> tuple[Boundary, ...]:
    """Every change of K; `cost` holds logs, shape (batch sizes, Ks)."""
    return tuple(_boundary(left, right, cost, surface) for left, right in pairwise(table.ranges))


def _boundary(left: Range, right: Range, cost: Sampled, surface: Surface) -> Boundary:
    saved = cost[:, surface.ks.index(left.k)] - cost[:, surface.ks.index(right.k)]
    low, high = saved.limits()
    tied = ((low <= 0) & (high >= 0)) | (np.abs(saved.point) <= TIE)
    first, last = _run_around(tied, left.last)
    anchor = next(b for b in surface.batch_sizes if b > left.last)
    return Boundary(
        after=left.last,
        low=first,
        high=last,
        left_measured=max((b for b in surface.batch_sizes if b <= left.last), default=1),
        right_measured=anchor,
        left_k=left.k,
        right_k=right.k,
        margin=share_of(saved[anchor - 1]) if np.isfinite(saved.point[anchor - 1]) else None,
    )


def _run_around(flags: NDArray[np.bool_], batch_size: int) -> tuple[int, int]:
    """First and last batch size of the flagged run that touches `batch_size`, which may itself be unflagged."""
    first = last = batch_size
    while first > 1 and flags[first - 2]:
        first -= 1
    while last < len(flags) and flags[last]:
        last += 1
    return first, last


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
