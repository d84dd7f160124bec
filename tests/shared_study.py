"""A plan for tests of shared studies: its turns are the same whoever takes them, so that they can be counted.

As a script it is one worker with a simulated engine: `python shared_study.py RUN STORAGE GATE [--join]`.
"""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from builders import A_CONDITION, a_request

from dsd_tune.engines.simulated import SimulatedEngine, SimulatedProcess
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.visit import Visit
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.studies.joining import take_part
from dsd_tune.studies.protocol import Ledger

REQUEST = a_request(batch_sizes=(1, 4, 16), rounds=2)
VISITS = [
    Visit(Phase.MAIN, (Arm.NO_SPEC, Arm.DSD), A_CONDITION, batch_size, repetition)
    for repetition in range(REQUEST.rounds)
    for batch_size in REQUEST.batch_sizes
]
BLOCK_TAKES_S = 0.01
"""Long enough for two workers to meet and for one to be killed in the middle of a visit."""

Turn = tuple[Visit, Cell, int]


def turns(visit: Visit) -> list[Turn]:
    """Every cell of a visit, forward and back."""
    cells = [Cell(Arm.NO_SPEC, visit.batch_size, 0)] + [Cell(Arm.DSD, visit.batch_size, k) for k in REQUEST.ks]
    return [(visit, cell, round_) for round_, order in enumerate([cells, cells[::-1]]) for cell in order]


def taken(samples: Iterable[Block | Failure]) -> Counter[Turn]:
    """The turns that samples are of."""
    return Counter((VISITS[sample.slot // 2], sample.cell, sample.round) for sample in samples)


PLAN = Counter(turn for visit in VISITS for turn in turns(visit))


class MiniSweep:
    """Takes visits that nobody else has until all turns are taken. Each visit has two slots, one for each arm."""

    def __init__(self, ledger: Ledger, engine: SimulatedEngine) -> None:
        self._ledger = ledger
        self._engine = engine

    def run(self) -> None:
        """Measure until nothing is left, waiting where all that is left is under way."""
        while left := {visit for visit, _, _ in PLAN.keys() - taken(self._ledger.samples()).keys()}:
            free = [visit for visit in VISITS if visit in left - self._ledger.under_way()]
            if free and self._ledger.claim(free[0]):
                self.measure(free[0])
            else:
                time.sleep(BLOCK_TAKES_S)

    def measure(self, visit: Visit) -> None:
        """Take the turns of a claimed visit that are left, with an engine for each arm."""
        engines = {arm: (self._engine.start(arm), self._ledger.new_start()) for arm in visit.arms}
        done = taken(self._ledger.samples())
        for _, cell, round_ in (turn for turn in turns(visit) if turn not in done):
            self._ledger.append(self._block(visit, cell, round_, *engines[cell.arm]))
        for engine, _ in engines.values():
            engine.close()
        self._ledger.finish(visit, 0.01)

    def _block(self, visit: Visit, cell: Cell, round_: int, engine: SimulatedProcess, start: int) -> Block:
        taken_at = time.time()
        raw = engine.measure(cell.batch_size, cell.k, condition=visit.condition, steps=8, settle=2)
        time.sleep(BLOCK_TAKES_S)
        return Block(
            cell=cell,
            condition=visit.condition,
            phase=visit.phase,
            stop=visit.batch_size,
            repetition=visit.repetition,
            round=round_,
            slot=2 * VISITS.index(visit) + visit.arms.index(cell.arm),
            start=start,
            taken_at_s=taken_at,
            step_s=raw.step_s,
            steps_run=raw.steps_run,
            context=raw.context,
            prompts=raw.prompts,
            machine=None,
        )


def one_of_two_is_killed(storage: str, tmp_path: Path, seed: int, name: str = "run") -> None:
    """Two worker processes on the study `name`, one killed at a moment of `seed`: no turn is lost or counted twice."""
    first, second, gate = tmp_path / "a" / name, tmp_path / "b" / name, tmp_path / "gate"
    beginning = _worker(first, storage, gate)
    _wait_for(_joined(first), beginning)
    joining = _worker(second, storage, gate, "--join")
    _wait_for(_joined(second), joining)
    random = Random(seed)
    (victim, killed), (survivor, kept) = random.sample([(beginning, first), (joining, second)], 2)
    moment = random.randrange(1, PLAN.total() // 4)
    gate.touch()
    _wait_for(lambda: _lines(killed) >= moment, victim)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert survivor.wait(timeout=120) == 0

    result = RunDirectory.open(kept).samples()
    assert taken(result) == PLAN
    # The last block may have reached the disk and not the study: it was not finished.
    assert set(RunDirectory.open(killed).samples()[:-1]) <= set(result)
    assert _worker(killed, storage, gate, "--join").wait(timeout=120) == 0
    assert RunDirectory.open(killed).samples() == result


def _worker(run: Path, storage: str, gate: Path, *join: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, str(run), storage, str(gate), *join])


def _joined(run: Path) -> Callable[[], bool]:
    return (run / "worker.json").exists


def _lines(run: Path) -> int:
    samples = run / "samples.jsonl"
    return samples.read_bytes().count(b"\n") - 1 if samples.exists() else 0


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, f"the worker ended with {process.returncode}"
        time.sleep(0.005)


def main(run: str, storage: str, gate: str, *join: str) -> None:
    """One worker, from joining to the end; it begins to measure once there is a file `gate`."""
    engine = SimulatedEngine(alive_together=2)
    part = take_part(Path(run), REQUEST, engine.describe, storage=storage, join=bool(join), interval_s=0.1, grace_s=2.0)
    with part as ledger:
        while not Path(gate).exists():
            time.sleep(0.005)
        MiniSweep(ledger, engine).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
