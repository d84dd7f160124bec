"""Whether step times can be trusted: scatter, odd blocks, a machine that changed while it was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from dsd_tune.model.suspects import comparable, odd_among
from dsd_tune.model.timing import Timings, collect, variations
from dsd_tune.model.trend import first_round, trend
from dsd_tune.quality.listing import listed
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Block, Failure, Phase
from dsd_tune.records.warning import Code, QualityWarning

NOISY = 0.1
"""From this coefficient of variation on, blocks of one cell are fair at best."""

DRIFTS = 0.01
"""A change over the run that is as large as the gains people deploy for."""

SLOW_FIRST = 0.02

SLOWED = 0.9
"""A clock at this share of its median, or below, has been throttled, whatever the reason."""


def on_times(samples: Sequence[Block | Failure]) -> Iterator[QualityWarning]:
    """Every warning about step times."""
    groups = [(phase, blocks, collect(blocks)) for (phase, _), blocks in comparable(samples).items()]
    yield from _noisy([timings for _, _, timings in groups])
    for _, blocks, timings in groups:
        yield from _outliers(blocks, timings)
    for phase, blocks, timings in groups:
        if phase is Phase.MAIN:
            yield from _drifting(timings)
            yield from _first_round(timings, blocks)
    yield from _throttled([block for _, blocks, _ in groups for block in blocks])


def _noisy(groups: Sequence[Timings]) -> Iterator[QualityWarning]:
    noisy = {cell: cv for timings in groups for cell, cv in variations(timings).items() if cv >= NOISY}
    if noisy:
        yield QualityWarning(
            Code.NOISY,
            tuple(sorted(noisy)),
            f"blocks of one cell scatter by up to {max(noisy.values()):.0%} at {listed(noisy)}",
            "Keep other work off the machine, fix its clocks, or measure with more --rounds.",
        )


def _outliers(blocks: Sequence[Block], timings: Timings) -> Iterator[QualityWarning]:
    for block, away in odd_among(blocks, timings):
        yield QualityWarning(
            Code.OUTLIER_BLOCK,
            (block.cell,),
            f"one block of {block.cell} (start {block.start}, round {block.round}) was {abs(away):.0%} "
            f"{'slower' if away > 0 else 'faster'} than the others; it is kept, with little weight",
            "Measure it again. If it stays odd, this cell has two speeds, and its mean tells neither.",
        )


def _drifting(timings: Timings) -> Iterator[QualityWarning]:
    found = trend(timings)
    if found and _told(found, DRIFTS):
        yield QualityWarning(
            Code.DRIFTING,
            (),
            f"the machine became {_by(found)} over the run; arms that were alive together share that, others do not",
            "Let the machine warm up, fix its clocks, or leave it more memory so that engines can be alive together.",
        )


def _first_round(timings: Timings, blocks: Sequence[Block]) -> Iterator[QualityWarning]:
    found = first_round(timings, blocks)
    if found and found.value > 0 and _told(found, SLOW_FIRST):
        yield QualityWarning(
            Code.FIRST_ROUND_SLOW,
            (),
            f"the first pass over the cells of a stop was {_by(found)} than those that retraced it",
            "Engines were still warming up: measure with more --rounds, or with a larger block.",
        )


def _told(change: Interval, least: float) -> bool:
    return abs(change.value) > least and not change.low <= 0 <= change.high


def _by(change: Interval) -> str:
    low, high = sorted((abs(change.low), abs(change.high)))
    return f"{abs(change.value):.1%} [{low:.1%}, {high:.1%}] {'slower' if change.value > 0 else 'faster'}"


def _throttled(blocks: Sequence[Block]) -> Iterator[QualityWarning]:
    for reason, slow in (*_reasons(blocks).items(), *_slow_clocks(blocks)):
        cells = sorted({block.cell for block in slow})
        yield QualityWarning(
            Code.THROTTLED,
            tuple(cells),
            f"the machine was throttled in {len(slow)} of {len(blocks)} blocks, at {listed(cells)}: {reason}",
            "Cool it, raise its power limit, or lock its clocks to what it can hold.",
        )


def _reasons(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        for reason in (block.machine and block.machine.throttle_reasons) or ():
            found[reason].append(block)
    return found


def _slow_clocks(blocks: Sequence[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Of a GPU alone: that of a CPU is a mean over cores that have nothing to do."""
    known = [(block, block.machine.gpu_mhz) for block in blocks if block.machine and block.machine.gpu_mhz]
    usual = median(mhz for _, mhz in known) if known else 0.0
    slow = [block for block, mhz in known if mhz < SLOWED * usual]
    if slow:
        yield f"the GPU's clock was under {SLOWED:.0%} of its usual {usual:.0f} MHz", slow
