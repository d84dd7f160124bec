"""A run with one worker: its directory is all there is to share."""

from __future__ import annotations

from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.run import Manifest
from dsd_tune.records.visit import Visit
from dsd_tune.storage.run_directory import RunDirectory


class SoloLedger:
    """See `Ledger`. Every visit is free, and nothing is under way elsewhere."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._samples = run.samples()
        self._next_start = 1 + max((max(s.slot, s.start) for s in self._samples), default=-1)

    @property
    def manifest(self) -> Manifest:
        """See `Ledger`."""
        return self._run.manifest

    def samples(self) -> list[Block | Failure]:
        """See `Ledger`."""
        return list(self._samples)

    def under_way(self) -> frozenset[Visit]:
        """See `Ledger`."""
        return frozenset()

    def claim(self, visit: Visit) -> bool:
        """See `Ledger`."""
        return True

    def append(self, sample: Block | Failure) -> None:
        """See `Ledger`."""
        self._run.append(sample)
        self._samples.append(sample)

    def finish(self, visit: Visit, tpot_s: float | None) -> None:
        """See `Ledger`."""

    def new_start(self) -> int:
        """See `Ledger`."""
        number, self._next_start = self._next_start, self._next_start + 1
        return number
