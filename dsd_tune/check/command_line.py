"""From how a server is started, `vllm serve` words or a `--config` file, to a `Deployment`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from dsd_tune.check.deployment import Deployment
from dsd_tune.engines.vllm_facts import long_flag
from dsd_tune.errors import UsageError
from dsd_tune.model.cudagraph import CudagraphMode, Runner
from dsd_tune.records.release import Release

Settings = dict[str, object]
"""Flags without their leading dashes, words joined by dashes, and their values; a switch is True."""

_SPECULATIVE = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
"""Flags for single fields of the speculative config."""

_COUNT = re.compile(r"(\d{1,18}(?:\.\d+)?)([kmgtKMGT]?)")
_UNITS = {"": 1, **{unit: 1000**n for n, unit in enumerate("kmgt", 1)}, **{u: 1024**n for n, u in enumerate("KMGT", 1)}}

_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=.*", re.DOTALL)


def from_words(words: Sequence[str]) -> Settings:
    """The flags of a `vllm serve` command line, also one that came as a single quoted word.

    What comes before `serve` is skipped, but for VLLM_USE_V2_MODEL_RUNNER; the word after it is the model.

    Raises:
        UsageError: a single word whose quotes do not match.
    """
    rest = list(words)
    if len(rest) == 1 and " " in rest[0]:
        try:
            rest = shlex.split(rest[0])
        except ValueError as error:
            raise UsageError(f"The command line cannot be split into words ({error}).", "Close its quotes.") from error
    settings: Settings = {}
    for word in rest:
        if not _ASSIGNMENT.fullmatch(word):
            break
        name, _, value = word.partition("=")
        if name == "VLLM_USE_V2_MODEL_RUNNER":
            settings["model-runner"] = "v1" if value == "0" else "v2"
    if "serve" in rest:
        rest = rest[rest.index("serve") + 1 :]
        if rest and not rest[0].startswith("-"):
            settings["model"] = rest.pop(0)
    for name, values in _flags(rest):
        if values or name not in settings:
            settings[name] = values[0] if len(values) == 1 else values or True
    return settings


def to_flags(settings: Settings) -> list[str]:
    """The settings as words again, for vLLM's own parser; what is no flag of vLLM's is left out."""
    flags = []
    for name, value in settings.items():
        if name in ("config", "model-runner"):
            continue
        if isinstance(value, list):
            flags += [f"--{name}", *map(str, value)]
        else:
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            flags.append(f"--{name}" if value is True else f"--{name}={text}")
    return flags


def _flags(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Names and values in order; words before the first flag belong to none."""
    name, values = "", list[str]()
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            if name:
                yield name, values
            name, value = long_flag(word)
            name, values = _with_field(name), [] if value is None else [value]
        else:
            values.append(word)
    if name:
        yield name, values


def _with_field(name: str) -> str:
    """Dashes in the name, underscores in a field after a dot."""
    head, dot, field = name.replace("_", "-").partition(".")
    return f"{head}.{field.replace('-', '_')}" if dot else head


def from_yaml(text: str) -> Settings:
    """The settings of a `vllm serve --config` file.

    Raises:
        UsageError: no YAML, or no mapping.
    """
    import yaml

    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"The config file is not YAML ({' '.join(str(error).split())}).", "Correct it.") from error
    if not isinstance(loaded, dict):
        raise UsageError("The config file is no mapping of flags to values.", "Write one `flag: value` a line.")
    return {_with_field(str(name)): value for name, value in loaded.items() if value is not False}


def deployment(settings: Settings, release: Release, *, cpu: bool) -> Deployment:
    """The deployment that these settings describe, under this vLLM.

    Raises:
        UsageError: there is no speculative config, or a value is impossible.
    """
    graphs = _object(settings, "compilation-config")
    capture = {**_named(graphs), **settings}
    try:
        return Deployment(
            speculative_config=_speculative_config(settings),
            release=release,
            cpu=cpu,
            model=_text(settings, "model"),
            asked_runner=_runner(settings),
            asked_max_num_seqs=_optional(settings, "max-num-seqs"),
            data_parallel_size=_count(settings.get("data-parallel-size", 1), "data-parallel-size"),
            pipeline_parallel_size=_count(settings.get("pipeline-parallel-size", 1), "pipeline-parallel-size"),
            tensor_parallel_size=_count(settings.get("tensor-parallel-size", 1), "tensor-parallel-size"),
            max_num_batched_tokens=_optional(settings, "max-num-batched-tokens"),
            cudagraph_mode=_mode(settings, graphs),
            capture_sizes=_sizes(capture.get("cudagraph-capture-sizes")),
            max_capture_size=_optional(capture, "max-cudagraph-capture-size"),
            mamba_cache_mode=_text(settings, "mamba-cache-mode"),
            lora="enable-lora" in settings,
            kv_transfer="kv-transfer-config" in settings,
        )
    except ValueError as error:
        raise UsageError(f"This cannot be served: {error}.", "Correct the flags.") from error


def _speculative_config(settings: Settings) -> dict[str, object]:
    config = dict(_object(settings, "speculative-config"))
    for flag, field in _SPECULATIVE.items():
        if flag in settings:
            config[field] = settings[flag]
    if not config:
        raise UsageError(
            "There is no speculative config to check.",
            "Give --speculative-config JSON, --config FILE, a whole command line after --, or a folder of runs.",
        )
    for field in ("method", "model"):
        if not isinstance(config.get(field), str | None):
            raise UsageError(f"{field} in --speculative-config is no string.", f"Name the {field} in double quotes.")
    return config


def _object(settings: Settings, name: str) -> Mapping[str, object]:
    """A JSON object given whole, field by field with dots, or both."""
    whole = settings.get(name, {})
    if isinstance(whole, str):
        whole = _parsed(whole, name)
    if not isinstance(whole, dict):
        raise UsageError(f"--{name} is no JSON object.", 'Write {"method":"eagle3",...} in single quotes.')
    fields = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith(f"{name}.")}
    return {**whole, **{field: _scalar(value) for field, value in fields.items()}}


def _parsed(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--{name} is not JSON ({error}): {text[:80]}",
            f"{_quoting(text)} On a command line, put the JSON in single quotes and its strings in double quotes.",
        ) from error


def _quoting(text: str) -> str:
    """What probably happened to the quotes on the way."""
    if text.startswith("'"):
        return "Single quotes became part of the value: quote it once only."
    if "{{" in text:
        return "A template left its doubled braces."
    if '\\"' in text:
        return "Backslashes became part of the value: inside single quotes none are needed."
    return "Its double quotes were taken away by a shell." if '"' not in text else ""


def _scalar(value: object) -> object:
    """A flag's word as JSON, where it is JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _text(settings: Settings, name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else str(value)


def _named(fields: Mapping[str, object]) -> Settings:
    """Fields of the compilation config under the names of the flags that set the same."""
    return {field.replace("_", "-"): value for field, value in fields.items() if value is not None}


def _optional(settings: Settings, name: str) -> int | None:
    value = settings.get(name)
    return None if value is None else _count(value, name)


def _count(value: object, name: str) -> int:
    """A whole number, also with a unit as vLLM reads it: 8k is 8000, 8K is 8192."""
    match = _COUNT.fullmatch(str(value))
    if match is None:
        raise UsageError(f"--{name} {value} is no whole number.", "Write one, such as 256.")
    return int(float(match[1]) * _UNITS[match[2]])


def _runner(settings: Settings) -> Runner | None:
    value = settings.get("model-runner")
    return None if value is None else Runner(str(value))


def _mode(settings: Settings, graphs: Mapping[str, object]) -> CudagraphMode:
    if settings.get("enforce-eager"):
        return CudagraphMode.NONE
    value = graphs.get("cudagraph_mode")
    return CudagraphMode.FULL_AND_PIECEWISE if value is None else CudagraphMode(str(value).upper())


def _sizes(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    written = value if isinstance(value, list) else [value]
    return tuple(sorted(_count(size, "cudagraph-capture-sizes") for size in written))
