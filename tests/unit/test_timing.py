from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from builders import a_block

from dsd_tune.model.sampled import Sampled
from dsd_tune.model.timing import UNKNOWN_DRIFT_SD, collect, draw_cells, estimate_noise
from dsd_tune.records.measurement import Arm, Block, Cell

SIZES = (1, 4, 16)
GRID = [[Cell(Arm.DSD, b, k) for k in (0, 1, 2)] for b in SIZES]
CELLS = [cell for row in GRID for cell in row]
OFF = [[Cell(Arm.NO_SPEC, b, 0)] for b in SIZES]
BOTH = [*CELLS, *(row[0] for row in OFF)]


def _truth_s(cell: Cell) -> float:
    return 0.02 + 0.001 * cell.batch_size * (cell.k + 1)


def _blocks(
    rng: np.random.Generator,
    *,
    start_sd: float = 0.0,
    drift_sd: float = 0.0,
    block_sd: float = 0.0,
    cells: Iterable[Cell] = CELLS,
    starts: int = 3,
    rounds: int = 2,
    first_start: int = 0,
    alive_together: int = 99,
    sizes: Sequence[int] = SIZES,
) -> list[Block]:
    """Blocks of one step each around the truth, of `cells` alone: every engine visits each size in each round.

    Engines take turns, singly or in pairs, or all live together. The machine's speed is drawn anew for each visit.
    """
    luck = start_sd * rng.standard_normal(2 * starts)
    engines = [(start, (Arm.NO_SPEC, Arm.DSD)[(start % 2) ^ (start // 2 % 2)]) for start in range(2 * starts)]
    at_once = min(len(engines), alive_together)
    taken = []
    for first in range(0, len(engines), at_once):
        for round_, size in product(range(rounds), reversed(sizes)):
            speed = drift_sd * rng.standard_normal()
            for start, arm in engines[first : first + at_once]:
                for cell in (c for c in cells if c.arm is arm and c.batch_size == size):
                    noise = luck[start] + speed + block_sd * rng.standard_normal()
                    block = _block(cell, first_start + start, _truth_s(cell) * np.exp(noise))
                    taken.append(replace(block, repetition=first * rounds + round_))
    return taken


def _block(cell: Cell, start: int, *step_s: float) -> Block:
    return a_block(cell=cell, stop=cell.batch_size, start=start, step_s=step_s, steps_run=len(step_s))


def _drawn(blocks: list[Block], rng: np.random.Generator, grid: list[list[Cell]] = GRID) -> Sampled:
    timings = collect(blocks)
    return draw_cells(timings, estimate_noise(timings), rng).grid(grid)


def _log_truth(grid: list[list[Cell]] = GRID) -> np.ndarray:
    return np.log([[_truth_s(cell) for cell in row] for row in grid])


def _holds(estimate: Sampled, truth: np.ndarray) -> np.ndarray:
    low, high = estimate.limits()
    return (low <= truth) & (truth <= high)


def _width(estimate: Sampled) -> float:
    low, high = estimate.limits()
    return float(np.median(high - low))


def _spreads(seeds: int, run: Callable[[np.random.Generator], list[Block]]) -> tuple[float, float, float]:
    """Root mean squares, over many runs, of what starts, drift and blocks were estimated at."""
    noises = [estimate_noise(collect(run(np.random.default_rng(seed)))) for seed in range(seeds)]
    starts, drift, blocks = np.sqrt(np.mean([[s.sd**2 for s in (n.starts, n.drift, n.blocks)] for n in noises], axis=0))
    return float(starts), float(drift), float(blocks)


@pytest.mark.parametrize(
    ("start_sd", "drift_sd", "block_sd"),
    [(0.05, 0.02, 0.01), (0.02, 0.05, 0.01), (0.02, 0.02, 0.03), (0.03, 0.1, 0.02)],
)
def test_luck_drift_and_scatter_are_told_apart(start_sd: float, drift_sd: float, block_sd: float) -> None:
    """Over many runs all three spreads come back as they were planted, whichever is the largest."""
    starts, drift, blocks = _spreads(
        60, lambda rng: _blocks(rng, start_sd=start_sd, drift_sd=drift_sd, block_sd=block_sd, cells=BOTH)
    )
    assert blocks == pytest.approx(block_sd, rel=0.1)
    assert starts == pytest.approx(start_sd, rel=0.35)
    assert drift == pytest.approx(drift_sd, rel=0.35)


@pytest.mark.parametrize("alive_together", [1, 2])
def test_engines_that_live_apart_are_told_apart(alive_together: int) -> None:
    """Where starts have visits of their own their luck is not assumed: it comes back, with a part of the drift."""
    starts, drift, _ = _spreads(
        60,
        lambda rng: _blocks(
            rng, start_sd=0.03, drift_sd=0.01, block_sd=0.005, cells=BOTH, alive_together=alive_together
        ),
    )
    assert starts == pytest.approx(0.03, rel=0.35)
    assert drift == pytest.approx(0.01, rel=0.35)


def test_drift_between_visits_spares_differences() -> None:
    """When the machine drifts by 10 %, arms alive together still differ by what they differ by, within a few percent.

    Absolute times are several times less sure, and nineteen in twenty intervals of the difference hold the truth.
    """
    truth = (_log_truth() - _log_truth(OFF)).ravel()
    held, narrower = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        timings = collect(_blocks(rng, start_sd=0.005, drift_sd=0.1, block_sd=0.02, cells=BOTH))
        times = draw_cells(timings, estimate_noise(timings), rng)
        off = times.grid([row * 3 for row in OFF])
        difference = times.grid(GRID) - off
        held.append(_holds(difference, truth.reshape(3, 3)).mean())
        narrower.append(_width(difference) / _width(off))
    assert 0.92 < np.mean(held) < 0.99
    assert np.median(narrower) < 0.3


def test_a_missed_visit_does_not_let_drift_in() -> None:
    """A cell that failed in one round is compared through the visits that it shared, not through the other one."""
    failed = GRID[1][2]
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        blocks = _blocks(rng, start_sd=0.005, drift_sd=0.1, block_sd=0.005, cells=BOTH)
        drawn = _drawn([b for b in blocks if (b.cell, b.repetition) != (failed, 0)], rng)
        errors.append((drawn.point - _log_truth())[1, 2] - (drawn.point - _log_truth())[1, 1])
    assert np.sqrt(np.mean(np.square(errors))) < 0.015


def _arms(alive_together: int) -> float:
    """How much surer the arms' difference at one batch size is than the absolute time, under strong drift."""
    rng = np.random.default_rng(8)
    blocks = _blocks(rng, start_sd=0.005, drift_sd=0.1, block_sd=0.01, cells=BOTH, alive_together=alive_together)
    timings = collect(blocks)
    times = draw_cells(timings, estimate_noise(timings), rng)
    return _width((times.grid(GRID) - times.grid(OFF))[:, 0]) / _width(times.grid(OFF))


def test_arms_that_live_apart_do_not_share_drift() -> None:
    """Drift leaves the difference of two arms alone only where they were alive together."""
    assert _arms(alive_together=99) < 0.4
    assert _arms(alive_together=2) < 0.4
    assert _arms(alive_together=1) > 1.1


def test_one_round_alive_together_cannot_tell_drift() -> None:
    """With each batch size visited once, drift is assumed, and absolute times are as wide as that."""
    rng = np.random.default_rng(9)
    blocks = _blocks(rng, block_sd=0.001, cells=BOTH, rounds=1)
    assert estimate_noise(collect(blocks)).drift.sd == UNKNOWN_DRIFT_SD
    assert _width(_drawn(blocks, rng)) > 3 * UNKNOWN_DRIFT_SD


def test_a_visit_is_what_its_blocks_say() -> None:
    """Blocks of one stop and repetition share a visit, its reference cell at another batch size too."""
    cell, other = CELLS[3], CELLS[0]
    stays = [(cell, 4, 0), (cell, 4, 0), (other, 4, 0), (other, 1, 0), (cell, 4, 1)]
    blocks = [replace(_block(c, 0, 0.02), stop=stop, repetition=r, round=i) for i, (c, stop, r) in enumerate(stays)]
    np.testing.assert_array_equal(collect(blocks).of_visit.argmax(1), [0, 0, 0, 1, 2])


def test_workers_that_measure_at_once_do_not_mix_visits() -> None:
    """Blocks of two visits that alternate in time, since two workers took them, are two visits."""
    blocks = [replace(_block(CELLS[0], i % 2, 0.02), repetition=i % 2) for i in range(4)]
    np.testing.assert_array_equal(collect(blocks).of_visit.argmax(1), [0, 1, 0, 1])


def test_a_visit_does_not_outlive_its_engines() -> None:
    """Where a sweep was resumed, or engines took turns, blocks at one batch size in one round are still two visits."""
    before_and_after = [_block(CELLS[0], start, 0.02) for start in (0, 1, 0, 2, 3, 2)]
    np.testing.assert_array_equal(collect(before_and_after).of_visit.argmax(1), [0, 0, 0, 1, 1, 1])
    one_restarted = [_block(CELLS[0], start, 0.02) for start in (0, 1, 2, 1)]
    np.testing.assert_array_equal(collect(one_restarted).of_visit.argmax(1), [0, 1, 1, 1])


def test_degrees_of_freedom_count_starts_visits_and_blocks() -> None:
    """Two arms of three starts leave four degrees for luck, two rounds of three sizes three for drift."""
    blocks = _blocks(np.random.default_rng(0), start_sd=0.02, drift_sd=0.02, block_sd=0.01, cells=BOTH)
    noise = estimate_noise(collect(blocks))
    assert (noise.starts.df, noise.drift.df) == (4, 3)
    assert noise.blocks.df == len(blocks) - len(BOTH) - 4 - 3


def test_one_slow_step_does_not_move_a_block() -> None:
    """A block counts by the median of its steps."""
    calm = collect([_block(CELLS[0], 0, 0.02, 0.02, 0.02)])
    shaken = collect([_block(CELLS[0], 0, 0.02, 0.02, 0.9)])
    assert calm.values == shaken.values


def test_ks_of_one_engine_share_its_luck() -> None:
    """The difference of two Ks of one engine is far surer than either of them."""
    rng = np.random.default_rng(3)
    drawn = _drawn(_blocks(rng, start_sd=0.06, block_sd=0.005), rng)
    assert _width(drawn[:, 0] - drawn[:, 2]) < 0.3 * _width(drawn[:, 0])


def test_arms_do_not_share_luck() -> None:
    """The difference of two arms is less sure than either of them."""
    rng = np.random.default_rng(4)
    timings = collect(_blocks(rng, start_sd=0.05, block_sd=0.005, cells=BOTH))
    times = draw_cells(timings, estimate_noise(timings), rng)
    dsd, off = times.grid(GRID)[:, 0], times.grid(OFF)[:, 0]
    assert _width(dsd - off) > 1.2 * _width(dsd)


@pytest.mark.parametrize("alive_together", [1, 2, 99])
def test_intervals_hold_the_truth(alive_together: int) -> None:
    """Nine in ten 95 % intervals or more hold the true step time, as do those of differences within an engine."""
    absolute, relative = [], []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        blocks = _blocks(rng, start_sd=0.03, drift_sd=0.02, block_sd=0.02, cells=BOTH, alive_together=alive_together)
        drawn = _drawn(blocks, rng)
        absolute.append(_holds(drawn, _log_truth()).mean())
        relative.append(_holds(drawn[:, 1] - drawn[:, 0], _log_truth()[:, 1] - _log_truth()[:, 0]).mean())
    assert np.mean(absolute) > 0.9
    assert np.mean(relative) > 0.9


def test_a_single_start_is_not_trusted() -> None:
    """With one start an arm, an interval is wider than engines of one kind were ever seen apart."""
    rng = np.random.default_rng(5)
    low, high = _drawn(_blocks(rng, block_sd=0.001, cells=BOTH, starts=1), rng).limits()
    assert np.all(high - low > 0.3)


def _interrupted(rng: np.random.Generator, start_sd: float, block_sd: float) -> list[Block]:
    """Three starts that took the first cells twice, then died; three more that took the rest once."""
    before = _blocks(rng, start_sd=start_sd, block_sd=block_sd, cells=CELLS[:5], rounds=2)
    after = _blocks(rng, start_sd=start_sd, block_sd=block_sd, cells=CELLS[4:], first_start=6, rounds=1)
    return before + [replace(block, repetition=2) for block in after]


def test_resumed_runs_keep_the_spreads_apart() -> None:
    """Starts that cover only a part of the cells neither hide their luck nor pass it on as scatter."""
    starts, _, blocks = _spreads(60, lambda rng: _interrupted(rng, 0.05, 0.01))
    assert blocks == pytest.approx(0.01, rel=0.15)
    assert starts == pytest.approx(0.05, rel=0.35)


def test_resumed_runs_know_which_cells_shared_an_engine() -> None:
    """Where a resume parted the cells between engines, the interval of their difference holds the truth still."""
    held = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        drawn = _drawn(_interrupted(rng, 0.05, 0.01), rng)
        held.append(_holds(drawn[2, 0] - drawn[0, 0], _log_truth()[2, 0] - _log_truth()[0, 0]))
    assert np.mean(held) > 0.88


def test_cells_without_blocks_are_not_claimed() -> None:
    """A cell that was not measured is nan, and its neighbours are as sure as ever."""
    rng = np.random.default_rng(6)
    drawn = _drawn(_blocks(rng, start_sd=0.02, block_sd=0.01, cells=CELLS[:-1]), rng)
    assert np.isnan(drawn.point[2, 2])
    assert np.isnan(drawn.draws[:, 2, 2]).all()
    assert np.isfinite(drawn.draws).sum() == drawn.draws.size - len(drawn.draws)


def test_silence_has_no_interval() -> None:
    """Blocks without any noise give the truth, as exactly as numbers go."""
    rng = np.random.default_rng(7)
    drawn = _drawn(_blocks(rng, cells=BOTH), rng)
    np.testing.assert_allclose(drawn.draws, np.broadcast_to(_log_truth(), drawn.draws.shape), atol=1e-4)
