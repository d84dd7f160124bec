"""The measuring itself against a stand-in for vLLM's engine core that computes its answers: no vLLM, no waiting."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from dsd_tune.engines.vllm_block import Rig, measure
from dsd_tune.engines.vllm_pool import RequestPool
from dsd_tune.engines.vllm_steps import Stepper
from dsd_tune.engines.vllm_supply import TokenizedPrompt
from dsd_tune.engines.vllm_wire import BlockOrder
from dsd_tune.errors import EngineFailed, UsageError
from dsd_tune.records.condition import Condition
from dsd_tune.records.machine import MachineState
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.steering import install

EOS = 0
TEXT = 7


@dataclass
class FakeRequest:
    """A sequence: prompt tokens still to be computed, the drafts it will verify next, tokens until its text ends."""

    prompt_tokens: int
    temperature: float = 0.0
    drafts: int = 0
    text_left: int = 10**9


@dataclass
class FakeCore:
    """Schedules like vLLM: K decided in one step is verified in the next; `depth` 2 is async scheduling.

    `accepts` of the drafts are accepted; `room` requests fit; texts end after `text` tokens; a step prefills `chunk`
    tokens of a request.
    """

    depth: int = 1
    accepts: int = 1
    room: int = 64
    text: int = 10**9
    chunk: int = 10**9
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

    def add(self, name: str, token_ids: Sequence[int], temperature: float) -> str:
        """Queue a request, as a `Door`."""
        self.requests[name] = FakeRequest(len(token_ids), temperature, text_left=self.text)
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
            now = min(request.prompt_tokens, self.chunk)
            plan[name] = (now or 1 + request.drafts, request.drafts)
            request.prompt_tokens -= now
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
        """One own token after the accepted drafts, once the prompt is through; the last one may end the text."""
        if request.prompt_tokens:
            return []
        new = 1 + min(self.accepts, drafts)
        request.text_left -= new
        return [TEXT] * new if request.text_left > 0 else [TEXT] * (new - 1) + [EOS]


SHORT = Condition(1000, 0.0)
LONG = Condition(1500, 0.0)
BUSY = MachineState(load_average=3.0)


def order(batch_size: int, k: int, *, steps: int, settle: int, condition: Condition = SHORT) -> BlockOrder:
    """A block to measure."""
    return BlockOrder(batch_size, k, condition, steps, settle)


def rig(core: FakeCore, max_model_len: int = 2000, *, counts_drafts: bool = True) -> Rig:
    """A rig around a stand-in, with two prompts of 5 and 6 tokens, or of 700 where the context is long."""
    policy = FixedPolicy(0)
    install(core.scheduler, policy, pytest.fail)
    short = cycle([TokenizedPrompt("a", (TEXT,) * 5), TokenizedPrompt("b", (TEXT,) * 6)])
    prompts = defaultdict(lambda: short, {LONG.context: cycle([TokenizedPrompt("c", (TEXT,) * 700)])})
    return Rig(
        stepper=Stepper(core),
        pool=RequestPool(core, prompts, frozenset({EOS}), max_model_len),
        set_k=lambda k: setattr(policy, "value", k),
        lag=core.depth - 1,
        k_max=3,
        fewer_drafts=False,
        chunk=512,
        machine=lambda: BUSY,
        counts_drafts=counts_drafts,
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_k_switches_live_and_every_kept_step_has_it(depth: int) -> None:
    """With and without async scheduling, each block drafts exactly its own K for each of its B requests."""
    running = rig(FakeCore(depth=depth))
    for batch_size, k in [(4, 3), (4, 0), (2, 1), (8, 2), (8, 3)]:
        measured = measure(running, order(batch_size, k, steps=6, settle=2))
        assert len(measured.step_s) == 6
        assert [sum(c.drafted[i] for c in measured.prompts) for i in range(k)] == [6 * batch_size] * k


@pytest.mark.parametrize("depth", [1, 2])
def test_enough_settling_leaves_nothing_to_reject(depth: int) -> None:
    """Two settling steps, plus the engine's own lag, cover the step that still verifies the old K."""
    running = rig(FakeCore(depth=depth))
    measure(running, order(4, 0, steps=3, settle=2))
    assert measure(running, order(4, 3, steps=6, settle=2)).steps_run == 6


def test_too_little_settling_rejects_the_steps_of_the_old_k() -> None:
    """A step that verifies another number of drafts than K is run but not kept."""
    running = rig(FakeCore())
    measure(running, order(4, 0, steps=3, settle=2))
    assert measure(running, order(4, 3, steps=6, settle=0)).steps_run > 6


def test_an_engine_that_ignores_k_fails() -> None:
    """If no step ever has the K asked for, there is no measurement but an error that says so."""
    with pytest.raises(EngineFailed, match="K=1"):
        measure(rig(FakeCore(ignores_k=True)), order(2, 1, steps=2, settle=1))


def test_a_batch_that_does_not_fit_fails() -> None:
    """A batch of which some requests always wait is no batch of that size."""
    with pytest.raises(EngineFailed, match="does not hold 4"):
        measure(rig(FakeCore(room=3)), order(4, 1, steps=2, settle=1))


def test_an_engine_without_progress_fails() -> None:
    """An engine that never finishes a step ends in an error instead of an endless wait."""
    with pytest.raises(EngineFailed, match="no progress"):
        measure(rig(FakeCore(depth=1000), max_model_len=10**6), order(1, 0, steps=1, settle=0))


def test_accepted_tokens_are_counted_by_position() -> None:
    """Two of three drafts accepted: positions one and two in every step, position three in none."""
    measured = measure(rig(FakeCore(accepts=2)), order(2, 3, steps=5, settle=2))
    assert [(c.prompt, c.steps, c.drafted, c.accepted) for c in measured.prompts] == [
        ("a", 5, (5, 5, 5), (5, 5, 0)),
        ("b", 5, (5, 5, 5), (5, 5, 0)),
    ]


def test_text_after_its_end_is_not_counted() -> None:
    """A request that ends inside a block is timed on, but its counts stop at its end of sequence."""
    core = FakeCore(text=12)
    measured = measure(rig(core), order(1, 1, steps=20, settle=2))
    (counts,) = measured.prompts
    assert len(measured.step_s) == 20
    assert counts.steps < 10
    assert counts.tokens < 12


def test_an_ended_text_is_replaced_before_the_next_block() -> None:
    """Each block starts on real text: the next block counts steps again."""
    running = rig(FakeCore(text=30))
    measure(running, order(1, 1, steps=20, settle=2))
    (counts,) = measure(running, order(1, 1, steps=5, settle=2)).prompts
    assert counts.steps == 5


def test_sequences_stay_inside_the_window() -> None:
    """No kept step sees a sequence longer than the window, however many blocks are run."""
    running = rig(FakeCore(accepts=3))
    for _ in range(10):
        measured = measure(running, order(3, 3, steps=5, settle=2, condition=Condition(60, 0.0)))
        assert 5 < measured.context[0] <= measured.context[1] <= 60


def test_all_arms_replace_requests_at_one_length() -> None:
    """How far a block may grow is judged by the largest K of the sweep, so K=0 sees the contexts that K=3 sees."""
    core = FakeCore()
    running = rig(core)
    for _ in range(8):
        measure(running, order(1, 0, steps=5, settle=2, condition=Condition(50, 0.0)))
    (request,) = running.pool.live.values()
    assert request.length <= 50 - (5 + 2) * 3


def test_a_block_that_cannot_fit_the_model_is_refused() -> None:
    """Growing past max_model_len would end requests inside the block, so it is refused beforehand."""
    with pytest.raises(UsageError, match="max_model_len"):
        measure(rig(FakeCore(), max_model_len=40), order(1, 3, steps=50, settle=2, condition=Condition(40, 0.0)))


def test_stepping_down_aborts_the_longest() -> None:
    """A smaller batch keeps the requests that can be used longest."""
    running = rig(FakeCore(accepts=0))
    measure(running, order(2, 0, steps=5, settle=1))
    oldest = set(running.pool.live)
    measure(running, order(4, 0, steps=5, settle=1))
    measure(running, order(2, 0, steps=5, settle=1))
    assert oldest.isdisjoint(running.pool.live)


def test_a_block_decodes_under_its_own_condition_alone() -> None:
    """Requests of another context or temperature leave, and come back as fresh ones when their turn comes again."""
    core = FakeCore()
    running = rig(core)
    for condition in (SHORT, LONG, Condition(1500, 0.7), SHORT):
        measured = measure(running, order(3, 1, steps=5, settle=2, condition=condition))
        assert {request.temperature for request in core.requests.values()} == {condition.temperature}
        assert (measured.context[0] > 700) == (condition.context == 1500)


def test_a_batch_of_long_prompts_may_take_many_steps_to_fill() -> None:
    """A prompt that is prefilled in small chunks is waited for."""
    running = replace(rig(FakeCore(chunk=4)), chunk=4)
    assert measure(running, order(2, 1, steps=5, settle=2, condition=LONG)).context[0] > 700


def test_the_state_of_the_machine_comes_with_each_block() -> None:
    """It is read once the steps are over."""
    assert measure(rig(FakeCore()), order(2, 1, steps=5, settle=2)).machine == BUSY


def test_garbage_is_timed_but_not_counted() -> None:
    """Where drafts say nothing about the drafter a block has step times and no counts."""
    measured = measure(rig(FakeCore(), counts_drafts=False), order(2, 1, steps=5, settle=2))
    assert len(measured.step_s) == 5
    assert measured.prompts == ()
