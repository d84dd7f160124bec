"""A stand-in for vLLM's scheduler, as far as the runtime touches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace


@dataclass(slots=True)
class FakeRequest:
    """A request with `num_tokens` known tokens, of which some are computed; decoding means one is left."""

    num_tokens: int
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0


class FakeScheduler:
    """Steps of requests by name: each is given the tokens to schedule, and advances by them."""

    def __init__(self, lookup: Sequence[int] | None, vllm_config: object = None) -> None:
        self.dynamic_sd_lookup = lookup
        self.vllm_config = vllm_config
        self.requests: dict[str, FakeRequest] = {}
        self.digested: list[object] = []
        self._seen: set[str] = set()

    def add(self, name: str, prompt_tokens: int) -> None:
        """A new request."""
        self.requests[name] = FakeRequest(prompt_tokens)

    def preempt(self, name: str) -> None:
        """Forget what was computed; the request is known, so its next step resumes it."""
        self.requests[name].num_computed_tokens = 0

    def step(self, scheduled: Mapping[str, int], *, without: str = "", **more: object) -> SimpleNamespace:
        """Schedule these tokens, in a vLLM `without` some field; gives back its output, with the K that was set."""
        resumed = {name for name in scheduled if name in self._seen and self.requests[name].num_computed_tokens == 0}
        output = SimpleNamespace(
            num_scheduled_tokens=dict(scheduled),
            scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in scheduled if name not in self._seen],
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=resumed),
            num_spec_tokens_to_schedule=self.dynamic_sd_lookup[len(scheduled)] if self.dynamic_sd_lookup else 0,
            **more,
        )
        self._seen |= scheduled.keys()
        vars(output).pop(without, None)
        self._update_after_schedule(output)
        return output

    def _update_after_schedule(self, output: SimpleNamespace) -> None:
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]
            request.num_computed_tokens += tokens
            if request.num_computed_tokens >= request.num_tokens:
                request.num_tokens = request.num_computed_tokens + 1

    def update_from_output(self, scheduler_output: object, model_runner_output: object) -> object:
        """Keep what came, and hand it back."""
        self.digested.append(scheduler_output)
        return model_runner_output
