"""Ratios of two independent estimates that are known by their intervals alone, and what may be said of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from dsd_tune.model.sampled import Array
from dsd_tune.records.comparison import Change, Said
from dsd_tune.records.interval import Interval

WORTH_SAYING = 0.01
"""A change under 1 % is no reason to do anything, however surely it is there."""

SAME_WITHIN = 0.05
"""What is not significant is called the same only where more than 5 % is ruled out."""


def widening(count: int) -> float:
    """How much wider 95 % intervals must be so that all `count` of them hold at once (Bonferroni, normal tails)."""
    return float(norm.isf(0.025 / max(count, 1)) / norm.isf(0.025))


def ratio(before: Interval, after: Interval, wider: float = 1.0) -> Interval:
    """`after` over `before`, both positive, of independent runs.

    Limits are joined as squares of distances, each on its own side (MOVER, Donner and Zou 2012), in logs; `wider`
    multiplies them.
    """
    old, new = np.log([before.value, before.low, before.high]), np.log([after.value, after.low, after.high])
    down = float(np.hypot(new[0] - new[1], old[2] - old[0])) * wider
    up = float(np.hypot(new[2] - new[0], old[0] - old[1])) * wider
    return _from_log(np.array([new[0] - old[0], new[0] - old[0] - down, new[0] - old[0] + up]))


def mean_ratio(ratios: Sequence[Interval]) -> Interval:
    """Geometric mean of ratios that may share all their noise, as cells of one engine do; at least one."""
    return _from_log(np.log([[r.value, r.low, r.high] for r in ratios]).mean(axis=0))


def judged(found: Interval, *, less_is_better: bool) -> Change:
    """The ratio with one of the four words."""
    significant = found.low > 1 or found.high < 1
    if significant and abs(found.value - 1) >= WORTH_SAYING:
        return Change(found, Said.BETTER if (found.value < 1) == less_is_better else Said.WORSE)
    ruled_out = found.low >= 1 / (1 + SAME_WITHIN) and found.high <= 1 + SAME_WITHIN
    return Change(found, Said.SAME if ruled_out else Said.UNCLEAR)


def _from_log(logs: Array) -> Interval:
    value, low, high = np.exp(logs).tolist()
    return Interval(value, low, high)
