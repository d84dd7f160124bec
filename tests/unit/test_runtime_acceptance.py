"""Acceptance of the moment, from what became of the drafts step by step."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from dsd_tune.runtime.acceptance import LATEST_DRAFTS, WINDOW_DRAFTS, Acceptance
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


def test_a_few_drafts_contradict_nothing() -> None:
    """Two refused drafts after a long time at K=0 move the estimate no further than their number warrants."""
    random, acceptance = Random(0), Acceptance(GOOD)
    observe(acceptance, 4, GOOD, 200, random)
    acceptance.observe([2], [0], 1)
    assert acceptance.tokens[1] > 1.5


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
