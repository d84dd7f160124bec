"""The cheapest list of ranges for given losses: dynamic programming over batch sizes, without any shape in K or B."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.records.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIE = 0.02
"""Ks whose TPOT is within 2 % of the best and not significantly worse are tied; the smaller one is taken."""

K_PRICE = 0.004
"""A further K must save this share of weighted TPOT: each costs CUDA graphs, their memory, and start-up."""

SWITCH_PRICE = 0.001
"""A further range of a K that the table has already: a change of K costs a step or two with the wrong one."""

MISS_PRICE = 0.05
"""What a step that lacks the CUDA graph it was measured with counts for, as any engine that nobody measured does. What
it costs is not known, so it only chooses between tables that are tied otherwise."""

_TRIED_TOGETHER = 8
"""Of so many Ks every set is tried, which are 255."""


def choose_table(
    regret: Array, ks: Sequence[int], weights: Array, missed: Callable[[Table], float] | None = None
) -> Table:
    """The table with the least weighted regret plus its prices, out of all tables.

    `regret` is the share lost to the best K, shape (batch sizes, Ks), nan for a K that may not be used there.
    `missed` gives the weight of the batch sizes at which a table's engine would lack graphs. Tables that differ by less
    than a tie are chosen by that, too.
    """
    # A K that may not be used at a batch size may not be even where that one weighs nothing.
    step_cost = np.where(np.isnan(regret), np.inf, weights[:, None] * np.nan_to_num(regret)) + 1e-9 * np.asarray(ks)
    if missed is None:
        kept = _undominated(step_cost)
        return next(_by_price(step_cost[:, kept], [ks[c] for c in kept]))[1]
    tables = _by_price(step_cost, ks)
    cheapest, best = next(tables)
    least = cheapest + MISS_PRICE * missed(best)
    for price, table in tables:
        if price >= min(least, cheapest + TIE):
            break
        full_price = price + MISS_PRICE * missed(table)
        if full_price < least:
            least, best = full_price, table
    return best


def _undominated(step_cost: Array) -> list[int]:
    """The columns that no other one is as cheap as everywhere: the cheapest table needs none of the rest."""
    as_cheap = np.all(step_cost[:, :, None] <= step_cost[:, None, :], axis=0) & ~np.eye(step_cost.shape[1], dtype=bool)
    return [int(column) for column in np.flatnonzero(~as_cheap.any(axis=0))]


def _by_price(step_cost: Array, ks: Sequence[int]) -> Iterator[tuple[float, Table]]:
    """For each set of Ks its cheapest table, the cheapest of all first."""
    sets = _sets(step_cost)
    cost = _walked(step_cost, sets, SWITCH_PRICE)
    prices = cost[-1].min(axis=0) + K_PRICE * (sets.sum(axis=0) - 1)
    for at in np.argsort(prices, kind="stable"):
        if not np.isfinite(prices[at]):
            return
        yield float(prices[at]), Table.from_dense([ks[c] for c in _traced(cost[:, :, at], SWITCH_PRICE)])


def _sets(step_cost: Array) -> NDArray[np.bool_]:
    """Sets of Ks to try, shape (Ks, sets): all there are, or where there are many Ks all of the most useful ones."""
    width = step_cost.shape[1]
    columns = list(range(width))
    if width > _TRIED_TOGETHER:
        price = K_PRICE + SWITCH_PRICE
        used = _traced(_walked(step_cost, np.ones((width, 1), dtype=bool), price)[:, :, 0], price)
        columns = list(dict.fromkeys([*used, *np.argsort(step_cost.sum(axis=0)).tolist()]))[:_TRIED_TOGETHER]
    sets = np.zeros((width, 2 ** len(columns)), dtype=bool)
    sets[columns] = np.array(list(product((False, True), repeat=len(columns)))).T
    # In place of the empty set: where Ks failed here and there it takes any of them to cover every batch size.
    sets[:, 0] = True
    return sets


def _walked(step_cost: Array, sets: NDArray[np.bool_], switch_price: float) -> Array:
    """The least cost of having come to each column at each batch size, shape (batch sizes, Ks, sets)."""
    cost: Array = step_cost[:, :, None] + np.where(sets, 0.0, np.inf)
    for row in range(1, len(cost)):
        cost[row] += np.minimum(cost[row - 1], cost[row - 1].min(axis=0) + switch_price)
    return cost


def _traced(cost: Array, switch_price: float) -> list[int]:
    """The columns of one set's cheapest table, a column for each batch size; `cost` has shape (batch sizes, Ks)."""
    column = int(np.argmin(cost[-1]))
    chosen = [column]
    for row in cost[-2::-1]:
        if row[column] > row.min() + switch_price:
            column = int(np.argmin(row))
        chosen.append(column)
    return chosen[::-1]


def regret_beyond_ties(cost: Array, worse: Array) -> Array:
    """Share lost against the best K of each batch size, 0 for a tie, nan where `cost` is.

    `cost` holds logs, shape (batch sizes, Ks), and something in each row; `worse`, of the same shape, tells
    which differences are no noise. Tied Ks have no regret, so that noise alone never adds a range.
    """
    regret = np.expm1(cost - np.nanmin(cost, axis=1, keepdims=True))
    return np.where((regret <= TIE) & ~worse.astype(bool), 0.0, regret)


def significantly_worse(cost: Sampled) -> Array:
    """1 where a K is significantly worse than the best of its batch size, shape (batch sizes, Ks)."""
    best = np.argmin(np.where(np.isnan(cost.point), np.inf, cost.point), axis=1)
    return np.asarray(_excess(cost, best).limits()[0] > 0, dtype=np.float64)


def surely_worse(cost: Sampled, chosen: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each K is worse than the `chosen` one of its batch size, of all of them at once; shapes as above.

    A table claims that for every K at every batch size. Judged one at a time, a twentieth of the claims would be wrong
    in every sweep.
    """
    excess = _excess(cost, chosen)
    return np.asarray(excess.point > excess.reach())


def _excess(cost: Sampled, chosen: NDArray[np.intp]) -> Sampled:
    """What each K costs more than the one in the `chosen` column of its batch size."""
    rows = np.arange(len(chosen))
    return cost - Sampled(cost.point[rows, chosen][:, None], cost.draws[:, rows, chosen][:, :, None])
