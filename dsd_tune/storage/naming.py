"""Names in files: which are paths of one machine, and how they are given names that hold everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

from dsd_tune.storage import codec

T = TypeVar("T")

# A slash after a word or a colon is part of a model's name or of a URL; a fraction has nothing before it.
_PATH = re.compile(r"""(?<![\w.:/~])(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.~-][^\s"',;)]*|file:[^\s"',;)]+""")


def paths(record: object) -> list[str]:
    """The paths of a machine in the texts of a record, each once, in their order."""
    found = (path for text in _texts(codec.encode(record)) for path in _PATH.findall(text))
    return list(dict.fromkeys(found))


def renamed(record: T, names: Mapping[str, str]) -> T:
    """The same with other names for some paths, and for all that lies in them."""
    return codec.decode(type(record), _renamed(codec.encode(record), names))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _renamed(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, str):
        # The longest first, since one may lie in another.
        for path in sorted(names, key=len, reverse=True):
            # A name is no pattern, whatever its backslashes.
            name = names[path].replace("\\", r"\\")
            value = re.sub(rf"{re.escape(path.rstrip('/'))}(?![\w.~-])", name, value)
    return value
