"""The measured surface: step time and acceptance joined into TPOT, and read off at any batch size in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.records.measurement import Cell


@dataclass(frozen=True, slots=True)
class Surface:
    """Joint estimates over anchors. All times are logs of seconds.

    `no_spec` has shape (B,), `dsd` (B, K), `log_tokens` (K,). `static` maps a fixed K to the log ratio of its
    step time to `no_spec`, shape (B,), where that arm was measured. Unmeasured cells are nan; those of them that
    nobody tried, though others at their batch size and K were, are `untried` (as batch size and K): the best of
    what is left need not be the best. `filled` cells were not measured either, but could not win where they are: they
    were read off between batch sizes where they were measured. `table_assumed` says that no engine with a table was
    measured, and `dsd` holds engines with a fixed K in its place. `cost_only` says that acceptance is not known, and
    `log_tokens` is 0 throughout, as if no draft were accepted.
    """

    batch_sizes: tuple[int, ...]
    ks: tuple[int, ...]
    no_spec: Sampled
    dsd: Sampled
    log_tokens: Sampled
    static: dict[int, Sampled]
    untried: frozenset[tuple[int, int]] = frozenset()
    filled: frozenset[Cell] = frozenset()
    table_assumed: bool = False
    cost_only: bool = False

    def table_tpot(self) -> Sampled:
        """Log TPOT in the table's engine, shape (B, K)."""
        return self.dsd - self.log_tokens[None, :]

    def fixed_tpot(self, k: int) -> Sampled:
        """Log TPOT with `k` fixed, shape (B,): its own engine where measured, else the table's at that K."""
        column = self.ks.index(k)
        if k in self.static:
            return self.no_spec + self.static[k] - self.log_tokens[column][None]
        return self.dsd[:, column] - self.log_tokens[column][None]


def mean_surface(surfaces: Sequence[Surface]) -> Surface:
    """What holds on average under several conditions that count alike, where all of them were measured.

    All have the same Ks and the same draws of what they share.
    """
    if len(surfaces) == 1:
        return surfaces[0]
    shared = sorted(set.intersection(*(set(surface.batch_sizes) for surface in surfaces)))
    rows = [[surface.batch_sizes.index(b) for b in shared] for surface in surfaces]
    fixed_ks = sorted(set.intersection(*(set(surface.static) for surface in surfaces)))
    return Surface(
        batch_sizes=tuple(shared),
        ks=surfaces[0].ks,
        no_spec=_mean([surface.no_spec[kept] for surface, kept in zip(surfaces, rows, strict=True)]),
        dsd=_mean([surface.dsd[kept] for surface, kept in zip(surfaces, rows, strict=True)]),
        log_tokens=_mean([surface.log_tokens for surface in surfaces]),
        static={k: _mean([s.static[k][kept] for s, kept in zip(surfaces, rows, strict=True)]) for k in fixed_ks},
        untried=frozenset.union(*(surface.untried for surface in surfaces)),
        filled=frozenset.union(*(surface.filled for surface in surfaces)),
        cost_only=any(surface.cost_only for surface in surfaces),
    )


def _mean(values: Sequence[Sampled]) -> Sampled:
    return Sampled(np.mean([v.point for v in values], axis=0), np.mean([v.draws for v in values], axis=0))


def spread(log_values: Sampled, batch_sizes: tuple[int, ...], max_num_seqs: int) -> Sampled:
    """Read anchors off at every batch size 1..max_num_seqs: linear in log B between measured neighbours.

    The first axis of `log_values` is the batch size. Outside the anchors and beside a nan the result is nan:
    what was not measured is not claimed.
    """
    wanted = np.log(np.arange(1, max_num_seqs + 1))
    anchors = np.log(np.asarray(batch_sizes, dtype=float))
    left = np.clip(np.searchsorted(anchors, wanted, side="right") - 1, 0, len(anchors) - 1)
    right = np.minimum(left + 1, len(anchors) - 1)
    gap = np.where(right > left, anchors[right] - anchors[left], 1.0)
    share = np.where(wanted < anchors[0], np.nan, (wanted - anchors[left]) / gap)
    share = np.where((right == left) & (wanted > anchors[-1]), np.nan, share)

    def read(values: Array, axis: int) -> Array:
        weight = share.reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        low, high = np.take(values, left, axis), np.take(values, right, axis)
        return np.where(weight == 0, low, low * (1 - weight) + high * weight)

    return Sampled(read(log_values.point, 0), read(log_values.draws, 1))
