"""The cheapest list of ranges for given losses: dynamic programming over batch sizes, without any shape in K or B."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.records.table import Table

TIE = 0.02
"""Ks whose TPOT is within 2 % of the best and not significantly worse are tied; the smaller one is taken."""

RANGE_PRICE = 0.005
"""A further range must save this share of weighted TPOT: each distinct K costs CUDA graphs and start-up."""


def choose_table(regret: Array, ks: Sequence[int], weights: Array) -> Table:
    """The table with the least weighted regret plus a price a range, out of all tables.

    `regret` is the share lost to the best K, shape (batch sizes, Ks), nan for a K that may not be used there.
    """
    # A K that may not be used at a batch size may not be even where that one weighs nothing.
    step_cost = np.where(np.isnan(regret), np.inf, weights[:, None] * np.nan_to_num(regret)) + 1e-9 * np.asarray(ks)
    size, width = step_cost.shape
    cost = step_cost[0].copy()
    came_from = np.zeros((size, width), dtype=int)
    for row in range(1, size):
        cheapest = int(np.argmin(cost))
        switch = cost[cheapest] + RANGE_PRICE
        stay = cost <= switch
        came_from[row] = np.where(stay, np.arange(width), cheapest)
        cost = np.where(stay, cost, switch) + step_cost[row]
    column = int(np.argmin(cost))
    chosen = [column]
    for row in range(size - 1, 0, -1):
        column = int(came_from[row, column])
        chosen.append(column)
    return Table.from_dense([ks[c] for c in reversed(chosen)])


def regret_beyond_ties(cost: Array, surely_worse: Array) -> Array:
    """Share lost against the best K of each batch size, 0 for a tie, nan where `cost` is.

    `cost` holds logs, shape (batch sizes, Ks), and something in each row; `surely_worse`, of the same shape, tells
    which differences are no noise. Tied Ks have no regret, so that noise alone never adds a range.
    """
    regret = np.expm1(cost - np.nanmin(cost, axis=1, keepdims=True))
    return np.where((regret <= TIE) & ~surely_worse.astype(bool), 0.0, regret)


def surely_worse(cost: Sampled) -> Array:
    """1 where a K is significantly worse than the best of its batch size, shape (batch sizes, Ks)."""
    best = np.argmin(np.where(np.isnan(cost.point), np.inf, cost.point), axis=1)
    rows = np.arange(len(best))
    excess = cost - Sampled(cost.point[rows, best][:, None], cost.draws[:, rows, best][:, :, None])
    return np.asarray(excess.limits()[0] > 0, dtype=np.float64)
