"""Which vLLM: its behaviour changes with minor releases, so that is all a release is here."""

from __future__ import annotations

import re
from dataclasses import dataclass

_START = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A minor release of vLLM; patch, pre-release and local parts of its version change nothing we know of."""

    major: int
    minor: int

    @classmethod
    def parse(cls, version: str) -> Release:
        """From a version as vLLM prints it: `0.32.0`, `v0.33`, `0.32.0+cpu`, `0.33.1rc2.dev7+g1234`.

        Raises:
            ValueError: it does not begin with two numbers.
        """
        match = _START.match(version)
        if match is None:
            raise ValueError(f"{version!r} is no version of vLLM")
        return cls(int(match[1]), int(match[2]))

    @property
    def before(self) -> Release:
        """The release before this one."""
        return Release(self.major, self.minor - 1)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"
