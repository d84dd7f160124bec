"""Which steps are kept, and which of their tokens are counted."""

import pytest

from dsd_tune.engines.vllm_steps import Step
from dsd_tune.engines.vllm_tally import Tally


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
