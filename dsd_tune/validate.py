"""Validate: real servers, one arm after another and back again, each loaded at every concurrency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from statistics import fmean
from typing import Protocol

from dsd_tune.errors import ProfileMismatch
from dsd_tune.model.closed_loop import Outcome
from dsd_tune.model.served import compare, measured
from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Decision, Verdict
from dsd_tune.records.validation import (
    ArmCommand,
    ArmComparison,
    Load,
    Prediction,
    ServedArm,
    Validation,
    ValidationRequest,
)

NEAR = 0.1
"""A forecast that is 10 % off is no longer the same machine, traffic or drafter."""

PAUSE_S = 3600.0
"""Between two loads of one pass. No server takes that long to start, and machines do not stay the same for longer."""

OTHER_K = 0.5
"""Tokens by which a server's mean K may be off: batches fill, drain and prefill in other moments than foretold."""

Expect = Callable[[ServedArm, int], Outcome | None]
"""What the profile says of an arm at a concurrency; None where it says nothing."""


class Client(Protocol):
    """Clients of one running server."""

    def load(self, concurrency: int, start: int) -> Load:
        """Let `concurrency` requests run at a time, as many as the request asks for.

        Raises:
            EngineFailed: the server ended, or a request failed.
        """
        ...


class Host(Protocol):
    """Where servers are started."""

    def serve(self, command: ArmCommand, start: int) -> AbstractContextManager[Client]:
        """A server that is ready, ended with the block however that ends."""
        ...


class Watcher(Protocol):
    """Whoever watches a validation."""

    def starting(self, arm: ServedArm, start: int, of: int) -> None:
        """A server is about to start."""
        ...

    def loaded(self, load: Load) -> None:
        """A load is done and on disk."""
        ...


def order(arms: Sequence[ServedArm], starts: int) -> list[tuple[ServedArm, int]]:
    """A B C, C B A, A B C, ...: a steady drift falls on all arms alike after an even number of starts.

    After an odd number the last pass has no counterpart: of three, a third of the drift within a pass is left.
    """
    return [(arm, start) for start in range(starts) for arm in (arms if start % 2 == 0 else arms[::-1])]


def run(
    request: ValidationRequest, done: Iterable[Load], host: Host, keep: Callable[[Load], None], watcher: Watcher
) -> None:
    """Take the loads that are not done yet. What an interrupted start still lacks, another server gives.

    Raises:
        EngineFailed: a server did not come up, or failed under load.
    """
    commands = {command.arm: command for command in request.commands}
    taken = {(load.arm, load.start, load.concurrency) for load in done}
    for arm, start in order(tuple(commands), request.starts):
        left = [c for c in request.concurrency if (arm, start, c) not in taken]
        if not left:
            continue
        watcher.starting(arm, start, request.starts)
        with host.serve(commands[arm], start) as client:
            for concurrency in left if start % 2 == 0 else left[::-1]:
                load = client.load(concurrency, start)
                keep(load)
                watcher.loaded(load)


def next_start(arm: ServedArm, concurrency: Sequence[int], done: Iterable[Load]) -> tuple[int, list[int]]:
    """Of an arm that others start: the start to take, with the concurrencies that it lacks.

    That is the newest one that was interrupted, for a half start is never compared; else another.
    """
    taken = {(load.start, load.concurrency) for load in done if load.arm is arm}
    begun = {start for start, _ in taken}
    halves = [start for start in begun if any((start, c) not in taken for c in concurrency)]
    start = max(halves, default=1 + max(begun, default=-1))
    return start, [c for c in concurrency if (start, c) not in taken]


def require_obedient(load: Load, expected: Outcome | None, *, may_draft_less: bool = False) -> None:
    """Make sure that a server drafts as its arm says, for otherwise its times are those of something else.

    `may_draft_less`: the method takes K for a cap, as n-gram matching does. Where requests failed nobody can tell: the
    server counted drafts of texts that never came.

    Raises:
        ProfileMismatch: it drafts otherwise; says how.
    """
    if expected is None or load.mean_k is None or load.failed:
        return
    off = load.mean_k - expected.mean_k
    if off > OTHER_K or (off < -OTHER_K and not may_draft_less):
        raise ProfileMismatch(
            f"With {load.concurrency} at a time the server of {load.arm.words!r} drafted {load.mean_k:.1f} tokens for "
            f"a request in a step, and the profile says {expected.mean_k:.1f}: {_mistaken(load.arm)}.",
            "Ask `dsd-tune doctor` what this vLLM does with the flags, and look into the server's log.",
        )


def require_same_release(load: Load, others: Iterable[Load]) -> None:
    """Make sure that all loads of a validation are of one vLLM; a server that does not tell is believed.

    Raises:
        ProfileMismatch: some of the others are of another.
    """
    here = load.vllm_version
    versions = {other.vllm_version for other in others if other.vllm_version} - {here}
    if here and versions:
        raise ProfileMismatch(
            f"This server is vLLM {here}, and loads so far are of {', '.join(sorted(versions))}.",
            "Name another directory with -o to begin anew, or put the old vLLM back.",
        )


def _mistaken(arm: ServedArm) -> str:
    if arm is ServedArm.TABLE:
        return "it ignores the table, or runs another"
    return "it speculates" if arm in (ServedArm.NO_SPEC, ServedArm.NO_SPEC_TWIN) else "it runs something else"


def advised_arm(decision: Decision) -> ServedArm:
    """The arm on trial. Where the sweep cannot tell, that is the table, or the fixed K if there is no table."""
    if decision.verdict is Verdict.OFF:
        return ServedArm.NO_SPEC
    return ServedArm.FIXED if decision.verdict is Verdict.FIXED or not decision.varying_table else ServedArm.TABLE


def conclude(
    request: ValidationRequest,
    loads: Sequence[Load],
    advised: ServedArm,
    expect: Expect,
    created_at_s: float,
    remarks: Sequence[str] = (),
) -> Validation:
    """What the loads say about the advice; `remarks` is what else there is to say of them."""
    arms = list(dict.fromkeys(load.arm for load in loads))
    advised = ServedArm.NO_SPEC_TWIN if ServedArm.NO_SPEC_TWIN in arms else advised
    expected = {
        (arm, c): expect(arm, c) for arm in arms for c in sorted({x.concurrency for x in loads if x.arm is arm})
    }
    predictions = tuple(
        Prediction(arm, c, outcome.tpot_s if outcome else None, measured(loads, arm, c))
        for (arm, c), outcome in expected.items()
    )
    with_fixed = (row for row in compare(loads, ServedArm.FIXED) if row.arm is not ServedArm.NO_SPEC)
    comparisons = (*compare(loads, ServedArm.NO_SPEC), *with_fixed)
    return Validation(
        request=request,
        advised=advised,
        comparisons=comparisons,
        predictions=predictions,
        said=_said(advised, comparisons),
        remarks=(*remarks, *_remarks(loads, predictions), *_on_acceptance(loads, expected)),
        loads=len(loads),
        created_at_s=created_at_s,
    )


def exit_code(validation: Validation) -> int:
    """0 worth deploying, 4 not as it is, 5 not known yet; of a self-check 1 if it sees a difference between equals.

    Where another arm beats no speculation though the sweep advised it, sweep and servers contradict each other: 5.
    """
    if validation.advised is ServedArm.NO_SPEC_TWIN:
        return int(validation.said in (Said.BETTER, Said.WORSE))
    if validation.advised is ServedArm.NO_SPEC:
        return 4 if validation.said is Said.SAME else 5
    return {Said.BETTER: 0, Said.UNCLEAR: 5}.get(validation.said, 4)


def _said(advised: ServedArm, comparisons: Sequence[ArmComparison]) -> Said:
    """Of the advice over all concurrencies: against no speculation, and worse where the fixed K is better than it."""
    overall = {(row.against, row.arm): row.said for row in comparisons if row.overall}
    alone = {arm: said for (against, arm), said in overall.items() if against is ServedArm.NO_SPEC}
    if advised is ServedArm.NO_SPEC:
        if Said.BETTER in alone.values():
            return Said.WORSE
        return Said.UNCLEAR if Said.UNCLEAR in alone.values() or not alone else Said.SAME
    if advised in alone and overall.get((ServedArm.FIXED, advised)) is Said.WORSE:
        return Said.WORSE
    return alone.get(advised, Said.UNCLEAR)


def _remarks(loads: Sequence[Load], predictions: Sequence[Prediction]) -> Iterable[str]:
    failed = sum(load.failed for load in loads)
    if failed:
        yield f"{failed} requests failed: what is compared is not what users would get"
    if len({load.start for load in loads}) < 3:
        yield "fewer than 3 server starts an arm: their luck is hardly known (--starts)"
    pauses = {start: _longest_pause(x for x in loads if x.start == start) for start in {x.start for x in loads}}
    longest = max(pauses, key=pauses.__getitem__, default=None)
    if longest is not None and pauses[longest] > PAUSE_S:
        yield (
            f"pass {longest + 1} paused for {pauses[longest] / 3600:.0f} h between two loads: what changed meanwhile "
            "counts as a difference of arms"
        )
    errors = [p.error for p in predictions if p.error is not None]
    off = [error for error in errors if abs(error) > NEAR]
    if off:
        by = " to ".join(dict.fromkeys(f"{error:+.0%}" for error in (min(off), max(off))))
        yield (
            f"{len(off)} of {len(errors)} predictions are more than {NEAR:.0%} off ({by}): another machine, load "
            "beside it, traffic or drafter than the sweep's"
        )
        yield from _without_the_machine(predictions)


def _longest_pause(loads: Iterable[Load]) -> float:
    """Seconds from the end of one load to the next."""
    taken = sorted(loads, key=lambda load: load.taken_at_s)
    gaps = (later.taken_at_s - (load.taken_at_s + load.duration_s) for load, later in pairwise(taken))
    return max(gaps, default=0.0)


def _without_the_machine(predictions: Sequence[Prediction]) -> Iterable[str]:
    """How far off the arms are against no speculation: a machine that is slower for all alike is not in it."""
    errors = {(p.arm, p.concurrency): p.error for p in predictions if p.error is not None}
    left = [
        (1 + error) / (1 + errors[ServedArm.NO_SPEC, c]) - 1
        for (arm, c), error in errors.items()
        if arm is not ServedArm.NO_SPEC and (ServedArm.NO_SPEC, c) in errors
    ]
    if left:
        yield f"against no speculation they are off by {min(left):+.0%} to {max(left):+.0%}, the machine left aside"


def _on_acceptance(loads: Sequence[Load], expected: Mapping[tuple[ServedArm, int], Outcome | None]) -> Iterable[str]:
    """Where drafts yielded most unlike the sweep: that is no matter of the machine."""
    ratios = []
    for (arm, c), outcome in expected.items():
        lengths = [x.acceptance_length for x in loads if (x.arm, x.concurrency) == (arm, c) and x.acceptance_length]
        if lengths and outcome is not None and outcome.acceptance_length is not None:
            ratios.append((fmean(lengths) / outcome.acceptance_length, fmean(lengths), arm, c))
    off = [one for one in ratios if abs(one[0] - 1) > NEAR]
    if off:
        ratio, length, arm, c = max(off, key=lambda one: abs(one[0] - 1))
        yield (
            f"a step with drafts yields {length:.2f} tokens on servers and {length / ratio:.2f} in the sweep "
            f"({arm.words}, {c} at a time): other texts or lengths, another drafter, or one whose weights were not "
            "loaded"
        )
