"""Step time over tokens in flight: flat while verification is nearly free, then rising past the critical size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import blended_transform_factory

from dsd_tune.model.cost import CostLaw, law_of
from dsd_tune.records.measurement import Cell
from dsd_tune.records.profile import CellEstimate, Profile
from dsd_tune.report.plots.lines import Line, bars, k_max, lines
from dsd_tune.report.plots.style import (
    BLACK,
    GREY,
    LIGHT,
    doubling_axis,
    figure,
    legend_below,
    look,
    sample,
    styled,
    time_axis,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def step_time_plot(profile: Profile) -> Figure:
    """Step time in ms against tokens in flight, B*(K+1), on logarithmic axes, with 95 % intervals.

    Thin lines are the fitted law for each K, where one holds; the band is the interval of the critical size. Ticks
    at the bottom are the sizes of CUDA graphs, and the line at their end is where steps begin to run without. Where
    the datasheet of the GPU is known, so is the critical size of its roofline.
    """
    drawing = figure("Step time by tokens in flight", 4.1)
    axes = drawing.add_subplot()
    measured = [line for line in lines(profile) if any(cell.step_s for cell in line.measured())]
    law = _law(profile)
    for line in measured:
        _draw_points(axes, line, k_max(profile))
        if law:
            _draw_law(axes, line, law, k_max(profile))
    tokens = sorted({_tokens(cell) for line in measured for cell in line.measured()})
    time_axis(axes, "step time (ms)")
    doubling_axis(axes, _powers_of_two(tokens[0], tokens[-1]), "tokens in flight, B·(K+1)")
    entries = [
        *_of_lines(measured, law, k_max(profile)),
        *_draw_critical(axes, profile),
        *_draw_roofline(axes, profile, tokens[-1]),
        *_draw_captures(axes, profile, tokens[-1]),
    ]
    legend_below(drawing, entries, 4)
    return drawing


def _of_lines(measured: Sequence[Line], law: CostLaw | None, largest_k: int) -> list[Artist]:
    """Entries of the legend for dots and law."""
    dots = [sample(line.name, {**look(line.arm, line.k, largest_k), "linestyle": ""}) for line in measured]
    return [*dots, *([Line2D([], [], color=GREY, linewidth=0.8, label="law")] if law else [])]


def _law(profile: Profile) -> CostLaw | None:
    """The law behind the profile's critical size, refitted to its cells."""
    known = [(cell.cell, cell.step_s.value) for cell in profile.cells if cell.step_s]
    if profile.critical is None:
        return None
    return law_of([cell for cell, _ in known], np.array([step_s for _, step_s in known]), profile.critical)


def _powers_of_two(low: int, high: int) -> list[int]:
    """From at most `low` to at least `high`."""
    return [2**power for power in range(low.bit_length() - 1, (high - 1).bit_length() + 1)]


def _tokens(cell: CellEstimate) -> int:
    return cell.cell.batch_size * (cell.cell.k + 1)


def _draw_points(axes: Axes, line: Line, largest_k: int) -> None:
    known = [(_tokens(cell), cell.step_s) for cell in line.measured() if cell.step_s]
    values, reach = bars((step_s for _, step_s in known), 1e3)
    style = {**look(line.arm, line.k, largest_k), "linestyle": ""}
    axes.errorbar([tokens for tokens, _ in known], values, reach, capsize=1.5, elinewidth=0.8, **style)


def _draw_law(axes: Axes, line: Line, law: CostLaw, largest_k: int) -> None:
    """Between the ends of what was measured, and no further."""
    ends = line.measured()[0].cell.batch_size, line.measured()[-1].cell.batch_size
    cells = [Cell(line.arm, b, line.k) for b in sorted(set(np.geomspace(*ends, 60).round().astype(int).tolist()))]
    tokens = [cell.batch_size * (cell.k + 1) for cell in cells]
    axes.plot(tokens, law.step_s(cells) * 1e3, linewidth=0.8, color=look(line.arm, line.k, largest_k)["color"])


def _draw_critical(axes: Axes, profile: Profile) -> list[Patch]:
    """The bend with its interval, and its entry in the legend."""
    bend = profile.critical.tokens if profile.critical else None
    if bend is None:
        return []
    axes.axvspan(bend.low, bend.high, color=LIGHT, alpha=0.6, linewidth=0, zorder=0)
    axes.axvline(bend.value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    return [Patch(color=LIGHT, label=f"critical size {bend.value:.0f}")]


def _draw_roofline(axes: Axes, profile: Profile, most_tokens: int) -> list[Line2D]:
    """Where the datasheet puts the bend, if that is among what was measured, and its entry in the legend."""
    tokens = profile.roofline_tokens
    if tokens is None or tokens > most_tokens:
        return []
    dash = (0, (3, 1, 1, 1))
    axes.axvline(tokens, color=BLACK, linewidth=0.9, linestyle=dash)
    return [Line2D([], [], color=BLACK, linewidth=0.9, linestyle=dash, label=f"by datasheet {tokens:.0f}")]


def _draw_captures(axes: Axes, profile: Profile, most_tokens: int) -> list[Line2D]:
    """Sizes of the table's CUDA graphs, and an entry in the legend where they end."""
    sizes = profile.environment.graphs_dsd.capture_sizes if profile.environment else ()
    at_bottom = blended_transform_factory(axes.transData, axes.transAxes)
    shown = [size for size in sizes if size <= most_tokens]
    axes.plot(shown, [0.012] * len(shown), "|", color=BLACK, markersize=5, transform=at_bottom)
    if not sizes or sizes[-1] >= most_tokens:
        return []
    axes.axvline(sizes[-1], color=BLACK, linewidth=0.9, linestyle=":")
    return [Line2D([], [], color=BLACK, linewidth=0.9, linestyle=":", label=f"graphs end {sizes[-1]}")]
