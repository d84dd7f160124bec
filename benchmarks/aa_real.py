"""Two arms that are the same real engine: `aa_real.py [RUNS] [STARTS]`, on the testbed.

Each run starts engines without speculation under two labels, all alive together, rotates their blocks like those of any
two arms, and prints how much slower the one label seems to be than the other. The truth is zero.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dsd_tune.cli.request import TESTBED_FLAGS
from dsd_tune.engines.protocol import RunningEngine
from dsd_tune.engines.vllm_engine import VllmEngine
from dsd_tune.model import timing
from dsd_tune.model.sampled import Sampled
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Phase
from dsd_tune.records.profile import Comparison
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

BATCH_SIZES = (8, 1)
ROUNDS = 4
STEPS = 8
CONDITION = Condition(512, 0.0)

LABELS = (Arm.NO_SPEC, Arm.DSD)
"""Both are `no_spec` engines; a cell of the second stands for K=0 of another arm."""


def main(runs: int, starts: int) -> None:
    """Run, print, count."""
    same = 0
    for number in range(runs):
        with tempfile.TemporaryDirectory() as logs, ExitStack() as stack:
            blocks = list(_blocks(_engine(Path(logs), number), starts, stack, seed=number))
        found = compared(blocks)
        covers = found.low <= 0 <= found.high
        same += covers
        print(
            f"{number} {found.value:+.2%} [{found.low:+.2%}, {found.high:+.2%}], {found.detectable:.2%} detectable: "
            f"{'same' if covers else 'DIFFERENT'}",
            flush=True,
        )
    print(f"same in {same} of {runs}")


def compared(blocks: list[Block]) -> Comparison:
    """How much slower the second label seems to be, over all batch sizes."""
    timings = timing.collect(blocks)
    noise = timing.estimate_noise(timings)
    print(f"  starts {noise.starts.sd:.1%}, drift {noise.drift.sd:.1%}, blocks {noise.blocks.sd:.1%}")
    times = timing.draw_cells(timings, noise, np.random.default_rng(0))
    grid = times.grid([[Cell(label, b, 0) for label in LABELS] for b in BATCH_SIZES])
    slower = (grid[:, 1] - grid[:, 0]).map(np.expm1)
    return Sampled(slower.point.mean(), slower.draws.mean(axis=1)).comparison()


def _engine(logs: Path, seed: int) -> VllmEngine:
    ready = prepare(lambda line: print(line, file=sys.stderr))
    return VllmEngine(
        model=str(ready.target),
        speculative_config={"method": "eagle3", "model": str(ready.eagle3)},
        ks=(0, 1),
        max_num_seqs=max(BATCH_SIZES),
        conditions=(CONDITION,),
        prompts=load_prompts(ready.prompts),
        seed=seed,
        engine_flags=TESTBED_FLAGS,
        log_dir=logs,
    )


def _blocks(engine: VllmEngine, starts: int, stack: ExitStack, seed: int) -> Iterator[Block]:
    alive: list[tuple[Arm, RunningEngine]] = []
    for start in range(starts):
        for label in LABELS[:: (-1) ** start]:
            running = engine.start(Arm.NO_SPEC)
            stack.callback(running.close)
            alive.append((label, running))
    shuffle = random.Random(seed).shuffle
    for repetition in range(ROUNDS):
        for batch_size in BATCH_SIZES[:: (-1) ** repetition]:
            order = list(enumerate(alive))
            shuffle(order)
            for pass_, places in enumerate((order, order[::-1])):
                for start, (label, running) in places:
                    yield _block(running, Cell(label, batch_size, 0), start, repetition, pass_)


def _block(running: RunningEngine, cell: Cell, start: int, repetition: int, pass_: int) -> Block:
    taken_at_s = time.time()
    raw = running.measure(cell.batch_size, 0, condition=CONDITION, steps=STEPS, settle=2)
    return Block(
        cell=cell,
        condition=CONDITION,
        phase=Phase.MAIN,
        stop=cell.batch_size,
        repetition=repetition,
        round=pass_,
        slot=start,
        start=start,
        taken_at_s=taken_at_s,
        step_s=raw.step_s,
        steps_run=raw.steps_run,
        context=raw.context,
        prompts=raw.prompts,
        machine=None,
    )


if __name__ == "__main__":
    main(*(int(word) for word in (*sys.argv[1:], "1", "3")[:2]))
