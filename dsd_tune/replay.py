"""From choices of K and some traffic to a forecast: the same requests under each choice, with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.choices import NO_SPECULATION, TABLE, Choice
from dsd_tune.model.course import Recorder
from dsd_tune.model.queueing import Queue
from dsd_tune.model.ratios import judged
from dsd_tune.model.redrawn import Redrawn
from dsd_tune.model.sampled import Array
from dsd_tune.model.tally import Times
from dsd_tune.records.comparison import Change
from dsd_tune.records.forecast import Against, ChoiceForecast, Forecast, Spread
from dsd_tune.records.trace import Request

RESTS_ON = 10_000
"""Requests from which intervals are computed: that many are replayed once for each draw of the surface."""

DRAWN = 16
"""Draws of the surface; they give a deviation to a fifth of it."""

ENOUGH_FOR_P99 = 1000

_CHUNK = 5000
"""Requests that every choice serves before more are read: what is in memory does not grow with the trace."""

_CROWDED = 0.5


def replay(
    choices: Sequence[Choice], requests: Iterable[Request], prefill_tokens_per_s: float, remarks: Sequence[str] = ()
) -> Forecast:
    """Serve `requests`, which come in the order of their arrival from 0 s on, under each choice.

    Raises:
        UsageError: there is no request.
    """
    runs = [_Run(choice, 1 / prefill_tokens_per_s) for choice in choices]
    rng = np.random.default_rng(0)
    served = 0
    for chunk in _chunks(requests):
        lucks = rng.standard_normal((1 + DRAWN if served < RESTS_ON else 1, len(chunk))).tolist()
        for run in runs:
            run.feed(chunk, lucks)
        served += len(chunk)
    if not served:
        raise UsageError("there is no request to replay.", "Give a trace with at least one.")
    told = [_Told(run, short=served <= RESTS_ON) for run in runs]
    return _forecast(told, prefill_tokens_per_s, min(served, RESTS_ON), remarks)


def _chunks(requests: Iterable[Request]) -> Iterator[list[Request]]:
    left = iter(requests)
    while chunk := list(islice(left, _CHUNK)):
        yield chunk


def _forecast(told: Sequence[_Told], prefill_tokens_per_s: float, rests_on: int, remarks: Sequence[str]) -> Forecast:
    by_name = {one.name: one for one in told}
    base, table = by_name.get(NO_SPECULATION), by_name.get(TABLE)
    fixed = min(
        (one for one in told if one.name.startswith("K=")), key=lambda one: one.completion[0].value, default=None
    )
    return Forecast(
        requests=told[0].requests,
        output_tokens=told[0].output_tokens,
        prefill_tokens_per_s=prefill_tokens_per_s,
        rests_on=rests_on,
        choices=tuple(one.record(base) for one in told),
        table_against_fixed=table.against(fixed) if table and fixed else None,
        best_fixed=fixed.name if fixed else None,
        remarks=(*remarks, *_crowding(told)),
    )


def _crowding(told: Sequence[_Told]) -> Iterator[str]:
    crowded = [one.name for one in told if one.seconds_at[-1] > _CROWDED * sum(one.seconds_at)]
    if crowded:
        yield (
            f"requests wait for a place most of the time ({', '.join(crowded)}): completion times are those of a "
            "queue, and depend on how long the traffic lasts"
        )


class _Run:
    """Servers of one choice: one by the estimates, which sees all requests, and one for each draw."""

    def __init__(self, choice: Choice, prefill_s: float) -> None:
        self.choice = choice
        self.recorder = Recorder(choice.ks)
        self.whole = Queue(choice.pace(prefill_s), self.recorder)
        self.drawn = [Queue(choice.pace(prefill_s, draw)) for draw in range(DRAWN)]

    def feed(self, requests: Sequence[Request], lucks: Sequence[Sequence[float]]) -> None:
        """`lucks` has a row for each server that shall see them."""
        for queue, luck in zip((self.whole, *self.drawn), lucks, strict=False):
            queue.feed(requests, luck)

    def drain(self) -> None:
        """Serve until nobody is left."""
        for queue in (self.whole, *self.drawn):
            queue.drain()


class _Told:
    """One choice's numbers. Few requests are told from the draws alone, since one luck of the text is none."""

    def __init__(self, run: _Run, *, short: bool) -> None:
        run.drain()
        self.name, self._ks = run.choice.name, run.choice.ks
        self.requests, self.output_tokens = run.whole.requests, run.whole.output_tokens
        self.seconds_at: Array = np.mean([q.seconds_at for q in (run.drawn if short else [run.whole])], axis=0)
        draws = np.array([_numbers(queue) for queue in run.drawn])
        values = [None] * draws.shape[1] if short else _numbers(run.whole).tolist()
        numbers = [Redrawn.of(column, value) for column, value in zip(draws.T, values, strict=True)]
        self.tpot, self.first_token, self.completion = numbers[:4], numbers[4:8], numbers[8:12]
        self.finished = numbers[12]
        self.course = run.recorder.course()

    def record(self, base: _Told | None) -> ChoiceForecast:
        """For people and files."""
        per_k: dict[int, float] = defaultdict(float)
        for k, seconds in zip(self._ks, self.seconds_at.tolist(), strict=True):
            per_k[k] += seconds
        rate = Redrawn(self.output_tokens / self.finished.value, 1 / self.finished.draws)
        return ChoiceForecast(
            name=self.name,
            max_num_seqs=len(self._ks),
            tpot_s=self._spread(self.tpot) if np.isfinite(self.tpot[0].value) else None,
            first_token_s=self._spread(self.first_token),
            completion_s=self._spread(self.completion),
            finished_s=self.finished.interval(),
            output_tokens_per_s=rate.interval(),
            seconds_at=tuple(self.seconds_at.tolist()),
            seconds_per_k=tuple(sorted(per_k.items())),
            course=self.course,
            against_no_spec=self.against(base) if base and base is not self else None,
        )

    def against(self, other: _Told) -> Against:
        """Ratios of means, each judged."""
        return Against(
            tpot=_ratio(self.tpot[0], other.tpot[0]) if np.isfinite(self.tpot[0].value) else None,
            completion=_ratio(self.completion[0], other.completion[0]),
            finished=_ratio(self.finished, other.finished),
        )

    def _spread(self, numbers: Sequence[Redrawn]) -> Spread:
        mean, p50, p90, p99 = (number.interval() for number in numbers)
        return Spread(mean, p50, p90, p99 if self.requests >= ENOUGH_FOR_P99 else None)


def _ratio(mine: Redrawn, theirs: Redrawn) -> Change:
    return judged(mine.over(theirs), less_is_better=True)


def _numbers(queue: Queue) -> Array:
    """Mean and three quantiles of TPOT, time to first token and completion time, then when all was done."""
    times = (queue.tpot_s, queue.first_token_s, queue.completion_s)
    return np.concatenate([*(_summary(one) for one in times), [queue.now_s]])


def _summary(times: Times) -> Array:
    return times.summary((0.5, 0.9, 0.99)) if times.count else np.full(4, np.nan)
