"""TPOT over batch size: a line for each K and for no speculation, with what the verdict chooses under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Patch
from matplotlib.transforms import blended_transform_factory

from dsd_tune.records.profile import Boundary, CellEstimate, Profile, Verdict
from dsd_tune.report.plots.lines import Line, Piece, bars, batch_sizes, chosen, k_max, lines
from dsd_tune.report.plots.style import (
    BATCH_SIZE,
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OCTAVES_APART = 0.3
"""How far the lines of a single batch size are drawn from it, so that they do not cover each other."""


@styled
def tpot_plot(profile: Profile) -> Figure:
    """TPOT in ms against batch size, both on logarithmic axes, with 95 % intervals.

    A line joins neighbours as the decision does, dotted where a jump lies between, and breaks where a cell is missing.
    The broad grey line is what the verdict would run; above it stand its ranges, and bands where two Ks are tied.
    """
    drawing = figure("TPOT by batch size", 4.1)
    axes = drawing.add_subplot()
    measured, pieces, sizes = lines(profile), chosen(profile), batch_sizes(profile)
    for piece in pieces:
        for path in piece.paths():
            axes.plot(*path, color=LIGHT, linewidth=9, solid_capstyle="round")
    apart = np.linspace(-1, 1, len(measured)) * (_OCTAVES_APART if len(sizes) == 1 else 0)
    for line, octaves in zip(measured, apart, strict=True):
        _draw_line(axes, line, k_max(profile), 2**octaves)
    doubling_axis(axes, sizes, BATCH_SIZE)
    time_axis(axes, "TPOT (ms)")
    _draw_ranges(axes, pieces, sizes)
    if profile.decision.verdict is Verdict.TABLE:
        for boundary in profile.decision.boundaries:
            _draw_boundary(axes, boundary)
    entries = [sample(line.name, look(line.arm, line.k, k_max(profile))) for line in measured]
    legend_below(drawing, [*entries, *([Patch(color=LIGHT, label="chosen")] if pieces else [])], 4)
    return drawing


def _draw_line(axes: Axes, line: Line, largest_k: int, beside: float) -> None:
    style = look(line.arm, line.k, largest_k)
    dash = style.pop("linestyle")
    for run in line.runs():
        axes.plot(*_path(run), linestyle=dash, linewidth=1.1, color=style["color"])
    for jump in line.jumps():
        axes.plot(*_path(jump), linestyle=":", linewidth=0.7, color=style["color"])
    values, reach = bars((cell.tpot_s for cell in line.measured()), 1e3)
    sizes = [size * beside for size in _path(line.measured())[0]]
    axes.errorbar(sizes, values, reach, linestyle="", capsize=1.5, elinewidth=0.8, **style)


def _path(cells: Sequence[CellEstimate]) -> tuple[list[int], list[float]]:
    return [cell.cell.batch_size for cell in cells], [cell.tpot_s.value * 1e3 for cell in cells]


def _draw_ranges(axes: Axes, pieces: Sequence[Piece], sizes: Sequence[int]) -> None:
    """Which K is chosen where, above the axes."""
    on_top = blended_transform_factory(axes.transData, axes.transAxes)
    for part in (piece.range for piece in pieces):
        left, right = max(part.first - 0.5, sizes[0] / 1.25), min(part.last + 0.5, sizes[-1] * 1.25)
        if left < right:
            axes.text(math.sqrt(left * right), 1.02, f"K={part.k}", ha="center", transform=on_top, fontsize=8)


def _draw_boundary(axes: Axes, boundary: Boundary) -> None:
    if boundary.low < boundary.high:
        axes.axvspan(boundary.low, boundary.high, color=LIGHT, alpha=0.5, linewidth=0, zorder=0)
    axes.axvline(boundary.after + 0.5, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
