"""Hypothesis without deadlines, since a busy machine is no bug; and the command line in this process."""

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings

from dsd_tune.cli.app import main

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed where."""

    code: int
    out: str
    err: str

    def refused(self, code: int) -> str:
        """The one sentence on stderr, where nothing else was said and the command ended with `code`."""
        assert (self.code, self.out) == (code, "")
        (line,) = self.err.splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")


Cli = Callable[..., Said]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Runs `dsd-tune` with the given words in this process, as the console script would."""
    handler = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["dsd-tune", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Said(int(end.value.code or 0), out, err)

    yield run
    signal.signal(signal.SIGTERM, handler)
