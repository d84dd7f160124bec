"""Distributions of millions of times in constant memory: counts in bins of half a percent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.model.sampled import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDTH = 0.005
_SMALLEST_S, _LARGEST_S = 1e-7, 1e8
_BINS = int(np.ceil(np.log(_LARGEST_S / _SMALLEST_S) / _WIDTH))


@dataclass(slots=True)
class Times:
    """Positive times, counted. Means are exact, quantiles within a quarter percent."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))
    total_s: float = 0.0

    def add(self, seconds: list[float]) -> None:
        """Count some more."""
        values = np.asarray(seconds)
        bins = (np.log(np.maximum(values, _SMALLEST_S) / _SMALLEST_S) / _WIDTH).astype(np.int64)
        self.counts += np.bincount(np.minimum(bins, _BINS - 1), minlength=_BINS)
        self.total_s += float(values.sum())

    def join(self, other: Times) -> None:
        """Count what another counted."""
        self.counts += other.counts
        self.total_s += other.total_s

    @property
    def count(self) -> int:
        """How many were counted."""
        return int(self.counts.sum())

    def summary(self, shares: tuple[float, ...]) -> Array:
        """The mean, then a quantile for each share, in seconds; at least one time was counted."""
        reached = np.cumsum(self.counts)
        bins = np.searchsorted(reached, np.ceil(np.asarray(shares) * reached[-1]).clip(1))
        return np.concatenate([[self.total_s / reached[-1]], _SMALLEST_S * np.exp((bins + 0.5) * _WIDTH)])
