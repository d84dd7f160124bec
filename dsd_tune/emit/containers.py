"""The decision as a container's arguments in list form, where no shell stands between: Compose and Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

from dsd_tune.emit.emission import Emission
from dsd_tune.emit.scalars import quoted
from dsd_tune.emit.serve_line import arguments
from dsd_tune.records.profile import Profile


def write_compose(profile: Profile) -> Emission:
    """`entrypoint` and `command` of a service."""
    return Emission("\n".join(_lines(profile, "entrypoint", "command")))


def write_kubernetes(profile: Profile) -> Emission:
    """`command` and `args` of a container."""
    return Emission("\n".join(_lines(profile, "command", "args")))


def _lines(profile: Profile, program: str, words: str) -> Iterator[str]:
    yield f'{program}: ["vllm", "serve"]'
    yield f"{words}:"
    for word in arguments(profile):
        # Both replace variables in here, and both take a doubled dollar for a plain one.
        yield f"  - {quoted(word.replace('$', '$$'))}"
