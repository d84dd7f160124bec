from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from planting import BOTH, planted

from dsd_tune.model.timing import collect
from dsd_tune.model.trend import first_round, trend
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Block


def _blocks(seed: int, slower: Callable[[float, Block], float], **planned: int) -> list[Block]:
    """A run of ten minutes, slowed down by what `slower` says of a block and its place from 0 to 1."""
    rng = np.random.default_rng(seed)
    blocks = planted(rng, start_sd=0.01, drift_sd=0.005, block_sd=0.02, cells=BOTH, **planned)
    places = np.linspace(0, 1, len(blocks))
    return [
        replace(b, taken_at_s=600 * at, step_s=tuple(s * (1 + slower(at, b)) for s in b.step_s))
        for at, b in zip(places, blocks, strict=True)
    ]


def _first_round(blocks: list[Block]) -> Interval | None:
    return first_round(collect(blocks), blocks)


def _steadily(by: float) -> Callable[[float, Block], float]:
    return lambda at, _: by * at


@pytest.mark.parametrize("alive_together", [99, 2, 1])
def test_a_steady_trend_comes_back(alive_together: int) -> None:
    """Over runs that become 4 % slower nearly all intervals hold that, and their mean is it."""
    found = [
        trend(collect(_blocks(seed, _steadily(0.04), repetitions=3, alive_together=alive_together)))
        for seed in range(25)
    ]
    assert np.mean([f.value for f in found]) == pytest.approx(0.04, abs=0.01)
    assert np.mean([f.low <= 0.04 <= f.high for f in found]) > 0.8


def test_where_nothing_changed_nothing_is_claimed() -> None:
    """Without a trend few runs in a hundred claim one."""
    found = [trend(collect(_blocks(seed, _steadily(0)))) for seed in range(40)]
    assert np.mean([f.low > 0 or f.high < 0 for f in found]) < 0.1


def test_uneven_visits_are_no_trend() -> None:
    """A machine that is fast in one visit and slow in the next is uncertain, not slower."""
    rng = np.random.default_rng(0)
    blocks = [
        replace(b, taken_at_s=float(i)) for i, b in enumerate(planted(rng, drift_sd=0.1, block_sd=0.02, cells=BOTH))
    ]
    found = trend(collect(blocks))
    assert found.low < 0 < found.high
    assert found.high - found.low > 0.1


def test_no_time_no_trend() -> None:
    """Blocks that were all taken at one moment, or a single one, say nothing about time."""
    blocks = _blocks(0, _steadily(0))
    assert trend(collect([replace(block, taken_at_s=5.0) for block in blocks])) is None
    assert trend(collect(blocks[:1])) is None


def _in_passes(blocks: list[Block]) -> list[Block]:
    return [replace(block, repetition=0, round=block.repetition) for block in blocks]


def test_a_slow_first_pass_comes_back() -> None:
    """Where the first pass over each stop is 5 % slower that is found, and the trend beside it is not taken for it."""

    def slower(at: float, block: Block) -> float:
        return 0.05 * (block.repetition == 0) + 0.04 * at

    found = [_first_round(_in_passes(_blocks(seed, slower))) for seed in range(20)]
    assert np.mean([f.value for f in found]) == pytest.approx(0.05, abs=0.015)


def test_one_pass_is_not_compared() -> None:
    """With a single pass there is no later one that the first could be slower than."""
    assert _first_round(_in_passes(_blocks(0, _steadily(0), repetitions=1))) is None
