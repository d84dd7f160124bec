"""What there is to emit: the server of the sweep, and the verdict as vLLM's speculative config.

Nothing in that config is left for vLLM to clamp, fill in or ignore. Every format asks here for what it writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from dsd_tune.emit.emission import Emission
from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.errors import UsageError
from dsd_tune.records.environment import DUMMY
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.records.warning import Code

MODEL = "MODEL"
"""Stands for the model where nobody knows its name: vLLM refuses it, so it cannot be left in by mistake."""


def model(profile: Profile) -> str:
    """The target, as the user named it."""
    return profile.environment.model if profile.environment else MODEL


def method(profile: Profile) -> str:
    """vLLM's name of the drafting method."""
    if profile.environment:
        return profile.environment.method
    return profile.fact("method") or "an unknown method"


def max_num_seqs(profile: Profile) -> int:
    """The batch size at which measurements end, and so the advice."""
    return profile.decision.max_num_seqs


def engine_flags(profile: Profile) -> tuple[str, ...]:
    """The further flags of the sweep's engines: its numbers hold for these alone. Nobody serves dummy weights."""
    if profile.request is None:
        return ()
    load_format = profile.request.load_format
    loading = () if load_format in ("auto", DUMMY) else ("--load-format", load_format)
    return (*profile.request.engine_flags, *loading)


def doubts(profile: Profile) -> tuple[str, ...]:
    """Why the decision should not be deployed as it is, as remarks: only cost was measured."""
    return tuple(f"{w.said}. {w.hint.removesuffix('.')}" for w in profile.warnings if w.code is Code.COST_ONLY)


def on_capture_sizes(profile: Profile) -> tuple[str, ...]:
    """Why there are capture sizes in the text, as remarks."""
    sizes = capture_sizes(profile)
    why = "so that every step keeps the CUDA graph it was measured with. Each is captured for every K, at start-up"
    return (f"--cudagraph-capture-sizes has {len(sizes)} sizes, {why}",) if sizes else ()


def to_fill_in(profile: Profile) -> tuple[str, ...]:
    """What the text lacks because an import does not know it, as remarks; nothing for a sweep."""
    if profile.request:
        return ()
    lacking = [f"{MODEL} stands for the model{_as_said(profile, 'model')}"]
    if advised_table(profile):
        of_method = "" if profile.fact("method") else "the method and "
        lacking.append(f"--speculative-config lacks {of_method}the drafter's model{_as_said(profile, 'drafter')}")
    return (*lacking, "Flags of the engine that was measured are not known, and its numbers hold for these alone")


def _as_said(profile: Profile, key: str) -> str:
    fact = profile.fact(key)
    return f" (the import says {fact!r})" if fact else ""


def advised_table(profile: Profile) -> Table | None:
    """The table, a constant one for a fixed K; None where speculation is not advised."""
    decision = profile.decision
    if decision.verdict in (Verdict.OFF, Verdict.UNCLEAR):
        return None
    if decision.verdict is Verdict.FIXED:
        return Table.from_dense([decision.fixed_k] * max_num_seqs(profile))
    return decision.table


def capture_sizes(profile: Profile) -> tuple[int, ...]:
    """vLLM's `cudagraph_capture_sizes` that go with the advised table; none where vLLM's own will do."""
    return profile.decision.capture_sizes if profile.decision.verdict is Verdict.TABLE else ()


def capture_flag(profile: Profile) -> list[str]:
    """The same as words of `vllm serve`."""
    sizes = capture_sizes(profile)
    return ["--cudagraph-capture-sizes", *map(str, sizes)] if sizes else []


def speculative_config(profile: Profile) -> dict[str, object] | None:
    """The speculative config that the verdict asks for; None means: leave `--speculative-config` out.

    K_max is the largest K used, since a larger one would reserve memory and draft slots for nothing. One K
    for all batch sizes needs no table.

    Raises:
        UsageError: the profile's own config is no JSON object.
    """
    table = advised_table(profile)
    if table is None:
        return None
    config = _drafter(profile)
    config["num_speculative_tokens"] = table.k_max
    if not table.is_constant:
        config[TABLE_FIELD] = table.as_lists()
    return config


def _drafter(profile: Profile) -> dict[str, object]:
    """The user's own speculative config; of an import, the method if its files tell it."""
    if profile.request is None:
        return {"method": profile.fact("method")} if profile.fact("method") else {}
    try:
        config = json.loads(profile.request.speculative_config)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise UsageError("The profile's speculative_config is no JSON object.", "Fit the run again.")
    return {k: v for k, v in config.items() if k != TABLE_FIELD}


def write(profile: Profile) -> Emission:
    """The value of `--speculative-config` on one line; `null` where speculation is not advised."""
    flag = " ".join(capture_flag(profile))
    return Emission(compact(speculative_config(profile)), (f"Start vLLM with {flag}",) if flag else ())


def compact(config: Mapping[str, object] | None) -> str:
    """JSON without spaces, so that a shell which drops the quotes around it still sees one word."""
    return json.dumps(config, separators=(",", ":"))
