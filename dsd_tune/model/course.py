"""Batch size and K over time in constant memory: means over bins whose width doubles when time outgrows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsd_tune.model.sampled import Array
from dsd_tune.records.forecast import Course

_BINS = 256
_NARROWEST_S = 1e-3

_ROUNDING = 1e-6
"""Of a bin: less busy time is the difference of two large sums."""

_KEPT = 3 * 8192
"""Numbers that wait to be summed, since summing many at once is cheap."""


class Recorder:
    """What one server was at; `ks[b - 1]` is its K at batch size b. Stretches come in the order of time from 0 s on."""

    def __init__(self, ks: Sequence[int]) -> None:
        self._ks = np.array([0, *ks])
        self._width_s = _NARROWEST_S
        # Seconds in which it was busy, and those times its batch size and times its K.
        self._sums = np.zeros((3, _BINS))
        # Three numbers a stretch, one after the other: much faster to append and to read than as many tuples.
        self._kept: list[float] = []

    def add(self, from_s: float, to_s: float, batch_size: int) -> None:
        """It ran steps of one batch size from one time to another."""
        self._kept += (from_s, to_s, batch_size)
        if len(self._kept) >= _KEPT:
            self._sum()

    def course(self) -> Course:
        """Everything so far."""
        self._sum()
        busy = self._sums[0] > _ROUNDING * self._width_s
        busy_s, of_batch, of_k = self._sums[:, : int(busy.nonzero()[0].max(initial=0)) + 1]
        ks = np.divide(of_k, busy_s, out=np.full_like(of_k, np.nan), where=busy[: len(of_k)])
        return Course(
            bin_s=self._width_s,
            batch_size=tuple((of_batch / self._width_s).tolist()),
            k=tuple(None if np.isnan(k) else k for k in ks.tolist()),
        )

    def _sum(self) -> None:
        if not self._kept:
            return
        from_s, to_s, sizes = np.array(self._kept, dtype=np.float64).reshape(-1, 3).T
        self._kept.clear()
        while to_s[-1] > _BINS * self._width_s:
            self._widen()
        edges_s = self._width_s * np.arange(_BINS + 1)
        times_s = np.stack([from_s, to_s], axis=1).ravel()
        weights = (np.ones_like(sizes), sizes, self._ks[sizes.astype(int)])
        added = (np.diff(np.interp(edges_s, times_s, _integral(to_s - from_s, weight))) for weight in weights)
        self._sums += np.stack(list(added))

    def _widen(self) -> None:
        self._width_s *= 2
        pairs = self._sums.reshape(3, _BINS // 2, 2).sum(axis=2)
        self._sums = np.concatenate([pairs, np.zeros_like(pairs)], axis=1)


def _integral(seconds: Array, weight: Array) -> Array:
    """Weighted seconds before the beginning and before the end of each stretch; between stretches nothing is added."""
    until = np.cumsum(seconds * weight)
    return np.stack([until - seconds * weight, until], axis=1).ravel()
