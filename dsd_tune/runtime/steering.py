"""The one place where a policy enters a running vLLM: it sets K of each step on one scheduler object.

Two methods of that object are shadowed, no class is changed. vLLM keeps its own lookup, which it also tests for None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsd_tune.runtime.guard import Guard
from dsd_tune.runtime.policy import Policy

COUNTED_A_STEP = 32
"""Requests whose drafts are counted in a step, on average: of a batch of 256, those of every ninth step."""


class SchedulerView:
    """A `StepView` of the step that a scheduler has just put together; one object for all steps, nothing kept."""

    __slots__ = ("_output", "_prefilling", "_scheduler", "batch_size", "decoding", "k")

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._output: Any = None
        self._prefilling: set[str] = set()
        self.batch_size = 0
        self.decoding = 0
        self.k = 0

    @property
    def context_tokens(self) -> int:
        """Tokens computed so far by the requests of this step, in sum."""
        requests = self._scheduler.requests
        return sum(requests[name].num_computed_tokens for name in self._output.num_scheduled_tokens)

    def look(self, output: Any) -> None:
        """Turn to the next step. Only requests that are prefilling are visited, so a large batch costs no more."""
        scheduled = output.num_scheduled_tokens
        self._output = output
        self._prefilling.update(new.req_id for new in output.scheduled_new_reqs)
        self._prefilling.update(output.scheduled_cached_reqs.resumed_req_ids)
        self._prefilling = {name for name in self._prefilling if self._still_prefilling(name, scheduled.get(name, 0))}
        self.batch_size = len(scheduled)
        self.decoding = self.batch_size - sum(name in scheduled for name in self._prefilling)

    def _still_prefilling(self, name: str, tokens: int) -> bool:
        """As vLLM will see it once it has counted this step's tokens."""
        request = self._scheduler.requests.get(name)
        if request is None:
            return False
        return bool(request.num_computed_tokens + tokens < request.num_tokens + request.num_output_placeholders)


class Steering:
    """Sets K of each step of a scheduler, by two methods that stand in for the scheduler's own.

    `renew` may hand out another guard at any step. Should the scheduler not look as expected, vLLM's lookup decides
    from then on, and `say` is told once.
    """

    def __init__(
        self, scheduler: Any, guard: Guard, say: Callable[[str], None], renew: Callable[[], Guard | None]
    ) -> None:
        self._guard: Guard | None = guard
        self._say = say
        self._renew = renew
        self._view = SchedulerView(scheduler)
        self._uncounted = 0
        self._counted_k = 0
        self._advance = scheduler._update_after_schedule
        self._digest = scheduler.update_from_output

    def update_after_schedule(self, output: Any) -> None:
        """The scheduler reads K in this method, and calls it last in each `schedule`."""
        if self._guard is not None:
            try:
                self._guard = self._renew() or self._guard
                self._set_k(output, self._guard)
            except Exception as error:  # noqa: BLE001 (nothing may reach the engine)
                self._let_go(error)
        self._advance(output)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The scheduler learns here what was accepted."""
        if self._guard is not None and self._guard.observes:
            try:
                self._count(scheduler_output, model_runner_output, self._guard)
            except Exception as error:  # noqa: BLE001 (nothing may reach the engine)
                self._let_go(error)
        return self._digest(scheduler_output, model_runner_output)

    def _count(self, scheduler_output: Any, model_runner_output: Any, guard: Guard) -> None:
        self._uncounted += 1
        drafts, sampled = scheduler_output.scheduled_spec_decode_tokens, model_runner_output.sampled_token_ids
        # A K that is only tried may be gone before it would be its step's turn.
        k = len(next(iter(drafts.values()), ()))
        if k != self._counted_k or self._uncounted > len(sampled) // COUNTED_A_STEP:
            guard.observe(*by_position(drafts, sampled), self._uncounted)
            self._uncounted, self._counted_k = 0, k

    def _set_k(self, output: Any, guard: Guard) -> None:
        if not output.num_scheduled_tokens:
            return
        self._view.look(output)
        # A vLLM that knows by itself that nobody will use drafts (0.33) is right.
        if not getattr(output, "skip_drafts", False):
            self._view.k = guard.k(self._view)
            output.num_spec_tokens_to_schedule = self._view.k

    def _let_go(self, error: Exception) -> None:
        self._guard = None
        self._say(f"this vLLM's scheduler is not as expected: {error!r}. Its own lookup decides from now on.")


def steer(
    scheduler: Any, guard: Guard, say: Callable[[str], None], renew: Callable[[], Guard | None] = lambda: None
) -> None:
    """Let `guard` set K of a scheduler from the next step on."""
    steering = Steering(scheduler, guard, say, renew)
    scheduler._update_after_schedule = steering.update_after_schedule
    scheduler.update_from_output = steering.update_from_output


def install(scheduler: Any, policy: Policy, say: Callable[[str], None]) -> bool:
    """Let `policy` set K from the next step on. False, and nothing changed, if vLLM runs without a table.

    An engine started without one has captured other CUDA graphs and pads its batches for a fixed K, so a
    policy put in later would describe an engine that nobody deploys.
    """
    lookup = getattr(scheduler, "dynamic_sd_lookup", None)
    if lookup is None:
        return False
    steer(scheduler, Guard(policy, frozenset(lookup[1:]), lookup, say), say)
    return True


def by_position(
    drafts: Mapping[str, Sequence[int]], sampled: Sequence[Sequence[int]]
) -> tuple[Sequence[int], Sequence[int]]:
    """How many requests had a draft at each position, and how many of those accepted it.

    `drafts` holds the tokens drafted for each request, `sampled` the tokens that each request got, the bonus included.
    """
    lengths = Counter(map(len, drafts.values()))
    outputs = Counter(map(len, sampled))
    positions = range(1, max(lengths, default=0) + 1)
    drafted = [sum(count for length, count in lengths.items() if length >= i) for i in positions]
    accepted = [sum(count for length, count in outputs.items() if length > i) for i in positions]
    return drafted, accepted
