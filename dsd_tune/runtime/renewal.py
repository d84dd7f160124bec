"""Notices that the profile's file was replaced, and reads it beside the engine's steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")

INTERVAL_S = 1.0
"""How often the file is looked at, at most: a stat takes microseconds."""


class Renewal(Generic[T]):
    """Polled in every step. `load` runs in a thread of its own whenever the file is another one than before.

    What `load` raises goes to `refuse`, once for each file, and nothing changes. So does a thread that cannot start.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[], T],
        refuse: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._load = load
        self._refuse = refuse
        self._clock = clock
        self._due = clock() + INTERVAL_S
        self._stamp = self._stat()
        self._reader: Thread | None = None
        self._loaded: T | None = None

    def poll(self) -> T | None:
        """What was loaded since the last poll, once; None as long as there is nothing new. Never raises or waits."""
        if self._reader is not None:
            if self._reader.is_alive():
                return None
            loaded, self._reader, self._loaded = self._loaded, None, None
            return loaded
        if self._clock() >= self._due:
            self._due = self._clock() + INTERVAL_S
            stamp = self._stat()
            if stamp not in (None, self._stamp):
                self._stamp = stamp
                self._reader = self._start()
        return None

    def _start(self) -> Thread | None:
        """A thread that reads; None where the machine has no room for one."""
        reader = Thread(target=self._read, name="dsd-tune-profile", daemon=True)
        try:
            reader.start()
        except RuntimeError as error:
            self._refuse(error)
            return None
        return reader

    def _read(self) -> None:
        try:
            self._loaded = self._load()
        except Exception as error:  # noqa: BLE001 (a broken file must not end the thread with a traceback)
            self._refuse(error)

    def _stat(self) -> tuple[int, int, int] | None:
        """What changes when a file is replaced; None while there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
