"""Keeps exactly as many requests in the engine as a block wants, each still inside its own text and the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

from dsd_tune.engines.vllm_steps import Step
from dsd_tune.errors import UsageError


class Door(Protocol):
    """How requests enter and leave the engine."""

    def add(self, name: str, token_ids: Sequence[int]) -> str:
        """Queue a request that decodes until aborted; the id by which steps will call it."""
        ...

    def abort(self, names: list[str]) -> None:
        """Take requests out, by the names they were added under."""
        ...


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as the model reads it, chat template applied."""

    id: str
    token_ids: tuple[int, ...]


@dataclass(slots=True)
class LiveRequest:
    """A request in the engine: how long it is, and whether it has started or ended its text."""

    name: str
    prompt: str
    length: int
    decoding: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """How long sequences may get, in tokens: as measured, and as the engine can hold at all."""

    max_context: int
    max_model_len: int


def usable(prompts: Sequence[TokenizedPrompt], max_context: int) -> list[TokenizedPrompt]:
    """The prompts that leave at least half of the window for the text.

    Raises:
        UsageError: none does.
    """
    short = [p for p in prompts if len(p.token_ids) <= max_context // 2]
    if not short:
        raise UsageError(
            f"No prompt is {max_context // 2} tokens or shorter, half of the longest context measured.",
            "Give shorter prompts or a longer context.",
        )
    return short


def endless(prompts: Sequence[TokenizedPrompt], order: str) -> Iterator[TokenizedPrompt]:
    """All prompts in random order, again and again; the same seed gives the same order."""
    shuffled = sorted(prompts, key=lambda p: p.id)
    random = Random(order)
    while True:
        random.shuffle(shuffled)
        yield from shuffled


class RequestPool:
    """The live requests by the engine's id for them."""

    def __init__(self, door: Door, prompts: Iterator[TokenizedPrompt], eos: frozenset[int], window: Window) -> None:
        self._door = door
        self._prompts = prompts
        self._eos = eos
        self._window = window
        self._names = count()
        self.live: dict[str, LiveRequest] = {}

    @property
    def decoding(self) -> frozenset[str]:
        """The requests that have got at least one token, so their next step is a decode step."""
        return frozenset(key for key, request in self.live.items() if request.decoding)

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and longest live sequence, in tokens."""
        lengths = [request.length for request in self.live.values()]
        return min(lengths), max(lengths)

    def prepare(self, batch_size: int, growth: int) -> None:
        """Replace what has ended or would grow out of the window by `growth` tokens; then reach `batch_size`."""
        self._drop(lambda r: r.ended or r.length + growth > self._window.max_context)
        self._drop_to(batch_size)
        while len(self.live) < batch_size:
            self._add(growth)

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

    def _add(self, growth: int) -> None:
        """A fresh request may end up past the window, which is recorded, but never past what the engine holds."""
        prompt = next(self._prompts)
        if len(prompt.token_ids) + growth > self._window.max_model_len:
            raise UsageError(
                f"A block may add {growth} tokens to a prompt of {len(prompt.token_ids)}, "
                f"but max_model_len is {self._window.max_model_len}.",
                "Use fewer steps a block, a smaller K, or a larger --max-model-len.",
            )
        name = f"dsd-tune-{next(self._names)}"
        key = self._door.add(name, prompt.token_ids)
        self.live[key] = LiveRequest(name, prompt.id, len(prompt.token_ids))
