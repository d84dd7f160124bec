"""From a surface to a decision: the table, the best fixed K, no speculation, and which of them the numbers support.

Three choices compete on the weighted mean of log TPOT. The simplest one that nothing beats significantly wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.records.profile import Boundary, Decision, Interval, Stretch, Verdict
from dsd_tune.records.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIE = 0.02
"""Ks whose TPOT is within 2 % of the best and not significantly worse are tied; the smaller one is taken."""

RANGE_PRICE = 0.005
"""A further range must save this share of weighted TPOT: each distinct K costs CUDA graphs and start-up."""

WORTH_DEPLOYING = 0.01
"""A gain under 1 % is no reason to change a deployment."""


def log_uniform_weights(max_num_seqs: int) -> Array:
    """Every doubling of the batch size counts alike; shape (max_num_seqs,), sum 1."""
    weights = 1.0 / np.arange(1, max_num_seqs + 1)
    return np.asarray(weights / weights.sum())


def decide(surface: Surface, max_num_seqs: int) -> Decision:
    """Choose between a table, a fixed K and no speculation.

    Raises:
        UsageError: no batch size has both a `no_spec` and a speculative measurement, or the largest is missing.
    """
    weights = log_uniform_weights(max_num_seqs)
    off = spread(surface.no_spec, surface.batch_sizes, max_num_seqs)
    table_tpot = spread(surface.table_tpot(), surface.batch_sizes, max_num_seqs)
    if np.isnan(off.point).any() or np.isnan(table_tpot.point).all(axis=1).any():
        raise UsageError(
            f"batch sizes 1 to {max_num_seqs} are not all covered by measured cells.",
            "Resume the sweep, or sweep again with --batch-sizes from 1 to the largest you serve.",
        )
    table = choose_table(table_tpot, surface.ks, weights)
    columns = [surface.ks.index(k) for k in table.dense()]
    rows = np.arange(max_num_seqs)
    table_line = Sampled(table_tpot.point[rows, columns], table_tpot.draws[:, rows, columns])

    fixed_k = _best_fixed_k(surface, weights, max_num_seqs)
    fixed_line = spread(surface.fixed_tpot(fixed_k), surface.batch_sizes, max_num_seqs)

    table_gain = _mean(off - table_line, weights)
    fixed_gain = _mean(off - fixed_line, weights)
    over_fixed = _mean(fixed_line - table_line, weights)
    verdict = _judge(table, table_gain, fixed_gain, over_fixed)
    chosen = {Verdict.TABLE: table_line, Verdict.FIXED: fixed_line}.get(verdict)
    return Decision(
        verdict=verdict,
        table=table,
        fixed_k=fixed_k,
        table_gain=_share(table_gain),
        fixed_gain=_share(fixed_gain),
        table_over_fixed=_share(over_fixed),
        fixed_worst_loss=_worst_loss(fixed_line, table_tpot, off),
        boundaries=_boundaries(table, table_tpot, surface),
        losing=_losing_stretches(off - chosen) if chosen else (),
        weights="every doubling of the batch size counts alike",
        reason=_reason(verdict, table_gain, fixed_gain, over_fixed),
    )


def choose_table(tpot: Sampled, ks: Sequence[int], weights: Array) -> Table:
    """The cheapest list of ranges: weighted regret plus a price a range, over all tables (dynamic programming).

    `tpot` holds log TPOT, shape (batch sizes, Ks). Tied Ks have no regret, so that noise alone never adds a
    range. No shape in K or B is assumed.
    """
    regret = _regret_beyond_ties(tpot)
    step_cost = weights[:, None] * np.where(np.isnan(regret), np.inf, regret)
    step_cost = step_cost + 1e-9 * np.asarray(ks)
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


def _regret_beyond_ties(tpot: Sampled) -> Array:
    """Share of TPOT lost against the best K of each batch size, 0 for a tie, nan where not measured."""
    best = np.nanargmin(tpot.point, axis=1)
    rows = np.arange(len(best))
    best_line = Sampled(tpot.point[rows, best][:, None], tpot.draws[:, rows, best][:, :, None])
    excess = tpot - best_line
    surely_worse = excess.limits()[0] > 0
    regret = np.expm1(excess.point)
    return np.where((regret <= TIE) & ~surely_worse, 0.0, regret)


def _best_fixed_k(surface: Surface, weights: Array, max_num_seqs: int) -> int:
    """The best K for all batch sizes alike; the smallest of those tied with it.

    Where a fixed K ran in an engine of its own, the table's engine says nothing about the others: it has other graphs.
    """
    own = [k for k, ratio in surface.static.items() if not np.isnan(ratio.point).any()]
    candidates = own or [k for k in surface.ks if k > 0]
    lines = {k: spread(surface.fixed_tpot(k), surface.batch_sizes, max_num_seqs) for k in candidates}
    means = {k: _mean(line, weights) for k, line in lines.items() if not np.isnan(line.point).any()}
    if not means:
        raise UsageError("no K was measured at every batch size.", "Resume the sweep; see the failures it recorded.")
    best = min(means, key=lambda k: float(means[k].point))
    excess = {k: (mean - means[best]).map(np.expm1).interval() for k, mean in means.items()}
    return min(k for k, loss in excess.items() if loss.value <= TIE and loss.low <= 0)


def _worst_loss(line: Sampled, tpot: Sampled, off: Sampled) -> float:
    """The largest share of TPOT that one choice loses to the best of all at any batch size."""
    best = np.minimum(np.nanmin(tpot.point, axis=1), off.point)
    return float(np.max(np.expm1(line.point - best)))


def _mean(line: Sampled, weights: Array) -> Sampled:
    return Sampled(np.asarray(line.point @ weights), line.draws @ weights)


def _share(log_gain: Sampled) -> Interval:
    """A log ratio of TPOTs as the share of TPOT saved."""
    return log_gain.map(lambda g: -np.expm1(-g)).interval()


def _judge(table: Table, table_gain: Sampled, fixed_gain: Sampled, over_fixed: Sampled) -> Verdict:
    gains = {Verdict.TABLE: _share(table_gain), Verdict.FIXED: _share(fixed_gain)}
    proved = [v for v, gain in gains.items() if gain.low > 0 and gain.value >= WORTH_DEPLOYING]
    if table.is_constant or table.k_max == 0:
        proved = [v for v in proved if v is Verdict.FIXED]
    if not proved:
        hopeless = all(gain.high < WORTH_DEPLOYING for gain in gains.values())
        return Verdict.OFF if hopeless else Verdict.UNCLEAR
    if proved == [Verdict.TABLE]:
        return Verdict.TABLE
    better = _share(over_fixed)
    table_wins = Verdict.TABLE in proved and better.low > 0 and better.value >= WORTH_DEPLOYING
    return Verdict.TABLE if table_wins else Verdict.FIXED


def _reason(verdict: Verdict, table_gain: Sampled, fixed_gain: Sampled, over_fixed: Sampled) -> str:
    best = max(_share(table_gain), _share(fixed_gain), key=lambda i: i.value)
    match verdict:
        case Verdict.TABLE:
            return f"the table saves {_percent(_share(table_gain))} of TPOT over no speculation"
        case Verdict.FIXED:
            return (
                f"a fixed K saves {_percent(_share(fixed_gain))} of TPOT over no speculation; "
                f"a table would save {_percent(_share(over_fixed))} more"
            )
        case Verdict.OFF:
            return f"the best speculative choice saves {_percent(best)} of TPOT: nothing worth deploying"
        case Verdict.UNCLEAR:
            return (
                f"the best speculative choice saves {_percent(best)} of TPOT, an interval that holds both a gain and "
                "none; more engine starts (--starts) narrow it"
            )


def _percent(share: Interval) -> str:
    return f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"


def _boundaries(table: Table, tpot: Sampled, surface: Surface) -> tuple[Boundary, ...]:
    found = []
    for left, right in pairwise(table.ranges):
        saved = tpot[:, surface.ks.index(left.k)] - tpot[:, surface.ks.index(right.k)]
        low, high = saved.limits()
        tied = ((low <= 0) & (high >= 0)) | (np.abs(saved.point) <= TIE)
        first, last = _run_around(tied, left.last)
        anchor = next((b for b in surface.batch_sizes if b > left.last), right.last)
        margin = _share(saved[anchor - 1]) if np.isfinite(saved.point[anchor - 1]) else None
        found.append(Boundary(left.last, first, last, left.k, right.k, margin))
    return tuple(found)


def _run_around(flags: NDArray[np.bool_], batch_size: int) -> tuple[int, int]:
    """First and last batch size of the flagged run that touches `batch_size`, which may itself be unflagged."""
    first = last = batch_size
    while first > 1 and flags[first - 2]:
        first -= 1
    while last < len(flags) and flags[last]:
        last += 1
    return first, last


def _losing_stretches(gain: Sampled) -> tuple[Stretch, ...]:
    """Runs of batch sizes at which the choice is significantly worse than no speculation."""
    loses = gain.limits()[1] < 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], loses, [False]]).astype(int)))
    return tuple(Stretch(int(start) + 1, int(end), _mean_loss(gain, start, end)) for start, end in edges.reshape(-1, 2))


def _mean_loss(gain: Sampled, start: int, end: int) -> Interval:
    part = gain[slice(start, end)]
    mean = Sampled(np.asarray(-part.point.mean()), -part.draws.mean(axis=1))
    return mean.map(np.expm1).interval()
