"""The flags of `replay` that say what serves: a profile as measured, or with another limit or drafter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsd_tune.cli.traffic import stated_acceptance
from dsd_tune.errors import UsageError
from dsd_tune.model.aim import Aim
from dsd_tune.model.choices import Choice, advised_name, choices, verified_tokens_per_s
from dsd_tune.model.recalled import surface_of, with_acceptance
from dsd_tune.model.surface import Surface
from dsd_tune.records.profile import Profile
from dsd_tune.solve import decide

AS_MEASURED = "as measured"


@dataclass(frozen=True, slots=True)
class Scene:
    """What to compare; `advised` names the choice that the decision is for."""

    choices: tuple[Choice, ...]
    advised: str
    prefill_tokens_per_s: float
    remarks: tuple[str, ...]


def scene_of(
    profile: Profile, max_num_seqs: int | None, acceptance: str | None, prefill_tokens_per_s: float | None
) -> Scene:
    """Every choice under the flags; where they change anything, beside what the profile advises without them.

    Another drafter gets a table of its own, decided on the same step times.

    Raises:
        UsageError: a flag makes no sense, or asks for what was not measured.
    """
    measured, limit = surface_of(profile, np.random.default_rng(0)), _capture_limit(profile)
    prefill, surface, decision = _prefill(measured, prefill_tokens_per_s), measured, profile.decision
    if acceptance is not None:
        surface = with_acceptance(_split(measured, profile), stated_acceptance(acceptance, measured.ks[-1]))
        decision = decide(surface, profile.decision.max_num_seqs, Aim(capture_limit=limit))
    found = choices(surface, max_num_seqs or profile.decision.max_num_seqs, decision.table, limit)
    asks = max_num_seqs is not None or acceptance is not None
    beside = _as_measured(measured, profile, limit) if asks else ()
    return Scene((*found.known, *beside), advised_name(decision), prefill, found.remarks)


def _capture_limit(profile: Profile) -> int | None:
    """As `fit` takes it; of an import it is not known."""
    return max(profile.environment.graphs_dsd.capture_sizes, default=None) if profile.environment else None


def _as_measured(surface: Surface, profile: Profile, limit: int | None) -> tuple[Choice, ...]:
    decision = profile.decision
    advised = choices(surface, decision.max_num_seqs, decision.table, limit).named(advised_name(decision))
    return (replace(advised, name=AS_MEASURED),) if advised else ()


def _split(surface: Surface, profile: Profile) -> Surface:
    """The surface, if its step times are known apart from acceptance."""
    unknown = sorted({e.cell.k for e in profile.cells if e.step_s is None})
    if unknown:
        raise UsageError(
            f"step times at K={unknown[0]} are not known apart from acceptance.",
            "Import acceptance lengths with the grid, or sweep.",
        )
    return surface


def _prefill(surface: Surface, stated: float | None) -> float:
    if stated is None:
        stated = verified_tokens_per_s(surface)
    if not 0 < stated < np.inf:
        raise UsageError("what a prompt token costs is not known.", "Give --prefill-tokens-per-s.")
    return stated
