from dataclasses import replace
from io import StringIO

import pytest
from builders import a_block, a_failure
from rich.console import Console
from sweeping import a_shelf, a_sweep

from dsd_tune.engines.simulated import NO_NOISE, SimulatedEngine
from dsd_tune.model.undecided import Undecided
from dsd_tune.plan import Slot
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Phase, PromptCounts
from dsd_tune.report import live
from dsd_tune.report.live import Progress, Watcher, watch
from dsd_tune.sweep import Budget

BLOCKS = 2 * 2 * 3 * (1 + 3) + 2
"""Starts, rounds, batch sizes and Ks of both arms in the builders' request, and the references between the stops."""


def _console(*, terminal: bool) -> Console:
    return Console(width=80, height=40, file=StringIO(), force_terminal=terminal, color_system=None)


def _text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _block(cell: Cell, *step_s: float, accepted: int = 8) -> Block:
    drafted, counts = (10,) * cell.k, (accepted,) * cell.k
    return a_block(cell=cell, step_s=step_s, steps_run=len(step_s), prompts=(PromptCounts("p", 10, drafted, counts),))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock that the view reads: set its one number."""
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    return now


class Blind:
    """A view that shows nothing and remembers the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def refresh(self, note: str) -> None:
        """Remember the note."""
        self.notes.append(note)


def test_tpot_so_far_joins_medians_and_pooled_acceptance() -> None:
    """A cell's TPOT is the median of its blocks over the tokens per step of its K at every batch size."""
    progress = Progress()
    progress.add(_block(Cell(Arm.DSD, 1, 1), 0.02, 0.02, 0.5, accepted=10))
    progress.add(_block(Cell(Arm.DSD, 8, 1), 0.03, accepted=0))
    assert progress.acceptance_length(1) == pytest.approx(1.5)
    assert progress.tpot_s(Cell(Arm.DSD, 1, 1)) == pytest.approx(0.02 / 1.5)


def test_conditions_are_not_mixed() -> None:
    """Numbers are those of the condition measured last; those of another come back with it."""
    progress, cell = Progress(), Cell(Arm.DSD, 1, 1)
    far = Condition(4096, 0.0)
    progress.add(_block(cell, 0.02, accepted=10))
    progress.add(replace(_block(cell, 0.05, accepted=0), condition=far))
    assert (progress.tpot_s(cell), progress.acceptance_length(1)) == (0.05, 1.0)
    progress.add(_block(cell, 0.04, accepted=10))
    assert progress.tpot_s(cell) == pytest.approx(0.03 / 2)


def test_without_counts_step_time_is_shown() -> None:
    """Where only cost is measured a cell shows its step time, and no acceptance length."""
    progress, cell = Progress(), Cell(Arm.DSD, 1, 1)
    progress.add(replace(_block(cell, 0.02), prompts=()))
    assert (progress.tpot_s(cell), progress.acceptance_length(1)) == (0.02, None)


def test_what_was_not_measured_has_no_numbers() -> None:
    """Before its first block a cell has neither TPOT nor acceptance length, and asking for them adds none."""
    progress = Progress()
    assert progress.tpot_s(Cell(Arm.DSD, 1, 1)) is None
    assert progress.acceptance_length(1) is None
    assert progress.left_s() is None
    assert progress.here.step_s == {}


def test_time_left_follows_the_pace_of_this_process(clock: list[float]) -> None:
    """Time left counts the blocks measured here since the first, not those that an earlier process left."""
    watcher = Watcher(Blind(), Progress())
    watcher.planned(100, 60)
    watcher.measured(_block(Cell(Arm.DSD, 1, 1), 0.02))
    assert watcher.progress.left_s() is None
    for _ in range(4):
        clock[0] += 3
        watcher.measured(_block(Cell(Arm.DSD, 1, 1), 0.02))
    assert watcher.progress.left_s() == pytest.approx(3 * 35)
    assert watcher.progress.headline() == "65 of 100 blocks, about 1 min 45 s left"


def test_failures_are_counted_and_told() -> None:
    """A failure counts as done, shows in the headline, and is told with its reason."""
    view = Blind()
    watcher = Watcher(view, Progress())
    watcher.planned(10, 0)
    watcher.measured(a_failure())
    assert watcher.progress.headline() == "1 of 10 blocks, 1 failed"
    assert view.notes[-1] == "static B=16 K=2 failed: out of memory"


def test_a_plan_that_grows_is_told() -> None:
    """With every descent the number of blocks is told anew."""
    view = Blind()
    watcher = Watcher(view, Progress())
    watcher.planned(10, 0)
    watcher.planned(16, 10)
    assert watcher.progress.headline() == "10 of 16 blocks"
    assert view.notes == ["planning", "going on"]


def test_what_is_spent_and_what_is_open_are_told(clock: list[float]) -> None:
    """The headline holds the expected regret of the worst condition, and how much of the budget is used."""
    watcher = Watcher(Blind(), Progress(budget=Budget(600, clock=lambda: clock[0])))
    clock[0] += 95
    watcher.planned(10, 0)
    watcher.judged({Condition(512, 0.0): Undecided(0.013), Condition(4096, 0.0): Undecided(0.021)})
    headline = "0 of 10 blocks, expected regret 2.1%, 1 min 35 s of 10 min 0 s used"
    assert watcher.progress.headline() == headline


@pytest.mark.parametrize(
    ("regret", "limit_s", "said"),
    [
        (0.034, 600, "Expected regret is 3.4%, above --target-regret of 2.0%: a new --budget or more --starts go on"),
        (0.034, None, "Expected regret is 3.4%, above --target-regret of 2.0%: more --starts go on"),
        (0.02, 600, ""),
        (None, 600, ""),
    ],
)
def test_a_target_that_was_missed_is_told(regret: float | None, limit_s: float | None, said: str) -> None:
    """A sweep that ends above its target says so and what goes on; one that ends below it says nothing."""
    progress = Progress(budget=Budget(limit_s), regret=regret)
    assert progress.shortfall(0.02).startswith(said)
    assert bool(progress.shortfall(0.02)) is bool(said)


def test_a_log_gets_plain_lines(clock: list[float]) -> None:
    """Without a terminal every line is text, starts are told at once, and blocks every two seconds at most."""
    console = _console(terminal=False)
    with watch(console) as watcher:
        watcher.planned(50, 0)
        watcher.starting(Slot(2, Phase.MAIN, Arm.DSD))
        for _ in range(40):
            clock[0] += 0.1
            watcher.measured(_block(Cell(Arm.DSD, 1, 1), 0.02))
    lines = _text(console).splitlines()
    assert lines[0] == "0 of 50 blocks: planning"
    assert lines[1] == "0 of 50 blocks: starting engine 3 (dsd)"
    assert len(lines) == 3
    assert lines[2].endswith("dsd B=1 K=1: step 20.0 ms, TPOT 11.1 ms")
    assert "\x1b" not in _text(console)


def test_the_last_block_is_always_told(clock: list[float]) -> None:
    """A log ends with the block that finished the plan."""
    console = _console(terminal=False)
    with watch(console) as watcher:
        watcher.planned(1, 0)
        watcher.measured(_block(Cell(Arm.NO_SPEC, 4, 0), 0.04))
    assert _text(console).splitlines()[-1].startswith("1 of 1 blocks")


def test_engine_words_are_no_markup(clock: list[float]) -> None:
    """What an engine said last is printed as it is, brackets and all."""
    console = _console(terminal=False)
    with watch(console) as watcher:
        watcher.planned(1, 0)
        watcher.measured(a_failure(reason="[/red] index [0] out of range"))
    assert "[/red] index [0] out of range" in _text(console)


def test_a_terminal_gets_a_table() -> None:
    """On a terminal the grid, acceptance, progress and the last block stay in view, no wider than 80 columns."""
    console = _console(terminal=True)
    engine = SimulatedEngine(noise=NO_NOISE, alive_together=4)
    with watch(console) as watcher:
        a_sweep(engine, a_shelf(engine), watcher).measure_arms()
    frame = _text(console)
    last = frame[frame.rindex("TPOT in ms") :]
    assert f"{BLOCKS} of {BLOCKS} blocks" in last
    assert "Acceptance length: K=1 1." in last
    assert "no spec" in last
    assert all(len(line) <= 80 for line in last.splitlines())


def test_the_best_of_a_row_is_marked() -> None:
    """In each row of the live table the smallest TPOT so far carries the star."""
    progress = Progress()
    progress.add(_block(Cell(Arm.NO_SPEC, 1, 0), 0.02))
    progress.add(_block(Cell(Arm.DSD, 1, 1), 0.024))
    console = _console(terminal=False)
    console.print(live._grid(progress))
    assert "*13.3 (24)" in _text(console)
    assert _text(console).count("*") == 1


def test_a_wide_live_table_loses_no_tpot() -> None:
    """At 80 columns the TPOT of every cell is whole, with K up to 8 and a fixed one."""
    progress = Progress()
    columns = [(Arm.NO_SPEC, 0), *((Arm.DSD, k) for k in range(9)), (Arm.STATIC, 4)]
    for arm, k in columns:
        progress.add(_block(Cell(arm, 32, k), 0.1234))
    console = _console(terminal=False)
    console.print(live._grid(progress))
    assert "…" not in _text(console)
    assert max(map(len, _text(console).splitlines())) <= 80
