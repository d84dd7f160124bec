"""From blocks, or numbers of others, to estimates: the surface a decision is made on, and the profile of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model import acceptance
from dsd_tune.model.condition_fit import ConditionFit, missing_arms, speculative, support
from dsd_tune.model.face_value import face_value
from dsd_tune.model.findings import Findings, Support
from dsd_tune.model.published import pooled_lengths, surface_from_published
from dsd_tune.model.roofline import roofline_of, roofline_tokens
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import mean_surface
from dsd_tune.records.measurement import Arm, Block, Cell, Failure
from dsd_tune.records.profile import Decision, PositionAcceptance, Profile, Variance
from dsd_tune.records.published import Published
from dsd_tune.records.run import Manifest
from dsd_tune.records.warning import QualityWarning


class Fit:
    """One run's estimates: those of each of its conditions, and their mean, each counting alike."""

    def __init__(self, manifest: Manifest, samples: Sequence[Block | Failure]) -> None:
        """Estimate from every block of the run; conditions that have not come to both arms yet are left out.

        Raises:
            UsageError: the run lacks `no_spec` blocks or speculative ones, so nothing can be compared.
        """
        self.manifest = manifest
        self.blocks = [s for s in samples if isinstance(s, Block)]
        self.parts = _parts(manifest, samples)
        self.surface = mean_surface([part.surface for part in self.parts])

    @property
    def max_num_seqs(self) -> int:
        """The largest batch size to decide for."""
        return self.manifest.request.max_num_seqs

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those that the table's engine measured under every condition, or tried to."""
        return self.surface.batch_sizes

    @property
    def starts(self) -> int:
        """Engine starts of the arm that has fewer, under the condition that has fewest."""
        return min(part.starts for part in self.parts)

    @property
    def start_margin(self) -> float:
        """See `ConditionFit.start_margin`; that of the condition where it is widest."""
        return max(part.start_margin for part in self.parts)

    @property
    def capture_limit(self) -> int | None:
        """Tokens in flight up to which the table's engine has CUDA graphs; None without them."""
        return max(self.manifest.environment.graphs_dsd.capture_sizes, default=None)

    @cached_property
    def findings(self) -> Findings:
        """What the surface tells besides the decision."""
        return Findings(self.surface, frozenset(self.surface.ks))

    @cached_property
    def rates(self) -> Sampled:
        """Acceptance by position over all conditions; nan where nothing was counted."""
        k_max, rng = self.manifest.request.k_max, np.random.default_rng(self.manifest.request.seed)
        return acceptance.positions(speculative(self.blocks), k_max, rng)

    def profile(
        self, decision: Decision, created_at_s: float, version: str, warnings: tuple[QualityWarning, ...] = ()
    ) -> Profile:
        """Everything the run says on average, with the decision taken on `surface` and what is doubtful about it."""
        findings, cost_only = self.findings, self.surface.cost_only
        noisiest = max(self.parts, key=lambda part: part.scatter)
        return Profile(
            environment=self.manifest.environment,
            request=self.manifest.request,
            facts=(),
            cells=findings.cells(support(self.parts)),
            acceptance=self._position_rates(),
            acceptance_lengths=() if cost_only else findings.acceptance_lengths(),
            k0_tax=findings.k0_tax(),
            crossovers=() if cost_only else findings.crossovers(),
            critical=findings.critical(),
            roofline_tokens=roofline_tokens(self.manifest.environment),
            held_out=findings.held_out(),
            variance=noisiest.variance(decision),
            decision=decision,
            conditions=(),
            warnings=warnings,
            validation=None,
            created_at_s=created_at_s,
            dsd_tune_version=version,
        )

    def _position_rates(self) -> tuple[PositionAcceptance, ...]:
        measured = np.flatnonzero(np.isfinite(self.rates.point))
        return tuple(PositionAcceptance(int(i) + 1, self.rates[i].interval()) for i in measured)


def _parts(manifest: Manifest, samples: Sequence[Block | Failure]) -> tuple[ConditionFit, ...]:
    groups = {condition: [s for s in samples if s.condition == condition] for condition in manifest.request.conditions}
    begun = {condition: group for condition, group in groups.items() if not missing_arms(group)}
    if not begun:
        missing = " and ".join(missing_arms(samples)) or "no_spec and dsd under one condition"
        raise UsageError(f"the run has no blocks of arm {missing} yet.", "Resume it: dsd-tune sweep ... -o RUN.")
    return tuple(ConditionFit(manifest, condition, group) for condition, group in begun.items())


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
            roofline_tokens=roofline_of(self.published.fact("gpu") or ""),
            held_out=findings.held_out(),
            variance=Variance(self.published.start_sd, 0.0, self.published.cell_sd, trend=None, limit=None),
            decision=replace(decision, remarks=(*decision.remarks, *self._at_face_value(decision.fixed_k))),
            conditions=(),
            warnings=warnings,
            validation=None,
            created_at_s=created_at_s,
            dsd_tune_version=version,
        )

    def _at_face_value(self, fixed_k: int) -> Iterator[str]:
        """How the grid reads to whoever takes no number for luck, beside a decision that does."""
        if read := face_value(self.published):
            yield (
                "taken at face value (the smallest K within 2 % of the best, carried up to the next batch size) these "
                f"numbers say {str(read.table.as_lists()).replace(' ', '')}, and that fixed K={fixed_k} loses "
                f"{read.worst_loss(fixed_k):.1%} at worst; neither luck nor the engine of a table is in that"
            )

    def _support(self) -> dict[Cell, Support]:
        rows = Counter(row.cell for row in self.published.rows)
        return {cell: Support(1, count, 1.0) for cell, count in rows.items()}

    def _has(self, arm: Arm, k: int) -> bool:
        return any(row.cell.arm is arm and row.cell.k == k for row in self.published.rows)
