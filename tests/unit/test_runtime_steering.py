"""A policy on a scheduler: what it sees of each step, what it sets, and what cannot go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from scheduling import FakeScheduler

from dsd_tune.records.table import Table
from dsd_tune.runtime.guard import Guard
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.policies.table import TablePolicy
from dsd_tune.runtime.policy import StepView
from dsd_tune.runtime.steering import by_position, install, steer

LOOKUP = [0, 3, 3, 1, 0]


class Noting:
    """Keeps what it sees; chooses 1."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.outcomes: list[tuple[Sequence[int], Sequence[int], int]] = []

    def k(self, step: StepView) -> int:
        """Note batch size, decoding requests and context."""
        self.steps.append((step.batch_size, step.decoding, step.context_tokens))
        return 1

    def observe(self, drafted: Sequence[int], accepted: Sequence[int], steps: int) -> None:
        """Note the counts."""
        self.outcomes.append((drafted, accepted, steps))


class Broken:
    """Goes wrong in the way asked for."""

    def __init__(self, k: object = 1, *, observes: bool = True) -> None:
        self.answer = k
        if observes:
            self.observe = self.fail

    def k(self, step: StepView) -> int:
        """Raise what was asked for, or answer it."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]

    def fail(self, drafted: Sequence[int], accepted: Sequence[int], steps: int) -> None:
        """Fail while observing."""
        raise ZeroDivisionError


def outcome(scheduler: FakeScheduler, drafts: dict[str, int], sampled: list[int]) -> object:
    """Hand the scheduler a step's outcome: lengths of drafts and of what was sampled."""
    return scheduler.update_from_output(
        SimpleNamespace(scheduled_spec_decode_tokens={name: [-1] * n for name, n in drafts.items()}),
        SimpleNamespace(sampled_token_ids=[[7] * n for n in sampled]),
    )


def test_the_policy_sets_k_before_vllm_reads_it() -> None:
    """The step's output carries the policy's K when the scheduler's own method runs."""
    scheduler = FakeScheduler(LOOKUP)
    assert install(scheduler, FixedPolicy(3), pytest.fail)
    scheduler.add("a", 1)
    assert scheduler.step({"a": 1}).num_spec_tokens_to_schedule == 3


@pytest.mark.parametrize("scheduler", [SimpleNamespace(dynamic_sd_lookup=None), SimpleNamespace()])
def test_an_engine_without_a_table_is_left_alone(scheduler: SimpleNamespace) -> None:
    """An engine started without a table, or too old for one, is not touched."""
    before = dict(vars(scheduler))
    assert not install(scheduler, FixedPolicy(2), pytest.fail)
    assert vars(scheduler) == before


def test_the_view_tells_decoding_from_prefilling() -> None:
    """A request counts as decoding from the step on that completes its prompt: its next step can use drafts."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    scheduler.add("a", 3)
    scheduler.add("long", 10)
    scheduler.step({"a": 3})
    scheduler.step({"a": 1, "long": 6})
    scheduler.step({"a": 1, "long": 4})
    scheduler.step({"a": 1, "long": 1})
    assert policy.steps == [(1, 1, 0), (2, 1, 3), (2, 2, 10), (2, 2, 15)]


def test_a_resumed_request_prefills_again() -> None:
    """A preempted request recomputes its tokens, and does not count as decoding until it is done."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    scheduler.add("a", 8)
    scheduler.step({"a": 8})
    scheduler.preempt("a")
    scheduler.step({"a": 4})
    scheduler.step({"a": 5})
    assert [decoding for _, decoding, _ in policy.steps] == [1, 0, 1]


def test_a_prefill_that_waits_or_vanishes_is_forgotten() -> None:
    """Prefills left out of a step do not count in it, and an aborted one counts nowhere."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    scheduler.add("a", 2)
    scheduler.add("long", 9)
    scheduler.step({"a": 2, "long": 3})
    scheduler.step({"a": 1})
    del scheduler.requests["long"]
    scheduler.step({"a": 1})
    assert [decoding for _, decoding, _ in policy.steps] == [1, 1, 1]


def test_an_empty_step_is_not_steered() -> None:
    """vLLM also makes steps without requests; nobody drafts there."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    scheduler.step({})
    assert policy.steps == []


def test_vllms_own_decision_to_skip_drafts_stands() -> None:
    """Where vLLM knows that no request will use drafts, its K = 0 is kept."""
    scheduler = FakeScheduler(LOOKUP)
    install(scheduler, FixedPolicy(1), pytest.fail)
    scheduler.add("a", 1)
    assert scheduler.step({"a": 1}, skip_drafts=True).num_spec_tokens_to_schedule == 3


def test_a_prefill_is_seen_where_drafts_are_skipped() -> None:
    """A long prompt alone in its first step, for which vLLM skips drafts, does not count as decoding later on."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    scheduler.add("long", 10)
    scheduler.step({"long": 4}, skip_drafts=True)
    scheduler.add("a", 1)
    scheduler.step({"long": 3, "a": 1}, skip_drafts=False)
    assert [decoding for _, decoding, _ in policy.steps] == [1]


def test_an_observer_learns_what_was_accepted() -> None:
    """Positions count only where a draft was made; the scheduler gets the same outcome as ever."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    handed_on = outcome(scheduler, {"a": 3, "b": 3, "c": 1}, [4, 2, 1, 1, 0])
    assert policy.outcomes == [([3, 2, 2], [2, 1, 1], 1)]
    assert handed_on is not None
    assert len(scheduler.digested) == 1


def test_large_batches_are_counted_now_and_then() -> None:
    """Counting every request of every step would cost more than it tells."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    for _ in range(10):
        outcome(scheduler, {str(i): 1 for i in range(64)}, [2] * 64)
    assert policy.outcomes == [([64], [64], 1), *[([64], [64], 3)] * 3]


@pytest.mark.parametrize("size", [32, 240, 256, 1000])
def test_a_k_that_is_only_tried_is_counted(size: int) -> None:
    """However seldom steps of a batch are counted, one with drafts among many without is seen each time."""
    scheduler, policy = FakeScheduler(LOOKUP), Noting()
    install(scheduler, policy, pytest.fail)
    for step in range(10 * 128):
        tried = step % 128 == 100
        outcome(scheduler, {str(i): 1 for i in range(size)} if tried else {}, [1 + tried] * size)
    assert sum(drafted == [size] for drafted, _, _ in policy.outcomes) == 10
    assert sum(steps for _, _, steps in policy.outcomes) <= 10 * 128


def test_no_drafts_are_no_positions() -> None:
    """A step at K = 0 says nothing about acceptance."""
    assert by_position({}, [[1], [2]]) == ([], [])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Broken(ValueError("no")), "failed with ValueError('no')"),
        (Broken(2), r"chose K=2, and the engine was started for [0, 1, 3]"),
        (Broken(-1), "chose K=-1"),
        (Broken(None), "chose K=None"),
        (Broken([]), "failed with TypeError"),
        (Broken("1"), "chose K='1'"),
    ],
)
def test_a_broken_policy_ends_in_the_table_and_one_line(policy: Broken, words: str) -> None:
    """After its first mistake the table decides, for good, and the log has one sentence."""
    scheduler, said = FakeScheduler(LOOKUP), []
    table = Table.from_dense([3, 1])
    steer(scheduler, Guard(policy, frozenset(LOOKUP[1:]), (0, *table.dense()), said.append), said.append)
    for name in "abcd":
        scheduler.add(name, 1)
    assert [scheduler.step(dict.fromkeys(names, 1)).num_spec_tokens_to_schedule for names in ("a", "ab", "abc")] == [
        3,
        1,
        1,
    ]
    outcome(scheduler, {"a": 1}, [1])
    assert len(said) == 1
    assert words in said[0]
    assert "The table decides from now on" in said[0]


def test_a_policy_that_fails_while_observing_ends_in_the_table() -> None:
    """Its K is not trusted either; outcomes still reach the scheduler."""
    scheduler, said = FakeScheduler(LOOKUP), []
    install(scheduler, Broken(), said.append)
    scheduler.add("a", 1)
    before = scheduler.step({"a": 1}).num_spec_tokens_to_schedule
    outcome(scheduler, {"a": 1}, [2])
    outcome(scheduler, {"a": 1}, [2])
    assert (before, scheduler.step({"a": 1}).num_spec_tokens_to_schedule) == (1, 3)
    assert ["ZeroDivisionError" in line for line in said] == [True]
    assert len(scheduler.digested) == 2


def test_another_policy_takes_over_between_two_steps() -> None:
    """What `renew` hands out decides from that very step on."""
    scheduler, ks = FakeScheduler(LOOKUP), frozenset(LOOKUP)
    renewed = iter([None, Guard(FixedPolicy(1), ks, LOOKUP, pytest.fail), None])
    first = Guard(TablePolicy(Table.from_dense([3])), ks, LOOKUP, pytest.fail)
    steer(scheduler, first, pytest.fail, lambda: next(renewed))
    scheduler.add("a", 1)
    assert [scheduler.step({"a": 1}).num_spec_tokens_to_schedule for _ in range(3)] == [3, 1, 1]


@pytest.mark.parametrize("field", ["scheduled_new_reqs", "scheduled_cached_reqs"])
def test_a_scheduler_that_looks_different_keeps_its_own_lookup(field: str) -> None:
    """A field that this vLLM does not have costs one line, not a request."""
    scheduler, said = FakeScheduler(LOOKUP), []
    install(scheduler, FixedPolicy(1), said.append)
    scheduler.add("a", 1)
    for _ in range(3):
        output = scheduler.step({"a": 1}, without=field)
        assert output.num_spec_tokens_to_schedule == 3
    assert ["not as expected" in line and "Its own lookup decides" in line for line in said] == [True]


def test_an_output_that_looks_different_reaches_the_scheduler() -> None:
    """What cannot be counted is still handed on."""
    scheduler, said = FakeScheduler(LOOKUP), []
    install(scheduler, Noting(), said.append)
    for _ in range(2):
        scheduler.update_from_output(SimpleNamespace(), SimpleNamespace())
    assert (len(said), len(scheduler.digested)) == (1, 2)
