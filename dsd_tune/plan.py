"""The order of measuring: which engines live together, and which cell each of them runs when.

Drift and the luck of an engine start must not look like a difference between arms, so arms alternate in time,
every order is random, and every second round walks the first one backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random

from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.run import SweepRequest


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the plan for one engine start."""

    index: int
    phase: Phase
    arm: Arm
    fixed_k: int | None = None

    def ks(self, request: SweepRequest) -> tuple[int, ...]:
        """The Ks that this engine can run."""
        if self.arm is Arm.DSD:
            return request.ks
        return (self.fixed_k or 0,)


@dataclass(frozen=True, slots=True)
class Turn:
    """One block to be measured: `slot` runs `cell` under `condition` in `round`. Identifies it across restarts."""

    slot: int
    round: int
    cell: Cell
    condition: Condition

    @classmethod
    def of(cls, sample: Block | Failure) -> Turn:
        """The turn that a sample was."""
        return cls(sample.slot, sample.round, sample.cell, sample.condition)


@dataclass(frozen=True, slots=True)
class Sitting:
    """Engines that are alive together, and the turns they take."""

    slots: tuple[Slot, ...]
    turns: tuple[Turn, ...]


def plan_arms(request: SweepRequest, alive_together: int) -> list[Sitting]:
    """`no_spec` against the table's engine, `request.starts` starts of each."""
    return _seat(request, Phase.MAIN, [(Arm.NO_SPEC, None), (Arm.DSD, None)], alive_together)


def plan_static(request: SweepRequest, alive_together: int, fixed_k: int) -> list[Sitting]:
    """The best fixed K against a fresh `no_spec`, where its CUDA graphs differ from the table's engine."""
    return _seat(request, Phase.STATIC, [(Arm.NO_SPEC, None), (Arm.STATIC, fixed_k)], alive_together)


def _seat(
    request: SweepRequest, phase: Phase, arms: list[tuple[Arm, int | None]], alive_together: int
) -> list[Sitting]:
    """All starts in one sitting if they may live together, otherwise pairs or single engines in A B B A order."""
    first_slot = 0 if phase is Phase.MAIN else len(arms) * request.starts
    slots = [
        Slot(first_slot + len(arms) * start + place, phase, arm, k)
        for start in range(request.starts)
        for place, (arm, k) in enumerate(arms if start % 2 == 0 else arms[::-1])
    ]
    if alive_together >= len(slots):
        groups = [slots]
    elif alive_together >= len(arms):
        groups = [slots[i : i + len(arms)] for i in range(0, len(slots), len(arms))]
    else:
        groups = [[slot] for slot in slots]
    return [Sitting(tuple(group), _turns(request, group)) for group in groups]


def _turns(request: SweepRequest, slots: list[Slot]) -> tuple[Turn, ...]:
    """Even rounds step the batch size down in random order of cells; odd rounds retrace them upwards."""
    shuffle = Random(f"{request.seed}/{slots[0].index}").shuffle
    turns: list[Turn] = []
    forward: list[tuple[int, Cell, Condition]] = []
    for round_ in range(request.rounds):
        if round_ % 2 == 0:
            forward = []
            for condition, batch_size in product(request.conditions, reversed(request.batch_sizes)):
                stop = [(s.index, Cell(s.arm, batch_size, k), condition) for s in slots for k in s.ks(request)]
                shuffle(stop)
                forward += stop
            order = forward
        else:
            order = forward[::-1]
        turns += [Turn(slot, round_, cell, condition) for slot, cell, condition in order]
    return tuple(turns)
