"""Stdout as commands see it: it holds any character, and that it cannot be written is an error like any other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from dsd_tune.errors import DsdTuneError


class Stdout:
    """Passes everything on. A reader that went away is left to the parser, which ends quietly."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As a stream does.

        Raises:
            DsdTuneError: it cannot be written.
        """
        with self._guarded():
            # The parser tries out streams with an empty text, and would swallow what that raises.
            return 0 if text == "" else self._stream.write(text)

    def flush(self) -> None:
        """As a stream does.

        Raises:
            DsdTuneError: it cannot be written.
        """
        with self._guarded():
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        if name == "buffer":
            # The parser writes to it where the encoding is ASCII, and so past this guard.
            raise AttributeError(name)
        return getattr(self._stream, name)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is left in the buffer would fail once more when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if isinstance(error, BrokenPipeError):
                raise
            raise DsdTuneError(f"stdout cannot be written: {error.strerror}.", "Write it elsewhere.") from error
