"""A replay over time: how many requests run, and at which K, under each choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dsd_tune.model.choices import NO_SPECULATION
from dsd_tune.model.choices import TABLE as THE_TABLE
from dsd_tune.records.forecast import ChoiceForecast, Forecast
from dsd_tune.report.plots.lines import bars
from dsd_tune.report.plots.style import FIXED, LIGHT, OFF, TABLE, Look, figure, legend_below, sample, styled, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
_LOWEST = 0.8
"""Of batch sizes, on their axis; means below it are of stretches that were mostly idle."""

_FEW = 3
"""Of a unit, below which a smaller one is easier to read."""


@styled
def replay_plot(forecast: Forecast) -> Figure:
    """Batch size above and K below over time: no speculation, the best fixed K, the table. Means over small stretches.

    Whiskers at the bottom are when all requests were done, with 95 % intervals. Where a server idles it has no K.
    """
    drawing = figure("The traffic under each choice", 3.8)
    upper, lower, narrow = drawing.subplots(3, 1, sharex=True, height_ratios=(6, 3, 1.2))
    shown = list(_shown(forecast))
    unit, scale = _unit(max(choice.finished_s.high for choice, _ in shown))
    for place, (choice, look) in enumerate(shown):
        _draw(upper, choice.course.batch_size, choice.course.bin_s / scale, look)
        _draw(lower, choice.course.k, choice.course.bin_s / scale, look)
        _draw_end(narrow, choice, -place, scale, look)
    upper.set_yscale("log", base=2)
    upper.yaxis.set_major_formatter(FuncFormatter(whole))
    upper.set_ylim(bottom=_LOWEST)
    upper.set_ylabel("batch size B")
    lower.set_ylabel("K")
    lower.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    lower.set_ylim(bottom=-0.06 * lower.get_ylim()[1])
    narrow.set_ylabel("done", rotation=0, ha="right", va="center")
    narrow.set_yticks([])
    narrow.set_ylim(-len(shown) + 0.4, 0.6)
    narrow.set_xlim(0, None)
    narrow.set_xlabel(f"time since the first request ({unit})")
    for axes in (upper, lower):
        axes.set_axisbelow(True)
        axes.grid(visible=True, axis="y", color=LIGHT, linewidth=0.5)
    names = {forecast.best_fixed: f"best fixed {forecast.best_fixed}"}
    legend_below(drawing, [sample(names.get(choice.name, choice.name), look) for choice, look in shown], 3)
    return drawing


def _shown(forecast: Forecast) -> list[tuple[ChoiceForecast, Look]]:
    """The three that matter, where they are known; others would hide them."""
    looks = {NO_SPECULATION: OFF, forecast.best_fixed: FIXED, THE_TABLE: TABLE}
    return [(choice, looks[choice.name]) for choice in forecast.choices if choice.name in looks]


def _unit(longest_s: float) -> tuple[str, float]:
    return next(((name, seconds) for name, seconds in _UNITS if longest_s >= _FEW * seconds), _UNITS[-1])


def _draw(axes: Axes, values: Sequence[float | None], width: float, look: Look) -> None:
    """A line through the bins, broken where there is no value."""
    numbers = np.array([np.nan if value is None else value for value in values])
    axes.stairs(
        numbers,
        width * np.arange(len(numbers) + 1),
        baseline=None,
        color=look["color"],
        linestyle=look["linestyle"],
        linewidth=1.2,
    )


def _draw_end(axes: Axes, choice: ChoiceForecast, place: int, scale: float, look: Look) -> None:
    value, reach = bars([choice.finished_s], 1 / scale)
    axes.errorbar(value, [place], xerr=reach, capsize=2, elinewidth=1, **{**look, "linestyle": ""})
