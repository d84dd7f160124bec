"""The measuring itself against a stand-in for vLLM's engine core that computes its answers: no vLLM, no waiting."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from dsd_tune.engines.vllm_block import Rig, measure
from dsd_tune.engines.vllm_pool import RequestPool, TokenizedPrompt, Window, endless, usable
from dsd_tune.engines.vllm_steps import Step, Stepper
from dsd_tune.engines.vllm_tally import Tally
from dsd_tune.engines.vllm_wire import BlockOrder
from dsd_tune.errors import EngineFailed, UsageError
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.steering import install

EOS = 0
TEXT = 7


@dataclass
class FakeRequest:
    """A sequence: prompt tokens still to be computed, the drafts it will verify next, tokens until its text ends."""

    prompt_tokens: int
    drafts: int = 0
    text_left: int = 10**9


@dataclass
class FakeCore:
    """Schedules like vLLM: K decided in one step is verified in the next; `depth` 2 is async scheduling.

    `accepts` of the drafts are accepted; `room` requests fit; texts end after `text` tokens.
    """

    depth: int = 1
    accepts: int = 1
    room: int = 64
    text: int = 10**9
    ignores_k: bool = False
    requests: dict[str, FakeRequest] = field(default_factory=dict)
    queue: deque[dict[str, tuple[int, int]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.scheduler = SimpleNamespace(
            dynamic_sd_lookup=[0, 3, 2, 1, 0],
            update_from_output=self.update,
            _update_after_schedule=lambda _output: None,
        )
        self.engine_core = SimpleNamespace(scheduler=self.scheduler)

    def add(self, name: str, token_ids: Sequence[int]) -> str:
        """Queue a request, as a `Door`."""
        self.requests[name] = FakeRequest(len(token_ids), text_left=self.text)
        return name

    def abort(self, names: list[str]) -> None:
        """Take requests out, as a `Door`."""
        for name in names:
            del self.requests[name]

    def get_output(self) -> None:
        """Schedule a step and, once the queue is full, process the oldest."""
        self.queue.append(self.schedule())
        if len(self.queue) < self.depth:
            return
        plan = self.queue.popleft()
        self.scheduler.update_from_output(
            SimpleNamespace(
                num_scheduled_tokens={name: n for name, (n, _) in plan.items()},
                scheduled_spec_decode_tokens={name: [-1] * d for name, (_, d) in plan.items() if d},
            ),
            plan,
        )

    def schedule(self) -> dict[str, tuple[int, int]]:
        """Tokens and drafts by request; the drafts for the step after are decided here."""
        running = dict(list(self.requests.items())[: self.room])
        output = SimpleNamespace(
            num_scheduled_tokens=running,
            scheduled_new_reqs=(),
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=()),
        )
        self.scheduler._update_after_schedule(output)
        plan = {}
        for name, request in running.items():
            plan[name] = (request.prompt_tokens or 1 + request.drafts, request.drafts)
            request.prompt_tokens = 0
            request.drafts = 3 if self.ignores_k else output.num_spec_tokens_to_schedule
        return plan

    def update(self, scheduler_output: Any, plan: dict[str, tuple[int, int]]) -> dict[int, SimpleNamespace]:
        """What the step put out for the requests that are still there."""
        outputs = [
            SimpleNamespace(request_id=name, new_token_ids=self.tokens(self.requests[name], drafts))
            for name, (_, drafts) in plan.items()
            if name in self.requests
        ]
        return {0: SimpleNamespace(outputs=outputs)}

    def tokens(self, request: FakeRequest, drafts: int) -> list[int]:
        """One own token after the accepted drafts; the last one ends the text when its time has come."""
        new = 1 + min(self.accepts, drafts)
        request.text_left -= new
        return [TEXT] * new if request.text_left > 0 else [TEXT] * (new - 1) + [EOS]


def rig(core: FakeCore, max_context: int = 1000, max_model_len: int = 2000) -> Rig:
    """A rig around a stand-in, with two prompts of 5 and 6 tokens."""
    policy = FixedPolicy(0)
    install(core.scheduler, policy, pytest.fail)
    prompts = cycle([TokenizedPrompt("a", (TEXT,) * 5), TokenizedPrompt("b", (TEXT,) * 6)])
    return Rig(
        stepper=Stepper(core),
        pool=RequestPool(core, prompts, frozenset({EOS}), Window(max_context, max_model_len)),
        set_k=lambda k: setattr(policy, "value", k),
        lag=core.depth - 1,
        k_max=3,
        fewer_drafts=False,
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_k_switches_live_and_every_kept_step_has_it(depth: int) -> None:
    """With and without async scheduling, each block drafts exactly its own K for each of its B requests."""
    running = rig(FakeCore(depth=depth))
    for batch_size, k in [(4, 3), (4, 0), (2, 1), (8, 2), (8, 3)]:
        measured = measure(running, BlockOrder(batch_size, k, steps=6, settle=2))
        assert len(measured.step_s) == 6
        assert [sum(c.drafted[i] for c in measured.prompts) for i in range(k)] == [6 * batch_size] * k


@pytest.mark.parametrize("depth", [1, 2])
def test_enough_settling_leaves_nothing_to_reject(depth: int) -> None:
    """Two settling steps, plus the engine's own lag, cover the step that still verifies the old K."""
    running = rig(FakeCore(depth=depth))
    measure(running, BlockOrder(4, 0, steps=3, settle=2))
    assert measure(running, BlockOrder(4, 3, steps=6, settle=2)).steps_run == 6


def test_too_little_settling_rejects_the_steps_of_the_old_k() -> None:
    """A step that verifies another number of drafts than K is run but not kept."""
    running = rig(FakeCore())
    measure(running, BlockOrder(4, 0, steps=3, settle=2))
    assert measure(running, BlockOrder(4, 3, steps=6, settle=0)).steps_run > 6


def test_an_engine_that_ignores_k_fails() -> None:
    """If no step ever has the K asked for, there is no measurement but an error that says so."""
    with pytest.raises(EngineFailed, match="K=1"):
        measure(rig(FakeCore(ignores_k=True)), BlockOrder(2, 1, steps=2, settle=1))


def test_a_batch_that_does_not_fit_fails() -> None:
    """A batch of which some requests always wait is no batch of that size."""
    with pytest.raises(EngineFailed, match="does not hold 4"):
        measure(rig(FakeCore(room=3)), BlockOrder(4, 1, steps=2, settle=1))


def test_an_engine_without_progress_fails() -> None:
    """An engine that never finishes a step ends in an error instead of an endless wait."""
    with pytest.raises(EngineFailed, match="no progress"):
        measure(rig(FakeCore(depth=1000), 10**6, 10**6), BlockOrder(1, 0, steps=1, settle=0))


def test_accepted_tokens_are_counted_by_position() -> None:
    """Two of three drafts accepted: positions one and two in every step, position three in none."""
    measured = measure(rig(FakeCore(accepts=2)), BlockOrder(2, 3, steps=5, settle=2))
    assert [(c.prompt, c.steps, c.drafted, c.accepted) for c in measured.prompts] == [
        ("a", 5, (5, 5, 5), (5, 5, 0)),
        ("b", 5, (5, 5, 5), (5, 5, 0)),
    ]


def test_text_after_its_end_is_not_counted() -> None:
    """A request that ends inside a block is timed on, but its counts stop at its end of sequence."""
    core = FakeCore(text=12)
    measured = measure(rig(core), BlockOrder(1, 1, steps=20, settle=2))
    (counts,) = measured.prompts
    assert len(measured.step_s) == 20
    assert counts.steps < 10
    assert counts.tokens < 12


def test_an_ended_text_is_replaced_before_the_next_block() -> None:
    """Each block starts on real text: the next block counts steps again."""
    running = rig(FakeCore(text=30))
    measure(running, BlockOrder(1, 1, steps=20, settle=2))
    (counts,) = measure(running, BlockOrder(1, 1, steps=5, settle=2)).prompts
    assert counts.steps == 5


def test_sequences_stay_inside_the_window() -> None:
    """No kept step sees a sequence longer than the window, however many blocks are run."""
    running = rig(FakeCore(accepts=3), max_context=60)
    for _ in range(10):
        measured = measure(running, BlockOrder(3, 3, steps=5, settle=2))
        assert 5 < measured.context[0] <= measured.context[1] <= 60


def test_all_arms_replace_requests_at_one_length() -> None:
    """How far a block may grow is judged by the largest K of the sweep, so K=0 sees the contexts that K=3 sees."""
    core = FakeCore()
    running = rig(core, max_context=50)
    for _ in range(8):
        measure(running, BlockOrder(1, 0, steps=5, settle=2))
    (request,) = running.pool.live.values()
    assert request.length <= 50 - (5 + 2) * 3


def test_a_block_that_cannot_fit_the_model_is_refused() -> None:
    """Growing past max_model_len would end requests inside the block, so it is refused beforehand."""
    with pytest.raises(UsageError, match="max_model_len"):
        measure(rig(FakeCore(), max_context=40, max_model_len=40), BlockOrder(1, 3, steps=50, settle=2))


def test_stepping_down_aborts_the_longest() -> None:
    """A smaller batch keeps the requests that can be used longest."""
    running = rig(FakeCore(accepts=0))
    measure(running, BlockOrder(2, 0, steps=5, settle=1))
    oldest = set(running.pool.live)
    measure(running, BlockOrder(4, 0, steps=5, settle=1))
    measure(running, BlockOrder(2, 0, steps=5, settle=1))
    assert oldest.isdisjoint(running.pool.live)


def step(scheduled: dict[str, int], drafted: dict[str, int]) -> Step:
    """A step of which only the schedule matters."""
    return Step(0.01, scheduled, drafted, {})


@pytest.mark.parametrize(
    ("scheduled", "drafted", "why"),
    [
        ({"x": 3}, {"x": 2}, "one request too few"),
        ({"x": 3, "y": 3, "z": 3}, {"x": 2, "y": 2, "z": 2}, "one too many"),
        ({"x": 3, "y": 9}, {"x": 2}, "one still in its prompt"),
        ({"x": 3, "y": 2}, {"x": 2, "y": 1}, "one draft too few"),
        ({"x": 3, "new": 3}, {"x": 2, "new": 2}, "one that has not decoded before"),
    ],
)
def test_steps_that_break_a_rule_are_told(scheduled: dict[str, int], drafted: dict[str, int], why: str) -> None:
    """A step is kept only with exactly B decoding requests, K drafts and one own token each."""
    decoding = frozenset({"x", "y", "z"})
    assert not step(scheduled, drafted).follows_rules(2, 2, fewer_drafts=False, decoding=decoding), why


@pytest.mark.parametrize(("fewer_drafts", "kept"), [(True, True), (False, False)])
def test_only_text_matchers_may_draft_less(fewer_drafts: bool, kept: bool) -> None:
    """An n-gram proposer finds fewer tokens than K at times; for any other drafter that means a wrong step."""
    short = step({"x": 3, "y": 1}, {"x": 2})
    assert short.follows_rules(2, 2, fewer_drafts=fewer_drafts, decoding=frozenset({"x", "y"})) is kept


def test_the_tally_stops_at_the_end_of_sequence() -> None:
    """Of a step that ends the text, only what came before the end counts, and tokens are those a user gets."""
    tally = Tally(4)
    tally.add("p", drafted=4, new_tokens=5, before_eos=2)
    (counts,) = tally.counts()
    assert (counts.drafted, counts.accepted, counts.tokens) == ((1, 1, 0, 0), (1, 1, 0, 0), 3)


def test_a_text_matcher_counts_only_what_it_drafted() -> None:
    """A position is drafted where a token was really proposed for it."""
    tally = Tally(3)
    tally.add("p", drafted=1, new_tokens=1, before_eos=1)
    tally.add("p", drafted=3, new_tokens=3, before_eos=3)
    (counts,) = tally.counts()
    assert (counts.drafted, counts.accepted) == ((2, 1, 1), (1, 1, 0))


PROMPTS = [TokenizedPrompt(f"p{i}", (TEXT,) * i) for i in range(1, 9)]


def test_prompts_come_in_another_order_at_each_start() -> None:
    """Each start cycles through all prompts, the same seed in the same order and another seed in another."""

    def first_round(order: str) -> list[str]:
        prompts = endless(PROMPTS, order)
        return [next(prompts).id for _ in PROMPTS]

    assert first_round("0/1") == first_round("0/1") != first_round("0/2")
    assert sorted(first_round("0/1")) == sorted(p.id for p in PROMPTS)


def test_long_prompts_are_skipped() -> None:
    """A prompt may take up half of the window and no more."""
    assert [len(p.token_ids) for p in usable(PROMPTS, 8)] == [1, 2, 3, 4]


def test_only_long_prompts_are_refused() -> None:
    """Without a prompt that fits there is nothing to measure."""
    with pytest.raises(UsageError, match="No prompt"):
        usable(PROMPTS[4:], 8)
