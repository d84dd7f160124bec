from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dsd_tune.model.luck import luck
from dsd_tune.model.queueing import Pace, Queue
from dsd_tune.records.trace import Request


def _pace(places: int = 4, step_s: float = 0.01, tokens: float = 1.0, k: int = 0, prefill_s: float = 0.0) -> Pace:
    """Steps that take equally long at every batch size, without luck."""
    return Pace((step_s,) * places, (tokens,) * places, (0.0,) * places, (k,) * places, prefill_s)


def _served(pace: Pace, requests: Sequence[Request], lucks: Sequence[float] | None = None, chunk: int = 1000) -> Queue:
    queue = Queue(pace)
    lucks = lucks or [0.0] * len(requests)
    for first in range(0, len(requests), chunk):
        queue.feed(requests[first : first + chunk], lucks[first : first + chunk])
    queue.drain()
    return queue


def _random(count: int, gap_s: float) -> list[Request]:
    rng = np.random.default_rng(1)
    arrivals, lengths = rng.exponential(gap_s, count).cumsum().tolist(), rng.integers(1, 90, count).tolist()
    return [Request(arrival_s, 10, tokens) for arrival_s, tokens in zip(arrivals, lengths, strict=True)]


def _mean(times: Any) -> float:
    return float(times.summary(())[0])


def test_one_request_takes_a_step_a_token() -> None:
    """Alone and without drafts: prefill, then one step for each token, the first included."""
    queue = _served(_pace(prefill_s=0.001), [Request(5.0, 100, 20)])
    assert _mean(queue.first_token_s) == pytest.approx(0.11)
    assert _mean(queue.completion_s) == pytest.approx(0.1 + 20 * 0.01)
    assert _mean(queue.tpot_s) == pytest.approx(0.01)
    assert queue.now_s == pytest.approx(5.3)


@pytest.mark.parametrize(("output", "steps"), [(0, 1), (1, 1), (2, 2), (3, 2), (101, 51), (102, 52)])
def test_drafts_shorten_a_request_to_whole_steps(output: int, steps: int) -> None:
    """With two tokens a step what is left after the first token takes half the steps, rounded up."""
    queue = _served(_pace(tokens=2.0, k=1), [Request(0.0, 1, output)])
    assert queue.now_s == pytest.approx(0.01 * steps)


def test_a_fixed_batch_takes_its_own_step_time() -> None:
    """B requests of one length share all their steps, and each costs what a step at B costs."""
    pace = Pace((0.01, 0.02, 0.04), (1.0,) * 3, (0.0,) * 3, (0,) * 3, 0.0)
    queue = _served(pace, [Request(0.0, 1, 50)] * 3)
    assert queue.now_s == pytest.approx(50 * 0.04)
    assert queue.seconds_at == pytest.approx([0, 0, 50 * 0.04])


def test_a_prompt_holds_everybody_up() -> None:
    """A request that comes while another decodes adds the time of its prompt to one of the other's steps."""
    queue = _served(_pace(prefill_s=0.01), [Request(0.0, 0, 10), Request(0.035, 50, 1)])
    assert queue.now_s == pytest.approx(10 * 0.01 + 0.5)


def test_who_finds_no_place_waits_for_the_first_to_end() -> None:
    """With one place requests follow each other, and waiting counts as completion time."""
    queue = _served(_pace(places=1), [Request(0.0, 1, 10)] * 3)
    assert queue.now_s == pytest.approx(0.3)
    assert _mean(queue.completion_s) == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert _mean(queue.first_token_s) == pytest.approx((0.01 + 0.11 + 0.21) / 3)


def test_an_idle_server_spends_no_time() -> None:
    """Between requests nothing runs, so no batch size gets the time."""
    queue = _served(_pace(), [Request(0.0, 1, 10), Request(100.0, 1, 10)])
    assert queue.now_s == pytest.approx(100.1)
    assert sum(queue.seconds_at) == pytest.approx(0.2)


def test_every_request_ends_and_every_token_is_made() -> None:
    """Nothing is lost: requests and tokens are those that came, and batch-seconds those that requests spent."""
    requests = _random(500, 1.0)
    queue = _served(_pace(places=3), requests)
    assert queue.requests == queue.completion_s.count == 500
    assert queue.output_tokens == sum(r.output_tokens for r in requests)
    # Without drafts a request is in as many steps as it has tokens.
    in_service = sum(b * seconds for b, seconds in enumerate(queue.seconds_at, start=1))
    assert in_service == pytest.approx(0.01 * queue.output_tokens)


def test_how_requests_are_handed_over_does_not_matter() -> None:
    """One at a time or all at once, the same happens: memory may hold as few as it likes."""
    requests = _random(300, 0.2)
    lucks = np.random.default_rng(2).standard_normal(300).tolist()
    pace = Pace((0.01, 0.015, 0.02), (1.7,) * 3, (luck(1.7, 2),) * 3, (2,) * 3, 0.001)
    whole, single = (_served(pace, requests, lucks, chunk) for chunk in (300, 1))
    assert whole.now_s == single.now_s
    assert whole.seconds_at == single.seconds_at


def test_waiting_is_that_of_a_queue_with_fixed_service() -> None:
    """One place, random arrivals, equal lengths: Pollaczek and Khinchine tell how long requests wait (M/D/1)."""
    rng = np.random.default_rng(3)
    service_s, load = 1.0, 0.7
    arrivals = rng.exponential(service_s / load, 60_000).cumsum()
    queue = _served(_pace(places=1, step_s=service_s / 100), [Request(float(t), 0, 100) for t in arrivals])
    wait_s = load * service_s / (2 * (1 - load))
    assert _mean(queue.completion_s) == pytest.approx(service_s + wait_s, rel=0.04)


def test_requests_at_once_are_arrivals_times_stay() -> None:
    """Where there is always a place, the mean batch size follows from rate and completion time (Little's law)."""
    rng = np.random.default_rng(4)
    arrivals = rng.exponential(0.5, 20_000).cumsum()
    queue = _served(_pace(places=64), [Request(float(t), 0, 300) for t in arrivals])
    in_service = sum(b * seconds for b, seconds in enumerate(queue.seconds_at, start=1))
    assert in_service / queue.now_s == pytest.approx(20_000 / arrivals[-1] * _mean(queue.completion_s), rel=0.01)


def test_luck_stays_between_all_and_no_drafts_accepted() -> None:
    """However lucky, a request needs a step for every K + 1 tokens; however unlucky, one for each."""
    lucky, unlucky = (_served(
        Pace((0.01,), (2.0,), (5.0,), (3,), 0.0), [Request(0.0, 1, 41)], [chance]
    ).now_s for chance in (-100.0, 100.0))  # fmt: skip
    assert lucky == pytest.approx(0.01 * (1 + 10))
    assert unlucky == pytest.approx(0.01 * (1 + 40))


def test_luck_is_that_of_drawn_tokens() -> None:
    """From the acceptance length alone: as much spread as tokens drawn with one rate at every position have."""
    rng = np.random.default_rng(5)
    rate, k = 0.7, 3
    made = 1 + np.argmin(np.column_stack([rng.random((200_000, k)) < rate, np.zeros(200_000)]), axis=1)
    assert luck(float(made.mean()), k) == pytest.approx(float(made.std() / np.sqrt(made.mean())), rel=0.01)


@pytest.mark.parametrize(("length", "k"), [(1.0, 0), (1.0, 4), (5.0, 4)])
def test_certainty_has_no_luck(length: float, k: int) -> None:
    """Where none or all are accepted nothing is left to chance."""
    assert luck(length, k) == 0.0


def test_quantiles_are_within_half_a_percent() -> None:
    """Counting in bins moves a quantile by less than anybody would ask, and the mean not at all."""
    rng = np.random.default_rng(6)
    times = rng.lognormal(0, 1, 9000)
    queue = Queue(_pace())
    for part in np.split(times, 9):
        queue.tpot_s.add(part.tolist())
    mean, *quantiles = queue.tpot_s.summary((0.5, 0.9, 0.99))
    assert mean == pytest.approx(times.mean())
    assert quantiles == pytest.approx(np.quantile(times, [0.5, 0.9, 0.99]), rel=0.005)
    assert all(left < right for left, right in pairwise(quantiles))


@pytest.mark.parametrize(
    ("pace", "complaint"),
    [
        (((0.01,), (1.0, 1.0), (0.0,), (0,), 0.0), "one step"),
        (((0.0,), (1.0,), (0.0,), (0,), 0.0), "take time"),
        (((0.1,), (2.5,), (0.0,), (1,), 0.0), "at most K \\+ 1"),
    ],
)
def test_a_pace_makes_sense(pace: Any, complaint: str) -> None:
    """A pace without a number for a batch size, without time, or with more tokens than drafts allow, is none."""
    with pytest.raises(ValueError, match=complaint):
        Pace(*pace)
