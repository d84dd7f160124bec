"""What a table, the best fixed K and no speculation save at each batch size, and on the weighted mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.patches import Patch

from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import CellEstimate, Profile
from dsd_tune.report.plots.lines import Piece, bars, batch_sizes, fixed_pieces, table_pieces
from dsd_tune.report.plots.style import (
    BATCH_SIZE,
    BLACK,
    FIXED,
    LIGHT,
    TABLE,
    Look,
    doubling_axis,
    figure,
    legend_below,
    sample,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class _Choice:
    name: str
    pieces: Sequence[Piece]
    mean: Interval | None
    look: Look

    def cells(self) -> list[CellEstimate]:
        """What it would run, where that was measured."""
        return [cell for piece in self.pieces for cell in piece.measured()]


@styled
def choices_plot(profile: Profile) -> Figure:
    """Gain over no speculation in percent of TPOT against batch size, with 95 % intervals; beside it the weighted mean.

    The mean is what the verdict rests on; a table's is lowered by what choosing the best of many cells added to it.
    Grey ground is where no speculation is significantly faster than what is advised.
    """
    drawing = figure("What each choice saves", 3.6)
    wide, narrow = drawing.subplots(1, 2, sharey=True, width_ratios=(6, 1))
    choices = list(_choices(profile))
    for place, choice in enumerate(choices):
        _draw(wide, narrow, choice, place)
    for stretch in profile.decision.losing:
        wide.axvspan(stretch.first - 0.5, stretch.last + 0.5, color=LIGHT, alpha=0.6, linewidth=0, zorder=0)
    for axes in (wide, narrow):
        axes.axhline(0, color=BLACK, linewidth=1.2, linestyle=(0, (5, 2)))
        axes.grid(visible=True, axis="y", color=LIGHT, linewidth=0.5)
    doubling_axis(wide, batch_sizes(profile), BATCH_SIZE)
    wide.set_ylabel("TPOT saved over no speculation (%)")
    narrow.set_xticks([])
    narrow.set_xlim(-1, len(choices))
    narrow.set_xlabel("weighted\nmean")
    legend_below(drawing, _entries(choices, losing=bool(profile.decision.losing)), 4)
    return drawing


def _choices(profile: Profile) -> Iterator[_Choice]:
    decision = profile.decision
    if decision.table:
        yield _Choice("table", table_pieces(profile, decision.table), decision.table_gain, TABLE)
    yield _Choice(f"fixed K={decision.fixed_k}", fixed_pieces(profile), decision.fixed_gain, FIXED)


def _entries(choices: Sequence[_Choice], *, losing: bool) -> list[Artist]:
    off = sample("speculation off", {"color": BLACK, "linestyle": (0, (5, 2))})
    ground = [Patch(color=LIGHT, label="off is faster")] if losing else []
    return [*(sample(choice.name, choice.look) for choice in choices), off, *ground]


def _draw(wide: Axes, narrow: Axes, choice: _Choice, place: int) -> None:
    gains = [(cell.cell.batch_size, cell.gain) for cell in choice.cells() if cell.gain]
    values, reach = bars((gain for _, gain in gains), 100)
    # Apart by a little, so that choices which agree do not hide each other.
    sizes = [size * 2 ** (0.06 * (2 * place - 1)) for size, _ in gains]
    wide.errorbar(sizes, values, reach, capsize=2, elinewidth=0.9, linewidth=1.3, **choice.look)
    if choice.mean:
        narrow.errorbar(
            [place], *bars([choice.mean], 100), capsize=3, elinewidth=1.2, **{**choice.look, "linestyle": ""}
        )
