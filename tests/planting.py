"""Blocks whose noise is known, since a test planted it: luck of starts, drift between visits, slow rounds, scatter."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from builders import a_block

from dsd_tune.model.sampled import Sampled
from dsd_tune.model.timing import collect, draw_cells, estimate_noise
from dsd_tune.records.measurement import Arm, Block, Cell

SIZES = (1, 4, 16)
GRID = [[Cell(Arm.DSD, b, k) for k in (0, 1, 2)] for b in SIZES]
CELLS = [cell for row in GRID for cell in row]
OFF = [[Cell(Arm.NO_SPEC, b, 0)] for b in SIZES]
BOTH = [*CELLS, *(row[0] for row in OFF)]


def truth_s(cell: Cell) -> float:
    """Step time of a cell, in seconds."""
    return 0.02 + 0.001 * cell.batch_size * (cell.k + 1)


def planted(
    rng: np.random.Generator,
    *,
    start_sd: float = 0.0,
    drift_sd: float = 0.0,
    round_sd: float = 0.0,
    block_sd: float = 0.0,
    cells: Iterable[Cell] = CELLS,
    starts: int = 3,
    repetitions: int = 2,
    rounds: int = 1,
    first_start: int = 0,
    alive_together: int = 99,
    sizes: Sequence[int] = SIZES,
) -> list[Block]:
    """Blocks of one step each around the truth, in the order of a plan, of `cells` alone.

    The machine's speed is drawn anew for each sitting, repetition and batch size, which is a visit, and a part of it
    for each round of the visit.
    """
    wanted = set(cells)
    luck = start_sd * rng.standard_normal(2 * starts)
    taken = []
    for slots in _sittings(starts, alive_together):
        speed = drift_sd * rng.standard_normal((repetitions, max(sizes) + 1))[:, :, None]
        speed = speed + round_sd * rng.standard_normal((repetitions, max(sizes) + 1, rounds))
        for slot, repetition, cell, round_ in _turns(rng, slots, repetitions, sizes, rounds):
            size = cell.batch_size
            noise = luck[slot] + speed[repetition, size, round_] + block_sd * rng.standard_normal()
            if cell in wanted:
                block = one_block(cell, first_start + slot, truth_s(cell) * np.exp(noise))
                taken.append(replace(block, slot=slot, stop=size, repetition=repetition, round=round_))
    return taken


def _sittings(starts: int, alive_together: int) -> list[list[int]]:
    """Slots that are alive together; even ones are of `no_spec`. Single engines alternate A B B A."""
    together = 2 * starts if alive_together >= 2 * starts else min(alive_together, 2)
    slots = [2 * start + arm for start in range(starts) for arm in ((0, 1) if start % 2 == 0 else (1, 0))]
    return [slots[i : i + together] for i in range(0, len(slots), together)]


def _turns(
    rng: np.random.Generator, slots: Sequence[int], repetitions: int, sizes: Sequence[int], rounds: int
) -> Iterator[tuple[int, int, Cell, int]]:
    """Slot, repetition, cell and round: down through the batch sizes, each in random order, then up, and so on."""
    down = []
    for batch_size in reversed(sizes):
        off = [(slot, Cell(Arm.NO_SPEC, batch_size, 0)) for slot in slots if slot % 2 == 0]
        stop = off + [(slot, Cell(Arm.DSD, batch_size, k)) for slot in slots if slot % 2 for k in (0, 1, 2)]
        rng.shuffle(stop)
        down.append(stop)
    for repetition in range(repetitions):
        back = (-1) ** repetition
        for stop in down[::back]:
            for round_ in range(rounds):
                yield from ((slot, repetition, cell, round_) for slot, cell in stop[:: back * (-1) ** round_])


def one_block(cell: Cell, start: int, *step_s: float) -> Block:
    """A block of these steps."""
    return a_block(cell=cell, stop=cell.batch_size, start=start, step_s=step_s, steps_run=len(step_s))


def drawn_from(blocks: list[Block], rng: np.random.Generator, grid: list[list[Cell]] = GRID) -> Sampled:
    """Estimates of a grid of cells."""
    timings = collect(blocks)
    return draw_cells(timings, estimate_noise(timings), rng).grid(grid)


def log_truth(grid: list[list[Cell]] = GRID) -> np.ndarray:
    """What is true of a grid of cells."""
    return np.log([[truth_s(cell) for cell in row] for row in grid])


def holds(estimate: Sampled, truth: np.ndarray) -> np.ndarray:
    """Where 95 % intervals hold the truth."""
    low, high = estimate.limits()
    return (low <= truth) & (truth <= high)


def width(estimate: Sampled) -> float:
    """The usual width of a 95 % interval."""
    low, high = estimate.limits()
    return float(np.median(high - low))
