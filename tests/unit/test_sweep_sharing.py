import pytest
from builders import A_CONDITION
from sweeping import Silent, a_shelf, a_sweep, asked_for, starts_of, swept

from dsd_tune.engines.simulated import NO_NOISE, SimulatedEngine
from dsd_tune.plan import Slot
from dsd_tune.records.measurement import Arm, Phase
from dsd_tune.records.visit import Visit
from dsd_tune.sweep import Budget


def test_visits_of_other_workers_are_not_made() -> None:
    """A stop that somebody else claimed first is passed over, and the others are made."""
    engine = SimulatedEngine(alive_together=4)
    shelf = a_shelf(engine)
    shelf.claimed.add(Visit(Phase.MAIN, (Arm.NO_SPEC, Arm.DSD), A_CONDITION, 4, 0))
    a_sweep(engine, shelf).measure_arms()
    assert {s.stop for s in shelf.kept} == {1, 16}


def test_two_workers_share_a_run() -> None:
    """What one worker is at the other leaves alone, and together they measure everything once."""
    one, other = SimulatedEngine(alive_together=4), SimulatedEngine(alive_together=4, seed=1)
    shelf = a_shelf(one)
    busy = {Visit(Phase.MAIN, (Arm.NO_SPEC, Arm.DSD), A_CONDITION, size, 0) for size in (16, 4)}
    shelf.taken_elsewhere = busy
    a_sweep(other, shelf).measure_arms()
    shelf.taken_elsewhere = set()
    a_sweep(one, shelf).measure_arms()
    assert starts_of(shelf) == dict.fromkeys(asked_for(shelf), 2)


def test_a_visit_ends_with_its_best_tpot() -> None:
    """Whoever looks at the run's visits sees the best TPOT of each, over the tokens that were really accepted."""
    engine = SimulatedEngine(noise=NO_NOISE, alive_together=4)
    shelf = a_shelf(engine)
    a_sweep(engine, shelf).measure_arms()
    assert [visit.batch_size for visit, _ in shelf.finished] == [16, 4, 1]
    for visit, tpot_s in shelf.finished:
        truth = min(engine.true_tpot_s(c) for c in asked_for(shelf) if c.batch_size == visit.batch_size)
        assert tpot_s == pytest.approx(truth, rel=0.15)


def test_nothing_begins_that_would_not_end_in_time() -> None:
    """A budget holds to within the last stop, and a second helping goes on where the first ended."""
    engine = SimulatedEngine(alive_together=4)
    shelf = a_shelf(engine, batch_sizes=(1, 2, 4, 8, 16))
    whole = swept(SimulatedEngine(alive_together=4), batch_sizes=(1, 2, 4, 8, 16))
    budget = Budget(90, clock=engine.now_s)
    a_sweep(engine, shelf, budget=budget).measure_arms()
    assert 0 < len(shelf.kept) < len(whole.kept)
    assert budget.used_s <= 90
    a_sweep(engine, shelf, budget=Budget(1e6, clock=engine.now_s)).measure_arms()
    assert set(starts_of(shelf)) == asked_for(shelf)


def test_a_stop_that_takes_too_long_ends_early() -> None:
    """Before the first stop nobody knows how long one takes; no block begins after the budget is spent."""
    engine = SimulatedEngine(alive_together=2, start_takes_s=20)
    shelf = a_shelf(engine)
    budget = Budget(41, clock=engine.now_s)
    a_sweep(engine, shelf, budget=budget).measure_arms()
    assert 0 < len(shelf.kept) < 16
    assert 41 <= budget.used_s < 42
    assert [visit.batch_size for visit, _ in shelf.finished] == [16]


def test_a_budget_is_spent_on_everything_once_before_anything_twice() -> None:
    """Where all engines fit, a budget is begun with two of them, and the others come when the grid is covered."""
    engine = SimulatedEngine(alive_together=8)
    shelf = a_shelf(engine, starts=3)
    a_sweep(engine, shelf, budget=Budget(1e6, clock=engine.now_s)).measure_arms()
    first = {s.slot for s in shelf.kept[: len(shelf.kept) // 3]}
    assert len(first) == 2
    assert {s.cell for s in shelf.kept if s.slot in first} == asked_for(shelf)
    assert starts_of(shelf) == dict.fromkeys(asked_for(shelf), 3)


def test_no_engine_is_started_without_time_to_measure() -> None:
    """Where one engine lives at a time, the next is not begun if its start alone would take what is left."""
    engine = SimulatedEngine(alive_together=1, start_takes_s=60)
    starts: list[Slot] = []

    class Counting(Silent):
        def starting(self, slot: Slot) -> None:
            starts.append(slot)

    a_sweep(engine, a_shelf(engine), Counting(), budget=Budget(100, clock=engine.now_s)).measure_arms()
    assert len(starts) == 1


def test_whoever_waits_for_others_says_so() -> None:
    """A worker with nothing left to begin tells how many visits it waits for; one that is alone waits for nobody."""
    engine = SimulatedEngine(alive_together=4)
    shelf = a_shelf(engine)
    awaited: list[int] = []

    class Waiting(Silent):
        def waiting(self, visits: int) -> None:
            awaited.append(visits)

    shelf.taken_elsewhere = {Visit(Phase.MAIN, (Arm.NO_SPEC, Arm.DSD), A_CONDITION, size, 0) for size in (16, 4)}
    a_sweep(engine, shelf, Waiting()).measure_arms()
    assert awaited == [2]
    shelf.taken_elsewhere = set()
    a_sweep(engine, shelf, Waiting()).measure_arms()
    assert awaited == [2]
