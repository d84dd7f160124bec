from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import a_request
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeping import Shelf, Silent, a_shelf, a_sweep, asked_for, starts_of, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.errors import EngineFailed
from dsd_tune.plan import ENGINES_A_CELL, Slot, Turn
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.studies.joining import take_part
from dsd_tune.sweep import STARTS_A_SLOT, Sweep

DOOMED = Cell(Arm.DSD, 16, 2)
PLANNED = 2 * 2 * 3 * (1 + 3) + 2
"""Starts, rounds, batch sizes and Ks of both arms in the builders' request, and the references between the stops."""


def _turns(samples: list[Block | Failure]) -> Counter[Turn]:
    return Counter(Turn.of(s) for s in samples)


def _blocks(shelf: Shelf) -> list[Block]:
    return [s for s in shelf.kept if isinstance(s, Block)]


def _failures(shelf: Shelf) -> list[Failure]:
    return [s for s in shelf.kept if isinstance(s, Failure)]


@dataclass
class Impatient(Silent):
    """Presses Ctrl-C after a number of events."""

    left: int

    def starting(self, slot: Slot) -> None:
        """Count down."""
        self._count()

    def measured(self, sample: Block | Failure) -> None:
        """Count down."""
        self._count()

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@dataclass
class Notebook(Silent):
    """Writes down what a sweep tells."""

    plans: list[tuple[int, int]] = field(default_factory=list)
    seen: list[Block | Failure] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)

    def planned(self, turns: int, done: int) -> None:
        """Note the plan."""
        self.plans.append((turns, done))

    def starting(self, slot: Slot) -> None:
        """Note the start."""
        self.slots.append(slot.index)

    def measured(self, sample: Block | Failure) -> None:
        """Note the sample."""
        self.seen.append(sample)


@pytest.mark.parametrize(("alive_together", "references"), [(1, 4 * 2), (2, 2 * 2), (8, 2)])
def test_every_cell_gets_its_starts(alive_together: int, references: int) -> None:
    """An undisturbed sweep measures what was asked for in as many starts, however many engines fit, and no more."""
    shelf = swept(SimulatedEngine(alive_together=alive_together))
    assert starts_of(shelf) == dict.fromkeys(asked_for(shelf), 2)
    assert len(_blocks(shelf)) == PLANNED - 2 + references
    assert max(_turns(shelf.kept).values()) == 1


def test_engines_that_do_not_fit_together_never_meet() -> None:
    """With room for one engine each is closed before the next starts, so that every start succeeds."""
    engine = SimulatedEngine(alive_together=1)
    notebook = Notebook()
    shelf = a_shelf(engine)
    a_sweep(engine, shelf, notebook).measure_arms()
    assert _failures(shelf) == []
    assert len(notebook.slots) == 4


@given(st.integers(0, PLANNED + 3), st.integers(0, PLANNED), st.sampled_from([1, 2, 4]))
@settings(max_examples=25)
def test_resumed_sweeps_lose_and_repeat_nothing(first: int, second: int, alive_together: int) -> None:
    """Interrupted twice anywhere and resumed, a sweep keeps what it had and ends with every start of every cell."""
    shelf = a_shelf(SimulatedEngine(alive_together=alive_together))
    for events in (first, second, 10_000):
        kept = shelf.samples()
        try:
            engine = SimulatedEngine(alive_together=alive_together)
            a_sweep(engine, _reopened(shelf), Impatient(events)).measure_arms()
        except KeyboardInterrupt:
            assert shelf.kept[: len(kept)] == kept
    assert set(starts_of(shelf)) == asked_for(shelf)
    assert min(starts_of(shelf).values()) == 2
    assert max(_turns(shelf.kept).values()) == 1


def _reopened(shelf: Shelf) -> Shelf:
    """As a new process finds it: the claims of the one that died are gone."""
    shelf.claimed.clear()
    return shelf


def test_an_interrupted_sweep_leaves_no_engine_behind() -> None:
    """Ctrl-C closes every engine of the sitting."""
    engine = SimulatedEngine(alive_together=4)
    with pytest.raises(KeyboardInterrupt):
        a_sweep(engine, a_shelf(engine), Impatient(10)).measure_arms()
    assert len([engine.start(Arm.NO_SPEC) for _ in range(4)]) == 4


def test_resumed_engines_are_told_apart() -> None:
    """A new process of an old slot has a start number of its own, since its luck is another."""
    shelf = a_shelf(SimulatedEngine(alive_together=4))
    with pytest.raises(KeyboardInterrupt):
        a_sweep(SimulatedEngine(alive_together=4), shelf, Impatient(20)).measure_arms()
    before = {s.start for s in shelf.kept}
    done = len(shelf.kept)
    a_sweep(SimulatedEngine(alive_together=4), shelf).measure_arms()
    assert before.isdisjoint({s.start for s in shelf.kept[done:]})


def test_a_finished_sweep_starts_no_engine() -> None:
    """The same command on a finished run measures nothing more."""
    shelf = swept(SimulatedEngine(alive_together=4))
    notebook = Notebook()
    a_sweep(SimulatedEngine(alive_together=4), shelf, notebook).measure_arms()
    assert notebook == Notebook()


def test_only_arms_with_starts_left_are_started() -> None:
    """A resumed sweep starts no engine of an arm that has all its starts."""
    shelf = swept(SimulatedEngine(alive_together=4))
    lost = next(s.slot for s in shelf.kept if s.cell.arm is Arm.DSD)
    shelf.kept = [s for s in shelf.kept if s.slot != lost]
    before = len(shelf.kept)
    a_sweep(SimulatedEngine(alive_together=4), _reopened(shelf)).measure_arms()
    assert {s.cell.arm for s in shelf.kept[before:]} == {Arm.DSD}
    assert starts_of(shelf) == dict.fromkeys(asked_for(shelf), 2)


def test_blocks_are_kept_before_they_are_told() -> None:
    """An observer hears of a block only once it is safe."""
    engine = SimulatedEngine(alive_together=4)
    shelf = a_shelf(engine)

    class Checking(Silent):
        def measured(self, sample: Block | Failure) -> None:
            assert shelf.kept[-1] is sample

    a_sweep(engine, shelf, Checking()).measure_arms()
    assert len(shelf.kept) == PLANNED


def test_a_failing_cell_is_a_fact_and_not_the_end() -> None:
    """A cell that ends its engine is recorded with the reason, and all other cells are measured in full."""
    shelf = swept(SimulatedEngine(alive_together=4, failing_cells=[DOOMED]))
    assert {(f.cell, f.reason) for f in _failures(shelf)} == {(DOOMED, f"{DOOMED} was planned to fail.")}
    assert len(_failures(shelf)) == 4
    assert len(_blocks(shelf)) == PLANNED - 4


def test_a_dead_engine_is_started_again() -> None:
    """The turns after a failure are measured by a new start of the same slot."""
    shelf = swept(SimulatedEngine(alive_together=1, failing_cells=[DOOMED]), starts=1)
    failed = next(i for i, s in enumerate(shelf.kept) if isinstance(s, Failure))
    after = [s for s in shelf.kept[failed + 1 :] if s.slot == shelf.kept[failed].slot]
    assert {s.start for s in after}.isdisjoint({s.start for s in shelf.kept[: failed + 1]})


def test_a_deadly_cell_does_not_use_up_its_engines() -> None:
    """However many cells end their engines, each is dropped after two of them, and the rest is measured in full."""
    doomed = [Cell(Arm.DSD, 16, k) for k in (0, 1, 2)] + [Cell(Arm.DSD, 4, 2)]
    engine = SimulatedEngine(alive_together=1, failing_cells=doomed)
    shelf = a_shelf(engine, rounds=6, starts=3)
    notebook = Notebook()
    a_sweep(engine, shelf, notebook).measure_arms()
    assert {f.cell for f in _failures(shelf)} == set(doomed)
    assert set(starts_of(shelf)) - set(doomed) == asked_for(shelf) - set(doomed)
    assert len(notebook.slots) == 6 + len(doomed) * ENGINES_A_CELL


def test_an_engine_that_keeps_failing_is_given_up() -> None:
    """After three starts a slot's turns are recorded as failures, and the next slot goes on."""
    engine = SimulatedEngine(alive_together=1, failing_starts=range(2, 2 + STARTS_A_SLOT))
    notebook = Notebook()
    shelf = a_shelf(engine)
    a_sweep(engine, shelf, notebook).measure_arms()
    assert len(notebook.slots) == 4 + STARTS_A_SLOT - 1
    assert len({f.slot for f in _failures(shelf)}) == 1
    assert {f.cell for f in _failures(shelf)} == {c for c in asked_for(shelf) if c.arm is Arm.DSD}
    assert _failures(shelf)[-1].reason == "the engine failed to start 3 times."


@pytest.mark.parametrize("start", [0, 1])
def test_an_arm_that_never_starts_ends_the_sweep(start: int) -> None:
    """Without a first start of an arm nothing can be compared, so the engine's own words reach the user."""
    engine = SimulatedEngine(alive_together=4, failing_starts=[start])
    with pytest.raises(EngineFailed, match=f"Start {start} was planned to fail"):
        a_sweep(engine, a_shelf(engine)).measure_arms()
    assert len([engine.start(Arm.NO_SPEC) for _ in range(4)]) == 4


def test_a_start_that_fails_once_is_tried_again() -> None:
    """Where the arm has run before, a start that fails costs nothing but another start."""
    shelf = swept(SimulatedEngine(alive_together=1, failing_starts=[3]))
    assert starts_of(shelf) == dict.fromkeys(asked_for(shelf), 2)
    assert _failures(shelf) == []


def test_fixed_k_is_measured_beside_fresh_engines() -> None:
    """The best fixed K runs in slots of its own, alternating with engines without speculation."""
    engine = SimulatedEngine(CostLaw(graphs_static=0.9), alive_together=4)
    shelf = swept(engine, fixed_k=2)
    static = [s for s in shelf.kept if s.phase is Phase.STATIC]
    assert {s.cell.arm for s in static} == {Arm.NO_SPEC, Arm.STATIC}
    assert {s.slot for s in static}.isdisjoint({s.slot for s in shelf.kept if s.phase is Phase.MAIN})
    assert len(static) == 2 * 2 * 3 * 2 + 2


@pytest.mark.parametrize(("graphs_static", "differs"), [(0.9, True), (1.0, False)])
def test_graphs_say_whether_a_fixed_k_is_another_engine(graphs_static: float, differs: bool) -> None:
    """The arm `static` is worth its time only where a table changes the CUDA graphs."""
    assert SimulatedEngine(CostLaw(graphs_static=graphs_static)).describe().table_changes_graphs is differs


def test_blocks_carry_what_the_engine_said() -> None:
    """A block holds as many kept steps as were asked for, their batch size in prompts, and its place in time."""
    shelf = swept(SimulatedEngine(alive_together=4), steps=5)
    assert {len(b.step_s) for b in _blocks(shelf)} == {5}
    assert all(len(b.prompts) == b.cell.batch_size for b in _blocks(shelf))
    times = [b.taken_at_s for b in _blocks(shelf)]
    assert times == sorted(times)


def test_progress_is_told_from_the_first_block() -> None:
    """An observer learns the size of the plan first, and then of each sample in order."""
    engine = SimulatedEngine(alive_together=4)
    shelf = a_shelf(engine)
    notebook = Notebook()
    a_sweep(engine, shelf, notebook).measure_arms()
    assert notebook.plans == [(PLANNED, 0)]
    assert notebook.seen == shelf.kept


def test_a_run_directory_keeps_every_block(tmp_path: Path) -> None:
    """On a real disk, a sweep that was interrupted and resumed holds what it had, and the rest."""
    request = a_request(starts=1, rounds=1)

    def measure(observer: Silent) -> None:
        engine = SimulatedEngine(alive_together=2)
        with take_part(tmp_path, request, engine.describe, storage=None, join=False) as ledger:
            Sweep(engine, ledger, observer).measure_arms()

    with pytest.raises(KeyboardInterrupt):
        measure(Impatient(7))
    run = RunDirectory.open(tmp_path)
    kept = run.samples()
    assert len(kept) == 6
    measure(Silent())
    assert run.samples()[:6] == kept
    assert {s.cell for s in run.samples()} == asked_for(Shelf(run.manifest))
    assert max(_turns(run.samples()).values()) == 1
