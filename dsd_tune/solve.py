"""From a surface to a decision: the table, the best fixed K, no speculation, and which of them the numbers support.

Three choices compete on the weighted mean of log TPOT, or of what else is aimed at. The simplest one that nothing
beats significantly wins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model import reasons
from dsd_tune.model.aim import Aim
from dsd_tune.model.boundaries import boundaries, compared, losing_stretches, rivals, share_of
from dsd_tune.model.claims import claim, neighbours, regret_of
from dsd_tune.model.cost_alone import undecided
from dsd_tune.model.lines import drawn, least, lowered
from dsd_tune.model.outlook import Outlook
from dsd_tune.model.ranges import TIE, choose_table, significantly_worse
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.model.weights import Weights
from dsd_tune.records.profile import Comparison, Decision, Verdict
from dsd_tune.records.table import Table

WORTH_DEPLOYING = 0.01
"""A gain under 1 % is no reason to change a deployment."""

WORTH_AN_UNSEEN_ENGINE = 0.05
"""What a table must save over a fixed K where no engine with a table was measured: such engines were seen 5 % (1.90
against 2.00 times no speculation) and more behind what their Ks did in engines of their own."""

ENOUGH_COMPARED = 0.5
"""Share of the weight at whose batch sizes every K was tried; with less, the best of what is there is no verdict."""

_SPLITS = 64


def decide(surface: Surface, max_num_seqs: int, aim: Aim | None = None, graphs: Outlook | None = None) -> Decision:
    """Choose between a table, a fixed K and no speculation; `graphs` is None where nothing is known of them.

    Raises:
        UsageError: the largest batch size was not measured, or one of those measured has no K; or the aim is beyond
            what was measured.
    """
    aim = aim or Aim()
    return undecided(max_num_seqs, aim) if surface.cost_only else _Case(surface, max_num_seqs, aim, graphs).decision()


def regret(surface: Surface, max_num_seqs: int, aim: Aim, chosen: Decision, own: Decision) -> Comparison | None:
    """The share that `own`, the surface's own decision, saves over another one; None where acceptance is not known."""
    if surface.cost_only:
        return None
    case = _Case(surface, max_num_seqs, aim, graphs=None)
    return compared(case.mean(case.deployed(chosen) - case.deployed(own)))


@dataclass(frozen=True, slots=True)
class _Gains:
    """Log ratios of what a token costs; None where there is nothing to compare with."""

    table: Sampled | None
    fixed: Sampled | None
    over_fixed: Sampled | None
    confirmed: float | None


class _Case:
    """One surface and one aim: every choice's cost at every batch size, shape (max_num_seqs,)."""

    def __init__(self, surface: Surface, max_num_seqs: int, aim: Aim, graphs: Outlook | None) -> None:
        self.surface, self.max_num_seqs, self.aim, self.graphs = surface, max_num_seqs, aim, graphs
        self._require_cells()
        aim.require_within_reach(surface.no_spec, surface.table_tpot(), *map(surface.fixed_tpot, surface.static))
        self.claims = claim(surface, max_num_seqs, aim.capture_limit)
        self.log_tpot = self.claims.log_line
        self.off = aim.cost(self._spread(surface.no_spec))
        self.lines = aim.cost(self.log_tpot)
        self.claimed = aim.cost(self.claims.log_tpot)
        self.weights: Weights = aim.weights(max_num_seqs, least(self.log_tpot.point))
        self.fixed = {k: self._fixed_line(k) for k in self._fixed_candidates()}

    def decision(self) -> Decision:
        """Everything weighed."""
        missed = self._missed if self.graphs else None
        table = self._table(self.claimed.point, significantly_worse(self.claimed), missed)
        fixed_k = self._best_fixed_k()
        table_line, fixed_line = self._line(table) if table else None, self.fixed[fixed_k]
        gains = self._gains(table_line, fixed_line)
        verdict = self._judge(table, gains)
        chosen = {Verdict.TABLE: table_line, Verdict.FIXED: fixed_line}.get(verdict)
        sizes, lacking = self._on_graphs(table) if table and verdict is Verdict.TABLE else ((), ())
        return Decision(
            verdict=verdict,
            max_num_seqs=self.max_num_seqs,
            table=table,
            fixed_k=fixed_k,
            table_gain=_share(gains.table),
            fixed_gain=_share(gains.fixed),
            table_over_fixed=_share(gains.over_fixed),
            confirmed_over_fixed=None if gains.confirmed is None else float(-np.expm1(-gains.confirmed)),
            fixed_worst_loss=self._worst_loss(fixed_line),
            boundaries=boundaries(table, self.lines, self.surface) if table else (),
            rivals=rivals(table, self.lines, self.surface) if table else (),
            losing=losing_stretches(self.off - chosen) if chosen else (),
            objective=self.aim.said,
            weights=self.weights.said,
            reason=self._reason(verdict, table, gains),
            remarks=(*reasons.remarks(self.surface, self.claims, table, self.weights), *lacking),
            capture_sizes=sizes,
        )

    def deployed(self, decision: Decision) -> Sampled:
        """What a decision costs; where nothing could be told, what its table does."""
        if decision.verdict is Verdict.OFF:
            return self.off
        if decision.verdict is Verdict.FIXED or decision.table is None:
            return self._fixed_line(decision.fixed_k)
        return self._line(decision.table)

    def _require_cells(self) -> None:
        without = np.isnan(self.surface.dsd.point).all(axis=1)
        if self.surface.batch_sizes[-1] < self.max_num_seqs or without.any():
            raise UsageError(
                f"batch sizes up to {self.max_num_seqs} are not all covered by measured cells.",
                "Resume the sweep, or sweep again with --batch-sizes up to the largest you serve.",
            )

    def _spread(self, log_values: Sampled) -> Sampled:
        return spread(log_values, self.surface.batch_sizes, self.max_num_seqs)

    def _table(self, cost: Array, worse: Array, missed: Callable[[Table], float] | None = None) -> Table | None:
        """The best table; None from one batch size."""
        if len(self.surface.batch_sizes) == 1:
            return None
        regret = regret_of(cost, worse, self.surface.batch_sizes)
        return choose_table(regret, self.surface.ks, self.weights.shares, missed)

    def _on_graphs(self, table: Table) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The capture sizes that go with a table, and remarks on graphs that it would lack."""
        if self.graphs is None:
            return (), ()
        sizes = self.graphs.mending_sizes(table)
        return sizes, tuple(reasons.on_graphs(table, self.graphs.misses(table), sizes))

    def _missed(self, table: Table) -> float:
        """Weight of the batch sizes at which a table would run without the graph that was measured."""
        misses = self.graphs.misses(table) if self.graphs else ()
        return float(sum(self.weights.shares[b - 1] for b in misses))

    def _line(self, table: Table, split: int | None = None) -> Sampled:
        """What a table costs, with all draws or with one of them."""
        columns = [self.surface.ks.index(k) for k in table.dense()]
        lines = self.lines if split is None else drawn(self.lines, split)
        return lines[np.arange(self.max_num_seqs), columns]

    def _fixed_line(self, k: int) -> Sampled:
        if k in self.surface.static:
            return self.aim.cost(self._spread(self.surface.fixed_tpot(k)))
        return self.lines[:, self.surface.ks.index(k)]

    def _fixed_candidates(self) -> list[int]:
        """The Ks that were measured at the most batch sizes, and at the same ones, so that their means compare.

        Where a fixed K ran in an engine of its own, the table's engine says nothing about others: its graphs differ.
        """
        own = [k for k, ratio in self.surface.static.items() if not np.isnan(ratio.point).any()]
        measured = {k: np.isfinite(self.surface.fixed_tpot(k).point) for k in own or self.surface.ks if k > 0}
        by_rows: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for k, rows in measured.items():
            by_rows[tuple(np.flatnonzero(rows))].append(k)
        most = max(by_rows, key=lambda rows: (len(rows), len(by_rows[rows])), default=())
        if not most:
            raise UsageError("no K above 0 was measured.", "Measure one; a sweep lists why it failed.")
        return by_rows[most]

    def _best_fixed_k(self) -> int:
        """The best K for all batch sizes alike; the smallest of those tied with it."""
        costs = {k: self.mean(line) for k, line in self.fixed.items()}
        best = min(costs, key=lambda k: float(costs[k].point))
        excess = {k: (mean - costs[best]).map(np.expm1).interval() for k, mean in costs.items()}
        return min(k for k, loss in excess.items() if loss.value <= TIE and loss.low <= 0)

    def mean(self, line: Sampled) -> Sampled:
        """Weighted mean over the batch sizes that are known."""
        shares = self._shares_of(line.point)
        known = shares > 0
        return Sampled(np.asarray(line.point[known] @ shares[known]), line.draws[:, known] @ shares[known])

    def _shares_of(self, line: Array) -> Array:
        """Weights of the batch sizes at which a line is known, with sum 1; 0 at the others."""
        shares = np.where(np.isfinite(line), self.weights.shares, 0.0)
        if not shares.sum():
            raise UsageError(
                "the weights lie on batch sizes that were not measured.", "Measure those, or give other weights."
            )
        return np.asarray(shares / shares.sum())

    def _gains(self, table_line: Sampled | None, fixed_line: Sampled) -> _Gains:
        tested = bool(np.isfinite(self.off.point).any())
        fixed = self.mean(self.off - fixed_line) if tested else None
        if table_line is None:
            return _Gains(None, fixed, None, None)
        over_off, over_fixed = self._confirmed(self.off if tested else None)
        table = lowered(self.mean(self.off - table_line), over_off) if tested else None
        return _Gains(table, fixed, self.mean(fixed_line - table_line), over_fixed)

    def _confirmed(self, off: Sampled | None) -> tuple[float, float]:
        """What a table saves over no speculation and over a fixed K (log ratios), chosen and judged on unlike noise.

        With x a measurement and d a draw of its noise, x + d and x - d err independently: chosen by the one and judged
        by the other, a table that only follows the noise saves nothing.
        """
        over_off, over_fixed = [], []
        for split in range(min(_SPLITS, len(self.lines.draws))):
            table = self._table(self.claimed.draws[split], np.zeros_like(self.claimed.point))
            if table:
                line = self._line(table, split)
                over_fixed.append(self._on_other_noise(self._noisy_fixed(split) - line))
                over_off.append(self._on_other_noise(drawn(off, split) - line) if off else 0.0)
        return float(np.mean(over_off)), float(np.mean(over_fixed))

    def _noisy_fixed(self, split: int) -> Sampled:
        """The fixed K that looks best with one draw of noise, with that draw alone."""
        lines = [drawn(line, split) for line in self.fixed.values()]
        return min(lines, key=lambda line: np.nansum(line.draws[0] * self._shares_of(line.point)))

    def _on_other_noise(self, saved: Sampled) -> float:
        """Weighted mean of a log ratio under the opposite of its one draw of noise: x - d is 2x - (x + d)."""
        return float(np.nansum((2 * saved.point - saved.draws[0]) * self._shares_of(saved.point)))

    def _compared_share(self) -> float:
        """Share of the weight, of all that was measured, at batch sizes where no K was left untried."""
        untried = {batch_size for batch_size, _ in self.surface.untried}
        whole = [
            not untried.intersection(neighbours(self.surface.batch_sizes, b)) for b in range(1, self.max_num_seqs + 1)
        ]
        return float(self._shares_of(least(self.log_tpot.point)) @ whole)

    def _judge(self, table: Table | None, gains: _Gains) -> Verdict:
        if self._compared_share() < ENOUGH_COMPARED:
            return Verdict.UNCLEAR
        better = bool(table) and self._table_is_better(gains)
        if gains.fixed is None:
            return Verdict.TABLE if better else Verdict.FIXED
        shares = {Verdict.FIXED: share_of(gains.fixed)}
        if table and gains.table:
            shares[Verdict.TABLE] = share_of(gains.table)
        proved = {v for v, gain in shares.items() if gain.low > 0 and gain.value >= self._worth(v)}
        if table and (table.is_constant or not table.k_max):
            proved.discard(Verdict.TABLE)
        if not proved:
            hopeless = all(gain.high < WORTH_DEPLOYING for gain in shares.values())
            return Verdict.OFF if hopeless else Verdict.UNCLEAR
        if Verdict.TABLE in proved and (better or len(proved) == 1):
            return Verdict.TABLE
        return Verdict.FIXED

    def _table_is_better(self, gains: _Gains) -> bool:
        """Whether a table beats the best fixed K, and would if it had been chosen on other noise."""
        over_fixed = _share(gains.over_fixed)
        if over_fixed is None or gains.confirmed is None:
            return False
        surely = over_fixed.low > 0 and over_fixed.value >= self._worth(Verdict.TABLE)
        return surely and gains.confirmed >= WORTH_DEPLOYING

    def _worth(self, verdict: Verdict) -> float:
        assumed = verdict is Verdict.TABLE and self.surface.table_assumed
        return WORTH_AN_UNSEEN_ENGINE if assumed else WORTH_DEPLOYING

    def _reason(self, verdict: Verdict, table: Table | None, gains: _Gains) -> str:
        if self._compared_share() < ENOUGH_COMPARED:
            return (
                f"at {1 - self._compared_share():.0%} of the weighted batch sizes some K was not measured, and the "
                "best of those that were need not be the best; measure the missing cells"
            )
        drafting = gains.table if table and table.k_max else None
        table_share, fixed, over_fixed = map(_share, (drafting, gains.fixed, gains.over_fixed))
        needed = self._worth(Verdict.TABLE)
        return reasons.why(verdict, self.aim.quantity, table_share, fixed, over_fixed, needed)

    def _worst_loss(self, line: Sampled) -> float:
        """The largest share that the best of all would save over one choice at any batch size."""
        best = least(np.column_stack([self.lines.point, self.off.point]))
        return max(0.0, float(np.nanmax(-np.expm1(best - line.point))))


def _share(log_gain: Sampled | None) -> Comparison | None:
    return compared(log_gain) if log_gain else None
