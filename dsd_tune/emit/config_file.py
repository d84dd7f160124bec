"""The decision as a file for `vllm serve --config`: one flag a line, by its long name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from dsd_tune.emit.decision import capture_sizes, engine_flags, max_num_seqs, model, speculative_config
from dsd_tune.emit.emission import Emission
from dsd_tune.emit.scalars import flow, key
from dsd_tune.engines.vllm_facts import long_flag
from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile

_FLAG = re.compile(r"--?[A-Za-z]")
"""How a flag begins; -1 is a value."""


def write(profile: Profile) -> Emission:
    """YAML that vLLM turns back into the flags of the sweep and the advised speculative config.

    Raises:
        UsageError: the flags hold what such a file cannot say.
    """
    return Emission("\n".join(_lines(profile)))


def _lines(profile: Profile) -> Iterator[str]:
    yield f"model: {flow(model(profile))}"
    yield f"max-num-seqs: {max_num_seqs(profile)}"
    if sizes := capture_sizes(profile):
        yield f"cudagraph-capture-sizes: {flow(list(sizes))}"
    for name, value in _settings(engine_flags(profile)).items():
        yield f"{key(name)}: {flow(value)}"
    config = speculative_config(profile)
    if config is not None:
        yield "speculative-config:"
        for field, value in config.items():
            yield f"  {key(field)}: {flow(value)}"


def _settings(words: Sequence[str]) -> dict[str, object]:
    """Names and values; a flag without a value is a switch, one with several has a list."""
    settings: dict[str, object] = {}
    for name, values in _flags(words):
        # A mapping has each name once, and vLLM puts name and value into separate words.
        if not name or name in settings or any(_FLAG.match(value) for value in values):
            raise UsageError(
                f"A config file cannot say {' '.join(words)}: each flag once, and no value like a flag.",
                "Use --format cli.",
            )
        if not values:
            settings[name] = True
        else:
            settings[name] = _scalar(values[0]) if len(values) == 1 else [_scalar(value) for value in values]
    return settings


def _flags(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Long names and values in order; the name of words before the first flag is empty."""
    name, values = "", list[str]()
    for word in words:
        if _FLAG.match(word):
            if name or values:
                yield name, values
            name, value = long_flag(word)
            values = [] if value is None else [value]
        else:
            values.append(word)
    if name or values:
        yield name, values


def _scalar(word: str) -> object:
    """A number or a JSON object as such; a string wherever vLLM would read another word back (1.10, null, true)."""
    try:
        value = json.loads(word)
    except ValueError:
        return word
    as_written = isinstance(value, dict) or (type(value) in {int, float} and str(value) == word)
    return value if as_written else word
