"""What all plots have in common: colours with markers of their own, axes with units, and a Figure without a window.

Every line is told by its marker and dash as well as by its colour, so that it survives a black-and-white printer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from dsd_tune.records.measurement import Arm

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

P = ParamSpec("P")

Look: TypeAlias = dict[str, Any]
"""Colour, marker and dash, as matplotlib's keyword arguments."""

BLACK = "#1a1a1a"
GREY = "#777777"
LIGHT = "#cccccc"
"""Still seen where a dark page turns it to its opposite."""

OFF: Look = {"color": BLACK, "marker": "s", "linestyle": (0, (5, 2)), "markerfacecolor": "white"}
FIXED: Look = {"color": "#c05000", "marker": "D", "linestyle": (0, (1, 1.2)), "markerfacecolor": "white"}
TABLE: Look = {"color": "#0b559f", "marker": "o", "linestyle": "-"}
"""The three things that are weighed against each other, in every picture that shows them together."""

BATCH_SIZE = "batch size B (requests scheduled in a step)"

_MARKERS = "o^Dvs<>pPXh*d"
_MOST_TICKS = 10
_FEW_TICKS = 3
_ROUND = (1, 1.5, 2, 3, 5, 7)
_RC: dict[Any, Any] = {
    "font.size": 9,
    "figure.titlesize": 10,
    "figure.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": BLACK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.8,
    "hatch.linewidth": 0.6,
    "hatch.color": GREY,
    "lines.markersize": 4.5,
}

_WIDTH = 4.8
"""Inches: readable on a telephone, and two beside each other on a desk."""


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with our settings, whatever those of the process are, and leave them as they were."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(_RC):
            return draw(*args, **kwargs)

    return drawn


def figure(title: str, height: float) -> Figure:
    """An empty figure that lays itself out; `height` in inches."""
    drawing = Figure(figsize=(_WIDTH, height), layout="constrained")
    drawing.suptitle(title, x=0.01, ha="left")
    return drawing


def look(arm: Arm, k: int, k_max: int) -> Look:
    """Colour, marker and dash of a line: black and dashed without speculation, else a colour and a marker for each K.

    The colours rise in lightness with K (viridis without its pale end).
    """
    if arm is Arm.NO_SPEC:
        return dict(OFF)
    colour = mpl.colormaps["viridis"](0.08 + 0.64 * k / max(k_max, 1))
    fixed = arm is Arm.STATIC
    return {
        "color": colour,
        "marker": _MARKERS[k % len(_MARKERS)],
        "linestyle": (0, (1, 1.2)) if fixed else "-",
        "markerfacecolor": "white" if fixed else colour,
    }


def sample(label: str, style: Look) -> Line2D:
    """An entry of a legend, with marker and dash."""
    return Line2D([], [], label=label, linewidth=1.1, **style)


def legend_below(drawing: Figure, entries: Sequence[Artist], columns: int) -> None:
    """A legend under the axes, where it hides nothing."""
    drawing.legend(handles=entries, loc="outside lower center", ncols=columns)


def doubling_axis(axes: Axes, sizes: Sequence[int], label: str) -> None:
    """An x axis on which every doubling is equally wide, with ticks where something was measured."""
    axes.set_xscale("log", base=2)
    every = -(-len(sizes) // _MOST_TICKS)
    # From the end, since that is where the advice ends.
    axes.set_xticks(list(sizes[::-1][::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(whole))
    axes.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    axes.set_xlabel(label)


def time_axis(axes: Axes, label: str) -> None:
    """A y axis of milliseconds on which equal ratios are equally high, in plain numbers."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [factor * 10.0**power for power in range(-4, 6) for factor in _ROUND]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) < _FEW_TICKS:
        ticks = [float(tick) for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]
    axes.set_yticks(ticks)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.grid(visible=True, axis="y", color=LIGHT, linewidth=0.5)
    axes.set_ylabel(label)


def whole(value: float, _position: int) -> str:
    """A tick without decimals, as matplotlib wants it written."""
    return f"{value:.0f}"


def _plain(value: float, _position: int) -> str:
    return f"{value:g}"
