"""A run's blocks in the order of measuring: how far each lies from its cell's mean, and at which batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dsd_tune.model.sampled import Array
from dsd_tune.model.timing import Timings, collect
from dsd_tune.records.measurement import Arm, Block, Failure
from dsd_tune.report.plots.style import (
    BLACK,
    FIXED,
    GREY,
    LIGHT,
    OFF,
    TABLE,
    Look,
    figure,
    legend_below,
    sample,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS: dict[Arm, Look] = {
    Arm.NO_SPEC: {**OFF, "linestyle": ""},
    Arm.DSD: {**TABLE, "linestyle": ""},
    Arm.STATIC: {**FIXED, "linestyle": ""},
}


@styled
def drift_plot(samples: Sequence[Block | Failure]) -> Figure:
    """Above: each block's step time in percent off its cell's mean, with the mean of each visit, which is the drift.

    Below: the batch size visited. Vertical lines are engine starts. Token counts of the blocks are not needed.
    """
    blocks = [sample for sample in samples if isinstance(sample, Block)]
    drawing = figure("Blocks in the order of measuring", 3.8)
    upper, lower = drawing.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    timings = collect(blocks)
    _draw_blocks(upper, blocks, timings)
    for axes in (upper, lower):
        for place in _starts(blocks):
            axes.axvline(place - 0.5, color=LIGHT, linewidth=0.8, zorder=0)
    lower.step(range(len(blocks)), [block.cell.batch_size for block in blocks], where="mid", color=BLACK, linewidth=0.9)
    lower.set_yscale("log", base=2)
    sizes = sorted({block.cell.batch_size for block in blocks})
    lower.set_yticks([sizes[0], sizes[-1]], [str(sizes[0]), str(sizes[-1])])
    lower.set_ylabel("batch size")
    lower.set_xlabel(_duration(blocks))
    arms = sorted({block.cell.arm for block in blocks}, key=list(_LOOKS).index)
    entries = [sample(arm, _LOOKS[arm]) for arm in arms]
    legend_below(drawing, [*entries, sample("mean of a visit", {"color": GREY, "linestyle": "-"})], 4)
    return drawing


def _draw_blocks(axes: Axes, blocks: Sequence[Block], timings: Timings) -> None:
    off = timings.values - _means(timings.values, timings.of_cell)
    percent = np.expm1(off) * 100
    for arm, look in _LOOKS.items():
        places = [place for place, block in enumerate(blocks) if block.cell.arm is arm]
        # Thousands of dots are a small picture, and would be a large drawing.
        axes.plot(places, percent[places], alpha=0.8, rasterized=True, **{**look, "markersize": 3})
    axes.step(range(len(blocks)), _means(percent, timings.of_visit), where="mid", color=GREY, linewidth=1.2)
    axes.axhline(0, color=BLACK, linewidth=0.6)
    axes.set_ylabel("step time off its cell's mean (%)")


def _means(values: Array, membership: Array) -> Array:
    """The mean of each row's group."""
    return np.asarray(membership @ (values @ membership / membership.sum(axis=0)))


def _starts(blocks: Sequence[Block]) -> list[int]:
    """Places at which an engine appears for the first time."""
    first: dict[int, int] = {}
    for place, block in enumerate(blocks):
        first.setdefault(block.start, place)
    return sorted(first.values())


def _duration(blocks: Sequence[Block]) -> str:
    seconds = blocks[-1].taken_at_s - blocks[0].taken_at_s
    took = f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
    return f"block ({len(blocks)} in {took})"
