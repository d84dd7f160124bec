"""Keeps exactly as many requests in the engine as a block wants, each still inside its own text and its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from dsd_tune.engines.vllm_steps import Step
from dsd_tune.engines.vllm_supply import TokenizedPrompt
from dsd_tune.errors import UsageError
from dsd_tune.records.condition import Condition


class Door(Protocol):
    """How requests enter and leave the engine."""

    def add(self, name: str, token_ids: Sequence[int], temperature: float) -> str:
        """Queue a request that decodes until aborted; the id by which steps will call it."""
        ...

    def abort(self, names: list[str]) -> None:
        """Take requests out, by the names they were added under."""
        ...


@dataclass(slots=True)
class LiveRequest:
    """A request in the engine: how long it is, and whether it has started or ended its text."""

    name: str
    prompt: str
    condition: Condition
    length: int
    decoding: bool = False
    ended: bool = False


class RequestPool:
    """The live requests by the engine's id for them."""

    def __init__(
        self, door: Door, prompts: Mapping[int, Iterator[TokenizedPrompt]], eos: frozenset[int], max_model_len: int
    ) -> None:
        """`prompts` are those of each context."""
        self._door = door
        self._prompts = prompts
        self._eos = eos
        self._max_model_len = max_model_len
        self._names = count()
        self.live: dict[str, LiveRequest] = {}

    @property
    def decoding(self) -> frozenset[str]:
        """The requests that have got at least one token, so their next step is a decode step."""
        return frozenset(key for key, request in self.live.items() if request.decoding)

    @property
    def to_prefill(self) -> int:
        """Prompt tokens of the requests that are not decoding yet."""
        return sum(request.length for request in self.live.values() if not request.decoding)

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and longest live sequence, in tokens."""
        lengths = [request.length for request in self.live.values()]
        return min(lengths), max(lengths)

    def prepare(self, condition: Condition, batch_size: int, growth: int) -> None:
        """Replace what is of another condition, has ended, or would outgrow the context by `growth` tokens."""
        self._drop(lambda r: r.condition != condition or r.ended or r.length + growth > condition.context)
        self._drop_to(batch_size)
        while len(self.live) < batch_size:
            self._add(condition, growth)

    def observe(self, step: Step) -> None:
        """Let each sequence grow by what it got, and mark those whose text has ended."""
        for key, tokens in step.new_tokens.items():
            request = self.live.get(key)
            if request is not None and tokens:
                request.decoding = True
                request.length += len(tokens)
                request.ended = request.ended or not self._eos.isdisjoint(tokens)

    def before_eos(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` come before the model's end of sequence; all if there is none."""
        return next((i for i, token in enumerate(tokens) if token in self._eos), len(tokens))

    def _drop(self, unfit: Callable[[LiveRequest], bool]) -> None:
        self._abort([key for key, request in self.live.items() if unfit(request)])

    def _drop_to(self, batch_size: int) -> None:
        """The longest go first, so that the rest can be used for longer."""
        longest_first = sorted(self.live, key=lambda key: -self.live[key].length)
        self._abort(longest_first[: max(0, len(longest_first) - batch_size)])

    def _abort(self, keys: list[str]) -> None:
        if keys:
            self._door.abort([self.live.pop(key).name for key in keys])

    def _add(self, condition: Condition, growth: int) -> None:
        """A fresh request may end up past its context, which is recorded, but never past what the engine holds."""
        prompt = next(self._prompts[condition.context])
        if len(prompt.token_ids) + growth > self._max_model_len:
            raise UsageError(
                f"A block may add {growth} tokens to a prompt of {len(prompt.token_ids)}, "
                f"but max_model_len is {self._max_model_len}.",
                "Use fewer steps a block, a smaller K, or a larger --max-model-len.",
            )
        name = f"dsd-tune-{next(self._names)}"
        key = self._door.add(name, prompt.token_ids, condition.temperature)
        self.live[key] = LiveRequest(name, prompt.id, condition, len(prompt.token_ids))
