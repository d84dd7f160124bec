"""From a reading to a row that may be believed: the batch that really ran, real acceptance, times that agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dsd_tune.errors import UsageError
from dsd_tune.importers import counters as counting
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import RUNNING_SHARE, Running
from dsd_tune.importers.reading import Reading
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.published import PublishedAcceptance, PublishedRow

ALONE_SHARE = 0.1
"""Below this share of its time spent decoding, a request's TPOT is more likely wrong than its prefill long."""

SYNTHETIC = frozenset({"random", "random-mm", "random-rerank", "prefix_repetition", "sonnet"})
"""Datasets of `vllm bench` whose prompts are drawn at random or repeat each other."""

STEP_AGREES = 0.25
"""A step time may differ by this share from TPOT times acceptance length: clients' TPOT holds some prefill."""


class Dropped(Exception):
    """A reading that says nothing about its cell. It becomes a remark."""


def judge(reading: Reading, declared: Declared) -> PublishedRow:
    """The row that `reading` supports.

    Raises:
        Dropped: another batch ran than was offered.
        UsageError: the reading lacks what every row needs, or contradicts itself.
    """
    cell = _cell(reading, declared)
    accepted = acceptance(reading, cell.k, declared) if cell.k else None
    step_s, tpot_s = _times(reading, cell, accepted.length if accepted else 1.0 if cell.k == 0 else None)
    if cell.k and is_synthetic(reading, declared):
        return _timed_only(reading, cell, step_s)
    try:
        return PublishedRow(cell, step_s, tpot_s, accepted, reading.source)
    except ValueError as error:
        raise UsageError(f"{reading.source}: {error}.", "Correct the file.") from error


def remarks_on(reading: Reading, row: PublishedRow, declared: Declared) -> Iterator[str]:
    """What was assumed for a row, or left out of it."""
    assumed = declared.assumption_at(row.cell.k)
    if reading.arm is None and assumed:
        yield assumed
    if reading.tpot_s is None and reading.step_s is None:
        yield "TPOT is batch size over output tokens a second: the share that prefill took is in it"
    if row.cell.k and is_synthetic(reading, declared):
        yield f"acceptance left out: {reading.source} ran {reading.dataset} prompts, only its step time is used"


def is_synthetic(reading: Reading, declared: Declared) -> bool:
    """Whether acceptance in this reading says nothing about real text."""
    return reading.dataset in SYNTHETIC and not declared.allow_synthetic


def acceptance(reading: Reading, k: int, declared: Declared) -> PublishedAcceptance | None:
    """Acceptance from the best that the reading has: counts, the printed length, rates by position, or one rate.

    Raises:
        UsageError: what it has is impossible, mixes several K, or misses the steps without a draft.
    """
    method = declared.method or reading.method
    try:
        rates = reading.rates[:k] if len(reading.rates) >= k else ()
        if reading.counters:
            counted = counting.acceptance(reading.counters, k, method, reading.source)
            return replace(counted, rates=counted.rates or rates)
        length = _stated_length(reading, k)
        if length is None:
            return None
        _refuse_capped(method, length, reading.source)
        return PublishedAcceptance(k, length, rates, None, reading.source)
    except ValueError as error:
        raise UsageError(
            f"{reading.source}: {error}.", "Check whether it is a percentage, or leaves out the bonus token."
        ) from error


def _stated_length(reading: Reading, k: int) -> float | None:
    if reading.acceptance_length is not None:
        return reading.acceptance_length
    if len(reading.rates) >= k:
        return 1 + sum(reading.rates[:k])
    if reading.acceptance_rate is not None:
        # Accepted over drafted tokens; every draft has K of them.
        return 1 + reading.acceptance_rate * k
    return None


def _refuse_capped(method: str | None, length: float, source: str) -> None:
    if method in DRAFTER_FREE_METHODS:
        raise UsageError(
            f"{source}: acceptance length {length:.2f} with method {method} leaves out the steps without a draft.",
            "Give counters instead: num_drafts, draft_tokens, accepted_tokens and output_tokens.",
        )


def _cell(reading: Reading, declared: Declared) -> Cell:
    k = reading.k if reading.k is not None else reading.counters.k if reading.counters else 0
    arm = reading.arm or declared.arm_of(k)
    if arm is Arm.STATIC and k == 0:
        arm = Arm.NO_SPEC
    try:
        return Cell(arm, _batch_size(reading), k)
    except ValueError as error:
        raise UsageError(f"{reading.source}: {error}.", "Correct the row, or what you declared.") from error


def _batch_size(reading: Reading) -> int:
    """The observed batch where it was observed; the offered one where nothing contradicts it."""
    if reading.offered is None:
        raise UsageError(
            f"{reading.source} has no batch size: its clients were not held to a number of requests.",
            "Measure with --max-concurrency.",
        )
    if reading.running is not None:
        seen = Running(reading.offered, reading.running, reading.source)
        if seen.is_mixed:
            raise Dropped(str(seen))
        return seen.running
    _compare_with_littles_law(reading, reading.offered)
    return reading.offered


def _compare_with_littles_law(reading: Reading, offered: int) -> None:
    """Tokens a second times seconds a token is the mean number of requests that were decoding (Little's law)."""
    if reading.tpot_s is None or reading.output_tok_s is None:
        return
    decoding = reading.tpot_s * reading.output_tok_s
    # A request alone decodes at batch size 1, however long its prefill was.
    enough = RUNNING_SHARE if offered > 1 else ALONE_SHARE
    if decoding < enough * offered:
        raise Dropped(
            f"of {offered} offered only {decoding:.0f} were decoding ({reading.source}): tokens a second times TPOT; "
            "the rest waited, prefilled, or TPOT was divided by chunks"
        )
    if decoding > offered / RUNNING_SHARE:
        raise UsageError(
            f"{reading.source}: {reading.output_tok_s:g} tokens a second at a TPOT of {reading.tpot_s * 1e3:g} ms need "
            f"{decoding:.0f} requests, not {offered}.",
            "Check the units, and that throughput counts output tokens only.",
        )


def _times(reading: Reading, cell: Cell, length: float | None) -> tuple[float | None, float | None]:
    """Step time and TPOT, each as stated or as it follows from the other and the row's own acceptance."""
    tpot_s, step_s = reading.tpot_s, reading.step_s
    if tpot_s is None and reading.output_tok_s:
        tpot_s = cell.batch_size / reading.output_tok_s
    if tpot_s is None and step_s is None:
        raise UsageError(_without_time(reading), "Add tpot_ms, step_ms or output_tok_s.")
    if length is not None:
        step_s = step_s if step_s is not None else (tpot_s or 0.0) * length
        tpot_s = tpot_s if tpot_s is not None else step_s / length
        _refuse_disagreement(reading, step_s, tpot_s * length)
    return step_s, tpot_s


def _without_time(reading: Reading) -> str:
    if reading.has_itl:
        return (
            f"{reading.source} has only ITL, the time between outputs, and with speculation an output holds several "
            "tokens."
        )
    return f"{reading.source} has no time."


def _refuse_disagreement(reading: Reading, step_s: float, from_tpot_s: float) -> None:
    if abs(step_s / from_tpot_s - 1) > STEP_AGREES:
        raise UsageError(
            f"{reading.source}: a step time of {step_s * 1e3:g} ms is not TPOT times acceptance length "
            f"({from_tpot_s * 1e3:g} ms).",
            "Leave out the one that is wrong.",
        )


def _timed_only(reading: Reading, cell: Cell, step_s: float | None) -> PublishedRow:
    """Random prompts still time a step; their acceptance, and TPOT with it, is that of no real traffic."""
    if step_s is None:
        raise Dropped(f"{reading.source} ran {reading.dataset} prompts and has no step time apart from them")
    return PublishedRow(cell, step_s, None, None, reading.source)
