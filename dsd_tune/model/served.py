"""From loads of several server starts to comparisons of arms. The start is the unit: its requests share its luck.

A value is the log of what a load showed. Repetition r of every arm belongs to one pass over the arms, so a pass is a
block of a randomised block design: value = arm + pass + error (Fisher 1935). What a pass shares, such as the drift of
the machine, is no difference between arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from dsd_tune.model.sampled import Array
from dsd_tune.records.comparison import Said
from dsd_tune.records.interval import Interval
from dsd_tune.records.validation import ArmComparison, Load, ServedArm

SAME = 0.02
"""Arms whose whole interval lies within 2 % are the same: nobody redeploys for less."""

_CONFIDENCE = 0.975
_POWER = 0.8

Quantity = Callable[[Load], float]


@dataclass(frozen=True, slots=True)
class Passes:
    """Log values of every arm in every complete pass, shape (arms, passes)."""

    arms: tuple[ServedArm, ...]
    values: Array

    @property
    def error(self) -> tuple[float, int]:
        """Deviation of what neither arm nor pass explains, and its degrees of freedom; 0 of them after one pass."""
        rows, columns = self.values.shape
        freedom = (rows - 1) * (columns - 1)
        rest = self.values - self.values.mean(1, keepdims=True) - self.values.mean(0) + self.values.mean()
        return (math.sqrt(float(np.sum(rest**2)) / freedom), freedom) if freedom else (math.nan, 0)

    def mean(self, arm: ServedArm) -> float:
        """The mean log value of an arm."""
        return float(self.values[self.arms.index(arm)].mean())

    def half_width(self, ends: float = _CONFIDENCE, power: float = 0.5) -> float:
        """How far a difference may be from the truth; with `power`, how large it must be to be seen so often."""
        sd, freedom = self.error
        if not freedom:
            return math.inf
        reach = float(student.ppf(ends, freedom)) + float(student.ppf(power, freedom))
        return reach * sd * math.sqrt(2 / self.values.shape[1])


def compare(loads: Sequence[Load], against: ServedArm) -> Iterator[ArmComparison]:
    """Every other arm against one of them: over all concurrencies, and at each if there are several."""
    levels = sorted({load.concurrency for load in loads})
    yield from _compare(loads, against, levels, None)
    if len(levels) > 1:
        for level in levels:
            yield from _compare(loads, against, [level], level)


def _compare(
    loads: Sequence[Load], against: ServedArm, levels: Sequence[int], concurrency: int | None
) -> Iterator[ArmComparison]:
    tpot = _passes(loads, levels, lambda load: load.tpot_s)
    throughput = _passes(loads, levels, lambda load: 1 / load.throughput)
    ttft = _passes(loads, levels, lambda load: load.ttft_s)
    for arm in tpot.arms:
        if arm is not against and against in tpot.arms:
            saved = _saved(tpot, arm, against)
            yield ArmComparison(
                arm=arm,
                against=against,
                concurrency=concurrency,
                tpot=saved,
                throughput=_won(throughput, arm, against),
                ttft=_saved(ttft, arm, against),
                detectable=detectable(tpot),
                said=judge(saved),
            )


def judge(saved: Interval) -> Said:
    """Better or worse where the interval leaves out 0, the same where it is all within 2 %, else it cannot be told."""
    if max(abs(saved.low), abs(saved.high)) <= SAME:
        return Said.SAME
    if saved.low > 0:
        return Said.BETTER
    return Said.WORSE if saved.high < 0 else Said.UNCLEAR


def detectable(passes: Passes) -> float | None:
    """The smallest share that would be seen four times in five (Cohen 1988: t(.975) + t(.8) standard errors)."""
    reach = passes.half_width(power=_POWER)
    return float(-np.expm1(-reach)) if math.isfinite(reach) else None


def measured(loads: Iterable[Load], arm: ServedArm, concurrency: int) -> Interval:
    """Mean TPOT of an arm at one concurrency over its starts, in seconds."""
    values = np.log([x.tpot_s for x in loads if x.arm is arm and x.concurrency == concurrency])
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Interval(math.exp(mean), math.exp(mean), math.exp(mean))
    half = float(student.ppf(_CONFIDENCE, count - 1)) * float(values.std(ddof=1)) / math.sqrt(count)
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def prefill_s(loads: Sequence[Load]) -> float:
    """What a token of a prompt adds to a step, in seconds; 0 where no load tells the lengths of its prompts.

    By the time to first token of the thinnest loads without speculation, less a step: the median of them.
    """
    told = [load for load in loads if any((load.input_lens or ())[1:])]
    plain = [load for load in told if load.arm is ServedArm.NO_SPEC] or told
    fewest = min((load.concurrency for load in plain), default=0)
    costs = [_prompt_token_s(load) for load in plain if load.concurrency == fewest]
    return max(0.0, float(np.median(costs))) if costs else 0.0


def _prompt_token_s(load: Load) -> float:
    """Waits of all requests over the tokens they waited for, of two requests or more.

    The first prompt was the warm-up's, and is in the server's cache. A load begins with all its clients at once, so
    their prompts share the first step, and each waits for all of them.
    """
    assert load.input_lens
    first, later = load.input_lens[1 : load.concurrency], load.input_lens[max(1, load.concurrency) :]
    waits_s = (load.ttft_s - load.tpot_s) * len(load.input_lens)
    return waits_s / (load.concurrency * sum(first) + sum(later))


def _passes(loads: Sequence[Load], concurrencies: Sequence[int], quantity: Quantity) -> Passes:
    """Passes in which every arm was loaded at each of the concurrencies; an arm's value is the mean over them."""
    arms = tuple(dict.fromkeys(load.arm for load in loads))
    logs = {(load.arm, load.start, load.concurrency): math.log(quantity(load)) for load in loads}
    complete = [
        start
        for start in sorted({load.start for load in loads})
        if all((arm, start, c) in logs for arm in arms for c in concurrencies)
    ]
    values = [[np.mean([logs[arm, start, c] for c in concurrencies]) for start in complete] for arm in arms]
    return Passes(arms if complete else (), np.array(values, dtype=float))


def _saved(passes: Passes, arm: ServedArm, against: ServedArm) -> Interval:
    """Share saved by `arm`; after one pass the interval is as wide as an interval of a share may be."""
    difference, half = passes.mean(arm) - passes.mean(against), min(passes.half_width(), 50.0)
    return Interval(*(float(-np.expm1(difference + shift)) for shift in (0.0, half, -half)))


def _won(passes: Passes, arm: ServedArm, against: ServedArm) -> Interval:
    """Share won by `arm`, from logs of what is smaller when it wins."""
    difference, half = passes.mean(against) - passes.mean(arm), min(passes.half_width(), 50.0)
    return Interval(*(float(np.expm1(difference + shift)) for shift in (0.0, -half, half)))
