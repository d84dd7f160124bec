"""Fit and decide while a sweep runs, to say where another look would help. Composes stages, as a command does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsd_tune.fit import Fit
    from dsd_tune.model.undecided import Undecided
    from dsd_tune.records.condition import Condition
    from dsd_tune.records.interval import Interval
    from dsd_tune.records.measurement import Block, Failure
    from dsd_tune.records.run import Manifest

LUCK_HIDES = 0.5
"""The luck of starts keeps a verdict open if so much of the gain's variance is its own."""


def judge(
    manifest: Manifest, target_regret: float
) -> Callable[[Sequence[Block | Failure]], Mapping[Condition, Undecided]]:
    """A judge for a sweep's samples; a condition that cannot be fitted yet has nothing open, nor have costs alone."""
    from dsd_tune.errors import UsageError
    from dsd_tune.fit import Fit
    from dsd_tune.model.suspects import suspects
    from dsd_tune.model.undecided import undecided
    from dsd_tune.records.measurement import Phase

    def judged(samples: Sequence[Block | Failure]) -> dict[Condition, Undecided]:
        found = {}
        for condition in manifest.request.conditions:
            here = [s for s in samples if s.condition == condition and s.phase is Phase.MAIN]
            try:
                fit = Fit(manifest, here)
                if fit.surface.cost_only:
                    continue
                open_ = undecided(fit.surface, fit.max_num_seqs, fit.capture_limit, target_regret)
                doubted = tuple((block.slot, block.cell) for block in suspects(here))
                found[condition] = replace(open_, doubted=doubted, starts=_starts(fit, open_.gain))
            except UsageError:
                continue
        return found

    return judged


def _starts(fit: Fit, gain: Interval | None) -> int:
    """One start more than there are, where the verdict is open and it is their luck that keeps it open."""
    from dsd_tune.solve import WORTH_DEPLOYING

    if fit.starts < fit.manifest.request.starts or gain is None or not gain.low <= 0 < WORTH_DEPLOYING <= gain.high:
        return 0
    margin = (gain.high - gain.low) / 2
    return fit.starts + 1 if fit.start_margin**2 > LUCK_HIDES * margin**2 else 0


def fixed_k(manifest: Manifest, samples: Sequence[Block | Failure]) -> int:
    """The fixed K to compare with: the one begun with, or else the best one by the table's engine; 0 for none."""
    from dsd_tune.fit import Fit
    from dsd_tune.records.measurement import Arm, Phase
    from dsd_tune.solve import decide

    begun = [sample.cell.k for sample in samples if sample.cell.arm is Arm.STATIC]
    main = [sample for sample in samples if sample.phase is Phase.MAIN]
    return begun[0] if begun else decide(Fit(manifest, main).surface, manifest.request.max_num_seqs).fixed_k
