"""A profile's decision as text to paste: what to give vLLM, and nothing it would have to clamp, fill in or ignore."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum

from dsd_tune.records.profile import Decision, Profile, Verdict

TABLE_KEY = "num_speculative_tokens_per_batch_size"
"""vLLM's name for the table, known since 0.24."""


class Format(StrEnum):
    """What can be emitted."""

    JSON = "json"
    CLI = "cli"
    YAML = "yaml"


def emit(profile: Profile, form: Format) -> str:
    """The decision as one paste-ready text without a trailing newline.

    `json` is the value of `--speculative-config` (`null` where speculation is not advised), `cli` a whole
    `vllm serve` line, `yaml` a file for `vllm serve --config`.
    """
    config = speculative_config(profile)
    match form:
        case Format.JSON:
            return _compact(config)
        case Format.CLI:
            return serve_line(profile, config)
        case Format.YAML:
            return "\n".join(_yaml_lines(profile, config))


def speculative_config(profile: Profile) -> dict[str, object] | None:
    """The speculative config that the verdict asks for; None means: leave `--speculative-config` out.

    K_max is the largest K used, since a larger one would reserve memory and draft slots for nothing.
    """
    decision = profile.decision
    if decision.verdict in (Verdict.OFF, Verdict.UNCLEAR):
        return None
    return _drafter(profile) | _tokens(decision)


def to_fill_in(profile: Profile) -> tuple[str, ...]:
    """What an import does not know and the text therefore lacks, in words; nothing for a sweep."""
    if profile.request:
        return ()
    said = {key: value for key in ("model", "drafter") if (value := profile.fact(key))}
    lacking = [f"MODEL stands for the model{_as_said(said.get('model'))}"]
    if profile.decision.verdict.exit_code == 0:
        method = "" if profile.fact("method") else "the method and "
        lacking.append(f"--speculative-config lacks {method}the drafter's model{_as_said(said.get('drafter'))}")
    return (*lacking, "flags of the engine that was measured are not known, but its numbers hold for it alone")


def _as_said(fact: str | None) -> str:
    return f" (the import says {fact!r})" if fact else ""


def _drafter(profile: Profile) -> dict[str, object]:
    """The user's own speculative config without its Ks; of an import, the method if it is known."""
    if profile.request is None:
        method = profile.fact("method")
        return {"method": method} if method else {}
    return {k: v for k, v in json.loads(profile.request.speculative_config).items() if k != TABLE_KEY}


def _tokens(decision: Decision) -> dict[str, object]:
    table = decision.table
    if decision.verdict is Verdict.FIXED or table is None or table.is_constant:
        return {"num_speculative_tokens": decision.fixed_k}
    return {"num_speculative_tokens": table.k_max, TABLE_KEY: table.as_lists()}


def serve_line(profile: Profile, config: Mapping[str, object] | None) -> str:
    """A `vllm serve` command with the flags of the sweep, quoted for a POSIX shell."""
    words = ["vllm", "serve", _model(profile), "--max-num-seqs", str(profile.decision.max_num_seqs)]
    words += _engine_flags(profile)
    if config is not None:
        words += ["--speculative-config", _compact(config)]
    return shlex.join(words)


def _model(profile: Profile) -> str:
    return profile.environment.model if profile.environment else "MODEL"


def _engine_flags(profile: Profile) -> tuple[str, ...]:
    return profile.request.engine_flags if profile.request else ()


def _yaml_lines(profile: Profile, config: Mapping[str, object] | None) -> Iterator[str]:
    """JSON scalars and flow collections are YAML, so no value needs another kind of quoting."""
    yield f"model: {_yaml(_model(profile))}"
    yield f"max-num-seqs: {profile.decision.max_num_seqs}"
    for name, value in _flags(_engine_flags(profile)):
        yield f"{name}: {_yaml(value)}"
    if config is not None:
        yield "speculative-config:"
        for key, item in config.items():
            yield f"  {key}: {_yaml(item)}"


def _flags(words: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Command-line flags as names and values; a flag without a value is a switch."""
    position = 0
    while position < len(words):
        name, equals, value = words[position].removeprefix("--").partition("=")
        position += 1
        values = [value] if equals else []
        while not equals and position < len(words) and not words[position].startswith("--"):
            values.append(words[position])
            position += 1
        if not values:
            yield name, True
        else:
            yield name, _scalar(values[0]) if len(values) == 1 else [_scalar(v) for v in values]


def _scalar(word: str) -> object:
    """A number or a JSON object as such; a string wherever vLLM would read another word back (1.10, null, true)."""
    try:
        value = json.loads(word)
    except ValueError:
        return word
    as_written = isinstance(value, dict) or (type(value) in {int, float} and str(value) == word)
    return value if as_written else word


def _yaml(value: object) -> str:
    """JSON on one line. YAML knows no surrogate pairs, so letters stay letters."""
    return json.dumps(value, ensure_ascii=False)


def _compact(config: Mapping[str, object] | None) -> str:
    return json.dumps(config, separators=(",", ":"))
