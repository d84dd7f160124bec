"""From blocks to estimates: the surface a decision is made on, and the profile that records both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model import acceptance, timing
from dsd_tune.model.cost import critical_size
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.measurement import Arm, Block, Cell, Failure
from dsd_tune.records.profile import (
    AcceptanceLength,
    CellEstimate,
    CriticalSize,
    Crossover,
    Decision,
    Interval,
    PositionAcceptance,
    Profile,
    Tax,
    Variance,
)
from dsd_tune.records.run import Manifest

FEW_STARTS = 3
LOW_KEPT_SHARE = 0.8
LITTLE_TEXT = 500
"""Fewer decode steps than this leave acceptance uncertain by more than a few percent."""


class Fit:
    """One run's estimates, computed once and read in several ways."""

    def __init__(self, manifest: Manifest, samples: Sequence[Block | Failure]) -> None:
        """Estimate from every block of the run.

        Raises:
            UsageError: the run lacks `no_spec` blocks or speculative ones, so nothing can be compared.
        """
        self.manifest = manifest
        self.failures = [s for s in samples if isinstance(s, Failure)]
        self.blocks = [s for s in samples if isinstance(s, Block)]
        self._main = [b for b in self.blocks if b.slot < 2 * manifest.request.starts]
        self._require_both_arms()
        self._rng = np.random.default_rng(manifest.request.seed)
        timings = timing.collect(self._main)
        self._noise = timing.estimate_noise(timings)
        self._times = timing.draw_cells(timings, self._noise, self._rng)
        self.rates = acceptance.positions(self._speculative(), manifest.request.k_max, self._rng)
        self.surface = self._surface()

    def profile(self, decision: Decision, created_at_s: float, version: str) -> Profile:
        """Everything the run says, with the decision taken on `surface`."""
        return Profile(
            environment=self.manifest.environment,
            request=self.manifest.request,
            cells=self._cell_estimates(),
            acceptance=self._position_rates(),
            acceptance_lengths=self._acceptance_lengths(),
            k0_tax=self._k0_tax(),
            crossovers=self._crossovers(),
            critical=self._critical(),
            variance=Variance(*(spread.sd for spread in (self._noise.starts, self._noise.drift, self._noise.blocks))),
            decision=decision,
            warnings=tuple(self._warnings()),
            created_at_s=created_at_s,
            dsd_tune_version=version,
        )

    def _require_both_arms(self) -> None:
        arms = {b.cell.arm for b in self._main}
        if arms != {Arm.NO_SPEC, Arm.DSD}:
            missing = " and ".join(sorted({Arm.NO_SPEC, Arm.DSD} - arms))
            raise UsageError(f"the run has no blocks of arm {missing} yet.", "Resume it: dsd-tune sweep ... -o RUN.")

    def _speculative(self) -> list[Block]:
        return [b for b in self.blocks if b.cell.arm is not Arm.NO_SPEC]

    def _surface(self) -> Surface:
        request = self.manifest.request
        log_tokens = acceptance.tokens_per_step(
            self._speculative(), request.ks, self.manifest.environment.method, self._rng
        ).map(np.log)
        no_spec = [[Cell(Arm.NO_SPEC, b, 0)] for b in request.batch_sizes]
        dsd = [[Cell(Arm.DSD, b, k) for k in request.ks] for b in request.batch_sizes]
        return Surface(
            batch_sizes=request.batch_sizes,
            ks=request.ks,
            no_spec=self._times.grid(no_spec)[:, 0],
            dsd=self._times.grid(dsd),
            log_tokens=log_tokens,
            static=self._static_ratios(),
        )

    def _static_ratios(self) -> dict[int, Sampled]:
        """Each fixed K against the `no_spec` engines that alternated with it, never against earlier ones."""
        later = [b for b in self.blocks if b.slot >= 2 * self.manifest.request.starts]
        if not later:
            return {}
        timings = timing.collect(later)
        times = timing.draw_cells(timings, timing.estimate_noise(timings), self._rng)
        batch_sizes = self.manifest.request.batch_sizes
        base = times.grid([[Cell(Arm.NO_SPEC, b, 0)] for b in batch_sizes])
        ratios = {}
        for k in sorted({c.k for c in timings.cells if c.arm is Arm.STATIC}):
            fixed = times.grid([[Cell(Arm.STATIC, b, k)] for b in batch_sizes])
            ratios[k] = (fixed - base)[:, 0]
        return ratios

    def _lines(self) -> list[tuple[Arm, int, Sampled, Sampled]]:
        """Arm, K, log step and log TPOT over batch sizes, for everything measured."""
        surface = self.surface
        lines = [(Arm.NO_SPEC, 0, surface.no_spec, surface.no_spec)]
        lines += [(Arm.DSD, k, surface.dsd[:, i], surface.table_tpot()[:, i]) for i, k in enumerate(surface.ks)]
        lines += [(Arm.STATIC, k, surface.no_spec + r, surface.fixed_tpot(k)) for k, r in surface.static.items()]
        return lines

    def _cell_estimates(self) -> tuple[CellEstimate, ...]:
        found = []
        for arm, k, log_step, log_tpot in self._lines():
            for row, batch_size in enumerate(self.surface.batch_sizes):
                cell = Cell(arm, batch_size, k)
                mine = [b for b in self.blocks if b.cell == cell]
                if mine and np.isfinite(log_tpot.point[row]):
                    found.append(self._estimate(cell, log_step[row], log_tpot[row], self.surface.no_spec[row], mine))
        return tuple(found)

    def _estimate(
        self, cell: Cell, log_step: Sampled, log_tpot: Sampled, base: Sampled, mine: list[Block]
    ) -> CellEstimate:
        return CellEstimate(
            cell=cell,
            step_s=log_step.map(np.exp).interval(),
            tpot_s=log_tpot.map(np.exp).interval(),
            gain=(base - log_tpot).map(lambda g: -np.expm1(-g)).interval(),
            starts=len({b.start for b in mine}),
            blocks=len(mine),
            kept_share=sum(len(b.step_s) for b in mine) / sum(b.steps_run for b in mine),
        )

    def _position_rates(self) -> tuple[PositionAcceptance, ...]:
        measured = np.flatnonzero(np.isfinite(self.rates.point))
        return tuple(PositionAcceptance(int(i) + 1, self.rates[i].interval()) for i in measured)

    def _acceptance_lengths(self) -> tuple[AcceptanceLength, ...]:
        tokens = self.surface.log_tokens.map(np.exp)
        measured = np.flatnonzero(np.isfinite(tokens.point))
        return tuple(AcceptanceLength(self.surface.ks[i], tokens[i].interval()) for i in measured)

    def _k0_tax(self) -> tuple[Tax, ...]:
        tax = (self.surface.dsd[:, 0] - self.surface.no_spec).map(np.expm1)
        measured = np.flatnonzero(np.isfinite(tax.point))
        return tuple(Tax(self.surface.batch_sizes[i], tax[i].interval()) for i in measured)

    def _crossovers(self) -> tuple[Crossover, ...]:
        gains = {k: self.surface.no_spec - self.surface.fixed_tpot(k) for k in self.surface.ks if k > 0}
        return tuple(self._crossover(k, gain) for k, gain in gains.items() if np.isfinite(gain.point).any())

    def _crossover(self, k: int, gain: Sampled) -> Crossover:
        """Where the gain of `k` over `no_spec` first changes sign, linear in log B between measured neighbours."""
        pays = bool(gain.point[np.isfinite(gain.point)][0] > 0)
        at = _first_crossing(gain.point, self.surface.batch_sizes)
        if at is None:
            return Crossover(k, pays, None)
        drawn = [_first_crossing(draw, self.surface.batch_sizes) for draw in gain.draws]
        edge = float(self.surface.batch_sizes[-1])
        low, high = np.quantile([edge if d is None else d for d in drawn], [0.025, 0.975])
        return Crossover(k, pays, Interval(at, min(float(low), at), max(float(high), at)))

    def _critical(self) -> CriticalSize:
        surface = self.surface
        cells = [Cell(Arm.NO_SPEC, b, 0) for b in surface.batch_sizes]
        cells += [Cell(Arm.DSD, b, k) for b in surface.batch_sizes for k in surface.ks]
        flat = surface.dsd
        point = np.concatenate([surface.no_spec.point, flat.point.ravel()])
        draws = np.concatenate([surface.no_spec.draws, flat.draws.reshape(len(flat.draws), -1)], axis=1)
        known = np.flatnonzero(np.isfinite(point))
        return critical_size([cells[i] for i in known], Sampled(point[known], draws[:, known]))

    def _warnings(self) -> list[str]:
        return [*self._failure_warnings(), *self._sampling_warnings()]

    def _failure_warnings(self) -> Iterator[str]:
        reasons = dict.fromkeys(f.reason for f in self.failures)
        for reason in reasons:
            failed = [f.cell for f in self.failures if f.reason == reason]
            cells = sorted(set(failed))
            more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
            yield f"{', '.join(map(str, cells[:3]))}{more} failed in {len(failed)} blocks: {reason}"

    def _sampling_warnings(self) -> list[str]:
        warnings = []
        request = self.manifest.request
        planned = request.starts * request.rounds * len(request.batch_sizes) * (1 + len(request.ks))
        taken = len(self._main) + sum(f.slot < 2 * request.starts for f in self.failures)
        if taken < planned:
            warnings.append(f"the sweep was not finished ({taken} of {planned} blocks): resume it to be surer")
        starts = min(len({b.start for b in self._main if b.cell.arm is arm}) for arm in (Arm.NO_SPEC, Arm.DSD))
        if starts < FEW_STARTS:
            warnings.append(f"only {starts} engine starts an arm: intervals between arms are wide (--starts 3 or more)")
        kept = sum(len(b.step_s) for b in self._main) / sum(b.steps_run for b in self._main)
        if kept < LOW_KEPT_SHARE:
            warnings.append(f"only {kept:.0%} of the steps met the rules: batch size was often not what was asked")
        steps = sum(p.steps for b in self._speculative() for p in b.prompts if b.cell.k > 0)
        if steps < LITTLE_TEXT:
            warnings.append(f"acceptance rests on {steps} decode steps: give more prompts or rounds")
        if np.any(self.rates.point == 0):
            warnings.append("a position was never accepted: does this drafter belong to this model?")
        return warnings


def _first_crossing(gain: Array, batch_sizes: Sequence[int]) -> float | None:
    """Batch size at which `gain` (one value an anchor) first changes sign, or None."""
    known = np.flatnonzero(np.isfinite(gain))
    for left, right in pairwise(known):
        if (gain[left] > 0) != (gain[right] > 0):
            share = gain[left] / (gain[left] - gain[right])
            low, high = np.log(batch_sizes[left]), np.log(batch_sizes[right])
            return float(np.exp(low + share * (high - low)))
    return None
