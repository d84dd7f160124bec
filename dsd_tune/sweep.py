"""Measure: walk the plan with live engines, and put every block on disk before the next one starts.

A cell that fails is recorded and the sweep goes on without it; an engine that died is started again for the
turns that are left. What is on disk is never measured twice, so a killed sweep resumes where it was.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from dsd_tune.engines.protocol import Engine, RunningEngine
from dsd_tune.errors import EngineFailed
from dsd_tune.plan import Sitting, Slot, Turn, plan_arms, plan_static
from dsd_tune.records.measurement import Arm, Block, Cell, Failure
from dsd_tune.storage.run_directory import RunDirectory

STARTS_A_SLOT = 3
"""A slot is given up after this many starts that failed; its turns are recorded as failures."""

ENGINES_A_CELL = 2
"""A cell that ended this many engines is not tried again: every try costs an engine start."""


class Observer(Protocol):
    """Whoever watches a sweep: the terminal, or nobody."""

    def planned(self, turns: int, done: int) -> None:
        """The number of blocks in the plan, and how many of them an earlier process has measured."""
        ...

    def starting(self, slot: Slot) -> None:
        """An engine is about to start, which takes a while."""
        ...

    def measured(self, sample: Block | Failure) -> None:
        """A turn has been taken and is on disk."""
        ...


@dataclass(slots=True)
class _Seat:
    """A slot with its engine, if one is alive, and how many of its starts failed."""

    slot: Slot
    engine: RunningEngine | None = None
    start: int = -1
    failed_starts: int = 0


class Sweep:
    """One process's share of a run: takes the turns that are not on disk yet."""

    def __init__(self, engine: Engine, run: RunDirectory, observer: Observer) -> None:
        self._engine = engine
        self._run = run
        self._observer = observer
        samples = list(run.samples())
        self._taken = {Turn.of(sample) for sample in samples}
        self._next_start = 1 + max((s.start for s in samples), default=-1)
        self._proven_arms = {s.cell.arm for s in samples if isinstance(s, Block)}
        self._ends: dict[Cell, list[str]] = defaultdict(list)

    def measure_arms(self) -> None:
        """Measure `no_spec` and the table's engine.

        Raises:
            EngineFailed: an arm did not come up even once.
        """
        self._walk(plan_arms(self._run.manifest.request, self._engine.alive_together))

    def measure_static(self, fixed_k: int) -> None:
        """Measure the best fixed K in an engine of its own, against fresh `no_spec` engines."""
        self._walk(plan_static(self._run.manifest.request, self._engine.alive_together, fixed_k))

    def _walk(self, sittings: list[Sitting]) -> None:
        turns = [turn for sitting in sittings for turn in sitting.turns]
        self._observer.planned(len(turns), sum(turn in self._taken for turn in turns))
        for sitting in sittings:
            left = [turn for turn in sitting.turns if turn not in self._taken]
            if left:
                self._sit(sitting, left)

    def _sit(self, sitting: Sitting, turns: list[Turn]) -> None:
        needed = {turn.slot for turn in turns}
        seats = {slot.index: _Seat(slot) for slot in sitting.slots if slot.index in needed}
        with ExitStack() as stack:
            for seat in seats.values():
                stack.callback(_close, seat)
            self._bring_up(seats.values())
            for turn in turns:
                self._take(turn, seats[turn.slot])

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
        seat.start = self._next_start
        self._next_start += 1
        try:
            seat.engine = self._engine.start(seat.slot.arm, seat.slot.fixed_k)
        except EngineFailed:
            seat.failed_starts += 1
            raise
        return seat.engine

    def _take(self, turn: Turn, seat: _Seat) -> None:
        ends = self._ends[turn.cell]
        sample = self._failure(turn, seat, ends[-1]) if len(ends) >= ENGINES_A_CELL else self._try(turn, seat)
        self._run.append(sample)
        self._taken.add(turn)
        self._observer.measured(sample)

    def _try(self, turn: Turn, seat: _Seat) -> Block | Failure:
        try:
            return self._measure(turn, seat)
        except EngineFailed as error:
            if seat.engine is not None:
                self._ends[turn.cell].append(error.what)
            _close(seat)
            return self._failure(turn, seat, error.what)

    def _failure(self, turn: Turn, seat: _Seat, reason: str) -> Failure:
        return Failure(
            cell=turn.cell,
            condition=turn.condition,
            phase=seat.slot.phase,
            stop=turn.cell.batch_size,
            repetition=0,
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
        request = self._run.manifest.request
        taken_at = time.time()
        raw = engine.measure(
            turn.cell.batch_size, turn.cell.k, condition=turn.condition, steps=request.steps, settle=request.settle
        )
        self._proven_arms.add(turn.cell.arm)
        return Block(
            cell=turn.cell,
            condition=turn.condition,
            phase=seat.slot.phase,
            stop=turn.cell.batch_size,
            repetition=0,
            round=turn.round,
            slot=turn.slot,
            start=seat.start,
            taken_at_s=taken_at,
            step_s=raw.step_s,
            steps_run=raw.steps_run,
            context=raw.context,
            prompts=raw.prompts,
            machine=None,
        )


def _close(seat: _Seat) -> None:
    if seat.engine is not None:
        seat.engine.close()
        seat.engine = None
