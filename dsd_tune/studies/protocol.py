"""What a sweep asks of the place where all workers of a run keep what they measured."""

from __future__ import annotations

from typing import Protocol

from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.run import Manifest
from dsd_tune.records.visit import Visit


class Ledger(Protocol):
    """What all workers of a run have measured, and which visits are taken.

    A turn is measured already if `samples` says so, whoever measured it.
    """

    @property
    def manifest(self) -> Manifest:
        """What the run is, the same for all workers."""
        ...

    def samples(self) -> list[Block | Failure]:
        """Samples of all workers. Each worker's stand together, in the order in which it took them."""
        ...

    def under_way(self) -> frozenset[Visit]:
        """Visits claimed by other workers that are alive. The claim of one that died expires."""
        ...

    def await_others(self) -> bool:
        """Wait until another worker has ended one of its visits, or died; false at once where none has any."""
        ...

    def claim(self, visit: Visit) -> bool:
        """Take a visit, so that no other worker measures it; false where another was faster, or has made it."""
        ...

    def append(self, sample: Block | Failure) -> None:
        """Keep a sample of a claimed visit: on this worker's disk first, then for all, before the next is measured.

        Raises:
            DsdTuneError: the disk or the storage refused; what was measured before is kept.
        """
        ...

    def finish(self, visit: Visit, tpot_s: float | None) -> None:
        """End a claimed visit, with the best TPOT seen there; None where no K could be measured."""
        ...

    def new_start(self) -> int:
        """A number for an engine start that no other start has, in any worker of the run."""
        ...
