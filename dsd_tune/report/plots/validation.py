"""A validation: TPOT as the profile foretold and as servers showed, and what each arm saves there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from dsd_tune.records.interval import Interval
from dsd_tune.records.validation import ArmComparison, ServedArm, Validation
from dsd_tune.report.plots.lines import bars
from dsd_tune.report.plots.style import (
    BLACK,
    FIXED,
    GREY,
    LIGHT,
    OFF,
    TABLE,
    Look,
    doubling_axis,
    figure,
    legend_below,
    sample,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS: dict[ServedArm, Look] = {
    ServedArm.NO_SPEC: OFF,
    ServedArm.NO_SPEC_TWIN: {**OFF, "color": GREY, "marker": "s"},
    ServedArm.FIXED: FIXED,
    ServedArm.TABLE: TABLE,
    ServedArm.POLICY: {"color": "#7a4fa3", "marker": "^", "linestyle": "-."},
    ServedArm.ADAPTIVE: {"color": "#3d7a3d", "marker": "v", "linestyle": (0, (3, 1, 1, 1)), "markerfacecolor": "white"},
}

_APART = 0.05
"""Octaves between arms at one concurrency, so that those which agree do not hide each other."""


@styled
def validation_plot(validation: Validation) -> Figure:
    """Left: TPOT predicted against measured, in ms, where something was predicted. Right: TPOT saved in percent.

    Both with 95 % intervals; a single server start has none. On the dashed diagonal the profile was right.
    """
    drawing = figure("What servers showed", 3.1)
    foretold = any(row.predicted for row in validation.predictions)
    panels = 1 + foretold
    if foretold:
        _draw_predictions(drawing.add_subplot(1, panels, 1), validation)
    _draw_saved(drawing.add_subplot(1, panels, panels), validation)
    arms = [arm for arm in ServedArm if arm in {row.arm for row in validation.predictions}]
    legend_below(drawing, [sample(arm.words, _LOOKS[arm]) for arm in arms], 3)
    return drawing


def _draw_predictions(axes: Axes, validation: Validation) -> None:
    for arm, look in _LOOKS.items():
        rows = [(row.measured, row.predicted) for row in validation.predictions if row.arm is arm and row.predicted]
        measured, across = bars((seen for seen, _ in rows), 1e3)
        predicted, up = bars((said for _, said in rows), 1e3)
        axes.errorbar(measured, predicted, up, across, capsize=1.5, elinewidth=0.8, **{**look, "linestyle": ""})
    ends = (min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1]))
    axes.plot(ends, ends, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    ticks = [tick for tick in MaxNLocator(5).tick_values(*ends) if ends[0] <= tick <= ends[1]]
    axes.set(xlim=ends, ylim=ends, xticks=ticks, yticks=ticks)
    axes.set_xlabel("TPOT measured (ms)")
    axes.set_ylabel("TPOT predicted (ms)")


def _draw_saved(axes: Axes, validation: Validation) -> None:
    arms = [arm for arm in ServedArm if any(row.arm is arm for _, row in _by_level(validation))]
    for place, arm in zip(np.linspace(-1, 1, len(arms)) if len(arms) > 1 else [0.0], arms, strict=True):
        rows = [(size, _drawn(row)) for size, row in _by_level(validation) if row.arm is arm]
        values, reach = bars((saved for _, saved in rows), 100)
        sizes = [size * 2 ** (_APART * place) for size, _ in rows]
        axes.errorbar(sizes, values, reach, capsize=2, elinewidth=0.9, linewidth=1.1, **_LOOKS[arm])
    axes.axhline(0, color=BLACK, linewidth=1.2, linestyle=(0, (5, 2)))
    axes.grid(visible=True, axis="y", color=LIGHT, linewidth=0.5)
    doubling_axis(axes, validation.request.concurrency, "requests at a time")
    axes.set_ylabel("TPOT saved (%)")


def _by_level(validation: Validation) -> list[tuple[int, ArmComparison]]:
    """What no speculation is compared with, by concurrency; where there was only one, the row over all is of that."""
    levels = validation.request.concurrency
    at = levels[0] if len(levels) == 1 else None
    return [(size, row) for row in validation.against(ServedArm.NO_SPEC) if (size := row.concurrency or at)]


def _drawn(row: ArmComparison) -> Interval:
    """What is saved; the interval after a single start would be as wide as the world."""
    return row.tpot if row.detectable is not None else Interval(row.tpot.value, row.tpot.value, row.tpot.value)
