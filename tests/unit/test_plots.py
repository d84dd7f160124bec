"""Figures asked for what they show: lines, intervals, units, and what is left blank."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import a_block, a_failure, a_profile, fitted_import
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sweeping import fitted, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.records.environment import GraphUse
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CriticalSize, Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.report.pictures import pictures, undrawn
from dsd_tune.report.plots.acceptance import acceptance_plot
from dsd_tune.report.plots.choices import choices_plot
from dsd_tune.report.plots.drift import drift_plot
from dsd_tune.report.plots.gain_map import gain_map
from dsd_tune.report.plots.lines import chosen, fixed_pieces, lines
from dsd_tune.report.plots.saved import png, svg
from dsd_tune.report.plots.step_time import step_time_plot
from dsd_tune.report.plots.style import look
from dsd_tune.report.plots.tpot import tpot_plot

STEEP = CostLaw(critical_tokens=8, slope_s=0.003)
CALM = Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01)
PUBLISHED = {(b, k): (8 + b / 8) * (1 + k * b / 40) for b in (1, 4, 16, 64) for k in (0, 1, 3)}


def _engine() -> SimulatedEngine:
    """A steep one that cannot run K=2 at batch size 16."""
    return SimulatedEngine(
        STEEP, (0.8, 0.7), noise=CALM, max_num_seqs=16, alive_together=8, failing_cells=[Cell(Arm.DSD, 16, 2)]
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    """A sweep that deserves a table, and lacks a cell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsd_tune.model.cost._REFITS", 5)
        return fitted(swept(_engine(), starts=3))


@pytest.fixture(scope="module")
def imported() -> Profile:
    """A grid of others with acceptance lengths."""
    return fitted_import(PUBLISHED, length={1: 1.7, 3: 2.6})


def _labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def _hatched(figure: Figure) -> int:
    return sum(bool(patch.get_hatch()) for patch in figure.axes[0].patches)


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_every_axis_has_its_unit(profile: Profile, imported: Profile) -> None:
    """No picture has an axis that does not say what it shows."""
    for shown, samples in [(profile, swept(_engine()).samples()), (imported, [])]:
        for picture in pictures(shown, samples):
            figure = picture.draw()
            for axes in figure.axes:
                assert axes.get_ylabel() or axes.get_subplotspec().colspan.start, picture.name
                assert axes.get_xlabel() or not axes.get_subplotspec() or picture.name == "drift", picture.name
            assert figure.get_suptitle()


def test_each_k_has_a_line_of_its_own(profile: Profile) -> None:
    """No speculation and every K are in the legend, and what is chosen."""
    assert _labels(tpot_plot(profile)) == ["no spec", "K=0", "K=1", "K=2", "chosen"]


def test_lines_differ_without_colour() -> None:
    """Up to K=12 no two lines share marker and dash, and colours get lighter with K."""
    looks = [look(arm, k, 12) for arm in (Arm.DSD, Arm.STATIC) for k in range(1, 13)]
    looks.append(look(Arm.NO_SPEC, 0, 12))
    assert len({(str(each["marker"]), str(each["linestyle"])) for each in looks}) == len(looks)
    grey = [np.dot(to_rgb(look(Arm.DSD, k, 12)["color"]), (0.3, 0.6, 0.1)) for k in range(13)]
    assert grey == sorted(grey)


def test_every_tpot_has_its_interval(profile: Profile) -> None:
    """The plot has one error bar for each cell, as long as the profile's interval."""
    axes = tpot_plot(profile).axes[0]
    bars = [bar for each in axes.collections if isinstance(each, LineCollection) for bar in each.get_segments()]
    ends = sorted((round(float(low), 9), round(float(high), 9)) for (_, low), (_, high) in bars)
    assert ends == sorted((round(c.tpot_s.low * 1e3, 9), round(c.tpot_s.high * 1e3, 9)) for c in profile.cells)


def test_a_line_ends_where_a_cell_is_missing() -> None:
    """Neighbours of an unmeasured cell are not joined."""
    gone = {cell: ms for cell, ms in PUBLISHED.items() if cell != (4, 3)}
    line = next(line for line in lines(fitted_import(gone)) if line.k == 3)
    assert [[cell.cell.batch_size for cell in run] for run in line.runs()] == [[1], [16, 64]]


def test_a_jump_is_not_a_line() -> None:
    """Where time grows faster than the batch, the two sides are not joined as if the way between were known."""
    cliff = {**PUBLISHED, (64, 3): 900.0}
    line = next(line for line in lines(fitted_import(cliff)) if line.k == 3)
    assert [[cell.cell.batch_size for cell in run] for run in line.runs()][-1] == [64]
    assert [(left.cell.batch_size, right.cell.batch_size) for left, right in line.jumps()] == [(16, 64)]


def test_what_is_chosen_changes_line_at_the_boundary(profile: Profile) -> None:
    """The chosen path follows each range's own line, and the ranges meet half-way between their batch sizes."""
    pieces = chosen(profile)
    table = profile.decision.table
    assert table
    assert [piece.range for piece in pieces] == list(table.ranges)
    ends = [piece.paths()[0][0] for piece in pieces]
    assert [sizes[-1] for sizes in ends[:-1]] == [sizes[0] for sizes in ends[1:]]
    assert [sizes[-1] for sizes in ends[:-1]] == [part.last + 0.5 for part in table.ranges[:-1]]


def test_nothing_is_chosen_where_the_verdict_cannot_tell(profile: Profile) -> None:
    """Without advice no cell looks advised."""
    unclear = replace(profile, decision=replace(profile.decision, verdict=Verdict.UNCLEAR))
    assert chosen(unclear) == []
    assert "chosen" not in _labels(tpot_plot(unclear))


def test_speculation_off_is_a_choice(profile: Profile) -> None:
    """Where it is advised, the line of no speculation is the chosen one."""
    off = replace(profile, decision=replace(profile.decision, verdict=Verdict.OFF))
    (piece,) = chosen(off)
    assert piece.line
    assert piece.line.arm is Arm.NO_SPEC


def test_a_fixed_k_is_shown_in_its_own_engine() -> None:
    """Where the fixed K ran in an engine without a table, that one stands for it."""
    (piece,) = fixed_pieces(fitted(swept(_engine(), fixed_k=1)))
    assert piece.line
    assert piece.line.arm is Arm.STATIC


def test_boundaries_are_drawn_with_their_ties(profile: Profile) -> None:
    """Each boundary is an upright, and a tie that spans batch sizes is a band."""
    axes = tpot_plot(profile).axes[0]
    uprights = [
        line.get_xdata()[0] for line in axes.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    ]
    assert uprights == [b.after + 0.5 for b in profile.decision.boundaries]
    bands = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(bands) == sum(b.low < b.high for b in profile.decision.boundaries)


def test_unmeasured_cells_are_hatched(profile: Profile) -> None:
    """The map has one hatched cell for each that was not measured, and no number in it."""
    assert _hatched(gain_map(profile)) == 1
    assert len(_texts(gain_map(profile))) == 3 * 3 - 1


def test_gains_that_are_not_significant_stand_in_brackets() -> None:
    """A gain whose interval holds zero is told from one that is sure without any colour."""
    figure = gain_map(fitted_import({(1, 0): 10.0, (1, 1): 10.0, (8, 0): 10.0, (8, 1): 5.0}))
    unsure, sure = _texts(figure)
    assert unsure.startswith("(+0)")
    assert sure.startswith("+50")


def test_chosen_cells_are_framed(profile: Profile) -> None:
    """Each range of the table has its frame, over its own cells."""
    frames = [patch for patch in gain_map(profile).axes[0].patches if not patch.get_fill()]
    assert len(frames) == len(chosen(profile))


def test_a_wide_map_keeps_the_sign_of_its_numbers() -> None:
    """With more batch sizes than numbers fit, sure losses are still told from gains without colour."""
    grid = {(b, k): 10.0 + k * (5 if b > 9 else -5) for b in range(1, 20) for k in (0, 1)}
    assert sorted(_texts(gain_map(fitted_import(grid)))) == [""] * 9 + ["-"] * 10


def test_the_law_is_drawn_where_it_holds(profile: Profile) -> None:
    """A line for each arm and K, and none where no smooth law holds."""
    holds = replace(profile, critical=CriticalSize(Interval(8, 7, 9), 0.02, "a bend"))
    assert {"law", "critical size 8"} <= set(_labels(step_time_plot(holds)))
    fails = replace(profile, critical=CriticalSize(None, 0.5, "no smooth law holds"))
    assert not {"law"} & set(_labels(step_time_plot(fails)))
    assert "law" not in _labels(step_time_plot(replace(profile, critical=None)))


def test_the_end_of_cuda_graphs_is_marked(profile: Profile) -> None:
    """Where capture sizes end below what was measured, the plot says at how many tokens."""
    assert profile.environment
    graphs = GraphUse("FULL", (1, 2, 4, 8, 16))
    marked = replace(profile, environment=replace(profile.environment, graphs_dsd=graphs))
    assert "graphs end 16" in _labels(step_time_plot(marked))
    assert not any("graphs end" in label for label in _labels(step_time_plot(profile)))


def test_the_roofline_is_drawn_where_it_is_known(profile: Profile) -> None:
    """A datasheet's critical size is in the legend if it lies among what was measured."""
    assert "by datasheet 20" in _labels(step_time_plot(replace(profile, roofline_tokens=20.0)))
    assert not any("datasheet" in label for label in _labels(step_time_plot(replace(profile, roofline_tokens=900.0))))


def test_acceptance_without_positions_has_one_panel(profile: Profile, imported: Profile) -> None:
    """An import knows lengths alone; a sweep shows positions beside them."""
    assert len(acceptance_plot(profile).axes) == 2
    assert len(acceptance_plot(imported).axes) == 1


def test_choices_show_the_mean_that_decides(profile: Profile) -> None:
    """Beside the batch sizes stand the decision's own weighted gains."""
    figure = choices_plot(profile)
    means = [line.get_ydata()[0] for line in figure.axes[1].lines if len(line.get_ydata()) == 1]
    decision = profile.decision
    assert decision.table_gain
    assert decision.fixed_gain
    assert {round(float(mean), 9) for mean in means} >= {
        round(decision.table_gain.value * 100, 9),
        round(decision.fixed_gain.value * 100, 9),
    }


def test_drift_shows_every_block_and_start() -> None:
    """All blocks are there in order of measuring, failures are left out, and each engine start is marked."""
    blocks = [a_block(start=place // 3, round=place // 3, step_s=(0.02 + place / 1e3,)) for place in range(9)]
    figure = drift_plot([*blocks, a_failure()])
    dots = sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == "None")
    assert dots == len(blocks)
    uprights = [line for line in figure.axes[0].lines if list(line.get_ydata()) == [0, 1]]
    assert len(uprights) == 3


def test_a_long_run_is_no_heavier_picture() -> None:
    """Ten times the blocks are drawn as dots of one small image, so that the report of the longest run can be sent."""

    def weight(blocks: int) -> int:
        return len(svg(drift_plot([a_block(round=n, step_s=(0.02 + n % 7 / 1e3,)) for n in range(blocks)])))

    assert weight(1500) < 3 * weight(150)


def test_pictures_follow_from_what_is_known(profile: Profile, imported: Profile) -> None:
    """A sweep gives all pictures, an import none of a run, a grid without acceptance and baseline only TPOT."""
    samples = [a_block()]
    everything = ["tpot", "gain", "choices", "step_time", "acceptance", "drift"]
    assert [picture.name for picture in pictures(profile, samples)] == everything
    assert [picture.name for picture in pictures(imported, [])] == everything[:-1]
    bare = fitted_import({cell: ms for cell, ms in PUBLISHED.items() if cell[1]})
    assert [picture.name for picture in pictures(bare, [])] == ["tpot"]
    assert len(list(undrawn(bare, []))) == 2
    assert list(undrawn(profile, samples)) == []


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"critical": None, "acceptance": (), "acceptance_lengths": ()},
        {"decision": replace(a_profile().decision, table_gain=None, fixed_gain=None, losing=(), boundaries=())},
        {"decision": replace(a_profile().decision, verdict=Verdict.FIXED, table=None, table_gain=None)},
        {"decision": replace(a_profile().decision, table=Table.from_dense([0] * 16))},
    ],
    ids=["one cell", "nothing learnt", "no gains", "no table", "all zero"],
)
def test_any_profile_can_be_drawn(changed: dict[str, Any]) -> None:
    """Whatever a profile lacks, each picture that it gives is drawn."""
    for picture in pictures(a_profile(**changed), []):
        assert svg(picture.draw())


def test_equal_profiles_give_equal_pictures(profile: Profile) -> None:
    """The same profile drawn twice is the same to the byte, so that reports can be compared."""
    for save in (svg, png):
        assert save(tpot_plot(profile)) == save(tpot_plot(profile))
