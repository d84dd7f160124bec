import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from builders import A_CONDITION, a_block, a_failure, a_request
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.model.undecided import Undecided
from dsd_tune.plan import ENGINES_A_CELL, MOST_VISITS, Aboard, Plan, Slot, Stop, Turn, turns
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.run import SweepRequest
from dsd_tune.records.visit import Visit

NO_SPEC, DSD = Arm.NO_SPEC, Arm.DSD
ALTERNATING = [NO_SPEC, DSD, DSD, NO_SPEC, NO_SPEC, DSD]

requests = st.builds(
    lambda sizes, k_max, starts, rounds, seed: a_request(
        batch_sizes=tuple(sorted(sizes)), ks=tuple(range(k_max + 1)), starts=starts, rounds=rounds, seed=seed
    ),
    st.sets(st.integers(1, 16), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 1000),
)
alive = st.integers(1, 9)


def _plan(request: SweepRequest, samples: list[Block | Failure], open_: Undecided | None = None, **more: Any) -> Plan:
    undecided = {A_CONDITION: open_} if open_ else {}
    return Plan(request, Phase.MAIN, samples, undecided=undecided, **more)


def _walked(
    request: SweepRequest,
    alive_together: int,
    open_: Undecided | None = None,
    samples: list[Block | Failure] | None = None,
) -> Iterator[tuple[Aboard, list[tuple[Stop, tuple[Turn, ...]]], list[Block | Failure]]]:
    """Each sitting of a sweep in which nothing fails, with its stops; `open_` stays open for ever."""
    samples = [] if samples is None else samples
    while due := _plan(request, samples, open_).sitting(alive_together):
        first = 1 + max((sample.start for sample in samples), default=-1)
        slots = tuple(Slot(first + i, Phase.MAIN, arm) for i, (arm, _) in enumerate(due))
        aboard, made = Aboard(slots, dict(due)), []
        while stops := _plan(request, samples, open_).stops(aboard):
            for stop in stops:
                order = turns(stop, slots, request)
                samples += [_taken(turn) for turn in order]
                made.append((stop, order))
        yield aboard, made, samples


def _taken(turn: Turn) -> Block:
    return a_block(
        cell=turn.cell,
        condition=turn.condition,
        stop=turn.stop,
        repetition=turn.repetition,
        round=turn.round,
        slot=turn.slot,
        start=turn.slot,
    )


def _without_reference(order: tuple[Turn, ...]) -> list[Turn]:
    return [turn for turn in order if turn.cell.batch_size == turn.stop]


@given(requests, alive)
def test_every_anchor_gets_its_starts(request_: SweepRequest, alive_together: int) -> None:
    """However many engines fit, each anchor is measured at each K in as many starts as asked for, and in no more."""
    samples: list[Block | Failure] = []
    for _ in _walked(request_, alive_together, samples=samples):
        pass
    seen = Counter((s.cell, s.start) for s in samples if s.stop == s.cell.batch_size)
    assert set(seen.values()) == {request_.rounds}
    starts = Counter(cell for cell, _ in seen)
    wanted = {Cell(DSD, b, k) for b in request_.batch_sizes for k in request_.ks}
    wanted |= {Cell(NO_SPEC, b, 0) for b in request_.batch_sizes}
    assert starts == Counter(dict.fromkeys(wanted, request_.starts))


@given(requests, alive)
def test_every_second_pass_walks_the_one_before_backwards(request_: SweepRequest, alive_together: int) -> None:
    """Drift that is linear in time cancels within a stop."""
    for _, made, _ in _walked(request_, alive_together):
        for _, order in made:
            taken = _without_reference(order)
            passes = [[(t.slot, t.cell) for t in taken if t.round == r] for r in range(request_.rounds)]
            assert all(late == early[::-1] for early, late in itertools.pairwise(passes))


@given(requests, alive)
def test_a_descent_lets_requests_go(request_: SweepRequest, alive_together: int) -> None:
    """The anchors are visited from the largest batch size down, so that one prefill serves them all."""
    for _, made, _ in _walked(request_, alive_together):
        sizes = [stop.visit.batch_size for stop, _ in made]
        assert sizes == sorted(sizes, reverse=True)


@given(requests, alive)
def test_every_stop_ends_with_the_reference(request_: SweepRequest, alive_together: int) -> None:
    """One engine times one and the same cell at every stop, and where it belongs to the stop, it is not taken twice."""
    for aboard, made, _ in _walked(request_, alive_together):
        arm = DSD if DSD in aboard.arms else NO_SPEC
        reference = Cell(arm, request_.batch_sizes[0], 0)
        for stop, order in made:
            assert len(order) - len(_without_reference(order)) == (reference not in stop.cells)
            assert reference in {turn.cell for turn in order}


@given(requests, alive)
def test_same_samples_same_plan(request_: SweepRequest, alive_together: int) -> None:
    """A plan depends on nothing but what it is given."""
    assert list(_walked(request_, alive_together)) == list(_walked(request_, alive_together))


def test_another_seed_shuffles_anew() -> None:
    """The order within a stop comes from the seed."""
    slots = (Slot(0, Phase.MAIN, DSD),)
    stop = Stop(Visit(Phase.MAIN, (DSD,), A_CONDITION, 1, 0), tuple(Cell(DSD, 1, k) for k in range(5)))
    one, other = (turns(stop, slots, a_request(seed=seed)) for seed in (1, 2))
    assert one != other
    assert Counter(one) == Counter(other)


def test_arms_alternate_when_one_engine_lives_at_a_time() -> None:
    """Single engines come in the order A B B A A B, so that a drifting machine favours no arm."""
    aboard = [aboard for aboard, _, _ in _walked(a_request(starts=3), 1)]
    assert [slot.arm for a in aboard for slot in a.slots] == ALTERNATING


@pytest.mark.parametrize("alive_together", [2, 3])
def test_pairs_when_not_all_fit(alive_together: int) -> None:
    """With room for two engines but not for all, each sitting holds one start of each arm."""
    aboard = [aboard for aboard, _, _ in _walked(a_request(starts=2), alive_together)]
    assert [[slot.arm for slot in a.slots] for a in aboard] == [[NO_SPEC, DSD]] * 2


def test_all_starts_together_where_they_fit() -> None:
    """With room for every start there is one sitting, and engines take turns within each stop."""
    ((aboard, made, _),) = _walked(a_request(starts=2), 4)
    assert [slot.arm for slot in aboard.slots] == ALTERNATING[:4]
    assert all({turn.slot for turn in order} == {0, 1, 2, 3} for _, order in made)


def test_every_condition_has_its_descent() -> None:
    """Each context at each temperature is measured in full, one after the other."""
    request = a_request(contexts=(512, 4096), temperatures=(0.0, 0.7))
    ((_, made, _),) = _walked(request, 4)
    assert [stop.visit.condition for stop, _ in made[::3]] == list(request.conditions)
    assert [stop.visit.batch_size for stop, _ in made] == [16, 4, 1] * 4


def _measured(request: SweepRequest, alive_together: int = 8) -> list[Block | Failure]:
    samples: list[Block | Failure] = []
    for _ in _walked(request, alive_together, samples=samples):
        pass
    return samples


def test_what_is_under_way_elsewhere_is_left_alone() -> None:
    """A stop that another worker is at is neither visited nor a reason to start an engine; the rest is."""
    request = a_request()
    busy = [Visit(Phase.MAIN, (NO_SPEC, DSD), A_CONDITION, size, 0) for size in request.batch_sizes]
    plan = _plan(request, [], under_way=frozenset(busy[1:]))
    aboard = Aboard((Slot(0, Phase.MAIN, NO_SPEC), Slot(1, Phase.MAIN, DSD)), dict(plan.sitting(2)))
    assert [stop.visit.batch_size for stop in plan.stops(aboard)] == [1]
    assert _plan(request, [], under_way=frozenset(busy)).sitting(2) == ()


def test_other_arms_under_way_do_not_matter() -> None:
    """Where engines live one at a time, another worker's engine without speculation leaves the table's engine to do."""
    request = a_request()
    busy = frozenset(Visit(Phase.MAIN, (NO_SPEC,), A_CONDITION, size, 0) for size in request.batch_sizes)
    ((arm, goal),) = _plan(request, [], under_way=busy).sitting(1)
    aboard = Aboard((Slot(0, Phase.MAIN, arm),), {arm: goal})
    assert arm is DSD
    repetitions = [stop.visit.repetition for stop in _plan(request, [], under_way=busy).stops(aboard)]
    assert repetitions == [1, 1, 1]


def test_a_visit_has_a_number_of_its_own() -> None:
    """Whatever arms take part, a stop that is visited again has the next number."""
    samples = _measured(a_request(starts=3), alive_together=1)
    assert {s.repetition for s in samples if s.stop == 4} == set(range(6))


def test_a_cell_that_ended_two_engines_is_given_up() -> None:
    """It is no longer wanted, and nothing waits for it."""
    doomed = Cell(DSD, 16, 2)
    ends: list[Block | Failure] = [
        a_failure(cell=doomed, phase=Phase.MAIN, stop=16, start=start) for start in range(ENGINES_A_CELL)
    ]
    samples = list(ends)
    for _ in _walked(a_request(), 8, samples=samples):
        pass
    assert doomed not in {s.cell for s in samples[len(ends) :]}
    assert _plan(a_request(), samples).sitting(8) == ()


REFINED = Undecided(0.1, in_play={1: (2,), 4: (1, 2), 16: (0,)}, refine={8: (0, 2)})


def test_open_gaps_are_looked_into_with_the_ks_in_play() -> None:
    """A batch size between the anchors is measured at few Ks, beside no speculation, by the engines that are alive."""
    ((_, made, _),) = _walked(a_request(starts=1), 2, REFINED)
    cells = {cell for stop, _ in made for cell in stop.cells if cell.batch_size == 8}
    assert cells == {Cell(NO_SPEC, 8, 0), Cell(DSD, 8, 0), Cell(DSD, 8, 2)}


def test_a_gap_found_late_waits_for_the_next_engine_of_the_other_arm() -> None:
    """With one engine at a time, what the table's engine found is measured there at once, and next without."""
    walked = list(_walked(a_request(starts=2), 1, REFINED))
    at_8 = [[stop.cells for stop, _ in made if stop.visit.batch_size == 8] for _, made, _ in walked]
    both = (Cell(DSD, 8, 0), Cell(DSD, 8, 2))
    assert at_8 == [[(Cell(NO_SPEC, 8, 0),)], [both], [both], [(Cell(NO_SPEC, 8, 0),)]]


def test_no_more_is_looked_into_than_there_are_anchors() -> None:
    """The most urgent gaps come first, and cost grows no faster than the number of anchors."""
    many = Undecided(0.1, refine=dict.fromkeys((8, 9, 10, 11, 12), (0, 1)))
    samples: list[Block | Failure] = []
    for _ in _walked(a_request(), 8, many, samples):
        pass
    assert {s.stop for s in samples} - {1, 4, 16} == {8, 9, 10}


def test_ties_are_looked_at_again_and_not_for_ever() -> None:
    """A stop whose Ks are too close is repeated at those Ks, until it was visited often enough."""
    tied = Undecided(0.1, in_play={4: (1, 2)}, repeat={4: (1, 2)})
    samples: list[Block | Failure] = []
    for _ in _walked(a_request(), 8, tied, samples):
        pass
    again = [s for s in samples if s.stop == 4 and s.repetition > 0 and s.cell.arm is DSD]
    assert {s.repetition for s in samples if s.stop == 4} == set(range(MOST_VISITS))
    assert {s.cell.k for s in again if s.cell.batch_size == 4} == {1, 2}


def test_a_cell_with_a_block_that_went_wrong_is_taken_again() -> None:
    """By the engines that are still alive, beside no speculation; another sitting's block is past mending."""
    samples = _measured(a_request(starts=2))
    slots = (Slot(0, Phase.MAIN, NO_SPEC), Slot(1, Phase.MAIN, DSD))
    aboard = Aboard(slots, {NO_SPEC: 2, DSD: 2})
    doubted = Undecided(0.0, doubted=((1, Cell(DSD, 4, 2)), (99, Cell(DSD, 16, 1))))
    (stop,) = _plan(a_request(starts=2), samples, doubted).stops(aboard)
    assert stop.cells == (Cell(DSD, 4, 2), Cell(NO_SPEC, 4, 0))
    assert stop.visit.repetition == 1


def test_a_verdict_that_hangs_on_luck_gets_more_starts() -> None:
    """Where engine starts hide the verdict, both arms get another one, for the Ks in play alone."""
    samples = _measured(a_request(starts=2))
    before = len(samples)
    lucky = Undecided(0.0, in_play={1: (2,), 4: (1,), 16: (0,)}, starts=3)
    assert _plan(a_request(starts=2), samples, lucky).sitting(8) == ((NO_SPEC, 3), (DSD, 3))
    for _ in _walked(a_request(starts=2), 8, lucky, samples):
        pass
    extra = {s.cell for s in samples[before:] if s.stop == s.cell.batch_size}
    reference = Cell(DSD, 1, 0)
    in_play = {Cell(DSD, 1, 2), Cell(DSD, 4, 1), Cell(DSD, 16, 0)}
    assert extra == {*(Cell(NO_SPEC, b, 0) for b in (1, 4, 16)), *in_play, reference}


def test_the_fixed_k_runs_beside_a_fresh_no_spec() -> None:
    """The fixed K is compared at the anchors with engines without speculation that were started for it."""
    request = a_request(starts=1)
    plan = Plan(request, Phase.STATIC, _measured(request), fixed_k=2)
    slots = (Slot(90, Phase.STATIC, NO_SPEC), Slot(91, Phase.STATIC, Arm.STATIC, 2))
    assert plan.sitting(2) == ((NO_SPEC, 1), (Arm.STATIC, 1))
    stops = plan.stops(Aboard(slots, dict(plan.sitting(2))))
    assert {(cell.arm, cell.k) for stop in stops for cell in stop.cells} == {(NO_SPEC, 0), (Arm.STATIC, 2)}
    assert [stop.visit.batch_size for stop in stops] == [16, 4, 1]
    assert {stop.visit.phase for stop in stops} == {Phase.STATIC}


def test_a_condition_has_ties_of_its_own() -> None:
    """What is open under one condition is not repeated under another."""
    request = a_request(contexts=(512, 4096))
    open_ = {Condition(4096, 0.0): Undecided(0.1, repeat={4: (1, 2)})}
    plan = Plan(request, Phase.MAIN, _measured(request), undecided=open_)
    aboard = Aboard((Slot(99, Phase.MAIN, DSD),), {DSD: 2})
    assert [stop.visit.condition.context for stop in plan.stops(aboard)] == [4096]
