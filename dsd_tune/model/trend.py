"""Whether step time changed while a run went on, beyond what cells, starts, visits and rounds explain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsd_tune.model.sampled import Array
from dsd_tune.model.timing import Timings, change
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Block


def trend(timings: Timings) -> Interval | None:
    """How much slower the machine was at the last block than at the first, as a share of step time.

    A regression on time. None where time cannot be told from cells and starts, or did not pass.
    """
    return _change(timings, _time(timings))


def first_round(timings: Timings, blocks: Sequence[Block]) -> Interval | None:
    """How much slower the first pass over a stop's cells was than those that retraced it, the trend taken out.

    `blocks` are those that `timings` were laid out from. None without later ones.
    """
    first = np.array([float(block.round == 0) for block in blocks])
    return _change(timings, first, _time(timings))


def _time(timings: Timings) -> Array:
    """From 0 at the first block to 1 at the last."""
    return np.asarray(timings.taken_s / max(timings.taken_s.max(initial=0.0), 1e-9))


def _change(timings: Timings, covariate: Array, *others: Array) -> Interval | None:
    found = change(timings, (covariate, *others), np.random.default_rng(0))
    return None if found is None else found.map(np.expm1).interval()
