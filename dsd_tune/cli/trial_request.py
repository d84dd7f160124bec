"""From a profile and a user's words to what a validation runs: arms and loads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dsd_tune.cli.adaptive import adaptive_arm
from dsd_tune.emit.serve_line import arguments
from dsd_tune.errors import UsageError
from dsd_tune.model.closed_loop import Expectations
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.prompt import Prompt
from dsd_tune.records.validation import ArmCommand, ServedArm, ValidationRequest
from dsd_tune.runtime.policies.choice import PolicyName

DEFAULT_LEVELS = (1, 4, 16)

FEWEST_TOLD_APART = 2
"""After one start an arm nothing says how much starts differ by themselves."""

FEWEST_WAVES = 2
"""A load of one wave would be measured while it fills and drains."""


def chosen_prompts(prompts: Path | None, *, testbed: bool) -> tuple[Prompt, ...]:
    """The texts to load servers with.

    Raises:
        UsageError: no file is named, or it holds no prompts.
    """
    from dsd_tune.storage.prompts import load_prompts

    if prompts is None and not testbed:
        raise UsageError("--prompts must be given.", "Name texts like your traffic that the sweep did not see.")
    if prompts is None:
        import sys

        from dsd_tune.testbed.prepare import prepare

        prompts = prepare(lambda line: print(line, file=sys.stderr)).prompts
    return load_prompts(prompts)


def server_and_label(url: str | None, label: ServedArm | None) -> tuple[str, ServedArm] | None:
    """A server that runs already and the arm that it is said to be; None for servers to be started.

    Raises:
        UsageError: only one of the two is given.
    """
    if (url is None) != (label is None):
        raise UsageError("--url and --label go together.", "Name the server, and the arm that it runs.")
    return None if url is None or label is None else (url, label)


def stated_request(
    profile: Profile,
    path: Path,
    prompts: Sequence[Prompt],
    *,
    concurrency: str | None,
    starts: int,
    duration_s: float,
    output_tokens: int | None,
    policy: PolicyName | None = None,
    adaptive_verification: bool = False,
    self_check: bool = False,
    served_elsewhere: bool = False,
) -> ValidationRequest:
    """Everything made explicit.

    Raises:
        UsageError: the profile is an import or of cost alone, a concurrency is beyond what it measured, a policy has no
            table, or a self-check a single start.
        EnvironmentUnfit: vLLM cannot run adaptive verification here.
    """
    from dsd_tune.storage.fingerprint import prompts_digest

    if profile.request is None:
        raise UsageError("an import names no model to serve.", "Validate the profile of a sweep.")
    if not profile.acceptance_known:
        what = "a profile of cost alone advises nothing that servers could prove."
        raise UsageError(what, "Sweep with weights and drafter, or state acceptance with --synthetic-acceptance.")
    if self_check and starts < FEWEST_TOLD_APART:
        raise UsageError("a self-check of one start cannot tell anything.", "Give --starts 2 or more.")
    at_a_time = levels(concurrency, profile.decision.max_num_seqs)
    output_tokens = output_tokens or max(2, profile.request.contexts[0] // 2)
    expectations = Expectations(profile)
    if served_elsewhere:
        arms: Iterator[ArmCommand] = iter(())
    elif self_check:
        arms = _twins(profile)
    else:
        arms = _arms(profile, path, policy, adaptive_verification=adaptive_verification)
    return ValidationRequest(
        commands=tuple(arms),
        concurrency=at_a_time,
        starts=starts,
        requests=tuple(
            _requests(c, expectations.steady_tpot_s(ServedArm.NO_SPEC, c), duration_s, output_tokens) for c in at_a_time
        ),
        output_tokens=output_tokens,
        temperature=profile.request.temperatures[0],
        prompts_digest=prompts_digest(tuple(prompts)),
    )


def _arms(
    profile: Profile, path: Path, policy: PolicyName | None, *, adaptive_verification: bool
) -> Iterator[ArmCommand]:
    """No speculation, the best fixed K, the table where there is one worth the name, and what else is asked for."""
    yield _arm(profile, ServedArm.NO_SPEC, Verdict.OFF)
    yield _arm(profile, ServedArm.FIXED, Verdict.FIXED)
    if profile.decision.varying_table:
        yield _arm(profile, ServedArm.TABLE, Verdict.TABLE)
    if policy is not None:
        yield _by_policy(profile, path, policy)
    if adaptive_verification:
        yield adaptive_arm(profile)


def _by_policy(profile: Profile, path: Path, policy: PolicyName) -> ArmCommand:
    if profile.decision.verdict is not Verdict.TABLE:
        raise UsageError("--policy needs a profile that advises a table.", "The runtime applies no other.")
    # Strict: a server that runs as without the runtime would pass for one with it.
    settings = (("DSD_TUNE_PROFILE", str(path.resolve())), ("DSD_TUNE_POLICY", policy), ("DSD_TUNE_STRICT", "1"))
    return replace(_arm(profile, ServedArm.POLICY, Verdict.TABLE), environment=settings)


def _twins(profile: Profile) -> Iterator[ArmCommand]:
    yield _arm(profile, ServedArm.NO_SPEC, Verdict.OFF)
    yield _arm(profile, ServedArm.NO_SPEC_TWIN, Verdict.OFF)


def _arm(profile: Profile, arm: ServedArm, verdict: Verdict) -> ArmCommand:
    """The command that `emit-config` would print if this had been the verdict."""
    return ArmCommand(arm, tuple(arguments(replace(profile, decision=replace(profile.decision, verdict=verdict)))))


def levels(text: str | None, largest: int) -> tuple[int, ...]:
    """`--concurrency`, rising; by default 1, 4 and 16 as far as `largest` goes.

    Raises:
        UsageError: no list of whole numbers, or one is below 1 or above `largest`.
    """
    if text is None:
        return tuple(level for level in DEFAULT_LEVELS if level <= largest)
    try:
        found = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError as error:
        raise UsageError(f"--concurrency {text} is no list of whole numbers.", "Write 1,4,16.") from error
    if found[0] < 1:
        raise UsageError(f"a concurrency of {found[0]} is impossible.", "Concurrencies are 1 or more.")
    if found[-1] > largest:
        raise UsageError(f"concurrency {found[-1]} is beyond the profile's {largest}.", "Nothing was measured there.")
    return found


def _requests(concurrency: int, tpot_s: float | None, duration_s: float, output_tokens: int) -> int:
    """So many that a load lasts `duration_s` without speculation, and never fewer than two waves."""
    waves = duration_s / (tpot_s * output_tokens) if tpot_s else 0
    return concurrency * max(FEWEST_WAVES, math.ceil(waves))
