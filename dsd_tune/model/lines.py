"""What a choice costs at every batch size: pieces that a decision is put together from."""

from __future__ import annotations

import numpy as np

from dsd_tune.model.sampled import Array, Sampled


def drawn(line: Sampled, split: int) -> Sampled:
    """A line with one of its draws alone."""
    return Sampled(line.point, line.draws[split : split + 1])


def lowered(gain: Sampled, confirmed: float) -> Sampled:
    """A gain without what choosing the best of many added to it."""
    optimism = max(0.0, float(gain.point) - confirmed)
    return gain.map(lambda values: values - optimism)


def least(values: Array) -> Array:
    """The least of each row, nan where there is none."""
    found = np.min(np.where(np.isnan(values), np.inf, values), axis=1)
    return np.where(np.isinf(found), np.nan, found)
