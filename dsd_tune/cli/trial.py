"""A validation from its request to its record, as `validate` and `tune` run it. Composes stages, as a command does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from rich.console import Console

from dsd_tune.engines.vllm_host import VllmHost
from dsd_tune.errors import ProfileMismatch
from dsd_tune.model.closed_loop import ClosedLoop, Expectations, Outcome
from dsd_tune.model.served import prefill_s
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS
from dsd_tune.records.profile import Profile
from dsd_tune.records.prompt import Prompt
from dsd_tune.records.validation import Load, ServedArm, Validation, ValidationRequest
from dsd_tune.report.validation import Progress
from dsd_tune.storage import formats
from dsd_tune.storage.fingerprint import drafter_digest, model_digest, prompts_digest
from dsd_tune.storage.validation_directory import ValidationDirectory
from dsd_tune.validate import (
    OTHER_K,
    Expect,
    advised_arm,
    conclude,
    next_start,
    require_obedient,
    require_same_release,
    run,
)


def tried(
    path: Path,
    request: ValidationRequest,
    texts: Sequence[Prompt],
    out: Path | None,
    port: int,
    running: tuple[str, ServedArm] | None = None,
) -> Validation:
    """Take the loads that are missing, and put what they say into the profile at `path`.

    Nothing is put there by a self-check, nor by loads that cannot tell where others could.

    `running` is a server that others started, with the arm that it is said to be: it gives one more start of that, or
    what an interrupted one lacks.

    Raises:
        ProfileMismatch: model or drafter are not those of the sweep, or a server does something else than its arm.
        UsageError: `out` holds another validation.
        EngineFailed: a server did not come up, or failed under load.
    """
    profile = formats.read(formats.PROFILE, path)
    assert profile.request
    if running is None:
        require_same_models(profile)
    beside = path.parent / "validation"
    directory = ValidationDirectory.create(out, request) if out else ValidationDirectory.beside(beside, request)
    request, expectations, console = directory.request, Expectations(profile), Console(stderr=True)
    with directory.lock():
        host = VllmHost(request, texts, profile.request.model, port, directory.path)
        try:
            _measure(directory, host, _judge(profile, expectations), Progress(console, request), running)
        except KeyboardInterrupt:
            said = f"Interrupted. The loads so far are kept in {directory.path}; the same command goes on from there."
            console.print(said, markup=False)
            raise
    loads = directory.loads()
    expect = _expectation(expectations, loads, prefill_s(loads))
    remarks = (
        *_on_release(profile, loads),
        *_on_conditions(profile, request),
        *_on_texts(profile, texts),
        *_on_reach(profile, loads, expect),
    )
    validation = conclude(request, loads, advised_arm(profile.decision), expect, time.time(), remarks)
    kept = profile.validation
    if kept is not None and kept.outlasts(validation):
        said = f"These loads cannot tell. The profile keeps the record it had: {kept.outcome}."
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    elif validation.advised is not ServedArm.NO_SPEC_TWIN:
        formats.write(formats.PROFILE, path, replace(profile, validation=validation))
    return validation


def require_same_models(profile: Profile) -> None:
    """Raise ProfileMismatch, naming it, if the model or the drafter is not what the profile was measured with."""
    if profile.environment is None or profile.request is None:
        return
    config, was = json.loads(profile.request.speculative_config), profile.environment
    now = (
        ("model", model_digest(profile.request.model), was.model_digest),
        ("drafter", drafter_digest(config), was.drafter_digest),
    )
    for what, digest, measured in now:
        if digest != measured:
            where = profile.request.model if what == "model" else config.get("model", "its settings")
            raise ProfileMismatch(
                f"The {what} ({where}) is not the one that the profile was measured with: its digest is another.",
                "Put the old one back, or sweep and fit with the new one.",
            )


def _measure(
    directory: ValidationDirectory,
    host: VllmHost,
    judge: Callable[[Load], None],
    watcher: Progress,
    running: tuple[str, ServedArm] | None,
) -> None:
    """The loads that are missing. One that is not of its arm is not kept: another is taken once that is mended."""
    loads = directory.loads()

    def keep(load: Load) -> None:
        judge(load)
        require_same_release(load, directory.loads())
        directory.append(load)

    if running is None:
        run(directory.request, loads, host, keep, watcher)
        return
    url, label = running
    start, left = next_start(label, directory.request.concurrency, loads)
    client = host.client(url.rstrip("/"), label)
    watcher.starting(label, start, start + 1)
    for concurrency in left:
        load = client.load(concurrency, start)
        keep(load)
        watcher.loaded(load)


def _judge(profile: Profile, expectations: Expectations) -> Callable[[Load], None]:
    capped = profile.environment is not None and profile.environment.method in DRAFTER_FREE_METHODS

    def judge(load: Load) -> None:
        alone = _expectation(expectations, [load], 0.0)
        require_obedient(load, alone(load.arm, load.concurrency), may_draft_less=capped)

    return judge


def _expectation(expectations: Expectations, loads: Sequence[Load], prompt_s: float) -> Expect:
    """What the profile says of texts as long as those that came out."""

    @cache
    def expect(arm: ServedArm, concurrency: int) -> Outcome | None:
        texts = tuple(load.texts for load in loads if (load.arm, load.concurrency) == (arm, concurrency))
        return expectations.of(arm, ClosedLoop(concurrency, texts, prompt_s))

    return expect


def _on_conditions(profile: Profile, request: ValidationRequest) -> Iterator[str]:
    """Under which of several conditions servers ran."""
    swept = profile.request
    if swept is not None and len(swept.conditions) > 1:
        contexts, temperatures = ", ".join(map(str, swept.contexts)), ", ".join(f"{t:g}" for t in swept.temperatures)
        yield (
            f"servers ran under one condition, temperature {request.temperature:g} and texts of up to "
            f"{request.output_tokens} output tokens; the sweep had several (contexts {contexts}; temperatures "
            f"{temperatures}), and the mean of all is what is advised and foretold"
        )


def _on_release(profile: Profile, loads: Sequence[Load]) -> Iterator[str]:
    """Whether servers were the vLLM of the sweep."""
    swept = profile.environment.vllm_version if profile.environment else None
    for served in sorted({load.vllm_version for load in loads if load.vllm_version} - {swept}):
        yield f"servers ran vLLM {served}, and the sweep {swept}: what is foretold is of the latter"


def _on_texts(profile: Profile, texts: Sequence[Prompt]) -> Iterator[str]:
    if profile.environment is not None and profile.environment.prompts_digest == prompts_digest(tuple(texts)):
        yield "the texts are those of the sweep: the drafter has not been tried on others"


def _on_reach(profile: Profile, loads: Sequence[Load], expect: Expect) -> Iterator[str]:
    """Whether a server that ignores the table would have been seen: it drafts the largest K everywhere."""
    table = profile.decision.varying_table
    outcomes = [expect(load.arm, load.concurrency) for load in loads if load.arm is ServedArm.TABLE]
    ks = [outcome.mean_k for outcome in outcomes if outcome is not None]
    if table and ks and min(ks) >= table.k_max - OTHER_K:
        less = next(r.first for r in table.ranges if r.k < table.k_max)
        yield (
            f"the table drafts {table.k_max} in all these loads, as a server that ignores it would; load it with "
            f"{less} or more at a time, too"
        )
