"""The estimates of one condition: times and acceptance from its blocks, and the surface that a decision is made on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from dsd_tune.model import acceptance, timing
from dsd_tune.model.filling import fill
from dsd_tune.model.findings import Findings, Support
from dsd_tune.model.limits import limit
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.model.trend import trend
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.profile import Comparison, ConditionResult, Decision, Variance
from dsd_tune.records.run import Manifest


class ConditionFit:
    """One condition's estimates, computed once and read in several ways.

    Those of the other conditions draw the same random numbers. So the luck of a start, which all conditions of an
    engine share, is common to them in their mean too; that the scatter of blocks is then taken as common errs on the
    safe side.
    """

    def __init__(self, manifest: Manifest, condition: Condition, samples: Sequence[Block | Failure]) -> None:
        """Estimate from the condition's samples, blocks of both arms among them."""
        self.condition = condition
        self.blocks = [s for s in samples if isinstance(s, Block)]
        self._manifest = manifest
        self._failed = frozenset(s.cell for s in samples if isinstance(s, Failure))
        self._tried = {s.cell for s in samples if s.phase is Phase.MAIN}
        self._main = [b for b in self.blocks if b.phase is Phase.MAIN]
        self._rng = np.random.default_rng(manifest.request.seed)
        self._timings = timing.collect(self._main)
        self._noise = timing.estimate_noise(self._timings)
        self._times = timing.draw_cells(self._timings, self._noise, self._rng)
        self.surface = self._surface()

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those that the table's engine measured, or tried to."""
        return tuple(sorted({cell.batch_size for cell in self._tried if cell.arm is Arm.DSD}))

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
    def scatter(self) -> float:
        """Relative standard deviation between blocks of a visit."""
        return self._noise.within_visit_sd

    def variations(self) -> dict[Cell, float]:
        """Relative standard deviation of blocks within each cell that has enough of them."""
        return timing.variations(self._timings)

    def result(self, decision: Decision, regret: Comparison | None) -> ConditionResult:
        """What holds under this condition, with the decision taken on `surface`."""
        findings = Findings(self.surface, frozenset(self.surface.ks))
        lengths = () if self.surface.cost_only else findings.acceptance_lengths()
        return ConditionResult(self.condition, findings.cells(support([self])), lengths, decision, regret)

    def variance(self, decision: Decision) -> Variance:
        """Where the noise comes from, and what it limits."""
        noise = self._noise
        return Variance(
            between_starts=noise.starts.sd,
            drift=noise.drift.sd,
            between_blocks=noise.within_visit_sd,
            trend=trend(self._timings),
            limit=limit(decision, self.surface, self._timings, noise),
        )

    def _surface(self) -> Surface:
        environment, ks = self._manifest.environment, self._manifest.request.ks
        grid = [[Cell(Arm.NO_SPEC, b, 0), *(Cell(Arm.DSD, b, k) for k in ks)] for b in self.batch_sizes]
        measured = self._times.grid(grid)
        whole = fill(measured, self.batch_sizes, np.array([[self._may_fill(cell) for cell in row] for row in grid]))
        missing = np.isnan(measured.point)
        filled = frozenset(grid[i][j] for i, j in np.argwhere(missing & np.isfinite(whole.point)))
        left_out = {grid[i][j] for i, j in np.argwhere(missing)} - filled
        return Surface(
            batch_sizes=self.batch_sizes,
            ks=ks,
            no_spec=whole[:, 0],
            dsd=whole[:, 1:],
            log_tokens=self._tokens_per_step().map(np.log),
            static=self._static_ratios(),
            untried=frozenset((cell.batch_size, cell.k) for cell in left_out if cell.arm is Arm.DSD),
            filled=filled,
            cost_only=environment.cost_only and not environment.synthetic_acceptance,
        )

    def _may_fill(self, cell: Cell) -> bool:
        """Between the anchors a sweep measures only what could win there; what failed there is no such cell."""
        return cell.batch_size not in self._manifest.request.batch_sizes and cell not in self._failed

    def _tokens_per_step(self) -> Sampled:
        ks, environment = self._manifest.request.ks, self._manifest.environment
        if environment.cost_only:
            return acceptance.stated_tokens_per_step(environment.synthetic_acceptance, ks)
        return acceptance.tokens_per_step(speculative(self.blocks), ks, environment.method, self._rng)

    def _static_ratios(self) -> dict[int, Sampled]:
        """Each fixed K against the `no_spec` engines that alternated with it, never against earlier ones."""
        later = [b for b in self.blocks if b.phase is Phase.STATIC]
        if not later:
            return {}
        timings = timing.collect(later)
        times = timing.draw_cells(timings, timing.estimate_noise(timings), self._rng)
        anchors = tuple(b for b in self.batch_sizes if b in self._manifest.request.batch_sizes)
        base = times.grid([[Cell(Arm.NO_SPEC, b, 0)] for b in anchors])
        ratios = {}
        for k in sorted({c.k for c in timings.cells if c.arm is Arm.STATIC}):
            fixed = times.grid([[Cell(Arm.STATIC, b, k)] for b in anchors])
            ratios[k] = spread((fixed - base)[:, 0], anchors, anchors[-1])[np.array(self.batch_sizes) - 1]
        return ratios


def missing_arms(samples: Iterable[Block | Failure]) -> list[Arm]:
    """Of the two that a decision needs."""
    measured = {s.cell.arm for s in samples if isinstance(s, Block) and s.phase is Phase.MAIN}
    return sorted({Arm.NO_SPEC, Arm.DSD} - measured)


def speculative(blocks: Iterable[Block]) -> list[Block]:
    """Those that tell of acceptance."""
    return [b for b in blocks if b.cell.arm is not Arm.NO_SPEC]


def support(parts: Iterable[ConditionFit]) -> dict[Cell, Support]:
    """What each cell rests on under all of the conditions; its scatter is that of the noisiest."""
    by_cell: dict[Cell, list[Block]] = defaultdict(list)
    cvs: dict[Cell, float] = {}
    for part in parts:
        for block in part.blocks:
            by_cell[block.cell].append(block)
        cvs |= {cell: max(cv, cvs.get(cell, 0.0)) for cell, cv in part.variations().items()}
    return {cell: _support_of(blocks, cvs.get(cell)) for cell, blocks in by_cell.items()}


def _support_of(blocks: Sequence[Block], cv: float | None) -> Support:
    kept, run = sum(len(b.step_s) for b in blocks), sum(b.steps_run for b in blocks)
    return Support(len({b.start for b in blocks}), len(blocks), kept / run, cv)
