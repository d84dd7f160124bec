"""Acceptance of the moment, from what became of the drafts step by step."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from dsd_tune.runtime.acceptance import LATEST_DRAFTS, PRIOR_DRAFTS, WINDOW_DRAFTS, Acceptance
from dsd_tune.runtime.costs import tokens_per_step

GOOD, POOR = (0.6, 0.36, 0.24), (0.14, 0.03, 0.01)
SIZES = [1, 4, 16, 64]


def observe(acceptance: Acceptance, size: int, rates: Sequence[float], steps: int, random: Random) -> list[float]:
    """Steps in which each request accepts by luck; the tokens expected at K=1 after each."""
    expected = []
    for _ in range(steps):
        luck = [random.random() for _ in range(size)]
        acceptance.observe([size] * len(rates), [sum(one < rate for one in luck) for rate in rates], 1)
        expected.append(acceptance.tokens[1])
    return expected


def test_without_drafts_the_profile_holds() -> None:
    """Nothing observed, or steps without drafts, change nothing."""
    acceptance = Acceptance(GOOD)
    for _ in range(100):
        acceptance.observe([], [], 1)
    assert acceptance.tokens == pytest.approx(tokens_per_step(GOOD))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("before", "after"), [(GOOD, POOR), (POOR, GOOD)])
def test_another_text_is_noticed_at_once(size: int, before: Sequence[float], after: Sequence[float]) -> None:
    """Once twice as many drafts as count as the latest are seen, the old text has lost most of its weight."""
    random, lags = Random(size), []
    for _ in range(20):
        acceptance = Acceptance(before)
        observe(acceptance, size, before, 2 * WINDOW_DRAFTS // size, random)
        steps = 2 * LATEST_DRAFTS // size + 8
        lags.append(observe(acceptance, size, after, steps, random)[-1] - (1 + after[0]))
    assert abs(sum(lags) / len(lags)) < 0.3 * abs(before[0] - after[0])


@pytest.mark.parametrize("size", SIZES)
def test_a_text_that_stays_is_averaged_over_many_drafts(size: int) -> None:
    """Luck alone seldom makes it forget: the estimate scatters less than the latest drafts do."""
    random, acceptance = Random(size), Acceptance(GOOD)
    observe(acceptance, size, GOOD, 200, random)
    expected = observe(acceptance, size, GOOD, 2000, random)
    errors = [(one - (1 + GOOD[0])) ** 2 for one in expected]
    assert sum(errors) / len(errors) < 0.5 * GOOD[0] * (1 - GOOD[0]) / LATEST_DRAFTS


@pytest.mark.parametrize("seen", [0, 50])
def test_a_few_drafts_weigh_as_much_as_they_are(seen: int) -> None:
    """Two refused drafts after a long time at K=0 move the estimate by their number; time alone hardly moves it."""
    acceptance = Acceptance(GOOD)
    observe(acceptance, 4, GOOD, seen, Random(0))
    for _ in range(1000):
        acceptance.observe([], [], 1)
    known = acceptance.tokens[1] - 1
    acceptance.observe([2], [0], 1)
    assert acceptance.tokens[1] == pytest.approx(1 + known * PRIOR_DRAFTS / (PRIOR_DRAFTS + 2), abs=0.01)
    for _ in range(1000):
        acceptance.observe([], [], 1)
    assert acceptance.tokens[1] == pytest.approx(1 + known * PRIOR_DRAFTS / (PRIOR_DRAFTS + 2), abs=0.05)


def test_what_is_no_longer_drafted_is_remembered() -> None:
    """A large batch that saw position 2 fail at once does not believe in it again after a hundred steps at K=1."""
    acceptance, rates = Acceptance((0.8, 0.64)), (0.8, 0.04)
    observe(acceptance, 256, rates, 20, Random(0))
    observe(acceptance, 256, rates[:1], 100, Random(1))
    assert acceptance.tokens[2] - acceptance.tokens[1] < 0.1


def test_few_counted_steps_tell_as_much() -> None:
    """Of a large batch one step in four is counted: the text that came is still noticed within a few of them."""
    random, acceptance = Random(0), Acceptance(GOOD)
    for _ in range(8):
        acceptance.observe([256], [sum(random.random() < POOR[0] for _ in range(256))], 4)
    assert acceptance.tokens[1] == pytest.approx(1 + POOR[0], abs=0.05)


@pytest.mark.parametrize(
    ("drafted", "accepted"),
    [([0], [0]), ([0, 0, 0, 0, 0], [0, 0, 0, 0, 0]), ([9, 9, 9, 9], [9, 9, 9, 9]), ([1, 5], [1, 0])],
)
def test_odd_counts_do_not_break_it(drafted: Sequence[int], accepted: Sequence[int]) -> None:
    """No drafts at a position, more positions than the profile knows, more drafts behind than before: all are taken."""
    acceptance = Acceptance(GOOD)
    for _ in range(100):
        acceptance.observe(drafted, accepted, 1)
    assert len(acceptance.tokens) == 1 + len(GOOD)
    assert all(1 <= tokens <= 1 + len(GOOD) for tokens in acceptance.tokens)
