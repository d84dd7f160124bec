"""Prompts at the lengths at which sequences begin, with a tokenizer that takes a word for a token."""

import pytest

from dsd_tune.engines.vllm_supply import Supply
from dsd_tune.engines.window import StartLengths, start_lengths
from dsd_tune.errors import UsageError
from dsd_tune.records.prompt import Prompt


class Words:
    """A word is a token, known by its number; a message has two tokens more, as a chat template adds some."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def tokens(self, text: str) -> list[int]:
        """A token a word."""
        self.known += [word for word in text.split() if word not in self.known]
        return [self.known.index(word) for word in text.split()]

    def text(self, tokens: list[int]) -> str:
        """The words again."""
        return " ".join(self.known[token] for token in tokens)

    def message(self, text: str) -> tuple[int, ...]:
        """Framed."""
        return (-1, *self.tokens(text), -2)


def prompts(*lengths: int) -> list[Prompt]:
    """Prompts of so many words, all of them different."""
    return [Prompt(f"p{i:02}", " ".join(f"w{i}.{j}" for j in range(n))) for i, n in enumerate(lengths)]


def a_supply(lengths: StartLengths, *words: int, order: str = "0/1", tokenizer: Words | None = None) -> Supply:
    """A supply of prompts with so many words."""
    return Supply(prompts(*words), lengths, tokenizer or Words(), order)


def test_the_smallest_context_begins_with_the_prompts_and_others_half_way() -> None:
    """Windows of contexts that are an octave apart share no length, and each leaves room for the text."""
    contexts = (512, 1024, 4096)
    assert [start_lengths(context, contexts) for context in contexts] == [
        StartLengths(1, 256),
        StartLengths(512, 768),
        StartLengths(2048, 3072),
    ]


def test_prompts_come_in_another_order_at_each_start() -> None:
    """Each start cycles through all prompts, the same seed in the same order and another seed in another."""

    def first_round(order: str) -> list[str]:
        supply = a_supply(StartLengths(1, 100), *range(1, 9), order=order)
        return [next(supply).id for _ in range(8)]

    assert first_round("0/1") == first_round("0/1") != first_round("0/2")
    assert sorted(first_round("0/1")) == [f"p{i:02}" for i in range(8)]


def test_prompts_that_leave_no_room_are_skipped() -> None:
    """A prompt longer than the most that a sequence may begin with is never decoded from."""
    supply = a_supply(StartLengths(1, 6), 2, 4, 5, 9)
    assert {next(supply).id for _ in range(8)} == {"p00", "p01"}


def test_a_short_prompt_follows_on_the_users_other_texts() -> None:
    """It is made just long enough, from whole texts but for the first one's beginning, and asks its own question."""
    tokenizer = Words()
    supply = a_supply(StartLengths(20, 30), 6, 7, 8, 9, tokenizer=tokenizer)
    for _ in range(12):
        prompt = next(supply)
        own = tokenizer.tokens(prompts(6, 7, 8, 9)[int(prompt.id[1:])].text)
        assert len(prompt.token_ids) == 22
        assert list(prompt.token_ids[-1 - len(own) : -1]) == own
        assert len(set(prompt.token_ids)) == 22


def test_a_prompt_of_the_right_length_is_taken_as_it_is() -> None:
    """A user's own long prompt is better than anything put together."""
    supply = a_supply(StartLengths(20, 30), 22, 22)
    assert len(next(supply).token_ids) == 24


def test_joined_texts_differ_each_time() -> None:
    """A prompt that comes round again follows on other texts, so that no long sequence is decoded twice."""
    supply = a_supply(StartLengths(20, 30), *[5] * 12)
    drawn = [next(supply) for _ in range(24)]
    assert len({prompt.token_ids for prompt in drawn}) == 24


def test_only_long_prompts_are_refused() -> None:
    """Without a prompt that fits there is nothing to measure."""
    with pytest.raises(UsageError, match="No prompt is 4 tokens or shorter"):
        a_supply(StartLengths(1, 4), 5, 6)


def test_too_little_text_for_a_long_context_is_refused() -> None:
    """Repeating texts would make acceptance look better than it is."""
    with pytest.raises(UsageError, match="together are 9 tokens, and sequences should begin at 20"):
        a_supply(StartLengths(20, 30), 4, 5)
