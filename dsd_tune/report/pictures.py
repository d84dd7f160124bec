"""Which pictures a profile and a run's samples can give, with captions that say how to read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dsd_tune.records.measurement import Arm, Block, Failure
from dsd_tune.records.profile import Profile
from dsd_tune.records.validation import ServedArm
from dsd_tune.report.document import Picture
from dsd_tune.report.plots.acceptance import acceptance_plot
from dsd_tune.report.plots.choices import choices_plot
from dsd_tune.report.plots.drift import drift_plot
from dsd_tune.report.plots.gain_map import gain_map
from dsd_tune.report.plots.step_time import step_time_plot
from dsd_tune.report.plots.tpot import tpot_plot
from dsd_tune.report.plots.validation import validation_plot


def pictures(profile: Profile, samples: Sequence[Block | Failure]) -> Iterator[Picture]:
    """Those that have something to show; `samples` is empty where only the profile is at hand."""
    yield Picture("tpot", f"{_TPOT} {_DRIFTING if profile.request else ''}".strip(), partial(tpot_plot, profile))
    if _has_gains(profile):
        yield Picture("gain", _GAIN, partial(gain_map, profile))
        weighted = f"{_CHOICES} In the mean, which is of {profile.decision.objective}, {profile.decision.weights}."
        yield Picture("choices", weighted, partial(choices_plot, profile))
    if any(cell.step_s and cell.cell.k for cell in profile.cells):
        yield Picture(
            "step_time", " ".join([*_step_time(profile), _critical(profile)]), partial(step_time_plot, profile)
        )
    if any(length.k for length in profile.acceptance_lengths) or profile.acceptance:
        yield Picture("acceptance", _ACCEPTANCE, partial(acceptance_plot, profile))
    if profile.validation and profile.validation.against(ServedArm.NO_SPEC):
        yield Picture("validation", _VALIDATION, partial(validation_plot, profile.validation))
    if any(isinstance(sample, Block) for sample in samples):
        yield Picture("drift", _DRIFT, partial(drift_plot, samples))


def undrawn(profile: Profile, samples: Sequence[Block | Failure]) -> Iterator[str]:
    """What is missing among the pictures, and why."""
    if not _has_gains(profile):
        yield "gains are not drawn: no engine without speculation was measured"
    if not any(length.k for length in profile.acceptance_lengths):
        yield "acceptance and step times are not drawn: acceptance is not known"
    if profile.request and not samples:
        yield "blocks are not drawn: name the run directory instead of its profile.json to see them"


def _has_gains(profile: Profile) -> bool:
    return any(cell.gain for cell in profile.cells if cell.cell.arm is not Arm.NO_SPEC)


def _step_time(profile: Profile) -> Iterator[str]:
    yield "Verification is nearly free while step time is flat."
    if profile.environment and profile.environment.graphs_dsd.capture_sizes:
        yield "Ticks at the bottom are CUDA-graph sizes."
    yield "The grey band is the 95 % interval of the size at which step time begins to rise."
    yield _critical(profile)


def _critical(profile: Profile) -> str:
    if profile.critical is None:
        return "There are too few cells for a law."
    bend = profile.critical.tokens
    where = f"Critical size: {bend.value:.0f} [{bend.low:.0f}, {bend.high:.0f}] tokens; " if bend else "No band: "
    return f"{where}{profile.critical.remark}."


_TPOT = (
    "Lower is better. A broad grey line is what the verdict would run. Dashed uprights are the table's boundaries, "
    "grey bands where the two Ks beside one are tied. Lines end where a cell is missing and are dotted where time "
    "jumps. Intervals are 95 %."
)
_DRIFTING = "They hold the machine's drift, which neighbours share: the gains tell Ks apart more sharply."
_GAIN = (
    "Percent of TPOT saved against an engine without speculation at the same batch size, ± half of the 95 % interval. "
    "What is not significant stands in brackets. Framed: chosen. Hatched: not measured, so nothing is claimed."
)
_CHOICES = "The same gain for each choice that was weighed, with 95 % intervals. Right: the mean that decides."
_ACCEPTANCE = (
    "Left, where it is known: share of the drafts at a position accepted with all before them. Right: tokens a "
    "sequence gets from a step, the bonus token included. Intervals are 95 %."
)
_VALIDATION = (
    "Left, where the profile claims something: on the dashed line it foretold what servers showed. Right: what they "
    "saved against a server without speculation. Intervals are 95 %; a single start of a server has none."
)
_DRIFT = (
    "Each dot is a block. A slow wave is the machine's drift, which all engines of a visit share. Light uprights are "
    "engine starts; below, the batch sizes as they were visited."
)
