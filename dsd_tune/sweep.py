"""Measure: make the stops of the plan with live engines, and put every block on disk before the next one starts.

After each descent the plan is asked again, with what is known by then. A cell that fails is recorded and the sweep goes
on without it; an engine that died is started again. What is on disk counts, whoever measured it, so a killed sweep
goes on where it was.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from dsd_tune.engines.protocol import Engine, RunningEngine
from dsd_tune.errors import EngineFailed
from dsd_tune.model.undecided import Undecided
from dsd_tune.plan import ENGINES_A_CELL, Aboard, Plan, Slot, Stop, Turn, turns
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.studies.protocol import Ledger

STARTS_A_SLOT = 3
"""A slot is given up after this many starts that failed; its turns are recorded as failures."""

Judge = Callable[[Sequence[Block | Failure]], Mapping[Condition, Undecided]]
"""What samples of both arms leave open, by condition."""


class Observer(Protocol):
    """Whoever watches a sweep: the terminal, or nobody."""

    def planned(self, turns: int, done: int) -> None:
        """So many blocks there will be when the plan is asked again, and how many of them there are already."""
        ...

    def judged(self, undecided: Mapping[Condition, Undecided]) -> None:
        """What is left open by now."""
        ...

    def starting(self, slot: Slot) -> None:
        """An engine is about to start, which takes a while."""
        ...

    def measured(self, sample: Block | Failure) -> None:
        """A turn has been taken and is on disk."""
        ...

    def waiting(self, visits: int) -> None:
        """Nothing is left to begin; so many visits of other workers are awaited, since one that dies leaves its own."""
        ...


@dataclass(slots=True)
class Budget:
    """Seconds that a command may measure for; None is no end. Nothing begins that would not end in time."""

    limit_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    began_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_at = self.clock()

    @property
    def used_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self.began_at

    def allows(self, seconds: float) -> bool:
        """Whether so much is left, and anything at all."""
        return self.limit_s is None or self.used_s + max(seconds, 1e-9) <= self.limit_s


@dataclass(slots=True)
class _Seat:
    """A slot with its engine, if one is alive, and how many of its starts failed."""

    slot: Slot
    engine: RunningEngine | None = None
    start: int = -1
    failed_starts: int = 0


class Sweep:
    """One worker's share of a run: makes the stops that nobody else has made or is making."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        observer: Observer,
        judge: Judge | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._observer = observer
        self._judge = judge or (lambda _: {})
        self._budget = budget or Budget()
        self._request = ledger.manifest.request
        samples = ledger.samples()
        self._proven_arms = {s.cell.arm for s in samples if isinstance(s, Block)}
        self._ends: dict[tuple[Condition, Cell], list[str]] = defaultdict(list)
        self._undecided: Mapping[Condition, Undecided] = {}
        self._judged_after = 0
        self._start_takes_s = 0.0
        self._turn_takes_s = 0.0

    @property
    def is_covered(self) -> bool:
        """Whether both first arms were measured at every anchor: what any choice of a fixed K rests on."""
        return Plan(self._request, Phase.MAIN, self._ledger.samples()).is_covered

    def measure_arms(self) -> None:
        """Measure `no_spec` and the table's engine, until nothing is open or the budget is spent.

        Raises:
            EngineFailed: an arm did not come up even once.
        """
        self._walk(Phase.MAIN)

    def measure_static(self, fixed_k: int) -> None:
        """Measure a fixed K in an engine of its own, against fresh `no_spec` engines."""
        self._walk(Phase.STATIC, fixed_k)

    def _walk(self, phase: Phase, fixed_k: int | None = None) -> None:
        """Go on until nothing is left, and no other worker is at anything: one that dies leaves its part to be done."""
        while self._go_on(phase, fixed_k) or self._await_others():
            pass

    def _await_others(self) -> bool:
        others = self._ledger.under_way()
        if not others or not self._budget.allows(0):
            return False
        self._observer.waiting(len(others))
        return self._ledger.await_others()

    def _go_on(self, phase: Phase, fixed_k: int | None) -> bool:
        """Another sitting; false where nothing was left for one."""
        due = self._plan(phase, fixed_k).sitting(self._engines_at_once())
        if not due or not self._budget.allows(len(due) * self._start_takes_s):
            return False
        slots = tuple(
            Slot(self._ledger.new_start(), phase, arm, fixed_k if arm is Arm.STATIC else None) for arm, _ in due
        )
        return self._sit(Aboard(slots, dict(due)))

    def _engines_at_once(self) -> int:
        """All that fit; but within a budget two of them measure everything before others measure it again."""
        together = self._engine.alive_together
        return together if self._budget.limit_s is None or self.is_covered else min(together, 2)

    def _plan(self, phase: Phase, fixed_k: int | None) -> Plan:
        samples, under_way = self._ledger.samples(), self._ledger.under_way()
        plan = Plan(self._request, phase, samples, under_way=under_way, fixed_k=fixed_k)
        if phase is Phase.STATIC or not plan.is_covered:
            return plan
        if len(samples) != self._judged_after:
            self._judged_after, self._undecided = len(samples), self._judge(samples)
            self._observer.judged(self._undecided)
        return Plan(self._request, phase, samples, under_way=under_way, undecided=self._undecided)

    def _sit(self, aboard: Aboard) -> bool:
        """Make every stop there is for the engines of one sitting; false where there was none."""
        seats = {slot.index: _Seat(slot) for slot in aboard.slots}
        phase, fixed_k = aboard.slots[0].phase, max(slot.fixed_k or 0 for slot in aboard.slots)
        went_on = False
        with ExitStack() as stack:
            for seat in seats.values():
                stack.callback(_close, seat)
            while stops := self._plan(phase, fixed_k).stops(aboard):
                if not went_on:
                    self._bring_up(seats.values())
                order = {stop: turns(stop, aboard.slots, self._request) for stop in stops}
                done = len(self._ledger.samples())
                self._observer.planned(done + sum(map(len, order.values())), done)
                made = [self._make(stop, order[stop], seats) for stop in stops]
                if not any(made):
                    break
                went_on = True
        return went_on

    def _make(self, stop: Stop, order: Sequence[Turn], seats: Mapping[int, _Seat]) -> bool:
        """Make one stop, if there is time and nobody else is there. What takes longer than foretold ends early."""
        if not self._budget.allows(len(order) * self._turn_takes_s) or not self._ledger.claim(stop.visit):
            return False
        began_s = self._budget.used_s
        samples = [self._take(turn, seats[turn.slot]) for turn in order if self._budget.allows(0)]
        self._turn_takes_s = (self._budget.used_s - began_s) / max(1, len(samples))
        self._ledger.finish(stop.visit, _best_tpot_s(samples))
        return True

    def _bring_up(self, seats: Iterable[_Seat]) -> None:
        """Start all engines of a sitting before the first block, so that no start disturbs a measurement."""
        for seat in seats:
            try:
                self._start(seat)
            except EngineFailed:
                if seat.slot.arm not in (*self._proven_arms, Arm.STATIC):
                    raise

    def _start(self, seat: _Seat) -> RunningEngine:
        self._observer.starting(seat.slot)
        seat.start = seat.slot.index if seat.start < 0 else self._ledger.new_start()
        began_s = self._budget.used_s
        try:
            seat.engine = self._engine.start(seat.slot.arm, seat.slot.fixed_k)
        except EngineFailed:
            seat.failed_starts += 1
            raise
        self._start_takes_s = self._budget.used_s - began_s
        return seat.engine

    def _take(self, turn: Turn, seat: _Seat) -> Block | Failure:
        ends = self._ends[turn.condition, turn.cell]
        sample = self._failure(turn, seat, ends[-1]) if len(ends) >= ENGINES_A_CELL else self._try(turn, seat)
        self._ledger.append(sample)
        self._observer.measured(sample)
        return sample

    def _try(self, turn: Turn, seat: _Seat) -> Block | Failure:
        try:
            return self._measure(turn, seat)
        except EngineFailed as error:
            if seat.engine is not None:
                self._ends[turn.condition, turn.cell].append(error.what)
            _close(seat)
            return self._failure(turn, seat, error.what)

    def _failure(self, turn: Turn, seat: _Seat, reason: str) -> Failure:
        return Failure(
            cell=turn.cell,
            condition=turn.condition,
            phase=seat.slot.phase,
            stop=turn.stop,
            repetition=turn.repetition,
            round=turn.round,
            slot=turn.slot,
            start=seat.start,
            taken_at_s=time.time(),
            reason=reason,
        )

    def _measure(self, turn: Turn, seat: _Seat) -> Block:
        engine = seat.engine
        if engine is None:
            if seat.failed_starts >= STARTS_A_SLOT:
                raise EngineFailed(f"the engine failed to start {seat.failed_starts} times.", "See its log.")
            engine = self._start(seat)
        taken_at = time.time()
        cell, steps, settle = turn.cell, self._request.steps, self._request.settle
        raw = engine.measure(cell.batch_size, cell.k, condition=turn.condition, steps=steps, settle=settle)
        self._proven_arms.add(cell.arm)
        return Block(
            cell=cell,
            condition=turn.condition,
            phase=seat.slot.phase,
            stop=turn.stop,
            repetition=turn.repetition,
            round=turn.round,
            slot=turn.slot,
            start=seat.start,
            taken_at_s=taken_at,
            step_s=raw.step_s,
            steps_run=raw.steps_run,
            context=raw.context,
            prompts=raw.prompts,
            machine=raw.machine,
        )


def _best_tpot_s(samples: Iterable[Block | Failure]) -> float | None:
    """The least TPOT of the Ks seen at a stop, by the tokens that each got there."""
    by_cell: dict[Cell, list[Block]] = defaultdict(list)
    for sample in samples:
        if isinstance(sample, Block) and sample.cell.batch_size == sample.stop:
            by_cell[sample.cell].append(sample)
    return min(map(_tpot_s, by_cell.values()), default=None)


def _tpot_s(blocks: Sequence[Block]) -> float:
    steps = sum(prompt.steps for block in blocks for prompt in block.prompts)
    tokens = sum(prompt.tokens for block in blocks for prompt in block.prompts)
    return median(step for block in blocks for step in block.step_s) * (steps / tokens if tokens else 1.0)


def _close(seat: _Seat) -> None:
    if seat.engine is not None:
        seat.engine.close()
        seat.engine = None
