"""What a surface leaves open: how much its table may lose, and where another look would help most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dsd_tune.model.claims import claim, regret_of
from dsd_tune.model.ranges import choose_table, significantly_worse
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.model.weights import log_uniform_weights
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Cell
from dsd_tune.records.table import Table

MAY_WIN = 0.05
"""A K is in play where it is the best in this share of the draws."""

IN_PLAY = 3
"""More Ks than these are not looked at again: where many are equally good, it hardly matters which is taken."""

WORTH_A_LOOK = 0.1
"""A gap between two batch sizes is looked into if it may cost this share of the target."""

MISPLACED = 0.25
"""Mean loss, as a share of what the wrong K costs at the ends of a gap, if costs jump anywhere in it. Where they grow
evenly up to the boundary it is 0.05, but nobody knows that before looking."""

WORST = 1.0
"""The most that a draw's loss counts for: twice as slow is bad enough."""

_THIN = 10
"""Of so many draws one is used for the table: it is asked for after every descent."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """`regret` is the share of TPOT that the table is expected to lose to the best K of each batch size.

    By batch size: Ks `in_play` where it was measured; those to `refine`, where nothing was, the most urgent first;
    those to `repeat`. `doubted` are slots and cells in which a block went wrong, to be taken again.
    `starts` is the number of engine starts that the verdict needs, 0 where more would not help it. `gain` is the log of
    how much slower no speculation is than the table, on average; None where that cannot be told.
    """

    regret: float
    gain: Interval | None = None
    in_play: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    refine: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    repeat: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    doubted: tuple[tuple[int, Cell], ...] = ()
    starts: int = 0

    @classmethod
    def nothing(cls) -> Undecided:
        """Nothing is known to be open."""
        return cls(0.0)

    @property
    def is_settled(self) -> bool:
        """Whether no further look is worth its time."""
        return not (self.refine or self.repeat or self.starts)


def undecided(surface: Surface, max_num_seqs: int, capture_limit: int | None, target: float) -> Undecided:
    """Judge a surface. Under `target`, a share of TPOT, only limits of CUDA graphs matter, of which no draw knows."""
    view = _View(surface, max_num_seqs, capture_limit)
    gaps = dict(view.gaps())
    regret = view.regret() + sum(gaps.values())
    refine = dict(view.around_limits())
    repeat = {}
    for (left, right), risk in sorted(gaps.items(), key=lambda gap: -gap[1]):
        if risk > WORTH_A_LOOK * target:
            refine.setdefault(round((left * right) ** 0.5), view.in_play_between(left, right))
    if regret > target:
        repeat = {b: ks for b, ks in view.in_play.items() if len(ks) > 1 and view.at_stake(b) > target}
    return Undecided(regret, view.gain(), view.in_play, refine, repeat)


class _View:
    """One surface at its measured batch sizes, with the table that follows from it."""

    def __init__(self, surface: Surface, max_num_seqs: int, capture_limit: int | None) -> None:
        self._surface, self._max, self._limit = surface, max_num_seqs, capture_limit
        self._cost = surface.table_tpot()
        self._sizes = [
            b for b, row in zip(surface.batch_sizes, self._cost.point, strict=True) if np.isfinite(row).any()
        ]
        self._weights = log_uniform_weights(max_num_seqs)
        nearest = np.abs(np.log(np.arange(1, max_num_seqs + 1))[:, None] - np.log(self._sizes)).argmin(axis=1)
        self._shares = np.bincount(nearest, self._weights, len(self._sizes))
        self._table = self._choose()
        self.in_play = {b: self._may_win(b) for b in self._sizes}

    def regret(self) -> float:
        """Mean loss of the table to each draw's best K, over batch sizes that count for those around them."""
        return float(self._shares @ [self._loss(b, self._column(b)) for b in self._sizes])

    def gain(self) -> Interval | None:
        """What the table saves over no speculation, as a log ratio."""
        rows = [self._surface.batch_sizes.index(b) for b in self._sizes]
        saved = self._surface.no_spec[rows] - self._cost[rows, [self._column(b) for b in self._sizes]]
        mean = Sampled(np.asarray(self._shares @ saved.point), saved.draws @ self._shares)
        return mean.interval() if np.isfinite(mean.point) else None

    def at_stake(self, batch_size: int) -> float:
        """What knowing the costs at one batch size exactly would save there, on average."""
        return self._loss(batch_size, int(np.nanargmin(self._row(batch_size).point)))

    def gaps(self) -> Iterator[tuple[tuple[int, int], float]]:
        """Neighbouring batch sizes between which the table changes K, and the expected loss from not knowing where."""
        for left, right in pairwise(self._sizes):
            if right - left > 1 and self._table.k_at(left) != self._table.k_at(right):
                margins = [self._margin(left, right), self._margin(right, left)]
                if any(margin.limits()[0] > 0 for margin in margins):
                    wrong = max(float(margin.point) for margin in margins)
                    yield (left, right), MISPLACED * wrong * float(self._weights[left : right - 1].sum())

    def around_limits(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The last batch size with CUDA graphs, and the first without, of each K in play there."""
        for k in self._surface.ks if self._limit else ():
            last = (self._limit or 0) // (k + 1)
            for left, right in pairwise(self._sizes):
                if left <= last < right and k in {*self.in_play[left], *self.in_play[right]}:
                    ks = self._beside(k, left, right)
                    yield from ((b, ks) for b in (last, last + 1) if b not in (left, right))

    def in_play_between(self, left: int, right: int) -> tuple[int, ...]:
        """The Ks of the table on both sides, and those that seem the best in between."""
        chosen = [self._table.k_at(left), self._table.k_at(right)]
        return tuple(sorted(list(dict.fromkeys([*chosen, *self._best_between(left, right)]))[:IN_PLAY]))

    def _beside(self, k: int, left: int, right: int) -> tuple[int, ...]:
        """One K and the best other one: what to change to where it falls behind."""
        other = next((other for other in self._best_between(left, right) if other != k), k)
        return tuple(sorted({k, other}))

    def _best_between(self, left: int, right: int) -> list[int]:
        between = self._row(left).point + self._row(right).point
        return [self._surface.ks[i] for i in np.argsort(between) if np.isfinite(between[i])]

    def _choose(self) -> Table:
        thin = replace(self._surface, dsd=_thinned(self._surface.dsd), log_tokens=_thinned(self._surface.log_tokens))
        claimed = claim(thin, self._max, self._limit).log_tpot
        regret = regret_of(claimed.point, significantly_worse(claimed), self._surface.batch_sizes)
        return choose_table(regret, self._surface.ks, self._weights)

    def _column(self, batch_size: int) -> int:
        """Of the table's K."""
        return self._surface.ks.index(self._table.k_at(batch_size))

    def _row(self, batch_size: int) -> Sampled:
        return self._cost[self._surface.batch_sizes.index(batch_size)]

    def _loss(self, batch_size: int, column: int) -> float:
        """Mean share that one K loses to each draw's best; bounded, since draws from few blocks are not."""
        draws = self._row(batch_size).draws
        return float(np.mean(np.minimum(np.expm1(draws[:, column] - np.nanmin(draws, axis=1)), WORST)))

    def _margin(self, here: int, there: int) -> Sampled:
        """What the table's K of another batch size costs more than its own; half as much again if it did not run."""
        margin = self._row(here)[self._column(there)] - self._row(here)[self._column(here)]
        return margin.map(lambda values: np.nan_to_num(values, nan=np.log(1.5)))

    def _may_win(self, batch_size: int) -> tuple[int, ...]:
        """The table's K, and those that are the best in enough of the draws, the likeliest first."""
        draws = self._row(batch_size).draws
        best = np.argmin(np.where(np.isnan(draws), np.inf, draws), axis=1)
        chances: Array = np.bincount(best, minlength=len(self._surface.ks)) / len(draws)
        likely = [self._surface.ks[i] for i in np.argsort(-chances) if chances[i] >= MAY_WIN]
        return tuple(sorted({self._table.k_at(batch_size), *likely[:IN_PLAY]}))


def _thinned(sampled: Sampled) -> Sampled:
    return Sampled(sampled.point, sampled.draws[::_THIN])
