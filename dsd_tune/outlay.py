"""What a sweep will cost before it begins: cells, visits, blocks and engine starts, and the time they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dsd_tune.errors import UsageError
from dsd_tune.plan import Aboard, Plan, Slot, Stop, Turn, turns
from dsd_tune.records.measurement import Arm, Block, Cell, Phase
from dsd_tune.records.profile import Profile
from dsd_tune.records.run import SweepRequest

LOOKED_INTO = 3
"""Ks measured at a batch size between the anchors, at most."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take. `block_s` is of one block of a cell; None where that is not known.

    `start_s` is of one engine start, and `fill_s` of filling the largest batch once; None where nobody timed them.
    """

    block_s: Callable[[Cell], float | None]
    start_s: float | None
    fill_s: float | None


@dataclass(frozen=True, slots=True)
class Outlay:
    """One part of a sweep. `measuring_s` and `starting_s` are None where times are not known."""

    cells: int
    visits: int
    blocks: int
    starts: int
    measuring_s: float | None
    starting_s: float | None

    @property
    def seconds(self) -> float | None:
        """All of it, as far as it is known."""
        return None if self.measuring_s is None else self.measuring_s + (self.starting_s or 0.0)


def anchors(request: SweepRequest, pace: Pace | None = None, alive_together: int = 1) -> Outlay:
    """The part that is always measured: every anchor at every K in both arms, in every start asked for."""
    sittings = list(_walk(request, alive_together))
    made = [stop for _, stops in sittings for stop in stops]
    order = [turn for _, turns_ in made for turn in turns_]
    starts = sum(len(slots) for slots, _ in sittings)
    fills = starts * len(request.conditions)
    return Outlay(
        cells=len({(turn.cell, turn.condition) for turn in order}),
        visits=len(made),
        blocks=len(order),
        starts=starts,
        measuring_s=_measuring_s([turn.cell for turn in order], fills, pace),
        starting_s=starts * pace.start_s if pace and pace.start_s is not None else None,
    )


def refinement(request: SweepRequest, pace: Pace | None = None) -> Outlay:
    """The most that is looked into between the anchors, if every gap is open, in engines that are alive anyway."""
    sizes = [round((a * b) ** 0.5) for a, b in zip(request.batch_sizes, request.batch_sizes[1:], strict=False)]
    ks = [k for k in request.ks if k in {0, 1, request.k_max}][:LOOKED_INTO]
    cells = [Cell(Arm.NO_SPEC, b, 0) for b in sizes] + [Cell(Arm.DSD, b, k) for b in sizes for k in ks]
    blocks = [cell for cell in cells for _ in range(request.starts * request.rounds)] * len(request.conditions)
    visits = len(sizes) * len(request.conditions)
    return Outlay(len(cells) * len(request.conditions), visits, len(blocks), 0, _measuring_s(blocks, 0, pace), 0.0)


def pace_of(profile: Profile, request: SweepRequest) -> Pace:
    """From an earlier profile, which knows steps, but neither starts nor prefills."""
    known = {estimate.cell: estimate.step_s.value for estimate in profile.cells if estimate.step_s}
    steps = request.steps + request.settle

    def block_s(cell: Cell) -> float | None:
        beside = [(c.batch_size, s) for c, s in known.items() if (c.arm, c.k) == (cell.arm, cell.k)]
        below = max((b for b in beside if b[0] <= cell.batch_size), default=None)
        above = min((b for b in beside if b[0] >= cell.batch_size), default=None)
        if below is None or above is None:
            return None
        width = above[0] - below[0]
        share = (cell.batch_size - below[0]) / width if width else 0.0
        return steps * (below[1] + share * (above[1] - below[1]))

    if not known:
        raise UsageError("this profile has no step times.", "Name one of a sweep, or leave --profile out.")
    return Pace(block_s, None, None)


def _measuring_s(cells: list[Cell], fills: int, pace: Pace | None) -> float | None:
    if pace is None:
        return None
    times = [pace.block_s(cell) for cell in cells]
    known = [time for time in times if time is not None]
    return sum(known) + fills * (pace.fill_s or 0.0) if len(known) == len(times) else None


def _walk(
    request: SweepRequest, alive_together: int
) -> Iterator[tuple[tuple[Slot, ...], list[tuple[Stop, tuple[Turn, ...]]]]]:
    """The plan as it will be made if nothing fails: the engines of each sitting, and its stops with their turns."""
    taken: list[Block] = []
    first = 0
    while due := Plan(request, Phase.MAIN, taken).sitting(alive_together):
        slots = tuple(Slot(first + place, Phase.MAIN, arm) for place, (arm, _) in enumerate(due))
        stops = Plan(request, Phase.MAIN, taken).stops(Aboard(slots, dict(due)))
        made = [(stop, turns(stop, slots, request)) for stop in stops]
        taken += [_as_taken(turn) for _, order in made for turn in order]
        first += len(slots)
        yield slots, made


def _as_taken(turn: Turn) -> Block:
    """A block of which only its place in the plan matters."""
    return Block(
        cell=turn.cell,
        condition=turn.condition,
        phase=Phase.MAIN,
        stop=turn.stop,
        repetition=turn.repetition,
        round=turn.round,
        slot=turn.slot,
        start=turn.slot,
        taken_at_s=0.0,
        step_s=(1.0,),
        steps_run=1,
        context=(1, 1),
        prompts=(),
        machine=None,
    )
