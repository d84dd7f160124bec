"""What the drafter earns: acceptance by position, and acceptance length by K."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from dsd_tune.records.profile import AcceptanceLength, PositionAcceptance, Profile
from dsd_tune.report.plots.lines import bars
from dsd_tune.report.plots.style import BLACK, GREY, LIGHT, figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def acceptance_plot(profile: Profile) -> Figure:
    """Acceptance at each position in percent, and tokens a step by K under the line of all drafts accepted.

    Both with 95 % intervals; what a profile does not hold is left out.
    """
    lengths = [length for length in profile.acceptance_lengths if length.k]
    drawing = figure("What drafts earn", 2.6)
    panels = bool(profile.acceptance) + bool(lengths)
    if profile.acceptance:
        _draw_positions(drawing.add_subplot(1, panels, 1), profile.acceptance)
    if lengths:
        _draw_lengths(drawing.add_subplot(1, panels, panels), lengths)
    return drawing


def _draw_positions(axes: Axes, positions: tuple[PositionAcceptance, ...]) -> None:
    values, reach = bars((p.rate for p in positions), 100)
    places = [p.position for p in positions]
    axes.bar(places, values, 0.7, color=LIGHT, edgecolor=BLACK, linewidth=0.8)
    axes.errorbar(places, values, reach, linestyle="", color=BLACK, capsize=3, elinewidth=1)
    axes.set_ylim(0, 100)
    axes.set_xlabel("position of the draft")
    axes.set_ylabel("accepted with all before (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_lengths(axes: Axes, lengths: list[AcceptanceLength]) -> None:
    values, (below, above) = bars((length.tokens for length in lengths), 1)
    ks = [length.k for length in lengths]
    axes.plot([0, *ks], [1, *(k + 1 for k in ks)], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate("all accepted", (ks[-1], ks[-1] + 1), (-14, 2), textcoords="offset points", ha="right", fontsize=8)
    axes.errorbar(
        [0, *ks],
        [1, *values],
        ([0, *below], [0, *above]),
        marker="o",
        color=BLACK,
        capsize=3,
        elinewidth=1,
        linewidth=1,
    )
    axes.set_ylim(0, 1.08 * (ks[-1] + 1))
    axes.set_xlabel("K (drafts a request)")
    axes.set_ylabel("tokens a step (AL)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
