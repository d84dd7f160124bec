"""What to measure next, and in which order: a pure function of what was asked, what was measured and what is under way.

Drift and the luck of an engine start must not look like a difference between arms, so arms alternate in time, and at
each stop every order is random and then walked backwards. Anchors come first; after them what the numbers leave open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from dsd_tune.model.undecided import Undecided
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.run import SweepRequest
from dsd_tune.records.visit import Visit

ENGINES_A_CELL = 2
"""A cell that failed in this many engine starts is given up: every try costs a start."""

MOST_STARTS = 8
"""Where the luck of starts hides the verdict, so many an arm are the end of it: each further one narrows by 6 %."""

MOST_VISITS = 4
"""Of one engine at one stop: what is still open then is a tie, or drowns in noise."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one engine: started again if it dies."""

    index: int
    phase: Phase
    arm: Arm
    fixed_k: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """A visit, and the cells wanted there."""

    visit: Visit
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One block to be measured: `slot` runs `cell` on pass `round` of a visit. Identifies the block."""

    slot: int
    stop: int
    repetition: int
    round: int
    cell: Cell
    condition: Condition

    @classmethod
    def of(cls, sample: Block | Failure) -> Turn:
        """The turn that a sample was."""
        return cls(sample.slot, sample.stop, sample.repetition, sample.round, sample.cell, sample.condition)


def turns(stop: Stop, slots: Iterable[Slot], request: SweepRequest) -> tuple[Turn, ...]:
    """Every cell in every slot of its arm, in random order; the next pass retraces that; and so on.

    At the end one engine times the reference cell: what changed it from stop to stop is the machine's drift. It needs
    as few requests as the sweep has anywhere, so that the next, smaller stop fills the batch up again.
    """
    visit = stop.visit
    places = [(slot, cell) for slot in slots for cell in stop.cells if cell.arm is slot.arm]
    Random(f"{request.seed}/{visit}").shuffle(places)
    passes = [(round_, places[:: (-1) ** round_]) for round_ in range(request.rounds)]
    first = min((slot for slot, _ in places), key=lambda slot: (slot.arm is not Arm.DSD, slot.index))
    reference = Cell(first.arm, request.batch_sizes[0], first.fixed_k or 0)
    if reference not in stop.cells:
        passes.append((request.rounds, [(first, reference)]))
    return tuple(
        Turn(slot.index, visit.batch_size, visit.repetition, round_, cell, visit.condition)
        for round_, order in passes
        for slot, cell in order
    )


@dataclass(frozen=True, slots=True)
class Aboard:
    """The engines of one sitting, and the number of starts that every cell of an arm shall have after it."""

    slots: tuple[Slot, ...]
    goals: Mapping[Arm, int]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Each arm once."""
        return tuple(dict.fromkeys(slot.arm for slot in self.slots))


class Plan:
    """What is left to do in one phase. `undecided` says what the numbers leave open, by condition, once they do."""

    def __init__(
        self,
        request: SweepRequest,
        phase: Phase,
        samples: Iterable[Block | Failure],
        *,
        under_way: frozenset[Visit] = frozenset(),
        undecided: Mapping[Condition, Undecided] | None = None,
        fixed_k: int | None = None,
    ) -> None:
        self._request, self._phase, self._fixed_k = request, phase, fixed_k
        self._undecided = undecided or {}
        self._samples = [sample for sample in samples if sample.phase is phase]
        self._under_way = {visit for visit in under_way if visit.phase is phase}
        self._starts: dict[tuple[Condition, Cell], set[int]] = defaultdict(set)
        self._failed: dict[tuple[Condition, Cell], set[int]] = defaultdict(set)
        for sample in self._samples:
            if sample.stop == sample.cell.batch_size:
                self._starts[sample.condition, sample.cell].add(sample.start)
            if isinstance(sample, Failure):
                self._failed[sample.condition, sample.cell].add(sample.start)

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """The two that this phase compares."""
        return (Arm.NO_SPEC, Arm.DSD if self._phase is Phase.MAIN else Arm.STATIC)

    @property
    def is_covered(self) -> bool:
        """Whether every anchor was measured in both arms, so that the numbers can tell what they leave open."""
        return all(self._starts[key] or self._is_given_up(key) for arm in self.arms for key in self._anchors(arm))

    def sitting(self, alive_together: int) -> tuple[tuple[Arm, int], ...]:
        """The arms of the engines to be started next, each with its goal in starts; nothing where nothing is due.

        As many at once as may live together and are needed, in pairs; single ones in the order A B B A.
        """
        wanted = {arm: max((self._starts_wanted(key) for key in self._anchors(arm)), default=0) for arm in self.arms}
        short = {arm: self._missing_starts(arm) for arm in self.arms}
        done = {arm: wanted[arm] - short[arm] for arm in self.arms}
        if not any(short.values()):
            if not self._is_open():
                return ()
            short = {arm: int(arm is Arm.DSD or alive_together > 1) for arm in self.arms}
        if alive_together < len(self.arms):
            arm = min((arm for arm in self.arms if short[arm]), key=lambda arm: (done[arm], self._waits(arm, done)))
            return ((arm, done[arm] + 1),)
        count = min(max(short.values()), alive_together // len(self.arms))
        return tuple(
            (arm, done[arm] + count) for start in range(count) for arm in self.arms[:: (-1) ** start] if short[arm]
        )

    def stops(self, aboard: Aboard) -> tuple[Stop, ...]:
        """The next descent of the engines that are alive: every stop still wanted of them, from the largest down."""
        found = []
        for condition in self._request.conditions:
            cells: dict[int, set[Cell]] = defaultdict(set)
            for cell in self._wanted(condition, aboard):
                cells[cell.batch_size].add(cell)
            found += [self._stop(aboard, condition, b, cells[b]) for b in sorted(cells, reverse=True)]
        return tuple(stop for stop in found if not self._is_taken(stop.visit))

    def _stop(self, aboard: Aboard, condition: Condition, batch_size: int, cells: set[Cell]) -> Stop:
        arms = tuple(arm for arm in aboard.arms if any(cell.arm is arm for cell in cells))
        visit = Visit(self._phase, arms, condition, batch_size, self._visits(condition, batch_size))
        return Stop(visit, tuple(sorted(cells)))

    def _wanted(self, condition: Condition, aboard: Aboard) -> Iterator[Cell]:
        slots = {slot.index for slot in aboard.slots}
        here = {(s.cell, s.condition) for s in self._samples if s.slot in slots and s.stop == s.cell.batch_size}
        for arm, goal in aboard.goals.items():
            for key in self._anchors(arm):
                if key[0] == condition and len(self._starts[key]) < min(goal, self._starts_wanted(key)):
                    yield from self._if_new(key, here)
            for batch_size, ks in self._refined(condition, arm).items():
                for k in ks:
                    yield from self._if_new((condition, Cell(arm, batch_size, k)), here)
        if self._enough_starts(aboard):
            yield from self._repeated(condition, aboard)
            yield from self._doubted(condition, aboard)

    def _if_new(self, key: tuple[Condition, Cell], here: set[tuple[Cell, Condition]]) -> Iterator[Cell]:
        condition, cell = key
        if (cell, condition) not in here and not self._is_given_up(key):
            yield cell

    def _repeated(self, condition: Condition, aboard: Aboard) -> Iterator[Cell]:
        """Where the numbers are too close: the Ks in play once more, beside no speculation if that is aboard."""
        for batch_size, ks in self._open(condition).repeat.items():
            if self._looks(condition, batch_size) < MOST_VISITS:
                cells = [Cell(arm, batch_size, k) for arm in aboard.arms for k in self._in_arm(arm, ks)]
                yield from (cell for cell in cells if not self._is_given_up((condition, cell)))

    def _doubted(self, condition: Condition, aboard: Aboard) -> Iterator[Cell]:
        """Cells with a block far from the rest, once more, beside no speculation if that is aboard."""
        slots = {slot.index for slot in aboard.slots}
        for slot, cell in self._open(condition).doubted:
            if slot in slots:
                yield from (cell, *(Cell(arm, cell.batch_size, 0) for arm in aboard.arms if arm is Arm.NO_SPEC))

    def _refined(self, condition: Condition, arm: Arm) -> dict[int, set[int]]:
        """Batch sizes between the anchors, with Ks: those measured so far, and those to be looked at now."""
        found: dict[int, set[int]] = defaultdict(set)
        if self._phase is Phase.STATIC:
            return found
        for cell in self._looked_into(condition):
            found[cell.batch_size] |= set(self._in_arm(arm, [cell.k]))
        for batch_size, ks in self._new_looks(condition).items():
            found[batch_size] |= set(self._in_arm(arm, ks))
        return found

    def _looked_into(self, condition: Condition) -> list[Cell]:
        """Cells of the table's engine between the anchors."""
        cells = [cell for other, cell in self._starts if other == condition and cell.arm is Arm.DSD]
        return [cell for cell in cells if cell.batch_size not in self._request.batch_sizes]

    def _new_looks(self, condition: Condition) -> dict[int, tuple[int, ...]]:
        """Batch sizes to be looked at now. No more of them in all than anchors, so that cost grows as slowly."""
        known = {cell.batch_size for cell in self._looked_into(condition)}
        new = [(b, ks) for b, ks in self._open(condition).refine.items() if b not in known]
        return dict(new[: max(0, len(self._request.batch_sizes) - len(known))])

    def _in_arm(self, arm: Arm, ks: Iterable[int]) -> tuple[int, ...]:
        return tuple(ks) if arm is Arm.DSD else (self._fixed_k or 0,) if arm is Arm.STATIC else (0,)

    def _anchors(self, arm: Arm) -> Iterator[tuple[Condition, Cell]]:
        for condition in self._request.conditions:
            for batch_size in self._request.batch_sizes:
                for k in self._in_arm(arm, self._request.ks):
                    yield condition, Cell(arm, batch_size, k)

    def _missing_starts(self, arm: Arm) -> int:
        """How many more starts of an arm the anchors need that nobody else is measuring."""
        busy = {(visit.condition, visit.batch_size) for visit in self._under_way if arm in visit.arms}
        return max(
            (
                self._starts_wanted(key) - len(self._starts[key])
                for key in self._anchors(arm)
                if not self._is_given_up(key) and (key[0], key[1].batch_size) not in busy
            ),
            default=0,
        )

    def _starts_wanted(self, key: tuple[Condition, Cell]) -> int:
        """More than asked for where the luck of starts hides the verdict, and then of the cells in play alone."""
        condition, cell = key
        open_, least = self._open(condition), self._request.starts
        in_play = cell.arm is not Arm.DSD or cell.k in open_.in_play.get(cell.batch_size, ())
        if not in_play or self._phase is Phase.STATIC:
            return least
        return max(least, min(MOST_STARTS, open_.starts))

    def _waits(self, arm: Arm, done: Mapping[Arm, int]) -> int:
        """Which of two arms with equally many starts waits: A B B A A B."""
        return self.arms.index(arm) ^ (done[arm] % 2)

    def _enough_starts(self, aboard: Aboard) -> bool:
        return self._phase is Phase.MAIN and aboard.goals.get(Arm.DSD, 0) >= self._request.starts

    def _is_open(self) -> bool:
        """Whether a look at other batch sizes, or another one at the same, would help."""
        return any(
            self._new_looks(condition) or any(self._looks(condition, b) < MOST_VISITS for b in open_.repeat)
            for condition, open_ in self._undecided.items()
        )

    def _open(self, condition: Condition) -> Undecided:
        return self._undecided.get(condition, Undecided.nothing())

    def _is_given_up(self, key: tuple[Condition, Cell]) -> bool:
        return len(self._failed[key]) >= ENGINES_A_CELL

    def _visits(self, condition: Condition, batch_size: int) -> int:
        """How often a stop was visited, finished or not; a number that its next visit is the first to have."""
        taken = [s.repetition for s in self._samples if (s.condition, s.stop) == (condition, batch_size)]
        claimed = [v.repetition for v in self._under_way if (v.condition, v.batch_size) == (condition, batch_size)]
        return 1 + max([*taken, *claimed], default=-1)

    def _looks(self, condition: Condition, batch_size: int) -> int:
        """How often one and the same engine with a table was at a stop."""
        visits: dict[int, set[int]] = defaultdict(set)
        for sample in self._samples:
            if (sample.condition, sample.stop) == (condition, batch_size) and sample.cell.arm is Arm.DSD:
                visits[sample.start].add(sample.repetition)
        return max(map(len, visits.values()), default=0)

    def _is_taken(self, visit: Visit) -> bool:
        """Whether another worker is at this stop with an engine of the same kind."""
        return any(
            (other.condition, other.batch_size) == (visit.condition, visit.batch_size)
            and set(other.arms) & set(visit.arms)
            for other in self._under_way
        )
