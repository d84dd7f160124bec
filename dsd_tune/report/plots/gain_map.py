"""The gain over no speculation of every cell, as numbers on a map that shows where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.patches import Patch, Rectangle

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm
from dsd_tune.records.profile import CellEstimate, Profile
from dsd_tune.report.plots.lines import Line, batch_sizes, chosen, lines
from dsd_tune.report.plots.style import BATCH_SIZE, BLACK, GREY, figure, legend_below, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REACH = 50
"""Percent at which colours end, in every map alike: losses have no limit, and maps want to be compared."""
_ROOM_FOR_HALVES = 9
_ROOM_FOR_NUMBERS = 13
"""Batch sizes up to which cells are wide enough for two lines of text, and for one."""
_LUMINANCE = (0.299, 0.587, 0.114)
"""How bright red, green and blue look (ITU-R BT.601)."""


@styled
def gain_map(profile: Profile) -> Figure:
    """Gain in percent of TPOT by batch size and K, with half of its 95 % interval below.

    What is not significant stands in brackets, chosen cells have a frame, and unmeasured ones are hatched.
    """
    rows = [line for line in lines(profile) if line.arm is not Arm.NO_SPEC]
    sizes = batch_sizes(profile)
    drawing = figure("Gain over no speculation", 1.9 + len(rows) * (0.33 if len(sizes) <= _ROOM_FOR_NUMBERS else 0.2))
    axes = drawing.add_subplot()
    colours = mpl.cm.ScalarMappable(Normalize(-_REACH, _REACH), mpl.colormaps["RdBu"])
    for y, line in enumerate(rows):
        for x, cell in enumerate(line.cells):
            _draw_cell(axes, x, y, cell, colours, len(sizes))
    for piece in chosen(profile):
        if piece.line in rows and piece.measured():
            xs = [sizes.index(cell.cell.batch_size) for cell in piece.measured()]
            _frame(axes, xs[0], xs[-1], rows.index(piece.line))
    _label(axes, rows, sizes)
    drawing.colorbar(colours, ax=axes, label="TPOT saved (%)", extend="both", fraction=0.05)
    unmeasured = Patch(facecolor="white", hatch="////", edgecolor=GREY, label="not measured")
    legend_below(drawing, [Patch(fill=False, edgecolor=BLACK, linewidth=2, label="chosen"), unmeasured], 2)
    return drawing


def _draw_cell(
    axes: Axes, x: int, y: int, cell: CellEstimate | None, colours: mpl.cm.ScalarMappable, columns: int
) -> None:
    corner = (x - 0.5, y - 0.5)
    if cell is None or cell.gain is None:
        axes.add_patch(Rectangle(corner, 1, 1, facecolor="white", hatch="////", edgecolor="#bbbbbb", linewidth=0))
        return
    colour = colours.to_rgba(np.array(cell.gain.value * 100))
    axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=0.5))
    ink = "white" if np.dot(colour[:3], _LUMINANCE) < 0.5 else BLACK
    axes.text(x, y, _figures(cell.gain, columns), ha="center", va="center", color=ink, fontsize=7)


def _frame(axes: Axes, first: int, last: int, y: int) -> None:
    size = (last - first + 0.92, 0.92)
    axes.add_patch(Rectangle((first - 0.46, y - 0.46), *size, fill=False, edgecolor=BLACK, linewidth=2))


def _figures(gain: Interval, columns: int) -> str:
    """As much as there is room for, at least the sign of a sure loss."""
    if columns > _ROOM_FOR_NUMBERS:
        return "-" if gain.high < 0 else ""
    value = f"{gain.value * 100:+.0f}"
    if gain.low <= 0 <= gain.high:
        value = f"({value})"
    return value if columns > _ROOM_FOR_HALVES else f"{value}\n±{(gain.high - gain.low) * 50:.0f}"


def _label(axes: Axes, rows: Sequence[Line], sizes: Sequence[int]) -> None:
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(range(len(sizes)), list(map(str, sizes)), rotation=90 if len(sizes) > _ROOM_FOR_NUMBERS else 0)
    axes.set_yticks(range(len(rows)), [line.name for line in rows])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel(BATCH_SIZE)
    axes.set_ylabel("speculative tokens a request")
