"""Policies by themselves: which K they choose for which steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from builders import AStep, a_profile, a_warning, an_environment
from hypothesis import example, given
from hypothesis import strategies as st
from serving import with_step_times

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Boundary, PositionAcceptance, Profile
from dsd_tune.records.table import Table
from dsd_tune.records.warning import Code
from dsd_tune.runtime.costs import StepTimes, tokens_per_step
from dsd_tune.runtime.policies.choice import PolicyName
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.policies.goodput import PROBE_EVERY, PROBE_STEPS, GoodputPolicy
from dsd_tune.runtime.policies.hysteresis import HysteresisPolicy
from dsd_tune.runtime.policies.rotate import RotatePolicy
from dsd_tune.runtime.policies.table import TablePolicy
from dsd_tune.runtime.policy import Observer, Policy

TABLE = Table.from_dense([3] * 4 + [1] * 4 + [0] * 8)
TIMES = StepTimes({0: {1: 1.0, 16: 1.6}, 1: {1: 1.2, 16: 2.4}, 3: {1: 1.3, 16: 5.6}})
GOOD, BAD = (0.8, 0.64, 0.512), (0.05, 0.01, 0.002)


def boundary(after: int, low: int, high: int) -> Boundary:
    """A boundary whose Ks are tied from `low` to `high`."""
    return Boundary(after, low, high, low, high, 1, 0, None)


def run(policy: Policy, sizes: Sequence[int]) -> list[int]:
    """K for steps that only decode."""
    return [policy.k(AStep(size)) for size in sizes]


def switches(ks: Sequence[int]) -> int:
    """How often K changed."""
    return sum(left != right for left, right in pairwise(ks))


def test_a_table_counts_every_scheduled_request() -> None:
    """As in vLLM, a chunk of a prefill counts as one."""
    assert TablePolicy(TABLE).k(AStep(5, decoding=4)) == 1


def test_a_table_carries_its_last_k_on() -> None:
    """Past the table's end the last K holds, as in vLLM with a larger max_num_seqs."""
    assert TablePolicy(Table.from_dense([2, 1])).k(AStep(99)) == 1


def test_a_fixed_policy_can_be_changed_between_steps() -> None:
    """The sweep switches K by assigning to the policy that is already installed."""
    policy = FixedPolicy(0)
    before = policy.k(AStep(7))
    policy.value = 4
    assert (before, policy.k(AStep(7))) == (0, 4)


def test_rotation_gives_each_k_its_turn() -> None:
    """Every K stays for its steps, from the smallest on, and the round begins anew."""
    assert run(RotatePolicy({2, 0}, steps=2), [1] * 6) == [0, 0, 2, 2, 0, 0]


def test_a_prefill_does_not_switch_hysteresis() -> None:
    """Four decoding requests keep their K while prefills pass through."""
    policy = HysteresisPolicy(TABLE, ())
    assert {policy.k(AStep(4 + prefills, decoding=4)) for prefills in [0, 1, 5, 2, 12, 0] * 20} == {3}


def test_hovering_at_a_boundary_does_not_switch_hysteresis() -> None:
    """The two batch sizes that a boundary separates share the K in force."""
    assert switches(run(HysteresisPolicy(TABLE, ()), [4, 5] * 200)) == 0


def test_hysteresis_stays_while_ks_are_tied() -> None:
    """Within the profile's tie the K in force stays, whichever side it came from; outside, the table's holds."""
    ties = [boundary(4, 3, 6), boundary(8, 8, 9)]
    upwards, downwards = (HysteresisPolicy(TABLE, ties, dwell=0) for _ in range(2))
    assert run(upwards, [3, 5, 6, 7]) == [3, 3, 3, 1]
    assert run(downwards, [8, 6, 3, 2]) == [1, 1, 1, 3]


@given(
    reaches=st.tuples(*[st.tuples(st.integers(0, 8), st.integers(0, 8))] * 2),
    sizes=st.lists(st.integers(1, 16), min_size=2),
)
@example(reaches=((1, 16), (0, 1)), sizes=[1, 12])
@example(reaches=((0, 1), (6, 1)), sizes=[16, 3])
def test_hysteresis_switches_exactly_where_another_k_is_better_for_certain(
    reaches: Sequence[tuple[int, int]], sizes: list[int]
) -> None:
    """However ties overlap: the K in force stays where no boundary speaks against it, and goes where one does."""
    ties = [boundary(after, after - down, after + up) for after, (down, up) in zip((4, 8), reaches, strict=True)]
    ks = run(HysteresisPolicy(TABLE, ties, dwell=0), sizes)
    for before, k, size in zip([3, *ks], ks, sizes, strict=False):
        good = {3, 1, 0}
        for tie, left in zip(ties, ({3}, {3, 1}), strict=True):
            if size > max(tie.high, tie.after + 1):
                good -= left
            if size < tie.low:
                good &= left
        assert k in good
        assert k == before or before not in good


def test_hysteresis_crosses_several_ranges_at_once() -> None:
    """A burst does not climb down the table step by step."""
    assert run(HysteresisPolicy(TABLE, (), dwell=0), [1, 16, 1]) == [3, 0, 3]


def test_hysteresis_dwells() -> None:
    """However the load jumps, there are at least that many steps from one switch to the next."""
    ks = run(HysteresisPolicy(TABLE, (), dwell=10), [1, 16] * 100)
    assert switches(ks) <= len(ks) / 10


def test_an_engine_without_decoding_requests_keeps_its_k() -> None:
    """A step of prefills alone says nothing about the batch to come."""
    policy = HysteresisPolicy(TABLE, (), dwell=0)
    assert [policy.k(AStep(12)), policy.k(AStep(3, decoding=0))] == [0, 0]


def draft(policy: GoodputPolicy, size: int, rates: Sequence[float], steps: int) -> list[int]:
    """Steps in which exactly the given share of drafts is accepted, as far as something is drafted."""
    ks = []
    for _ in range(steps):
        k = policy.k(AStep(size))
        ks.append(k)
        policy.observe([1000] * k, [round(1000 * rate) for rate in rates[:k]], 1)
    return ks


def best_k(size: int, rates: Sequence[float]) -> int:
    """The K with the most tokens per second, by the definition."""
    tokens, times = tokens_per_step(rates), TIMES.at(size)
    return max(times, key=lambda k: tokens[k] / times[k])


@pytest.mark.parametrize("size", [1, 4, 8, 16])
@pytest.mark.parametrize("rates", [GOOD, BAD])
@pytest.mark.parametrize("prior", [GOOD, BAD])
def test_goodput_finds_the_best_k_whatever_the_profile_says(
    size: int, rates: Sequence[float], prior: Sequence[float]
) -> None:
    """Nearly all steps of a settled engine run at the K that yields most under the acceptance it sees."""
    policy = GoodputPolicy(TIMES, prior, TABLE, frozenset({0, 1, 3}))
    draft(policy, size, rates, 4 * PROBE_EVERY)
    settled = draft(policy, size, rates, 2 * PROBE_EVERY)
    assert settled.count(best_k(size, rates)) >= len(settled) * (1 - 2 * PROBE_STEPS / PROBE_EVERY)


def test_goodput_comes_back_from_zero() -> None:
    """At K=0 nothing is observed, but probes notice that the text has become predictable again."""
    policy = GoodputPolicy(TIMES, BAD, TABLE, frozenset({0, 1, 3}))
    assert draft(policy, 8, BAD, 2 * PROBE_EVERY)[-1] == 0
    assert draft(policy, 8, GOOD, 2 * PROBE_EVERY)[-1] == best_k(8, GOOD) > 0


def test_goodput_leaves_what_it_does_not_know_to_the_table() -> None:
    """Where fewer than two Ks have a step time, the table's K holds."""
    policy = GoodputPolicy(StepTimes({0: {4: 1.0, 8: 1.0}, 1: {8: 1.1}}), GOOD, TABLE, frozenset({0, 1, 3}))
    assert run(policy, [2, 4, 12]) == [3, 3, 0]


def test_step_times_are_straight_between_measured_batch_sizes_and_unknown_outside() -> None:
    """Each K has its own measured batch sizes; nothing is claimed beyond them."""
    times = StepTimes({0: {2: 1.0, 4: 3.0}, 1: {2: 5.0}})
    assert [dict(times.at(size)) for size in (1, 2, 3, 4, 5)] == [{}, {0: 1.0, 1: 5.0}, {0: 2.0}, {0: 3.0}, {}]


def test_tokens_per_step_add_up_the_positions() -> None:
    """One token from verification itself, and one for each position as often as it is accepted."""
    assert tokens_per_step((0.5, 0.25)) == (1.0, 1.5, 1.75)


def test_an_unknown_policy_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(UsageError, match=r"=fastest is no policy\. Use one of table, hysteresis, goodput"):
        PolicyName.parse("fastest")


def test_goodput_needs_acceptance_by_position() -> None:
    """A profile without it cannot be served by that policy, and the message says so."""
    with pytest.raises(ProfileMismatch, match="no acceptance by position"):
        PolicyName.GOODPUT.make(a_profile(acceptance=()), TABLE, TABLE.ks)


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_goodput_is_refused_where_positions_do_not_add_up(method: str) -> None:
    """Steps without a draft are not seen, and a block's first tokens may depend on K: other policies do not mind."""
    profile = a_profile(environment=an_environment(method=method))
    with pytest.raises(ProfileMismatch, match=f"does not foretell a step's tokens with {method}.*another policy"):
        PolicyName.GOODPUT.make(profile, TABLE, TABLE.ks)
    assert PolicyName.HYSTERESIS.make(profile, TABLE, TABLE.ks)


def test_goodput_is_refused_where_drafts_were_seen_to_depend_on_k() -> None:
    """What `fit` found out about a drafter counts as much as what is known of its method."""
    profile = a_profile(warnings=(a_warning(code=Code.DEPENDS_ON_K),))
    with pytest.raises(ProfileMismatch, match="does not foretell"):
        PolicyName.GOODPUT.make(profile, TABLE, TABLE.ks)


STEPS = st.tuples(st.integers(0, 300), st.integers(0, 300)).map(lambda pair: AStep(max(pair), decoding=min(pair)))
COUNTS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=9)


def a_measured_profile() -> Profile:
    """Step times at every K up to 3 and batch size up to 16, under which K=1 is best; the table has K=2 and K=0."""
    rates = [Interval(rate, rate - 0.1, rate + 0.1) for rate in (0.8, 0.3, 0.1)]
    acceptance = tuple(PositionAcceptance(i, rate) for i, rate in enumerate(rates, start=1))
    return with_step_times(a_profile(acceptance=acceptance), {0: 1.0, 1: 1.1, 2: 1.5, 3: 1.6}, (1, 16))


def made(name: PolicyName, engine_ks: frozenset[int]) -> Policy:
    """The policy for that profile, in an engine that was started for these Ks."""
    profile = a_measured_profile()
    assert profile.decision.table
    return name.make(profile, profile.decision.table, name.wanted_ks(profile, profile.decision.table) & engine_ks)


def test_goodput_chooses_what_the_table_lacks() -> None:
    """Made from a profile, it takes the K with the most tokens per second at every batch size that was measured."""
    assert run(made(PolicyName.GOODPUT, frozenset({0, 1, 2, 3})), range(1, 17)) == [1] * 16


@pytest.mark.parametrize("name", list(PolicyName))
@given(steps=st.lists(st.tuples(STEPS, COUNTS, st.integers(1, 300)), max_size=200))
@example(steps=[(AStep(4), [(9, 9)] * 3, 1)] * 20)
def test_every_policy_stays_within_its_ks(
    name: PolicyName, steps: list[tuple[AStep, list[tuple[int, int]], int]]
) -> None:
    """Whatever the steps and the counts, K is one that the engine was started for, though the best was not."""
    ks = frozenset({0, 1, 2})
    policy = made(name, ks)
    observe: Callable[..., None] = policy.observe if isinstance(policy, Observer) else lambda *_: None
    for step, counts, since in steps:
        assert policy.k(step) in ks
        observe([max(pair) for pair in counts], [min(pair) for pair in counts], since)
