"""From blocks, or numbers of others, to estimates: the surface a decision is made on, and the profile of both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model import acceptance, timing
from dsd_tune.model.filling import fill
from dsd_tune.model.findings import Findings, Support
from dsd_tune.model.limits import limit
from dsd_tune.model.published import pooled_lengths, surface_from_published
from dsd_tune.model.roofline import roofline_tokens
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.model.trend import trend
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.profile import Decision, PositionAcceptance, Profile, Variance
from dsd_tune.records.published import Published
from dsd_tune.records.run import Manifest
from dsd_tune.records.warning import QualityWarning


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
        self._main = [b for b in self.blocks if b.phase is Phase.MAIN]
        self._require_both_arms()
        self._rng = np.random.default_rng(manifest.request.seed)
        self._timings = timing.collect(self._main)
        self._noise = timing.estimate_noise(self._timings)
        self._times = timing.draw_cells(self._timings, self._noise, self._rng)
        self.rates = acceptance.positions(self._speculative(), manifest.request.k_max, self._rng)
        self.surface = self._surface()

    @property
    def max_num_seqs(self) -> int:
        """The largest batch size to decide for."""
        return self.manifest.request.max_num_seqs

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those that the table's engine measured, or tried to."""
        tried = [block.cell for block in self._main] + [f.cell for f in self.failures if f.phase is Phase.MAIN]
        return tuple(sorted({cell.batch_size for cell in tried if cell.arm is Arm.DSD}))

    @property
    def starts(self) -> int:
        """Engine starts of the arm that has fewer."""
        return min(len({b.start for b in self._main if b.cell.arm is arm}) for arm in (Arm.NO_SPEC, Arm.DSD))

    @property
    def start_margin(self) -> float:
        """Half a 95 % interval of the arms' log ratio, if nothing but the luck of starts were unsure."""
        from scipy.special import stdtrit

        luck = self._noise.starts
        return float(stdtrit(luck.df, 0.975) * luck.sd * np.sqrt(2 / self.starts))

    @property
    def capture_limit(self) -> int | None:
        """Tokens in flight up to which the table's engine has CUDA graphs; None without them."""
        return max(self.manifest.environment.graphs_dsd.capture_sizes, default=None)

    @cached_property
    def findings(self) -> Findings:
        """What the surface tells besides the decision."""
        return Findings(self.surface, frozenset(self.surface.ks))

    def profile(
        self, decision: Decision, created_at_s: float, version: str, warnings: tuple[QualityWarning, ...] = ()
    ) -> Profile:
        """Everything the run says, with the decision taken on `surface` and what is doubtful about it."""
        findings = self.findings
        return Profile(
            environment=self.manifest.environment,
            request=self.manifest.request,
            facts=(),
            cells=findings.cells(self._support()),
            acceptance=self._position_rates(),
            acceptance_lengths=findings.acceptance_lengths(),
            k0_tax=findings.k0_tax(),
            crossovers=findings.crossovers(),
            critical=findings.critical(),
            roofline_tokens=roofline_tokens(self.manifest.environment),
            held_out=findings.held_out(),
            variance=self._variance(decision),
            decision=decision,
            warnings=warnings,
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
        grid = [[Cell(Arm.NO_SPEC, b, 0), *(Cell(Arm.DSD, b, k) for k in request.ks)] for b in self.batch_sizes]
        measured = self._times.grid(grid)
        whole = fill(measured, self.batch_sizes, np.array([[self._may_fill(cell) for cell in row] for row in grid]))
        missing = np.isnan(measured.point)
        filled = frozenset(grid[i][j] for i, j in np.argwhere(missing & np.isfinite(whole.point)))
        left_out = {grid[i][j] for i, j in np.argwhere(missing)} - filled
        return Surface(
            batch_sizes=self.batch_sizes,
            ks=request.ks,
            no_spec=whole[:, 0],
            dsd=whole[:, 1:],
            log_tokens=log_tokens,
            static=self._static_ratios(),
            untried=frozenset((cell.batch_size, cell.k) for cell in left_out if cell.arm is Arm.DSD),
            filled=filled,
        )

    def _may_fill(self, cell: Cell) -> bool:
        """Between the anchors a sweep measures only what could win there; what failed there is no such cell."""
        return cell.batch_size not in self.manifest.request.batch_sizes and cell not in {f.cell for f in self.failures}

    def _static_ratios(self) -> dict[int, Sampled]:
        """Each fixed K against the `no_spec` engines that alternated with it, never against earlier ones."""
        later = [b for b in self.blocks if b.phase is Phase.STATIC]
        if not later:
            return {}
        timings = timing.collect(later)
        times = timing.draw_cells(timings, timing.estimate_noise(timings), self._rng)
        anchors = tuple(b for b in self.batch_sizes if b in self.manifest.request.batch_sizes)
        base = times.grid([[Cell(Arm.NO_SPEC, b, 0)] for b in anchors])
        ratios = {}
        for k in sorted({c.k for c in timings.cells if c.arm is Arm.STATIC}):
            fixed = times.grid([[Cell(Arm.STATIC, b, k)] for b in anchors])
            ratios[k] = spread((fixed - base)[:, 0], anchors, anchors[-1])[np.array(self.batch_sizes) - 1]
        return ratios

    def _support(self) -> dict[Cell, Support]:
        by_cell: dict[Cell, list[Block]] = defaultdict(list)
        for block in self.blocks:
            by_cell[block.cell].append(block)
        cvs = timing.variations(self._timings)
        return {cell: _support_of(blocks, cvs.get(cell)) for cell, blocks in by_cell.items()}

    def _position_rates(self) -> tuple[PositionAcceptance, ...]:
        measured = np.flatnonzero(np.isfinite(self.rates.point))
        return tuple(PositionAcceptance(int(i) + 1, self.rates[i].interval()) for i in measured)

    def _variance(self, decision: Decision) -> Variance:
        noise = self._noise
        return Variance(
            between_starts=noise.starts.sd,
            drift=noise.drift.sd,
            between_blocks=noise.blocks.sd,
            trend=trend(self._main),
            limit=limit(decision, self.surface, self._timings, noise),
        )


def _support_of(blocks: Sequence[Block], cv: float | None) -> Support:
    kept, run = sum(len(b.step_s) for b in blocks), sum(b.steps_run for b in blocks)
    return Support(len({b.start for b in blocks}), len(blocks), kept / run, cv)


class ImportFit:
    """An import's estimates: single numbers of somebody else, with the deviations that had to be assumed."""

    def __init__(self, published: Published) -> None:
        """Estimate from an import.

        Raises:
            UsageError: it has no times, or times of a K whose acceptance is not known.
        """
        self.published = published
        self.surface = surface_from_published(published, np.random.default_rng(0))

    @property
    def max_num_seqs(self) -> int:
        """The largest batch size to decide for: nothing is claimed past the last one measured."""
        return self.surface.batch_sizes[-1]

    @property
    def capture_limit(self) -> None:
        """Not known: whoever fits may state it."""
        return

    @cached_property
    def findings(self) -> Findings:
        """What the surface tells besides the decision."""
        return Findings(self.surface, frozenset({0, *pooled_lengths(self.published)}))

    def profile(
        self, decision: Decision, created_at_s: float, version: str, warnings: tuple[QualityWarning, ...] = ()
    ) -> Profile:
        """Everything the import says, with the decision taken on `surface` and what is doubtful about it."""
        findings = self.findings
        return Profile(
            environment=None,
            request=None,
            facts=self.published.facts,
            cells=findings.cells(self._support()),
            acceptance=(),
            acceptance_lengths=findings.acceptance_lengths(),
            k0_tax=findings.k0_tax() if self._has(Arm.DSD, 0) else (),
            crossovers=findings.crossovers(),
            critical=findings.critical(),
            roofline_tokens=None,
            held_out=findings.held_out(),
            variance=Variance(self.published.start_sd, 0.0, self.published.cell_sd, trend=None, limit=None),
            decision=decision,
            warnings=warnings,
            created_at_s=created_at_s,
            dsd_tune_version=version,
        )

    def _support(self) -> dict[Cell, Support]:
        rows = Counter(row.cell for row in self.published.rows)
        return {cell: Support(1, count, 1.0) for cell, count in rows.items()}

    def _has(self, arm: Arm, k: int) -> bool:
        return any(row.cell.arm is arm and row.cell.k == k for row in self.published.rows)
