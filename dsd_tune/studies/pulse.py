"""Signs of life: a worker gives them for the trials it holds, and tells by them which other workers have died."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event, Thread

from dsd_tune.errors import DsdTuneError
from dsd_tune.studies.study import Study, TrialOver

INTERVAL_S = 10.0
"""Seconds between two signs: often beside the minutes of a visit, rarely for a database."""

GRACE_S = 60.0
"""Seconds without a sign after which a worker counts as dead: six signs missed are no accident."""


class Pulse:
    """Gives a sign of life for every trial in `held` from a thread of its own, since a visit takes minutes."""

    def __init__(self, study: Study, interval_s: float = INTERVAL_S) -> None:
        self._study = study
        self._interval_s = interval_s
        self._over = Event()
        self._thread = Thread(target=self._beat, name="signs of life", daemon=True)
        self.held: set[int] = set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the last sign."""
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(self._interval_s):
            for trial in tuple(self.held):
                self._sign(trial)

    def _sign(self, trial: int) -> None:
        try:
            self._study.sign(trial)
        except TrialOver:
            # The worker itself finds out with its next block, and takes the visit again.
            self.held.discard(trial)
        except DsdTuneError:
            # A storage that is away for a moment. If it stays away, the worker's next block tells the user.
            return


class Watch:
    """Tells which trials have given no sign for too long.

    Only this process's own clock is asked: clocks of hosts differ, and a sign says nothing but that it is new.
    """

    def __init__(self, grace_s: float = GRACE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._grace_s = grace_s
        self._clock = clock
        self._last: dict[int, tuple[str, float]] = {}

    def silent(self, signs: Mapping[int, str]) -> set[int]:
        """Of the running trials with their latest signs, those whose sign was the same for longer than the grace."""
        now = self._clock()
        before = self._last
        self._last = {
            trial: before[trial] if trial in before and before[trial][0] == sign else (sign, now)
            for trial, sign in signs.items()
        }
        return {trial for trial, (_, since) in self._last.items() if now - since > self._grace_s}
