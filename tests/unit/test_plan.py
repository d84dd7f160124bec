from collections import Counter

import pytest
from builders import a_request
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.plan import Sitting, Slot, Turn, plan_arms, plan_static
from dsd_tune.records.measurement import Arm
from dsd_tune.records.run import SweepRequest

ALTERNATING = [Arm.NO_SPEC, Arm.DSD, Arm.DSD, Arm.NO_SPEC]

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


def _slots(sittings: list[Sitting]) -> list[Slot]:
    return [slot for sitting in sittings for slot in sitting.slots]


def _round(sitting: Sitting, number: int) -> list[Turn]:
    return [turn for turn in sitting.turns if turn.round == number]


@given(requests, alive)
def test_every_cell_of_every_slot_once_a_round(request_: SweepRequest, alive_together: int) -> None:
    """Each engine start measures each batch size at each K that it can run, once in each round and no more."""
    for sitting in plan_arms(request_, alive_together):
        for number in range(request_.rounds):
            seen = Counter((t.slot, t.cell.arm, t.cell.batch_size, t.cell.k) for t in _round(sitting, number))
            assert seen == Counter(
                (slot.index, slot.arm, b, k)
                for slot in sitting.slots
                for b in request_.batch_sizes
                for k in (request_.ks if slot.arm is Arm.DSD else (0,))
            )


@given(requests, alive)
def test_odd_rounds_walk_the_round_before_backwards(request_: SweepRequest, alive_together: int) -> None:
    """Drift that is linear in time cancels between a round and the next."""
    for sitting in plan_arms(request_, alive_together):
        for number in range(1, request_.rounds, 2):
            there = [(t.slot, t.cell) for t in _round(sitting, number - 1)]
            back = [(t.slot, t.cell) for t in _round(sitting, number)]
            assert back == there[::-1]


@given(requests, alive)
def test_even_rounds_step_the_batch_size_down(request_: SweepRequest, alive_together: int) -> None:
    """An even round fills the batch once and then only lets requests go."""
    for sitting in plan_arms(request_, alive_together):
        for number in range(0, request_.rounds, 2):
            sizes = [turn.cell.batch_size for turn in _round(sitting, number)]
            assert sizes == sorted(sizes, reverse=True)


@given(requests, alive)
def test_same_request_same_plan(request_: SweepRequest, alive_together: int) -> None:
    """A resumed sweep finds the same turns in the same order."""
    assert plan_arms(request_, alive_together) == plan_arms(request_, alive_together)


def test_another_seed_shuffles_anew() -> None:
    """The order within a batch size comes from the seed."""
    one, other = (plan_arms(a_request(ks=(0, 1, 2, 3, 4), seed=seed), 4)[0].turns for seed in (1, 2))
    assert one != other
    assert Counter(one) == Counter(other)


def test_arms_alternate_when_one_engine_lives_at_a_time() -> None:
    """Single engines come in the order A B B A, so that a drifting machine favours no arm."""
    sittings = plan_arms(a_request(starts=2), alive_together=1)
    assert [[slot.arm for slot in sitting.slots] for sitting in sittings] == [[arm] for arm in ALTERNATING]


@pytest.mark.parametrize("alive_together", [2, 3])
def test_pairs_when_not_all_fit(alive_together: int) -> None:
    """With room for two engines but not for all, each sitting holds one start of each arm."""
    sittings = plan_arms(a_request(starts=2), alive_together)
    assert [[slot.arm for slot in sitting.slots] for sitting in sittings] == [ALTERNATING[:2], ALTERNATING[2:]]


def test_all_starts_together_where_they_fit() -> None:
    """With room for every start there is one sitting, and engines take turns within each batch size."""
    (sitting,) = plan_arms(a_request(starts=2), alive_together=4)
    assert [slot.arm for slot in sitting.slots] == ALTERNATING
    assert {turn.slot for turn in _round(sitting, 0)[:8]} == {0, 1, 2, 3}


@given(requests, alive)
def test_slots_are_numbered_once_across_both_plans(request_: SweepRequest, alive_together: int) -> None:
    """A slot's number tells starts apart across the plan of the arms and the plan of the fixed K."""
    slots = _slots(plan_arms(request_, alive_together)) + _slots(plan_static(request_, alive_together, 1))
    assert sorted(slot.index for slot in slots) == list(range(4 * request_.starts))


def test_static_plan_runs_the_fixed_k_beside_a_fresh_no_spec() -> None:
    """The fixed K is compared with engines without speculation that were started for it."""
    sittings = plan_static(a_request(starts=1), alive_together=2, fixed_k=2)
    assert {(turn.cell.arm, turn.cell.k) for s in sittings for turn in s.turns} == {(Arm.NO_SPEC, 0), (Arm.STATIC, 2)}
    assert {slot.fixed_k for slot in _slots(sittings)} == {None, 2}
