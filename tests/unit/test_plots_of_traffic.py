"""Pictures of a replay and of a validation, asked for what they show."""

from dataclasses import replace

import numpy as np
import pytest
from builders import a_load, a_profile, a_surface, a_validation_request
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.model.choices import choices
from dsd_tune.model.closed_loop import Outcome
from dsd_tune.records.forecast import Forecast
from dsd_tune.records.interval import Interval
from dsd_tune.records.table import Table
from dsd_tune.records.trace import Request
from dsd_tune.records.validation import ServedArm, Validation
from dsd_tune.replay import replay
from dsd_tune.report.content import document
from dsd_tune.report.markdown import markdown
from dsd_tune.report.pictures import pictures
from dsd_tune.report.plots.replay import replay_plot
from dsd_tune.report.plots.validation import validation_plot
from dsd_tune.validate import conclude

ENGINE = SimulatedEngine(CostLaw(critical_tokens=8, slope_s=0.0008), (0.75, 0.55, 0.4, 0.3))
TABLE = Table.from_dense([4] * 4 + [2] * 6 + [1] * 10 + [0] * 12)
TIMES = {ServedArm.NO_SPEC: 0.04, ServedArm.FIXED: 0.035, ServedArm.TABLE: 0.03}


@pytest.fixture(scope="module")
def drained() -> Forecast:
    """Thirty requests of 10 to 300 tokens at once."""
    requests = [Request(0.0, 20, 10 * n) for n in range(1, 31)]
    return replay(choices(a_surface(ENGINE, start_sd=0.01), 32, TABLE).known, requests, 5000.0)


def _validated(starts: int, concurrency: tuple[int, ...] = (1, 4), *, predicted: bool = True) -> Validation:
    loads = [
        a_load(arm=arm, start=s, concurrency=c, tpot_s=time * (1 + 0.01 * ((s * 3 + len(arm)) % 4)))
        for s in range(starts)
        for arm, time in TIMES.items()
        for c in concurrency
    ]
    request = a_validation_request(concurrency=concurrency, requests=(8,) * len(concurrency))
    times = {arm: Interval(time, 0.9 * time, 1.1 * time) for arm, time in TIMES.items()} if predicted else {}
    foretold = {arm: Outcome(time, 0, None) for arm, time in times.items()}
    return conclude(request, loads, ServedArm.TABLE, lambda arm, _: foretold.get(arm), 1.0)


def _labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def _drawn(figure: Figure, panel: int) -> list[np.ndarray]:
    return [patch.get_data().values for patch in figure.axes[panel].patches if isinstance(patch, StepPatch)]


def _interval_ends(figure: Figure, panel: int) -> np.ndarray:
    bars = [line.get_segments() for line in figure.axes[panel].collections if isinstance(line, LineCollection)]
    return np.concatenate([end for segments in bars for end in segments])


def test_a_rollout_is_seen_to_drain(drained: Forecast) -> None:
    """All requests run at first and the last alone, while the table's K climbs. Of fixed Ks only the best is there."""
    figure = replay_plot(drained)
    assert _labels(figure) == ["no speculation", f"best fixed {drained.best_fixed}", "table"]
    for batch in _drawn(figure, 0):
        assert batch[0] == pytest.approx(30, abs=1.5)
        assert batch[-2] <= 2
    table = _drawn(figure, 1)[-1]
    assert (table[0], table[-1]) == (0, 4)
    assert np.all(np.diff(table) >= -1e-9)


def test_when_all_is_done_has_an_interval(drained: Forecast) -> None:
    """For each choice that is drawn the ends of the interval are those of the forecast, in the axis' unit."""
    figure = replay_plot(drained)
    assert "(s)" in figure.axes[-1].get_xlabel()
    ends = sorted(_interval_ends(figure, 2)[:, 0])
    shown = [c.finished_s for c in drained.choices if c.name in ("no speculation", "table", drained.best_fixed)]
    assert ends == pytest.approx(sorted(end for interval in shown for end in (interval.low, interval.high)))


def test_long_traffic_is_told_in_minutes() -> None:
    """Nobody counts thousands of seconds."""
    requests = [Request(60.0 * n, 20, 50) for n in range(8)]
    figure = replay_plot(replay(choices(a_surface(ENGINE), 32, TABLE).known, requests, 5000.0))
    assert "(min)" in figure.axes[-1].get_xlabel()
    assert figure.axes[-1].get_xlim()[1] == pytest.approx(7, rel=0.2)


def test_a_server_that_idles_has_no_k() -> None:
    """Between two requests the line is broken, so that nobody reads a K there."""
    requests = [Request(at, 20, 50) for at in (0.0, 100.0)]
    figure = replay_plot(replay(choices(a_surface(ENGINE), 32, TABLE).known, requests, 5000.0))
    assert all(np.isnan(values).any() for values in _drawn(figure, 1))


def test_what_was_foretold_stands_against_what_was_measured() -> None:
    """Each arm at each concurrency is a point with intervals both ways, near the diagonal if it came true."""
    figure = validation_plot(_validated(3))
    left, right = figure.axes
    assert left.get_xlim() == left.get_ylim()
    dots = [line.get_xydata() for line in left.lines if line.get_marker() in ("s", "D", "o")]
    points = np.concatenate(dots)
    assert len(points) == 6
    assert points[:, 0] == pytest.approx(points[:, 1], rel=0.05)
    assert len(_interval_ends(figure, 0)) == 2 * 2 * len(points)
    assert "(%)" in right.get_ylabel()
    assert "(ms)" in left.get_xlabel()
    assert "(ms)" in left.get_ylabel()


def test_a_single_start_has_no_interval_to_draw() -> None:
    """An interval as wide as the world would press all points together."""
    low, high = validation_plot(_validated(1)).axes[1].get_ylim()
    assert -50 < low < high < 100


@pytest.mark.parametrize("concurrency", [(1,), (1, 4), (1, 4, 16)])
def test_what_is_saved_is_drawn_at_each_concurrency(concurrency: tuple[int, ...]) -> None:
    """Also where there was only one, whose comparison is that over all."""
    figure = validation_plot(_validated(3, concurrency, predicted=False))
    (axes,) = figure.axes
    dots = [line for line in axes.lines if line.get_marker() in ("D", "o")]
    assert [len(line.get_xdata()) for line in dots] == [len(concurrency)] * 2


def test_arms_that_never_met_no_speculation_are_not_drawn() -> None:
    """The picture is of what they save against it; a table shows them against the fixed K."""
    met = _validated(3)
    apart = a_profile(validation=replace(met, comparisons=met.against(ServedArm.FIXED)))
    assert "validation" not in [picture.name for picture in pictures(apart, [])]
    assert "arm against fixed K" in markdown(document(apart, [], ()), None)


def test_a_report_tells_what_servers_showed() -> None:
    """A profile that was validated has a picture of it and a table, and another has neither."""
    validated = a_profile(validation=_validated(3))
    assert "validation" in [picture.name for picture in pictures(validated, [])]
    assert "validation" not in [picture.name for picture in pictures(a_profile(), [])]
    text = markdown(document(validated, [], ()), None)
    assert "What servers showed" in text
    assert "Table is better than no speculation" in text
    assert "arm against no speculation" in text
    assert "arm against fixed K" in text
    assert "What servers showed" not in markdown(document(a_profile(), [], ()), None)
