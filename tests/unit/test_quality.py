import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import a_failure
from sweeping import Shelf, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.quality.judge import judge
from dsd_tune.records.machine import MachineState
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, PromptCounts
from dsd_tune.records.warning import Code, QualityWarning

DOCUMENT = Path(__file__).parents[2] / "docs" / "quality.md"

LAW = CostLaw(critical_tokens=12, slope_s=0.0012)
CALM = Noise(start_sd=0.01, drift_per_hour=0.0, step_sd=0.02)

Samples = Sequence[Block | Failure]
Change = Callable[[Block], Block]


def _swept(engine: SimulatedEngine | None = None, **changed: Any) -> Shelf:
    """Blocks ten seconds apart: a simulated engine takes no time, and what the test's machine took is no trend."""
    calm = SimulatedEngine(LAW, (0.7, 0.6), noise=CALM, max_num_seqs=16, alive_together=8)
    shelf = swept(engine or calm, **{"starts": 3, "rounds": 2, "steps": 8} | changed)
    shelf.kept = [replace(sample, taken_at_s=10.0 * place) for place, sample in enumerate(shelf.kept)]
    return shelf


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    """A calm run of three starts and two rounds."""
    return _swept()


def _warned(shelf: Shelf, samples: Samples | None = None, method: str = "eagle") -> list[QualityWarning]:
    taken = shelf.samples() if samples is None else list(samples)
    environment = replace(shelf.manifest.environment, method=method)
    manifest = replace(shelf.manifest, environment=environment)
    return list(judge(manifest, taken, Fit(manifest, taken).findings))


def _codes(shelf: Shelf, samples: Samples | None = None, method: str = "eagle") -> set[Code]:
    return {warning.code for warning in _warned(shelf, samples, method)}


def _the(code: Code, shelf: Shelf, samples: Samples | None = None) -> QualityWarning:
    """The one warning with this code."""
    (found,) = [warning for warning in _warned(shelf, samples) if warning.code is code]
    return found


def _changed(shelf: Shelf, change: Change, at: Callable[[Block], bool] = lambda _: True) -> list[Block]:
    return [change(b) if at(b) else b for b in shelf.kept if isinstance(b, Block)]


def _slowed(factor: float) -> Change:
    return lambda block: replace(block, step_s=tuple(factor * second for second in block.step_s))


def _counted(count: Callable[[PromptCounts], PromptCounts]) -> Change:
    return lambda block: replace(block, prompts=tuple(map(count, block.prompts)))


def _accepting(share: float) -> Change:
    """Every prompt accepts this share of what was drafted, at every position alike."""
    return _counted(lambda p: replace(p, accepted=tuple(int(share * drafted) for drafted in p.drafted)))


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_run_warns_of_nothing(seed: int) -> None:
    """A balanced run of three starts on a calm machine has no warnings."""
    engine = SimulatedEngine(LAW, (0.7, 0.6), noise=CALM, seed=seed, max_num_seqs=16, alive_together=8)
    assert _warned(_swept(engine)) == []


def test_the_document_has_every_code() -> None:
    """docs/quality.md lists every code, and none that does not exist."""
    assert re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT.read_text(), re.MULTILINE) == list(Code)


def test_failed_cells_are_one_warning_a_reason(shelf: Shelf) -> None:
    """Cells that failed for one reason share a warning, which names the first few."""
    lost = [
        a_failure(cell=b.cell, phase=b.phase, slot=b.slot, start=b.start, round=b.round, reason="no memory")
        for b in shelf.kept
        if b.slot == 1
    ]
    warning = _the(Code.CELL_FAILED, shelf, [b for b in shelf.kept if b.slot != 1] + lost)
    assert warning.said == "dsd B=1 K=0, dsd B=1 K=1, dsd B=1 K=2 and 6 more failed in 20 blocks: no memory"
    assert len(warning.cells) == 9


def test_an_unfinished_sweep_names_what_is_missing(shelf: Shelf) -> None:
    """Cells that lack starts they were asked for are named."""
    kept = [b for b in shelf.kept if b.cell.batch_size > 1 or b.slot < 4 or b.stop > 1]
    warning = _the(Code.UNFINISHED, shelf, kept)
    assert warning.said.startswith("the sweep was not finished: dsd B=1 K=")
    assert {cell.batch_size for cell in warning.cells} == {1}


def test_few_starts_are_warned_of() -> None:
    """With one start an arm the gain is known but roughly, and the flag that helps is named."""
    warning = _the(Code.FEW_STARTS, _swept(starts=1))
    assert warning.said.startswith("only 1 engine start")
    assert "--starts" in warning.hint


def test_few_blocks_are_warned_of(shelf: Shelf) -> None:
    """A cell with two blocks cannot tell which of them is the odd one."""
    rare = Cell(Arm.DSD, 4, 1)
    kept = [b for b in shelf.kept if b.cell != rare or (b.start < 4 and b.round == 0)]
    warning = _the(Code.FEW_BLOCKS, shelf, kept)
    assert warning.cells == (rare,)


def test_noisy_cells_are_named(shelf: Shelf) -> None:
    """Cells whose blocks scatter by a tenth or more are named with the worst of them; calm ones are not."""
    rng = np.random.default_rng(0)

    def scattered(block: Block) -> Block:
        return _slowed(float(np.exp(0.3 * rng.standard_normal())))(block)

    warning = _the(Code.NOISY, shelf, _changed(shelf, scattered, lambda b: b.cell.k == 2))
    assert warning.cells
    assert {cell.k for cell in warning.cells} == {2}


def test_an_odd_block_is_named_and_kept(shelf: Shelf) -> None:
    """A block far from its cell is named with start, round and distance."""
    odd = next(b for b in shelf.kept if b.cell == Cell(Arm.DSD, 4, 1))
    warning = _the(Code.OUTLIER_BLOCK, shelf, _changed(shelf, _slowed(1.5), lambda b: b is odd))
    assert re.match(rf"one block of dsd B=4 K=1 \(start {odd.start}, round 0\) was \d+% slower", warning.said)


def test_an_odd_cell_is_named(shelf: Shelf) -> None:
    """A cell that contradicts its neighbours in batch size and in K is an outlier, however often it was measured."""
    cell = Cell(Arm.DSD, 4, 1)
    warning = _the(Code.OUTLIER_CELL, shelf, _changed(shelf, _slowed(2), lambda b: b.cell == cell))
    assert warning.cells == (cell,)


def test_a_drifting_machine_is_named(shelf: Shelf) -> None:
    """A machine that became slower over the run is named with by how much; one that is uneven is not."""
    first, last = shelf.kept[0].taken_at_s, shelf.kept[-1].taken_at_s
    drifting = _changed(shelf, lambda b: _slowed(1 + 0.1 * (b.taken_at_s - first) / (last - first))(b))
    assert "slower over the run" in _the(Code.DRIFTING, shelf, drifting).said
    uneven = _changed(shelf, _slowed(1.1), lambda b: b.cell.batch_size == 4)
    assert Code.DRIFTING not in _codes(shelf, uneven)


def test_a_slow_first_round_is_named(shelf: Shelf) -> None:
    """Engines that were slower in their first round had not warmed up; slower in the last is another matter."""
    assert Code.FIRST_ROUND_SLOW in _codes(shelf, _changed(shelf, _slowed(1.15), lambda b: b.round == 0))
    assert Code.FIRST_ROUND_SLOW not in _codes(shelf, _changed(shelf, _slowed(1.15), lambda b: b.round == 1))


def _machine(**state: Any) -> Change:
    return lambda block: replace(block, machine=MachineState(**state))


def test_throttled_blocks_are_named(shelf: Shelf) -> None:
    """A reason to throttle is named with the blocks that it held for; a machine that names none is left alone."""
    hot = _changed(shelf, _machine(throttle_reasons=("sw_thermal_slowdown",)), lambda b: b.cell == Cell(Arm.DSD, 16, 2))
    warning = _the(Code.THROTTLED, shelf, hot)
    assert warning.cells == (Cell(Arm.DSD, 16, 2),)
    assert "in 6 of 74 blocks" in warning.said
    assert warning.said.endswith("sw_thermal_slowdown")
    assert Code.THROTTLED not in _codes(shelf, _changed(shelf, _machine(throttle_reasons=())))


def test_a_slow_clock_is_named_without_a_reason(shelf: Shelf) -> None:
    """A GPU whose clock fell by a fifth in some blocks was throttled, whether or not it says why."""
    usual = Shelf(shelf.manifest, _changed(shelf, _machine(gpu_mhz=1965.0)))
    slow = _changed(usual, _machine(gpu_mhz=1580.0), lambda b: b.cell.batch_size == 16 and b.cell.k == 2)
    assert "usual 1965 MHz" in _the(Code.THROTTLED, shelf, slow).said
    assert Code.THROTTLED not in _codes(shelf, usual.kept)


def test_steps_that_were_not_scheduled_are_warned_of(shelf: Shelf) -> None:
    """Cells of which few steps were kept are named: their batch size was offered and not run."""
    wasteful = _changed(shelf, lambda b: replace(b, steps_run=2 * len(b.step_s)), lambda b: b.cell.batch_size == 16)
    warning = _the(Code.NOT_SCHEDULED, shelf, wasteful)
    assert warning.said.startswith("only 50% of the steps met the rules")
    assert {cell.batch_size for cell in warning.cells} == {16}


def test_contexts_that_part_are_warned_of(shelf: Shelf) -> None:
    """Two cells of one batch size whose sequences differ in length by far cannot be compared by K alone."""
    far = _changed(shelf, lambda b: replace(b, context=(400, 510)), lambda b: b.cell == Cell(Arm.DSD, 4, 2))
    warning = _the(Code.CONTEXT_DRIFT, shelf, far)
    assert warning.cells[1] == Cell(Arm.DSD, 4, 2)
    assert "at B=4" in warning.said


def test_contexts_past_the_window_are_warned_of(shelf: Shelf) -> None:
    """Sequences longer than the context that was asked for are named."""
    past = _changed(shelf, lambda b: replace(b, context=(20, 530)), lambda b: b.cell == Cell(Arm.DSD, 4, 2))
    assert "past 512 tokens in 6 blocks, at dsd B=4 K=2" in _the(Code.CONTEXT_DRIFT, shelf, past).said
