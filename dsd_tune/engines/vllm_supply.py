"""Prompts to decode from, at the lengths at which the sequences of a condition begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from dsd_tune.engines.window import StartLengths
from dsd_tune.errors import UsageError
from dsd_tune.records.prompt import Prompt


class Tokenizer(Protocol):
    """The model's own way to read and write."""

    def message(self, text: str) -> tuple[int, ...]:
        """A user's message as a chat server would send it."""
        ...

    def tokens(self, text: str) -> Sequence[int]:
        """A text alone."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Undo `tokens`."""
        ...


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as the model reads it, chat template applied."""

    id: str
    token_ids: tuple[int, ...]


class Supply:
    """One context's prompts in random order, again and again; the same seed gives the same order."""

    def __init__(self, prompts: Sequence[Prompt], lengths: StartLengths, tokenizer: Tokenizer, order: str) -> None:
        """Read all prompts.

        Raises:
            UsageError: none is short enough, or all together are too short to begin with.
        """
        messages = {prompt: tokenizer.message(prompt.text) for prompt in sorted(prompts, key=lambda p: p.id)}
        self._messages = {prompt: tokens for prompt, tokens in messages.items() if len(tokens) <= lengths.most}
        self._texts = {prompt: tokenizer.tokens(prompt.text) for prompt in self._messages}
        self._lengths = lengths
        self._tokenizer = tokenizer
        self._random = Random(order)
        self._order = self._endless()
        self._require_enough()

    def __iter__(self) -> Iterator[TokenizedPrompt]:
        return self

    def __next__(self) -> TokenizedPrompt:
        """The next prompt. One that is too short follows on others of the user's texts, never on random tokens."""
        prompt = next(self._order)
        tokens = self._messages[prompt]
        if len(tokens) < self._lengths.least:
            tokens = self._tokenizer.message(self._lengthened(prompt))
        return TokenizedPrompt(prompt.id, tokens)

    def _require_enough(self) -> None:
        if not self._messages:
            raise UsageError(
                f"No prompt is {self._lengths.most} tokens or shorter, so that the context has room for the text.",
                "Give shorter prompts or a longer context.",
            )
        together = sum(map(len, self._texts.values()))
        if together < self._lengths.least:
            raise UsageError(
                f"All prompts together are {together} tokens, and sequences should begin at {self._lengths.least}.",
                "Give more or longer prompts, or a shorter context.",
            )

    def _endless(self) -> Iterator[Prompt]:
        shuffled = list(self._messages)
        while True:
            self._random.shuffle(shuffled)
            yield from shuffled

    def _lengthened(self, asked: Prompt) -> str:
        """The text asked, after as many others as make it long enough; the first of them loses its beginning."""
        texts = [asked.text]
        missing = self._lengths.least - len(self._texts[asked])
        others = [prompt for prompt in self._texts if prompt != asked]
        self._random.shuffle(others)
        while missing > 0 and others:
            other = others.pop()
            tokens = self._texts[other]
            texts.insert(0, other.text if len(tokens) <= missing else self._tokenizer.text(tokens[-missing:]))
            missing -= len(tokens)
        return "\n\n".join(texts)
