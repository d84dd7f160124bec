"""Sweeps of a simulated engine into memory, and what they come to."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from builders import a_request

from dsd_tune.cli.judge import judge
from dsd_tune.engines.protocol import Engine
from dsd_tune.fit import Fit
from dsd_tune.model.undecided import Undecided
from dsd_tune.plan import Slot
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure
from dsd_tune.records.profile import Profile
from dsd_tune.records.run import Manifest
from dsd_tune.records.visit import Visit
from dsd_tune.solve import decide
from dsd_tune.sweep import Observer, Sweep


class Shelf:
    """A ledger in memory: the same samples, never waited for, and what other workers have claimed."""

    def __init__(self, manifest: Manifest, samples: Sequence[Block | Failure] = ()) -> None:
        self.manifest = manifest
        self.kept = list(samples)
        self.claimed: set[Visit] = set()
        self.taken_elsewhere: set[Visit] = set()
        self.finished: list[tuple[Visit, float | None]] = []
        self._starts = 1 + max((max(s.slot, s.start) for s in samples), default=-1)

    def samples(self) -> list[Block | Failure]:
        """What was appended so far."""
        return list(self.kept)

    def under_way(self) -> frozenset[Visit]:
        """What others are at."""
        return frozenset(self.taken_elsewhere)

    def await_others(self) -> bool:
        """Nobody to wait for: what others are at they never end here."""
        return False

    def claim(self, visit: Visit) -> bool:
        """Take a visit unless somebody has."""
        if visit in self.claimed | self.taken_elsewhere:
            return False
        self.claimed.add(visit)
        return True

    def append(self, sample: Block | Failure) -> None:
        """Keep a sample."""
        self.kept.append(sample)

    def finish(self, visit: Visit, tpot_s: float | None) -> None:
        """Write a visit down."""
        self.finished.append((visit, tpot_s))

    def new_start(self) -> int:
        """Count on."""
        self._starts += 1
        return self._starts - 1


class Silent:
    """An observer that nobody reads."""

    def planned(self, turns: int, done: int) -> None:
        """Say nothing."""

    def judged(self, undecided: Mapping[Condition, Undecided]) -> None:
        """Say nothing."""

    def starting(self, slot: Slot) -> None:
        """Say nothing."""

    def measured(self, sample: Block | Failure) -> None:
        """Say nothing."""

    def waiting(self, visits: int) -> None:
        """Say nothing."""


def a_shelf(engine: Engine, **changed: Any) -> Shelf:
    """An empty run for `engine`, whose request has `changed` fields."""
    return Shelf(Manifest(a_request(**changed), engine.describe(), 1.5, "0.1.0"))


def a_sweep(engine: Engine, shelf: Shelf, observer: Observer | None = None, **changed: Any) -> Sweep:
    """A sweep of `engine` into memory, with `changed` arguments."""
    return Sweep(engine, shelf, observer or Silent(), **changed)


def swept(engine: Engine, *, fixed_k: int | None = None, target: float | None = None, **changed: Any) -> Shelf:
    """Everything that a whole sweep of `engine` measured: its anchors, and where `target` is given what that asks for.

    With the arm `static` where `fixed_k` is given.
    """
    shelf = a_shelf(engine, **changed)
    sweep = a_sweep(engine, shelf, judge=None if target is None else judge(shelf.manifest, target))
    sweep.measure_arms()
    if fixed_k:
        sweep.measure_static(fixed_k)
    return shelf


def starts_of(shelf: Shelf) -> dict[Cell, int]:
    """How many engine starts each cell was tried in, at its own stop."""
    tried: dict[Cell, set[int]] = defaultdict(set)
    for sample in shelf.kept:
        if sample.stop == sample.cell.batch_size:
            tried[sample.cell].add(sample.start)
    return {cell: len(starts) for cell, starts in tried.items()}


def asked_for(shelf: Shelf) -> set[Cell]:
    """The anchors of a run, in both of its first arms."""
    request = shelf.manifest.request
    off = {Cell(Arm.NO_SPEC, b, 0) for b in request.batch_sizes}
    return off | {Cell(Arm.DSD, b, k) for b in request.batch_sizes for k in request.ks}


def fitted(shelf: Shelf) -> Profile:
    """What a fit concludes from everything on the shelf."""
    fit = Fit(shelf.manifest, shelf.samples())
    return fit.profile(decide(fit.surface, fit.max_num_seqs), 1.5, "0.1.0")
