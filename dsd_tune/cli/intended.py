"""How a server is meant to be started: options, a whole command line and a `--config` file, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dsd_tune.check.command_line import Settings, from_words, from_yaml
from dsd_tune.storage import files


def settings(options: Mapping[str, object], config: Path | None, words: Sequence[str]) -> Settings:
    """Options win over words, and words over the file that they or an option name; an option of None is not given.

    Raises:
        UsageError: something cannot be read.
    """
    from_command = from_words(words)
    named = config or from_command.get("config")
    from_file = {} if named is None else from_yaml(files.read_text(Path(str(named))))
    return {**from_file, **from_command, **{name: value for name, value in options.items() if value is not None}}
